"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich and Suresh 2020, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", arXiv:1910.06378, Algorithm 1, option II).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.rule import DOWN, Facts, Round
from fedlit.exchange.rules.mean import Mean, counted
from fedlit.methods.bases import by_name, zero_buffers
from fedlit.nn.network import NetworkFactory
from fedlit.sharing import State
from fedlit.spec import ClientSpec

CONTROL = "control/"


class Scaffold(FederatedClient):
    """Corrects each gradient by c − c_k, the server's control variate minus the client's own, over
    the federated parameters (Eq. 3). It needs :class:`ScaffoldMean` as rule, and plain SGD.

    After a round of K steps of rate η from x to y, c_k ← c_k − c + (x − y) / (K η) (Eq. 4, option
    II), which is the mean gradient on the way. K η is the sum of the rates that were used, so
    schedules, accumulated batches and varying numbers of steps are taken into account. The effects
    of weight decay and clipping on gradients are in the variates, too. The change of c_k is sent
    with the state. It is applied once the rule reports that it counted, so that a client that was
    left out has the variate that the server knows. In fine-tuning, nothing is corrected.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: the optimizer is not plain SGD, so that its steps are not gradients.

    Example:
        >>> from fedlit import MLP
        >>> Scaffold(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP)(torch.zeros(4, 2)).shape
        torch.Size([4, 1])
    """

    adapts = False
    private = ("correction",)
    requires: Mapping[str, tuple[str, ...]] = {"exchange.rule": ("ScaffoldMean",)}
    stackable = True

    def __init__(self, spec: ClientSpec, network: NetworkFactory, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        self.correction = zero_buffers(dict(self.named_parameters()))  # c − c_k
        self.state |= {"control": {}, "start": {}, "way": 0.0, "steps": 0, "lr": 0.0}
        self._change: dict[str, Tensor] = {}

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss plus ⟨c − c_k, w⟩, whose gradient is the correction."""
        loss = super().objective(x, y)
        own = dict(self.named_parameters())
        correction = by_name(self.correction)
        if self.fine_tuning:  # what is the client's own is not drawn to the others
            return loss
        names = own.keys() & {self._federated.tensor_of(name) for name in self._federated}
        terms = [(own[name] * correction[name]).sum() for name in own if name in names]
        return loss + torch.stack(terms).sum() if terms else loss

    @property
    def _mine(self) -> dict[str, Tensor]:
        """The federated parameters by name."""
        return {
            name: w.detach()
            for name, w in self._federated.of(dict(self.named_parameters())).items()
        }

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse an optimizer whose steps are not gradients times a rate."""
        probe = self.optimizer_factory([nn.Parameter(torch.zeros(1))])
        momentum = probe.param_groups[0].get("momentum", 0)
        if type(probe) is not torch.optim.SGD or momentum:
            found = (
                f"momentum {momentum}" if type(probe) is torch.optim.SGD else type(probe).__name__
            )
            raise ConfigError(
                f"client {self.spec.name!r}: {type(self).__name__} expected model.optimizer: "
                "torch.optim.SGD without momentum, because its variates are mean gradients, found "
                f"{found}; set that, or take another method"
            )
        return []

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Note the learning rate, which a schedule may change after the step."""
        self.state["lr"] = float(self._optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Add the learning rate to K η if the optimizer took a step."""
        if self.steps_taken > self.state["steps"]:
            self.state |= {"way": self.state["way"] + self.state["lr"], "steps": self.steps_taken}

    def on_send(self, steps: int) -> None:
        """Compute the change of c_k, −c + (x − y) / (K η); there is none if no step was taken."""
        way = self.state["way"]
        start = self.state["start"]
        control = self.state["control"]
        corrections = self._federated.of(by_name(self.correction))
        self._change = {
            name: (start[name] - value) / way - control[name] - corrections[name]
            for name, value in self._mine.items()
            if way
        }

    def publish(self) -> State:
        """Return the change of c_k."""
        zeros = {name: torch.zeros_like(value) for name, value in self._mine.items()}
        return {f"{CONTROL}{name}": self._change.get(name, zero) for name, zero in zeros.items()}

    @torch.no_grad()
    def on_receive(self, received: State) -> None:
        """Take over c, and apply the change of c_k if it counted; x is now the state that the
        client starts from.
        """
        mine = self._mine
        corrections = self._federated.of(by_name(self.correction))
        known = self.state["control"]
        did = received.get(f"{DOWN}counted")
        for name, value in mine.items():
            zero = torch.zeros_like(value)
            # a run begins with none
            own = known.get(name, zero) if did is not None or not received else zero
            if did is not None:
                own = torch.where(did.to(own.device) > 0, own + self._change.get(name, zero), own)
                c = received.get(f"{DOWN}{CONTROL}{name}", zero)
                corrections[name].copy_(c - own)
            elif received:
                corrections[name].zero_()
            known[name] = own
        self._change = {}
        self.state |= {
            "start": {name: value.clone() for name, value in mine.items()},
            "way": 0.0,
            "steps": 0,
        }


class ScaffoldMean(Mean):
    """Every client receives the mean of the clients' states and, in addition, c, the mean of all
    clients' control variates: c ← c + Σ Δc_k / N, summed over the clients that take part, where N
    is the number of all clients that have the tensor.

    Example:
        >>> ScaffoldMean().state_dict()
        {'control': {}}
    """

    # NOTE[DIFF]: the server's own rate is 1, as in the paper's experiments.
    # NOTE[DIFF]: clients count alike; the paper has no weights.
    sends = "the mean of the clients' control variates, as large as the federated parameters"
    facts = Facts(requires="Scaffold")
    _memory = ("control",)

    def __init__(self) -> None:
        super().__init__()
        self.needs = frozenset({"states"})  # what clients publish is no mean
        self._control: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        owners = [name for names in round.receivers.values() for name in names]
        for _, update in sorted(round.updates.items()):
            for name in update.parameters:
                change = update.published[f"{CONTROL}{name}"]
                self._control[name] = self._control.get(name, 0) + change / owners.count(name)
        beside = {f"{DOWN}{CONTROL}{name}": value.clone() for name, value in self._control.items()}
        did = counted(round)
        return {
            client: {
                **state,
                **{
                    key: value
                    for key, value in beside.items()
                    if key.removeprefix(f"{DOWN}{CONTROL}") in names
                },
                f"{DOWN}counted": did[client],
            }
            for (client, state), names in zip(
                super().__call__(round).items(), round.receivers.values(), strict=True
            )
        }
