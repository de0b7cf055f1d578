"""Planted faults and shifts: each against what it says, by NumPy; drawn by the seed; nothing else
changes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.module import FederatedData
from fedlit.data.shaping.derived import ConceptShift
from fedlit.data.shaping.mutations import Mutation, mutate
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled, Populations
from fedlit.data.splitting import random_split
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import ConfigError


def tables(clients: int = 3, rows: int = 200) -> list[ClientTable]:
    made = []
    for number in range(clients):
        rng = np.random.default_rng(number)
        frame = pd.DataFrame(
            {
                "a": rng.normal(5, 2, rows),
                "b": rng.normal(-1, 1, rows),
                "town": rng.integers(0, 3, rows),
            }
        )
        target = pd.Series(np.where(rng.random(rows) < 0.4, "yes", "no"), name="y")
        made.append(
            ClientTable(
                f"c{number}", frame, target, random_split(rows, 0, 0.3, 0.2), ("town",), "yes"
            )
        )
    return made


Changes = dict[str, Any]
# fault → the columns that it changes at c1, of its own rows, its training rows and those of all
# clients
FAULTS: dict[
    str, tuple[dict[str, Any], Callable[[pd.DataFrame, pd.DataFrame, pd.DataFrame], Changes]]
] = {
    "scale": ({"feature": "a", "by": 3.28}, lambda own, *_: {"a": 3.28 * own["a"]}),
    "shift": (
        {"feature": "b", "by": -1.5},
        lambda own, _, every: {"b": own["b"] - 1.5 * every["b"].std(ddof=0)},
    ),
    "clip": (
        {"feature": "a", "by": 0.1},
        lambda own, train, _: {"a": own["a"].clip(*train["a"].quantile([0.1, 0.9]))},
    ),
    "swap": ({"feature": "a", "other": "b"}, lambda own, *_: {"a": own["b"], "b": own["a"]}),
    "flip": ({}, lambda own, *_: {"y": own["y"].map({"yes": "no", "no": "yes"})}),
    "missing": (
        {"feature": "a", "by": 1.0},
        lambda own, *_: {"a": own["a"].mask(own["y"] == "yes")},
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_changes_what_it_says_and_nothing_else(kind: Any) -> None:
    settings, expected = FAULTS[kind]
    before = tables()
    copies = [table.features.copy() for table in tables()]
    after, planted = mutate(before, [Mutation(kind, "c1", **settings)], seed=1)
    assert [own.clients for own in planted] == [("c1",)] and str(planted[0]).startswith(
        "c1: a fault was planted: "
    )
    for old, new, copy in zip(before, after, copies, strict=True):
        pd.testing.assert_frame_equal(old.features, copy)  # what was handed in is left alone
        if new.name != "c1":
            assert new.features is old.features and new.target is old.target
        assert all((new.splits[split] == old.splits[split]).all() for split in SPLITS)
    trains = [table.features.iloc[table.splits["train"]] for table in before]
    own, made = (table.features.assign(y=table.target) for table in (before[1], after[1]))
    pd.testing.assert_frame_equal(made, own.assign(**expected(own, trains[1], pd.concat(trains))))
    (_, some, _), _ = mutate(before, [Mutation("missing", "c1", "a", by=0.75)], seed=1)
    assert some.features["a"].isna()[own["y"] == "yes"].mean() == pytest.approx(0.75, abs=0.12)


@pytest.mark.parametrize(
    ("kind", "client", "settings", "message"),
    [
        ("scale", "c7", {"feature": "a"}, "one of the clients c0, c1, c2, c3, found 'c7'"),
        ("scale", "c1", {"feature": "town"}, "of numbers of c1, found 'town'; these are a, b"),
        ("swap", "c1", {"feature": "a", "other": "a"}, "a column of numbers of c1, found 'a'"),
        ("scale", "c1", {}, "scale: expected 1 of feature and other, found .."),
        ("missing", "c1", {"feature": "a", "by": 1.5}, "expected by above 0 and at most 1"),
        ("flip", "c1", {"feature": "a"}, "flip: expected 0 of feature and other, found .'a'"),
        ("scal", "c1", {"feature": "a"}, "kind: .*Did you mean 'scale'"),
        ("flip", "c3", {}, "flip: expected two labels at c3, found 3"),
    ],
)
def test_what_cannot_be_planted(
    kind: Any, client: str, settings: dict[str, Any], message: str
) -> None:
    three = replace(tables()[0], name="c3", target=pd.Series(np.arange(200) % 3, name="y"))
    with pytest.raises(ConfigError, match=message):
        mutate([*tables(), three], [Mutation(kind, client, **settings)], seed=0)


# ------------------------------------------------------------------ concepts

DIGITS = Partition(Bundled(clients=["digits"]), clients=7)
CANCER = Partition(Bundled(clients=["breast_cancer"]), clients=3)


def meanings(before: list[ClientTable], after: list[ClientTable]) -> dict[str, dict[Any, Any]]:
    """Concept → label → what it became, in all rows of all its clients."""
    found: dict[str, dict[Any, Any]] = {}
    for old, new in zip(before, after, strict=True):
        assert (old.name, old.features.equals(new.features), new.target.dtype) == (
            new.name,
            True,
            old.target.dtype,
        )
        assert new.concept is not None
        known = found.setdefault(new.concept, {})
        for label, became in zip(old.target, new.target, strict=True):
            assert known.setdefault(label, became) == became
    return found


@pytest.mark.parametrize("concepts", [3, 7])
def test_concepts_differ_from_each_other_in_every_label(concepts: int) -> None:
    before = DIGITS.tables(0)
    after = ConceptShift(DIGITS, concepts).tables(0)
    found = meanings(before, after)
    assert sorted(found) == [str(number + 1) for number in range(concepts)]
    assert found["1"] == {digit: digit for digit in range(10)}
    assert all(sorted(own.values()) == list(range(10)) for own in found.values())
    for one, other in combinations(found.values(), 2):
        assert all(one[digit] != other[digit] for digit in range(10))
    sizes = [sum(table.concept == concept for table in after) for concept in found]
    assert max(sizes) - min(sizes) <= 1


def test_the_seed_draws_who_and_how() -> None:
    made = [ConceptShift(DIGITS).tables(seed) for seed in (0, 1, 1, 2)]
    who = [[own.concept for own in after] for after in made]
    how = [
        meanings(DIGITS.tables(seed), after)["2"]
        for seed, after in zip((0, 1, 1, 2), made, strict=True)
    ]
    assert who[1] == who[2] and how[1] == how[2]
    assert len({*map(tuple, who)}) > 1 and how[0] != how[1] != how[3] != how[0]


def test_two_labels_are_exchanged_and_noted() -> None:
    after = ConceptShift(CANCER).tables(0)
    assert meanings(CANCER.tables(0), after)["2"] == {"benign": "malignant", "malignant": "benign"}
    data = FederatedData(ConceptShift(CANCER))
    data.setup()
    assert [spec.concept for spec in data.specs] == [table.concept for table in after]
    one, two = (", ".join(table.name for table in after if table.concept == own) for own in "12")
    assert f"a concept shift was planted: concept 1 at {one}; concept 2 at {two}" in data.notes


@pytest.mark.parametrize(
    ("source", "concepts", "message"),
    [
        (DIGITS, 8, "concepts: expected from 1 to 7"),
        (CANCER, 3, "2, the number of labels, found 3"),
        (
            Bundled(clients=["diabetes"]),
            2,
            "source: expected one of several classes a row at diabetes, .*a number",
        ),
        (Populations(1, 2, 5, 9, 99), 2, "source: .*a label for each position"),
    ],
)
def test_concepts_that_are_refused(source: Any, concepts: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConceptShift(source, concepts).tables(0)
