"""Rules by part: each part as under its rule alone, bit for bit; what does not travel, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import TINY, Named, different, make_run, weights

import fedlit
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules import (
    CFL,
    IFCA,
    ByPart,
    CenteredClipping,
    FedAdam,
    FedAvgM,
    FedNova,
    GrowForest,
    Krum,
    Mean,
    Median,
)

NAMES = ("encoder.w", "core.0.w", "core.norm.w", "head.w")


def rounds(names: tuple[str, ...] = NAMES, count: int = 4) -> list[Round]:
    """The start, then exchanges; the fifth client has no head, and one in three takes no part."""
    generator, found = torch.Generator().manual_seed(0), []
    has = {f"c{place}": tuple(n for n in NAMES if place < 4 or n != "head.w") for place in range(6)}
    start = {name: torch.randn(3, generator=generator) for name in NAMES}
    for number in range(-1, count):
        updates = {}
        for place, (client, own) in enumerate(has.items()):
            moved = {name: start[name] + (number >= 0) * torch.randn(3, generator=generator) for name in own}
            if number < 0 or (place + number) % 3:
                state = {name: value for name, value in moved.items() if name in names}
                updates[client] = Update(state, 5 + place, parameters=tuple(state), steps=1 + place)
        receivers = {client: tuple(name for name in own if name in names) for client, own in has.items()}
        found.append(Round(number, 0, updates, receivers))
    return found


def received(rule: Rule, names: tuple[str, ...] = NAMES) -> list[dict[str, dict[str, torch.Tensor]]]:
    start, *others = rounds(names)
    rule.begin(start)
    return [{client: dict(own) for client, own in rule(one).items()} for one in others]


RULES: dict[str, Callable[[], Rule]] = {
    "mean": partial(Mean, "rows"),
    "momentum": partial(FedAvgM, 0.6),
    "adam": FedAdam,
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
    assert [rule.part_of(name) for name in ("encoder.w", "core.0.w@exp_avg", "core.norm.w", "head.w[a@b]")] == [
        "*",
        "core",
        "core.norm",
        "*",
    ]
    assert Exchange(["*"], rule=rule).federated == ["*", "!*norm*"] and Exchange([], rule=rule).federated == []
    cut = ByPart({"core": "mean", "head": "by_name", "encoder": "mean"})
    assert Exchange(["*"], rule=cut).by_name == ["head", "!encoder"]
    assert Exchange(["*"], rule=cut, by_name=["core"]).by_name == ["core", "!core", "head", "!encoder"]


def test_a_restored_rule_goes_on_as_it_would_have() -> None:
    def make() -> ByPart:
        return ByPart({"*": "mean", "core": FedAvgM(0.6), "head": FedAdam()})

    expected, (start, *others), rule = received(make()), rounds(), make()
    rule.begin(start)
    for one, whole in zip(others, expected, strict=True):
        again = make()
        again.load_state_dict(rule.state_dict())
        rule = again
        found = rule(one)
        assert all(different(dict(found[client]), whole[client]) == [] for client in whole)
    assert rule.state_dict().keys() == {"core", "head"}


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


def test_a_clustering_rule_of_one_part_finds_clusters_by_it(tmp_path: Path) -> None:
    rule = ByPart({"*": "mean", "head": CFL(9.0, 1e-6)})
    run = make_run(tmp_path, align="both", exchange={"federated": ["*"], "rule": rule, "buffers": "average"})
    run.fit(quiet=True)
    assert run.exchange.clustering is not None and len(run.exchange.clustering.clusters) > 1
    clients = run.loop.federation
    tensors = [{n: own.federated[n] for n in ("core.0.weight", "head.weight")} for own in clients.values()]
    assert all(torch.equal(own["core.0.weight"], tensors[0]["core.0.weight"]) for own in tensors)
    assert not all(torch.equal(own["head.weight"], tensors[0]["head.weight"]) for own in tensors)
    assert run.exchange.rule.scalars["head/clusters"] > 1


def test_the_plan_says_what_each_part_promises(tmp_path: Path) -> None:
    rule = ByPart({"core": Median(), "head": IFCA(2)})
    run = make_run(tmp_path, align="both", exchange={"federated": ["core", "head"], "rule": rule})
    plan = str(run.describe())
    assert "for core tolerates 1 attacker among the 3 clients" in plan and "(for head)" in plan
    assert "'core': 'Median(attackers=1)'" in plan


WRITTEN = """
  rule:
    class_path: fedlit.ByPart
    init_args:
      parts: {core: {class_path: fedlit.FedAdam, init_args: {lr: 0.05}}, "*.bias": none}
"""


def test_a_configuration_builds_it(tmp_path: Path) -> None:
    federated = '\n  federated: ["*", "!head", "!encoder"]'
    (tmp_path / "parts.yaml").write_text(TINY.format(epochs=1).replace("{federated: [core]}", federated + WRITTEN))
    run = fedlit.load(str(tmp_path / "parts.yaml"))
    rule = run.describe().exchange["rule"]
    assert "'core': \"FedAdam(lr=0.05," in rule and "'*.bias': 'none'" in rule
    names = run.exchange.sharing.all_names
    assert names and not any("bias" in name for name in names)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "expected patterns with a rule each, found none"),
        ({"core": "median"}, r"core: expected mean, none, by_name .* or a rule's class_path, found 'median'"),
        ({"core": "by class"}, r"by_name \(by the names of columns and classes\).*found 'by class'"),
        ({"core": "maen"}, r"Did you mean 'mean'"),
        ({"core": None}, r"or a rule's class_path, found None"),
        ({"": "mean"}, r"expected a pattern such as core or '\*', found ''"),
        ({"!head": "mean"}, r"found '!head'.* ! is not allowed here: write 'head': none"),
        ({"core": partial(GrowForest, 3)}, "expected a rule of a part, found GrowForest, which works by questions"),
        ({"core": partial(ByPart, {"core": "mean"})}, "found ByPart, which has parts itself"),
        ({"core": partial(CFL, 9.0, 1e-6), "head": IFCA}, "at most one rule that clusters clients, .* core and head"),
    ],
)
def test_what_is_no_rule_of_a_part_is_refused(parts: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ByPart({pattern: own() if callable(own) else own for pattern, own in parts.items()})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"core": "mean"}, "expected a part for each federated tensor, found none for encoder.0.weight and .* more"),
        ({"core": "mean", "*": "mean"}, r"core: .* what stands behind it, '\*', takes all; put '\*' first"),
        ({"*": "mean", "haed": "none"}, "exchange.rule.parts: 'haed': expected to match a module or tensor"),
        ({"*": "mean", "core": Krum}, "ByPart: core: exchange.rule: Krum: expected at least 5 clients"),
        (
            {"*": "mean", "head": "by_name"},
            "exchange.by_name: pattern 'head': expected a federated tensor whose slices",
        ),
    ],
)
def test_parts_that_do_not_fit_the_network_are_refused(parts: Any, message: str, tmp_path: Path) -> None:
    rule = ByPart({pattern: own() if callable(own) else own for pattern, own in parts.items()})
    with pytest.raises(ConfigError, match=message):
        make_run(tmp_path, align="both", exchange={"federated": ["*"], "rule": rule}).describe()


def test_sums_serve_only_where_all_parts_weigh_alike() -> None:
    assert ByPart({"*": "mean", "core": FedAvgM()}).facts.by_mean
    assert not ByPart({"*": "mean", "core": Mean("rows")}).facts.by_mean
    assert not ByPart({"*": "mean", "core": Median()}).facts.by_mean
