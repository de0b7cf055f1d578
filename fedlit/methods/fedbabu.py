"""FedBABU (Oh, Kim and Yun 2022, "FedBABU: Toward Enhanced Representation for Federated Image
Classification", arXiv:2106.06042).
"""

from collections.abc import Mapping
from typing import Any

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec


class FedBABU(FederatedClient):
    """Federates only the body. The head keeps its initial values, which are equal at all clients
    whose heads have one shape, until the private last phase (``model.then: fine_tune``) trains the
    whole network (Algorithm 1).

    Clients may differ in their classes, and in their columns if ``exchange.federated`` leaves the
    encoder out.

    NOTE[DIFF]: clients have equal weights; the paper weighs them by rows
    (``exchange.rule: {class_path: fedlit.Mean, init_args: {weights: rows}}``).

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: the head of the network has nothing to train.

    Example:
        >>> from fedlit import MLP
        >>> client = FedBABU(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP)
        >>> client.head.weight.requires_grad, client.private
        (False, ('head',))
    """

    private = ("head",)
    stackable = True

    def __init__(self, spec: ClientSpec, network: NetworkFactory, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        if not list(self.head.parameters()):
            raise ConfigError(
                f"client {spec.name!r}: FedBABU expected a head with parameters, found "
                f"{type(self.head).__name__} without; choose another network, or another "
                "model.client"
            )
        self.head.requires_grad_(False)

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that the head is never trained if nothing follows the federation."""
        if self.fine_tunes:
            return []
        return [
            "FedBABU never trains its head because no fine-tuning follows; set model.then: "
            "fine_tune"
        ]

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Train the head in the private last phase only."""
        self.head.requires_grad_(self.fine_tuning)
