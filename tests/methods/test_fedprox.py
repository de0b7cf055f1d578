"""FedProx: its gradient, what it is anchored to, and that it is FedAvg without the term."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from federations import SLOW, SmallNet, different, make_run, weights

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.methods import FedProx
from fedlit.train.callbacks import Checkpoints


@pytest.mark.parametrize("alike", [False, True])
def test_without_the_term_it_is_fedavg_bit_for_bit(alike: bool, tmp_path: Path) -> None:
    options = {"exchange": {"federated": ["*"], "buffers": "average"}, "align": "both"}
    if alike:  # the same batch size, so that clients are stacked
        options |= {"data": {"batches": None, "batch_size": 8}}  # type: ignore[dict-item]
    runs = []
    for name, client in (("avg", FederatedClient), ("prox", partial(FedProx, mu=0.0))):
        run = make_run(tmp_path / name, loop={"client": partial(client, network=SmallNet)}, **options)
        run.fit(quiet=True)
        runs.append(weights(run))
    assert different(*runs) == []


def test_a_step_by_hand(tmp_path: Path) -> None:
    """One epoch apart from what was received, then one step whose gradient has μ (w − w_t)."""
    mu = 0.7
    options = {"exchange": {"federated": ["core"]}, "data": {"batches": 1}, "seed": 3}
    slow = {"optimizer": partial(torch.optim.SGD, lr=0.05)}
    with_term = make_run(tmp_path / "a", loop={"client": partial(FedProx, network=SmallNet, mu=mu), **slow}, **options)
    with_term.fit(quiet=True)
    client = with_term.loop.federation["ash"].train()
    received = {name: client.received.get_buffer(name.replace(".", "/")) for name in client.federated}
    for name, value in client.federated.items():  # the last thing was an exchange
        assert torch.equal(value, received[name])
    with torch.no_grad():
        for parameter in client.parameters():
            parameter.add_(torch.randn_like(parameter))
    rows = with_term.data.train_loaders["ash"].rows
    parameters = dict(client.named_parameters())
    torch.manual_seed(0)
    total = torch.autograd.grad(client.objective(rows.x, rows.y), list(parameters.values()))
    torch.manual_seed(0)
    plain = torch.autograd.grad(client.loss(client(rows.x), rows.y), list(parameters.values()))
    for (name, value), with_it, without in zip(parameters.items(), total, plain, strict=True):
        pulled = mu * (value - received[name]) if name in received else torch.zeros_like(value)
        torch.testing.assert_close(with_it - without, pulled, atol=1e-5, rtol=1e-4)


def test_a_strong_pull_keeps_clients_near_what_they_received(tmp_path: Path) -> None:
    drift = {}
    for mu in (0.01, 10.0):
        run = make_run(
            tmp_path / str(mu),
            loop={"client": partial(FedProx, network=SmallNet, mu=mu), "optimizer": SLOW},
            exchange={"federated": ["core"]},
            checkpoints=Checkpoints(best=0),
        )
        run.fit(quiet=True)
        drift[mu] = [epoch["train/drift"] for epoch in run.loop.history if "train/drift" in epoch][-1]
    assert drift[10.0] < 0.5 * drift[0.01]


def test_what_it_holds_to_never_travels(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, loop={"client": partial(FedProx, network=SmallNet)}, align="both",
        exchange={"federated": ["*"], "buffers": "average"},
    )  # fmt: skip
    assert not [name for name in run.describe().exchange["federated"] if name.startswith("received")]
    with pytest.raises(ConfigError, match="FedProx: mu: expected at least 0, found -1"):
        make_run(tmp_path, loop={"client": partial(FedProx, network=SmallNet, mu=-1)}).describe()
