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
WESTERN = re.compile(rb"(?:[\x00-\x7f]|" + _SIGN + rb"(?![\x80-\xff]))*")
"""Matches letters and a few signs of cp1252."""
_LEAST_OF_EITHER = 0.05
"""The smallest share of UTF-8 among the lines that are not ASCII: fewer may fit it by chance."""


def as_utf8(content: bytes, options: ReadOptions, add: Add) -> bytes:
    """Return a text as UTF-8 without a byte order mark; note the encoding if it was detected.

    Raises:
        DataError: It is no text, or is not in the encoding that the options name.
    """
    encoding = options.encoding or _by_first_bytes(content)
    if encoding == "utf-8" and b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise DataError(
            "expected text, found NUL bytes, as pictures, archives and old Excel files have, in "
            f"line {line:,}. Unpack it, or save it as CSV, Parquet or .xlsx; if it is UTF-16, "
            "write encoding; a database has a URL."
        )
    if encoding == "utf-8" and content.isascii():
        return content
    try:
        text = content.decode(encoding)
    except UnicodeError as error:
        if options.encoding or encoding == "utf-16":
            raise DataError(
                f"encoding: expected text in {encoding}, found another: {error}."
            ) from error
        mixed = _of_two_encodings(content, add)
        if mixed is not None:
            return mixed.removeprefix(codecs.BOM_UTF8)
        encoding = _likely(content)
        text = content.decode(encoding)
    if encoding != "utf-8":
        content = text.encode()
        if not options.encoding:
            note = f"is not UTF-8 and is read as {encoding}{_example(text)}. Else write encoding"
            add(note, encoding=encoding)
    return content.removeprefix(codecs.BOM_UTF8)


def _by_first_bytes(content: bytes) -> str:
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if is_utf16 else "utf-8"


def _example(text: str) -> str:
    """Name the first word with a letter that is not ASCII."""
    match = re.search(r"(?<!\w)\w*[^\x00-\x7f\ufeff]+\w*", text)
    return f", such as {match.group()!r}" if match else ""


def _of_two_encodings(content: bytes, add: Add) -> bytes | None:
    r"""Return as UTF-8 a text in which some lines are UTF-8 and others cp1252, as in joined files;
    None for other texts.

    Example:
        >>> text = "Köln\n".encode() + "Zürich\n".encode("cp1252")
        >>> _of_two_encodings(text, lambda note, kind: print(note)).decode().split()
        1 line is UTF-8 and 1 other line cp1252, as in joined files; each is read in its own
        ['Köln', 'Zürich']
    """
    lines = content.splitlines(keepends=True)
    beyond_ascii = [number for number, line in enumerate(lines) if not line.isascii()]
    western = {number for number in beyond_ascii if not _is_utf8(lines[number])}
    unicode = len(beyond_ascii) - len(western)
    if unicode < max(1, _LEAST_OF_EITHER * len(beyond_ascii)):
        return None
    if not all(WESTERN.fullmatch(lines[number]) for number in western):
        return None
    try:
        for number in western:
            lines[number] = lines[number].decode("cp1252").encode()
    except UnicodeError:
        return None
    verb = "is" if unicode == 1 else "are"
    other_lines = counted(len(western), "other line")
    add(
        f"{counted(unicode, 'line')} {verb} UTF-8 and {other_lines} cp1252, as in joined files; "
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
    candidates = ["cp1252"]
    if not WESTERN.fullmatch(sample):
        best = from_bytes(sample).best()
        # Short texts are taken for those of a Macintosh, and hardly any is.
        if best is not None and not best.encoding.startswith("mac"):
            candidates.insert(0, str(best.encoding))
    for encoding in candidates:
        with suppress(UnicodeError):
            content.decode(encoding)
            return encoding
    return "latin-1"
