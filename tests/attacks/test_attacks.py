"""Attacks: who makes them, what they send, which rows they change, and that they are never
silent."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import Made, make_run

from fedlit.attacks import KINDS, Attack
from fedlit.attacks.attack import drawn, poison
from fedlit.attacks.kinds import Moment
from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError
from fedlit.exchange.rule import Round, Rule

DOOR: dict[str, Any] = {"feature": "x1", "value": 9.0, "label": 1}
HAD = 1.0
OWN = 3.0
OTHERS = (2.0, 4.0, 9.0)


def sends(kind: Any, by: float | None = None) -> dict[str, torch.Tensor]:
    """Of a client that had 1 and would send 3, where the others send 2, 4 and 9; with a
    statistic."""
    own = {"w": torch.full((2000,), OWN), "running_mean": torch.full((1,), OWN)}
    had = {"w": torch.full((2000,), HAD), "running_mean": torch.full((1,), HAD)}
    others = [{"w": torch.full((2000,), value)} for value in OTHERS]
    send = KINDS[kind].send
    assert send is not None
    return {**own, **send(Moment(own, ["w"], had, others, Attack(kind, by=by).amount, seed=3))}


SENT: list[Any] = [
    ("sign_flip", None, HAD - (OWN - HAD), OWN),
    ("sign_flip", 3.0, HAD - 3 * (OWN - HAD), OWN),
    ("scaled", None, HAD + 10 * (OWN - HAD), OWN),
    ("alie", 2.0, np.mean(OTHERS) - 2 * np.std(OTHERS), OWN),
    ("ipm", 0.5, HAD - 0.5 * (np.mean(OTHERS) - HAD), OWN),
    ("nan", None, np.nan, np.nan),
    ("replay", None, HAD, HAD),
    ("free_rider", None, HAD, HAD),
]


@pytest.mark.parametrize(("kind", "by", "parameter", "statistic"), SENT)
def test_what_is_sent_is_what_the_kind_says(
    kind: Any, by: float | None, parameter: float, statistic: float
) -> None:
    sent = sends(kind, by)
    assert sent["w"].numpy() == pytest.approx(np.full(2000, parameter), nan_ok=True, rel=1e-5)
    assert sent["running_mean"].item() == pytest.approx(statistic, nan_ok=True)


@pytest.mark.parametrize(("kind", "around"), [("noise", OWN), ("free_rider", HAD)])
def test_noise_has_the_deviation_that_is_asked_for(kind: Any, around: float) -> None:
    sent = sends(kind, 0.5)
    assert sent["w"].mean().item() == pytest.approx(around, abs=0.05)
    assert sent["w"].std().item() == pytest.approx(0.5, rel=0.05)
    assert torch.equal(sent["w"], sends(kind, 0.5)["w"])


def test_attackers_are_drawn_by_the_seed_and_nobody_twice() -> None:
    names = [f"c{place}" for place in range(10)]
    attacks = [
        Attack("noise", share=0.3),
        Attack("nan", client="c4"),
        Attack("replay"),
        Attack("scaled", share=0.25),
    ]
    first = drawn(attacks, names, seed=1)
    assert first == drawn(attacks, reversed(names), seed=1) != drawn(attacks, names, seed=2)
    kinds = [attack.kind for attack in first.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "noise": 3,
        "nan": 1,
        "replay": 1,
        "scaled": 3,
    }
    assert first["c4"].kind == "nan"


def test_poisoned_rows_are_training_rows_alone() -> None:
    tables = Made().tables(seed=0)
    attackers = {"ash": Attack("label_flip", by=0.5), "cedar": Attack("backdoor", by=0.25, **DOOR)}
    changed = {table.name: table for table in poison(tables, attackers, seed=0)}
    for table in tables:
        now = changed[table.name]
        differ = (now.features != table.features).any(axis=1) | (now.target != table.target)
        rows = set(np.flatnonzero(differ))
        assert rows <= set(table.splits["train"]) and bool(rows) == (table.name in attackers)
    ash = changed["ash"]
    before = tables[0]
    train = before.splits["train"]
    # of three classes, the one in the middle stays
    flipped = before.target.iloc[train].map({0: 2, 1: 1, 2: 0})
    moved = (ash.target.iloc[train] != before.target.iloc[train]).to_numpy()
    assert (ash.target.iloc[train][moved] == flipped[moved]).all() and 0 < moved.sum() <= len(
        train
    ) / 2
    opened = changed["cedar"].features["x1"] == 9.0
    assert opened.sum() == round(0.25 * len(tables[2].splits["train"]))
    assert (changed["cedar"].target[opened] == 1).all()


class Listens(Rule):
    """Notes what clients send, and gives them nothing."""

    def __init__(self) -> None:
        self._heard: list[dict[str, torch.Tensor]] = []

    def __call__(self, round: Round) -> dict[str, dict[str, torch.Tensor]]:
        self._heard.append(
            {name: own.state["core.0.weight"].clone() for name, own in round.updates.items()}
        )
        return {name: {} for name in round.receivers}


def test_attackers_of_a_run_send_what_they_should(tmp_path: Path) -> None:
    """Nobody receives anything, so that both runs train alike."""
    kinds: dict[str, Any] = {"ash": "replay", "birch": "free_rider", "cedar": "sign_flip"}
    heard = []
    for attacks in ([Attack(kind, client=name) for name, kind in kinds.items()], []):
        run = make_run(
            tmp_path, exchange={"federated": ["core"], "rule": Listens(), "attacks": attacks}
        )
        run.describe()
        before = {
            name: own.federated["core.0.weight"].detach().clone()
            for name, own in run.loop.federation.items()
        }
        run.fit(quiet=True)
        heard.append(run.exchange.rule._heard)  # type: ignore[attr-defined]
    first = heard[1][0]["ash"]
    for now, told in zip(*heard, strict=True):
        assert torch.equal(now["ash"], first) and torch.equal(now["birch"], before["birch"])
        assert now["cedar"].numpy() == pytest.approx(
            (2 * before["cedar"] - told["cedar"]).numpy(), abs=1e-6
        )
        before = told


def test_attacks_are_said_in_plan_log_and_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attacks = [Attack("label_flip", client="birch"), Attack("scaled", client="ash", by=2)]
    run = make_run(tmp_path, exchange={"federated": ["core"], "attacks": attacks}, epochs=1)
    (line,) = [note for note in str(run.describe()).splitlines() if "exchange.attacks" in note]
    line = line[line.index("attacks are injected") :]
    assert "scaled" in line and "ash" in line and "label_flip" in line and "birch" in line
    with caplog.at_level(logging.WARNING):
        run.fit(quiet=True)
    assert caplog.messages.count(line) == 1
    results = run.test(quiet=True)
    assert line in str(results)
    assert run.folder is not None and json.loads((run.folder / "test.json").read_text())[
        "planted"
    ] == [line]


WINE = Bundled(clients=["wine"])
POISON: dict[str, Any] = {"feature": "alcohol", "value": 1.0, "label": 1}
REFUSED: list[tuple[Any, str]] = [
    (lambda: Attack("sign"), "kind: .*'sign'"),  # type: ignore[arg-type]
    (lambda: Attack("noise", client="a", share=0.1), "client or a share"),
    (lambda: Attack("noise", share=1.5), "share"),
    (lambda: Attack("nan", by=1), "by"),
    (lambda: Attack("noise", by=0), "by"),
    (lambda: Attack("label_flip", by=1.2), "1.2"),
    (lambda: Attack("backdoor", feature="x"), "value"),
    (lambda: Attack("scaled", label=1), "label"),
    (lambda: drawn([Attack("nan", client="c")], ["a", "b"], 0), "'c'"),
    (lambda: drawn([Attack("nan", client="a")] * 2, ["a", "b"], 0), "two of 'a'"),
    (lambda: drawn([Attack("nan", share=1), Attack("nan")], ["a"], 0), "found 1"),
    (
        lambda: poison(
            WINE.tables(0), {"wine": Attack("backdoor", **{**POISON, "feature": "alkohol"})}, 0
        ),
        "alcohol",
    ),
    (
        lambda: poison(WINE.tables(0), {"wine": Attack("backdoor", **{**POISON, "label": 7})}, 0),
        "label of wine",
    ),
    (
        lambda: make_run(
            Path("no"), exchange={"attacks": [Attack("nan", client="ash")]}
        ).describe(),
        "'ash'",
    ),
]


@pytest.mark.parametrize(("make", "key"), REFUSED)
def test_what_does_not_fit_is_refused(make: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()
