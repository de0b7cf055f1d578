"""A federation: its clients in this process, what they exchange and what was measured. It does not
need Lightning.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from fedlit.client import FederatedClient, overrides
from fedlit.client.build import (
    ClientFactory,
    ClientOverride,
    build_client,
    build_clients,
    find_override,
)
from fedlit.client.hooks import check_clipping, hook_of, settings_of
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.engine.base import ClientStep
from fedlit.errors import ConfigError, FedlitError, RunError, Told, did_you_mean, expect
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.transport import Transport
from fedlit.nn.native import fuse_optimizer
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.show.text import shorten
from fedlit.spec import ClientSpec
from fedlit.tasks.base import Score
from fedlit.train.lightning import parse_optimizers
from fedlit.train.personal import FineTune, Personal
from fedlit.train.results import Evaluations, Results
from fedlit.train.stop import Ending, Stop

_log = logging.getLogger(__name__)

Scope = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Training:
    """How clients are built and trained. The attributes are arguments of
    :class:`~fedlit.train.loop.FederatedLoop`.
    """

    client: ClientFactory
    optimizer: OptimizerCallable = torch.optim.AdamW
    scheduler: LRSchedulerCallable | None = None
    scheduler_interval: str = "epoch"
    gradient_clip_val: float | None = None
    accumulate: int = 1
    seed: int = 0
    overrides: Mapping[str, ClientOverride] = field(default_factory=dict)
    average: float = 0.0
    keep: str | None = None
    tune: FineTune | None = None
    stop: Stop | None = None

    def __post_init__(self) -> None:
        expect(
            self.accumulate >= 1,
            "model.accumulate",
            "at least 1 batch per optimizer step",
            self.accumulate,
        )
        known = self.scheduler_interval in ("epoch", "step")
        expect(known, "model.scheduler_interval", "epoch or step", self.scheduler_interval)
        check_clipping(self.gradient_clip_val, "model.gradient_clip_val")


@dataclass(frozen=True)
class Moment:
    """The current point of training.

    Attributes:
        epoch: the number of the epoch, from 0.
        batch: the number of the aligned step in the epoch, from 0.
        step: the number of aligned steps that are done.
        last: whether it is the last aligned step of the epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    last: bool = False


