"""CFL, IFCA and agglomerative clustering: what they split, what clients receive, what they remember."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedlit import CFL, IFCA, Agglomerative, Clustered, Round, Rule, Update
from fedlit.exchange.rules.clustered import cosine_similarities

NAMES = ("w",)
States = Mapping[str, Sequence[float]]


# how clients' networks are drawn
DRAWN: Any = SimpleNamespace(fresh=lambda seed: {"w": torch.randn(2, generator=torch.Generator().manual_seed(seed))})


def a_round(
    states: States,
    rows: Mapping[str, int] | None = None,
    clients: Sequence[str] | None = None,
    likes: States | None = None,
) -> Round:
    """What clients sent; asked for its losses, a client tells the squared distance to what it likes."""

    def ask(questions: Mapping[str, Any]) -> dict[str, Tensor]:
        liked = {name: torch.tensor((likes or {})[name]) for name in questions}
        return {
            name: torch.stack([(state["w"] - liked[name]).square().sum() for state in question.states])
            for name, question in questions.items()
        }

    counted = {**dict.fromkeys(states, 10), **(rows or {})}
    updates = {name: Update({"w": torch.tensor(own)}, counted[name], parameters=NAMES) for name, own in states.items()}
    return Round(0, 1, updates, dict.fromkeys(clients or list(updates), NAMES), ask, DRAWN)


def exchange(rule: Rule, round: Round) -> dict[str, list[float]]:
    return {client: state["w"].tolist() for client, state in rule(round).items() if "w" in state}


def clusters_of(rule: Clustered) -> Any:
    assert rule.clustering is not None
    return rule.clustering.clusters


# ------------------------------------------------------------------ CFL


def test_cfl_splits_when_the_mean_stands_still_and_clients_do_not() -> None:
    rule = CFL(epsilon_1=0.2, epsilon_2=0.5)
    rule.begin(a_round({"a": [0, 0], "b": [0, 0], "c": [0, 0], "d": [0, 0]}))
    together = a_round({"a": [1.0, 0], "b": [1.0, 0.1], "c": [0.9, 0], "d": [1.1, 0]})
    assert exchange(rule, together)["a"] == pytest.approx([1, 0.025])  # the mean moves: nobody is parted
    assert clusters_of(rule) == (("a", "b", "c", "d"),)
    small = a_round({"a": [1.1, 0.025], "b": [0.9, 0.025], "c": [1.0, 0.1], "d": [1, 0]})
    exchange(rule, small)
    assert len(clusters_of(rule)) == 1  # it stands still, but so do its clients
    apart = a_round({"a": [2.0, 0], "b": [0.1, 0], "c": [1.9, 0.2], "d": [0, 0]})
    received = exchange(rule, apart)
    assert clusters_of(rule) == (("a", "c"), ("b", "d"))
    assert received["a"] == received["c"] == pytest.approx([1.95, 0.1])
    assert received["b"] == received["d"] == pytest.approx([0.05, 0])
    # each half may split again, by its own updates, and only it
    again = exchange(rule, a_round({"a": [1.95, 2.1], "c": [1.95, -1.9], "b": [3, 0.0], "d": [3, 0.0]}))
    assert clusters_of(rule) == (("a",), ("b", "d"), ("c",))
    assert again["a"] == pytest.approx([1.95, 2.1]) and again["b"] == pytest.approx([3, 0])


def test_cfl_counts_rows_if_told_and_is_fedavg_without_a_split() -> None:
    rule = CFL(weights="rows")
    rule.begin(a_round({"a": [0.0, 0], "b": [0.0, 0]}))
    assert exchange(rule, a_round({"a": [1.0, 0], "b": [4.0, 0]}, {"a": 30, "b": 10}))["b"] == pytest.approx([1.75, 0])


def test_halves_are_those_of_single_linkage() -> None:
    """A chain of directions, 40° apart, and one 70° further: complete linkage would part the chain."""
    angles = dict(zip("abcd", np.deg2rad([0.0, 40, 80, 150]), strict=True))
    similar = cosine_similarities({name: torch.tensor([np.cos(own), np.sin(own)]) for name, own in angles.items()})
    assert {tuple(sorted(half)) for half in CFL()._cut([*angles], similar, n_clusters=2)} == {("a", "b", "c"), ("d",)}


def test_a_client_that_took_no_part_stays_with_its_companions() -> None:
    rule = CFL(epsilon_1=0.2, epsilon_2=0.5)
    rule.begin(a_round({name: [0.0, 0] for name in "abcd"}))
    exchange(rule, a_round({"a": [1.0, 0], "b": [-1.0, 0], "c": [1.0, 0], "d": [-1.0, 0]}))
    received = exchange(rule, a_round({"b": [-1.2, 0.3], "c": [3.0, 0]}, clients="abcd"))
    assert received["a"] == received["c"] == pytest.approx([3, 0])
    assert received["d"] == received["b"] == pytest.approx([-1.2, 0.3])
    assert clusters_of(rule) == (("a", "c"), ("b", "d"))
    resumed = CFL(epsilon_1=0.2, epsilon_2=0.5)
    resumed.load_state_dict(rule.state_dict())
    last = a_round({"a": [3.0, 2], "b": [-1.2, 0.3], "c": [3.0, -2.02], "d": [-1.2, 0.3]})
    assert exchange(resumed, last) == exchange(rule, last)
    assert clusters_of(resumed) == clusters_of(rule) == (("a",), ("b", "d"), ("c",))


def test_who_is_absent_gets_the_model_that_it_picked() -> None:
    rule, likes = IFCA(2), {"a": [5.0, 0], "b": [-5.0, 0], "c": [4.0, 0]}
    rule.begin(a_round({client: [0.0, 0] for client in "abc"}, likes=likes))
    rule._models = [{"w": torch.tensor([4.0, 0])}, {"w": torch.tensor([-4.0, 0])}]
    rule._pick(a_round({client: [0.0, 0] for client in "abc"}, likes=likes))
    found = exchange(rule, a_round({"b": [-3.0, 0]}, clients="abc", likes=likes))
    assert found == {"a": [4, 0], "b": [-3, 0], "c": [4, 0]}
    # c goes over to b; a, who is absent, does not follow its companion
    received = exchange(rule, a_round({"c": [4.5, 0]}, clients="abc", likes={**likes, "c": [-9.0, 0]}))
    assert received == {"a": [4.5, 0], "b": [-3, 0], "c": [-3, 0]} and clusters_of(rule) == (("a",), ("b", "c"))


# ------------------------------------------------------------------ agglomerative


@pytest.mark.parametrize("how", [{"clusters": 2}, {"distance": 1.0}])
def test_agglomerative_clusters_once(how: dict[str, Any]) -> None:
    rule = Agglomerative(after=2, **how)
    rule.begin(a_round({name: [0.0, 0] for name in "abc"}))
    first = a_round({"a": [1.0, 0], "b": [-1.0, 0], "c": [1.0, 0.1]})
    exchange(rule, first)
    assert clusters_of(rule) == (("a", "b", "c"),)
    resumed = Agglomerative(after=2, **how)
    resumed.load_state_dict(rule.state_dict())
    for own in (rule, resumed):
        received = exchange(own, a_round({"a": [2.0, 0], "b": [-2.0, 0], "c": [2.0, 0.2]}))
        assert clusters_of(own) == (("a", "c"), ("b",))
        assert received["a"] == pytest.approx([2, 0.1]) and received["b"] == [-2, 0]
        exchange(own, a_round({"a": [3.0, 0], "b": [3.0, 0], "c": [-3.0, 0]}))  # never again
        assert clusters_of(own) == (("a", "c"), ("b",))


# ------------------------------------------------------------------ IFCA


def test_ifca_gives_each_client_the_model_of_least_loss() -> None:
    rule, likes = IFCA(2), {"a": [5.0, 0], "b": [-5.0, 0], "c": [4.0, 0]}
    started = rule.begin(a_round({client: [0.0, 0] for client in "abc"}, likes=likes))
    first, second = rule._models
    assert first["w"].tolist() == [0, 0] and second["w"].abs().sum() > 0
    for client, like in likes.items():
        near = min((first, second), key=lambda model: float((model["w"] - torch.tensor(like)).square().sum()))
        assert torch.equal(started[client]["w"], near["w"])
    rule._picked = {"a": 0, "b": 1, "c": 0}
    received = exchange(rule, a_round({"a": [2.0, 0], "b": [-2.0, 0], "c": [3.0, 0]}, likes=likes))
    assert received == {"a": [2.5, 0], "b": [-2, 0], "c": [2.5, 0]}
    assert clusters_of(rule) == (("a", "c"), ("b",))
    # c changes its mind, and a model that nobody picked stays on offer
    received = exchange(rule, a_round({"a": [2.5, 0], "b": [-2.0, 0], "c": [2.5, 0]}, likes={**likes, "c": [-9.0, 0]}))
    assert received["c"] == received["b"] == [-2, 0]
    everybody = {client: [9.0, 0] for client in "abc"}
    exchange(rule, a_round({"a": [8.0, 0], "b": [-2.0, 0], "c": [-2.0, 0]}, likes=everybody))
    assert clusters_of(rule) == (("a", "b", "c"),) and rule._models[1]["w"].tolist() == [-2, 0]
    exchange(rule, a_round({"a": [8.0, 0], "b": [8.0, 0], "c": [8.0, 0]}, likes={**everybody, "b": [-2.0, 0]}))
    assert clusters_of(rule) == (("a", "c"), ("b",))
    resumed = IFCA(2)
    resumed.load_state_dict(rule.state_dict())
    last = a_round({"a": [7.0, 0], "b": [-3.0, 0], "c": [8.0, 0]}, likes=likes)
    assert exchange(resumed, last) == exchange(rule, last)


def test_ifca_deals_models_evenly_if_told_and_a_loss_that_is_no_number_is_never_least() -> None:
    rule = IFCA(3, start="drawn")
    rule.begin(a_round({f"c{n}": [0.0, 0] for n in range(7)}))
    assert sorted(np.bincount(list(rule._picked.values())).tolist()) == [2, 2, 3]
    rule._models[0] = {"w": torch.tensor([torch.nan, 0])}
    rule._pick(a_round({"c1": [0.0, 0]}, likes={"c1": [0.0, 0]}))
    assert rule._picked["c1"] != 0
