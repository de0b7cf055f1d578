"""Finds out in which encoding a text is written."""

from __future__ import annotations

import codecs
import itertools
import re
from contextlib import suppress

from fedlit.data.reading.options import Add, ReadOptions
from fedlit.errors import DataError
from fedlit.show.text import counted

_SIGN = rb"[\x80\x85\x91-\x97\xa0\xa7\xab\xb0\xb2\xb3\xb5\xbb\xc0-\xd6\xd8-\xf6\xf8-\xff]"
WESTERN = re.compile(
    rb"(?:[\x00-\x7f]|" + _SIGN + rb"(?![\x80-\xff]))*"
)  # letters and a few signs of cp1252
_LEAST_OF_EITHER = 0.05  # of the lines with other letters than ASCII: fewer may fit UTF-8 by chance


def as_utf8(content: bytes, options: ReadOptions, add: Add) -> bytes:
    """Return a text as UTF-8 without a byte order mark; note the encoding if it was detected.

    Raises:
        DataError: it is no text, or not of the encoding that the options name.
    """
    declared = options.encoding
    found = declared or (
        "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    )
    if found == "utf-8" and b"\0" in content:
        advice = "Unpack it, or save it as CSV, Parquet or .xlsx; if it is UTF-16, write encoding; a database has a URL"
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        found = f"found NUL bytes, as pictures, archives and old Excel files have, in line {line:,}"
        raise DataError(f"expected text, {found}. {advice}.")
    if found != "utf-8" or not content.isascii():
        try:
            text = content.decode(found)
        except UnicodeError as error:
            if declared or found == "utf-16":
                raise DataError(
                    f"encoding: expected text in {found}, found another: {error}."
                ) from error
            mixed = _of_two_encodings(content, add)
            if mixed is not None:
                return mixed.removeprefix(codecs.BOM_UTF8)
            found = _likely(content)
            text = content.decode(found)
        if found != "utf-8":
            content = text.encode()
            if not declared:
                word = re.search(r"(?<!\w)\w*[^\x00-\x7f\ufeff]+\w*", text)
                such = f", such as {word.group()!r}" if word else ""
                add(
                    f"is not UTF-8 and is read as {found}{such}. Else write encoding",
                    encoding=found,
                )
    return content.removeprefix(codecs.BOM_UTF8)


def _of_two_encodings(content: bytes, add: Add) -> bytes | None:
    r"""Return a text of which some lines are UTF-8 and others cp1252, as files have that were
    joined; None for others.

    Example:
        >>> text = "Köln\n".encode() + "Zürich\n".encode("cp1252")
        >>> _of_two_encodings(text, lambda note, kind: print(note)).decode().split()
        1 line is UTF-8 and 1 other line cp1252, as in joined files; each is read in its own
        ['Köln', 'Zürich']
    """
    lines = content.splitlines(keepends=True)
    others = [place for place, line in enumerate(lines) if not line.isascii()]
    western = {place for place in others if not _is_utf8(lines[place])}
    unicode = len(others) - len(western)
    if unicode < max(1, _LEAST_OF_EITHER * len(others)):
        return None
    if not all(WESTERN.fullmatch(lines[place]) for place in western):
        return None
    try:
        for place in western:
            lines[place] = lines[place].decode("cp1252").encode()
    except UnicodeError:
        return None
    verb = "is" if unicode == 1 else "are"
    others_said = counted(len(western), "other line")
    add(
        f"{counted(unicode, 'line')} {verb} UTF-8 and {others_said} cp1252, as in joined files; "
        "each is read in its own",
        "converted",
    )
    return b"".join(lines)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeError:
        return False
    return True


def _likely(content: bytes) -> str:
    """Return the likely encoding of a text that is not UTF-8: cp1252 if all letters are Western, no
    two of them in a row, or if nothing better is found; latin-1, in which each byte is a letter, if
    that does not fit all of the text.

    >>> _likely("Müller,Köln".encode("latin-1"))
    'cp1252'
    """
    from charset_normalizer import from_bytes

    # The first lines that are more than ASCII: the others would drown them.
    telling = itertools.islice((line for line in content.splitlines() if not line.isascii()), 200)
    sample = b"\n".join(telling)[: 2**15]
    best = None if WESTERN.fullmatch(sample) else from_bytes(sample).best()
    # Short texts are taken for those of a Macintosh, and hardly any is.
    for likely in (
        [] if best is None or best.encoding.startswith("mac") else [str(best.encoding)]
    ) + ["cp1252"]:
        with suppress(UnicodeError):
            content.decode(likely)
            return likely
    return "latin-1"
