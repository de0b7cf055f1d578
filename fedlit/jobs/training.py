"""Trains a job's federation in the job's folder: from the beginning, or from where an interrupted
process left it, and within a time limit if there is one.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from fedlit.errors import ConfigError
from fedlit.jobs.record import changed_keys
from fedlit.run.config import listed
from fedlit.run.folders import newest_run
from fedlit.run.run import Run
from fedlit.train.results import Results


class _Until(Callback):
    """Ends training with the first epoch that ends after a number of seconds, and after the first
    exchange.
    """

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.whole = True

    def on_train_epoch_end(self, trainer: Any, loop: Any) -> None:
        """Stop training if time is up."""
        exchange = loop.federation.exchange
        exchanged = exchange.rounds > 0 or not exchange.on  # before that there is no federation
        if (
            exchanged
            and time.monotonic() > self.end
            and trainer.current_epoch + 1 < (trainer.max_epochs or 0)
        ):
            trainer.should_stop = True
            self.whole = False


@dataclass(frozen=True)
class Trained:
    """A training that came to its end.

    Attributes:
        results: the scores on the validation split after the last epoch.
        resumed: whether it went on from an earlier, interrupted process.
        whole: whether there was time for all epochs.
    """

    results: Results
    resumed: bool
    whole: bool


def train(run: Run, seconds: float | None = None, keys: tuple[str, ...] = ()) -> Trained:
    """Train a run to its end. An interrupted training of the same settings is continued; what was
    begun with other settings is deleted.

    Args:
        run: the run, whose name and root say which folder it has.
        seconds: the time after which no further epoch begins; None for no limit.
        keys: the beginnings of keys that must not differ either in an interrupted training, though
            they change nothing that is computed.
    """
    begun: Path | None = None
    try:
        begun = newest_run(run.root, run.name)
    except ConfigError:  # it ended before its first checkpoint
        begun = None
    if begun is None or changed_keys(begun, run.settings or {}, also=keys):
        shutil.rmtree(run.root / run.name, ignore_errors=True)
        begun = None
    clock = _Until(seconds or 0)
    if seconds is not None:
        run.trainer_options["callbacks"] = [*listed(run.trainer_options.get("callbacks")), clock]
    results = run.fit("last" if begun is not None else None, quiet=True)
    return Trained(results, begun is not None, clock.whole)
