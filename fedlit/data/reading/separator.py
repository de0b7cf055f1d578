"""Which character separates the fields of a text, and blanks that stand around quotes."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fedlit.data.reading.raw import Notes

__all__ = ["SAID", "found_separator", "without_blanks_around_quotes"]

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
        notes.add(f"fields are separated by a {SAID[best]}.")
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


def without_blanks_around_quotes(lines: Iterable[str], sep: str) -> Iterator[str]:
    r"""The lines without blanks that stand between a quote and a separator, or a line's end.

    Example:
        >>> list(without_blanks_around_quotes(['a, "b, c" ,d\n', 'e, "f\n', ' "" g" ,h\n'], ","))
        ['a,"b, c",d\n', 'e,"f\n', ' "" g",h\n']
    """
    blank = " *" if sep == "\t" else r"\t*" if sep == " " else r"[ \t]*"
    fields = re.compile(
        rf'{blank}(?P<quoted>"[^"]*(?:""[^"]*)*(?:"|\Z))(?P<after>{blank}(?=[\r\n{re.escape(sep)}]|\Z))?'
        rf"|[^{re.escape(sep)}]*"
    )
    rest = re.compile(rf'(?P<quoted>[^"]*(?:""[^"]*)*(?:"|\Z))(?P<after>{blank}(?=[\r\n{re.escape(sep)}]|\Z))?')
    inside = False
    for line in lines:
        if '"' not in line:
            yield line
            continue
        parts: list[str] = []
        place = 0
        pattern = rest if inside else fields
        while place < len(line):
            found = pattern.match(line, place)
            assert found is not None  # both patterns fit the empty text
            quoted = found.group("quoted") if "quoted" in found.groupdict() else None
            parts.append(found.group() if quoted is None else quoted)
            inside = quoted is not None and found.end("quoted") == len(line) and not _closed(quoted, pattern is rest)
            place = found.end()
            pattern = fields
            end = line.find(sep, place)
            end = len(line) - 1 if end < 0 else end
            parts.append(line[place : end + 1])
            place = end + 1
        yield "".join(parts)


def _closed(quoted: str, began_inside: bool) -> bool:
    return (quoted.count('"') + began_inside) % 2 == 0
