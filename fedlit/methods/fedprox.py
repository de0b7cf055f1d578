"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith 2020, "Federated Optimization in Heterogeneous Networks",
arXiv:1812.06127).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
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
        class_weights: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: μ below 0.

    Example:
        >>> from fedlit.nn import MLP
        >>> FedProx(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, mu=0.1).mu
        0.1
    """

    private = ("received",)
    stackable = True

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
        parameters = dict(self.named_parameters())
        self.received = nn.Module()  # w_t; which of it is federated is not known yet
        for name, value in parameters.items() if mu else ():
            self.received.register_buffer(_as_buffer(name), torch.zeros_like(value))

    def on_receive(self, received: State) -> None:
        """Remember it; what was not received stays where it was."""
        live, buffers = self._federated, self._buffers_by_name()
        for name in live:
            if name in received and live.tensor_of(name) in buffers:
                live.pick(buffers, name).copy_(received[name])

    def _buffers_by_name(self) -> dict[str, Tensor]:
        return {name.replace("/", "."): value for name, value in self.received.named_buffers()}

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss and the proximal term."""
        loss = super().objective(x, y)
        parameters = dict(self.named_parameters())
        live, received = self._federated, self._buffers_by_name()
        names = [name for name in live if live.tensor_of(name) in parameters] if self.mu else []
        if not names:
            return loss
        away = [(live.pick(parameters, name) - live.pick(received, name)).square().sum() for name in names]
        return loss + self.mu / 2 * torch.stack(away).sum()


def _as_buffer(name: str) -> str:
    return name.replace(".", "/")
