"""Iterative federated clustering (Ghosh, Chung, Yin and Ramchandran 2020, "An Efficient Framework for Clustered
Federated Learning", arXiv:2006.04088).
"""

from collections.abc import Mapping
from typing import Literal

import torch

from fedlit.exchange.questions import Losses
from fedlit.exchange.rule import Facts, Need, Round, demand
from fedlit.exchange.rules.clustered import Clustered
from fedlit.names import Clustering, sort_clusters
from fedlit.seeding import derive_seed
from fedlit.sharing import State


class IFCA(Clustered):
    """There are k models. Each client gets the one with the smallest mean loss on its training rows, and each model
    becomes the mean of the clients that had it (Algorithm 1 of the paper, with model averaging).

    The first model starts from the clients' common initial values, the others from values drawn by other seeds. A model
    that no client picked stays unchanged, and is offered again. All k models are sent to all clients.

    Untrained networks hardly differ: often all clients pick the same one, and continue to do so. With ``start: drawn``
    each client is assigned a model for the first round, as evenly as possible; NOTE[DIFF]: the paper restarts instead,
    and keeps the best of several trainings.

    Args:
        clusters: k, the number of models.
        start: how clients get their first model: by their ``losses``, or ``drawn``.
        weights: see :class:`~fedlit.exchange.rules.clustered.Clustered`.
    """

    facts = Facts(questions={"losses": {}})
    _memory = ("models", "picked")

    def __init__(
        self,
        clusters: int = 2,
        start: Literal["losses", "drawn"] = "losses",
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        demand(clusters >= 1, "IFCA: clusters", "at least 1", clusters)
        self.clusters = clusters
        super().__init__(weights)
        self.needs |= frozenset[Need]({"model", "answers"})
        self.asks = f"its mean training loss under each of {clusters} models"
        self.start: Literal["losses", "drawn"] = start
        self._models: list[State] = []
        self._picked: dict[str, int] = {}

    def begin(self, round: Round) -> Mapping[str, State]:
        """Draw the models, and let clients pick."""
        assert round.model is not None
        first = next(iter(round.updates.values()))
        self._models = [{name: value.clone() for name, value in first.state.items()}]
        for number in range(1, self.clusters):
            self._models.append(round.model.fresh(derive_seed(round.seed, "model", number)))
        if self.start == "drawn":
            generator = torch.Generator().manual_seed(derive_seed(round.seed, "start"))
            order = torch.randperm(len(round.updates), generator=generator).tolist()
            self._picked = {client: place % self.clusters for client, place in zip(round.updates, order, strict=True)}
        else:
            self._pick(round)
        return {client: self._models[number] for client, number in self._picked.items()}

    def _pick(self, round: Round) -> None:
        for client, losses in round.ask(dict.fromkeys(round.updates, Losses(self._models))).items():
            self._picked[client] = int(torch.nan_to_num(losses, nan=torch.inf).argmin())

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Average the models, let clients pick, and return the clusters. A client that takes no part keeps its pick."""
        for number in range(self.clusters):
            members = [client for client in round.updates if self._picked[client] == number]
            if members:
                self._models[number] = {**self._models[number], **self.mean_of(round.updates, members)}
        self._pick(round)
        clusters = sort_clusters(
            [client for client in round.receivers if self._picked[client] == number] for number in range(self.clusters)
        )
        return Clustering(clusters), [self._models[self._picked[cluster[0]]] for cluster in clusters]
