"""FedPAC, its client (Xu, Tong and Huang 2023, "Personalized Federated Learning with Feature
Alignment and Classifier Collaboration", ICLR, arXiv:2306.11867). Its rule is
:mod:`fedlit.exchange.rules.fedpac`.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch

from fedlit.errors import ConfigError
from fedlit.exchange.rules.fedpac import FEATURE, HEAD, VARIANCE
from fedlit.methods.alternating import Alternating
from fedlit.methods.fedproto import FedProto
from fedlit.nn.network import NetworkFactory
from fedlit.sharing import State
from fedlit.spec import ClientSpec


class FedPAC(FedProto, Alternating):
    """Draws the features of its rows to the mean features of their labels over all clients, as
    :class:`~fedlit.methods.fedproto.FedProto` does, and receives a classifier that is combined from
    those of similar clients. It needs :class:`~fedlit.exchange.rules.fedpac.FedPACMean` as rule.

    In each round, the head is trained first while encoder and core rest; then these are trained
    while the head rests, with the term λ · ‖z − C̄‖² / d in the loss, as in the authors' program
    (github.com/JianXu95/FedPAC). The rule weighs classifiers by statistics of what the client
    received, before it trains: h_c = p_c μ_c for each label, and V = (E‖z‖² − Σ_c ‖h_c‖²) / n,
    where p_c is the label's share of the client's n training rows and μ_c its mean feature.

    NOTE[DIFF]: both parts are trained by the configured optimizer, whose momentum stays from round
    to round; the authors' program has an optimizer of its own for each part and round, with a
    higher rate for the head. Epochs of both parts are aligned steps: ``classifier_first`` of
    ``exchange.every``. Statistics are computed in evaluation mode.

    NOTE[DIFF]: the features of a row whose label no client has sent so far are not drawn; the
    authors' program draws them to the client's own mean if one label of several is missing.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        strength: λ, at least 0.
        classifier_first: how long the head is trained first: ``epoch``, ``{epochs: n}`` or
            ``{steps: n}`` of the client's optimizer. For the rest of the round, encoder and core
            are trained.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: λ is below 0, the client predicts no class, a round ends before the encoder and
            the core are trained, or nothing of these is federated.

    Example:
        >>> from fedlit import MLP
        >>> client = FedPAC(ClientSpec("cleveland", ("age", "sex"), ("well", "ill"), {}, ()), MLP)
        >>> sorted(client.publish())[:3], len(client.publish()["feature/ill"])
        (['feature/ill', 'feature/well', 'prototype/ill'], 64)
    """

    adapts = False
    requires: Mapping[str, tuple[str, ...]] = {"exchange.rule": ("FedPACMean",)}
    stackable = True
    first_setting = "classifier_first"

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        strength: float = 1.0,
        classifier_first: Literal["epoch"] | dict[str, int] = "epoch",
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, strength, private_first=classifier_first, **kwargs)
        self.state["features"] = torch.zeros_like(self.received)
        self.state["variance"] = torch.zeros(())

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse rounds in which one of the parts is never trained, and note that no classifiers
        are combined.
        """
        shared = self._federated_parameters()
        head = self.first_part()
        if not shared - head:
            raise ConfigError(
                f"client {self.spec.name!r}: FedPAC expected federated parameters of the encoder "
                'or the core, found none; set exchange.federated to ["*"], or to [core, head] if '
                "columns differ"
            )
        self.check_rounds(every)
        if shared & head:
            return []
        return [
            "FedPAC combines no classifiers, because exchange.federated has no head; features are "
            "aligned"
        ]

    def first_part(self) -> set[str]:
        """Return the names of the head's parameters."""
        return {name for name, _ in self.named_parameters() if name.startswith(HEAD)}

    def on_send(self, steps: int) -> None:
        """Compute the prototypes of the training rows, and warn if a round was too short."""
        FedProto.on_send(self, steps)
        Alternating.on_send(self, steps)

    def on_receive(self, received: State) -> None:
        """Remember the mean prototypes, and compute the statistics of the received network's
        features.
        """
        super().on_receive(received)
        sums, counts, squares = self.sum_features()
        rows = counts.sum().clamp(min=1)
        features = sums / rows
        variance = squares / rows - features.square().sum()
        self.state["features"] = features
        self.state["variance"] = variance.clamp(min=0) / rows

    def publish(self) -> State:
        """Return the prototypes with their rows, and the statistics h and V."""
        features = self.state["features"]
        published = {**super().publish(), VARIANCE: self.state["variance"]}
        for position, label in enumerate(self.labels()):
            published[f"{FEATURE}{label}"] = features[position]
        return published
