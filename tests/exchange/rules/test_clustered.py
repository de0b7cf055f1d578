"""CFL, IFCA and agglomerative clustering: what they split and what clients receive. FedGMCC: closed
forms against numerical integration, derivatives against differences, a barrier that the bend
avoids. Resumed: tests/contract.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlit import CFL, IFCA, Agglomerative, Clustered, FedGMCC, Round, Update
from fedlit.exchange.function import FederatedFunction
from fedlit.exchange.rules import fedgmcc
from fedlit.exchange.rules.clustered import cosine_similarities
from fedlit.exchange.rules.curves import Curves
from fedlit.sharing import State

NAMES = ("w",)
States = Mapping[str, Sequence[float]]


# how clients' networks are drawn
DRAWN: Any = SimpleNamespace(
    fresh=lambda seed: {"w": torch.randn(2, generator=torch.Generator().manual_seed(seed))}
)


def a_round(
    states: States,
    rows: Mapping[str, int] | None = None,
    clients: str = "",
    likes: States | None = None,
) -> Round:
    """What clients sent; asked for its losses, a client tells the squared distance to what it
    likes."""

    def ask(questions: Mapping[str, Any]) -> dict[str, Tensor]:
        assert likes is not None
        liked = {name: torch.tensor(likes[name]) for name in questions}
        return {
            name: torch.stack(
                [(state["w"] - liked[name]).square().sum() for state in question.states]
            )
            for name, question in questions.items()
        }

    counted = {**dict.fromkeys(states, 10), **(rows or {})}
    updates = {
        name: Update({"w": torch.tensor(own)}, counted[name], parameters=NAMES)
        for name, own in states.items()
    }
    return Round(0, 1, updates, dict.fromkeys(clients or list(updates), NAMES), ask, DRAWN)


def begun(rule: Any, clients: str, **more: Any) -> Any:
    """The rule, after all clients have started from 0."""
    rule.begin(a_round({client: [0.0, 0] for client in clients}, **more))
    return rule


def after(rule: Clustered, states: States, **more: Any) -> tuple[Any, dict[str, list[float]]]:
    """The clusters after an exchange, and what clients receive."""
    received = {
        client: state["w"].tolist()
        for client, state in rule(a_round(states, **more)).items()
        if "w" in state
    }
    assert rule.clustering is not None
    return rule.clustering.clusters, received


def test_cfl_splits_when_the_mean_rests_and_clients_move() -> None:
    rule = begun(CFL(epsilon_1=0.2, epsilon_2=0.5), "abcd")
    clusters, received = after(rule, {"a": [1.0, 0], "b": [1.0, 0.1], "c": [0.9, 0], "d": [1.1, 0]})
    assert received["a"] == pytest.approx([1, 0.025])  # the mean moves: nobody is parted
    assert clusters == (("a", "b", "c", "d"),)
    small: dict[str, list[float]] = {
        "a": [1.1, 0.025],
        "b": [0.9, 0.025],
        "c": [1.0, 0.1],
        "d": [1, 0],
    }
    assert len(after(rule, small)[0]) == 1  # it stands still, but so do its clients
    clusters, received = after(rule, {"a": [2.0, 0], "b": [0.1, 0], "c": [1.9, 0.2], "d": [0, 0]})
    assert clusters == (("a", "c"), ("b", "d"))
    assert received["a"] == received["c"] == pytest.approx([1.95, 0.1])
    assert received["b"] == received["d"] == pytest.approx([0.05, 0])
    # each half may split again, by its own updates, and only it; who took no part stays with its
    # companions
    clusters, received = after(
        rule, {"a": [1.95, 2.1], "c": [1.95, -1.9], "b": [3, 0.0]}, clients="abcd"
    )
    assert clusters == (("a",), ("b", "d"), ("c",))
    assert received["a"] == pytest.approx([1.95, 2.1])
    assert received["b"] == received["d"] == pytest.approx([3, 0])


def test_cfl_counts_rows_if_told_and_is_fedavg_without_a_split() -> None:
    rule = begun(CFL(weights="rows"), "ab")
    assert after(rule, {"a": [1.0, 0], "b": [4.0, 0]}, rows={"a": 30})[1]["b"] == pytest.approx(
        [1.75, 0]
    )


def test_halves_are_those_of_single_linkage() -> None:
    """A chain of directions, 40° apart, and one 70° further: complete linkage would part the
    chain."""
    angles = dict(zip("abcd", np.deg2rad([0.0, 40, 80, 150]), strict=True))
    similar = cosine_similarities(
        {name: torch.tensor([np.cos(own), np.sin(own)]) for name, own in angles.items()}
    )
    assert {tuple(sorted(half)) for half in CFL()._cut([*angles], similar, n_clusters=2)} == {
        ("a", "b", "c"),
        ("d",),
    }


@pytest.mark.parametrize("how", [{"clusters": 2}, {"distance": 1.0}])
def test_agglomerative_clusters_once(how: dict[str, Any]) -> None:
    rule = begun(Agglomerative(after=2, **how), "abc")
    assert after(rule, {"a": [1.0, 0], "b": [-1.0, 0], "c": [1.0, 0.1]})[0] == (("a", "b", "c"),)
    clusters, received = after(rule, {"a": [2.0, 0], "b": [-2.0, 0], "c": [2.0, 0.2]})
    assert received["a"] == pytest.approx([2, 0.1]) and received["b"] == [-2, 0]
    again, _ = after(rule, {"a": [3.0, 0], "b": [3.0, 0], "c": [-3.0, 0]})  # never again
    assert clusters == again == (("a", "c"), ("b",))


def test_ifca_gives_each_client_the_model_of_least_loss() -> None:
    rule = IFCA(2)
    likes = {"a": [5.0, 0], "b": [-5.0, 0], "c": [4.0, 0]}
    started = rule.begin(a_round({client: [0.0, 0] for client in "abc"}, likes=likes))
    first, second = rule._models
    assert first["w"].tolist() == [0, 0] and second["w"].abs().sum() > 0
    for client, like in likes.items():
        near = min(
            (first, second),
            key=lambda model: float((model["w"] - torch.tensor(like)).square().sum()),
        )
        assert torch.equal(started[client]["w"], near["w"])
    rule._picked = {"a": 0, "b": 1, "c": 0}
    clusters, received = after(rule, {"a": [2.0, 0], "b": [-2.0, 0], "c": [3.0, 0]}, likes=likes)
    assert received == {"a": [2.5, 0], "b": [-2, 0], "c": [2.5, 0]} and clusters == (
        ("a", "c"),
        ("b",),
    )
    # c goes over to b; a, who is absent, does not follow its companion; what nobody sent stays on
    # offer
    moved = {**likes, "c": [-9.0, 0]}
    clusters, received = after(rule, {"c": [4.5, 0]}, clients="abc", likes=moved)
    assert received == {"a": [4.5, 0], "b": [-2, 0], "c": [-2, 0]} and clusters == (
        ("a",),
        ("b", "c"),
    )
    everybody = {client: [9.0, 0] for client in "abc"}
    clusters, _ = after(rule, {"a": [8.0, 0], "b": [-2.0, 0], "c": [-2.0, 0]}, likes=everybody)
    assert clusters == (("a", "b", "c"),) and rule._models[1]["w"].tolist() == [-2, 0]
    clusters, _ = after(rule, {key: [8.0, 0] for key in "abc"}, likes={**everybody, "b": [-2.0, 0]})
    assert clusters == (("a", "c"), ("b",))


def test_ifca_deals_models_evenly_and_nan_is_never_least() -> None:
    rule = begun(IFCA(3, start="drawn"), "abcdefg")
    assert sorted(np.bincount(list(rule._picked.values())).tolist()) == [2, 2, 3]
    rule._models[0] = {"w": torch.tensor([torch.nan, 0])}
    rule._pick(a_round({"a": [0.0, 0]}, likes={"a": [0.0, 0]}))
    assert rule._picked["a"] != 0


# ------------------------------------------------------------------ FedGMCC


def known(part: FederatedFunction) -> Any:
    """What is known of clients' networks: their federated part."""
    return SimpleNamespace(function=lambda: part)


