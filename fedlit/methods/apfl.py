"""Adaptive personalised federated learning (Deng, Kamani and Mahdavi 2020, arXiv:2003.13461)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlit.methods.bases import TwoCopies
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec, own_share


class APFL(TwoCopies):
    """A client with two copies of the network: a global one w, which is federated, and a local one
    v, which is not. It predicts by the network whose parameters are v̄ = α v + (1 − α) w.

    On each batch (Algorithm 1) w takes a step on its own loss, and v one on the loss of v̄ with w
    held fixed. With α = 0 the client predicts as under FedAvg, with α = 1 as Local. Both losses see
    the same dropout.

    The federated copy has the names of any client's network (``encoder``, ``core``, ``head``); the
    local one is ``personal``. The buffers of the mixture (normalisation statistics) belong to the
    local copy. ``train/loss`` is the sum of both losses.

    NOTE[DIFF]: α is fixed unless ``learn_alpha`` is set; the paper's method adapts it.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        alpha: α in [0, 1]: one value for all clients, or values by client name or pattern.
        learn_alpha: whether α takes gradient steps too (Eq. 10), by the client's optimizer without
            weight decay, and is kept within [0, 1].
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: α is outside [0, 1], or there is none for this client.

    Example:
        >>> from fedlit import MLP
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> client = APFL(spec, MLP, alpha={"cleve*": 0.25})
        >>> float(client.alpha), client(torch.zeros(4, 2)).shape
        (0.25, torch.Size([4, 1]))
    """

    private = ("personal", "alpha")
    stackable = True

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        alpha: float | dict[str, float] = 0.5,
        learn_alpha: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        value = torch.tensor(own_share(alpha, spec.name, "alpha"))
        self.learn_alpha = learn_alpha
        if learn_alpha:
            self.alpha: Tensor = nn.Parameter(value)
        else:
            self.register_buffer("alpha", value)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the mixture. Gradients reach v, and α if it is learnt, but not w."""
        w = dict(self.named_parameters())
        mixture = {
            name: self.alpha * value + (1 - self.alpha) * w[name].detach()
            for name, value in self.personal.named_parameters()
        }
        logits: Tensor = functional_call(self.personal, mixture, (x,))
        return logits

    def clipped_apart(self) -> list[list[str]]:
        """Return each copy's parameters separately, as they would be clipped under FedAvg and
        Local, and α.
        """
        federated, personal = super().clipped_apart()
        if self.learn_alpha:
            return [[name for name in federated if name != "alpha"], personal, ["alpha"]]
        return [federated, personal]

    def configure_optimizers(self) -> Any:
        """Make the optimizers as for any client, but without weight decay on α."""
        if not self.learn_alpha:
            return super().configure_optimizers()
        rest = [value for name, value in self.named_parameters() if name != "alpha"]
        return self.optimizer_of([{"params": rest}, {"params": [self.alpha], "weight_decay": 0.0}])

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keep α within [0, 1] after each step."""
        if self.learn_alpha:
            self.alpha.data.clamp_(0, 1)
            self.log("alpha", self.alpha.clone())
