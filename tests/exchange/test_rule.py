"""Rules of version 0.1 still work, with the same bits and a warning; what rules need of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import different, make_run, weights

from fedlit.exchange.rules import CFL, IFCA, Agglomerative, Clustered, Clustering, FedGMCC, Mean, Round, Rule, Update
from fedlit.exchange.rules.mean import mean
from fedlit.names import sort_clusters


def of_version_0_1() -> dict[str, type[Rule]]:
    """Rules as they were written for it."""

    class Plain(Rule):
        def __call__(self, updates: Any, receivers: Any) -> Any:  # type: ignore[override]
            assert list(updates) == sorted(updates) and list(receivers) == sorted(receivers)
            average = mean({client: update.state for client, update in updates.items()})
            return {client: {name: average[name] for name in names} for client, names in receivers.items()}

    class Halves(Mean):
        def begin(self, updates: Any) -> Any:
            return {client: {name: 0.5 * v for name, v in update.state.items()} for client, update in updates.items()}

        def __call__(self, sent: Any, to: Any) -> Any:  # type: ignore[override]
            received = super().__call__(sent, to)  # type: ignore[call-arg]
            return {client: {name: 0.5 * v for name, v in state.items()} for client, state in received.items()}

    class Picks(IFCA):
        def begin(self, updates: Any) -> Any:
            return super().begin(updates)

    class Pairs(Clustered):
        def group(self, updates: Any, clients: Any) -> Any:
            clusters = sort_clusters([clients[:2], clients[2:]])
            return Clustering(clusters), [
                self.mean_of(updates, [name for name in own if name in updates]) for own in clusters
            ]

    return {own.__name__: own for own in (Plain, Halves, Picks, Pairs)}


def of_today() -> dict[str, type[Rule]]:
    class Halves(Mean):
        def begin(self, round: Round) -> Any:
            return {
                client: {name: 0.5 * v for name, v in update.state.items()} for client, update in round.updates.items()
            }

        def __call__(self, round: Round) -> Any:
            received = super().__call__(round)
            return {client: {name: 0.5 * v for name, v in state.items()} for client, state in received.items()}

    class Pairs(Clustered):
        def cluster(self, round: Round) -> Any:
            names = sorted(round.receivers)
            clusters = sort_clusters([names[:2], names[2:]])
            return Clustering(clusters), [
                self.mean_of(round.updates, [name for name in own if name in round.updates]) for own in clusters
            ]

    return {"Plain": Mean, "Halves": Halves, "Picks": IFCA, "Pairs": Pairs}


OPTIONS: dict[str, dict[str, Any]] = {
    "Picks": {"clusters": 2},
}


@pytest.mark.parametrize("name", ["Plain", "Halves", "Picks", "Pairs"])
def test_a_rule_of_version_0_1_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    with pytest.warns(FutureWarning):
        old = of_version_0_1()[name](**OPTIONS.get(name, {}))
    new = of_today()[name](**OPTIONS.get(name, {}))
    ends = []
    for rule in (old, new):
        exchange = {"federated": ["core"], "rule": rule, "participation": 0.6}
        run = make_run(tmp_path / str(len(ends)), exchange=exchange)
        run.fit(quiet=True)
        ends.append(weights(run))
        assert run.exchange.rounds == 3
    assert different(*ends) == []
    local = make_run(tmp_path / "local")
    local.fit(quiet=True)
    assert different(weights(local), ends[0]) != []


def test_the_warning_says_what_to_write_and_where() -> None:
    with pytest.warns(FutureWarning) as told:
        of_version_0_1()
    found = [str(own.message) for own in told]
    for name, parameters in (
        ("Plain.__call__", "updates, receivers"),
        ("Halves.begin", "updates"),
        ("Halves.__call__", "sent, to"),
        ("Picks.begin", "updates"),
    ):
        assert (
            f"{name}: expected (self, round), found (self, {parameters}); take round.updates and round.receivers"
            in found
        )
    assert "Pairs.group is called cluster now, and takes a round" in found and len(found) == 5
    where = {str(own.message).partition(".")[0]: Path(own.filename).name for own in told}
    assert where["Plain"] == where["Halves"] == where["Pairs"] == "test_rule.py"


def test_a_rule_of_today_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    of_today()

    class Hands(Mean):
        def __call__(self, *given: Any) -> Any:
            return super().__call__(*given)

    update = Update({"w": torch.ones(1)}, 1)
    assert Hands()(Round(0, 0, {"a": update}, {"a": ("w",)}))["a"]["w"].tolist() == [1]
    assert not recwarn.list


def test_a_caller_of_version_0_1_gets_what_it_got() -> None:
    updates = {"a": Update({"w": torch.ones(1)}, 1), "b": Update({"w": torch.full((1,), 4.0)}, 2)}
    received = Mean("rows")(updates, {"a": ("w",), "b": ("w",), "c": ("w",)})  # type: ignore[call-arg, arg-type]
    assert [received[name]["w"].tolist() for name in "abc"] == [[3], [3], [3]]


# ------------------------------------------------------------------ needs


@pytest.mark.parametrize(
    ("rule", "rows", "states", "answers"),
    [
        (Mean(), False, False, False),
        (Mean("rows"), True, False, False),
        (CFL(), False, True, False),
        (CFL(weights="rows"), True, True, False),
        (Agglomerative(clusters=2), False, True, False),
        (IFCA(), False, True, True),
        (IFCA(weights="rows"), True, True, True),
        (FedGMCC(), False, True, False),
        (FedGMCC(inputs="range"), False, True, True),
    ],
)
def test_what_a_rule_needs(rule: Rule, rows: bool, states: bool, answers: bool) -> None:
    assert ("rows" in rule.needs, "states" in rule.needs, "answers" in rule.needs) == (rows, states, answers)
    assert bool(rule.asks) == answers  # what is asked stands in the plan


def test_a_rule_that_says_nothing_needs_counts_and_single_states() -> None:
    class Own(Rule):
        def __call__(self, round: Round) -> Any:
            return {}

    assert Own().needs == {"rows", "steps", "states"} and not Own.takes_masks


def test_rows_that_are_not_needed_do_not_matter_and_others_do() -> None:
    def received(rule: Rule, rows: dict[str, int]) -> float:
        updates = {name: Update({"w": torch.tensor([v])}, rows[name]) for name, v in (("a", 1.0), ("b", -3.0))}
        return rule(Round(0, 0, updates, dict.fromkeys("ab", ("w",))))["a"]["w"].item()

    unknown, known = {"a": 0, "b": 0}, {"a": 300, "b": 100}
    assert received(Mean(), unknown) == received(Mean(), known) == -1
    assert received(Mean("rows"), known) == 0
    with pytest.raises(ValueError, match="expected positive weights"):
        received(Mean("rows"), unknown)
