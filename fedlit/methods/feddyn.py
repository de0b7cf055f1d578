"""FedDyn (Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama 2021, "Federated Learning Based on Dynamic
Regularization", arXiv:2111.04263, Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.rule import DOWN, Facts, Round
from fedlit.exchange.rules.mean import counted
from fedlit.exchange.rules.server import ServerOptimizer
from fedlit.methods.anchored import Anchored, by_name, zero_buffers
from fedlit.nn import NetworkFactory
from fedlit.sharing import State
from fedlit.spec import ClientSpec

__all__ = ["FedDyn", "FedDynMean"]


class FedDyn(Anchored):
    """Adds −⟨g_k, w⟩ + α/2 · ‖w − w_t‖² to the loss, over the federated parameters (Eq. 1): w_t is what the last
    exchange gave, g_k the client's gradient there, as it is known: g_k ← g_k − α (w_k − w_t) after each round. Needs
    :class:`FedDynMean` as rule. When the client is fine-tuned, nothing is added.

    The change of g_k holds once the rule says that the client's update counted.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        alpha: α, above 0 and the same at all clients: the larger, the shorter the way in a round.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: an α that is not above 0.

    Example:
        >>> from fedlit.nn import MLP
        >>> FedDyn(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, alpha=0.5).alpha
        0.5
    """

    # NOTE[DIFF]: the paper minimises the sum exactly; here a client takes the steps of the configuration.
    private = ("received", "gradient")
    requires: Mapping[str, tuple[str, ...]] = {"exchange.rule": ("FedDynMean",)}
    stackable = True

    def __init__(self, spec: ClientSpec, network: NetworkFactory, alpha: float = 0.1, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        if not alpha > 0:
            raise ConfigError(f"FedDyn: alpha: expected a number above 0, found {alpha}; without it take plain clients")
        self.alpha = alpha
        self.anchor()
        self.gradient = zero_buffers(dict(self.named_parameters()))
        self._change: dict[str, Tensor] = {}

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss, the proximal term and the linear one."""
        loss, own = super().objective(x, y), dict(self.named_parameters())
        if self.fine_tuning:  # what is the client's own is not drawn to the others
            return loss
        gradient = self._federated.of(by_name(self.gradient))
        terms = [(gradient[name] * w).sum() for name, w in self._federated.of(own).items()]
        return self.pulled(loss, self.alpha, own) - torch.stack(terms).sum() if terms else loss

    def on_send(self, steps: int) -> None:
        """Send the change of g_k: −α (w_k − w_t)."""
        pairs = self.pairs(dict(self.named_parameters()))
        self._change = {name: -self.alpha * (w.detach() - w_t) for name, (w, w_t) in pairs.items()}

    def publish(self) -> State:
        """α, by which the rule sees that all clients have one."""
        return {"alpha": torch.tensor(self.alpha, device=self.device)}

    @torch.no_grad()
    def on_receive(self, received: State) -> None:
        """Remember it, and g_k's change if it counted."""
        super().on_receive(received)
        did = received.get(f"{DOWN}counted")
        if did is None and received:
            for value in self.gradient.buffers():  # a run begins with none
                value.zero_()
        if did is not None:
            gradient = self._federated.of(by_name(self.gradient))
            for name, change in self._change.items():
                g = gradient[name]
                g.copy_(torch.where(did.to(g.device) > 0, g + change, g))
        self._change = {}


class FedDynMean(ServerOptimizer):
    """Every client receives w_{t+1} = w̄ − h/α, with h ← h − α/m Σ (w_k − w_t): w̄ is the mean of those that take part, m
    the number of all clients that have the tensor.

    It keeps −h/α, how far clients have gone in all, so that it need not know α.

    Example:
        >>> FedDynMean().state_dict()
        {'given': {}, 'gone': {}}
    """

    moments = ("gone",)
    sends = "whether its update counted"
    facts = Facts(requires="FedDyn", whole_rate=True)

    def __init__(self) -> None:
        super().__init__(1.0)
        self.needs = frozenset({"states"})  # what clients publish is no mean
        self._share: dict[str, Tensor | float] = {}

    def begin(self, round: Round) -> Mapping[str, State]:
        """Remember what clients start from, and refuse clients of another α."""
        alphas = {client: float(update.published["alpha"]) for client, update in round.updates.items()}
        for client, alpha in alphas.items():
            if alpha != next(iter(alphas.values())):
                raise ConfigError(
                    f"client {client!r}: FedDynMean expected one alpha at all clients, found alpha {alpha:g}; set no "
                    "other alpha in model.overrides"
                )
        return super().begin(round)

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        did = counted(round)
        came: dict[str, list[Tensor]] = {}
        for client, update in round.updates.items():
            for name in update.parameters:
                came.setdefault(name, []).append(did[client])
        owners = [name for names in round.receivers.values() for name in names]
        self._share = {name: torch.stack(own).sum() / owners.count(name) for name, own in came.items()}
        return {client: {**state, f"{DOWN}counted": did[client]} for client, state in super().__call__(round).items()}

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~fedlit.exchange.rules.server.ServerOptimizer`."""
        gone = self._share[name] * (mean - before) + (0 if moments["gone"] is None else moments["gone"])
        return mean + gone, {"gone": gone}
