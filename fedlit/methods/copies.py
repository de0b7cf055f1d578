"""The base of methods whose clients have two copies of the network."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.nn.network import NetworkFactory
from fedlit.seeding import repeat_draws
from fedlit.spec import ClientSpec


class TwoCopies(FederatedClient):
    """A client with a federated copy w of the network and a personal copy v, which is never sent. It predicts by v.

    The federated copy has the names of any client's network (``encoder``, ``core``, ``head``); the other is
    ``personal``. Both start equal and see the same dropout; each has its own statistics of normalisation, and its
    gradient is clipped by itself, as if it were alone.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.
    """

    private: tuple[str, ...] = ("personal",)

    def __init__(self, spec: ClientSpec, network: NetworkFactory, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        self.personal = self.make_network(network)
        self.personal.initialised_as = ""  # type: ignore[assignment]  # v starts equal to w
        also = [f"!personal.{own[1:]}" if own.startswith("!") else f"personal.{own}" for own in self.no_decay]
        self.no_decay = (*self.no_decay, *also)

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that one copy would be enough, if nothing is federated."""
        if self.federated:
            return []
        return [f"{type(self).__name__} trains two copies, and shares neither: nothing is federated"]

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of v."""
        outputs: Tensor = self.personal(x)
        return outputs

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of w plus what v minimises. Their gradients have no parameter in common."""
        again = repeat_draws(self.device)
        federated = self.loss(FederatedClient.forward(self, x), y)
        again()
        return federated + self.personal_objective(x, y)

    def personal_objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return what v minimises: its loss."""
        return self.loss(self(x), y)

    def clipped_apart(self) -> list[list[str]]:
        """Return the parameters of each copy separately."""
        names = [name for name, _ in self.named_parameters()]
        personal = [name for name in names if name.startswith("personal.")]
        return [[name for name in names if name not in personal], personal]
