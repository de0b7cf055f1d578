"""Personalisation of each client: an average over epochs, its best epoch, and fine-tuning after the
federation.

Nothing of this is exchanged. Each client's averages are scored in place of its tensors. The best of
them by its own validation rows are kept, and training ends with these.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedlit.client.hooks import hook_of
from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.exchange.members import Members
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import named_tensors
from fedlit.tasks.scores import LOSS, Score

if TYPE_CHECKING:
    from fedlit.client import FederatedClient
    from fedlit.train.checkpoint_file import PersonalState
    from fedlit.train.results import Results


@dataclass
class FineTune:
    """Each client trains all its tensors further on its own rows, from the best of its epochs;
    nothing is exchanged.

    Attributes:
        epochs: the largest number of epochs; they follow those of the federation, which ends after
            ``trainer.max_epochs`` epochs or by ``model.stop``.
        patience: the number of scored epochs without an improvement on its validation rows after
            which a client stops.
        lr: the learning rate; that of ``model.optimizer`` if None. Schedules do not change it.
        average: the share of the average over epochs that is kept in each epoch (see
            ``model.average``).

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> FineTune(epochs=10, lr=0.001).patience
        5
    """

    epochs: int = 25
    patience: int = 5
    lr: float | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        key = "model.then.fine_tune"
        expect(self.epochs >= 1, f"{key}.epochs", "at least 1", self.epochs)
        expect(self.patience >= 1, f"{key}.patience", "at least 1", self.patience)
        expect(self.lr is None or self.lr > 0, f"{key}.lr", "a number above 0", self.lr)
        check_share(f"{key}.average", self.average)


@dataclass
class Then:
    """The fine-tuning that follows the federation.

    Attributes:
        fine_tune: how clients are fine-tuned; not at all if None.
    """

    fine_tune: FineTune | None = None


def then_of(then: Then | Literal["fine_tune"] | None) -> FineTune | None:
    """Return the fine-tuning that a configuration asks for; None if it asks for none."""
    if then == "fine_tune":
        return FineTune()
    return None if then is None else then.fine_tune


def check_share(key: str, value: float) -> None:
    """Refuse a value that is not a share in [0, 1)."""
    expect(0 <= value < 1, key, "a share in [0, 1)", value, "0 for no average")


_log = logging.getLogger(__name__)


@dataclass
class _Record:
    """The average and the best epoch of one client.

    Attributes:
        average: the average of its tensors over epochs.
        best: its average, or its tensors, in its best epoch.
        value: the score of the best epoch.
        epoch: the number of the best epoch, from 1.
        waited: the number of scored epochs since then.
        stopped: whether its fine-tuning has ended.
    """

    average: dict[str, Tensor] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    value: float = math.nan
    epoch: int = 0
    waited: int = 0
    stopped: bool = False


class Personal:
    """Averages and best epochs of clients, over a federation and the fine-tuning that follows it.

    Args:
        average: the share of a client's average that stays with each epoch; the rest is what the
            client has after the epoch's exchange. 0 for no average.
        keep: the score of validation rows by which a client's best epoch is kept, such as ``loss``
            or ``auroc``; none is kept if None, unless there is an average or fine-tuning: then it
            is the loss.
        tune: what follows the federation.

    Attributes:
        tuning: whether fine-tuning has begun.
        done: whether clients have the best of their epochs.

    Raises:
        ConfigError: a share out of range.
    """

    def __init__(
        self, average: float = 0.0, keep: str | None = None, tune: FineTune | None = None
    ) -> None:
        check_share("model.average", average)
        self.average = average
        self.tune = tune
        if keep is None and (average or tune is not None):
            keep = LOSS.name
        self.keep = keep
        self.tuning = False
        self.done = False
        self._records: dict[str, _Record] = {}
        self._shown: dict[str, dict[str, Tensor]] = {}
        self._epochs = 0

    @property
    def wanted(self) -> bool:
        """Whether any personal part is configured."""
        return self.keep is not None

    @property
    def told(self) -> list[str]:
        """Lines for the plan that describe the averages, the best epochs and the fine-tuning."""
        if not self.wanted:
            return []
        of = ""
        if self.average:
            of = f" of an average over epochs ({self.average} of it stays with each)"
        lines = [
            f"each client ends with its own best epoch{of}, by {self.keep} on its validation rows"
        ]
        if self.tune is not None:
            rate = "the same learning rate"
            if self.tune.lr is not None:
                rate = f"learning rate {self.tune.lr:g}"
            lines.append(
                "then each client trains on by itself, without exchange: at most "
                f"{self.tune.epochs} epochs, {rate}, until {self.tune.patience} in a row are no "
                "better"
            )
        return lines

    @property
    def stopped(self) -> frozenset[str]:
        """The clients whose fine-tuning has ended."""
        return frozenset(name for name, record in self._records.items() if record.stopped)

    def check(self, clients: Mapping[str, FederatedClient]) -> None:
        """Refuse a score that clients do not have."""
        if not self.wanted:
            return
        for name, client in clients.items():
            names = [score.name for score in (*client.scores, LOSS) if not score.test_only]
            if self.keep not in names:
                raise ConfigError(
                    "model.keep: expected a score of each client "
                    f"({', '.join(dict.fromkeys(names))} at {name}), found "
                    f"{self.keep!r}." + did_you_mean(str(self.keep), names)
                )

    # ------------------------------------------------------------------ epochs

    def start(self, federation: Members) -> None:
        """Prepare for the first epoch, or for the next one of a resumed run."""
        if not self.wanted:
            return
        self._records = {name: self._records.get(name, _Record()) for name in federation.clients}
        for client in federation.clients.values():
            client.fine_tuning = self.tuning
        for record in self._records.values():
            # The tensors of a checkpoint are on the CPU.
            for tensors in (record.average, record.best):
                tensors |= {key: value.to(federation.device) for key, value in tensors.items()}
        tuned = ""
        if self.tune is not None:
            tuned = f", and is fine-tuned for all {self.tune.epochs} epochs"
        for name, client in federation.clients.items():
            if not client.spec.rows.get("validation"):
                _log.warning(
                    "client %r has no validation rows: it ends with its last epoch%s", name, tuned
                )
        self.draw(federation)

    def draw(self, federation: Members) -> None:
        """Step only the clients that have not stopped."""
        if self.tuning:
            federation.cohort = frozenset(federation.names) - self.stopped

    @torch.no_grad()
    def end_of_steps(self, federation: Members) -> None:
        """Update clients' averages after an epoch's steps and its exchange."""
        share = self.average
        if self.tuning and self.tune is not None:
            share = self.tune.average
        if not (self.wanted and share):
            return
        self._epochs += 1
        # The first epochs' share is small, so that the initial values lose their weight.
        share = min(share, (self._epochs - 1) / self._epochs)
        for name, client in federation.clients.items():
            if self._records[name].stopped:
                continue
            average = self._records[name].average
            for key, value in named_tensors(client).items():
                if key not in average or not value.is_floating_point():
                    average[key] = value.detach().clone()
                else:
                    average[key].lerp_(value.detach(), 1 - share)

    @torch.no_grad()
    def show(self, federation: Members) -> None:
        """Put averages into the clients until :meth:`judge`, so that they are scored."""
        if not self.wanted:
            return
        for name, client in federation.clients.items():
            average = self._records[name].average
            if average and not self._records[name].stopped:
                self._shown[name] = _copied(named_tensors(client))
                _put(client, average)

    @torch.no_grad()
    def judge(self, federation: Members, results: Results, epoch: int) -> None:
        """Keep the states that are better than before, and give clients back what they had before
        :meth:`show`.

        Args:
            federation: the federation whose clients were scored.
            results: their scores on validation rows.
            epoch: the number of the epoch after which they were scored, from 1.
        """
        if not self.wanted:
            return
        for name, client in federation.clients.items():
            record = self._records[name]
            if not record.stopped:
                self._judge(record, client, _score_of(client, results, str(self.keep)), epoch)
            if name in self._shown:
                _put(client, self._shown.pop(name))
        best = {f"{name}/kept/epoch": float(record.epoch) for name, record in self._records.items()}
        federation.record(best)

    def _judge(
        self, record: _Record, client: FederatedClient, scored: tuple[Score, float], epoch: int
    ) -> None:
        score, value = scored
        better = (
            not record.best
            or not math.isfinite(record.value)
            or score.gain(value, record.value) > 0
        )
        if better:
            record.best = _copied(named_tensors(client))
            record.value = value
            record.epoch = epoch
            record.waited = 0
        else:
            record.waited += 1
        if self.tuning and self.tune is not None:
            record.stopped = record.waited >= self.tune.patience

    @torch.no_grad()
    def begin_tuning(self, federation: Members) -> None:
        """Let each client go on by itself from its best epoch."""
        self.tuning = True
        self._epochs = 0
        for name, client in federation.clients.items():
            record = self._records[name]
            record.waited = 0
            if not record.best:
                _log.warning(
                    "client %r: no epoch was scored before fine-tuning, so it goes on from the "
                    "last one; set trainer.check_val_every_n_epoch to at most trainer.max_epochs",
                    name,
                )
            _put(client, record.best)
            client.fine_tuning = True
            seed = derive_seed(federation.seed, "fine-tune", name)
            with isolated_rng(seed, federation.device), hook_of(client, "on_fine_tune_start"):
                client.on_fine_tune_start()
            # Without an average, the client itself is scored.
            record.average = {}
            if self.tune is not None and self.tune.average:
                record.average = _copied(named_tensors(client))
            for optimizer in client._optimizers:
                self._restart(optimizer)

    def _restart(self, optimizer: Optimizer) -> None:
        """Clear an optimizer's state, and set its learning rates for fine-tuning: the largest one
        becomes that of the configuration.
        """
        assert self.tune is not None
        optimizer.state.clear()
        groups = optimizer.param_groups
        rates = [group.get("initial_lr", group["lr"]) for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
            if self.tune.lr is not None:
                group["lr"] = self.tune.lr * rate / max(rates)

    @torch.no_grad()
    def finish(self, federation: Members) -> None:
        """Put each client's best epoch back, if any is kept."""
        if not self.wanted:
            return
        for name, client in federation.clients.items():
            _put(client, self._records[name].best)
        self.done = True

    # ------------------------------------------------------------------ state

    def state_dict(self) -> PersonalState:
        """Return the state for a checkpoint; empty if there is none."""
        if not self.wanted:
            return {}
        return {"tuning": self.tuning, "done": self.done, "_epochs": self._epochs}

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """Maps each client to what is remembered about it, for a checkpoint; empty once each client
        has its best epoch.
        """
        if self.done:
            return {}
        return {name: dict(vars(record)) for name, record in self._records.items()}

    def load_state_dict(
        self, state: PersonalState, records: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Restore what ``state_dict`` and ``records`` returned."""
        self.tuning = state.get("tuning", self.tuning)
        self.done = state.get("done", self.done)
        self._epochs = state.get("_epochs", self._epochs)
        self._records = {name: _Record(**record) for name, record in records.items()}


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tensors.items()}


def _put(client: FederatedClient, values: Mapping[str, Tensor]) -> None:
    tensors = named_tensors(client)
    for name, value in values.items():
        tensors[name].detach().copy_(value)


def _score_of(client: FederatedClient, results: Results, name: str) -> tuple[Score, float]:
    """Return a client's score; the mean over its sites if rows are pooled."""
    score = next(score for score in (*client.scores, LOSS) if score.name == name)
    values = []
    for site in client.spec.sites:
        with suppress(KeyError):
            values.append(results.scores[site.name][name])
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return score, math.nan
    return score, sum(finite) / len(finite)
