"""FedGMCC: closed forms against numerical integration, derivatives against differences, a barrier that the bend avoids,
and what clients receive.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from fedlit.errors import ConfigError
from fedlit.exchange.function import FederatedFunction
from fedlit.exchange.rules import FedGMCC, Round, Update, fedgmcc
from fedlit.exchange.rules.fedgmcc import Curves, bent, mean_of_curve
from fedlit.sharing import State


class Known:
    """What is known of clients' networks: their federated part, which is given."""

    def __init__(self, part: FederatedFunction) -> None:
        self._part = part

    def function(self) -> FederatedFunction:
        return self._part


NAMES = ("core.0.weight", "core.0.bias", "core.2.weight", "core.2.bias")


def small() -> FederatedFunction:
    return FederatedFunction({"core": nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))}, NAMES, (3,))


def drawn(seed: int, scale: float = 1.0, around: State | None = None) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"core.0.weight": (5, 3), "core.0.bias": (5,), "core.2.weight": (2, 5), "core.2.bias": (2,)}
    own = {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return own if around is None else {name: value + around[name] for name, value in own.items()}


def receive(rule: FedGMCC, states: Mapping[str, State], part: FederatedFunction) -> Mapping[str, State]:
    updates = {name: Update(state, 10, parameters=part.parameters) for name, state in states.items()}
    receivers = {name: tuple(state) for name, state in states.items()}
    return rule(Round(0, 5, updates, receivers, model=Known(part)))  # type: ignore[arg-type]


# ------------------------------------------------------------------ closed forms


def test_the_mean_of_a_curve_is_its_integral() -> None:
    first, bend, last = (torch.tensor([value], dtype=torch.float64) for value in (-1.3, 4.0, 0.7))
    integral = quad(lambda u: float(bent(first, bend, last, u)), 0, 1, points=[0.5])[0]
    assert float(mean_of_curve(first, bend, last)) == pytest.approx(integral, abs=1e-10)


def test_curves_are_bent_chains_and_losses_mean_squared_distances() -> None:
    part, first, last = small(), [drawn(seed) for seed in (1, 2)], [drawn(seed) for seed in (3, 4)]
    x = torch.rand(2, 7, 3)
    stacked = [{name: torch.stack([state[name] for state in states]) for name in NAMES} for states in (first, last)]
    curves = Curves(part, *stacked, x)
    curves.bend = {name: value + 0.3 for name, value in curves.bend.items()}
    for u in (0.0, 0.2, 0.5, 0.9, 1.0):
        here = curves.at(torch.tensor([u, 0.4]), curves.bend)
        for pair, own in ((0, u), (1, 0.4)):
            chain = {name: bent(first[pair][name], curves.bend[name][pair], last[pair][name], own) for name in NAMES}
            for name in NAMES:
                torch.testing.assert_close(here[name][pair], chain[name])
            w = {name.removeprefix("core."): value for name, value in chain.items()}
            v = {name.removeprefix("core."): value for name, value in last[pair].items()}

            def f(p: dict[str, Tensor], rows: Tensor) -> Tensor:
                return torch.tanh(rows @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"]

            expected = ((f(v, x[pair]) - f(w, x[pair])) ** 2).sum(1).mean()
            torch.testing.assert_close(curves.losses(here)[pair], expected)


@pytest.mark.parametrize("classes", [1, 3])
def test_probabilities_are_bounded_whatever_logits_are(classes: int) -> None:
    part = FederatedFunction({"head": nn.Linear(2, classes)}, ["head.weight", "head.bias"], (2,))
    assert part.ends_in_head and not small().ends_in_head
    ends = [{"head.weight": 50 * torch.randn(1, classes, 2), "head.bias": torch.zeros(1, classes)} for _ in range(2)]
    curves = Curves(part, *ends, torch.rand(1, 30, 2), probabilities=True)
    logits = [curves.x[0] @ end["head.weight"][0].T for end in ends]
    p = [own.softmax(1) if classes > 1 else own.sigmoid() for own in logits]
    expected = ((p[0] - p[1]) ** 2).sum(1).mean()
    torch.testing.assert_close(curves.losses(ends[0])[0], expected, atol=1e-5, rtol=1e-4)


def test_the_steepest_change_is_that_of_finite_differences() -> None:
    part, grid, step = small(), 10, 1e-3
    stacked = [{name: torch.stack([drawn(seed)[name], drawn(seed + 1)[name]]) for name in NAMES} for seed in (1, 6)]
    curves = Curves(part, *stacked, torch.rand(2, 50, 3))
    curves.bend = {name: value + 0.5 for name, value in curves.bend.items()}
    slopes = []
    for place in range(grid):
        u = (place + 0.5) / grid
        near = [curves.losses(curves.at(torch.full((2,), u + off), curves.bend)) for off in (-step, step)]
        slopes.append(((near[1] - near[0]) / (2 * step)).abs())
    torch.testing.assert_close(curves.steepest(grid), torch.stack(slopes).amax(0), rtol=1e-2, atol=1e-3)


def test_a_step_of_a_bend_is_gradient_descent() -> None:
    part, u = small(), 0.45
    first, last, x = drawn(1), drawn(2), torch.rand(1, 40, 3)
    curves = Curves(part, {n: v[None] for n, v in first.items()}, {n: v[None] for n, v in last.items()}, x)
    bend = {name: ((first[name] + last[name]) / 2).requires_grad_() for name in NAMES}
    w = {name: bent(first[name], bend[name], last[name], u) for name in NAMES}
    loss = (part(last, x[0]) - part(w, x[0])).square().sum(1).mean()
    gradients = torch.autograd.grad(loss, list(bend.values()))
    curves.train(torch.full((1, 1), u), lr=0.001)
    for (name, value), gradient in zip(bend.items(), gradients, strict=True):
        torch.testing.assert_close(curves.bend[name][0], value.detach() - 0.001 * gradient)


# ------------------------------------------------------------------ a barrier


class Hill(nn.Module):
    """A function of two parameters, the same at (−1, ·) and (1, ·), with a hill between them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return 3 * torch.exp(-4 * self.w.square().sum()) * torch.ones_like(x)


def test_a_straight_line_crosses_the_hill_and_the_bent_curve_walks_around_it() -> None:
    part = FederatedFunction({"core": Hill()}, ["core.w"], (1,))
    ends = [{"core.w": torch.tensor([[side, 0.1]])} for side in (-1.0, 1.0)]
    curves = Curves(part, *ends, torch.rand(1, 4, 1))
    u = torch.linspace(0, 1, 101)

    def top() -> float:
        return max(float(curves.losses(curves.at(own.view(1), curves.bend))) for own in u)

    straight, steep = top(), float(curves.steepest(100))
    curves.train(torch.rand(400, 1, generator=torch.Generator().manual_seed(0)), lr=0.01)
    assert straight > 8 and top() < 0.1 * straight  # 9 · exp(…), at the top of the hill
    assert float(curves.steepest(100)) < 0.2 * steep
    assert abs(float(curves.bend["core.w"][0, 1])) > 0.8  # it went around


def test_a_bend_that_runs_away_is_left_straight() -> None:
    stacked = [{name: value[None] for name, value in drawn(seed).items()} for seed in (1, 2)]
    curves = Curves(small(), *stacked, torch.rand(1, 20, 3))
    halfway = dict(curves.bend)
    curves.train(torch.rand(50, 1), lr=1e6)
    assert all(torch.equal(curves.bend[name], halfway[name]) for name in NAMES)


def test_at_the_default_rate_bends_stay_near_and_at_the_papers_they_are_thrown_far() -> None:
    pairs = [(drawn(first, 3.0), drawn(last, 3.0)) for first, last in ((1, 4), (2, 5), (3, 6))]  # far apart
    first, last = ({name: torch.stack([pair[end][name] for pair in pairs]) for name in NAMES} for end in (0, 1))
    generator = torch.Generator().manual_seed(0)
    x, u = torch.rand(3, 512, 3, generator=generator), torch.rand(50, 3, generator=generator)

    def moved(lr: float) -> Tensor:
        """How far from halfway, over the pair's distance."""
        curves = Curves(small(), first, last, x)
        halfway = dict(curves.bend)
        curves.train(u, lr)
        far = [(curves.bend[name] - halfway[name]).square().flatten(1).sum(1) for name in NAMES]
        apart = [(last[name] - first[name]).square().flatten(1).sum(1) for name in NAMES]
        return (sum(far, torch.zeros(3)) / sum(apart, torch.zeros(3))).sqrt()

    near, thrown = moved(FedGMCC().lr), moved(0.1)
    assert near.min() > 0 and near.max() < 0.1  # trained, and of use to those who receive it
    assert thrown.min() > 0.25  # half is as far as the two ends are


# ------------------------------------------------------------------ clusters


def federation(spread: float = 0.05, apart: float = 1.0) -> dict[str, dict[str, Tensor]]:
    """Three clients around one state, two around another, one far from both."""
    centres = [drawn(100, apart), drawn(200, apart), drawn(300, 4 * apart)]
    groups = {"ash": 0, "birch": 1, "cedar": 0, "elm": 0, "fir": 1, "oak": 2}
    return {name: drawn(seed, spread, centres[group]) for seed, (name, group) in enumerate(groups.items())}


def test_clients_of_a_group_receive_the_mean_of_its_curves_and_one_alone_keeps_its_own() -> None:
    states, part = federation(), small()
    rule = FedGMCC(samples=32, steps=0, grid=6, threshold="gap")
    received = receive(rule, states, part)
    assert rule.clustering is not None
    assert rule.clustering.clusters == (("ash", "cedar", "elm"), ("birch", "fir"), ("oak",))
    for cluster in rule.clustering.clusters:
        for name in NAMES:
            # an untrained bend is halfway, (w_k + 2 θ + w_l) / 4 = (w_k + w_l) / 2, and all pairs are connected
            expected = torch.stack([states[client][name] for client in cluster]).mean(0)
            for client in cluster:
                torch.testing.assert_close(received[client][name], expected)
    assert all(torch.equal(received["oak"][name], states["oak"][name]) for name in NAMES)


def test_a_cluster_of_two_receives_the_closed_form_of_both_directions() -> None:
    states = {name: state for name, state in federation().items() if name in ("birch", "fir")}
    part, rule = small(), FedGMCC(samples=16, steps=9, grid=4, lr=0.05)
    received = receive(rule, states, part)
    x, u = rule._draw(part, ("birch", "fir"), {}, seed=5)
    means, barriers = [], []
    for way, (k, last) in enumerate((("birch", "fir"), ("fir", "birch"))):
        ends = [{name: value[None] for name, value in states[client].items()} for client in (k, last)]
        curves = Curves(part, *ends, x[None])
        curves.train(u[way][:, None], 0.05)
        barriers.append(float(curves.steepest(4)))
        means.append({n: (ends[0][n] + 2 * curves.bend[n] + ends[1][n])[0] / 4 for n in NAMES})
    for name in NAMES:
        torch.testing.assert_close(received["fir"][name], (means[0][name] + means[1][name]) / 2)
    assert rule.clustering is not None
    assert rule.clustering.pairs["birch", "fir"] == pytest.approx(sum(barriers) / 2, rel=1e-4)


def test_of_a_chain_the_connected_pairs_count() -> None:
    """a and b are connected, b and c, but not a and c: all receive the mean of two curves."""
    centre, step = drawn(1), {name: torch.full_like(value, 0.2) for name, value in drawn(1).items()}
    states = {who: {name: centre[name] + k * step[name] for name in NAMES} for k, who in enumerate("abc")}
    states["d"] = {name: value + 50 for name, value in centre.items()}
    rule = FedGMCC(samples=64, steps=0, grid=8)
    rule._percentile = 30  # of six barriers the two least
    received = receive(rule, states, small())
    assert rule.clustering is not None and rule.clustering.clusters == (("a", "b", "c"), ("d",))
    epsilon = rule.clustering.scalars["epsilon"]
    assert [pair for pair, own in rule.clustering.pairs.items() if own <= epsilon] == [("a", "b"), ("b", "c")]
    for name in NAMES:
        mean = (states["a"][name] + 2 * states["b"][name] + states["c"][name]) / 4
        torch.testing.assert_close(received["c"][name], mean)


def test_a_barrier_that_is_not_finite_parts_whatever_the_threshold() -> None:
    states = {who: dict(drawn(1)) for who in "ab"} | {"c": {name: 1e25 * value for name, value in drawn(1).items()}}
    for threshold in ("gap", "percentile"):
        rule = FedGMCC(samples=8, steps=2, grid=2, threshold=threshold)  # type: ignore[arg-type]
        receive(rule, states, small())
        assert rule.clustering is not None and rule.clustering.clusters == (("a", "b"), ("c",))
        assert rule.clustering.pairs["a", "c"] == float("inf")


def test_a_parameter_that_the_function_does_not_use_is_no_obstacle() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.used

    part = FederatedFunction({"core": Idle()}, ["core.used", "core.idle"], (1,))
    states = {
        who: {"core.used": torch.tensor([k]), "core.idle": torch.tensor([k])} for who, k in (("a", 1.0), ("b", 3.0))
    }
    assert receive(FedGMCC(samples=8, steps=1, grid=2), states, part)["a"]["core.idle"].tolist() == [2]


def test_rounds_draw_other_inputs_and_the_percentile_stays_one() -> None:
    part, rule = small(), FedGMCC()
    first = rule._draw(part, ("a", "b"), {}, seed=1)[0]
    assert not torch.equal(rule._draw(part, ("a", "b"), {}, seed=2)[0], first)
    for _ in range(30):
        rule._advance((("a", "b"),))
    assert rule._percentile == 0
    for _ in range(60):
        rule._advance((("a",), ("b",)))
    assert rule._percentile == 100


def test_permuting_clients_permutes_the_result() -> None:
    states, part = federation(), small()
    one = FedGMCC(16, 3, grid=4, threshold="gap")
    first = receive(one, states, part)
    names = list(states)
    moved = dict(zip(names, [*names[2:], *names[:2]], strict=True))  # name → whose state it has now
    permuted = FedGMCC(16, 3, grid=4, threshold="gap")
    third = receive(permuted, {name: states[of] for name, of in moved.items()}, part)
    assert one.clustering is not None and permuted.clustering is not None
    back = {tuple(sorted(moved[client] for client in cluster)) for cluster in permuted.clustering.clusters}
    assert back == set(one.clustering.clusters)
    for client, of in moved.items():  # other inputs are drawn for other names of pairs: the same up to these
        for name in NAMES:
            torch.testing.assert_close(third[client][name], first[of][name], atol=0.02, rtol=0.02)


def test_pairs_in_one_batch_are_pairs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    states, part = federation(), small()
    together, alone = FedGMCC(16, 5, grid=4), FedGMCC(16, 5, grid=4)
    first = receive(together, states, part)
    monkeypatch.setitem(fedgmcc.MEMORY, "cpu", 1)
    second = receive(alone, states, part)
    assert together.clustering is not None and alone.clustering is not None
    assert together.clustering.clusters == alone.clustering.clusters
    for pair, value in together.clustering.pairs.items():
        assert alone.clustering.pairs[pair] == pytest.approx(value, rel=1e-3)
    for client in states:
        for name in NAMES:
            torch.testing.assert_close(first[client][name], second[client][name], rtol=1e-4, atol=1e-5)


def test_what_the_function_does_not_depend_on_is_averaged_within_the_cluster() -> None:
    part = small()
    states = {
        name: {**state, "norm.running_mean": torch.full((2,), float(number))}
        for number, (name, state) in enumerate(federation().items())
    }
    received = receive(FedGMCC(16, 1, grid=4, threshold="gap"), states, part)
    assert received["ash"]["norm.running_mean"].tolist() == pytest.approx([5 / 3, 5 / 3])  # of 0, 2 and 3
    assert received["oak"]["norm.running_mean"].tolist() == [5, 5]


def test_epsilon_falls_while_there_is_one_cluster_and_rises_otherwise() -> None:
    clients = "abcd"
    rule = FedGMCC()
    barriers = np.array([1.0, 2.0, 5.0, 6.0, 7.0, 9.0])
    epsilon, scalars = rule._epsilon(barriers)
    assert epsilon == 5.5 and scalars == {"percentile": 50.0}
    for clusters, percentile in ((1, 45), (1, 40), (2, 45), (3, 50), (2, 55), (1, 50)):
        rule._advance((*((client,) for client in clients[: clusters - 1]), tuple(clients[clusters - 1 :])))
        assert rule._epsilon(barriers)[1] == {"percentile": percentile}
        assert rule._epsilon(barriers)[0] == np.percentile(barriers, percentile)


def test_epsilon_settles_when_it_has_come_down_to_the_same_clusters_three_times() -> None:
    one, two, other = (("a", "b", "c"),), (("a", "b"), ("c",)), (("a",), ("b", "c"))
    rule = FedGMCC(settle=True)
    # going up through the same clusters is no repetition, nor is finding them beside others
    for clusters in (two, two, two, one, one, two, two, one, other, two, one, two, one, two, one):
        rule._advance(clusters)
    assert not rule._settled
    before = rule._percentile
    again = FedGMCC(settle=True)
    again.load_state_dict(rule.state_dict())
    for own in (rule, again):
        own._advance(two)
        assert own._settled and own._percentile == before
        for clusters in (one, one, other):
            own._advance(clusters)
        assert own._percentile == before


@pytest.mark.parametrize(
    ("barriers", "expected"), [([1, 1.5, 2, 9, 12, 13], 3), ([1, 1.5, 2, 2.5, 3, 4], 6), ([1, 1.9, 3, float("inf")], 3)]
)
def test_a_gap_tells_apart_only_if_it_is_wide(barriers: list[float], expected: int) -> None:
    epsilon, _ = FedGMCC(threshold="gap", gap=2.0)._epsilon(np.array(barriers))
    assert sum(value <= epsilon for value in barriers) == expected


def test_inputs_are_drawn_from_the_range_of_both_clients() -> None:
    part, rule = small(), FedGMCC(samples=4000, inputs="range")
    ranges = {"a": torch.tensor([[-2.0] * 3, [1.0] * 3]), "b": torch.tensor([[0.0] * 3, [5.0] * 3])}
    x, _ = rule._draw(part, ("a", "b"), ranges, seed=0)
    assert x.shape == (4000, 3) and -2 <= x.min() < -1.95 and 4.95 < x.max() <= 5
    torch.testing.assert_close(x.mean(0), torch.full((3,), 1.5), atol=0.1, rtol=0)
    assert torch.equal(rule._draw(part, ("a", "b"), ranges, seed=0)[0], x)
    assert not torch.equal(rule._draw(part, ("a", "c"), {**ranges, "c": ranges["b"]}, seed=0)[0], x)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="an even grid of at least 2, found 512, 50 and 3"):
        FedGMCC(grid=3)
    with pytest.raises(ConfigError, match="lr above 0"):
        FedGMCC(lr=0)
