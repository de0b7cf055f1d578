"""FedProto (Tan, Long, Liu, Zhou, Lu, Jiang and Zhang 2022, "FedProto: Federated Prototype Learning
across Heterogeneous Clients", AAAI, arXiv:2105.00243).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError, expect
from fedlit.exchange.rule import DOWN
from fedlit.exchange.rules.prototypes import PROTOTYPE, ROWS
from fedlit.methods.bases import CHUNK
from fedlit.nn.network import NetworkFactory
from fedlit.sharing import State
from fedlit.spec import ClientSpec


class FedProto(FederatedClient):
    """Sends the mean feature of each label, its prototype, in place of a network, and draws the
    features of its rows to the mean prototypes of all clients. It needs
    :class:`~fedlit.exchange.rules.prototypes.PrototypeMean` as rule.

    The prototype C_k of a label is the mean output of the core over the client's training rows with
    that label. The loss has the term λ · ‖z − C̄‖² / d, the mean over rows, where z is the core's
    output, d its width and C̄ what was received for the row's label. Clients need no columns,
    classes or sizes of networks in common, but the width of the core's output; labels are matched
    by name. Until something was received, and with λ = 0, the client is a plain one. In
    fine-tuning, nothing is drawn.

    NOTE[DIFF]: the paper draws a client's prototypes to C̄; here each row's features are drawn, as
    in the authors' program. The mean over clients is weighted by the rows of the label; the paper's
    formula divides it once more by the number of clients, and the authors' program has equal
    weights. Prototypes are computed in evaluation mode when they are sent.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        strength: λ, at least 0.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: λ is below 0, or the client predicts no class.

    Example:
        >>> from fedlit import MLP
        >>> client = FedProto(ClientSpec("cleveland", ("age", "sex"), ("well", "ill"), {}, ()), MLP)
        >>> {name: tuple(value.shape) for name, value in client.publish().items()}
        {'prototype/well': (64,), 'rows/well': (), 'prototype/ill': (64,), 'rows/ill': ()}
    """

    adapts = False
    private = ("received", "known")
    requires: Mapping[str, tuple[str, ...]] = {"exchange.rule": ("PrototypeMean",)}
    stackable = True

    def __init__(
        self, spec: ClientSpec, network: NetworkFactory, strength: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(spec, network, **kwargs)
        method = type(self).__name__
        expect(strength >= 0, f"{method}: strength", "at least 0", strength)
        if not spec.task.outcome.one_label:
            raise ConfigError(
                f"client {spec.name!r}: {method} expected a client that predicts one of several "
                f"classes, found the task {spec.task.name}; set model.client to another method"
            )
        self.strength = strength
        training = self.training
        with torch.no_grad():
            self.eval()
            features = self.core(self.encoder(torch.zeros(1, spec.num_features)))
            width = features.flatten(1).shape[1]
        self.train(training)
        self.received: Tensor
        self.known: Tensor
        self.register_buffer("received", torch.zeros(len(spec.classes), width))
        self.register_buffer("known", torch.zeros(len(spec.classes)))
        self._sent = torch.zeros(len(spec.classes), width)
        self._counts = torch.zeros(len(spec.classes))
        self._rows: Rows | None = None

    def on_rows(self, rows: Rows) -> None:
        """Keep the training rows, without a copy."""
        self._rows = rows

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss plus λ times the mean distance of features to the prototypes of their
        labels.
        """
        if not self.strength or self.fine_tuning:
            return super().objective(x, y)
        core = self.core(self.encoder(x))
        loss = self.loss(self.head(core), y)
        distances = (core.flatten(1) - self.received[y]).square().mean(1)
        objective: Tensor = loss + self.strength * (distances * self.known[y]).mean()
        return objective

    def on_send(self, steps: int) -> None:
        """Compute the prototypes of the training rows."""
        sums, counts, _ = self.sum_features()
        self._sent = sums / counts.clamp(min=1)[:, None]
        self._counts = counts

    @torch.no_grad()
    def sum_features(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return Σ z over the training rows of each label, the numbers of these rows, and Σ ‖z‖²
        over all of them, in evaluation mode.

        Shape:
            - output: (labels, d), (labels,) and a scalar
        """
        assert self._rows is not None
        training = self.training
        self.eval()
        sums = torch.zeros_like(self.received)
        counts = torch.zeros_like(self.known)
        squares = counts.sum()
        labels = torch.arange(len(counts), device=self.device)
        for x, y in zip(self._rows.x.split(CHUNK), self._rows.y.split(CHUNK), strict=True):
            z = self.core(self.encoder(x.to(self.device))).flatten(1).to(sums.dtype)
            one_hot = (y.to(self.device)[:, None] == labels).to(sums.dtype)
            sums += one_hot.T @ z
            counts += one_hot.sum(0)
            squares += z.square().sum()
        self.train(training)
        return sums, counts, squares

    def publish(self) -> State:
        """Return the prototype of each label, and the number of rows behind it."""
        published = {}
        for position, label in enumerate(self.labels()):
            published[f"{PROTOTYPE}{label}"] = self._sent[position]
            published[f"{ROWS}{label}"] = self._counts[position]
        return published

    def on_receive(self, received: State) -> None:
        """Remember the mean prototypes. Labels without a received prototype keep theirs."""
        for position, label in enumerate(self.labels()):
            prototype = received.get(f"{DOWN}{PROTOTYPE}{label}")
            if prototype is not None:
                self.received[position].copy_(prototype)
                self.known[position] = 1.0

    def labels(self) -> Iterator[str]:
        """Return the names of the labels, in the order of the outputs."""
        return map(str, self.spec.classes)
