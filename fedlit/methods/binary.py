"""The loss of the experiments with FedGMCC (Lucchetti, Decouchant, Fernandes, Chen and Völp 2022,
"Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets", arXiv:2204.11017).
"""

from typing import Any

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec


class BinaryCrossEntropy(FederatedClient):
    """A client that minimises binary cross-entropy also where it predicts one of several classes
    (Section V).

    With p, the probabilities of the softmax, a row's loss is the mean over classes of −log p_c for
    its own class and −log(1 − p_c) for every other. With two classes, which have one output, it is
    the usual loss of a plain client.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: the client predicts something else than one of several classes.

    Example:
        A network that gives all of three classes the same probability:

        >>> from fedlit import MLP
        >>> spec = ClientSpec("rawah", ("elevation", "slope"), (1, 2, 5), {}, ())
        >>> client = BinaryCrossEntropy(spec, MLP)
        >>> loss = client.loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
        >>> round(loss.item(), 4)  # −(log 1/3 + 2 log 2/3) / 3
        0.6365
    """

    stackable = True

    def __init__(self, spec: ClientSpec, network: NetworkFactory, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        if not spec.task.outcome.one_label:
            raise ConfigError(
                f"client {spec.name!r}: BinaryCrossEntropy expected a client that predicts one of "
                f"several classes, found the task {spec.task.name}; set model.client to "
                "fedlit.FederatedClient"
            )

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean binary cross-entropy over rows and classes; see
        :meth:`fedlit.FederatedClient.loss`.
        """
        if logits.dim() == 3:  # The logits are those of an ensemble.
            return self.loss(logits.flatten(0, 1), y.repeat_interleave(logits.shape[1]))
        if logits.shape[1] == 1:
            return super().loss(logits, y)
        log_p = logits.float().log_softmax(1)
        # If one class has probability 1, the others have 0, whose logarithm has no gradient.
        log_others = (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny).log()
        is_class = torch.arange(logits.shape[1], device=y.device) == y.unsqueeze(1)
        losses = -torch.where(is_class, log_p, log_others).mean(1)
        if self.class_weight is None:
            return losses.mean()
        weight = self.class_weight[y]
        return (losses * weight).sum() / weight.sum()
