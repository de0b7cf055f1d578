"""Rules by part: each part as under its rule alone, bit for bit; what does not travel, and what is refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from federations import Named, different, make_run, weights

from fedlit.client.client import FederatedClient
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules import (
    ByPart,
    CenteredClipping,
    FedAvgM,
    FedNova,
    Mean,
    Median,
)

NAMES = ("encoder.w", "core.0.w", "core.norm.w", "head.w")


def received(rule: Rule, names: tuple[str, ...] = NAMES) -> list[dict[str, dict[str, torch.Tensor]]]:
    """What clients receive of some tensors, from one start; the sixth has no head, and one in three takes no part."""
    generator, found = torch.Generator().manual_seed(0), []
    clients = {f"c{place}": names if place < 5 else tuple(n for n in names if n != "head.w") for place in range(6)}
    start = {name: torch.randn(3, generator=generator) for name in NAMES}
    moves = torch.randn(4, 6, len(NAMES), 3, generator=generator)
    for number in range(-1, 4):
        updates = {}
        for place, (client, own) in enumerate(clients.items()):
            if number < 0 or (place + number) % 3:
                state = {n: start[n] + (0 if number < 0 else moves[number, place, NAMES.index(n)]) for n in own}
                updates[client] = Update(state, 5 + place, parameters=own, steps=1 + place)
        round = Round(number, 0, updates, clients)
        found.append({client: dict(own) for client, own in (rule.begin if number < 0 else rule)(round).items()})
    return found[1:]


RULES: dict[str, Callable[[], Rule]] = {
    "mean": partial(Mean, "rows"),
    "momentum": partial(FedAvgM, 0.6),
    "nova": FedNova,
    "median": Median,
    "clipping": CenteredClipping,
}


@pytest.mark.parametrize("first", RULES)
@pytest.mark.parametrize("second", ["momentum", "nova", "median"])
def test_each_part_is_as_under_its_rule_alone(first: str, second: str) -> None:
    whole = received(ByPart({"*": RULES[first](), "core": RULES[second]()}))
    core, rest = NAMES[1:3], (NAMES[0], NAMES[3])
    for joint, one, other in zip(whole, received(RULES[second](), core), received(RULES[first](), rest), strict=True):
        for client, state in joint.items():
            assert different(state, {**one[client], **other[client]}) == []


def test_the_last_pattern_wins_and_what_does_not_travel_never_does() -> None:
    rule = ByPart({"*": "mean", "core": FedAvgM(), "core.norm": Median(), "*norm*": "none"})
    assert [rule.part_of(name) for name in ("encoder.w", "core.0.w", "core.norm.w", "head.w[a]")] == [
        "*",
        "core",
        "core.norm",
        "*",
    ]
    assert Exchange(["*"], rule=rule).federated == ["*", "!*norm*"] and Exchange([], rule=rule).federated == []
    cut = ByPart({"core": "mean", "head": "by_name", "encoder": "mean"})
    assert Exchange(["*"], rule=cut).by_name == ["head", "!encoder"]
    assert Exchange(["*"], rule=cut, by_name=["core"]).by_name == ["core", "!core", "head", "!encoder"]


def test_a_part_that_does_not_travel_and_one_by_name_are_as_the_exchange_has_them(tmp_path: Path) -> None:
    ends = []
    loop = {"client": partial(FederatedClient, network=Named)}
    for number, exchange in enumerate(
        [
            {"federated": ["*"], "rule": ByPart({"*": "by_name", "core": FedAvgM(0.0), "*.bias": "none"})},
            {"federated": ["*", "!*.bias"], "by_name": ["encoder", "head"]},
        ]
    ):
        run = make_run(tmp_path / str(number), exchange=exchange, loop=loop)
        run.fit(quiet=True)
        assert all("bias" not in name for name in run.exchange.sharing.all_names)
        assert "head.weight[1]" in run.exchange.sharing.all_names
        ends.append(weights(run))
    assert different(*ends) == []
