"""How a text is encoded: as it is declared, marked, or found."""

from __future__ import annotations

import codecs
import itertools
import re

from fedlit.data.reading.raw import Notes, one_line

__all__ = ["as_utf8"]

ONE_BYTE = ["cp1252", "cp1250", "cp1254", "cp1257", "mac_roman", "cp850"]
_WESTERN = re.compile(
    rb"[\x80\x85\x91-\x97\xa0\xa7\xab\xb0\xb2\xb3\xb5\xbb\xc0-\xd6\xd8-\xf6\xf8-\xff]*"
)  # letters, a few signs
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def as_utf8(content: bytes, declared: str | None, notes: Notes) -> bytes:
    """A text as UTF-8 without a byte order mark.

    Args:
        content: as the file has it.
        declared: its encoding; found if None.
        notes: takes what was found; whose text it is.

    Raises:
        DataError: it is not encoded as declared.
    """
    marked, mark = _marked(content)
    found = marked
    if declared is not None:
        name = codecs.lookup(declared).name.removesuffix("-sig")
        # utf-16 says nothing of the order of bytes, the mark does
        found, mark = (marked, mark) if marked.startswith(name) else (name, 0)
        found = f"{name}-le" if found in ("utf-16", "utf-32") else found
    body = content[mark:] if mark else content
    try:
        text = body.decode(found)
    except UnicodeError as error:
        if declared is not None:
            raise notes.error(
                f"expected text encoded as {declared}, found something else ({one_line(error)}). Save it as UTF-8, or "
                "write its encoding."
            ) from error
        # the first lines that are more than ASCII: the others would drown them
        telling = (line for line in body.splitlines(keepends=True) if not line.isascii())
        found = _likely(b"".join(itertools.islice(telling, 200))[: 2**15])
        text = body.decode(found, "replace")
    if declared is None and found != "utf-8":
        word = re.search(r"\w*[^\x00-\x7f]+\w*", text)
        such = f", such as {word.group()!r}" if word else ""
        notes.add(
            f"it is not UTF-8 and is read as {found}{such}. If letters look wrong, write encoding.", encoding=found
        )
    return body if found == "utf-8" else text.encode()


def _marked(content: bytes) -> tuple[str, int]:
    """The encoding that a byte order mark or the pattern of NUL bytes gives away, and the mark's length.

    Example:
        >>> _marked(b"a,b"), _marked("a,b".encode("utf-16-le"))
        (('utf-8', 0), ('utf-16-le', 0))
    """
    for mark, name in MARKS:
        if content.startswith(mark):
            return name, len(mark)
    start = content[:2000]
    odd, even = start[1::2].count(b"\0"), start[::2].count(b"\0")
    if 5 * (odd + even) > 2 * len(start) and not (odd and even):
        return ("utf-16-le" if odd else "utf-16-be"), 0
    return "utf-8", 0


def _likely(sample: bytes) -> str:
    """The likely encoding of bytes that are not UTF-8.

    Where letters beyond ASCII stand alone, it is one of the single-byte encodings of Europe. Of those that give the
    same text, the most common is named.

    Example:
        >>> _likely("Müller,Köln".encode("latin-1"))
        'cp1252'
    """
    from charset_normalizer import from_bytes

    apart = re.search(rb"[\x80-\xff]{2}", sample) is None
    best = from_bytes(sample, cp_isolation=ONE_BYTE if apart else None).best()
    if apart and _WESTERN.fullmatch(re.sub(rb"[\x00-\x7f]", b"", sample)):
        return "cp1252"
    if best is None or best.encoding.startswith("mac"):  # which short texts are taken for, and hardly any is
        return "cp1252" if sample.decode("cp1252", "ignore") else "latin-1"
    try:
        if sample.decode("cp1252") == sample.decode(best.encoding):
            return "cp1252"
    except UnicodeDecodeError:
        pass
    return str(best.encoding)
