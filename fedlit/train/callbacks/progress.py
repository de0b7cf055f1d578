"""One line that shows where a run is."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from fedlit.client.client import main_score
from fedlit.exchange.exchange import Exchange
from fedlit.train.loop import FederatedLoop

__all__ = ["Progress"]


class Progress(ProgressBar):
    """A bar over aligned steps with round, mean training loss and mean main score of validation; silent when not on a
    terminal.

    Args:
        interval: least seconds between two redraws; the values are read from the device only then.
        stream: where to draw; standard error by default.
    """

    def __init__(self, interval: float = 0.2, stream: TextIO | None = None) -> None:
        super().__init__()
        self.interval, self.stream = interval, stream if stream is not None else sys.stderr
        self._bar: tqdm | None = None
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
        wide = os.get_terminal_size(self.stream.fileno()).columns > 0
        self._bar = tqdm(
            total=total,
            initial=trainer.global_step,
            desc="fit",
            unit="step",
            mininterval=self.interval,
            file=self.stream,
            # on a terminal that does not tell its width tqdm would draw an empty line
            dynamic_ncols=wide,
            ncols=None if wide else 100,
            nrows=None if wide else 20,
        )

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: FederatedLoop, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count, and redraw if the interval has passed."""
        if self._bar is not None and self._bar.update(1):
            self._bar.set_postfix_str(self.describe(trainer, pl_module), refresh=False)

    def describe(self, trainer: Trainer, loop: FederatedLoop) -> str:
        """Epoch, round, and the last epoch's mean training loss and mean of the main validation score."""
        epochs = trainer.max_epochs or -1
        epoch = trainer.current_epoch + 1
        parts = [f"epoch {min(epoch, epochs)}/{epochs}" if epochs > 0 else f"epoch {epoch}"]
        parts += [
            f"round {callback.rounds}"
            for callback in getattr(trainer, "callbacks", [])
            if isinstance(callback, Exchange) and callback.federated
        ]
        if (loss := trainer.callback_metrics.get("train/loss")) is not None:
            parts.append(f"loss {float(loss):.3f}")
        main = main_score(loop.federation).name if loop.federation else ""
        if (value := trainer.callback_metrics.get(f"val/{main}")) is not None:
            parts.append(f"val {main} {float(value):.3f}")
        return ", ".join(parts)

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Close the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(self.describe(trainer, pl_module), refresh=True)
            self._bar.close()
            self._bar = None
