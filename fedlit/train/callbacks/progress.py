"""The progress bar of a training."""

from __future__ import annotations

import math

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar

from fedlit.client.client import main_score
from fedlit.exchange.exchange import Exchange
from fedlit.show.bar import Bar
from fedlit.train.callbacks.board import Board
from fedlit.train.loop import FederatedLoop


class Progress(ProgressBar):
    """One bar over all epochs, with the time left until ``trainer.max_epochs``, the mean main score
    of the last validation, the best mean so far, and the exchanges. It is shown on standard error,
    in a terminal or a notebook; elsewhere it is silent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar: Bar | None = None
        self._enabled = True

    def disable(self) -> None:
        """Show nothing from now on."""
        self._enabled = False
        self._end()

    def enable(self) -> None:
        """Show it again, from the next training on."""
        self._enabled = True

    def print(self, *args: object, sep: str = " ", **kwargs: object) -> None:
        """Print a line above the bar."""
        text = sep.join(map(str, args))
        if self._bar is not None and self._bar.shown:
            self._bar.print(text)
        else:
            print(text)

    def on_train_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Show a bar with the epochs that were trained before an interruption."""
        if self._enabled:
            self._bar = Bar(self._epochs(trainer), trainer.current_epoch)
            self._bar.__enter__()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Advance by an aligned step."""
        if self._bar is not None:
            part = (batch_idx + 1) / self.total_train_batches
            self._bar.show(trainer.current_epoch + part)

    def on_validation_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Show the score of an epoch."""
        if self._bar is not None and not trainer.sanity_checking:
            self._bar.show(description=self._description(trainer, pl_module))

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Remove the bar."""
        self._end()

    def on_exception(self, *args: object) -> None:
        """Remove the bar."""
        self._end()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__()
        self._bar = None

    def _epochs(self, trainer: Trainer) -> float | None:
        """Return the number of epochs after which training ends at the latest; None if there is no
        such number.
        """
        limits = list[float]()
        if trainer.max_epochs is not None and trainer.max_epochs >= 0:
            limits.append(trainer.max_epochs)
        if trainer.max_steps >= 0:
            limits.append(math.ceil(trainer.max_steps / self.total_train_batches))
        return min(limits, default=None)

    def _description(self, trainer: Trainer, loop: FederatedLoop) -> str:
        """Return the main score of the last validation, the best so far, the exchanges, and the
        training loss.
        """
        main = main_score(loop.federation.scores_of)
        logged = trainer.callback_metrics
        best = math.nan
        rounds = ""
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, Board):
                best = callback.best
            if isinstance(callback, Exchange) and callback.on:
                rounds = f"round {callback.rounds}"
        parts = list[str]()
        if (key := f"val/{main.name}") in logged:
            parts.append(f"{main.label} {main.text(float(logged[key]))}")
        if math.isfinite(best):
            parts.append(f"best so far {main.text(best)}")
        if rounds:
            parts.append(rounds)
        if "train/loss" in logged:
            parts.append(f"loss {float(logged['train/loss']):.3f}")
        return ", ".join(parts)
