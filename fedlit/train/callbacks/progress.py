"""Lightning's progress bar, with the scores of the federation."""

import sys
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from fedlit.client.client import main_score
from fedlit.exchange.exchange import Exchange
from fedlit.train.loop import FederatedLoop


class Progress(TQDMProgressBar):
    """A bar for each epoch, with the mean main score of the last validation, the mean training loss and the round. It
    is silent if standard output is not a terminal.

    Args:
        refresh_rate: the number of aligned steps between two redraws; values are read from the device only then.
    """

    BAR_FORMAT = "{desc}{percentage:3.0f}%{postfix} |{bar}| {n_fmt}/{total_fmt} {remaining}"  # cut off on the right

    def __init__(self, refresh_rate: int = 10) -> None:
        super().__init__(refresh_rate=refresh_rate if sys.stdout.isatty() else 0)

    def init_validation_tqdm(self) -> Tqdm:
        """Return a disabled bar, because validation is short."""
        return Tqdm(disable=True)

    def get_metrics(self, trainer: Trainer, pl_module: FederatedLoop) -> dict[str, Any]:  # type: ignore[override]
        """Return the main score and the loss of the last epoch, and the number of exchanges so far."""
        main = main_score(pl_module.federation.scores_of).name if pl_module.federation else ""
        found: dict[str, Any] = {
            name: f"{float(value):.3f}"
            for name, key in ((f"val {main}", f"val/{main}"), ("loss", "train/loss"))
            if (value := trainer.callback_metrics.get(key)) is not None
        }
        on = [own for own in getattr(trainer, "callbacks", []) if isinstance(own, Exchange) and own.on]
        return {**found, **({"round": on[0].rounds} if on else {})}
