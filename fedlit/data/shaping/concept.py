"""Federations whose clients disagree on what a label means, for experiments with methods that find who agrees."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import ClientTable
from fedlit.data.target import own_task
from fedlit.errors import ConfigError, did_you_mean
from fedlit.seeding import derive_seed
from fedlit.tasks.sequence_labelling import NO_LABEL

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ConceptShift"]


class ConceptShift(Source):
    """The clients of another source, of which some call the same rows by other labels, in every split.

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

    def __init__(
        self,
        source: Source,
        concepts: int = 2,
        by: Literal["permute", "flip"] = "permute",
        groups: Sequence[Sequence[str]] | None = None,
        pair: Sequence[Any] | None = None,
    ) -> None:
        if concepts < 1 or (by == "flip" and concepts > 2):
            limit = "1 or 2 for flip" if by == "flip" else "at least 1"
            raise ConfigError(f"concept shift: concepts: expected {limit}, found {concepts}")
        if by not in ("permute", "flip"):
            raise ConfigError(f"concept shift: by: expected permute or flip, found {by!r}")
        if groups is not None and len(groups) != concepts:
            raise ConfigError(
                f"concept shift: groups: expected one list of clients for each of {concepts} concepts, found "
                f"{len(groups)}; change groups or concepts"
            )
        if pair is not None and (by != "flip" or len(pair) != 2 or pair[0] == pair[1]):
            raise ConfigError(
                f"concept shift: pair: expected two labels, and by: flip, found {list(pair)} and by: {by}"
            )
        self.source, self.concepts, self.by = source, concepts, by
        self.groups, self.pair = groups, pair

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
            if len(names) < self.concepts:
                raise ConfigError(
                    f"concept shift: concepts: expected at most {len(names)}, one a client, found {self.concepts}"
                )
            drawn = np.random.default_rng(derive_seed(seed, "concept", "clients")).permutation(names)
            parts = np.array_split(drawn, self.concepts)
            return {str(name): concept for concept, part in enumerate(parts) for name in part}
        followed: dict[str, int] = {}
        for concept, patterns in enumerate(self.groups):
            for pattern in patterns:
                matched = fnmatch.filter(names, pattern)
                if not matched:
                    raise ConfigError(
                        f"concept shift: groups: expected the name or pattern of a client, found {pattern!r}; there "
                        f"are {', '.join(names)}." + did_you_mean(pattern, names)
                    )
                for name in matched:
                    if followed.setdefault(name, concept) != concept:
                        raise ConfigError(f"concept shift: groups: expected {name} in one group, found it in two")
        if left := [name for name in names if name not in followed]:
            raise ConfigError(
                f"concept shift: groups: expected every client in a group, found {', '.join(left)} in none"
            )
        return followed

    def _meanings(self, tables: Sequence[ClientTable], seed: int) -> list[dict[Any, Any]]:
        """Return, for each concept, label → its name there."""
        # by their text, as clients' labels may be of several types
        labels = sorted({label for table in tables for label in _labels(table)}, key=repr)
        if self.by == "flip":
            if self.pair is None and len(labels) != 2:
                raise ConfigError(
                    f"concept shift: flip: expected two labels, found {len(labels)}; name two with pair, or take by: "
                    "permute"
                )
            first, second = labels if self.pair is None else self.pair
            if not {first, second} <= set(labels):
                raise ConfigError(f"concept shift: pair: expected two of {labels}, found {[first, second]}")
            return [{}, {**dict(zip(labels, labels, strict=True)), first: second, second: first}]
        if self.concepts > max(len(labels), 1):
            raise ConfigError(
                f"concept shift: concepts: expected at most {len(labels)}, the number of labels, since no two concepts "
                f"are to call a row alike, found {self.concepts}"
            )
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
