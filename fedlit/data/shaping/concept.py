"""Federations whose clients disagree on the meaning of labels, for experiments with methods that find clients that
agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import ClientTable
from fedlit.data.target import has_classes, without_classes
from fedlit.errors import expect
from fedlit.seeding import derive_seed


@dataclass(eq=False)
class ConceptShift(Source):
    """The clients of another source, some of which label the same rows differently, in every split.

    Clients are divided among the concepts in equal parts, as drawn by the run's seed. The labels of the first concept's
    clients are kept. Those of another concept are permuted: each label becomes another one, which differs from what it
    becomes in any other concept. If there are two labels, the second concept exchanges them.

    Args:
        source: a source whose clients have labels in common.
        concepts: the number of concepts, which are called ``1``, ``2``, …

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> dealt = Partition(Bundled(clients=["breast_cancer"]), clients=2)
        >>> for table in ConceptShift(dealt).tables(seed=0):
        ...     print(table.name, table.concept, table.target.iloc[0])
        c01 1 malignant
        c02 2 benign
    """

    name: ClassVar[str] = "concept shift"
    about: ClassVar[str] = "another source's clients, some of which call the same rows by other labels"

    source: Source
    concepts: int = 2

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(self.concepts >= 1, "concept shift: concepts", "at least 1", self.concepts)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and change labels; ``seed`` determines whose, and how."""
        tables = self.source.tables(seed)
        names = sorted(table.name for table in tables)
        for table in tables:
            found = "" if has_classes(table) else without_classes(table.target)
            expect(not found, "concept shift: source", f"one of several classes a row at {table.name}", found)
        # by their text, as clients' labels may be of several types
        labels = sorted({label for table in tables for label in table.target.unique().tolist()}, key=repr)
        most = f"at most {len(names)}, one a client, and {len(labels)}, the number of labels"
        expect(self.concepts <= min(len(names), len(labels)), "concept shift: concepts", most, self.concepts)
        drawn = np.random.default_rng(derive_seed(seed, "concept", "clients")).permutation(names)
        parts = np.array_split(drawn, self.concepts)
        concept = {str(name): number for number, part in enumerate(parts) for name in part}
        order = np.random.default_rng(derive_seed(seed, "concept", "labels")).permutation(len(labels)).tolist()
        ring = [labels[place] for place in order]
        changed = []
        for table in tables:
            # turned by a different number of places in each concept, so that no two of them agree anywhere
            turn = concept[table.name]
            meanings = dict(zip(ring, ring[turn:] + ring[:turn], strict=True))
            target = table.target.map(meanings).astype(table.target.dtype)
            changed.append(replace(table, target=target, concept=str(turn + 1)))
        return check_tables(changed)