PARTS = ("core.0.weight", "core.0.bias", "core.2.weight", "core.2.bias")


def small() -> FederatedFunction:
    return FederatedFunction(
        {"core": nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))}, PARTS, (3,)
    )


def drawn(seed: int, scale: float = 1.0, around: State | None = None) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "core.0.weight": (5, 3),
        "core.0.bias": (5,),
        "core.2.weight": (2, 5),
        "core.2.bias": (2,),
    }
    own = {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return own if around is None else {name: value + around[name] for name, value in own.items()}


def receive(
    rule: FedGMCC, states: Mapping[str, State], part: FederatedFunction, seed: int = 5
) -> Mapping[str, State]:
    updates = {
        name: Update(state, 10, parameters=part.parameters) for name, state in states.items()
    }
    receivers = {name: tuple(state) for name, state in states.items()}
    return rule(Round(0, seed, updates, receivers, model=known(part)))


@pytest.mark.parametrize("classes", [1, 3])
def test_probabilities_are_bounded_whatever_logits_are(classes: int) -> None:
    part = FederatedFunction({"head": nn.Linear(2, classes)}, ["head.weight", "head.bias"], (2,))
    assert part.ends_in_head and not small().ends_in_head
    ends = [
        {"head.weight": 50 * torch.randn(1, classes, 2), "head.bias": torch.zeros(1, classes)}
        for _ in range(2)
    ]
    curves = Curves(part, ends[0], ends[1], torch.rand(30, 2), probabilities=True)
    logits = [curves.x[0] @ end["head.weight"][0].T for end in ends]
    p = [own.softmax(1) if classes > 1 else own.sigmoid() for own in logits]
    expected = ((p[0] - p[1]) ** 2).sum(1).mean()
    torch.testing.assert_close(curves.losses(ends[0])[0], expected, atol=1e-5, rtol=1e-4)


def test_a_bend_that_runs_away_is_left_straight() -> None:
    stacked = [{name: value[None] for name, value in drawn(seed).items()} for seed in (1, 2)]
    curves = Curves(small(), stacked[0], stacked[1], torch.rand(20, 3))
    halfway = dict(curves.bend)
    curves.train(torch.rand(50).tolist(), lr=1e6, grid=8)
    assert all(torch.equal(curves.bend[name], halfway[name]) for name in PARTS)


def federation() -> dict[str, dict[str, Tensor]]:
    """Three clients around one state, two around another, one far from both."""
    centres = [drawn(100), drawn(200), drawn(300, 4)]
    groups = {"ash": 0, "birch": 1, "cedar": 0, "elm": 0, "fir": 1, "oak": 2}
    return {
        name: drawn(seed, 0.05, centres[group]) for seed, (name, group) in enumerate(groups.items())
    }


def written_by_hand(
    rule: FedGMCC,
    part: FederatedFunction,
    states: Mapping[str, State],
    seed: int,
    levels: list[float] | None,
) -> tuple[list[set[str]], dict[str, dict[str, Tensor]], list[float]]:
    """Algorithm 1, pair by pair, in float64: the clusters, what clients receive, the training
    losses of all pairs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rule.samples, 3, generator=generator).double()
    steps = torch.rand(rule.steps, generator=generator).tolist()
    w = {
        client: {name: value.double() for name, value in own.items()}
        for client, own in states.items()
    }

    def f(p: State) -> Tensor:
        hidden = torch.tanh(x @ p["core.0.weight"].T + p["core.0.bias"])
        return hidden @ p["core.2.weight"].T + p["core.2.bias"]

    def find(k: str, other: str) -> tuple[dict[str, Tensor], float, float]:
        theta = {name: ((w[k][name] + w[other][name]) / 2).requires_grad_() for name in PARTS}

        def loss(u: Tensor) -> Tensor:
            near = (1 - 2 * u).clamp(min=0)
            far = (2 * u - 1).clamp(min=0)
            here = {
                n: near * w[k][n] + (1 - near - far) * theta[n] + far * w[other][n] for n in PARTS
            }
            return (f(w[other]) - f(here)).square().sum(1).mean()

        for u in steps:
            gradients = torch.autograd.grad(loss(torch.tensor(u).double()), list(theta.values()))
            theta = {
                n: (theta[n] - rule.lr * g).detach().requires_grad_()
                for n, g in zip(theta, gradients, strict=True)
            }
        grid = ((torch.arange(rule.grid) + 0.5) / rule.grid).double().requires_grad_()
        slopes = torch.stack([torch.autograd.grad(loss(u), u)[0] for u in grid])
        mean = {n: ((w[k][n] + 2 * theta[n] + w[other][n]) / 4).detach() for n in PARTS}
        return (
            mean,
            float(slopes.max()),
            float(torch.stack([loss(u).detach() for u in grid]).mean()),
        )

    names = sorted(w)
    found = {(k, other): find(k, other) for k in names for other in names if k < other}
    levels = levels or [own[2] for own in found.values()]
    epsilon = np.percentile(levels, rule._percentile)
    clusters = [{name} for name in names]
    curves = []
    for (k, other), (mean, barrier, _) in found.items():
        own, theirs = (
            next(cluster for cluster in clusters if name in cluster) for name in (k, other)
        )
        if own is not theirs and barrier <= epsilon:
            own |= theirs
            clusters.remove(theirs)
            curves.append((k, mean))
    received = {}
    for cluster in clusters:
        means = [mean for k, mean in curves if k in cluster]
        for client in cluster:
            received[client] = (
                {n: torch.stack([m[n] for m in means]).mean(0) for n in PARTS}
                if means
                else w[client]
            )
    return clusters, received, levels


@pytest.mark.parametrize("memory", [fedgmcc.MEMORY["cpu"], 1])
def test_rounds_are_algorithm_1_as_written_by_hand(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all pairs fit into one batch or are trained one by one."""
    monkeypatch.setitem(fedgmcc.MEMORY, "cpu", memory)
    part = small()
    rule = FedGMCC(samples=32, steps=9, grid=6, lr=0.005, outputs="raw")
    states = federation()
    levels: list[float] | None = None
    counts = []
    for round in range(3):
        percentile = rule._percentile
        clusters, expected, levels = written_by_hand(
            rule, part, states, seed=5 + round, levels=levels
        )
        received = receive(rule, states, part, seed=5 + round)
        assert rule.clustering is not None
        assert {*map(frozenset, clusters)} == {*map(frozenset, rule.clustering.clusters)}
        for client, state in expected.items():
            for name in PARTS:
                torch.testing.assert_close(
                    received[client][name].double(), state[name], rtol=1e-4, atol=1e-5
                )
        assert rule.clustering.scalars["epsilon"] == pytest.approx(
            np.percentile(levels, percentile), rel=1e-4
        )
        assert rule._percentile == percentile + (5 if len(clusters) > 1 else -5)
        counts.append(len(clusters))
        # later rounds with an ε that parts them: along trained curves L hardly rises
        rule._losses = levels = sorted(rule.clustering.pairs.values())[:8] if round == 0 else levels
        states = {
            client: drawn(seed, 0.05, state)
            for seed, (client, state) in enumerate(states.items(), start=50)
        }
    assert counts[0] == 1 and counts[1] == 6 and 1 < counts[2] < 6


@pytest.mark.parametrize("epsilon", ["losses", "barriers"])
def test_a_barrier_that_is_not_finite_parts_at_any_threshold(
    epsilon: Literal["losses", "barriers"],
) -> None:
    states = {who: dict(drawn(1)) for who in "ab"} | {
        "c": {name: 1e25 * value for name, value in drawn(1).items()}
    }
    rule = FedGMCC(samples=8, steps=2, grid=2, outputs="raw", epsilon=epsilon)
    receive(rule, states, small())
    assert rule.clustering is not None and rule.clustering.clusters == (("a", "b"), ("c",))
    assert rule.clustering.pairs["a", "c"] == float("inf")


def test_irrelevant_tensors_are_averaged_within_the_cluster() -> None:
    part = small()
    states = {
        name: {**state, "norm.running_mean": torch.full((2,), float(number))}
        for number, (name, state) in enumerate(federation().items())
    }
    rule = FedGMCC(16, 1, grid=4, lr=0.001, outputs="raw", epsilon="barriers")
    rule._percentile = 15.0  # of 15 pairs 4 are within a group
    received = receive(rule, states, part)
    # of 0, 2 and 3
    assert received["ash"]["norm.running_mean"].tolist() == pytest.approx([5 / 3, 5 / 3])
    assert received["oak"]["norm.running_mean"].tolist() == [5, 5]


def test_epsilon_settles_after_three_equal_clusterings() -> None:
    one = (("a", "b", "c"),)
    two = (("a", "b"), ("c",))
    other = (("a",), ("b", "c"))
    rule = FedGMCC(epsilon="barriers")
    never = FedGMCC()
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
    part = small()
    rule = FedGMCC(samples=4000, inputs="range")
    ranges = {"a": torch.tensor([[-2.0] * 3, [1.0] * 3]), "b": torch.tensor([[0.0] * 3, [5.0] * 3])}
    x, _ = rule._draw(Round(0, 1, {}, {}, model=known(part), ask=lambda _: ranges), "ab")
    assert x.shape == (4000, 3) and -2 <= x.min() < -1.95 and 4.95 < x.max() <= 5
    torch.testing.assert_close(x.mean(0), torch.full((3,), 1.5), atol=0.1, rtol=0)
