"""Optimisers at the server, FedNova and rules by part: against NumPy, against the mean or a rule
alone bit for bit. The mean itself: test_exchange.py, and contracts 5 and 11.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from federations import different

import fedlit
from fedlit import ByPart, FedAdagrad, FedAdam, FedAvgM, FedNova, FedYogi, Mean, Median
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules.mean import mean

ADAPTIVE = {FedAdagrad: (0.0, 0.0), FedAdam: (0.9, 0.99), FedYogi: (0.9, 0.99)}
ALL = [FedAvgM, FedNova, *ADAPTIVE]


def rounds(count: int = 5, steps: Callable[[int], int] = lambda place: 3) -> Iterator[Round]:
    """The start, then rounds of clients of which some have a part that others do not, and of which
    some take part."""
    rng = np.random.default_rng(0)
    names = {
        f"c{place}": ("w", "v", *(["part"] if place < 3 else []), *(["own"] if place == 4 else []))
        for place in range(5)
    }
    shapes: dict[str, tuple[int, ...]] = {"w": (3, 2), "v": (4,), "part": (2,), "own": ()}
    start = {name: torch.tensor(rng.normal(size=shape)).float() for name, shape in shapes.items()}
    for number in range(-1, count):
        taking_part = [name for name in names if number < 0 or rng.random() < 0.6] or ["c0"]
        updates = {}
        for client in taking_part:
            place = int(client[1])
            move = 0 if number < 0 else 1
            state = {
                n: start[n] + move * torch.tensor(rng.normal(size=shapes[n])).float()
                for n in names[client]
            }
            parameters = tuple(name for name in names[client] if name != "v")
            updates[client] = Update(state, 10 + place, parameters=parameters, steps=steps(place))
        yield Round(number, 0, updates, names)


def received(rule: Rule, all_rounds: Any = None) -> list[Any]:
    start, *others = rounds() if all_rounds is None else all_rounds
    rule.begin(start)
    return [rule(one) for one in others]


@pytest.mark.parametrize("by", ["uniform", "rows"])
@pytest.mark.parametrize(
    "make", [partial(FedAvgM, 0.0), partial(FedNova, 0.0), partial(FedNova, 0.9)]
)
def test_what_gives_the_mean_bit_for_bit(make: Callable[..., Rule], by: str) -> None:
    for one, other in zip(received(Mean(by)), received(make(weights=by)), strict=True):  # type: ignore[arg-type]
        assert one.keys() == other.keys()
        for client in one:
            assert different(one[client], other[client]) == []


PARTS: dict[str, Callable[[], Rule]] = {
    "mean": partial(Mean, "rows"),
    "momentum": partial(FedAvgM, 0.6),
    "nova": FedNova,
    "median": Median,
    "clipping": fedlit.CenteredClipping,
}


def only(*names: str) -> list[Round]:
    """Rounds of some of the tensors."""
    found = []
    for one in rounds(steps=lambda place: 1 + place):
        updates = {
            client: replace(
                own,
                state={name: value for name, value in own.state.items() if name in names},
                parameters=tuple(name for name in own.parameters if name in names),
            )
            for client, own in one.updates.items()
        }
        receivers = {
            client: tuple(n for n in own if n in names) for client, own in one.receivers.items()
        }
        found.append(Round(one.number, one.seed, updates, receivers))
    return found


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", ["momentum", "nova", "median"])
def test_each_part_is_as_under_its_rule_alone(first: str, second: str) -> None:
    rest = ("v", "part", "own")
    whole = received(ByPart({"*": PARTS[first](), "w": PARTS[second]()}), only("w", *rest))
    alone = received(PARTS[second](), only("w")), received(PARTS[first](), only(*rest))
    for joint, one, other in zip(whole, *alone, strict=True):
        for client, state in joint.items():
            assert different(state, {**one[client], **other[client]}) == []


def test_the_last_pattern_wins_over_what_travels() -> None:
    rule = ByPart({"*": "mean", "core": FedAvgM(), "core.norm": Median(), "*norm*": "none"})
    parts = [rule.part_of(name) for name in ("encoder.w", "core.0.w", "core.norm.w", "head.w[a]")]
    assert parts == ["*", "core", "core.norm", "*"]
    assert (
        Exchange(["*"], rule=rule).federated == ["*", "!*norm*"]
        and Exchange([], rule=rule).federated == []
    )
    cut = ByPart({"core": "mean", "head": "by_name", "encoder": "mean"})
    assert Exchange(["*"], rule=cut).by_name == ["head", "!encoder"]
    assert Exchange(["*"], rule=cut, by_name=["core"]).by_name == [
        "core",
        "!core",
        "head",
        "!encoder",
    ]


def test_statistics_are_averaged_and_get_no_moments() -> None:
    for kind in ALL:
        *_, last = rounds()
        mean = torch.stack([update.state["v"] for update in last.updates.values()]).mean(0)
        torch.testing.assert_close(received(kind())[-1]["c0"]["v"], mean)


# ------------------------------------------------------------------ FedNova


def test_fednova_is_the_sum_of_normalised_updates() -> None:
    start, *others = rounds(steps=lambda place: 1 + 3 * place)
    x = start.updates["c0"].state["part"].double().numpy()
    rule = FedNova(0.5, "rows")
    rule.begin(start)
    for one in others:
        owners = {name: own for name, own in one.updates.items() if "part" in own.state}
        found = rule(one)["c2"]
        if not owners:
            assert "part" not in found
            continue
        lengths = {name: rule.length(own.steps) for name, own in owners.items()}
        total = sum(own.rows for own in owners.values())
        effective = sum(own.rows / total * lengths[name] for name, own in owners.items())
        pulls = [
            own.rows / total * (own.state["part"].double().numpy() - x) / lengths[n]
            for n, own in owners.items()
        ]
        x = x + effective * np.sum(pulls, 0)
        assert found["part"].numpy() == pytest.approx(x, abs=1e-5)


def test_who_took_no_step_does_not_count() -> None:
    start, first, *_ = rounds(steps=lambda place: 0 if place == 1 else 1 + place)
    first = Round(
        0,
        0,
        {name: first.updates.get(name, start.updates[name]) for name in start.updates},
        first.receivers,
    )
    rules = FedNova(), FedNova()
    for rule in rules:
        rule.begin(start)
    without = Round(
        0, 0, {name: own for name, own in first.updates.items() if own.steps}, first.receivers
    )
    assert different(rules[0](first)["c0"], rules[1](without)["c0"]) == []
    assert rules[1].scalars == {"fewest_steps": 1.0, "most_steps": 5.0}
    begin, idle = rounds(1, steps=lambda place: 0)
    rule = FedNova()
    rule.begin(begin)
    assert different(rule(idle)["c0"], Mean()(idle)["c0"]) == []


# ------------------------------------------------------------------ where they come to rest


@pytest.mark.parametrize("kind", [FedAvgM, *ADAPTIVE])
def test_a_round_is_the_recursion_of_the_paper(kind: Any) -> None:
    lr = 0.2
    tau = 0.05
    beta1, beta2 = ADAPTIVE.get(kind, (0.6, 0.0))
    start, *others = rounds()
    w = start.updates["c0"].state["w"].double().numpy()
    m = np.zeros_like(w)
    v = np.full_like(w, tau**2)
    rule = FedAvgM(beta1, lr=lr) if kind is FedAvgM else kind(lr=lr, tau=tau)
    rule.begin(start)
    for one in others:
        delta = (
            np.mean([update.state["w"].double().numpy() for update in one.updates.values()], 0) - w
        )
        m = beta1 * m + (1 if kind is FedAvgM else 1 - beta1) * delta
        if kind is FedAdagrad:
            v = v + delta**2
        elif kind is FedAdam:
            v = beta2 * v + (1 - beta2) * delta**2
        elif kind is FedYogi:
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        w = w + lr * m / (1 if kind is FedAvgM else np.sqrt(v) + tau)
        assert rule(one)["c1"]["w"].numpy() == pytest.approx(w, abs=1e-5)


def test_half_precision_is_summed_in_single_precision() -> None:
    """Beside 256 a bfloat16 sum does not see 1 any more."""
    states = {
        f"{n:03}": {"w": torch.tensor([256.0 if n == 0 else 1.0], dtype=torch.bfloat16)}
        for n in range(200)
    }
    assert mean(states)["w"].item() == pytest.approx((256 + 199) / 200, rel=2**-8)


def test_the_mean_has_the_same_bits_in_any_order_of_clients() -> None:
    states = {
        client: {"w": torch.tensor([value])}
        for client, value in zip("abcd", (1e8, 1.0, -1e8, 1.0), strict=True)
    }
    assert torch.equal(mean(states)["w"], mean(dict([*states.items()][::-1]))["w"])
