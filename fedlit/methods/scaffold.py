"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich and Suresh 2020, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", arXiv:1910.06378, Algorithm 1, option II).
"""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
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
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> Scaffold(spec, MLP)(torch.zeros(4, 2)).shape
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
        if self.fine_tuning:  # A private model is not corrected towards the others.
            return loss
        correction = by_name(self.correction)
        federated = {self._federated.tensor_of(name) for name in self._federated}
        terms = [
            (w * correction[name]).sum() for name, w in self.named_parameters() if name in federated
        ]
        return loss + torch.stack(terms).sum() if terms else loss

    def _federated_parameters(self) -> dict[str, Tensor]:
        """Return the federated parameters by name."""
        federated = self._federated.of(dict(self.named_parameters()))
        return {name: w.detach() for name, w in federated.items()}

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse an optimizer whose steps are not gradients times a rate."""
        probe = self.optimizer_factory([nn.Parameter(torch.zeros(1))])
        momentum = probe.param_groups[0].get("momentum", 0)
        plain = type(probe) is torch.optim.SGD
        if plain and not momentum:
            return []
        optimizer = f"momentum {momentum}" if plain else type(probe).__name__
        raise ConfigError(
            f"client {self.spec.name!r}: {type(self).__name__} expected model.optimizer: "
            "torch.optim.SGD without momentum, because its variates are mean gradients, found "
            f"{optimizer}; set that, or take another method"
        )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Note the learning rate, which a schedule may change after the step."""
        self.state["lr"] = float(self._optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Add the learning rate to K η if the optimizer took a step."""
        if self.steps_taken > self.state["steps"]:
            self.state |= {"way": self.state["way"] + self.state["lr"], "steps": self.steps_taken}

    def on_send(self, steps: int) -> None:
        """Compute the change of c_k, −c + (x − y) / (K η); there is none if no step was taken."""
        self._change = {}
        sum_of_rates = self.state["way"]  # K η
        if not sum_of_rates:
            return
        start = self.state["start"]
        control = self.state["control"]
        corrections = self._federated.of(by_name(self.correction))
        for name, w in self._federated_parameters().items():
            mean_gradient = (start[name] - w) / sum_of_rates
            self._change[name] = mean_gradient - control[name] - corrections[name]

    def publish(self) -> State:
        """Return the change of c_k."""
        zeros = {name: torch.zeros_like(w) for name, w in self._federated_parameters().items()}
        return {f"{CONTROL}{name}": self._change.get(name, zero) for name, zero in zeros.items()}

    @torch.no_grad()
    def on_receive(self, received: State) -> None:
        """Take over c, and apply the change of c_k if it counted; x is now the state that the
        client starts from.
        """
        parameters = self._federated_parameters()
        corrections = self._federated.of(by_name(self.correction))
        control = self.state["control"]
        counts = received.get(f"{DOWN}counted")
        for name, w in parameters.items():
            zero = torch.zeros_like(w)
            c_k = control.get(name, zero)
            if counts is not None:
                changed = c_k + self._change.get(name, zero)
                c_k = torch.where(counts.to(c_k.device) > 0, changed, c_k)
                c = received.get(f"{DOWN}{CONTROL}{name}", zero)
                corrections[name].copy_(c - c_k)
            elif received:  # A run begins without control variates.
                c_k = zero
                corrections[name].zero_()
            control[name] = c_k
        self._change = {}
        self.state |= {
            "start": {name: w.clone() for name, w in parameters.items()},
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
    # NOTE[DIFF]: clients have equal weights; the paper has no weights.
    sends = "the mean of the clients' control variates, as large as the federated parameters"
    facts = Facts(requires="Scaffold")
    _memory = ("control",)

    def __init__(self) -> None:
        super().__init__()
        self.needs = frozenset({"states"})  # The mean of published values is not enough.
        self._control: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        owners = Counter(chain.from_iterable(round.receivers.values()))
        for _, update in sorted(round.updates.items()):
            for name in update.parameters:
                change = update.published[f"{CONTROL}{name}"]
                self._control[name] = self._control.get(name, 0) + change / owners[name]
        control = {name: value.clone() for name, value in self._control.items()}
        counts = counted(round)
        states = super().__call__(round)
        messages: dict[str, State] = {}
        for (client, state), names in zip(states.items(), round.receivers.values(), strict=True):
            variates = {
                f"{DOWN}{CONTROL}{name}": value for name, value in control.items() if name in names
            }
            messages[client] = {**state, **variates, f"{DOWN}counted": counts[client]}
        return messages
