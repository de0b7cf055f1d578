"""One line that shows where a run is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from fedlit.client.client import main_score
from fedlit.exchange.exchange import Exchange
from fedlit.show.text import terminal_width
from fedlit.train.loop import FederatedLoop

__all__ = ["Progress"]

_SHORTEST = 8  # columns of a bar that is worth drawing
_UNKNOWN = 100  # columns of a terminal that does not tell its width


class Progress(ProgressBar):
    """One line with epoch, mean main score of validation, mean training loss, round, time left, steps and a bar: as
    many of these, in this order, as the terminal has room for. Silent when not on a terminal.

    Args:
        interval: least seconds between two redraws; the values are read from the device only then.
        stream: where to draw; standard error by default.
    """

    def __init__(self, interval: float = 0.2, stream: TextIO | None = None) -> None:
        super().__init__()
        self.interval, self.stream = interval, stream if stream is not None else sys.stderr
        self._bar: _Line | None = None
        self._enabled = self.stream.isatty()

    def disable(self) -> None:
        """Draw nothing."""
        self._enabled = False

    def enable(self) -> None:
        """Draw, terminal or not."""
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Open the bar."""
        if not self._enabled:
            return
        steps = trainer.num_training_batches
        epochs = trainer.max_epochs
        total = min(
            (n for n in (epochs * steps if epochs and epochs > 0 else -1, trainer.max_steps) if n > 0), default=None
        )
        self._bar = _Line(
            lambda: self.describe(trainer, pl_module),
            self.stream,
            total=total,
            initial=trainer.global_step,
            mininterval=self.interval,
        )

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: FederatedLoop, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count, and redraw if the interval has passed."""
        if self._bar is not None:
            self._bar.update(1)

    def describe(self, trainer: Trainer, loop: FederatedLoop) -> list[str]:
        """Epoch, the last epoch's mean main validation score and mean training loss, and round: what is known, the most
        important first.
        """
        epochs = trainer.max_epochs or -1
        epoch = trainer.current_epoch + 1
        parts = [f"epoch {min(epoch, epochs)}/{epochs}" if epochs > 0 else f"epoch {epoch}"]
        main = main_score(loop.federation).name if loop.federation else ""
        for name, key in ((f"val {main}", f"val/{main}"), ("loss", "train/loss")):
            if (value := trainer.callback_metrics.get(key)) is not None:
                parts.append(f"{name} {float(value):.3f}")
        return parts + [
            f"round {callback.rounds}"
            for callback in getattr(trainer, "callbacks", [])
            if isinstance(callback, Exchange) and callback.on
        ]

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw the end, and close the bar."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None


class _Line(tqdm):  # type: ignore[misc]  # tqdm has no types
    """tqdm's counting and pace, in a line of our own."""

    def __init__(self, tell: Callable[[], Sequence[str]], stream: TextIO, **settings: Any) -> None:
        self.tell, self.stream = tell, stream
        # a width is given because tqdm draws an empty line on a terminal that does not tell its own
        super().__init__(file=stream, ncols=_UNKNOWN, nrows=20, **settings)

    def __str__(self) -> str:
        # the last column stays free: some terminals begin a new line when it is written to
        width = (terminal_width(self.stream) or _UNKNOWN) - 1
        known = self.format_dict
        count, total, elapsed = known["n"], known["total"], known["elapsed"]
        pace = known["rate"] or ((count - known["initial"]) / elapsed if elapsed else 0)
        left = [f"{tqdm.format_interval((total - count) / pace)} left"] if total and pace else []
        steps = [
            f"{count}/{total} steps" if total else f"{count} steps",
            *([f"{pace:,.0f}/s" if pace >= 10 else f"{pace:.2g}/s"] if pace else []),
        ]
        first, *others = [*self.tell(), *left, *steps]
        text = first[:width]
        for part in others:
            if len(text) + 2 + len(part) > width:
                break
            text += f", {part}"
        room = width - len(text) - 3
        if not total or room < _SHORTEST:
            return text
        return f"{text} |{self._filled(count, total, room)}|"

    def _filled(self, count: int, total: int, room: int) -> str:
        bar: str = tqdm.format_meter(count, total, 0, ncols=room, bar_format="{bar}", ascii=self.ascii)
        return bar
