"""Tables of cells, as Markdown and as text."""

from __future__ import annotations

from dataclasses import dataclass

from fedlit.show.shown import Grid, Shown

__all__ = ["NOTHING", "Cell", "Table"]

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        value: what one looks for.
        spread: standard deviation, interval.
        paper: the published figure and the difference.
        marked: the best of its column, or a lift whose interval excludes zero.
        kind: a verdict, for its colour.
    """

    value: str = NOTHING
    spread: str = ""
    paper: str = ""
    marked: bool = False
    kind: str = ""


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """A table of rows, each with a label.

    Attributes:
        head: what stands above the cells.
        rows: (label, cells).
    """

    head: list[str]
    rows: list[tuple[str, list[Cell]]]

    def markdown(self) -> str:
        """With the marked values in bold."""
        lines = [["", *self.head], ["---"] * (len(self.head) + 1)]
        for label, cells in self.rows:
            lines.append(
                [label, *(_joined(cell, bold="**") + (f"<br>{cell.paper}" if cell.paper else "") for cell in cells)]
            )
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

    def parts(self) -> list[str | Grid]:
        """The table; the marked values have a star."""
        body = [
            [label, *(_joined(cell) + ("*" if cell.marked else "") for cell in cells)] for label, cells in self.rows
        ]
        return [Grid(["", *self.head], body)]


def _joined(cell: Cell, bold: str = "") -> str:
    value = f"{bold}{cell.value}{bold}" if cell.marked else cell.value
    return f"{value} {cell.spread}".strip()
