"""Questions to a site's process over its Unix socket: against a plain server written here."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from carrying import Site

from fedlit.errors import ConfigError
from fedlit.institutions.socket_line import Courier


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as made:  # a path short enough for a Unix socket
        yield Path(made)


def test_a_site_gets_its_question_and_one_that_is_away_later(folder: Path) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    north = Site(folder / "n", lambda asked: asked[::-1])
    to_north, to_south = Courier(folder / "n", answers), Courier(folder / "s", answers)
    big = bytes(range(256)) * 10_000
    to_north.ask("north", big)
    to_south.ask("south", b"two")
    assert answers.get(timeout=10) == ("north", big[::-1])
    south = Site(folder / "s", lambda asked: asked + b"!")
    assert answers.get(timeout=10) == ("south", b"two!") and answers.empty()
    for made in (to_north, to_south):
        made.close()
    north.end()
    south.end()


def test_a_new_question_takes_the_place_of_the_old(folder: Path) -> None:
    going, answers = threading.Event(), queue.SimpleQueue[Any]()

    def slow(asked: bytes) -> bytes:
        if asked == b"old":
            going.wait(10)
        return asked

    site = Site(folder / "n", slow)
    courier = Courier(folder / "n", answers)
    courier.ask("north", b"old")
    while not site.questions:
        time.sleep(0.01)
    courier.ask("north", b"new")
    going.set()
    assert answers.get(timeout=10) == ("north", b"new")
    with pytest.raises(queue.Empty):
        answers.get(timeout=0.2)
    courier.close()
    site.end()


def test_limits(folder: Path) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    site = Site(folder / "n", lambda asked: b"x" * 11)
    courier = Courier(folder / "n", answers, most=10)
    courier.ask("north", b"?")
    name, wrong = answers.get(timeout=10)
    assert name == "north" and "expected a message of at most 10 bytes, found one of 11" in str(wrong)
    courier.close()
    site.end()
    with pytest.raises(ConfigError, match="at most 107 bytes for a Unix socket, found"):
        Courier(folder / ("x" * 100) / "n", answers)
