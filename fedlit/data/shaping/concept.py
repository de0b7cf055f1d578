"""Federations whose clients disagree on what a label means, for experiments with methods that find who agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import ClientTable, check_patterns
from fedlit.data.target import own_task
from fedlit.errors import expect
from fedlit.seeding import derive_seed
from fedlit.tasks.sequence_labelling import NO_LABEL

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ConceptShift"]


@dataclass(eq=False)
class ConceptShift(Source):
    """The clients of another source, some of which label the same rows differently, in every split.

    The labels of the first concept's clients stay. Those of another concept's are permuted: each becomes another one,
    and one that it becomes in no other concept. Of sequences the label of each position is.

    Args:
        source: whose clients have labels in common.
        concepts: how many there are, called ``1``, ``2``, …
        by: whether labels are permuted (``permute``: all of them, as drawn by the run's seed) or two of them are
            exchanged (``flip``: two concepts at most).
        groups: each concept's clients, by name or pattern; drawn by the run's seed, in equal parts, if None.
        pair: the two labels that ``flip`` exchanges; may be left out where there are no others.

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> dealt = Partition(Bundled(clients=["breast_cancer"]), clients=2)
        >>> for table in ConceptShift(dealt, by="flip", groups=[["c02"], ["c01"]]).tables(seed=0):
        ...     print(table.name, table.concept, table.target.iloc[0])
        c01 2 benign
        c02 1 malignant
    """

    name: ClassVar[str] = "concept shift"
    about: ClassVar[str] = "another source's clients, some of which call the same rows by other labels"

    source: Source
    concepts: int = 2
    by: Literal["permute", "flip"] = "permute"
    groups: Sequence[Sequence[str]] | None = None
    pair: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        key, number, flip = "concept shift", self.concepts, self.by == "flip"
        expect(self.by in ("permute", "flip"), f"{key}: by", "permute or flip", self.by)
        most = number <= 2 or not flip
        expect(number >= 1 and most, f"{key}: concepts", "at least 1, and 2 at most for flip", number)
        each = self.groups is None or len(self.groups) == number
        expect(each, f"{key}: groups", f"a list of clients for each of {number} concepts", self.groups)
        two = self.pair is None or (flip and len(set(self.pair)) == len(self.pair) == 2)
        expect(two, f"{key}: pair", "two labels, and by: flip", self.pair)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and change labels; ``seed`` says whose, and how."""
        tables = self.source.tables(seed)
        followed = self._followed(sorted(table.name for table in tables), seed)
        meanings = self._meanings(tables, seed)
        changed = []
        for table in tables:
            concept = followed[table.name]
            target = _renamed(table, meanings[concept]) if concept else table.target
            changed.append(replace(table, target=target, concept=str(concept + 1)))
        return check_tables(changed)

    def _followed(self, names: list[str], seed: int) -> dict[str, int]:
        """Client → its concept, counted from 0."""
        if self.groups is None:
            most = f"at most {len(names)}, one a client"
            expect(self.concepts <= len(names), "concept shift: concepts", most, self.concepts)
            drawn = np.random.default_rng(derive_seed(seed, "concept", "clients")).permutation(names)
            parts = np.array_split(drawn, self.concepts)
            return {str(name): concept for concept, part in enumerate(parts) for name in part}
        key = "concept shift: groups"
        check_patterns(key, [pattern for group in self.groups for pattern in group], names)
        followed: dict[str, int] = {}
        for name in names:
            own = [at for at, group in enumerate(self.groups) if any(fnmatchcase(name, pattern) for pattern in group)]
            expect(len(own) == 1, key, f"{name} in one group", [at + 1 for at in own], "list each client once")
            followed[name] = own[0]
        return followed

    def _meanings(self, tables: Sequence[ClientTable], seed: int) -> list[dict[Any, Any]]:
        """Return, for each concept, label → its name there."""
        # by their text, as clients' labels may be of several types
        labels = sorted({label for table in tables for label in _labels(table)}, key=repr)
        if self.by == "flip":
            pair = labels if self.pair is None else list(self.pair)
            known = len(pair) == 2 and set(pair) <= set(labels)
            expect(known, "concept shift: pair", f"two of the labels {labels}", pair, "or take by: permute")
            return [{}, {**{label: label for label in labels}, pair[0]: pair[1], pair[1]: pair[0]}]
        most = max(len(labels), 1)  # no two concepts call a row alike
        expect(self.concepts <= most, "concept shift: concepts", f"at most {most}, the number of labels", self.concepts)
        order = np.random.default_rng(derive_seed(seed, "concept", "labels")).permutation(len(labels)).tolist()
        ring = [labels[place] for place in order]
        # turned by a different number of places in each concept, so that no two of them agree anywhere
        return [dict(zip(ring, ring[turn:] + ring[:turn], strict=True)) for turn in range(self.concepts)]


def _by_position(table: ClientTable) -> bool:
    return (own_task(table.task, table.name) or {}).get("name") == "sequence_labelling"


def _labels(table: ClientTable) -> set[Any]:
    """The labels in a table."""
    own = set(table.target.unique().tolist())
    return set().union(*own) - {NO_LABEL} if _by_position(table) else own


def _renamed(table: ClientTable, meanings: dict[Any, Any]) -> pd.Series:
    """The target with each label called as ``meanings`` say."""
    if _by_position(table):
        return table.target.str.translate(str.maketrans(meanings))
    return table.target.map(meanings).astype(table.target.dtype)
