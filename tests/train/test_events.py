"""TensorBoard's files without a thread: what is written can be read, and what cannot be written ends nothing."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedlit.train.events import Writer
from fedlit.train.whole import forget


def scalars(folder: Path) -> list[tuple[int, float]]:
    read = EventAccumulator(str(folder))
    read.Reload()
    return [(own.step, own.value) for own in read.Scalars("a")]


def test_what_is_written_is_read_also_after_a_resumed_run_took_some_back(tmp_path: Path) -> None:
    threads = threading.active_count()
    writer = Writer(tmp_path)
    for step in range(4):
        writer.add_scalar("a", step / 2, step)
    writer.flush()
    assert threading.active_count() == threads
    assert scalars(tmp_path) == [(step, step / 2) for step in range(4)]
    writer.close()
    again = Writer(tmp_path, purge_step=2)
    again.add_scalar("a", 9.0, 2)
    again.close()
    again.add_scalar("a", 8.0, 3)  # opens another file
    again.close()
    assert scalars(tmp_path) == [(0, 0.0), (1, 0.5), (2, 9.0), (3, 8.0)]


def test_what_cannot_be_written_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writers = [Writer(tmp_path / name, told=tmp_path) for name in ("one", "two")]
    for writer in writers:
        writer.add_scalar("a", 1.0, 0)
        writer.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        for writer in writers:
            for step in range(1, 50):
                writer.add_scalar("a", 1.0, step)
            writer.flush()
            writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = capsys.readouterr().err
    assert told.count(f"{tmp_path}: expected to write there, found: File too large; training goes on") == 1
    assert scalars(tmp_path / "one")[0] == (0, 1.0)  # what was written before can be read
