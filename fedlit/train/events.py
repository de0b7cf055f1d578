"""Event files of TensorBoard, written without a thread.

TensorBoard's own writer hands events to a thread and waits for it at the end: interrupted at the wrong moment it waits
until the thread next looks at the clock, up to two minutes. And what goes wrong in the thread ends the training.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import FileWriter, SummaryWriter

from fedlit.train.whole import spared

__all__ = ["Events", "Writer"]

FLUSH = 20.0
"""Seconds between two writings to disk, at least; a run that ends or is interrupted writes what is left."""
_number = itertools.count()


class Writer(SummaryWriter):
    """TensorBoard's writer of one run, on an :class:`Events` file.

    Args:
        folder: of the run.
        purge_step: what TensorBoard is to forget of earlier files, from this step on.
        told: the folder of all runs, for messages.
    """

    def __init__(self, folder: Path, purge_step: int | None = None, told: Path | None = None) -> None:
        self._told = told or folder
        super().__init__(str(folder), purge_step=purge_step)

    def _get_file_writer(self) -> Any:  # torch asks here for what it writes to
        known: Any = self.file_writer
        if known is None:
            known = _Files(self.log_dir, self._told)
            vars(self).update(file_writer=known, all_writers={known.get_logdir(): known})
            if self.purge_step is not None:
                step, self.purge_step = self.purge_step, None
                known.add_event(Event(step=step, file_version="brain.Event:2"))
                known.add_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))
        return known


class _Files(FileWriter):
    """torch's, on another file."""

    def __init__(self, folder: str, told: Path) -> None:
        self.event_writer = Events(Path(folder), told)


class Events:
    """One event file. What cannot be written is said once, and is lost; nothing is raised.

    Args:
        folder: where it lies; made where there is none.
        told: the folder that messages name.
    """

    def __init__(self, folder: Path, told: Path) -> None:
        self.told = told
        stamp = f"{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_number)}"
        self.path = folder / f"events.out.tfevents.{stamp}"
        self._waiting, self._file, self._given_up, self._flushed = bytearray(), -1, False, time.monotonic()
        self._records = RecordWriter(self)
        self.reopen()
        self.add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def _try(self, work: Callable[[], Any]) -> None:
        if not self._given_up:
            self._given_up = True  # unless it is done
            with spared(self.told, "TensorBoard's curves"):
                work()
                self._given_up = False

    def write(self, record: bytes) -> None:
        """Take bytes of a record; for TensorBoard's record writer."""
        self._waiting += record

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.path.parent)

    def add_event(self, event: Any) -> None:
        """Take an event; it is on disk after :meth:`flush`."""
        if self._given_up:
            return
        self._records.write(event.SerializeToString())
        if time.monotonic() - self._flushed >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        self._try(self._put)
        if self._given_up:
            self._waiting.clear()

    def _put(self) -> None:
        while self._waiting:
            del self._waiting[: os.write(self._file, self._waiting)]
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.flush()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def reopen(self) -> None:
        """Open the file, again after :meth:`close`."""

        def open_() -> None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

        self._try(open_)
