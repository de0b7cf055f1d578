"""Clients whose loss is a quadratic with a known minimum and curvature, trained by the real loop.

    f_k(w) = ½ (w − m_k)ᵀ H_k (w − m_k) + a constant

It is the squared error of a linear model without intercept, so any class of clients, engine or rule
takes it: one parameter, ``core.weight`` of shape (1, 5). All rows are one batch. The target is
standardised by the loop as ever, so H_k and m_k are read from the encoded rows (:func:`problems`).

    run = quadratic(tmp_path, lr=0.1, rounds=5)
    own, start = problems(run), point(run)
    run.fit(quiet=True)

100 rounds take about a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from federations import Made, make_run
from torch import nn

from fedlit import Network
from fedlit.client.client import FederatedClient
from fedlit.data.table import ClientTable
from fedlit.run.run import Run

STEPS = {"ash": 1, "birch": 4, "fir": 9}
"""Steps of a client in a round: so different that methods which mind them differ from FedAvg."""


@dataclass(frozen=True)
class Problem:
    """A client's quadratic, in float64.

    Attributes:
        curvature: H, (d, d), symmetric and positive definite.
        minimum: m, (d,).
    """

    curvature: np.ndarray
    minimum: np.ndarray

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """H (w − m)."""
        return np.asarray(self.curvature @ (w - self.minimum))


class Quadratics(Made):
    """Clients of 50 training rows and five columns, each with a target of its own."""

    def tables(self, seed: int) -> list[ClientTable]:
        made = []
        for own in super().tables(seed):
            rng = np.random.default_rng(STEPS[own.name])
            y: Any = own.features @ rng.normal(size=own.features.shape[1]) + 0.1 * rng.normal(
                size=len(own.features)
            )
            made.append(
                ClientTable(own.name, own.features, y.rename("y"), own.splits, task="regression")
            )
        return made


class Linear(Network):
    """w · x; the weights are the core's."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Identity(), nn.Linear(num_features, 1, bias=False), nn.Identity())


def quadratic(
    folder: Path,
    *,
    client: Any = FederatedClient,
    lr: float = 0.1,
    rounds: int = 5,
    exchange: Mapping[str, Any] | None = None,
    loop: Mapping[str, Any] | None = None,
    **options: Any,
) -> Run:
    """A run over the three clients: full-batch gradient descent, an exchange at the end of each
    epoch.

    Args:
        folder: where it writes.
        client: a class of clients, or a partial of one that lacks the network alone.
        lr: learning rate of plain SGD.
        rounds: how many.
        exchange: the exchange's arguments beside ``federated: [core]``; the guard is off, for these
            clients are far from each other.
        loop: further arguments of the loop.
        options: of :func:`federations.make_run`.
    """
    return make_run(
        folder,
        loop={
            "client": partial(client, network=Linear),
            "optimizer": partial(torch.optim.SGD, lr=lr),
            **(loop or {}),
        },
        exchange={"federated": ["core"], "guard": False, **(exchange or {})},
        data={"scaling": "none", "batches": 1, "steps": STEPS},
        epochs=rounds,
        source=Quadratics(tuple(STEPS)),
        **{"check_val_every_n_epoch": rounds, "logger": False, **options},
    )


def problems(run: Run) -> dict[str, Problem]:
    """Client → its quadratic, read from the rows that it is trained on."""
    run.data.setup()
    found = {}
    for name, loader in run.data.train_loaders.items():
        x = loader.rows.x.double().numpy()
        y = loader.rows.y.double().numpy()
        curvature = 2 / len(y) * x.T @ x
        found[name] = Problem(curvature, np.linalg.solve(curvature, 2 / len(y) * x.T @ y))
    return found


def point(run: Run, client: str = "ash", prefix: str = "") -> np.ndarray:
    """A client's weights, (5,); of a copy of the network where it has a prefix."""
    return np.asarray(
        run.loop.federation[client].state_dict()[f"{prefix}core.weight"][0].double().numpy()
    )
