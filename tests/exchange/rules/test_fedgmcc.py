"""FedGMCC: closed forms against numerical integration, derivatives against differences, a barrier that the bend avoids,
and what clients receive.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlit import FedGMCC, Round, Update
from fedlit.exchange.questions import FederatedFunction
from fedlit.exchange.rules import fedgmcc
from fedlit.exchange.rules.fedgmcc import Curves
from fedlit.sharing import State


def known(part: FederatedFunction) -> Any:
    """What is known of clients' networks: their federated part."""
    return SimpleNamespace(function=lambda: part)


NAMES = ("core.0.weight", "core.0.bias", "core.2.weight", "core.2.bias")


def small() -> FederatedFunction:
    return FederatedFunction({"core": nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))}, NAMES, (3,))


def drawn(seed: int, scale: float = 1.0, around: State | None = None) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"core.0.weight": (5, 3), "core.0.bias": (5,), "core.2.weight": (2, 5), "core.2.bias": (2,)}
    own = {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return own if around is None else {name: value + around[name] for name, value in own.items()}


def receive(rule: FedGMCC, states: Mapping[str, State], part: FederatedFunction, seed: int = 5) -> Mapping[str, State]:
    updates = {name: Update(state, 10, parameters=part.parameters) for name, state in states.items()}
    receivers = {name: tuple(state) for name, state in states.items()}
    return rule(Round(0, seed, updates, receivers, model=known(part)))


@pytest.mark.parametrize("classes", [1, 3])
def test_probabilities_are_bounded_whatever_logits_are(classes: int) -> None:
    part = FederatedFunction({"head": nn.Linear(2, classes)}, ["head.weight", "head.bias"], (2,))
    assert part.ends_in_head and not small().ends_in_head
    ends = [{"head.weight": 50 * torch.randn(1, classes, 2), "head.bias": torch.zeros(1, classes)} for _ in range(2)]
    curves = Curves(part, *ends, torch.rand(30, 2), probabilities=True)
    logits = [curves.x[0] @ end["head.weight"][0].T for end in ends]
    p = [own.softmax(1) if classes > 1 else own.sigmoid() for own in logits]
    expected = ((p[0] - p[1]) ** 2).sum(1).mean()
    torch.testing.assert_close(curves.losses(ends[0])[0], expected, atol=1e-5, rtol=1e-4)


def test_a_bend_that_runs_away_is_left_straight() -> None:
    stacked = [{name: value[None] for name, value in drawn(seed).items()} for seed in (1, 2)]
    curves = Curves(small(), *stacked, torch.rand(20, 3))
    halfway = dict(curves.bend)
    curves.train(torch.rand(50).tolist(), lr=1e6, grid=8)
    assert all(torch.equal(curves.bend[name], halfway[name]) for name in NAMES)


def federation() -> dict[str, dict[str, Tensor]]:
    """Three clients around one state, two around another, one far from both."""
    centres = [drawn(100), drawn(200), drawn(300, 4)]
    groups = {"ash": 0, "birch": 1, "cedar": 0, "elm": 0, "fir": 1, "oak": 2}
    return {name: drawn(seed, 0.05, centres[group]) for seed, (name, group) in enumerate(groups.items())}


def written_by_hand(
    rule: FedGMCC, part: FederatedFunction, states: Mapping[str, State], seed: int, levels: list[float] | None
) -> tuple[list[set[str]], dict[str, dict[str, Tensor]], list[float]]:
    """Algorithm 1, pair by pair, in float64: the clusters, what clients receive, the training losses of all pairs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rule.samples, 3, generator=generator).double()
    steps = torch.rand(rule.steps, generator=generator).tolist()
    w = {client: {name: value.double() for name, value in own.items()} for client, own in states.items()}

    def f(p: State) -> Tensor:
        hidden = torch.tanh(x @ p["core.0.weight"].T + p["core.0.bias"])
        return hidden @ p["core.2.weight"].T + p["core.2.bias"]

    def find(k: str, other: str) -> tuple[dict[str, Tensor], float, float]:
        theta = {name: ((w[k][name] + w[other][name]) / 2).requires_grad_() for name in NAMES}

        def loss(u: Tensor) -> Tensor:
            near, far = (1 - 2 * u).clamp(min=0), (2 * u - 1).clamp(min=0)
            here = {n: near * w[k][n] + (1 - near - far) * theta[n] + far * w[other][n] for n in NAMES}
            return (f(w[other]) - f(here)).square().sum(1).mean()

        for u in steps:
            gradients = torch.autograd.grad(loss(torch.tensor(u).double()), list(theta.values()))
            theta = {
                n: (theta[n] - rule.lr * g).detach().requires_grad_() for n, g in zip(theta, gradients, strict=True)
            }
        grid = ((torch.arange(rule.grid) + 0.5) / rule.grid).double().requires_grad_()
        slopes = torch.stack([torch.autograd.grad(loss(u), u)[0] for u in grid])
        mean = {n: ((w[k][n] + 2 * theta[n] + w[other][n]) / 4).detach() for n in NAMES}
        return mean, float(slopes.max()), float(torch.stack([loss(u).detach() for u in grid]).mean())

    names = sorted(w)
    found = {(k, other): find(k, other) for k in names for other in names if k < other}
    levels = levels or [own[2] for own in found.values()]
    epsilon = np.percentile(levels, rule._percentile)
    clusters, curves = [{name} for name in names], []
    for (k, other), (mean, barrier, _) in found.items():
        own, theirs = (next(cluster for cluster in clusters if name in cluster) for name in (k, other))
        if own is not theirs and barrier <= epsilon:
            own |= theirs
            clusters.remove(theirs)
            curves.append((k, mean))
    received = {}
    for cluster in clusters:
        means = [mean for k, mean in curves if k in cluster]
        for client in cluster:
            received[client] = {n: torch.stack([m[n] for m in means]).mean(0) for n in NAMES} if means else w[client]
    return clusters, received, levels


@pytest.mark.parametrize("memory", [fedgmcc.MEMORY["cpu"], 1])
def test_rounds_are_algorithm_1_as_written_by_hand(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all pairs fit into one batch or are trained one by one."""
    monkeypatch.setitem(fedgmcc.MEMORY, "cpu", memory)
    part, rule, states = small(), FedGMCC(samples=32, steps=9, grid=6, lr=0.005, outputs="raw"), federation()
    levels: list[float] | None = None
    counts = []
    for round in range(3):
        percentile = rule._percentile
        clusters, expected, levels = written_by_hand(rule, part, states, seed=5 + round, levels=levels)
        received = receive(rule, states, part, seed=5 + round)
        assert rule.clustering is not None
        assert {*map(frozenset, clusters)} == {*map(frozenset, rule.clustering.clusters)}
        for client, state in expected.items():
            for name in NAMES:
                torch.testing.assert_close(received[client][name].double(), state[name], rtol=1e-4, atol=1e-5)
        assert rule.clustering.scalars["epsilon"] == pytest.approx(np.percentile(levels, percentile), rel=1e-4)
        assert rule._percentile == percentile + (5 if len(clusters) > 1 else -5)
        counts.append(len(clusters))
        # later rounds with an ε that parts them: along trained curves L hardly rises
        rule._losses = levels = sorted(rule.clustering.pairs.values())[:8] if round == 0 else levels
        states = {client: drawn(seed, 0.05, state) for seed, (client, state) in enumerate(states.items(), start=50)}
    assert counts[0] == 1 and counts[1] == 6 and 1 < counts[2] < 6


@pytest.mark.parametrize("epsilon", ["losses", "barriers"])
def test_a_barrier_that_is_not_finite_parts_whatever_the_threshold(epsilon: Literal["losses", "barriers"]) -> None:
    states = {who: dict(drawn(1)) for who in "ab"} | {"c": {name: 1e25 * value for name, value in drawn(1).items()}}
    rule = FedGMCC(samples=8, steps=2, grid=2, outputs="raw", epsilon=epsilon)
    receive(rule, states, small())
    assert rule.clustering is not None and rule.clustering.clusters == (("a", "b"), ("c",))
    assert rule.clustering.pairs["a", "c"] == float("inf")


def test_what_the_function_does_not_depend_on_is_averaged_within_the_cluster() -> None:
    part = small()
    states = {
        name: {**state, "norm.running_mean": torch.full((2,), float(number))}
        for number, (name, state) in enumerate(federation().items())
    }
    rule = FedGMCC(16, 1, grid=4, lr=0.001, outputs="raw", epsilon="barriers")
    rule._percentile = 15.0  # of 15 pairs 4 are within a group
    received = receive(rule, states, part)
    assert received["ash"]["norm.running_mean"].tolist() == pytest.approx([5 / 3, 5 / 3])  # of 0, 2 and 3
    assert received["oak"]["norm.running_mean"].tolist() == [5, 5]


def test_epsilon_of_barriers_settles_when_it_has_come_down_to_the_same_clusters_three_times() -> None:
    one, two, other = (("a", "b", "c"),), (("a", "b"), ("c",)), (("a",), ("b", "c"))
    rule, never = FedGMCC(epsilon="barriers"), FedGMCC()
    # going up through the same clusters is no repetition, nor is finding them beside others
    for clusters in (two, two, two, one, one, two, two, one, other, two, one, two, one, two, one):
        rule._advance(clusters)
        never._advance(clusters)
    assert rule._percentile == never._percentile
    before = rule._percentile
    again = FedGMCC(epsilon="barriers")
    again.load_state_dict(rule.state_dict())
    for own, more in ((rule, 0), (again, 0), (never, 5)):
        own._advance(two)
        assert own._percentile == before + more


def test_inputs_are_drawn_from_the_range_of_all_clients() -> None:
    part, rule = small(), FedGMCC(samples=4000, inputs="range")
    ranges = {"a": torch.tensor([[-2.0] * 3, [1.0] * 3]), "b": torch.tensor([[0.0] * 3, [5.0] * 3])}
    x, _ = rule._draw(Round(0, 1, {}, {}, model=known(part), ask=lambda _: ranges), "ab")  # type: ignore[arg-type]
    assert x.shape == (4000, 3) and -2 <= x.min() < -1.95 and 4.95 < x.max() <= 5
    torch.testing.assert_close(x.mean(0), torch.full((3,), 1.5), atol=0.1, rtol=0)
