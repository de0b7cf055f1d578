"""Iterative federated clustering (Ghosh, Chung, Yin and Ramchandran 2020, "An Efficient Framework for Clustered
Federated Learning", arXiv:2006.04088).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Update
from fedlit.exchange.rules.clustered import Clustered, Grouping
from fedlit.names import sort_clusters
from fedlit.seeding import derive_seed
from fedlit.sharing import State

__all__ = ["IFCA"]


class IFCA(Clustered):
    """k models; each client gets the one with the least mean loss on its training rows, and each model becomes the mean
    of the clients that had it (Algorithm 1 there, with model averaging).

    The first model starts from the clients' common initial values, the others from values drawn by other seeds. A model
    that no client picked stays as it was, and is on offer again. All k models travel to all clients.

    Untrained networks tell clients little: often all pick the same one, and go on to do so. With ``start: drawn`` each
    client is dealt a model for the first round, as evenly as can be; NOTE[DIFF]: the paper restarts instead, and keeps
    the best of several trainings.

    Args:
        clusters: k.
        start: how clients come to their first model: by their ``losses``, or ``drawn``.
        weights: see :class:`~fedlit.exchange.rules.clustered.Clustered`.
    """

    def __init__(
        self,
        clusters: int = 2,
        start: Literal["losses", "drawn"] = "losses",
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        if clusters < 1:
            raise ConfigError(f"IFCA: clusters: expected at least 1, found {clusters}")
        super().__init__()
        self.clusters, self.weights = clusters, weights
        self.start: Literal["losses", "drawn"] = start
        self._models: list[State] = []
        self._picked: dict[str, int] = {}

    @property
    def asks(self) -> str:
        """Losses."""
        return f"its mean training loss under each of {self.clusters} models"

    def begin(self, updates: Mapping[str, Update]) -> Mapping[str, State]:
        """Draw the models, and let clients pick."""
        first = next(iter(updates.values()))
        assert first.party is not None
        self._models = [{name: value.clone() for name, value in first.state.items()}]
        for number in range(1, self.clusters):
            self._models.append(first.party.fresh(derive_seed(torch.initial_seed(), "model", number)))
        if self.start == "drawn":
            generator = torch.Generator().manual_seed(derive_seed(torch.initial_seed(), "start"))
            order = torch.randperm(len(updates), generator=generator).tolist()
            self._picked = {client: place % self.clusters for client, place in zip(updates, order, strict=True)}
        else:
            self._pick(updates)
        return {client: self._models[number] for client, number in self._picked.items()}

    def _pick(self, updates: Mapping[str, Update]) -> None:
        for client, update in updates.items():
            assert update.party is not None
            losses = update.party.losses(self._models)
            self._picked[client] = int(torch.nan_to_num(losses, nan=torch.inf).argmin())

    def group(self, updates: Mapping[str, Update], clients: Sequence[str]) -> tuple[Grouping, list[State]]:
        """See the class; a client that takes no part keeps its pick."""
        for number in range(self.clusters):
            own = [client for client in updates if self._picked[client] == number]
            if own:
                self._models[number] = {**self._models[number], **self.mean_of(updates, own)}
        self._pick(updates)
        clusters = sort_clusters(
            [client for client in clients if self._picked[client] == number] for number in range(self.clusters)
        )
        return Grouping(clusters), [self._models[self._picked[cluster[0]]] for cluster in clusters]

    def state_dict(self) -> dict[str, Any]:
        """The models, and who picked which."""
        return {"models": [dict(model) for model in self._models], "picked": self._picked}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore."""
        self._models, self._picked = state["models"], state["picked"]
