"""Tables that a user asks for beside the scores of a split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlit.show.shown import Folded, Grid
from fedlit.show.text import MOST_ROWS

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]
"""A row of a supplement: column → text, number or None. One column is ``client``."""

SUPPLEMENTS = ("thresholds", "subgroups")
"""Their names, in files and in ``test.json``."""


@dataclass(frozen=True)
class Supplement:
    """A table beside the scores of a split.

    Attributes:
        name: one of :data:`SUPPLEMENTS`.
        title: the line above the table.
        records: the rows, each with ``client``.
        printed: the columns to print; files have all.
        notes: notes for the user.

    Example:
        >>> table = Supplement("subgroups", "By sex:", [{"client": "north", "level": "f", "auroc": 0.5}], ("level",))
        >>> table.of("north"), table.grid().rows
        ([{'level': 'f', 'auroc': 0.5}], [['north', 'f']])
    """

    name: str
    title: str
    records: Sequence[Record]
    printed: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def of(self, client: str) -> list[Record]:
        """Return a client's rows as plain data. Undefined values are None."""
        rows = [record for record in self.records if record["client"] == client]
        return [_plain_row(row) for row in rows]

    def to_frame(self) -> pd.DataFrame:
        """Return the table with all columns."""
        import pandas as pd

        return pd.DataFrame(self.records)

    def grid(self) -> Grid:
        """Return the columns to print, of the first rows if there are too many."""
        present = set[str]().union(*self.records)
        columns = [name for name in self.printed if name in present]
        rows = []
        for record in self.records[:MOST_ROWS]:
            rows.append([str(record["client"]), *(_cell(record.get(name)) for name in columns)])
        return Grid(["client", *(name.replace("_", " ") for name in columns)], rows)

    def parts(self, split: str) -> list[str | Folded]:
        """Return the title, with the table and the notes folded below it."""
        folded: list[str | Grid] = [self.grid()]
        hidden = len(self.records) - MOST_ROWS
        if hidden > 0:
            folded.append(f"{hidden:,} more rows in {self.file(split)}")
        folded += [f"Note: {note}" for note in self.notes]
        return ["", Folded(self.title, folded)]

    def file(self, split: str) -> str:
        """Return the name of its file."""
        return f"{split}_{self.name}.csv"


def _plain_row(record: Record) -> Record:
    return {key: _plain(value) for key, value in record.items() if key != "client"}


def _plain(value: str | float | None) -> str | float | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if math.isfinite(value) else "–"
