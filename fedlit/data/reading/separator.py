"""Which character separates the fields of a text."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fedlit.data.reading.quotes import without_blanks_around_quotes
from fedlit.data.reading.raw import Notes

__all__ = ["found_separator"]

SAID = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
LINES = 100


def found_separator(text: str, *, complete: bool, names: Sequence[str] | None, notes: Notes) -> str:
    """The separator that gives all of the first lines the same number (> 1) of fields.

    Args:
        text: the beginning of the table.
        complete: whether this is all of it; otherwise its last line is cut.
        names: the names of the columns, where the text has no header.
        notes: whose text it is; takes the separator unless it is a comma.

    Returns:
        The separator; a comma if there is but one column. Where no separator fits all lines, the one that fits most:
        reading then names the line at fault.

    Raises:
        DataError: if several fit.
    """
    shares = {sep: _share(text, sep, complete, names) for sep in SAID}
    fit = [sep for sep, share in shares.items() if share == 1]
    if len(fit) > 1:
        found = " and ".join(repr(sep) for sep in fit)
        raise notes.error(f"fields may be separated by {found}: the first lines fit both. Write sep.")
    best = fit[0] if fit else max(shares, key=lambda sep: shares[sep])
    if shares[best] <= 0.5:
        if names is None or len(names) > 1:
            notes.add("no separator was found: it is read as one column. If there are more, write sep.")
        return ","
    if best != ",":
        notes.add(f"fields are separated by a {SAID[best]}.", sep=best)
    return best


def _share(text: str, sep: str, complete: bool, names: Sequence[str] | None) -> float:
    """The share of lines with the most common number of fields; 1 only if header and lines agree."""
    tidied = without_blanks_around_quotes(io.StringIO(text, newline=""), sep)
    try:
        widths = [len(row) for row in _first(csv.reader(tidied, delimiter=sep), LINES + 1) if any(map(str.strip, row))]
    except csv.Error:
        return 0
    if not complete and len(widths) > 1 and len(widths) <= LINES:
        widths.pop()
    if not widths:
        return 0
    body = widths if names is not None or len(widths) == 1 else widths[1:]
    usual, times = Counter(body).most_common(1)[0]
    if usual < 2:
        return 0
    share = times / len(body)
    header = len(names) if names is not None else widths[0]
    if header == usual:
        return share
    # A separator too many at the end of each line is common.
    return (0.95 if header == usual - 1 else 0.9) * share


def _first(rows: Iterable[list[str]], number: int) -> Iterator[list[str]]:
    for place, row in enumerate(rows):
        if place == number:
            return
        yield row
