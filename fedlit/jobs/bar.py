"""One bar over all jobs of a command, in a terminal or a notebook, with the time left and the best
score so far; elsewhere, the lines alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from fedlit.jobs.job import Job
from fedlit.jobs.runner import Report
from fedlit.show.bar import Bar


class JobsBar(Report):
    """A bar on standard error, above which lines are printed.

    It counts jobs, as the lines do. A job that is divided advances it by a part for each client.
    """

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Show a bar with the jobs that are done already."""
        super().begin(jobs, pending)
        self._begun = time.monotonic()
        self._done_before = self.done
        self._parts = dict[str, float]()
        self._bar = Bar(self.total, self.done)
        self._bar.__enter__()

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)

    def began(self, job: Job) -> None:
        """Show which job has begun, and the best one so far."""
        self._bar.show(description="; ".join(filter(None, (job.name, self.best))))

    def prepared(self, job: Job) -> None:
        """Advance by a client of a job."""
        self._parts[job.folder] = self._parts.get(job.folder, 0.0) + 1 / len(job.pieces)
        self._bar.show(self._position)

    def ended(self, job: Job, failed: bool, seconds: float) -> None:
        """Print a line for a job that has ended, with the time left if no bar is shown."""
        self._parts.pop(job.folder, None)
        super().ended(job, failed, seconds)
        self._bar.show(self._position)

    def position(self) -> str:
        """Return how many jobs are done, and the time left."""
        steps = self._position - self._done_before
        if self._bar.shown or self.done == self.total:
            return super().position()
        elapsed = time.monotonic() - self._begun
        remaining = elapsed / steps * (self.total - self._position)
        return f"[{self.done}/{self.total}, {clock_time(remaining)} left]"

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar.shown:
            self._bar.print(text)
        else:
            super().line(text)

    @property
    def _position(self) -> float:
        """The number of jobs that are done, with the parts of divided ones."""
        return self.done + sum(self._parts.values())


def clock_time(seconds: float) -> str:
    """Return a duration as a clock shows it.

    Example:
        >>> clock_time(75.4), clock_time(3700)
        ('01:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
