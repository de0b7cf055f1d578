"""The exchange: when clients' federated states are aggregated, by which rule, and how much of the result each
takes over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from fedlit.aggregation import Mean, Rule, Update
from fedlit.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.loop import FederatedLoop
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Buffers, Sharing, State, named_tensors, resolve, split

__all__ = ["Every", "Exchange", "OptimizerState", "relative_distance"]

Every = Literal["step", "epoch"] | dict[str, int]
OptimizerState = Literal["keep", "average"]
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
            parameters travels and is aggregated like them (``average``).
        minimum: the run fails when fewer clients than this have a finite state.

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
        if minimum < 1:
            problems.append(f"exchange.minimum: expected at least 1 client, found {minimum}")
        if problems:
            raise ConfigError("\n".join(problems))
        self.federated, self.rate, self.buffers, self.minimum = list(federated or []), rate, buffers, minimum
        self.optimizer_state: OptimizerState = optimizer_state
        self.rule = rule if rule is not None else Mean()
        self.every: Every = every
        self.rounds = 0
        self.not_finite: dict[str, int] = {}
        self.sharing = Sharing({}, {})
        self.sent: dict[str, frozenset[str]] = {}

    def plan(self, clients: Mapping[str, FederatedClient]) -> Sharing:
        """Which tensors of these clients are federated; refuses what does not fit (see
        :func:`fedlit.sharing.resolve`).
        """
        if self.minimum > len(clients):
            raise ConfigError(
                f"exchange.minimum: expected at most the number of clients, {len(clients)}, found {self.minimum}"
            )
        return resolve(clients, self.federated, self.buffers)

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
        """Tell clients what they start from, unless a checkpoint has restored what they made of it."""
        if trainer.global_step == 0:
            for name, client in pl_module.federation.items():
                with isolated_rng(derive_seed(pl_module.seed, "receive", name, "start"), pl_module.device):
                    client.on_receive({key: value.clone() for key, value in client.federated.items()})

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: FederatedLoop, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Exchange if it is time."""
        last = trainer.is_last_batch
        if self.due(trainer.global_step - 1, last, trainer.current_epoch):
            # Drift costs as much as an exchange, so not at every step.
            with isolated_rng(derive_seed(pl_module.seed, "exchange", self.rounds), pl_module.device):
                self.exchange(pl_module, measure=last or self.every != "step")

    # ------------------------------------------------------------------ what

    @torch.no_grad()
    def exchange(self, loop: FederatedLoop, measure: bool = True) -> None:
        """Collect, aggregate, write back.

        Args:
            loop: whose clients exchange.
            measure: whether to record each client's drift, its relative distance from what it receives, before
                writing back.
        """
        clients = loop.federation
        collected = {name: self.collect(client) for name, client in clients.items()}
        finite = _finite({name: {**update.state, **update.published} for name, update in collected.items()})
        updates = {name: update for name, update in collected.items() if finite[name]}
        lost = [name for name in clients if not finite[name]]
        if len(updates) < self.minimum:
            raise RunError(
                f"exchange {self.rounds + 1}: expected a finite state from at least {self.minimum} clients, "
                f"found it at {len(updates)} "
                f"(not finite: {', '.join(lost)}); lower the learning rate, clip gradients "
                "(model.gradient_clip_val) or look at these clients' data"
            )
        receivers = {name: tuple(update.state) for name, update in collected.items()}
        received = self.rule(updates, receivers)
        if measure:
            distances = {
                name: relative_distance(
                    {
                        key: updates[name].state[key]
                        for key in self.sharing.parameters[name]
                        if key in updates[name].state
                    },
                    received.get(name, {}),
                )
                for name in updates
            }
            drift = {name: value for name, value in distances.items() if value is not None}
            loop.record({f"{name}/drift": value for name, value in drift.items()})
            if drift:
                loop.record({"drift": sum(drift.values()) / len(drift), "exchange/rounds": float(self.rounds + 1)})
        for name, client in clients.items():
            if name in lost:
                self._recover(loop, client)
            self.write_back(client, received.get(name, {}), 1.0 if name in lost else self.rate)
            with isolated_rng(derive_seed(loop.seed, "receive", name, self.rounds), loop.device):
                client.on_receive(received.get(name, {}))
        for name in lost:
            self.not_finite[name] = self.not_finite.get(name, 0) + 1
            loop.record({f"{name}/exchange/not_finite": float(self.not_finite[name])})
            _log.warning(
                f"exchange {self.rounds + 1}: client {name!r} was left out, its state is not finite; it "
                "received the aggregate"
            )
        self.rounds += 1

    def collect(self, client: FederatedClient) -> Update:
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
        return Update(state, client.spec.rows["train"], published)

    @torch.no_grad()
    def write_back(self, client: FederatedClient, received: State, rate: float) -> None:
        """ω_k ← (1 − r) ω_k + r ω̄_k on the device that the tensors are on."""
        own = dict(client.federated)
        if self.optimizer_state == "average":
            own |= self._optimizer_tensors(client)
        names = [name for name in received if name in own]
        mine, theirs = [own[name] for name in names], [received[name].to(own[name].dtype) for name in names]
        if not names:
            return
        if rate == 1:
            torch._foreach_copy_(mine, theirs)
        else:
            torch._foreach_lerp_(mine, theirs, rate)

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

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {"rounds": self.rounds, "not_finite": dict(self.not_finite), "rule": self.rule.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore."""
        self.rounds, self.not_finite = state_dict["rounds"], state_dict["not_finite"]
        self.rule.load_state_dict(state_dict["rule"])


def _finite(states: Mapping[str, State]) -> dict[str, bool]:
    """Whether all values of a client are finite; read from the device once for all clients."""
    flags = []
    for state in states.values():
        tensors = list(state.values())
        # the largest magnitude is finite exactly if all values are
        flags.append(
            torch.isfinite(torch.stack(torch._foreach_norm(tensors, float("inf")))).all()
            if tensors
            else torch.tensor(True)
        )
    return dict(zip(states, torch.stack(flags).tolist(), strict=True)) if flags else {}


def relative_distance(state: State, reference: State) -> float | None:
    """‖ω_k − ω̄‖ / ‖ω̄‖ over the tensors that both have (Euclidean norm over all of them); None where ω̄ is nothing or 0.

    Example:
        >>> relative_distance({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([3.0, 0.0])})
        1.3333333333333333
    """
    names = [name for name in state if name in reference]
    if not names:
        return None
    mine, theirs = [state[name] for name in names], [reference[name] for name in names]
    distance = float(torch.stack(torch._foreach_norm(torch._foreach_sub(mine, theirs))).norm())
    size = float(torch.stack(torch._foreach_norm(theirs)).norm())
    return distance / size if size else None
