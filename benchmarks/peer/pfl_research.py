"""pfl-research (``pip install pfl``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from peer.work import RATE, Clock, Network, Tables, Work, start

METHODS = ("fedavg",)
NEVER = 10**6


class Model(Network):
    """The network with the methods that pfl-research asks for."""

    def loss(self, x: Tensor, y: Tensor, is_eval: bool = False) -> Tensor:
        """Return the mean loss of a batch."""
        return functional.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor, is_eval: bool = True) -> dict[str, Weighted]:
        """Return the loss of rows that are scored."""
        total = functional.cross_entropy(self(x), y, reduction="sum").item()
        return {"loss": Weighted(total, len(y))}


class Marks(TrainingProcessCallback):
    """Marks the clock after each round.

    Args:
        clock: what is marked.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        """Mark, and go on."""
        self.clock.mark()
        return False, Metrics()


def federated(rows_of: Any, clients: int) -> FederatedDataset:
    """Return clients' rows as pfl-research's dataset."""
    sampler = get_user_sampler("minimize_reuse", list(range(clients)))
    return FederatedDataset(
        lambda client: PyTorchTensorDataset(rows_of(client), user_id=client), sampler
    )


def train(work: Work, tables: Tables, clock: Clock) -> Sequence[nn.Module]:
    """Train with its simulated backend."""
    torch.manual_seed(0)
    network = Model()
    network.load_state_dict(start().state_dict())
    central = torch.optim.SGD(network.parameters(), 1.0)
    backend = SimulatedBackend(
        federated(tables.train, work.clients),
        federated(tables.scored, work.clients),
        postprocessors=[WeightByUser()],
    )
    clock.mark()
    FederatedAveraging().run(
        backend=backend,
        model=PyTorchModel(network, torch.optim.SGD, central),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=RATE, local_num_epochs=work.epochs, local_batch_size=work.batch
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=1024),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=1 if work.validate else NEVER,
            train_cohort_size=work.clients,
            val_cohort_size=work.clients if work.validate else 0,
        ),
        callbacks=[Marks(clock)],
    )
    return [network]
