"""The exchange: when clients' states are aggregated, by which rule, and what share of the result
each client takes.
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import dropwhile
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from fedlit.attacks import Attack, Attackers
from fedlit.client import FederatedClient
from fedlit.devices import runs_ahead
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.ahead import can_run_ahead
from fedlit.exchange.answerer import Answerer
from fedlit.exchange.apply import apart, write_back_all
from fedlit.exchange.collect import collect, planned
from fedlit.exchange.columns import Updates
from fedlit.exchange.delivery import Delivery, OptimizerState
from fedlit.exchange.guard import GuardMode, guard_mode
from fedlit.exchange.members import Members
from fedlit.exchange.minimum import Minimum, least
from fedlit.exchange.outcome import Outcome
from fedlit.exchange.planning import Networks, unknown_meanings
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Rule, Update, demand
from fedlit.exchange.rules.mean import Mean
from fedlit.exchange.rules.server_optimizer import ServerOptimizer
from fedlit.exchange.schedule import BEGIN, Every, cohort, cohort_size, due
from fedlit.exchange.server import Server
from fedlit.exchange.shares import check_shares
from fedlit.exchange.transport import Transport
from fedlit.names import Clustering
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Buffers, Sharing, named_tensors, resolve
from fedlit.slices import live_of


class Exchange(Callback):
    """Collects the federated state of every client, applies a rule, and writes back ω_k ← (1 − r)
    ω_k + r ω̄_k.

    An exchange at the end of an epoch precedes that epoch's validation and checkpoint. A client
    whose federated state is not finite is left out of the rule, receives its result, starts with an
    empty optimizer state, is named in the log and counted. Its other tensors that are not finite
    are reset to their initial values.

    NOTE[DIFF]: Algorithm 1 of Global Layers adds the clients' layers up after every step. Its η is
    the share that a client keeps, so η = 1 (Table 10) would share nothing. Here the rule takes the
    mean, r is 1 − η, and the shipped configurations of Global Layers exchange once an epoch, as the
    published program.

    Args:
        federated: patterns of federated modules or tensors (see :func:`fedlit.sharing.select`); an
            empty list means no exchange, unless the rule works by questions.
        every: when clients exchange: after each aligned step (``step``) or epoch (``epoch``), or
            after every n of them (``{steps: n}``, ``{epochs: n}``).
        rule: computes what clients receive; :class:`~fedlit.exchange.rules.mean.Mean` by default.
        rate: the update rate r, in (0, 1]: the share that a client takes from what it receives; 1
            replaces its own values.
        buffers: whether BatchNorm statistics that the patterns match stay ``private`` or are
            averaged too (``average``).
        optimizer_state: whether each client keeps its optimizer's state (``keep``), or each round
            begins without state (``reset``). The state never leaves the client.
        participation: the share of the clients that take part in a round, drawn by (seed, round)
            after each exchange. The others take no steps and send nothing. They receive the result
            of the exchange right away, as they would when they are drawn next.
        minimum: the number of clients that must have a usable update; with fewer, the run fails. It
            is a number, or a share of the clients that take part in a round, such as 0.5; if None,
            more than half of them (one if there are two clients).
        guard: what is done about a client whose update is far from those of the others (see
            :class:`~fedlit.exchange.guard.Guard`): it is left out and named (``leave_out``, or
            ``true``), or named only (``watch``); ``false`` for no guard.
        by_name: patterns of federated tensors that are shared slice by slice: embeddings among the
            clients that have the column or category, outputs among those that have the class (see
            :mod:`fedlit.sharing`). Networks that name their slices are ``fedlit.TabM``,
            ``GlobalLayers`` and ``MLP``; none by default.
        attacks: attacks to inject into clients, as an experiment (see
            :class:`fedlit.attacks.Attack`).

    Attributes:
        rounds: the number of exchanges so far.
        bytes: the bytes that have travelled in them, from and to all clients, including the rule's
            questions.
        seconds: the time that they took, in seconds.
        transport: carries messages to and from clients in other processes.
        attackers: the attacking clients, if attacks are planted.
        sharing: which tensors of each client are federated; known once the clients are built.
        published: maps each client to what it published before training; names, types and shapes
            must stay the same.
        server: applies the rule; it owns the rule's state, the guard, and the counts of which
            clients were left out. The plan makes it; until then there is one without clients.
        clustering: which clients belong together after the last exchange, if the rule finds
            clusters.
        matched_by_shape: maps each client to its federated tensors that are matched by name and
            shape alone, because it is not known which columns or labels they stand for (see
            :mod:`fedlit.meanings`).
        remark: the remark of the rule on the settings, for the plan.
        open: whether steps follow the last exchange of a federation that is to end with one (see
            :attr:`completes`).
        started: whether clients start from another run (``model.start``); the rule must then leave
            their starting state as it is.

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> Exchange(["core.*"], every={"steps": 5}).due(step=9, last=False, epoch=0)
        True
    """

    def __init__(
        self,
        federated: list[str] | None = None,
        every: Every = "epoch",
        rule: Rule | None = None,
        rate: float = 1.0,
        buffers: Buffers = "private",
        optimizer_state: OptimizerState = "keep",
        participation: float = 1.0,
        minimum: int | float | None = None,
        by_name: list[str] | None = None,
        guard: GuardMode | bool = "leave_out",
        attacks: list[Attack] | None = None,
    ) -> None:
        if rule is None:
            rule = Mean()
        facts = rule.facts
        check_shares(every, rate, participation, minimum)
        needs = f"{type(rule).__name__} needs it"
        whole = rate == 1 or not (facts.whole_rate and federated)
        demand(whole, "exchange.rate", "1", rate, needs)
        sends = participation == 1 or bool(federated) or facts.by_questions
        nothing = "exchange.federated: []; set one of them"
        demand(sends, "exchange.participation", "something to exchange", nothing)
        self.federated: list[str] = []
        if federated:
            self.federated = [*federated, *facts.private]
        # Patterns that only leave tensors out select nothing by themselves.
        self.by_name = [*(by_name or []), *facts.by_name]
        if not by_name:
            self.by_name = list(dropwhile(lambda pattern: pattern.startswith("!"), self.by_name))
        self.every: Every = every
        self.rule = rule
        self.rate = rate
        self.buffers = buffers
        self.optimizer_state: OptimizerState = optimizer_state
        self.participation = participation
        self.minimum: Minimum = minimum
        self.guard = guard_mode(guard)
        self.attackers = Attackers(attacks or [])
        self.transport = Transport()
        self.server = Server(rule, minimum=minimum, guard=self.guard)
        self.sharing = self.server.sharing
        self.published: dict[str, dict[str, Tensor]] = {}
        self.matched_by_shape: dict[str, list[str]] = {}
        self.clustering: Clustering | None = None
        self.remark = ""
        self.started = False
        self.open = False
        self.rounds = 0
        self.bytes = 0
        self.seconds = 0.0
        self._delivery = Delivery(rate, optimizer_state, self.attackers)

    @property
    def on(self) -> bool:
        """Whether anything is exchanged."""
        return bool(self.federated) or self.rule.facts.by_questions

    @property
    def not_finite(self) -> dict[str, int]:
        """Maps each client whose state was not finite to how often that happened."""
        return {
            name: counts["not_finite"]
            for name, counts in self.incident_counts.items()
            if "not_finite" in counts
        }

    @property
    def incident_counts(self) -> dict[str, dict[str, int]]:
        """Counts what was done about each client, and the exchanges that it took part in (see
        :data:`~fedlit.exchange.named.Found`).
        """
        return self.server.incidents.counts()

    @property
    def completes(self) -> bool:
        """Whether the federation's last step is an exchange, whatever the schedule: all parameters
        are federated, by the mean or a server's optimizer. Without it, what is one network would
        end as another one at each client.
        """
        averages = type(self.rule) is Mean or isinstance(self.rule, ServerOptimizer)
        return self.on and self.sharing.whole and averages

    def due(self, step: int, last: bool, epoch: int) -> bool:
        """Return whether an exchange follows an aligned step (see
        :func:`fedlit.exchange.schedule.due`).
        """
        return self.on and due(self.every, step, last, epoch)

    def plan(self, members: Members) -> Sharing:
        """Determine which tensors of the clients are federated, once the clients are built, and
        refuse settings that do not fit (see :func:`fedlit.sharing.resolve`).
        """
        clients = members.clients
        self.sharing = resolve(
            clients, self.federated, self.buffers, self.transport.share, self.by_name
        )
        self.matched_by_shape = unknown_meanings(members, self.sharing, self.transport)
        self.attackers.find(
            self.sharing.names, members.seed, one_process=self.transport.everybody_here
        )
        taking_part = cohort_size(self.participation, len(self.sharing.names))
        limit = f"at most the number of clients that take part in a round, {taking_part}"
        demand(
            least(self.minimum, taking_part) <= taking_part,
            "exchange.minimum",
            limit,
            self.minimum,
        )
        networks = Networks(members, self.sharing)
        if self.on:
            reset = self.optimizer_state == "reset"
            model = networks.of_all(reset=reset)
            self.remark = self.rule.check(self.sharing, self.rate, model, taking_part) or ""
            if "model" in self.rule.needs:
                networks.share(self.transport)
        self.server = Server(
            self.rule,
            members.seed,
            self.minimum,
            self.guard,
            sharing=self.sharing,
            steps=members.steps,
            blueprint=networks.blueprint,
            device=members.device,
        )
        self._take_hold(members)
        self.published = {name: {} for name in clients}
        if self.on:
            for name, client in clients.items():
                self.published[name] = planned(client, members.seed)
        return self.sharing

    def _take_hold(self, members: Members) -> None:
        """Give each client references to its federated tensors as they are on this device."""
        self.server.device = members.device
        for name, client in members.clients.items():
            client._federated = live_of(client, named_tensors(client), self.sharing.names[name])

    # ------------------------------------------------------------------ when

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refresh the references to the federated tensors, which are on their device now."""
        self._take_hold(_members(pl_module))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the first cohort. Unless a checkpoint was restored, let the rule begin and call each
        client's ``on_receive`` with the state that it starts from.
        """
        members = _members(pl_module)
        self.attackers.say()
        if trainer.global_step == 0:
            # Nothing is collected for a rule that leaves clients what they start from.
            if self.on and type(self.rule).begin is not Rule.begin:
                self._begin(members)
            for client in members.clients.values():
                state = {key: value.clone() for key, value in client.federated.items()}
                self._delivery.tell(members, client, state, "start")
                client.steps_taken = 0
        self._draw_cohort(members)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Exchange if an exchange is due."""
        last = trainer.is_last_batch
        members = _members(pl_module)
        follows = self.due(trainer.global_step - 1, last, trainer.current_epoch)
        follows = follows or (self.completes and trainer.global_step == members.last_step)
        self.open = self.completes and not follows
        if follows and not members.tuning:
            # Drift costs as much as an exchange, so it is not measured at every step.
            self.exchange(members, measure=last or self.every != "step", read=last)
            self._draw_cohort(members)
        if last:
            self._read(members)
            # Here, and not in a hook of the loop, because a checkpoint may be written right after
            # this hook.
            members.end_exchange()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read what exchanges have found, if the training ends within the epoch."""
        self._read(_members(pl_module))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        """Give every client separate memory again."""
        self._delivery.lending.return_all()

    on_exception = on_fit_end  # type: ignore[assignment]  # A checkpoint may be loaded into these clients.

    def _draw_cohort(self, members: Members) -> None:
        members.cohort = cohort(self.participation, self.sharing.names, members.seed, self.rounds)
        # The other processes may have gone on without the clients here.
        if self.on and not self.transport.takes_part(self.rounds):
            members.cohort = frozenset()
        if members.cohort is not None:
            self._delivery.lending.return_to(members.cohort)

    # ------------------------------------------------------------------ what

    @torch.no_grad()
    def _begin(self, members: Members) -> None:
        collected = Updates.of(
            {
                name: self.collect(members, client, begin=True)
                for name, client in members.clients.items()
            }
        )
        outcome = self._round(members, BEGIN, collected, measure=False)
        if self.started and any(outcome.received.values()):
            raise ConfigError(
                "model.start: expected a rule that leaves clients what they start from, found "
                f"{type(self.rule).__name__}, which gives them something else; join with a frozen "
                "core (fedlit add-client)"
            )
        write_back_all(collected.columns, apart(outcome.received, collected), 1.0)
        self.bytes += outcome.bytes

    def _round(
        self, members: Members, number: int, collected: Mapping[str, Update], *, measure: bool
    ) -> Outcome:
        counts = Counter[str]()

        def answer(name: str, question: Question) -> Any:
            client = members.clients[name]
            counts[name] += 1
            seed = derive_seed(members.seed, "answer", name, number, counts[name])
            with isolated_rng(seed, members.device):
                return Answerer(client, self.sharing.parameters[name], members.rows(name))(question)

        return self.transport.exchange(self.server, number, collected, answer, measure=measure)

    @torch.no_grad()
    def exchange(self, members: Members, measure: bool = True, read: bool = True) -> None:
        """Collect updates, apply the rule and write its result back.

        Args:
            members: the federation whose clients exchange.
            measure: whether to record each client's drift, its relative distance from what it
                receives, before the result is written back.
            read: whether values may be read from the device although it runs ahead, such as a GPU.
                Otherwise a rule that needs the mean alone is applied without (see
                :mod:`fedlit.exchange.ahead`).
        """
        begun = time.perf_counter()
        taking_part = members.cohort
        if taking_part is None:
            taking_part = frozenset(self.sharing.names)
        ahead = not read and self._can_run_ahead(members)
        honest = Updates.of(
            {name: self.collect(members, client) for name, client in members.active.items()}
        )
        collected = Updates.of(self.attackers.act(members, self.rounds, honest))
        counts: dict[str, float] = {}
        gone: Collection[str] = ()
        try:
            if ahead:
                outcome = self.server.round_ahead(
                    self.rounds, collected, sorted(taking_part), measure=measure
                )
            else:
                counts, gone = self.server.read()
                outcome = self._round(members, self.rounds, collected, measure=measure)
        except RunError as error:
            raise RunError(f"{error}{self.server.incidents.before()}") from error
        self._delivery.deliver(members, honest, collected, outcome, gone, self.rounds)
        if not ahead:
            counts |= self.server.count(outcome, self.rounds, taking_part)
        self.rounds += 1
        self.bytes += outcome.bytes
        self.clustering = outcome.clustering
        seconds = time.perf_counter() - begun
        self.seconds += seconds
        records = {**outcome.records, **counts}
        local = {name: value for name, value in records.items() if _is_of(name, members)}
        members.record({**local, "exchange/seconds": seconds})

    def _can_run_ahead(self, members: Members) -> bool:
        """Return whether an exchange can do without values that are read from the device."""
        one_process = self.transport.everybody_here and self.transport.size == 1
        return one_process and runs_ahead(members.device) and can_run_ahead(self.rule)

    @torch.no_grad()
    def _read(self, members: Members) -> None:
        """Read from the device what the exchanges since the last time have found, if that was not
        read yet. Clients that were left out receive what the last of them gave.
        """
        received = self.server.unread.received
        counts, gone = self.server.read()
        members.record(counts)
        for name in gone & members.clients.keys():
            self._delivery.start_again(members, name, received.get(name, {}))

    def collect(self, members: Members, client: FederatedClient, *, begin: bool = False) -> Update:
        """Collect what a client sends (see :func:`fedlit.exchange.collect.collect`)."""
        expected = self.published[client.spec.name]
        return collect(client, self.sharing, expected, members.seed, self.rounds, begin=begin)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        counts = {"rounds": self.rounds, "bytes": self.bytes, "seconds": self.seconds}
        return counts | self.server.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.rounds = state_dict["rounds"]
        self.bytes = state_dict["bytes"]
        self.seconds = state_dict["seconds"]
        self.server.load_state_dict(state_dict)


def _members(module: Any) -> Members:
    members: Members = module.federation
    return members


def _is_of(key: str, members: Members) -> bool:
    """Return whether a record belongs to a client of this process or to the whole federation."""
    client = key.removesuffix("/train/drift")
    if client == key:
        client = key.rpartition("/exchange/")[0]
    return not client or client in members.clients
