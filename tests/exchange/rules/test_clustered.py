"""CFL, IFCA and agglomerative clustering: what they split and what clients receive. Resumed: tests/contract."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedlit import CFL, IFCA, Agglomerative, Clustered, Round, Update
from fedlit.exchange.rules.clustered import cosine_similarities

NAMES = ("w",)
States = Mapping[str, Sequence[float]]


# how clients' networks are drawn
DRAWN: Any = SimpleNamespace(fresh=lambda seed: {"w": torch.randn(2, generator=torch.Generator().manual_seed(seed))})


def a_round(states: States, rows: Mapping[str, int] | None = None, clients: str = "", likes: States = {}) -> Round:  # noqa: B006
    """What clients sent; asked for its losses, a client tells the squared distance to what it likes."""

    def ask(questions: Mapping[str, Any]) -> dict[str, Tensor]:
        liked = {name: torch.tensor(likes[name]) for name in questions}
        return {
            name: torch.stack([(state["w"] - liked[name]).square().sum() for state in question.states])
            for name, question in questions.items()
        }

    counted = {**dict.fromkeys(states, 10), **(rows or {})}
    updates = {name: Update({"w": torch.tensor(own)}, counted[name], parameters=NAMES) for name, own in states.items()}
    return Round(0, 1, updates, dict.fromkeys(clients or list(updates), NAMES), ask, DRAWN)


def begun(rule: Any, clients: str, **more: Any) -> Any:
    """The rule, after all clients have started from 0."""
    rule.begin(a_round({client: [0.0, 0] for client in clients}, **more))
    return rule


def after(rule: Clustered, states: States, **more: Any) -> tuple[Any, dict[str, list[float]]]:
    """The clusters after an exchange, and what clients receive."""
    received = {client: state["w"].tolist() for client, state in rule(a_round(states, **more)).items() if "w" in state}
    assert rule.clustering is not None
    return rule.clustering.clusters, received


def test_cfl_splits_when_the_mean_stands_still_and_clients_do_not() -> None:
    rule = begun(CFL(epsilon_1=0.2, epsilon_2=0.5), "abcd")
    clusters, received = after(rule, {"a": [1.0, 0], "b": [1.0, 0.1], "c": [0.9, 0], "d": [1.1, 0]})
    assert received["a"] == pytest.approx([1, 0.025])  # the mean moves: nobody is parted
    assert clusters == (("a", "b", "c", "d"),)
    small = {"a": [1.1, 0.025], "b": [0.9, 0.025], "c": [1.0, 0.1], "d": [1, 0]}
    assert len(after(rule, small)[0]) == 1  # it stands still, but so do its clients
    clusters, received = after(rule, {"a": [2.0, 0], "b": [0.1, 0], "c": [1.9, 0.2], "d": [0, 0]})
    assert clusters == (("a", "c"), ("b", "d"))
    assert received["a"] == received["c"] == pytest.approx([1.95, 0.1])
    assert received["b"] == received["d"] == pytest.approx([0.05, 0])
    # each half may split again, by its own updates, and only it; who took no part stays with its companions
    clusters, received = after(rule, {"a": [1.95, 2.1], "c": [1.95, -1.9], "b": [3, 0.0]}, clients="abcd")
    assert clusters == (("a",), ("b", "d"), ("c",))
    assert received["a"] == pytest.approx([1.95, 2.1])
    assert received["b"] == received["d"] == pytest.approx([3, 0])


def test_cfl_counts_rows_if_told_and_is_fedavg_without_a_split() -> None:
    rule = begun(CFL(weights="rows"), "ab")
    assert after(rule, {"a": [1.0, 0], "b": [4.0, 0]}, rows={"a": 30})[1]["b"] == pytest.approx([1.75, 0])


def test_halves_are_those_of_single_linkage() -> None:
    """A chain of directions, 40° apart, and one 70° further: complete linkage would part the chain."""
    angles = dict(zip("abcd", np.deg2rad([0.0, 40, 80, 150]), strict=True))
    similar = cosine_similarities({name: torch.tensor([np.cos(own), np.sin(own)]) for name, own in angles.items()})
    assert {tuple(sorted(half)) for half in CFL()._cut([*angles], similar, n_clusters=2)} == {("a", "b", "c"), ("d",)}


@pytest.mark.parametrize("how", [{"clusters": 2}, {"distance": 1.0}])
def test_agglomerative_clusters_once(how: dict[str, Any]) -> None:
    rule = begun(Agglomerative(after=2, **how), "abc")
    assert after(rule, {"a": [1.0, 0], "b": [-1.0, 0], "c": [1.0, 0.1]})[0] == (("a", "b", "c"),)
    clusters, received = after(rule, {"a": [2.0, 0], "b": [-2.0, 0], "c": [2.0, 0.2]})
    assert received["a"] == pytest.approx([2, 0.1]) and received["b"] == [-2, 0]
    again, _ = after(rule, {"a": [3.0, 0], "b": [3.0, 0], "c": [-3.0, 0]})  # never again
    assert clusters == again == (("a", "c"), ("b",))


def test_ifca_gives_each_client_the_model_of_least_loss() -> None:
    rule, likes = IFCA(2), {"a": [5.0, 0], "b": [-5.0, 0], "c": [4.0, 0]}
    started = rule.begin(a_round({client: [0.0, 0] for client in "abc"}, likes=likes))
    first, second = rule._models
    assert first["w"].tolist() == [0, 0] and second["w"].abs().sum() > 0
    for client, like in likes.items():
        near = min((first, second), key=lambda model: float((model["w"] - torch.tensor(like)).square().sum()))
        assert torch.equal(started[client]["w"], near["w"])
    rule._picked = {"a": 0, "b": 1, "c": 0}
    clusters, received = after(rule, {"a": [2.0, 0], "b": [-2.0, 0], "c": [3.0, 0]}, likes=likes)
    assert received == {"a": [2.5, 0], "b": [-2, 0], "c": [2.5, 0]} and clusters == (("a", "c"), ("b",))
    # c goes over to b; a, who is absent, does not follow its companion; what nobody sent stays on offer
    moved = {**likes, "c": [-9.0, 0]}
    clusters, received = after(rule, {"c": [4.5, 0]}, clients="abc", likes=moved)
    assert received == {"a": [4.5, 0], "b": [-2, 0], "c": [-2, 0]} and clusters == (("a",), ("b", "c"))
    everybody = {client: [9.0, 0] for client in "abc"}
    clusters, _ = after(rule, {"a": [8.0, 0], "b": [-2.0, 0], "c": [-2.0, 0]}, likes=everybody)
    assert clusters == (("a", "b", "c"),) and rule._models[1]["w"].tolist() == [-2, 0]
    clusters, _ = after(rule, {key: [8.0, 0] for key in "abc"}, likes={**everybody, "b": [-2.0, 0]})
    assert clusters == (("a", "c"), ("b",))


def test_ifca_deals_models_evenly_if_told_and_a_loss_that_is_no_number_is_never_least() -> None:
    rule = begun(IFCA(3, start="drawn"), "abcdefg")
    assert sorted(np.bincount(list(rule._picked.values())).tolist()) == [2, 2, 3]
    rule._models[0] = {"w": torch.tensor([torch.nan, 0])}
    rule._pick(a_round({"a": [0.0, 0]}, likes={"a": [0.0, 0]}))
    assert rule._picked["a"] != 0
