"""Text of any encoding as a stream of UTF-8 that is watched while it flows."""

from __future__ import annotations

import codecs
import io
import re
from typing import Any

from fedlit.data.reading.raw import Notes

__all__ = ["BlanksAroundQuotes", "Utf8", "found_encoding", "marked_encoding"]

PIECE = 2**20
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
    if best is None:
        return "cp1252" if sample.decode("cp1252", "ignore") else "latin-1"
    try:
        if sample.decode("cp1252") == sample.decode(best.encoding):
            return "cp1252"
    except UnicodeDecodeError:
        pass
    return str(best.encoding)


class Utf8(io.RawIOBase):
    """Decompressed bytes as UTF-8, counted and looked through.

    Args:
        source: what gives the bytes.
        head: bytes already read from it, without byte order mark.
        encoding: how they are encoded.
        notes: whose file it is.
        max_bytes: more are refused.
        sep: the separator of fields.
        tidied: whether blanks around quotes are taken care of.
    """

    def __init__(
        self, source: Any, head: bytes, encoding: str, notes: Notes, max_bytes: int, sep: str, *, tidied: bool
    ) -> None:
        self._source, self._head, self._notes = source, head, notes
        name = codecs.lookup(encoding).name
        self._decode = None if name == "utf-8" else codecs.getincrementaldecoder(name)("strict")
        self._max_bytes = max_bytes
        self._sep = sep.encode()
        self._blanks = None if tidied else _blanks_around_quotes(sep)
        self._ready = b""
        self._at = 0
        self._last = b""
        self._ended = False
        self.given = 0
        self._lines = self._in_line = self._fields = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, as every raw stream does."""
        while self._at == len(self._ready) and not self._ended:
            self._ready, self._at = self._next(), 0
        piece = self._ready[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _next(self) -> bytes:
        piece: bytes = self._head or self._source.read(PIECE)
        self._head = b""
        self._ended = not piece
        if self._decode:
            piece = self._decode.decode(piece, final=not piece).encode()
        self.given += len(piece)
        if self.given > self._max_bytes:
            raise self._notes.error(
                f"expected at most {self._max_bytes:,} bytes of text (decompressed), found more. Raise max_bytes if "
                f"the table is meant to be that large, or save it as Parquet."
            )
        self._look_through(piece)
        return piece

    def _look_through(self, piece: bytes) -> None:
        if b"\0" in piece:
            piece = piece[: piece.index(b"\0")]
            raise self._notes.error(
                "holds NUL bytes, expected text. The file is damaged, or no text: fetch or write it again.",
                self._lines + (piece.count(b"\n") or piece.count(b"\r")) + 1,
            )
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        if end < 0:
            self._in_line += len(piece)
            self._fields += piece.count(self._sep)
            if self._in_line > MAX_LINE or self._fields > MAX_FIELDS:
                found = f"{self._in_line:,} bytes and {self._fields:,} separators"
                raise self._notes.error(
                    f"expected lines of at most {MAX_LINE:,} bytes and {MAX_FIELDS:,} fields, found {found} without a "
                    f"line's end. Is it a table?",
                    self._lines + 1,
                )
        else:
            self._in_line, self._fields = len(piece) - end - 1, piece.count(self._sep, end)
        if self._blanks and b'"' in piece:
            seen = self._last + piece
            if any(own in seen for own in (b' "', b'" ', b'\t"', b'"\t')) and self._blanks.search(seen):
                raise BlanksAroundQuotes
        self._lines += piece.count(b"\n") or piece.count(b"\r")
        self._last = piece[-100:]


def _blanks_around_quotes(sep: str) -> re.Pattern[bytes]:
    blank = b" " if sep == "\t" else b"\t" if sep == " " else rb"[ \t]"
    end = rb"[\r\n]|" + re.escape(sep.encode())
    return re.compile(rb"(?:^|" + end + rb")" + blank + rb'+"|"' + blank + rb"+(?:$|" + end + rb")")
