"""FedALA (Zhang, Hua, Wang, Song, Xue, Ma and Guan 2023, "FedALA: Adaptive Local Aggregation for
Personalized Federated Learning", AAAI, arXiv:2212.01197).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError, expect
from fedlit.methods.bases import CHUNK, by_name, zero_buffers
from fedlit.nn.network import NetworkFactory
from fedlit.sharing import State, select
from fedlit.spec import ClientSpec

_LAST = 10
"""The number of last losses that must be similar for the weights of the first exchange to have
converged."""
_MOST = 100
"""The maximum number of steps that the weights take in the first exchange."""


class FedALA(FederatedClient):
    """Mixes the received model with its own, element by element, before it trains on.

    After an exchange, each adaptive layer becomes Θ̂ = Θ_k + (Θ − Θ_k) ⊙ W_k, where Θ_k is what the
    client sent last, Θ what it received, and W_k has a weight in [0, 1] for each element. All
    weights begin with 1. They take gradient steps on the loss of Θ̂ over a random share of the
    client's training rows, drawn anew in each exchange: W_k ← clip(W_k − η ∇_W f_k(Θ̂)). In the
    client's first exchange, the weights take steps until they have converged, in each later one a
    single step. Layers that are not adaptive are as they were received.

    NOTE[DIFF]: a step of the weights uses all sampled rows, in evaluation mode; the paper's uses
    batches of them. The first exchange has converged if the last 10 losses have a standard
    deviation below the threshold, as in the authors' program, and ends after 100 steps at the
    latest.

    NOTE[DIFF]: a client that sits out a round (``exchange.participation``) also receives the
    result, and mixes it with the model that it sent last; in the paper, it receives nothing.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        adaptive: patterns of the modules or tensors (see :func:`fedlit.sharing.select`) that are
            mixed: the paper's p higher layers; the head by default. Only federated parameters are
                mixed.
        share: s, the share of the training rows, in (0, 1].
        eta: η, the rate at which weights are learnt, above 0.
        threshold: the standard deviation of losses below which weights have converged, above 0.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: a value is out of range, or no federated parameter is adaptive.

    Example:
        >>> from fedlit import MLP
        >>> FedALA(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, eta=0.5).eta
        0.5
    """

    private = ("previous", "weights")
    stackable = True
    weighs_rows = False

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        adaptive: Sequence[str] = ("head",),
        share: float = 0.8,
        eta: float = 1.0,
        threshold: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(0 < share <= 1, "FedALA: share", "a share in (0, 1]", share)
        expect(eta > 0, "FedALA: eta", "a number above 0", eta)
        expect(threshold > 0, "FedALA: threshold", "a number above 0", threshold)
        self.adaptive = tuple(adaptive)
        self.share = share
        self.eta = eta
        self.threshold = threshold
        parameters = dict(self.named_parameters())
        mixed = {name: parameters[name] for name in select(parameters, self.adaptive)}
        self.previous = zero_buffers(mixed)
        self.weights = zero_buffers(mixed)
        for weight in self.weights.buffers():
            weight.fill_(1.0)
        self._rows: Rows | None = None

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse settings under which nothing would be mixed."""
        if not self._mixed():
            raise ConfigError(
                f"client {self.spec.name!r}: FedALA expected federated parameters among its "
                f"adaptive ones, {list(self.adaptive)}, found none; add them to "
                "exchange.federated, or set model.client.adaptive to a part of what is federated"
            )
        return []

    def on_rows(self, rows: Rows) -> None:
        """Keep the training rows, without a copy."""
        self._rows = rows

    def on_send(self, steps: int) -> None:
        """Remember Θ_k."""
        parameters = dict(self.named_parameters())
        for name, value in by_name(self.previous).items():
            value.copy_(parameters[name].detach())
        self.state["sent"] = True

    def on_receive(self, received: State) -> None:
        """Learn the weights, and mix the received state with the one that was sent."""
        if self.state.get("sent"):
            training = self.training
            self.eval()
            self._mix()
            self.train(training)

    def _mixed(self) -> list[str]:
        """Return the names of the parameters that are mixed."""
        federated = {self._federated.tensor_of(name) for name in self._federated}
        return [name for name in by_name(self.weights) if name in federated]

    def _mix(self) -> None:
        parameters = dict(self.named_parameters())
        sent = by_name(self.previous)
        weights = by_name(self.weights)
        moves = {name: parameters[name].detach() - sent[name] for name in self._mixed()}
        x, y = self._sample()
        converging = not self.state.get("converged")
        losses: list[float] = []
        while True:
            mixture = {name: sent[name] + move * weights[name] for name, move in moves.items()}
            loss, gradients = self._gradients(mixture, x, y)
            for name, move in moves.items():
                weights[name].sub_(gradients[name] * move, alpha=self.eta).clamp_(0, 1)
            losses.append(loss)
            if not converging or self._converged(losses):
                break
        self.state["converged"] = True
        with torch.no_grad():
            for name, move in moves.items():
                parameters[name].copy_(sent[name] + move * weights[name])

    def _converged(self, losses: Sequence[float]) -> bool:
        """Return whether the weights have converged, or took the maximum number of steps."""
        last = torch.tensor(losses[-_LAST:])
        similar = len(losses) > _LAST and float(last.std(correction=0)) < self.threshold
        return similar or len(losses) >= _MOST

    def _sample(self) -> tuple[Tensor, Tensor]:
        """Return some of the training rows. The exchange seeds the numbers that are drawn."""
        assert self._rows is not None
        count = max(1, round(self.share * len(self._rows)))
        chosen = torch.randperm(len(self._rows))[:count].to(self._rows.x.device)
        return self._rows.x[chosen], self._rows.y[chosen]

    @torch.enable_grad()
    def _gradients(self, mixture: State, x: Tensor, y: Tensor) -> tuple[float, dict[str, Tensor]]:
        """Return the loss of Θ̂ over rows, and its gradients."""
        point = {name: value.detach().requires_grad_() for name, value in mixture.items()}
        gradients = {name: torch.zeros_like(value) for name, value in point.items()}
        total = 0.0
        for some_x, some_y in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
            outputs = functional_call(self, point, (some_x.to(self.device),))
            loss = self.loss(outputs, some_y.to(self.device)) * (len(some_y) / len(y))
            total += float(loss.detach())
            chunk_gradients = torch.autograd.grad(
                loss, list(point.values()), allow_unused=True, materialize_grads=True
            )
            for name, gradient in zip(point, chunk_gradients, strict=True):
                gradients[name] += gradient
        return total, gradients
