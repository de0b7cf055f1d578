"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith 2020, "Federated Optimization in Heterogeneous Networks",
arXiv:1812.06127).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.nn import NetworkFactory
from fedlit.sharing import State
from fedlit.spec import ClientSpec

__all__ = ["FedProx"]


class FedProx(FederatedClient):
    """Adds μ/2 · ‖w − w_t‖² to the loss, over the federated parameters: w_t is what the last exchange gave (Eq. 2).

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        mu: μ, at least 0; with 0 the client is a plain one, bit for bit.
        class_weights: see :class:`~fedlit.client.FederatedClient`.

    Raises:
        ConfigError: μ below 0.

    Example:
        >>> from fedlit.nn import MLP
        >>> FedProx(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, mu=0.1).mu
        0.1
    """

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        mu: float = 0.01,
        class_weights: Literal["none", "balanced"] = "none",
    ) -> None:
        super().__init__(spec, network, class_weights)
        if not mu >= 0:
            raise ConfigError(f"FedProx: mu: expected at least 0, found {mu}")
        self.mu = mu

    def on_receive(self, received: State) -> None:
        """Remember it."""
        if self.mu:
            trained = dict(self.named_parameters())
            # a client that receives only some of its tensors keeps the others where they are
            kept = {name: value for name, value in self.federated.items() if name in trained}
            self.state["received"] = {name: received.get(name, value).clone() for name, value in kept.items()}

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss and the proximal term."""
        loss = super().objective(x, y)
        received: State = self.state.get("received", {})
        if not received:
            return loss
        trained = dict(self.named_parameters())
        away = torch._foreach_sub([trained[name] for name in received], list(received.values()))
        return loss + self.mu / 2 * torch.stack([value.square().sum() for value in away]).sum()
