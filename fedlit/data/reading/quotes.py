"""Quotes around cells: whether they are regular, and blanks that stand around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["blanks_around_quotes", "regular_quotes", "without_blanks_around_quotes"]


def regular_quotes(block: bytes, sep: str) -> bool:
    r"""Whether all quotes stand in pairs around whole cells that hold no line ends, or doubled inside of them.

    Every reader reads such lines alike.

    Args:
        block: whole lines, as UTF-8.
        sep: what separates the fields, one byte.

    Example:
        >>> [regular_quotes(line, ",") for line in (b'a,"b ""c"" d",""\n', b'5" pipe\n', b'"a\n"\n')]
        [True, False, False]
    """
    import numpy as np

    text = np.frombuffer(b"\n" + block + b"\n", np.uint8)
    ends = np.zeros(256, bool)
    ends[[10, 13, ord(sep)]] = True
    quotes = np.flatnonzero(text == 34)
    opening, closing = quotes[::2], quotes[1::2]
    if len(opening) != len(closing):
        return False
    # Between a closing and an opening quote that touch, the cell goes on: together they are a doubled quote.
    touching = closing[:-1] + 1 == opening[1:]
    begins = ends[text[opening - 1]]
    finishes = ends[text[closing + 1]]
    begins[1:] |= touching
    finishes[:-1] |= touching
    if not (begins.all() and finishes.all()):
        return False
    lines = np.flatnonzero((text == 10) | (text == 13))
    return bool((np.searchsorted(quotes, lines) % 2 == 0).all())


def blanks_around_quotes(content: bytes, sep: str) -> bool:
    """Whether blanks seem to stand between a quote and a separator: then reading takes longer."""
    if not any(own in content for own in (b' "', b'" ', b'\t"', b'"\t')):
        return False
    blank = b" " if sep == "\t" else b"\t" if sep == " " else rb"[ \t]"
    end = rb"[\r\n]|" + re.escape(sep.encode())
    around = rb"(?:^|" + end + rb")" + blank + rb'+"|"' + blank + rb"+(?:$|" + end + rb")"
    return re.search(around, content) is not None


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