class Federation(Mapping[str, FederatedClient]):
    """The clients of this process by name, in the order of names, and everything that they share.

    Args:
        training: how the clients are built and trained.

    Attributes:
        exchange: what they exchange; nothing by default.
        data: the clients' rows; set by ``build``.
        settings: the configuration's keys and values, flat, if there is a configuration.
        names: the names of all clients, including those of other processes.
        scores_of: maps each client, of any process, to its scores, the main one first.
        cohort: the clients that take part in this round; None for all.
        results: maps each split to its last scores.
        history: the values that were logged, epoch by epoch.
        notes: notes for the user about what clients start from.
        remarks: maps each client to its remarks on the settings (see
            :meth:`~fedlit.client.client.FederatedClient.on_plan`).
        personal: the averages, best epochs and fine-tuning of the clients.
        ending: decides after each epoch whether the next phase begins, or the run ends.
        frozen: maps each newcomer to the tensors of a run that it keeps as they are.
        step: the number of aligned steps that are done.
        last_step: the number of aligned steps with which the federation is planned to end; None if
            it is not known.
        device: the device of the clients.
        scope: makes the context of a client's step (the autocast of mixed precision);
            ``scope_of_scoring`` makes the one in which a client is scored.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.seed = training.seed
        self.exchange = Exchange()
        self.data: FederatedData
        self.clients: dict[str, FederatedClient] = {}
        self.scores_of: Mapping[str, tuple[Score, ...]] = {}
        self.names: tuple[str, ...] = ()
        self.cohort: frozenset[str] | None = None
        self.results: dict[Split, Results] = {}
        self.history: list[dict[str, float]] = []
        self.notes: list[str] = []
        self.remarks: dict[str, tuple[str, ...]] = {}
        self.frozen: dict[str, dict[str, Tensor]] = {}
        self.settings: Mapping[str, Any] | None = None
        self.step = 0
        self.device = torch.device("cpu")
        self.last_step: int | None = None
        self.scope: Scope = nullcontext
        self.scope_of_scoring: Scope = nullcontext
        self.evaluations = Evaluations(self)
        self.personal = Personal(training.average, training.keep, training.tune)
        self.ending = Ending(self.personal, training.stop)
        self._recorded: dict[str, Tensor | float] = {}
        self._rates: dict[str, float] = {}  # of the last step
        self._diverged: set[str] = set()
        # clients that had a batch, whose optimizers have stepped, and whose first epoch was looked
        # at
        self._trained = set[str]()
        self._stepped = set[str]()
        self._judged = set[str]()

    def __getitem__(self, name: str) -> FederatedClient:
        return self.clients[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)

    # ------------------------------------------------------------------ set-up

    @property
    def group(self) -> Transport:
        """The processes among which the clients are divided."""
        return self.exchange.transport

    @property
    def active(self) -> dict[str, FederatedClient]:
        """The clients of this process that take part in this round."""
        return {
            name: own
            for name, own in self.clients.items()
            if self.cohort is None or name in self.cohort
        }

    @property
    def tuning(self) -> bool:
        """Whether clients are being fine-tuned, each by itself, after the federation."""
        return self.personal.tuning

    def build(self, data: FederatedData) -> None:
        """Build the clients for the data, once, and determine what is federated."""
        if self.clients:
            return
        self.data = data
        data.share = self.group.share
        data.deal = self.group.deal if self.group.size > 1 else None
        data.poison = self.exchange.attackers.of_rows(self.seed, data.leave_out or ())
        data.setup()
        self.names = tuple(data.names)
        # what is said of a client that is left out is no mistake
        known = (*self.names, *(data.leave_out or ()))
        made = build_clients(
            data.specs, self.training.client, self.seed, self.training.overrides, known
        )
        self._check_weights(made)
        for name, client in made.items():
            override = find_override(self.training.overrides, name)
            default = self.training
            client.optimizer_factory = override.optimizer or default.optimizer
            client.scheduler_factory = override.scheduler or default.scheduler
            client.scheduler_interval = default.scheduler_interval
            # none is 0
            client.gradient_clip_val = override.gradient_clip_val or default.gradient_clip_val
            client.accumulate = default.accumulate
            client.fine_tunes = default.tune is not None
            self._check_batch_size(name, client)
            self._check_settings(name, client)
            client.on_rows(data.train_loaders[name].rows)
        self.clients = made
        self._know_all(made)
        self.personal.check(made)
        self.ending.check(self.scores_of)
        self.exchange.plan(self)
        for name, client in made.items():
            with hook_of(client, "on_plan"):
                self.remarks[name] = tuple(client.on_plan(self.exchange.every))

    def _know_all(self, made: dict[str, FederatedClient]) -> None:
        """Gather the scores and the rows of the clients of all processes."""
        self.scores_of = {name: client.scores for name, client in made.items()}
        if self.group.size == 1:
            return
        own = {
            client.spec.name: [
                client.fingerprint(),
                [vars(score) for score in self.scores_of[client.spec.name]],
            ]
            for client in self.data.clients
        }
        told = {
            name: about
            for others in self.group.gather("rows and scores", own)
            for name, about in others.items()
        }
        self.fingerprints = {name: fingerprint for name, (fingerprint, _) in told.items()}
        self.scores_of = {
            name: tuple(Score(**one) for one in scores) for name, (_, scores) in told.items()
        }

    def _check_settings(self, name: str, client: FederatedClient) -> None:
        rule = self.exchange.rule
        for key, wanted in client.requires.items():
            kinds = [kind.__name__ for kind in type(rule).__mro__]
            found = (
                kinds if key == "exchange.rule" else [getattr(self.data, key.removeprefix("data."))]
            )
            if not set(found) & set(wanted):
                raise ConfigError(
                    f"client {name!r}: {type(client).__name__} expected {key}: "
                    f"{' or '.join(wanted)}, found {found[0]}; set {key}: {wanted[0]}, or another "
                    "model.client"
                )

        kind = rule.facts.requires if self.exchange.on else ""
        if kind and kind not in (own.__name__ for own in type(client).__mro__):
            raise ConfigError(
                f"client {name!r}: exchange.rule: {type(rule).__name__} expected model.client: "
                f"{kind}, found {type(client).__name__}; set model.client, or another exchange.rule"
            )

    def _check_weights(self, clients: Mapping[str, FederatedClient]) -> None:
        """Refuse weights of rows for clients that have no use for them."""
        for data in self.data.clients:
            client = clients[data.spec.name]
            task = data.spec.task
            method = type(client).__name__
            own_loss = type(client).loss is not FederatedClient.loss
            used = client.weighs_rows and task.weighs_rows and not own_loss
            told = "a method and a task that weigh rows"
            found = Told(f"{method} and {task.name}")
            where = f"client {data.spec.name!r}: data.source.weight"
            expect(
                data.train.weight is None or used,
                where,
                told,
                found,
                "take another, or leave out the key",
            )

    def _check_batch_size(self, name: str, client: FederatedClient) -> None:
        loader = self.data.train_loaders[name]
        if loader.batch_size > 1 or not any(
            isinstance(module, nn.modules.batchnorm._BatchNorm) for module in client.modules()
        ):
            return
        rows = len(loader.rows)
        fixed = self.data.batching.batches is None
        advice = (
            "data.batch_size to at least 2" if fixed else f"data.batches to at most {rows // 2}"
        )
        raise ConfigError(
            f"client {name!r}: expected at least 2 rows per batch, which batch normalisation "
            f"needs, found {rows} training rows in {loader.batches} batches; set {advice}, or "
            "leave the client out"
        )

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Maps each client, of any process, to a fingerprint of its rows, splits and labels."""
        return {client.spec.name: client.fingerprint() for client in self.data.clients}

    def fresh(self, spec: ClientSpec, seed: int | None = None) -> FederatedClient:
        """Return a client as it was before training, or as it would be with another seed."""
        factory = find_override(self.training.overrides, spec.name).client or self.training.client
        return build_client(factory, spec, self.seed if seed is None else seed)

    def rows(self, client: str) -> Rows:
        """Return a client's training rows."""
        return self.data.train_loaders[client].rows

    def configure_optimizers(self, *, fuse: bool) -> tuple[list[Any], list[Any]]:
        """Make all clients' optimizers and schedules; each client keeps its own.

        Args:
            fuse: whether torch's optimizers update all parameters in one operation.
        """
        optimizers = []
        schedulers = []
        for name, client in self.clients.items():
            with hook_of(client, "configure_optimizers"):
                mine, configs = parse_optimizers(client.configure_optimizers())
            for position, config in enumerate(configs):
                config.name = config.name or f"{name}/train/lr" + (
                    f"-{position}" if position else ""
                )
            for optimizer in mine:
                optimizer.register_step_post_hook(lambda *_, name=name: self._stepped.add(name))
                if fuse:
                    fuse_optimizer(optimizer)
            client._optimizers = mine
            client._scheduler_configs = configs
            optimizers += mine
            schedulers += [
                {"scheduler": own.scheduler, "interval": own.interval, "name": own.name}
                for own in configs
            ]
        return optimizers, schedulers

    # ------------------------------------------------------------------ a step

    def begin_step(
        self, batch: Mapping[str, Batch | None], moment: Moment
    ) -> dict[str, ClientStep]:
        """Return the steps of an aligned step, by client."""
        steps = {}
        for name, client in self.active.items():
            own = batch[name]
            if own is None:
                continue  # it waits for others
            self.call(client, "on_train_batch_start", own, moment.batch)
            # A function of (seed, client, its own place in the training), whatever others do and
            # whatever ran before.
            own_step = moment.epoch * self.data.train_loaders[name].most + moment.batch
            seed = derive_seed(self.seed, "step", name, own_step)
            step = partial(self._step, client, own, moment, seed)
            accumulate = self.training.accumulate
            updates = self._updates(name, moment)
            client.accumulate = accumulate
            client.steps_now = updates
            steps[name] = ClientStep(client, own, step, accumulate, updates, seed=seed)
        return steps

    def _updates(self, name: str, moment: Moment) -> bool:
        """Return whether a client's optimizers step after this batch."""
        last = moment.last or self.data.train_loaders[name].ends(moment.batch)
        return last or (moment.batch + 1) % self.training.accumulate == 0

    def _step(
        self, client: FederatedClient, batch: Batch, moment: Moment, seed: int, seeded: bool
    ) -> bool:
        """Take one client's part of an aligned step (see :data:`fedlit.engine.base.Step`)."""
        try:
            with self.scope():  # the autocast of mixed precision belongs to a thread
                if not seeded:
                    self._descend(client, batch, moment)
                    return False
                with isolated_rng(seed, self.device) as drawn:
                    self._descend(client, batch, moment)
                    return drawn()
        except FedlitError:
            raise
        except Exception as error:
            where = f"client {client.spec.name!r}, step {moment.step + 1}"
            raise RunError(f"{where}: {type(error).__name__}: {error}") from error

    def _descend(self, client: FederatedClient, batch: Batch, moment: Moment) -> None:
        """Compute the loss and its gradient, clip the gradient, and step the optimizers."""
        client.row_weight = batch.weight
        try:
            loss = client.training_step(batch, moment.batch)
        finally:
            client.row_weight = None
        client.skipped = loss is None
        if loss is None:
            return  # the client skips this batch, as in Lightning, or has nothing to say
        if not isinstance(loss, Tensor) and (
            client.automatic_optimization or not isinstance(loss, int | float)
        ):
            raise RunError(
                f"client {client.spec.name!r}, step {moment.step + 1}: expected the loss, a "
                f"tensor, from {type(client).__name__}.training_step, found a "
                f"{type(loss).__name__}; return the loss itself, without .item() and in no "
                "dictionary, or None to skip the batch"
            )
        client.log("loss", loss)
        if client.automatic_optimization:
            if not loss.requires_grad:
                raise RunError(
                    f"client {client.spec.name!r}, step {moment.step + 1}: expected a loss with a "
                    f"gradient from {type(client).__name__}.training_step, found one that depends "
                    "on no parameter (detached?); return the loss itself, or set "
                    "automatic_optimization to False and descend there"
                )
            client.descend(
                loss, client._optimizers, client.clipped_apart() if client.gradient_clip_val else ()
            )

    def end_step(self, batch: Mapping[str, Batch | None], moment: Moment) -> None:
        """Run schedules and hooks after an aligned step, which ``moment.step`` counts already."""
        self.step = moment.step
        for name, client in self.active.items():
            own = batch[name]
            if own is not None:
                self._trained.add(name)
                if client.stacked:  # its stack steps in its place
                    self._stepped.add(name)
            updated = own is not None and self._updates(name, moment)
            client.steps_taken += updated and not client.skipped
            self._end_rates(name, client, moment, updated)
            if own is not None:
                self.call(client, "on_train_batch_end", None, own, moment.batch)
        if moment.last:  # an epoch ends for those that sat it out, too
            for name in self.clients.keys() - self.active.keys():
                self._end_rates(name, self.clients[name], moment, updated=False)

    def _end_rates(self, name: str, client: FederatedClient, moment: Moment, updated: bool) -> None:
        """Note a client's learning rate, and advance its schedules."""
        for optimizer in client._optimizers[:1]:
            self._rates[name] = optimizer.param_groups[0]["lr"]
        for config in () if self.tuning else client._scheduler_configs:
            by_step = config.interval == "step"
            count = moment.step if by_step else moment.epoch + 1
            due = updated if by_step else moment.last
            if config.reduce_on_plateau or not due or count % config.frequency:
                continue
            config.scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]  # else torch warns of an idle client
            with settings_of(name, "model.scheduler"):
                config.scheduler.step()  # type: ignore[call-arg]  # Lightning types it as a plateau schedule too

    # ------------------------------------------------------------------ an epoch

    def end_exchange(self) -> None:
        """Update the averages of clients after an epoch's last step and its exchange."""
        self.personal.end_of_steps(self)

    @property
    def steps(self) -> Mapping[str, int]:
        """See :class:`~fedlit.exchange.members.Members`."""
        return self.data.steps_of

    def record(self, values: Mapping[str, Tensor | float]) -> None:
        """Log scalars at the end of this epoch: ``<client>/<tag>`` in the client's run, others in
        the federation's.
        """
        self._recorded.update(values)

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Return what was recorded during the epoch."""
        values = {
            "epoch": float(epoch),
            **{key: float(value) for key, value in self._recorded.items()},
        }
        losses: dict[str, float] = {}
        idle: dict[str, list[str]] = {}
        for name, client in self.clients.items():
            means = client.pop_logged()
            losses |= {name: means["loss"]} if "loss" in means else {}
            if problem := self._idle(name, client, "loss" in means):
                idle.setdefault(problem, []).append(name)
            if not math.isfinite(means.get("loss", 0.0)) and name not in self._diverged:
                self._diverged.add(name)
                _log.warning(
                    "client %r: its training loss is not finite since epoch %d", name, epoch + 1
                )
            values |= {f"{name}/train/{tag}": value for tag, value in means.items()}
            if name in self._rates:
                values[f"{name}/train/lr"] = self._rates.pop(name)
        for problem, names in idle.items():
            _log.warning("client %s: in epoch %d %s", shorten(names, 3), epoch + 1, problem)
        told = self.group.gather(f"the end of epoch {epoch + 1}", values)
        values = {
            **{key: value for own in told for key, value in own.items()},
            **told[0],
        }  # of the federation, the first's
        losses = {
            name: own for name, own in self.share("train/loss", losses).items() if own is not None
        }
        if losses:
            values["train/loss"] = sum(losses.values()) / len(losses)
        self._recorded = {}
        return self._remember(values)

    def _idle(self, name: str, client: FederatedClient, has_loss: bool) -> str:
        """Return why a client has learnt nothing in the first epoch that it was trained in; empty
        if it has.
        """
        if name in self._judged or name not in self._trained:
            return ""
        self._judged.add(name)
        if not client.takes_steps or not any(True for _ in client.parameters()):
            return ""
        kind = type(client).__name__
        if not has_loss:
            return (
                f"{kind}.training_step returned None in every step; return the loss (detached, "
                "if it descends)"
            )
        if name in self._stepped:
            return ""
        return (
            f"{kind} took no optimizer step; return optimizers from configure_optimizers and, "
            "where automatic_optimization is False, call self.descend(loss, optimizers, ...) in "
            "training_step"
        )

    def _remember(self, values: dict[str, float]) -> dict[str, float]:
        self.history.append({"step": float(self.step), **values})
        return values

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send facts about the clients here, and return those about all clients. A client without a
        fact sends None.
        """
        return self.group.share(topic, {name: own.get(name) for name in self.clients})

    # ------------------------------------------------------------------ scores

    def finish_scoring(self, split: Split) -> dict[str, float]:
        """Score what was added since ``evaluations.begin`` and has been executed. Return the values
        to log.
        """
        own = self.evaluations.scoring[split].results(self.step, self.share)
        if self.exchange.attackers.told:
            own = replace(own, planted=tuple(self.exchange.attackers.told))
        self.results[split] = own.joined(self.group.gather(f"scores of {split}", own.of_clients()))
        return self._remember(self.results[split].scalars())

    def step_plateaus(self, logged: Mapping[str, Tensor]) -> None:
        """Step the schedules that wait for a score. A client's own score is used if it has one of
        that name.

        Args:
            logged: the latest scores by name.
        """
        for client in () if self.tuning else self.clients.values():
            for config in client._scheduler_configs:
                if config.reduce_on_plateau:
                    cast(ReduceLROnPlateau, config.scheduler).step(
                        _monitored(client, config, logged)
                    )

    # ------------------------------------------------------------------ hooks and state

    def forward_hook(self, hook: str, *args: Any) -> None:
        """Call a Lightning hook of all clients."""
        for client in self.clients.values():
            self.call(client, hook, *args)

    def call(self, client: FederatedClient, hook: str, *args: Any) -> None:
        """Call a hook that may draw random numbers, outside of a client's step, which is seeded as
        a whole.
        """
        if overrides(client, hook):
            with isolated_rng(
                derive_seed(self.seed, hook, client.spec.name, self.step), self.device
            ):
                getattr(client, hook)(*args)


def _monitored(
    client: FederatedClient, config: LRSchedulerConfig, known: Mapping[str, Tensor]
) -> Tensor:
    for key in (f"{client.spec.name}/{config.monitor}", str(config.monitor)):
        if key in known:
            return known[key]
    raise ConfigError(
        f"client {client.spec.name!r}: its schedule waits for {config.monitor!r}, expected one of "
        f"{', '.join(sorted(known))}." + did_you_mean(str(config.monitor), known)
    )
