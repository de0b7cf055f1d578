"""The yardstick: Global Layers, Local and FedAvg as a sequential PyTorch loop, written without
fedlit's fast parts.

:func:`check` compares the network here with ``fedlit.GlobalLayers``. Only the tables come from
fedlit, as tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from measure import memory
from sklearn import metrics
from tasks import Task
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

# ---------------------------------------------------------------------- the network


class Embedding(nn.Module):
    """(rows, features) → (rows, features, width)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, width).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.empty(features, width).uniform_(-1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Each number times its column's vector."""
        return x.unsqueeze(-1) * self.weight + self.bias


class Attention(nn.Module):
    """Multi-head self-attention over tokens, without biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of each row."""
        rows, tokens, width = x.shape
        qkv = self.qkv(x).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(rows, tokens, width))


class FeedForward(nn.Module):
    """w2(SELU(w1 n) · w3 n), or without w3 where not gated; n = BatchNorm(x)."""

    def __init__(self, channels: int, size: int, hidden: int, bias: bool, gated: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.w1 = nn.Linear(size, hidden, bias=bias)
        self.w2 = nn.Linear(hidden, size, bias=bias)
        self.w3 = nn.Linear(size, hidden, bias=False) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """Without the residual."""
        x = self.norm(x)
        hidden = functional.selu(self.w1(x))
        return self.w2(hidden if self.w3 is None else hidden * self.w3(x))


class Block(nn.Module):
    """A transformer block: attention, then feed-forward, each with its residual."""

    def __init__(self, tokens: int, width: int, heads: int, gated: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(tokens)
        self.attention = Attention(width, heads)
        self.feed_forward = FeedForward(tokens, width, width // 2, bias=False, gated=gated)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        x = x + self.attention(self.norm(x))
        return x + functional.selu(self.feed_forward(x))


class Wide(FeedForward):
    """A gated layer of the core, with its residual."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        return x + super().forward(x)


def fc(inputs: int, outputs: int) -> nn.Sequential:
    """SELU(Linear(BatchNorm(x)))."""
    return nn.Sequential(nn.BatchNorm1d(inputs), nn.Linear(inputs, outputs), nn.SELU())


class Network(nn.Module):
    """Global Layers: encoder, core (the shared part), head."""

    def __init__(
        self,
        features: int,
        outputs: int,
        global_features: int = 11,
        width: int = 16,
        blocks: int = 6,
        heads: int = 8,
        input_norm: bool = True,
        gated: bool = True,
    ) -> None:
        super().__init__()
        z = global_features * width
        self.encoder = nn.Sequential(
            nn.BatchNorm1d(features) if input_norm else nn.Identity(),
            Embedding(features, width),
            nn.BatchNorm1d(features),
            *(Block(features, width, heads, gated) for _ in range(blocks)),
            nn.Flatten(),
            fc(features * width, 4 * z),
        )
        self.core = nn.Sequential(
            Wide(4 * z, 4 * z, z, bias=True, gated=gated),
            fc(4 * z, 2 * z),
            Wide(2 * z, 2 * z, z // 2, bias=True, gated=gated),
        )
        self.head = nn.Sequential(fc(2 * z, z), nn.BatchNorm1d(z), nn.Linear(z, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) → (rows, outputs), logits."""
        return self.head(self.core(self.encoder(x)))


def size(network: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def check() -> dict[str, Any]:
    """Compare with ``fedlit.GlobalLayers``: parameters, and outputs with copied weights to 1e-5,
    training and not.
    """
    import fedlit

    torch.manual_seed(0)
    heart = {"global_features": 8, "input_norm": False, "gated": False}
    worst = 0.0
    for features, outputs, count, options in ((11, 6, 915_954, {}), (13, 1, 448_339, heart)):
        mine = Network(features, outputs, **options)
        theirs = fedlit.GlobalLayers(features, outputs, **options)
        assert size(mine) == size(theirs) == count, (size(mine), size(theirs))
        for here, there in zip(
            mine.state_dict().values(), theirs.state_dict().values(), strict=True
        ):
            assert here.shape == there.shape
            here.copy_(there)
        x = torch.randn(64, features)
        for training in (True, False):
            difference = (mine.train(training)(x) - theirs.train(training)(x)).abs().max().item()
            assert difference < 1e-5, f"outputs differ by {difference}"
            worst = max(worst, difference)
    return {"largest_difference": worst}


# ---------------------------------------------------------------------- the loop


def loss_of(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy; a single logit is that of the positive class."""
    if logits.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, 0], y.float())
    return functional.cross_entropy(logits, y)


@torch.no_grad()
def average(networks: list[nn.Module]) -> None:
    """Replace every floating-point tensor, parameters and buffers, by its mean over networks."""
    for tensors in zip(*(network.state_dict().values() for network in networks), strict=True):
        if tensors[0].is_floating_point():
            mean = torch.stack(tensors).mean(0)
            for tensor in tensors:
                tensor.copy_(mean)


@torch.no_grad()
def average_parameters(networks: list[nn.Module]) -> None:
    """Replace every parameter by its mean over networks."""
    for parameters in zip(*(network.parameters() for network in networks), strict=True):
        mean = torch.stack(parameters).mean(0)
        for parameter in parameters:
            parameter.copy_(mean)


@torch.no_grad()
def evaluate(network: nn.Module, loader: DataLoader) -> dict[str, float]:
    """Scores of one client, by scikit-learn; one class versus the rest, over the classes that
    occur.
    """
    network.eval()
    outputs = []
    labels = []
    for x, y in loader:
        outputs.append(network(x))
        labels.append(y)
    logits = torch.cat(outputs)
    y = torch.cat(labels)
    known = y >= 0
    loss = loss_of(logits[known], y[known]).item()
    p = (torch.cat([-logits, logits], 1) / 2 if logits.shape[1] == 1 else logits).softmax(1).numpy()
    y = y.numpy()
    known = known.numpy()
    classes = [1] if p.shape[1] == 2 else range(p.shape[1])
    ranked = [c for c in classes if 0 < (y == c).sum() < len(y)]
    predicted = p.argmax(1)
    return {
        "loss": loss,
        "auroc": float(np.mean([metrics.roc_auc_score(y == c, p[:, c]) for c in ranked])),
        "auprc": float(np.mean([metrics.average_precision_score(y == c, p[:, c]) for c in ranked])),
        "balanced_accuracy": float(metrics.balanced_accuracy_score(y[known], predicted[known])),
        "accuracy": float(metrics.accuracy_score(y, predicted)),
        "f1": float(
            metrics.f1_score(
                y[known], predicted[known], average="binary" if p.shape[1] == 2 else "macro"
            )
        ),
    }


class Federation:
    """The networks of a task, and what is done with them.

    Args:
        task: what is trained.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.networks = []
        for client in task.clients:
            torch.manual_seed(task.seed)
            self.networks.append(
                Network(client.spec.num_features, client.spec.num_outputs, **task.network)
            )
            self.networks[-1].core.load_state_dict(self.networks[0].core.state_dict())
        self.optimizers = [
            torch.optim.AdamW(network.parameters(), lr=0.001, weight_decay=0.0001)
            for network in self.networks
        ]
        self.exchange: Callable[[], None] = {
            "core": lambda: average_parameters([network.core for network in self.networks]),
            "*": lambda: average(self.networks),
            None: lambda: None,
        }[task.federated]

    def train(
        self, epochs: int, validate: bool = True, mark: Callable[[], None] = lambda: None
    ) -> None:
        """Train; ``mark`` is called before the first epoch and after each."""
        loaders = []
        for client in self.task.clients:
            rows = TensorDataset(client.train.x, client.train.y)
            loaders.append(
                DataLoader(rows, len(rows) // self.task.batches, shuffle=True, drop_last=True)
            )
        mark()
        for _ in range(epochs):
            for network in self.networks:
                network.train()
            for _, batches in zip(
                range(self.task.batches), zip(*loaders, strict=False), strict=False
            ):
                for network, optimizer, (x, y) in zip(
                    self.networks, self.optimizers, batches, strict=True
                ):
                    optimizer.zero_grad()
                    loss_of(network(x), y).backward()
                    optimizer.step()
            self.exchange()
            if validate:
                self.scores = self.score("validation")
            mark()

    def score(self, split: str) -> dict[str, dict[str, float]]:
        """Client → scores on a split."""
        scores = {}
        for client, network in zip(self.task.clients, self.networks, strict=True):
            rows = client.sites[client.spec.name][split]
            scores[client.spec.name] = evaluate(
                network, DataLoader(TensorDataset(rows.x, rows.y), batch_size=4096)
            )
        return scores


def mean_of(scores: dict[str, dict[str, float]], metric: str = "auroc") -> float:
    """Mean over clients."""
    return float(np.mean([own[metric] for own in scores.values()]))


# ---------------------------------------------------------------------- what speed.py measures


def fit(
    config: str, epochs: int, validate: bool = True, threads: int | None = None, **source: Any
) -> dict[str, Any]:
    """Seconds of each epoch of a run."""
    torch.set_num_threads(threads or torch.get_num_threads())
    federation = Federation(Task.of(config, **source))
    marks: list[float] = []
    before = memory("VmRSS")
    federation.train(epochs, validate, lambda: marks.append(time.perf_counter()))
    return {
        "epochs": [end - start for start, end in pairwise(marks)],
        "before_mib": before,
        "auroc": mean_of(federation.scores) if validate else None,
    }
