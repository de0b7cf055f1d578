"""One bar over the whole of a command: how far it is, the time left, and the best score so far."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from fedlit.show.text import printable


class Bar:
    """A bar on standard error, in a terminal or a notebook; elsewhere nothing is shown.

    Args:
        total: the number of steps; None if it is not known.
        done: the number of steps that were done before; their time does not count.
        columns: Rich's columns for the numbers; by default the steps done, and the time left.
        hidden: show nothing.

    Attributes:
        shown: whether it is shown.
    """

    def __init__(
        self,
        total: float | None,
        done: float = 0.0,
        *columns: ProgressColumn,
        hidden: bool = False,
    ) -> None:
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        # In a notebook, Rich draws into a widget.
        widgets = console.is_jupyter and find_spec("ipywidgets") is not None
        self.shown = not hidden and (console.is_terminal or widgets)
        # A narrow terminal cuts the words, and neither the numbers nor the time.
        description = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        numbers = columns or (
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=5)),
            TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        )
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=description),
            BarColumn(bar_width=12),
            *numbers,
            console=console,
            disable=not self.shown,
            # What goes to a file must not be printed above the bar instead.
            redirect_stdout=sys.stdout.isatty() or console.is_jupyter,
            refresh_per_second=4,
            # A step may take minutes, and the mean over all of them says when the last one ends.
            speed_estimate_period=math.inf,
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("", total=total, completed=int(done))

    def __enter__(self) -> Bar:
        self._progress.start()
        self._progress.advance(self._task, 0)  # from now on, time counts
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(
        self,
        done: float | None = None,
        *,
        description: str | None = None,
        total: float | None = None,
    ) -> None:
        """Show how many steps are done, and words. What is None stays as it is.

        Args:
            done: the number of steps, with those that were done before.
            description: the words on the left, the most important first.
            total: the number of all steps.
        """
        if description is not None:
            description = printable(description)
        self._progress.update(self._task, completed=done, description=description, total=total)

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(Text(printable(text)), soft_wrap=True)
