"""ConceptShift: labels that mean something else at some clients."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from fedlit.data.module import FederatedData
from fedlit.data.shaping.concept import ConceptShift
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled
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
    after = ConceptShift(DIGITS, concepts=concepts).tables(0)
    found = meanings(before, after)
    assert sorted(found) == [str(number + 1) for number in range(concepts)]
    assert found["1"] == {digit: digit for digit in range(10)}
    assert all(sorted(own.values()) == list(range(10)) for own in found.values())
    for one, other in combinations(found.values(), 2):
        assert all(one[digit] != other[digit] for digit in range(10))
    sizes = [sum(table.concept == concept for table in after) for concept in found]
    assert max(sizes) - min(sizes) <= 1


def test_the_seed_draws_who_and_how() -> None:
    source = ConceptShift(DIGITS, concepts=2)
    first, again = source.tables(1), source.tables(1)
    assert all(a.target.equals(b.target) and a.concept == b.concept for a, b in zip(first, again, strict=True))
    who = {tuple(table.concept for table in source.tables(seed)) for seed in range(3)}
    how = {tuple(sorted(meanings(DIGITS.tables(seed), source.tables(seed))["2"].items())) for seed in range(3)}
    assert len(who) > 1 and len(how) == 3


def test_listed_clients_and_a_flip() -> None:
    before = CANCER.tables(0)
    after = ConceptShift(CANCER, by="flip", groups=[["c01"], ["c0[23]"]]).tables(0)
    assert [table.concept for table in after] == ["1", "2", "2"]
    assert meanings(before, after)["2"] == {"benign": "malignant", "malignant": "benign"}
    pair = ConceptShift(DIGITS, by="flip", pair=[3, 8]).tables(0)
    swapped = {digit: {3: 8, 8: 3}.get(digit, digit) for digit in range(10)}
    assert meanings(DIGITS.tables(0), pair)["2"] == swapped


def test_clients_know_their_concept_and_the_notes_tell() -> None:
    data = FederatedData(ConceptShift(CANCER, by="flip", groups=[["c02", "c01"], ["c03"]]))
    data.setup()
    assert [spec.concept for spec in data.specs] == ["1", "1", "2"]
    assert "a concept shift was planted: concept 1 at c01, c02; concept 2 at c03" in data.notes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"concepts": 0}, "concepts: .*found 0"),
        ({"by": "flip", "concepts": 3}, "concepts: .*found 3"),
        ({"groups": [["c01"]]}, "groups: .*2 concepts"),
        ({"pair": [1, 2]}, "pair: .*by: flip"),
        ({"by": "flip"}, "pair: expected two"),
        ({"concepts": 8}, "concepts: expected at most 7"),
        ({"groups": [["*"], ["c01"]]}, r"groups: expected c01 in one group, found \[1, 2\]"),
        ({"groups": [["c01"], ["c02"]]}, r"groups: expected c03 in one group, found \[\]"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConceptShift(DIGITS, **arguments).tables(0)
