"""The exchange: when clients' federated states are aggregated, by which rule, and how much of the result each
takes over.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.questions import Asked, bytes_of
from fedlit.exchange.rules import Mean, Rule, Update
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Buffers, Sharing, State, all_finite, named_tensors, relative_distance, resolve, split
from fedlit.train.loop import FederatedLoop

__all__ = ["Every", "Exchange", "OptimizerState"]

Every = Literal["step", "epoch"] | dict[str, int]
OptimizerState = Literal["keep", "average", "reset"]
_log = logging.getLogger(__name__)


class Exchange(Callback):
    """Collects the federated state of every client, applies a rule, and writes back ω_k ← (1 − r) ω_k + r ω̄_k.

    An exchange at the end of an epoch comes before that epoch's validation and checkpoint. A client whose federated
    state is not finite is left out of the rule, receives its result, starts with an empty optimizer state, is named
    in the log and counted; whatever else of it is not finite goes back to its initial values.

    Args:
        federated: patterns of federated modules or tensors (see :func:`fedlit.sharing.select`); empty for no
            exchange at all.
        every: ``step`` (each aligned step), ``epoch``, ``{steps: n}`` or ``{epochs: n}``.
        rule: what clients receive.
        rate: r, the share taken from what is received; 1 replaces.
        buffers: whether BatchNorm statistics that the patterns match stay ``private`` or are averaged too
            (``average``).
        optimizer_state: each client keeps its optimizer's state (``keep``), or the state that belongs to federated
            parameters travels and is aggregated like them (``average``), or each round begins with none (``reset``).
        participation: share of the clients that take part in a round, drawn anew from (seed, round) after each
            exchange. The others are not stepped and send nothing; they receive what the exchange gives, as they would
            when they are drawn next.
        minimum: the run fails when fewer clients than this have a finite state.

    Attributes:
        rounds: exchanges so far.
        bytes: that have travelled in them, from and to all clients, with what the rule asked.
        seconds: that they took.

    Raises:
        ConfigError: values out of range.

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
        minimum: int = 1,
    ) -> None:
        problems = []
        if isinstance(every, dict) and (
            len(every) != 1 or not set(every) <= {"steps", "epochs"} or min(every.values()) < 1
        ):
            problems.append(
                f"exchange.every: expected step, epoch, {{steps: n}} or {{epochs: n}} with n of at least 1, "
                f"found {every}"
            )
        if isinstance(every, str) and every not in ("step", "epoch"):
            problems.append(f"exchange.every: expected step, epoch, {{steps: n}} or {{epochs: n}}, found {every!r}")
        if not 0 < rate <= 1:
            problems.append(
                f"exchange.rate: expected a share in (0, 1], found {rate}; for no exchange set exchange.federated: []"
            )
        if not 0 < participation <= 1:
            problems.append(
                f"exchange.participation: expected a share in (0, 1], found {participation}; 1 for all clients"
            )
        if participation < 1 and not federated:
            problems.append(
                "exchange.participation: expected something to exchange, found exchange.federated: []; set one of them"
            )
        if minimum < 1:
            problems.append(f"exchange.minimum: expected at least 1 client, found {minimum}")
        if problems:
            raise ConfigError("\n".join(problems))
        self.federated, self.rate, self.buffers, self.minimum = list(federated or []), rate, buffers, minimum
        self.optimizer_state: OptimizerState = optimizer_state
        self.participation, self.rule = participation, rule if rule is not None else Mean()
        self.every: Every = every
        self.rounds, self.bytes, self.seconds = 0, 0, 0.0
        self.not_finite: dict[str, int] = {}
        self.sharing = Sharing({}, {})
        self.sent: dict[str, frozenset[str]] = {}
        self._deferred: dict[str, Tensor] = {}
        self._fewest: Tensor | None = None
        self._initial: dict[str, dict[str, Tensor]] = {}
        self._borrowed: dict[str, set[str]] = {}

    def plan(self, clients: Mapping[str, FederatedClient]) -> Sharing:
        """Which tensors of these clients are federated; refuses what does not fit (see
        :func:`fedlit.sharing.resolve`).
        """
        taking_part = self._cohort_size(len(clients))
        if self.minimum > taking_part:
            raise ConfigError(
                f"exchange.minimum: expected at most the number of clients that take part in a round, {taking_part}, "
                f"found {self.minimum}"
            )
        sharing = resolve(clients, self.federated, self.buffers)
        if self.federated:
            self.rule.check(clients, sharing, self.rate)
        return sharing

    def due(self, step: int, last: bool, epoch: int) -> bool:
        """Whether an exchange follows an aligned step.

        Args:
            step: number of the aligned step, from 0.
            last: whether it is the last one of its epoch.
            epoch: number of the epoch, from 0.
        """
        if not self.federated:
            return False
        if isinstance(self.every, dict):
            return (
                (step + 1) % self.every["steps"] == 0
                if "steps" in self.every
                else last and (epoch + 1) % self.every["epochs"] == 0
            )
        return self.every == "step" or last

    # ------------------------------------------------------------------ when

    def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Fix which tensors are federated, now that they are on their device."""
        self.sharing = self.plan(pl_module.federation)
        for name, client in pl_module.federation.items():
            client._federated, _ = split(named_tensors(client), self.sharing.names[name])

    def on_train_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Let the rule begin, and tell clients what they start from, unless a checkpoint has restored what they made
        of it.
        """
        if trainer.global_step == 0:
            if self.federated and type(self.rule).begin is not Rule.begin:  # nothing is collected for nothing
                self._begin(pl_module)
            for name, client in pl_module.federation.items():
                with isolated_rng(derive_seed(pl_module.seed, "receive", name, "start"), pl_module.device):
                    client.on_receive({key: value.clone() for key, value in client.federated.items()})
        self._draw_cohort(pl_module)

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: FederatedLoop, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Exchange if it is time."""
        last = trainer.is_last_batch
        if self.due(trainer.global_step - 1, last, trainer.current_epoch):
            # Drift costs as much as an exchange, so not at every step.
            with isolated_rng(derive_seed(pl_module.seed, "exchange", self.rounds), pl_module.device):
                self.exchange(pl_module, measure=last or self.every != "step")
            self._draw_cohort(pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Report what an accelerator has counted."""
        self._report(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: FederatedLoop, *_: Any) -> None:  # type: ignore[override]
        """Give every client its own memory again."""
        self._return_borrowed(pl_module, list(self._borrowed))

    on_exception = on_fit_end  # type: ignore[assignment]  # a checkpoint may be loaded into these clients

    # ------------------------------------------------------------------ who

    def _cohort_size(self, clients: int) -> int:
        return max(1, math.ceil(round(self.participation * clients, 9)))  # 0.07 * 100 is 7.000000000000001

    def _draw_cohort(self, loop: FederatedLoop) -> None:
        """Who takes part in the coming round."""
        if self.participation == 1:
            return
        names = sorted(loop.federation)
        generator = torch.Generator().manual_seed(derive_seed(loop.seed, "cohort", self.rounds))
        order = torch.randperm(len(names), generator=generator).tolist()
        loop.cohort = frozenset(names[position] for position in order[: self._cohort_size(len(names))])
        self._return_borrowed(loop, loop.cohort)

    def _return_borrowed(self, loop: FederatedLoop, names: Iterable[str]) -> None:
        for name in names:
            for key in self._borrowed.pop(name, ()):
                tensor = loop.federation[name]._federated[key]
                tensor.data = tensor.data.clone()

    # ------------------------------------------------------------------ what

    @torch.no_grad()
    def _begin(self, loop: FederatedLoop) -> None:
        updates = {name: self.collect(loop, client) for name, client in loop.federation.items()}
        with isolated_rng(derive_seed(loop.seed, "exchange", "begin"), loop.device):
            received = self.rule.begin(updates)
        for name, state in received.items():
            self.write_back(loop.federation[name], state, 1.0)
        if received:
            self._weigh(updates, received)

    def _weigh(self, updates: Mapping[str, Update], received: Mapping[str, State]) -> int:
        """The bytes of an exchange, added to those of all. What a client was asked about it has already."""
        weight = sum(map(bytes_of, received.values()))
        for name, update in updates.items():
            weight += bytes_of(update.state) + bytes_of(update.published)
            if isinstance(update.party, Asked):
                had = {key: own for key, own in received.get(name, {}).items() if update.party.has(own)}
                weight += update.party.bytes - bytes_of(had)
        self.bytes += weight
        return weight

    @torch.no_grad()
    def exchange(self, loop: FederatedLoop, measure: bool = True) -> None:
        """Collect, aggregate, write back.

        On an accelerator nothing is read back from it: with a rule that takes masks, a client that is not finite is
        left out, repaired and counted on the device, and reported at the end of the epoch.

        Args:
            loop: whose clients exchange.
            measure: whether to record each client's drift, its relative distance from what it receives, before
                writing back.
        """
        begun, clients = time.perf_counter(), loop.federation
        collected = {name: self.collect(loop, client) for name, client in loop.active.items()}
        finite = all_finite({name: {**update.state, **update.published} for name, update in collected.items()})
        deferred = self.deferred(loop)
        if deferred:
            updates = {name: replace(update, finite=finite[name]) for name, update in collected.items()}
            lost: list[str] = []
            self._count(finite)
        else:
            known = dict(zip(finite, torch.stack(list(finite.values())).tolist(), strict=True)) if finite else {}
            updates = {name: update for name, update in collected.items() if known[name]}
            lost = [name for name in collected if not known[name]]
            self._require(len(updates), lost, f"exchange {self.rounds + 1}")
        receivers = {name: tuple(client.federated) for name, client in clients.items()}
        if self.optimizer_state == "average":
            receivers |= {name: tuple(update.state) for name, update in collected.items()}
        received = self.rule(updates, receivers)
        if measure:
            self._measure(loop, updates, received)
        sent = {value.data_ptr() for update in collected.values() for value in update.state.values()}
        for name, client in clients.items():
            own = received.get(name, {})
            if name not in collected and self.rate == 1:
                self._lend(client, own, sent)
            else:
                if name in lost:
                    self._recover(loop, client)
                mask = finite[name] if deferred and name in finite else None
                if mask is not None:
                    self._repair(loop, client, mask)
                self.write_back(client, own, 1.0 if name in lost else self.rate, mask)
            with isolated_rng(derive_seed(loop.seed, "receive", name, self.rounds), loop.device):
                client.on_receive(own)
            if self.optimizer_state == "reset":
                for optimizer in client._optimizers:
                    optimizer.state.clear()
        for name in lost:
            self._name(loop, name, 1, f"exchange {self.rounds + 1}")
        self.rounds += 1
        costs = {"bytes": float(self._weigh(collected, received)), "seconds": time.perf_counter() - begun}
        self.seconds += costs["seconds"]
        loop.record({f"exchange/{tag}": value for tag, value in {**costs, **self.rule.scalars}.items()})

    def _measure(self, loop: FederatedLoop, updates: Mapping[str, Update], received: Mapping[str, State]) -> None:
        drift = {}
        for name, update in updates.items():
            state = {key: update.state[key] for key in self.sharing.parameters[name] if key in update.state}
            value = relative_distance(state, received.get(name, {}))
            if value is not None:
                drift[name] = value
        loop.record({f"{name}/drift": value for name, value in drift.items()})
        if drift:
            loop.record(
                {"drift": torch.stack(list(drift.values())).nanmean(), "exchange/rounds": float(self.rounds + 1)}
            )

    def collect(self, loop: FederatedLoop, client: FederatedClient) -> Update:
        """What a client sends: its federated tensors, and no others (checked against the plan at every exchange)."""
        name = client.spec.name
        state = dict(client.federated)
        if self.optimizer_state == "average":
            state |= self._optimizer_tensors(client)
        allowed = set(self.sharing.names[name])
        private = [key for key in state if key.partition("@")[0] not in allowed]
        if private:
            raise RunError(
                f"client {name!r}: expected only federated tensors in an exchange, found {private}; this is a "
                "defect, please report it"
            )
        published = client.publish()
        for key, value in published.items():
            if not value.is_floating_point():
                raise RunError(
                    f"client {name!r}: expected floating-point tensors from publish, found {key} of {value.dtype}"
                )
        self.sent[name] = self.sent.get(name, frozenset()) | state.keys() | {f"published/{key}" for key in published}
        parameters = self.sharing.parameters[name]
        party = Asked(loop, client, parameters)
        return Update(state, client.spec.rows["train"], published, parameters=parameters, party=party)

    @torch.no_grad()
    def write_back(self, client: FederatedClient, received: State, rate: float, finite: Tensor | None = None) -> None:
        """ω_k ← (1 − r) ω_k + r ω̄_k on the device that the tensors are on; ω_k ← ω̄_k where ``finite`` is false."""
        own = dict(client.federated)
        if self.optimizer_state == "average":
            own |= self._optimizer_tensors(client)
        names = [name for name in received if name in own]
        mine, theirs = [own[name] for name in names], [received[name].to(own[name].dtype) for name in names]
        if not names:
            return
        if rate == 1:
            torch._foreach_copy_(mine, theirs)
            return
        if finite is not None:
            torch._foreach_copy_(mine, [torch.where(finite, a, b) for a, b in zip(mine, theirs, strict=True)])
        torch._foreach_lerp_(mine, theirs, rate)

    def _lend(self, client: FederatedClient, received: State, sent: set[int]) -> None:
        """Let a client that is idle share the memory of what it receives, until it is drawn: a thousand idle clients
        then hold one federated part.
        """
        kept = {}
        for name, value in received.items():
            own = client._federated.get(name)
            if own is None or value.dtype != own.dtype or value.data_ptr() in sent or not value.is_contiguous():
                kept[name] = value
            else:
                own.data = value.detach()
                self._borrowed.setdefault(client.spec.name, set()).add(name)
        self.write_back(client, kept, 1.0)

    def _optimizer_tensors(self, client: FederatedClient) -> dict[str, Tensor]:
        """The optimizers' tensors that belong to federated parameters and have their shape, as
        ``<parameter>@<name>``.
        """
        parameters = dict(client.named_parameters())
        found: dict[str, Tensor] = {}
        for name in self.sharing.parameters[client.spec.name]:
            for optimizer in client._optimizers:
                for key, value in optimizer.state.get(parameters[name], {}).items():
                    if isinstance(value, Tensor) and value.shape == parameters[name].shape:
                        found[f"{name}@{key}"] = value
        return found

    # ------------------------------------------------------------------ clients that are not finite

    def deferred(self, loop: FederatedLoop) -> bool:
        """Whether clients that are not finite are found on the device and reported later."""
        return loop.device.type != "cpu" and self.rule.takes_masks

    def _require(self, remaining: int, lost: list[str], where: str) -> None:
        if remaining < self.minimum:
            raise RunError(
                f"{where}: expected a finite state from at least {self.minimum} clients, found it at {remaining} "
                f"(not finite: {', '.join(lost)}); lower the learning rate, clip gradients "
                "(model.gradient_clip_val) or look at these clients' data"
            )

    def _name(self, loop: FederatedLoop, name: str, times: int, where: str) -> None:
        self.not_finite[name] = self.not_finite.get(name, 0) + times
        loop.record({f"{name}/exchange/not_finite": float(self.not_finite[name])})
        _log.warning(f"{where}: client {name!r} was left out, its state is not finite; it received the aggregate")

    def _count(self, finite: Mapping[str, Tensor]) -> None:
        for name, flag in finite.items():
            lost = (~flag).long()
            self._deferred[name] = self._deferred[name] + lost if name in self._deferred else lost
        remaining = torch.stack(list(finite.values())).sum()
        self._fewest = remaining if self._fewest is None else torch.minimum(self._fewest, remaining)

    def _report(self, loop: FederatedLoop) -> None:
        """Read what was counted on the device, in one transfer."""
        if self._fewest is None:
            return
        fewest, *counts = torch.stack([self._fewest, *self._deferred.values()]).tolist()
        lost = {name: count for name, count in zip(self._deferred, counts, strict=True) if count}
        self._deferred, self._fewest = {}, None
        where = f"until exchange {self.rounds}"
        for name, count in lost.items():
            self._name(loop, name, count, where)
        self._require(fewest, list(lost), where)

    def _recover(self, loop: FederatedLoop, client: FederatedClient) -> None:
        """Empty the optimizers' state, and start again where a tensor is not finite: otherwise the client would be
        lost for good.
        """
        for optimizer in client._optimizers:
            optimizer.state.clear()
        initial = named_tensors(loop.fresh(client.spec))
        for name, tensor in named_tensors(client).items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                tensor.copy_(initial[name])

    def _repair(self, loop: FederatedLoop, client: FederatedClient, finite: Tensor) -> None:
        """:meth:`_recover` where ``finite`` is false, without reading it."""
        name = client.spec.name
        if name not in self._initial:
            fresh = named_tensors(loop.fresh(client.spec))
            self._initial[name] = {key: value.detach().to(loop.device) for key, value in fresh.items()}
        for key, tensor in named_tensors(client).items():
            if tensor.is_floating_point():
                keep = finite | torch.isfinite(tensor).all()
                tensor.copy_(torch.where(keep, tensor, self._initial[name][key]))
        for optimizer in client._optimizers:
            for state in optimizer.state.values():
                for key, value in state.items():
                    # NOTE[DIFF]: alike clients in a stack share one count of steps, which goes on for all of them
                    own = key != "step" or not client.stacked
                    if own and isinstance(value, Tensor) and value.device == finite.device:
                        value.masked_fill_(~finite, 0)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs."""
        counted = {name: getattr(self, name) for name in ("rounds", "bytes", "seconds", "not_finite")}
        return {**counted, "rule": self.rule.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore."""
        for name in ("rounds", "bytes", "seconds", "not_finite"):
            setattr(self, name, state_dict[name])
        self.rule.load_state_dict(state_dict["rule"])
