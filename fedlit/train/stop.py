"""What ends a training: it is decided here, once in each epoch, before clients' best epochs are put
back.

A federation is trained until its score no longer improves (:class:`Stop`) or its last epoch is
reached. Then fine-tuning begins, if there is any, and ends when no client improves or after its
last epoch. The limits of the Trainer (``max_steps``, ``max_time``) and a callback that sets
``should_stop`` end the run in either phase.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from fedlit.errors import ConfigError, RunError, did_you_mean, expect
from fedlit.exchange.members import Members
from fedlit.tasks.scores import LOSS, Score
from fedlit.train.monitor import ScoresOf, check_monitor, score_of
from fedlit.train.personal import Personal

if TYPE_CHECKING:
    from fedlit.train.checkpoint_file import EndingState

_log = logging.getLogger(__name__)

SCORE = "model.stop"
TUNED = "model.then"
EPOCHS = "trainer.max_epochs"
STEPS = "trainer.max_steps"
TIME = "trainer.max_time"
CALLBACK = "a callback"


@dataclass
class Stop:
    """When the federation has been trained enough: a score has not improved for some epochs.

    Attributes:
        monitor: the score: the clients' mean (``val/auroc``), the worst client's
            (``val/worst/auroc``), that of one client (``north/val/auroc``), or ``train/loss``.
            Whether a larger value is better follows from the score.
        patience: the number of scored epochs in a row without an improvement after which the
            federation stops.
        min_delta: an improvement is larger than this.
        min_epochs: the federation does not stop before this epoch.

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> Stop(patience=10).monitor
        'val/loss'
    """

    monitor: str = "val/loss"
    patience: int = 30
    min_delta: float = 0.0
    min_epochs: int = 0

    def __post_init__(self) -> None:
        expect(self.patience >= 1, "model.stop.patience", "at least 1", self.patience)
        expect(
            0 <= self.min_delta < math.inf,
            "model.stop.min_delta",
            "a number of at least 0",
            self.min_delta,
        )
        expect(self.min_epochs >= 0, "model.stop.min_epochs", "at least 0", self.min_epochs)

    @property
    def in_training(self) -> bool:
        """Whether the score is one of training, which is known in each epoch."""
        return self.monitor.rpartition("/")[0].split("/")[-1] == "train"

    def score(self, scores_of: ScoresOf) -> Score:
        """Return the score that is monitored.

        Args:
            scores_of: maps each client to its scores, the main one first.

        Raises:
            ConfigError: no client has the score, or it is not known whether more of it is better.
        """
        if self.in_training and self.monitor.endswith(f"/{LOSS.name}"):
            return LOSS
        check_monitor("model.stop.monitor", self.monitor, scores_of)
        score = score_of(self.monitor, scores_of)
        if score is None:
            raise ConfigError(
                "model.stop.monitor: expected a score of validation rows or train/loss, found "
                f"{self.monitor}, of which fedlit does not know whether more is better"
            )
        return score


@dataclass(frozen=True)
class Epoch:
    """An epoch that has ended.

    Attributes:
        number: its number, from 1.
        scored: whether validation rows were scored in it.
        values: all values that were logged so far, by name.
        limit: the limit of the Trainer that was reached, or :data:`CALLBACK`; empty if there is
            none.
        open: whether an exchange must follow before the federation may stop early.
    """

    number: int
    scored: bool
    values: Mapping[str, Tensor | float]
    limit: str = ""
    open: bool = False


@dataclass
class _State:
    """What a checkpoint holds of an ending.

    Attributes:
        planned: the number of epochs of the federation; None if there is no limit.
        epochs: the number of epochs that were judged.
        best: the best value of the monitored score; NaN before the first one.
        best_epoch: the epoch of the best value, from 1; 0 if there is none.
        best_means: the clients' mean scores on validation rows in the best epoch.
        waited: the number of scored epochs since the best one.
        federated: the number of epochs of the federation, once fine-tuning has begun; else 0.
        early: whether the score ended the federation before its last epoch.
        reason: what ended the run; empty if it goes on.
    """

    planned: int | None = None
    epochs: int = 0
    best: float = math.nan
    best_epoch: int = 0
    best_means: dict[str, float] = field(default_factory=dict)
    waited: int = 0
    federated: int = 0
    early: bool = False
    reason: str = ""


class Ending:
    """Decides after each epoch whether the next phase begins, or the run ends.

    Args:
        personal: the best epochs and the fine-tuning of the clients.
        stop: when the federation has been trained enough; only after its last epoch if None.

    Attributes:
        asked: whether a run that is continued was to stop when its checkpoint was written.
    """

    def __init__(self, personal: Personal, stop: Stop | None = None) -> None:
        self.personal = personal
        self.stop = stop
        self.asked = False
        self._state = _State()

    @property
    def epochs(self) -> int:
        """The number of epochs that were judged."""
        return self._state.epochs

    @property
    def planned(self) -> int | None:
        """The number of epochs of the federation; None if there is no limit."""
        return self._state.planned

    @property
    def best_epoch(self) -> int:
        """The epoch in which the monitored score was best, from 1; 0 if there is none."""
        return self._state.best_epoch

    @property
    def best_means(self) -> Mapping[str, float]:
        """The clients' mean scores on validation rows in the best epoch."""
        return self._state.best_means

    def check(self, scores_of: ScoresOf) -> None:
        """Refuse to monitor what clients do not have; see :meth:`Stop.score`."""
        if self.stop is not None:
            self.stop.score(scores_of)

    def start(self, federation: Members, max_epochs: int | None) -> None:
        """Prepare for the first epoch, or for the next one of a resumed run.

        Args:
            federation: the federation, whose clients are built.
            max_epochs: the number of epochs of all phases; no limit if None or -1.

        Raises:
            ConfigError: no epoch is left for the federation, or there are no rows to score.
        """
        tune = self.personal.tune
        planned = max_epochs
        if planned is not None and planned < 0:
            planned = None
        if tune is not None and planned is not None:
            if planned <= tune.epochs:
                raise ConfigError(
                    f"model.then.fine_tune: expected trainer.max_epochs above its {tune.epochs} "
                    f"epochs, found {max_epochs}; a Trainer's max_epochs counts both phases"
                )
            planned -= tune.epochs
        self._state.planned = planned
        self._state.reason = ""
        if self.stop is None or self.stop.in_training:
            return
        rows = {
            name: client.spec.rows.get("validation", 0)
            for name, client in federation.clients.items()
        }
        if not any(federation.share("validation rows", rows).values()):
            raise ConfigError(
                f"model.stop.monitor: expected validation rows, by which {self.stop.monitor} is "
                "scored, found none; give the source a share of validation rows, or set "
                "model.stop: null"
            )

    # ------------------------------------------------------------------ an epoch

    def end_epoch(self, federation: Members, epoch: Epoch) -> bool:
        """Begin fine-tuning, or end the run, if it is time.

        Args:
            federation: the federation of the clients.
            epoch: the epoch that has ended.

        Returns:
            Whether the Trainer must be told to stop: nothing follows.
        """
        personal = self.personal
        self._state.epochs = epoch.number
        if personal.tuning:
            reason = self._end_of_tuning(federation, epoch)
        else:
            reason = self._end_of_federation(federation, epoch)
            if reason and personal.tune is not None and not epoch.limit:
                self._state.federated = epoch.number
                personal.begin_tuning(federation)
                reason = ""
        reason = reason or epoch.limit
        personal.draw(federation)
        if not reason:
            return False
        self._state.reason = reason
        if personal.tune is not None and not personal.tuning:
            _log.warning(
                "nothing was fine-tuned: %s ended the run after epoch %d", reason, epoch.number
            )
        personal.finish(federation)
        return reason in (SCORE, TUNED) or personal.done

    def _end_of_federation(self, federation: Members, epoch: Epoch) -> str:
        planned = self._state.planned
        if self._stops(federation, epoch):
            self._state.early = planned is None or epoch.number < planned
            return SCORE
        if planned is not None and epoch.number >= planned:
            return EPOCHS
        return ""

    def _end_of_tuning(self, federation: Members, epoch: Epoch) -> str:
        personal = self.personal
        assert personal.tune is not None
        stopped_here = {name: name in personal.stopped for name in federation.clients}
        stopped = federation.share("fine-tuned", stopped_here)
        last = epoch.number - self._state.federated >= personal.tune.epochs
        if last or all(stopped.values()):
            return TUNED
        return ""

    def _stops(self, federation: Members, epoch: Epoch) -> bool:
        """Compare the monitored score with its best value, and return whether it has not improved
        for long enough.
        """
        stop = self.stop
        state = self._state
        if stop is None:
            return False
        if epoch.scored or stop.in_training:
            value = self._value(epoch)
            gain = stop.score(federation.scores_of).gain(value, state.best)
            if math.isfinite(value) and (not state.best_epoch or gain > stop.min_delta):
                state.best = value
                state.best_epoch = epoch.number
                state.waited = 0
                state.best_means = _means(epoch.values)
            else:  # A value that is not finite is no improvement.
                state.waited += 1
        return state.waited >= stop.patience and epoch.number >= stop.min_epochs and not epoch.open

    def _value(self, epoch: Epoch) -> float:
        assert self.stop is not None
        monitor = self.stop.monitor
        if monitor not in epoch.values:
            raise RunError(
                "model.stop.monitor: expected a value that is logged in each epoch, found none "
                f"called {monitor} after epoch {epoch.number}; set another one."
                + did_you_mean(monitor, list(epoch.values))
            )
        return float(epoch.values[monitor])

    # ------------------------------------------------------------------ state

    def state_dict(self, requested: bool) -> EndingState:
        """Return the state for a checkpoint.

        Args:
            requested: whether the Trainer was told to stop, other than by its own limits.
        """
        state = self._state
        return {
            "planned": state.planned,
            "epochs": state.epochs,
            "best": state.best,
            "best_epoch": state.best_epoch,
            "best_means": state.best_means,
            "waited": state.waited,
            "federated": state.federated,
            "early": state.early,
            "reason": state.reason,
            "asked": requested,
        }

    def load_state_dict(self, state: EndingState) -> None:
        """Restore what ``state_dict`` returned."""
        self.asked = bool(state["asked"])
        self._state = _State(
            planned=state["planned"],
            epochs=state["epochs"],
            best=state["best"],
            best_epoch=state["best_epoch"],
            best_means=state["best_means"],
            waited=state["waited"],
            federated=state["federated"],
            early=state["early"],
            reason=state["reason"],
        )

    # ------------------------------------------------------------------ words

    @property
    def told(self) -> list[str]:
        """A line for the plan that says when the federation stops early; none if it does not."""
        if self.stop is None:
            return []
        least = ""
        if self.stop.min_epochs:
            least = f", but not before epoch {self.stop.min_epochs}"
        delta = ""
        if self.stop.min_delta:
            delta = f" by more than {self.stop.min_delta:g}"
        return [
            f"the federation stops early when {self.stop.monitor} has not improved{delta} for "
            f"{self.stop.patience} scored epochs{least}"
        ]

    def ended(self, scores_of: ScoresOf) -> str:
        """Describe how the run ended; empty if it was trained for all its epochs and no score was
        monitored.

        Args:
            scores_of: maps each client to its scores, the main one first.
        """
        state = self._state
        federated = state.federated or state.epochs
        of = ""
        if state.planned is not None:
            of = f" of {state.planned}"
        parts = []
        if state.early:
            assert self.stop is not None
            score = self._words(scores_of)
            parts.append(
                f"Stopped early after epoch {federated}{of}: no better {score} for "
                f"{self.stop.patience}"
            )
        elif state.reason not in ("", SCORE, EPOCHS, TUNED):
            parts.append(f"Ended by {state.reason} after epoch {state.epochs}")
        elif self.stop is not None:
            parts.append(f"Trained for all {federated} epochs")
        if state.best_epoch and not self.personal.wanted:
            parts.append(f"Best: epoch {state.best_epoch}")
        if state.federated:
            parts.append(f"Then each client trained on by itself, up to epoch {state.epochs}")
        return ". ".join(parts)

    def _words(self, scores_of: ScoresOf) -> str:
        """Return the monitored score in words."""
        assert self.stop is not None
        label = self.stop.score(scores_of).label
        name = label if label.isupper() else label.lower()
        phrases = {
            "val": f"mean validation {name}",
            "val/worst": f"validation {name} of the worst client",
        }
        prefix = self.stop.monitor.rpartition("/")[0]
        return phrases.get(prefix, self.stop.monitor)


def _means(values: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Return the clients' mean scores on validation rows, of all values that were logged."""
    split = [(key.split("/"), value) for key, value in values.items()]
    return {path[1]: float(value) for path, value in split if len(path) == 2 and path[0] == "val"}
