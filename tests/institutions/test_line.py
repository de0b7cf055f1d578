"""Questions to sites' processes on this machine: against a plain server written here."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from carrying import Site

from fedlit.errors import ConfigError
from fedlit.institutions.line import LocalLine


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as made:  # a path short enough for a Unix socket
        yield Path(made)


def until(line: LocalLine, wanted: int, seconds: float = 10) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    end = time.monotonic() + seconds
    while len(found) < wanted and time.monotonic() < end:
        found += line.answers(0.2)
    return found


def test_each_site_gets_its_question_and_a_site_that_is_away_later(folder: Path) -> None:
    north = Site(folder / "n", lambda asked: asked[::-1])
    line = LocalLine({"north": folder / "n", "south": folder / "s"})
    assert line.sites() == {"north"}
    big = bytes(range(256)) * 10_000
    line.ask("north", big)
    line.ask("south", b"two")
    assert until(line, 1) == [("north", big[::-1])]
    south = Site(folder / "s", lambda asked: asked + b"!")
    assert until(line, 1) == [("south", b"two!")] and line.sites() == {"north", "south"}
    north.end()
    assert line.sites() == {"south"} and line.answers(0) == []
    south.end()
    line.close()


def test_a_new_question_takes_the_place_of_the_old(folder: Path) -> None:
    going = threading.Event()

    def slow(asked: bytes) -> bytes:
        if asked == b"old":
            going.wait(10)
        return asked

    site = Site(folder / "n", slow)
    line = LocalLine({"north": folder / "n"})
    line.ask("north", b"old")
    while not site.questions:
        time.sleep(0.01)
    line.ask("north", b"new")
    going.set()
    assert until(line, 1) == [("north", b"new")] and line.answers(0.2) == []
    site.end()


def test_limits(folder: Path) -> None:
    site = Site(folder / "n", lambda asked: b"x" * 11)
    line = LocalLine({"north": folder / "n"}, most=10)
    line.ask("north", b"?")
    ((name, wrong),) = until(line, 1)
    assert name == "north" and "expected a message of at most 10 bytes, found one of 11" in str(wrong)
    site.end()
    with pytest.raises(ConfigError, match="at most 107 bytes for a Unix socket, found"):
        LocalLine({"north": folder / ("x" * 100) / "n"})
