"""One bar over all jobs of a command, in a terminal or a notebook, with the time left and the best
score so far; elsewhere, the lines alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from fedlit.jobs.job import Job
from fedlit.jobs.runner import Report
from fedlit.show.text import printable


class Bar(Report):
    """A bar on standard error, above which lines are printed.

    Its steps are jobs, and the clients of those that are divided.
    """

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Show an empty bar."""
        super().begin(jobs, pending)
        self._begun = time.monotonic()
        self._steps = sum(len(job.pieces) or 1 for job in pending)
        self._ended = 0
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._shown = console.is_terminal or console.is_jupyter
        description = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._bar = Progress(
            # A narrow terminal cuts the words, and neither the numbers nor the time.
            TextColumn("{task.description}", markup=False, table_column=description),
            BarColumn(bar_width=12),
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=5)),
            TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
            console=console,
            disable=not self._shown,
            # What goes to a file must not be printed above the bar instead.
            redirect_stdout=sys.stdout.isatty(),
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task("", total=self._steps)
        self._bar.start()

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def began(self, job: Job) -> None:
        """Show which job has begun, and the best one so far."""
        names = [job.name, self.best]
        self._bar.update(self._task, description=printable("; ".join(filter(None, names))))

    def prepared(self, job: Job) -> None:
        """Advance by a client of a job."""
        self._advance()

    def ended(self, job: Job, failed: bool, seconds: float) -> None:
        """Print a line for a job that has ended, with the time left if no bar is shown."""
        if not job.pieces:
            self._advance()
        super().ended(job, failed, seconds)

    def position(self) -> str:
        """Return how many jobs are done, and the time left."""
        if self._shown:
            return f"[{self.done}/{self.total}]"
        if self.done == self.total or not self._ended:
            return super().position()
        elapsed = time.monotonic() - self._begun
        remaining = elapsed / self._ended * (self._steps - self._ended)
        return f"[{self.done}/{self.total}, {clock_time(remaining)} left]"

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        if self._shown:
            self._bar.console.print(Text(printable(text)), soft_wrap=True)
        else:
            super().line(text)

    def _advance(self) -> None:
        self._ended += 1
        self._bar.advance(self._task)


def clock_time(seconds: float) -> str:
    """Return a duration as a clock shows it.

    Example:
        >>> clock_time(75.4), clock_time(3700)
        ('01:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
