"""FedDyn (Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama 2021, "Federated Learning
Based on Dynamic Regularization", arXiv:2111.04263, Algorithm 1).
"""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import ConfigError, expect
from fedlit.exchange.rule import DOWN, Facts, Round
from fedlit.exchange.rules.mean import counted
from fedlit.exchange.rules.server_optimizer import ServerOptimizer
from fedlit.methods.bases import Anchored, by_name, zero_buffers
from fedlit.nn.network import NetworkFactory
from fedlit.sharing import State
from fedlit.spec import ClientSpec


class FedDyn(Anchored):
    """Adds −⟨g_k, w⟩ + α/2 · ‖w − w_t‖² to the loss, over the federated parameters (Eq. 1). Here
    w_t is the result of the last exchange, and g_k is the known estimate of the client's gradient
    there: g_k ← g_k − α (w_k − w_t) after each round. It needs :class:`FedDynMean` as rule. In
    fine-tuning, nothing is added.

    The change of g_k is applied once the rule reports that the client's update counted.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        alpha: α, above 0 and the same at all clients: the larger it is, the less a client moves in
            a round.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: α is not above 0.

    Example:
        >>> from fedlit import MLP
        >>> FedDyn(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, alpha=0.5).alpha
        0.5
    """

    adapts = False

    # NOTE[DIFF]: the paper minimises the sum exactly; here a client takes the steps of the
    # configuration.
    private = ("received", "gradient")
    requires: Mapping[str, tuple[str, ...]] = {"exchange.rule": ("FedDynMean",)}
    stackable = True

    def __init__(
        self, spec: ClientSpec, network: NetworkFactory, alpha: float = 0.1, **kwargs: Any
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(
            alpha > 0, "FedDyn: alpha", "a number above 0", alpha, "without it take plain clients"
        )
        self.alpha = alpha
        self.anchor()
        self.gradient = zero_buffers(dict(self.named_parameters()))
        self._change: dict[str, Tensor] = {}

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss with the proximal and the linear term."""
        loss = super().objective(x, y)
        if self.fine_tuning:  # A private model is not pulled towards the federation's.
            return loss
        parameters = dict(self.named_parameters())
        gradient = self._federated.of(by_name(self.gradient))
        terms = [(gradient[name] * w).sum() for name, w in self._federated.of(parameters).items()]
        if not terms:
            return loss
        return self.pulled(loss, self.alpha, parameters) - torch.stack(terms).sum()

    def on_send(self, steps: int) -> None:
        """Compute the change of g_k, −α (w_k − w_t), which is applied if the update counts."""
        pairs = self.pairs(dict(self.named_parameters()))
        self._change = {name: -self.alpha * (w.detach() - w_t) for name, (w, w_t) in pairs.items()}

    def publish(self) -> State:
        """Return α, by which the rule checks that all clients have the same one."""
        return {"alpha": torch.full((), self.alpha, device=self.device)}

    @torch.no_grad()
    def on_receive(self, received: State) -> None:
        """Remember the received state, and apply the change of g_k if the update counted."""
        super().on_receive(received)
        counts = received.get(f"{DOWN}counted")
        if counts is None and received:
            for value in self.gradient.buffers():  # A run begins without an estimate.
                value.zero_()
        if counts is not None:
            gradient = self._federated.of(by_name(self.gradient))
            for name, change in self._change.items():
                g = gradient[name]
                g.copy_(torch.where(counts.to(g.device) > 0, g + change, g))
        self._change = {}


class FedDynMean(ServerOptimizer):
    """Every client receives w_{t+1} = w̄ − h/α, with h ← h − α/m Σ (w_k − w_t), where w̄ is the
    mean of the clients that take part, and m is the number of all clients that have the tensor.

    It keeps −h/α, the movement of clients in total, so that it need not know α.

    Example:
        >>> FedDynMean().state_dict()
        {'given': {}, 'gone': {}}
    """

    moments = ("gone",)
    sends = "whether its update counted"
    facts = Facts(requires="FedDyn", whole_rate=True)

    def __init__(self) -> None:
        super().__init__(1.0)
        self.needs = frozenset({"states"})  # The mean of published values is not enough.
        self._share: dict[str, Tensor | float] = {}

    def begin(self, round: Round) -> Mapping[str, State]:
        """Remember the clients' common start, and refuse clients with different values of α."""
        alphas = {
            client: float(update.published["alpha"]) for client, update in round.updates.items()
        }
        for client, alpha in alphas.items():
            if alpha != next(iter(alphas.values())):
                raise ConfigError(
                    f"client {client!r}: FedDynMean expected one alpha at all clients, found alpha "
                    f"{alpha:g}; set no other alpha in model.overrides"
                )
        return super().begin(round)

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        counts = counted(round)
        counts_by_name: dict[str, list[Tensor]] = {}
        for client, update in round.updates.items():
            for name in update.parameters:
                counts_by_name.setdefault(name, []).append(counts[client])
        owners = Counter(chain.from_iterable(round.receivers.values()))
        self._share = {
            name: torch.stack(parts).sum() / owners[name] for name, parts in counts_by_name.items()
        }
        return {
            client: {**state, f"{DOWN}counted": counts[client]}
            for client, state in super().__call__(round).items()
        }

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~fedlit.exchange.rules.server_optimizer.ServerOptimizer`."""
        earlier = moments["gone"]
        gone = self._share[name] * (mean - before) + (0 if earlier is None else earlier)
        return mean + gone, {"gone": gone}
