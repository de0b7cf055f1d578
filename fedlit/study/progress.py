"""What is said while a study runs: what is running, the scores so far, how long it may take still."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from tqdm import tqdm

from fedlit.study.job import Job, validation_scores
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED

__all__ = ["Progress"]

_WIDTH = 79


class Progress:
    """A line for each run that ends, with its scores; and where the study is: on a terminal a bar that is redrawn, else
    a line whenever that changes.

    Scores are those of validation rows: looking at them while a study runs tempts nobody to choose by test rows.

    Args:
        jobs: all of them.
        left: those that are not done yet.
        seconds: method → how long its finished runs took.
        slots: runs at once.
        quiet: nothing is said.
        stream: where to; standard error by default.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        left: Iterable[Job],
        seconds: dict[str, list[float]],
        slots: int,
        quiet: bool,
        stream: TextIO | None = None,
    ) -> None:
        waiting = list(left)
        self.left, self.seconds, self.slots, self.quiet = [job.method for job in waiting], seconds, slots, quiet
        self.total, self.stream = len(jobs), stream if stream is not None else sys.stderr
        self.running: dict[str, tuple[str, float]] = {}
        self.values: dict[tuple[str, str], list[float]] = {}
        self._said: list[str] = []
        self._bar = None if quiet or not self.stream.isatty() else self._open_bar()
        if quiet:
            return
        self._say("Scores as runs end: of validation rows, mean over clients (the report: test).")
        names = {job.name for job in waiting}
        for job in jobs:
            if job.name not in names:
                self._score(job)

    def _open_bar(self) -> tqdm:
        wide = os.get_terminal_size(self.stream.fileno()).columns > 0
        return tqdm(
            total=self.total,
            initial=self.total - len(self.left),
            file=self.stream,
            # on a terminal that does not tell its width tqdm would draw an empty line
            dynamic_ncols=wide,
            ncols=None if wide else _WIDTH,
            nrows=None if wide else 20,
            bar_format="{percentage:3.0f}%|{bar:8}| {n_fmt}/{total_fmt} runs [{elapsed}] {desc}",
        )

    def begin(self, job: Job) -> None:
        """A run is started."""
        self.running[job.name] = job.method, time.monotonic()

    def done(self, job: Job, seconds: float, failed: bool) -> None:
        """A run has ended."""
        if not failed:
            self.seconds.setdefault(job.method, []).append(seconds)
        self.left.remove(job.method)
        self.running.pop(job.name, None)
        if self.quiet:
            return
        own = "FAILED, more at the end" if failed else self._score(job)
        self._say(_fitting(job.name, f": {own} ({_duration(seconds)})"))
        if self._bar is not None:
            self._bar.update()

    def time_left(self) -> float | None:
        """Seconds, by how long each method's runs took and not by their number; None as long as nothing is known."""
        means = {method: sum(own) / len(own) for method, own in self.seconds.items() if own}
        if not means:
            return None
        usual, now = sum(means.values()) / len(means), time.monotonic()
        left = sum(means.get(method, usual) for method in self.left)
        for method, begun in self.running.values():
            expected, worked = means.get(method, usual), now - begun
            left += max(expected - worked, worked / 4) - expected  # what takes longer than usual may take longer still
        return left / self.slots

    def show(self) -> None:
        """Say where the study is."""
        if self.quiet:
            return
        left = self.time_left() if self.left else 0.0
        time_left = "time left not known yet" if left is None else f"{_duration(left)} left (estimate)"
        running = list(self.running)
        if self._bar is not None:
            self._bar.set_description_str(f"{time_left}; running: {'; '.join(running)}")
        elif running != self._said:
            self._said = running
            where = f"  {self.total - len(self.left)}/{self.total} runs, {time_left}; running: "
            self._say(where + _listed(running, _WIDTH - len(where)))

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.set_description_str("" if self.left else "done")
            self._bar.close()

    def _say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.write(line, file=self.stream)
        else:
            print(line, file=self.stream, flush=True)

    def _score(self, job: Job) -> str:
        """A run's scores by which clients choose, each with the mean of the method's runs so far."""
        found = validation_scores(job)
        wanted = [choice_of(job.choose, client) for client in found["client"]]
        words = []
        for metric, values in found[found["metric"] == wanted].groupby("metric", sort=False)["value"]:
            score, own = COMPARED[str(metric)], self.values.setdefault((job.title, str(metric)), [])
            own.append(float(values.mean(skipna=False)))
            if not math.isfinite(own[-1]):
                words.append(f"{score.label} not defined for every client")
                continue
            finite = [value for value in own if math.isfinite(value)]
            mean = f" (mean of {len(finite)}: {score.text(sum(finite) / len(finite))})" if len(finite) > 1 else ""
            words.append(f"{score.label} {score.text(own[-1])}{mean}")
        return "; ".join(words) or "no scores"


def _listed(names: Sequence[str], room: int) -> str:
    """As many names as there is room for, the first in any case, and the number of the rest."""
    for shown in range(len(names), 0, -1):
        rest = f" +{len(names) - shown}" if shown < len(names) else ""
        text = "; ".join(names[:shown]) + rest
        if len(text) <= room:
            return text
    rest = f" +{len(names) - 1}" if len(names) > 1 else ""
    return f"{names[0][: max(room - len(rest) - 1, 8)]}…{rest}" if names else "nothing"


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _fitting(name: str, rest: str) -> str:
    """Name and rest in one line: of a long name (a tuned method has its settings in it) both ends are kept."""
    room = max(_WIDTH - len(rest), 24)
    if len(name) > room:
        name = f"{name[: room - 13]}…{name[-12:]}"
    return _cut(name + rest)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
