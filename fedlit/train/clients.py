"""The clients of a federation in this process, what they exchange and what was measured. They do
not need Lightning.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypedDict

import torch
from torch import Tensor

from fedlit.client import FederatedClient, overrides
from fedlit.client.build import (
    build_client,
    build_clients,
    find_override,
)
from fedlit.client.hooks import NoteOfSteps, hook_of, overridden
from fedlit.data.encoding import Rows
from fedlit.data.findings import Finding
from fedlit.data.loader import Batch, sit_out
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.engine.base import ClientStep, Scope
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.transport import Transport
from fedlit.names import joined
from fedlit.nn.native import fuse_optimizer
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.spec import ClientSpec
from fedlit.tasks.scores import Score
from fedlit.train.descent import StepContext, take_step
from fedlit.train.fitting import check_batch_size, check_settings, check_weights
from fedlit.train.learning import Learning
from fedlit.train.lightning import parse_optimizers
from fedlit.train.packing import Constant
from fedlit.train.personal import Personal
from fedlit.train.results import Results
from fedlit.train.schedules import advance, step_plateaus
from fedlit.train.scoring import Evaluations
from fedlit.train.stop import Ending
from fedlit.train.training import Moment, Training

_log = logging.getLogger(__name__)


class _Facts(TypedDict):
    """What a process tells the others about a client."""

    fingerprint: str
    scores: list[dict[str, Any]]


class Clients(Mapping[str, FederatedClient]):
    """The clients of this process by name, in the order of names, and everything that they share.

    Args:
        training: how the clients are built and trained.

    Attributes:
        exchange: what they exchange; nothing by default.
        data: the clients' rows; set by ``build``.
        settings: the configuration's keys and values, flat, if there is a configuration.
        names: the names of all clients, including those of other processes.
        scores_of: maps each client, of any process, to its scores, the main one first.
        results: maps each split to its last scores.
        history: the values that were logged, epoch by epoch.
        notes: notes for the user about what clients start from.
        findings: what was found about clients while they were trained.
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
        self._cohort: frozenset[str] | None = None
        self.results: dict[Split, Results] = {}
        self.history: list[dict[str, float]] = []
        self.notes: list[str] = []
        self.findings: list[Finding] = []
        self.remarks: dict[str, tuple[str, ...]] = {}
        self.frozen: dict[str, dict[str, Tensor]] = {}
        self.settings: Mapping[str, object] | None = None
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
        self._learning = Learning()

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
    def cohort(self) -> frozenset[str] | None:
        """The clients that take part in this round; None for all. No batches are drawn for the
        others.
        """
        return self._cohort

    @cohort.setter
    def cohort(self, names: frozenset[str] | None) -> None:
        if names != self._cohort:
            self._cohort = names
            sit_out(self.data.train_loaders.values(), names)

    @property
    def active(self) -> dict[str, FederatedClient]:
        """The clients of this process that take part in this round."""
        if self.cohort is None:
            return dict(self.clients)
        return {name: client for name, client in self.clients.items() if name in self.cohort}

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
        data.deal = None
        if self.group.size > 1:
            data.deal = self.group.deal
        data.poison = self.exchange.attackers.of_rows(self.seed, data.leave_out or ())
        data.setup()
        self.names = tuple(data.names)
        # Settings of a client that is left out are no mistake.
        names = (*self.names, *(data.leave_out or ()))
        training = self.training
        clients = build_clients(data.specs, training.client, self.seed, training.overrides, names)
        check_weights(clients, data)
        for name, client in clients.items():
            self._set_up(client)
            check_batch_size(client, data)
            check_settings(client, data, self.exchange)
            client.on_rows(data.train_loaders[name].rows)
        self.clients = clients
        self._gather_facts()
        self.personal.check(clients)
        self.ending.check(self.scores_of)
        self.exchange.plan(self)
        for name, client in clients.items():
            with hook_of(client, "on_plan"):
                self.remarks[name] = tuple(client.on_plan(self.exchange.every))

    def _set_up(self, client: FederatedClient) -> None:
        """Give a client the settings of the training, or its own where there are any."""
        training = self.training
        override = find_override(training.overrides, client.spec.name)
        client.optimizer_factory = override.optimizer or training.optimizer
        client.scheduler_factory = override.scheduler or training.scheduler
        client.scheduler_interval = training.scheduler_interval
        # A client that is not clipped, where others are, has the value 0.
        client.gradient_clip_val = override.gradient_clip_val or training.gradient_clip_val
        client.accumulate = training.accumulate
        client.fine_tunes = training.tune is not None

    def _gather_facts(self) -> None:
        """Gather the scores and the fingerprints of the clients of all processes."""
        self.scores_of = {name: client.scores for name, client in self.clients.items()}
        if self.group.size == 1:
            return
        facts: dict[str, _Facts] = {}
        for client in self.data.clients:
            name = client.spec.name
            scores = [vars(score) for score in self.scores_of[name]]
            facts[name] = {"fingerprint": client.fingerprint(), "scores": scores}
        gathered = joined(self.group.gather("rows and scores", facts))
        self.fingerprints = {name: of_client["fingerprint"] for name, of_client in gathered.items()}
        self.scores_of = {
            name: _scores_from(of_client["scores"]) for name, of_client in gathered.items()
        }

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Maps each client, of any process, to a fingerprint of its rows, splits and labels."""
        return {client.spec.name: client.fingerprint() for client in self.data.clients}

    @cached_property
    def encoder_states(self) -> dict[str, Mapping[str, Any]]:
        """The state of each client's encoder, for checkpoints. The plain data of a thousand
        encoders is large and takes seconds to write, and training does not change it.
        """
        encoders = self.data.encoders.items()
        return {name: Constant(encoder.state_dict) for name, encoder in encoders}

    @cached_property
    def spec_states(self) -> dict[str, Mapping[str, Any]]:
        """The same for clients' specs."""
        return {name: Constant(client.spec.state_dict) for name, client in self.items()}

    def fresh(self, spec: ClientSpec, seed: int | None = None) -> FederatedClient:
        """Return a client as it was before training, or as it would be with another seed."""
        factory = find_override(self.training.overrides, spec.name).client or self.training.client
        if seed is None:
            seed = self.seed
        return build_client(factory, spec, seed)

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
                of_client, configs = parse_optimizers(client.configure_optimizers())
            for position, config in enumerate(configs):
                ending = f"-{position}" if position else ""
                config.name = config.name or f"{name}/train/lr{ending}"
            for optimizer in of_client:
                optimizer.register_step_post_hook(NoteOfSteps(name, self._learning.stepped))
                if fuse:
                    fuse_optimizer(optimizer)
            client._optimizers = of_client
            client._scheduler_configs = configs
            optimizers += of_client
            for config in configs:
                keys = ("scheduler", "interval", "name")
                schedulers.append({key: getattr(config, key) for key in keys})
        return optimizers, schedulers

    # ------------------------------------------------------------------ a step

    def begin_step(
        self, batch: Mapping[str, Batch | None], moment: Moment
    ) -> dict[str, ClientStep]:
        """Return the steps of an aligned step, by client."""
        steps = {}
        accumulate = self.training.accumulate
        context = StepContext(self.device, self.scope)
        for name, client in self.active.items():
            rows = batch[name]
            if rows is None:
                assert moment.batch >= self.data.train_loaders[name].steps, "batches of who sat out"
                continue  # The client waits for others.
            self.call(client, "on_train_batch_start", rows, moment.batch)
            # The seed depends on how far the client is itself, whatever others do and whatever ran
            # before.
            number = moment.epoch * self.data.train_loaders[name].most + moment.batch
            seed = partial(derive_seed, self.seed, "step", name, number)
            step = partial(take_step, client, rows, moment, seed, context)
            updates = self._updates(name, moment)
            if client.accumulate != accumulate:  # Modules take microseconds to set an attribute.
                client.accumulate = accumulate
            if client.steps_now != updates:
                client.steps_now = updates
            steps[name] = ClientStep(client, rows, step, accumulate, updates, seed=seed)
        return steps

    def _updates(self, name: str, moment: Moment) -> bool:
        """Return whether a client's optimizers step after this batch."""
        last = moment.last or self.data.train_loaders[name].ends(moment.batch)
        return last or (moment.batch + 1) % self.training.accumulate == 0

    def end_step(self, batch: Mapping[str, Batch | None], moment: Moment) -> None:
        """Run schedules and hooks after an aligned step, which ``moment.step`` counts already."""
        self.step = moment.step
        for name, client in self.active.items():
            rows = batch[name]
            if rows is not None:
                self._learning.trained.add(name)
                if client.stacked:  # its stack steps in its place
                    self._learning.stepped.add(name)
            updated = rows is not None and self._updates(name, moment)
            if updated and not client.skipped:
                # A module's own way to set an attribute takes microseconds.
                vars(client)["steps_taken"] += 1
            if moment.last or client._scheduler_configs:
                self._end_rates(name, client, moment, updated)
            if rows is not None:
                self.call(client, "on_train_batch_end", None, rows, moment.batch)
        if moment.last:  # an epoch ends for those that sat it out, too
            for name in self.clients.keys() - self.active.keys():
                self._end_rates(name, self.clients[name], moment, updated=False)

    def _end_rates(self, name: str, client: FederatedClient, moment: Moment, updated: bool) -> None:
        """Note a client's learning rate, and advance its schedules."""
        for optimizer in client._optimizers[:1]:
            self._rates[name] = optimizer.param_groups[0]["lr"]
        if not self.tuning:
            advance(name, client, moment, updated)

    # ------------------------------------------------------------------ an epoch

    def end_exchange(self) -> None:
        """Update the averages of clients after an epoch's last step and its exchange."""
        self.personal.end_of_steps(self)

    @property
    def steps(self) -> Mapping[str, int]:
        """See :class:`~fedlit.exchange.members.Members`."""
        return self.data.steps_of

    def add_finding(self, finding: Finding) -> None:
        """Keep a finding for the results, and log it."""
        self.findings.append(finding)
        _log.warning("%s", finding)

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
        for name, client in self.clients.items():
            means = client.pop_logged()
            if "loss" in means:
                losses[name] = means["loss"]
            self._learning.judge(name, client, means, epoch)
            values |= {f"{name}/train/{tag}": value for tag, value in means.items()}
            for optimizer in client._optimizers[:1]:
                rate = optimizer.param_groups[0]["lr"]
                values[f"{name}/train/lr"] = self._rates.pop(name, rate)
        self._learning.report(epoch)
        of_processes = self.group.gather(f"the end of epoch {epoch + 1}", values)
        values = {}
        # What all processes measure of the federation is taken from the first.
        for of_process in (*of_processes, of_processes[0]):
            values |= of_process
        shared = self.share("train/loss", losses)
        losses = {name: loss for name, loss in shared.items() if loss is not None}
        if losses:
            values["train/loss"] = sum(losses.values()) / len(losses)
        self._recorded = {}
        return self._remember(values)

    def _remember(self, values: dict[str, float]) -> dict[str, float]:
        self.history.append({"step": float(self.step), **values})
        return values

    def share(self, topic: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send facts about the clients here, and return those about all clients. A client without a
        fact sends None.
        """
        return self.group.share(topic, {name: facts.get(name) for name in self.clients})

    # ------------------------------------------------------------------ scores

    def finish_scoring(self, split: Split) -> dict[str, float]:
        """Score what was added since ``evaluations.begin`` and has been executed. Return the values
        to log.
        """
        local = self.evaluations.scoring[split].results(self.step, self.share)
        if self.exchange.attackers.summary:
            local = replace(local, planted=tuple(self.exchange.attackers.summary))
        of_processes = self.group.gather(f"scores of {split}", local.of_clients())
        self.results[split] = local.joined(of_processes)
        return self._remember(self.results[split].scalars())

    def step_plateaus(self, logged: Mapping[str, Tensor]) -> None:
        """Step the schedules that wait for a score. A client's own score is used if it has one of
        that name.

        Args:
            logged: the latest scores by name.
        """
        if not self.tuning:
            step_plateaus(self.clients.values(), logged)

    # ------------------------------------------------------------------ hooks and state

    def forward_hook(self, hook: str, *args: object) -> None:
        """Call a Lightning hook of all clients that override it."""
        kinds = dict.fromkeys(map(type, self.clients.values()))
        if any(overridden(kind, hook) for kind in kinds):
            for client in self.clients.values():
                self.call(client, hook, *args)

    def call(self, client: FederatedClient, hook: str, *args: object) -> None:
        """Call a hook that may draw random numbers, outside of a client's step, which is seeded as
        a whole.
        """
        if overrides(client, hook):
            with isolated_rng(
                derive_seed(self.seed, hook, client.spec.name, self.step), self.device
            ):
                getattr(client, hook)(*args)


def _scores_from(states: Iterable[Mapping[str, Any]]) -> tuple[Score, ...]:
    return tuple(Score(**state) for state in states)
