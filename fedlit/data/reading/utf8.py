"""Text of any encoding as a stream of UTF-8 that is watched while it flows."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import Any

from fedlit.data.reading.raw import Notes

__all__ = ["MAX_LINE", "PIECE", "BlanksAroundQuotes", "Lines", "Watch", "found_encoding", "lines_in", "marked_encoding"]

PIECE = 2**22
MAX_LINE = 64 * 2**20
MAX_FIELDS = 1_000_000
ONE_BYTE = ["cp1252", "cp1250", "cp1254", "cp1257", "mac_roman", "cp850"]


class BlanksAroundQuotes(Exception):
    """There seem to be blanks between a quote and a separator: a slower way of reading is needed."""


def marked_encoding(head: bytes) -> tuple[str, int]:
    """The encoding that a byte order mark or the pattern of NUL bytes gives away, and the mark's length.

    Example:
        >>> marked_encoding(b"a,b"), marked_encoding("a,b".encode("utf-16-le"))
        (('utf-8', 0), ('utf-16-le', 0))
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if head.startswith(mark):
            return name, len(mark)
    start = head[:2000]
    if start.count(b"\0", 0) * 5 > len(start) * 2:
        odd, even = start[1::2].count(b"\0"), start[::2].count(b"\0")
        if odd and not even:
            return "utf-16-le", 0
        if even and not odd:
            return "utf-16-be", 0
    return "utf-8", 0


def found_encoding(sample: bytes) -> str:
    """The likely encoding of bytes that are not UTF-8.

    Where letters beyond ASCII stand alone, it is one of the single-byte encodings of Europe. Of those that give the
    same text, the most common is named.

    Example:
        >>> found_encoding("Müller,Köln".encode("latin-1"))
        'cp1252'
    """
    from charset_normalizer import from_bytes

    alone = re.search(rb"[\x80-\xff]{2}", sample) is None
    best = from_bytes(sample, cp_isolation=ONE_BYTE if alone else None).best()
    if best is None or best.encoding.startswith("mac"):  # which short texts are taken for, and hardly any is
        return "cp1252" if sample.decode("cp1252", "ignore") else "latin-1"
    try:
        if sample.decode("cp1252") == sample.decode(best.encoding):
            return "cp1252"
    except UnicodeDecodeError:
        pass
    return str(best.encoding)


class Lines:
    """Decompressed bytes as lines of text, counted and looked through.

    Iterated, it gives one line after the other, with its end. :meth:`block` gives many at once, as UTF-8.

    Args:
        source: what gives the bytes.
        head: bytes already read from it, without byte order mark.
        encoding: how they are encoded.
        watch: looks through all bytes.
    """

    def __init__(self, source: Any, head: bytes, encoding: str, watch: Watch) -> None:
        self._source, self._head, self.watch = source, head, watch
        name = codecs.lookup(encoding).name
        self._decode = None if name == "utf-8" else codecs.getincrementaldecoder(name)("strict")
        self._carry = b""
        self._text = io.StringIO()

    def __iter__(self) -> Iterator[str]:
        while block := self.block():
            self.watch.check_quotes(block)
            self._text = io.StringIO(block.decode(), newline="")
            yield from self._text

    def block(self) -> bytes:
        """The lines behind the last one that was given: the rest of a block, or the next; empty at the end."""
        if rest := self._text.read():
            return rest.encode()
        pieces = [self._carry]
        self._carry = b""
        while piece := self._piece():
            # A carriage return at the end may be half of a line's end.
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
            if end:
                self._carry = piece[end:]
                pieces.append(piece[:end])
                break
            pieces.append(piece)
        return b"".join(pieces)

    def give_back(self, block: bytes) -> None:
        """Let the iteration go on with a block."""
        self._carry, self._text = block + self._carry, io.StringIO()

    def _piece(self) -> bytes:
        while True:
            piece: bytes = self._head or self._source.read(PIECE)
            self._head, ended = b"", not piece
            if self._decode:
                piece = self._decode.decode(piece, final=ended).encode()
            if piece or ended:
                self.watch.look_through(piece)
                return piece


class Watch:
    """Counts the bytes of a text and refuses what is no table before it fills memory.

    Args:
        notes: whose file it is.
        max_bytes: more are refused.
        sep: the separator of fields.
        tidied: whether blanks around quotes are taken care of.
    """

    def __init__(self, notes: Notes, max_bytes: int, sep: str, *, tidied: bool) -> None:
        self._notes, self._max_bytes, self._sep = notes, max_bytes, sep.encode()
        self._blanks = None if tidied else _blanks_around_quotes(sep)
        self.seen = 0
        self._lines = self._in_line = self._fields = 0

    def look_through(self, piece: bytes) -> None:
        """Look through the next bytes.

        Raises:
            DataError: if they are too many, no text, or a line has no end.
        """
        self.seen += len(piece)
        if self.seen > self._max_bytes:
            raise self._notes.error(
                f"expected at most {self._max_bytes:,} bytes of text (decompressed), found more. Raise max_bytes if "
                f"the table is meant to be that large, or save it as Parquet."
            )
        if b"\0" in piece:
            piece = piece[: piece.index(b"\0")]
            raise self._notes.error(
                "holds NUL bytes, expected text. The file is damaged, or no text: fetch or write it again.",
                self._lines + lines_in(piece) + 1,
            )
        self._check_line(piece)
        self._lines += lines_in(piece)

    def check_quotes(self, block: bytes) -> None:
        """Look for blanks around quotes in whole lines.

        Raises:
            BlanksAroundQuotes: if they have to be read in another way.
        """
        if self._blanks and any(own in block for own in (b' "', b'" ', b'\t"', b'"\t')) and self._blanks.search(block):
            raise BlanksAroundQuotes

    def _check_line(self, piece: bytes) -> None:
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        if end >= 0:
            self._in_line, self._fields = len(piece) - end - 1, piece.count(self._sep, end)
            return
        self._in_line += len(piece)
        self._fields += piece.count(self._sep)
        if self._in_line > MAX_LINE or self._fields > MAX_FIELDS:
            raise self._notes.error(
                f"expected lines of at most {MAX_LINE:,} bytes and {MAX_FIELDS:,} fields, found {self._in_line:,} "
                f"bytes and {self._fields:,} separators without a line's end. Is it a table?",
                self._lines + 1,
            )


def lines_in(piece: bytes) -> int:
    r"""How many lines end in a piece of text: by LF, CR or both.

    >>> lines_in(b"a\nb\r\nc\rd")
    3
    """
    returns = piece.count(b"\r")
    return piece.count(b"\n") + returns - (piece.count(b"\r\n") if returns else 0)


def _blanks_around_quotes(sep: str) -> re.Pattern[bytes]:
    blank = b" " if sep == "\t" else b"\t" if sep == " " else rb"[ \t]"
    end = rb"[\r\n]|" + re.escape(sep.encode())
    return re.compile(rb"(?:^|" + end + rb")" + blank + rb'+"|"' + blank + rb"+(?:$|" + end + rb")")
