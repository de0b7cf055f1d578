"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith 2020, "Federated Optimization in
Heterogeneous Networks", arXiv:1812.06127).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedlit.errors import expect
from fedlit.methods.bases import Anchored
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec


class FedProx(Anchored):
    """Adds μ/2 · ‖w − w_t‖², taken over the federated parameters, to the loss; w_t is the result of
    the last exchange (Eq. 2).

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        mu: μ, at least 0; with 0 the client is a plain one, bit for bit.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: μ is below 0.

    Example:
        >>> from fedlit import MLP
        >>> FedProx(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, mu=0.1).mu
        0.1
    """

    stackable = True

    def __init__(
        self, spec: ClientSpec, network: NetworkFactory, mu: float = 0.01, **kwargs: Any
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(mu >= 0, "FedProx: mu", "at least 0", mu)
        self.mu = mu
        if mu:
            self.anchor()

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss with the proximal term."""
        # In fine-tuning, a private model is not pulled towards the federation's.
        strength = 0.0 if self.fine_tuning else self.mu
        return self.pulled(super().objective(x, y), strength, dict(self.named_parameters()))

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that the term is always 0 if there is an exchange after each step."""
        if self.mu and self.federated and every in ("step", {"steps": 1}):
            return [
                f"exchange.every: {every}: FedProx takes no step between exchanges, so mu has no "
                "effect"
            ]
        return super().on_plan(every)
