"""Tensors that are shared slice by slice: values by hand, what travels, and what a newcomer takes."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import ALIKE, Named, make_run
from torch import nn

from fedlit import FedGMCC, FedProx, Network
from fedlit.by_name import Live, named_axes
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.run.run import Run
from fedlit.train.start import Start

NAMED = {"federated": ["*"], "by_name": ["*"]}


def named_run(folder: Path, clients: tuple[str, ...] = ALIKE[:3], client: Any = FederatedClient, **more: Any) -> Run:
    loop = {"client": partial(client, network=more.pop("network", Named)), "start": more.pop("start", None)}
    return make_run(folder, clients=clients, loop=loop, exchange={**NAMED, **more}, epochs=1)


def test_a_slice_is_averaged_over_the_clients_that_have_its_name(tmp_path: Path) -> None:
    run = named_run(tmp_path)
    run.describe()
    clients = run.loop.federation
    with torch.no_grad():
        for value, client in enumerate(clients.values(), start=1):
            for parameter in client.parameters():
                parameter.fill_(float(value))
    run.loop.federation.exchange.exchange(run.loop.federation)
    # columns x0..x3 are at all three, x4 at ash (1) and cedar (3), x5 at cedar alone; birch has one logit
    first = {name: client.state_dict()["encoder.0.weight"][0].tolist() for name, client in clients.items()}
    assert first == {"ash": [2, 2, 2, 2, 2], "birch": [2, 2, 2, 2], "cedar": [2, 2, 2, 2, 2, 3]}
    last = {name: client.state_dict()["head.bias"].tolist() for name, client in clients.items()}
    assert last == {"ash": [2, 2, 2], "birch": [2], "cedar": [2, 2, 2, 3]}
    assert all(float(client.state_dict()["core.bias"][0]) == 2 for client in clients.values())


def test_wholes_are_made_of_slices() -> None:
    weight = torch.arange(6.0).view(2, 3)
    live = Live({"w": weight, "b": torch.zeros(1)}, ["w[a]", "w[c]", "b"], {"w": (1, ("a", "b", "c"))})
    whole = live.whole({"w[c]": torch.tensor([7.0, 8.0]), "b": torch.ones(1)})
    assert whole["w"].tolist() == [[0, 1, 7], [3, 4, 8]] and whole["b"].tolist() == [1]
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(("labels", "found"), [(("a", "a", "b"), "'a' twice"), (("a", "b"), "2 names")])
def test_names_that_do_not_fit_are_refused(labels: tuple[str, ...], found: str) -> None:
    linear = nn.Linear(2, 3)
    linear.axes = {"weight": (0, labels)}  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=f"weight: expected 3 different names of slices along axis 0, found {found}"):
        named_axes(nn.Sequential(linear))


def test_a_network_without_names_is_refused_with_those_that_have_some(tmp_path: Path) -> None:
    class Plain(Network):
        def __init__(self, num_features: int, num_outputs: int) -> None:
            super().__init__(nn.Linear(num_features, 8), nn.Linear(8, 8), nn.Linear(8, num_outputs))

    with pytest.raises(ConfigError, match=r"exchange.by_name: pattern '\*': expected a federated tensor whose slices"):
        named_run(tmp_path, network=Plain).describe()


def test_a_rule_that_calls_the_federated_part_refuses_slices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected whole tensors"):
        named_run(tmp_path, ALIKE, rule=FedGMCC(inputs="range"), federated=["encoder"], by_name=["encoder"]).describe()


def test_the_proximal_term_counts_slices(tmp_path: Path) -> None:
    run = named_run(tmp_path, client=partial(FedProx, mu=2.0))
    run.describe()
    ash = run.loop.federation["ash"]
    ash.on_receive({name: value - 1 for name, value in ash.federated.items()})
    x, y = torch.zeros(2, 5), torch.zeros(2, dtype=torch.long)
    expected = sum(value.numel() for value in ash.federated.values())  # each number is 1 away
    away = ash.objective(x, y) - ash.loss(ash(x), y)
    assert float(away.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_newcomer_takes_the_slices_that_the_run_has(tmp_path: Path) -> None:
    first = named_run(tmp_path / "first", ("ash", "birch"))
    first.fit(quiet=True)
    second = named_run(tmp_path / "second", start=Start(str(first.last_checkpoint)))
    second.describe()
    ash, cedar = first.loop.federation["ash"], second.loop.federation["cedar"]
    taken, theirs = cedar.state_dict()["encoder.0.weight"], ash.state_dict()["encoder.0.weight"]
    assert torch.equal(taken[:, :5], theirs) and not torch.equal(taken[:, 5], theirs[:, 4])
    assert any("no client of the run has" in note and "x5" in note for note in second.loop.federation.notes)
