"""FedRoD (Chen and Chao 2022, "On Bridging Generic and Personalized Federated Learning for Image
Classification", ICLR, arXiv:2107.00778).
"""

from typing import Any

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec

_FEWEST = 1e-9
"""The row count used for a class without rows, so that its logarithm is finite."""


class FedRoD(FederatedClient):
    """A client with a generic head, which is federated, and a personal head, which is not. It
    predicts by the sum of their logits.

    On each batch, the features and the generic head take a step on the balanced softmax loss, which
    adds the logarithm of each class's number of training rows to its logit, so that the generic
    predictor suits balanced classes. The personal head takes a step on the loss of the sum of
    logits, with the features and the generic logits held fixed. The balanced loss of one logit, for
    two classes, adds the log-ratio of their rows; that of several labels does so for each. If the
    target is a number, nothing is added.

    ``train/loss`` is the sum of both losses. The personal head is ``personal``.

    NOTE[DIFF]: the paper's personal head is linear, or made by a hypernetwork; here it is another
    head like that of the network. Clients have equal weights; the paper weighs them by rows
    (``exchange.rule: {class_path: fedlit.Mean, init_args: {weights: rows}}``).

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Example:
        >>> from fedlit import MLP
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> FedRoD(spec, MLP)(torch.zeros(4, 2)).shape
        torch.Size([4, 1])
    """

    private = ("personal", "balance")
    stackable = True

    def __init__(self, spec: ClientSpec, network: NetworkFactory, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        self.personal = self.make_network(network).head
        self.no_decay = (*self.no_decay, *_moved(self.no_decay))
        self.balance: Tensor
        self.register_buffer("balance", torch.zeros(spec.num_outputs))

    def on_rows(self, rows: Rows) -> None:
        """Count the rows of each class."""
        self.balance.copy_(log_rows(rows.y, self.spec.num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the logits of both heads."""
        z = self.core(self.encoder(x))
        logits: Tensor = self.head(z) + self.personal(z)
        return logits

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the balanced loss of the generic head plus the loss of both heads. Their gradients
        have no parameter in common.
        """
        z = self.core(self.encoder(x))
        generic = self.head(z)
        balanced = self.loss(generic + self.balance, y)
        return balanced + self.loss(generic.detach() + self.personal(z.detach()), y)

    def clipped_apart(self) -> list[list[str]]:
        """Return the parameters of the personal head separately."""
        names = [name for name, _ in self.named_parameters()]
        personal = [name for name in names if name.startswith("personal.")]
        return [[name for name in names if name not in personal], personal]


def _moved(patterns: tuple[str, ...]) -> list[str]:
    """Return the patterns for the head as patterns for the personal head."""
    return [
        pattern.replace("head", "personal", 1)
        for pattern in patterns
        if pattern.removeprefix("!").startswith("head")
    ]


def log_rows(y: Tensor, outputs: int) -> Tensor:
    """Return the summand of each output in the balanced softmax: the logarithm of a class's rows;
    the log-odds of a label that is true or false; 0 for a number.

    Shape:
        - y: the target as the task encodes it: (n,), (n, labels), or (n, positions) of a sequence
        - output: (outputs,) float32

    Example:
        >>> log_rows(torch.tensor([0, 0, 0, 1]), 1)
        tensor([-1.0986])
        >>> log_rows(torch.tensor([0, 2, 2]), 3)
        tensor([  0.0000, -20.7233,   0.6931])
    """
    if y.dim() == 1 and y.is_floating_point():
        return torch.zeros(outputs)
    if outputs > 1 and not y.is_floating_point():
        positions = y.shape[1] if y.dim() == 2 else 1
        rows = torch.bincount(y[y >= 0], minlength=outputs // positions)
        return rows.clamp(min=_FEWEST).log().repeat(positions)
    positive = (y == 1).sum(0).reshape(outputs)
    negative = (y == 0).sum(0).reshape(outputs)
    return positive.clamp(min=_FEWEST).log() - negative.clamp(min=_FEWEST).log()
