"""Ditto: without its pull it is Local and FedAvg bit for bit; its gradient; on quadratics the points of its theory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, different, make_run, weights
from methods.quadratic import STEPS, point, problems, quadratic, rest

from fedlit.errors import ConfigError
from fedlit.methods import Ditto
from fedlit.nn import MLP
from fedlit.spec import ClientSpec


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_without_the_pull_the_copies_are_local_and_fedavg_bit_for_bit(engine: str, tmp_path: Path) -> None:
    ditto = partial(Ditto, network=SmallNet, strength=0.0)
    runs = []
    for name, client, federated in (("local", None, []), ("fedavg", None, ["*"]), ("ditto", ditto, ["*"])):
        loop: dict[str, Any] = {"engine": engine, "gradient_clip_val": 0.5, **({"client": client} if client else {})}
        run = make_run(tmp_path / name, loop=loop, exchange={"federated": federated}, align="both")
        run.fit(quiet=True)
        runs.append(weights(run))
    local, fedavg, both = runs
    personal = {name.replace("personal.", ""): value for name, value in both.items() if ".personal." in name}
    assert different(local, personal) == []
    assert different(fedavg, {name: value for name, value in both.items() if ".personal." not in name}) == []


def test_the_pull_has_its_gradient(tmp_path: Path) -> None:
    strength = 0.7
    run = make_run(
        tmp_path, loop={"client": partial(Ditto, network=SmallNet, strength=strength)}, exchange={"federated": ["core"]}
    )
    run.fit(quiet=True)
    client = run.loop.federation["ash"].train()
    received = {name: client.received.get_buffer(name.replace(".", "/")) for name in client.federated}
    assert all(torch.equal(value, received[name]) for name, value in client.federated.items())  # the last exchange's
    rows, own = run.data.train_loaders["ash"].rows, dict(client.personal.named_parameters())
    torch.manual_seed(0)
    total = torch.autograd.grad(client.personal_objective(rows.x, rows.y), list(own.values()))
    torch.manual_seed(0)
    plain = torch.autograd.grad(client.loss(client(rows.x), rows.y), list(own.values()))
    for (name, value), with_it, without in zip(own.items(), total, plain, strict=True):
        pulled = strength * (value - received[name]) if name in received else torch.zeros_like(value)
        assert name not in received or pulled.abs().max() > 1e-3
        torch.testing.assert_close(with_it - without, pulled, atol=1e-5, rtol=1e-4)


def test_on_quadratics_each_copy_rests_where_theory_says(tmp_path: Path) -> None:
    run = quadratic(tmp_path, client=partial(Ditto, strength=0.5), lr=0.1, rounds=150)
    run.fit(quiet=True)
    own = problems(run)
    federated = rest(own, lr=0.1, steps=STEPS)  # FedAvg's
    assert point(run) == pytest.approx(federated, abs=1e-4)
    for name, one in own.items():
        personal = point(run, name, "personal.")
        assert personal == pytest.approx(one.near(federated, 0.5), abs=1e-4)
        assert abs(personal - federated).max() > 0.01 and abs(personal - one.minimum).max() > 0.01


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="Ditto: strength: expected at least 0, found -1"):
        Ditto(ClientSpec("ash", ("a", "b"), (0, 1), {}, ()), MLP, strength=-1)
