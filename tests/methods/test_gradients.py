"""What a method adds to a client's gradient, beside the gradient of the loss alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SGD, SmallNet, make_run

from fedlit.exchange.rules import Mean
from fedlit.methods import Ditto, FedDyn, FedDynMean, FedProx, PFedMe, Scaffold, ScaffoldMean

ADDING: dict[str, tuple[Any, Any]] = {
    "fedprox": (partial(FedProx, mu=0.7), Mean),
    "ditto": (partial(Ditto, strength=0.7), Mean),
    "pfedme": (partial(PFedMe, strength=2.0, inner_steps=1, eta=0.1), Mean),
    "scaffold": (Scaffold, ScaffoldMean),
    "feddyn": (partial(FedDyn, alpha=2.0), FedDynMean),
}


@pytest.mark.parametrize("method", ADDING)
def test_the_gradient_has_what_the_paper_adds(method: str, tmp_path: Path) -> None:
    kind, rule = ADDING[method]
    loop = {"client": partial(kind, network=SmallNet), "optimizer": SGD}
    run = make_run(tmp_path, loop=loop, exchange={"federated": ["core"], "rule": rule})
    run.fit(quiet=True)
    client: Any = run.loop.federation["ash"].eval()
    with torch.no_grad():
        for parameter in client.parameters():
            parameter.add_(torch.randn_like(parameter))
    rows = run.data.train_loaders["ash"].rows
    part = client.personal if method in ("ditto", "pfedme") else client
    objective = client.personal_objective if method == "ditto" else client.objective
    own, w = dict(part.named_parameters()), dict(client.named_parameters())
    total = torch.autograd.grad(objective(rows.x, rows.y), list(own.values()), allow_unused=True)
    plain = torch.autograd.grad(client.loss(client(rows.x), rows.y), list(own.values()), allow_unused=True)

    def kept(module: Any, name: str) -> torch.Tensor:
        value: torch.Tensor = module.get_buffer(name.replace(".", "/"))
        return value

    for (name, value), with_it, without in zip(own.items(), total, plain, strict=True):
        added = torch.zeros_like(value)
        if name in client.federated:
            if method == "scaffold":
                added = run.exchange.rule.state_dict()["control"][name] - client.state["control"][name]
            elif method == "feddyn":
                added = 2.0 * (value - kept(client.received, name)) - kept(client.gradient, name)
            elif method == "pfedme":
                added = 2.0 * (value - w[name])
            else:
                added = 0.7 * (value - kept(client.received, name))
            assert added.abs().max() > 1e-3 or method == "scaffold"
        torch.testing.assert_close(with_it - without, added, atol=1e-4, rtol=1e-4)
    if method in ("scaffold", "feddyn"):
        assert not torch.equal(client.objective(rows.x, rows.y), client.loss(client(rows.x), rows.y))
        client.fine_tuning = True  # nothing is added then
        assert torch.equal(client.objective(rows.x, rows.y), client.loss(client(rows.x), rows.y))
