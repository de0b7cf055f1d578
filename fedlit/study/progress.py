"""What is said while a study runs: what is running, each run's scores, how long it may take still."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from tqdm import tqdm

from fedlit.show.text import terminal_width
from fedlit.study.job import Job, validation_scores
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED

__all__ = ["Progress"]


class Progress:
    """A line for each run that ends, with its scores; on a terminal a bar below them.

    Scores are those of validation rows: looking at them while a study runs tempts nobody to choose by test rows.

    Args:
        total: how many runs the study has.
        left: how many of them are not done yet.
        quiet: nothing is said.
        stream: where to; standard error by default.
    """

    def __init__(self, total: int, left: int, quiet: bool, stream: TextIO | None = None) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.total, self.begun, self.left = total, time.monotonic(), left
        self.first, self.quiet = left, quiet
        self._bar = tqdm(
            total=total, initial=total - left, file=self.stream, disable=quiet or not self.stream.isatty(),
            ncols=terminal_width(self.stream), unit="run",
        )  # fmt: skip
        if not quiet:
            self._say("Scores as runs end: of validation rows, mean over clients (the report: test).")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def begin(self, job: Job) -> None:
        """A run is started."""
        self._bar.set_postfix_str(job.name)

    def done(self, job: Job, seconds: float, failed: bool) -> None:
        """A run has ended."""
        self.left -= 1
        self._bar.update()
        if self.quiet:
            return
        own = "FAILED, more at the end" if failed else _scores(job)
        where = "" if not self._bar.disable else f"[{self._meter()}] "
        self._say(f"{where}{job.name}: {own} ({tqdm.format_interval(round(seconds))})")

    def _meter(self) -> str:
        text: str = tqdm.format_meter(
            self.total - self.left, self.total, time.monotonic() - self.begun, initial=self.total - self.first,
            bar_format="{n_fmt}/{total_fmt}, {remaining} left" if self.left else "{n_fmt}/{total_fmt}",
        )  # fmt: skip
        return text

    def _say(self, line: str) -> None:
        tqdm.write(line, file=self.stream)
        self.stream.flush()


def _scores(job: Job) -> str:
    """A run's scores by which clients choose."""
    found = validation_scores(job)
    wanted = [choice_of(job.choose, client) for client in found["client"]]
    values = found[found["metric"] == wanted].groupby("metric", sort=False)["value"]
    scores = [(COMPARED[str(name)], own.mean(skipna=False)) for name, own in values]
    return "; ".join(f"{score.label} {score.text(float(mean))}" for score, mean in scores)
