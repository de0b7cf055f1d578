"""Text from elsewhere is read in a time that grows with its length, however it is made."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from linear import SIZE, Use, adverse, text, uses

from fedlit.data.reading.formats import check_url
from fedlit.data.reading.options import DEFAULTS
from fedlit.data.reading.text import read_text
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.dates import find_format
from fedlit.data.schema.numbers import find_notation, split
from fedlit.data.sources.base import client_name
from fedlit.errors import FedlitError, closest
from fedlit.run.config import parse_yaml
from fedlit.run.messages import _whole_key
from fedlit.show.shown import _STYLES
from fedlit.show.text import printable, wrap

SECOND = 1.0
BUILT: dict[str, Any] = {
    "b'(?:[^\\\\r\\\\n]*(?:\\\\r\\\\n|\\\\r|\\\\n)){%d}(?:[ \\\\t]*(?:\\\\r\\\\n|\\\\r|\\\\n))*' % "
    "lines": [
        rb"(?:[^\r\n]*(?:\r\n|\r|\n)){%d}(?:[ \t]*(?:\r\n|\r|\n))*" % number for number in (0, 3)
    ],
    "separator + b' ++\"(?!\")'": [first + rb' ++"(?!")' for first in (b",", rb"\|", b"(?<! ) ")],
    "f'^{begin}'": [f"^{begin}" for begin in _STYLES],
}
"""Patterns that are built while fedlit runs, as its source writes them, and some that are built
so."""


def _called(use: Use, pattern: str | bytes) -> Callable[[Any], object]:
    if use.method == "re2":
        return lambda own: pc.match_substring_regex(pa.array([own]), pattern)
    compiled = re.compile(pattern, use.flags)
    method: Callable[..., Any] = getattr(compiled, use.method)
    if use.method in ("sub", "subn"):
        return lambda own: method(own[:0], own)
    if use.method == "finditer":  # none is kept: Python would search all that the process holds
        return lambda own: deque(method(own), maxlen=0)
    return method


def _seconds(function: Callable[[Any], object], own: Any) -> float:
    begun = time.thread_time()
    function(own)
    return time.thread_time() - begun


def _slow(use: Use, pattern: str | bytes) -> list[Any]:
    """Return the texts that take long: all are tried short, and of those that took longest the
    whole length."""
    function = _called(use, pattern)

    def of(kind: tuple[str, str, str], size: int) -> float:
        own: Any = text(kind, size)
        return _seconds(
            function, own.encode("latin-1", "replace") if isinstance(pattern, bytes) else own
        )

    took = {}
    for kind in adverse(pattern, use.flags):
        for size in (20, 2_000):
            took[kind] = of(kind, size)
            if took[kind] > SECOND / 20:
                return [kind, size]
    for kind in sorted(took, key=lambda kind: -took[kind])[:4]:
        for size, most in ((SIZE // 10, SECOND / 5), (SIZE, SECOND)):
            if of(kind, size) > most:
                return [kind, size]
    return []


def test_every_pattern_is_linear() -> None:
    found = dict.fromkeys(own._replace(place=own.place.partition(":")[0]) for own in uses())
    patterns = [
        (own, each)
        for own in found
        for each in ([own.pattern] if own.pattern else BUILT[own.written])
    ]
    assert len(patterns) > 80
    slow = {
        (own.place, own.method, each): wrong
        for own, each in patterns
        if (wrong := _slow(own, each))
    }
    assert not slow


@pytest.mark.parametrize(
    "pattern",
    [
        rb"<f(?:[^>]*/>|[^>]*>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>|</c>)",
        r"\w*(?:password|token)\w*\s*=\s*(?P<value>[^;&]*)",
        r"(a+)+b",
        r"\s+$",
    ],
)
def test_a_pattern_that_is_not_linear_is_found(pattern: str | bytes) -> None:
    assert _slow(Use("", "", pattern, 0, "search"), pattern)


PIECES = (
    "a",
    "0",
    "a ",
    "1,",
    "1.",
    "1/",
    "-",
    "é",
    "\n",
    '",',
    '""',
    "1\n",
    "<",
    "\u200b",
    "12:",
    "2024-01-01 ",
    "=",
)
SCANS: dict[str, Callable[[str], object]] = {
    "number": split,
    "notation": lambda own: find_notation([own]),
    "cells": lambda own: Cells.of(pd.Series([own, "a"], name="x")),
    "dates": lambda own: find_format("x", [own]),
    "lines": lambda own: read_text(f'h\n"{own}'.encode(), DEFAULTS, lambda *_, **__: None),
    "letters": lambda own: read_text(
        f"h\nä{own}".encode("latin-1", "replace"), DEFAULTS, lambda *_, **__: None
    ),
    "url": lambda own: check_url(f"sqlite://{own}?{own}"),
    "client": client_name,
    "word": lambda own: closest(own, ["epoch", "rounds"]),
    "keys": lambda own: _whole_key(own, own + "."),
    "printed": lambda own: printable(wrap(own, 80)),
    "yaml": lambda own: parse_yaml(f"a: {own}", ""),
}


@pytest.mark.parametrize("scan", SCANS)
def test_every_scan_is_linear(scan: str) -> None:
    def read(own: str) -> None:
        with suppress(FedlitError):  # which is an answer, too
            SCANS[scan](own)

    texts = {piece: text(("", piece, ""), SIZE) for piece in PIECES}
    texts["a date"] = "01/02/2024" + " 0" * (SIZE // 2)
    assert not {name for name, own in texts.items() if _seconds(read, own) > SECOND}


def test_a_key_that_stands_twice_is_found_at_once() -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(20_000))
    with pytest.raises(FedlitError, match="k7"):
        parse_yaml(keys + "k7: 2\n", "")
    assert len(parse_yaml(keys, "")) == 20_000


def test_a_long_comment_in_a_workbook_is_read_at_once(tmp_path: Path) -> None:
    import zipfile

    from fedlit.data.reading import read_table

    path = tmp_path / "a.xlsx"
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    files[sheet] = files[sheet].replace(
        b"</worksheet>", b"<!--" + SIZE * b"<f" + b"--></worksheet>"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert _seconds(lambda own: read_table(own, DEFAULTS, "north"), path) < 5 * SECOND
