"""Leaves out rows that hold no data: repeated headers of files that were joined, lines of dashes,
and totals at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.reading.options import INVISIBLE, Add, ReadOptions
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

_SUMS = frozenset({
    "total", "totals", "grand total", "sum", "summe", "gesamt", "gesamtsumme", "insgesamt", "somme", "total "
        "général",
    "suma", "total general", "totale", "totaal", "celkem",
})  # fmt: skip
_MEANS = frozenset(
    {"average", "mean", "mittelwert", "durchschnitt", "moyenne", "media", "promedio"}
)
_LINE = re.compile(r" ?:?(?:-{2,}|={2,}):? ?")
_MOST_TOTALS = 3
_FEWEST_ROWS = 5
_NEARLY_ALL = 0.9
_CLOSE = 0.005
"""By how much of itself a total may differ from what the rows above give, because cells are
rounded."""


def without_extra_rows(
    frame: pd.DataFrame, names: Sequence[str], options: ReadOptions, add: Add
) -> pd.DataFrame:
    r"""Leave out rows that repeat the header, and totals below the data. The other rows keep their
    numbers.

    A last row is a total if it has a word for one that no other row has in that column, and holds
    nothing else, or the sum or mean of a column. With the word alone, a note asks.

    Args:
        frame: The rows as they were read.
        names: The names in the header.
        options: ``footer`` is the number of rows to leave out at the end, if it is known.
        add: Called with each note.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"site": ["a", "site", "b", "c", "a", "b", "Sum"], "n": ["1", "n", *"23456"]})
        >>> frame.loc[6, "n"] = "15"
        >>> notes = []
        >>> without_extra_rows(frame, ["site", "n"], ReadOptions(), lambda *note: notes.append(note)).index.tolist()
        [0, 2, 3, 4, 5]
        >>> print(notes[0][0], notes[1][0], sep="\n")
        1 row that repeats the header is left out: row 1
        1 last row left out, a total of the rows above: 'Sum'
    """
    frame = _without_line(frame, add)
    frame = _without_headers(frame, names, add)
    if options.footer is not None:
        return frame.iloc[: max(0, len(frame) - options.footer)]
    return _without_totals(frame, add)


def _without_line(frame: pd.DataFrame, add: Add) -> pd.DataFrame:
    """Leave out a first row of dashes, which programs draw below the header."""
    cells = [cell for cell in frame.iloc[0] if isinstance(cell, str)]
    if not cells or not all(_LINE.fullmatch(cell) for cell in cells):
        return frame
    add("a line of dashes below the header is left out", "rows left out")
    return frame.iloc[1:]


def _without_headers(frame: pd.DataFrame, names: Sequence[str], add: Add) -> pd.DataFrame:
    named = [position for position, name in enumerate(names) if name]
    if not named or len(names) < 2:
        return frame
    first = frame.iloc[:, named[0]]
    if first.dtype.kind in "iufbM":
        return frame
    # The first column alone nearly always shows that no row repeats the header. It is compared by
    # its end, because a file that was joined to another may bring its byte order mark.
    ends = first.astype(str).str.endswith(frame.columns[named[0]])
    candidates = frame[ends.fillna(False).to_numpy(bool)]
    header = [name.casefold() for name in names]
    repeats = [
        number
        for number, *cells in candidates.itertuples(name=None)
        if [*map(_plain, cells)] == header
    ]
    if not repeats:
        return frame
    rows = shorten([f"row {number}" for number in repeats], 6)
    subject = "row that repeats the header is"
    if len(repeats) > 1:
        subject = "rows that repeat the header are"
    add(f"{len(repeats):,} {subject} left out: {rows}", "rows left out")
    return frame.drop(index=repeats)


def _without_totals(frame: pd.DataFrame, add: Add) -> pd.DataFrame:
    number = 0
    while (
        number < min(_MOST_TOTALS, len(frame) - _FEWEST_ROWS)
        and _position_of_label(frame.iloc[-1 - number]) >= 0
    ):
        number += 1
    above = frame.iloc[: len(frame) - number]
    totals = [frame.iloc[row] for row in range(len(above), len(frame))]
    if not totals or any(_occurs_above(above, total) for total in totals):
        return frame
    labels = shorten([repr(str(total.iloc[_position_of_label(total)])) for total in totals])
    if not all(_is_total(above, total) for total in totals):
        question = (
            f"{counted(number, 'last row')} with the word {labels}: if that is a total, write "
            f"footer: {number}"
        )
        add(question, "total", alternatives=[{"footer": number}, {"footer": 0}])
        return frame
    add(
        f"{counted(number, 'last row')} left out, a total of the rows above: {labels}",
        "rows left out",
    )
    return above


def _position_of_label(row: pd.Series) -> int:
    """Return the position of the cell that calls a row a total; −1 if there is none."""
    for position, cell in enumerate(row):
        if _label(cell) in _SUMS | _MEANS:
            return position
    return -1


def _label(cell: object) -> str:
    return _plain(cell).strip(" :*=")


def _occurs_above(above: pd.DataFrame, total: pd.Series) -> bool:
    """Return whether the word for a total is a value of other rows, too."""
    position = _position_of_label(total)
    return bool((above.iloc[:, position] == total.iloc[position]).fillna(False).any())


def _plain(cell: object) -> str:
    if not isinstance(cell, str):  # The cell is missing.
        return ""
    return " ".join(INVISIBLE.sub("", cell).split()).casefold()


def _is_total(above: pd.DataFrame, total: pd.Series) -> bool:
    """Return whether a row holds nothing but a word for a total, or a sum or mean of the rows
    above.
    """
    filled = total.notna() & (total.astype(str).str.strip() != "")
    positions = [int(position) for position in np.flatnonzero(filled)]
    label = _position_of_label(total)
    if positions == [label]:
        return True
    is_mean = _label(total.iloc[label]) in _MEANS
    for position in positions:
        for column, number in _numbers(above.iloc[:, position], total.iloc[position]):
            expected = float(column.mean() if is_mean else column.sum())
            if expected and abs(number - expected) <= _CLOSE * abs(expected):
                return True
    return False


def _numbers(column: pd.Series, cell: object) -> Iterator[tuple[pd.Series, float]]:
    """Yield a column's cells and a further one as numbers, in each notation that reads nearly all
    of them.
    """
    import pandas as pd

    texts = [*map(str, column.dropna()), str(cell)]
    for thousands, decimal in (("", "."), (",", "."), (".", ",")):
        plain = [text.replace(thousands, "") if thousands else text for text in texts]
        plain = [text.replace(decimal, ".") for text in plain]
        numbers = pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce")
        above = numbers.iloc[:-1]
        last = float(numbers.iloc[-1])
        if last == last and above.notna().mean() >= _NEARLY_ALL:
            yield above.dropna(), last
