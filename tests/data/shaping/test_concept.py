"""ConceptShift: labels that mean something else at some clients."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from fedlit.data.module import FederatedData
from fedlit.data.shaping.concept import ConceptShift
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled, Populations
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError

DIGITS = Partition(Bundled(clients=["digits"]), clients=7)
CANCER = Partition(Bundled(clients=["breast_cancer"]), clients=3)


def meanings(before: list[ClientTable], after: list[ClientTable]) -> dict[str, dict[Any, Any]]:
    """Concept → label → what it became, in all rows of all its clients."""
    found: dict[str, dict[Any, Any]] = {}
    for old, new in zip(before, after, strict=True):
        assert (old.name, old.features.equals(new.features), new.target.dtype) == (new.name, True, old.target.dtype)
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
    source = ConceptShift(DIGITS)
    first, again = source.tables(1), source.tables(1)
    assert all(a.target.equals(b.target) and a.concept == b.concept for a, b in zip(first, again, strict=True))
    who = {tuple(table.concept for table in source.tables(seed)) for seed in range(3)}
    how = {tuple(sorted(meanings(DIGITS.tables(seed), source.tables(seed))["2"].items())) for seed in range(3)}
    assert len(who) > 1 and len(how) == 3


def test_two_labels_are_exchanged_clients_know_their_concept_and_the_notes_tell() -> None:
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
        (DIGITS, 0, "concepts: .*found 0"),
        (DIGITS, 8, "concepts: expected at most 7"),
        (CANCER, 3, "2, the number of labels, found 3"),
        (Bundled(clients=["diabetes"]), 2, "source: expected one of several classes a row at diabetes, .*a number"),
        (Populations(1, 2, 5, 9, 99), 2, "source: .*a label for each position"),
    ],
)
def test_what_is_refused(source: Any, concepts: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConceptShift(source, concepts).tables(0)
