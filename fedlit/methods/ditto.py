"""Ditto (Li, Hu, Beirami and Smith 2021, "Ditto: Fair and Robust Federated Learning Through
Personalization", arXiv:2012.04221).
"""

from typing import Any

from torch import Tensor

from fedlit.errors import expect
from fedlit.methods.bases import Anchored, TwoCopies
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec


class Ditto(Anchored, TwoCopies):
    """A client with a federated copy w of the network, and a personal copy v that is pulled towards
    what was received. It predicts by v.

    On each batch w takes a step on its loss f, and v one on f(v) + λ/2 · ‖v − w_t‖² (Algorithm 1),
    where w_t is the result of the last exchange; only federated tensors are pulled. With λ = 0 the
    personal copy is that of Local and the federated one that of FedAvg, bit for bit. ``train/loss``
    is the sum of both losses.

    NOTE[DIFF]: the paper's devices first take all steps of w, then s steps of v. Here both take one
    on each batch; they have no parameter in common, so that their order changes nothing, and s is
    the number of w's steps.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        strength: λ, at least 0.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: λ is below 0.

    Example:
        >>> from fedlit import MLP
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> Ditto(spec, MLP, strength=0.1).strength
        0.1
    """

    private = ("personal", "received")
    stackable = True

    def __init__(
        self, spec: ClientSpec, network: NetworkFactory, strength: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(strength >= 0, "Ditto: strength", "at least 0", strength)
        self.strength = strength
        if strength:
            names = [name for name, _ in self.named_parameters()]
            self.anchor(name for name in names if not name.startswith("personal."))

    def personal_objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return f(v) + λ/2 · ‖v − w_t‖²."""
        loss = super().personal_objective(x, y)
        return self.pulled(loss, self.strength, dict(self.personal.named_parameters()))
