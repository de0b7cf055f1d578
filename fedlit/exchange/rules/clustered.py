"""Rules that find which clients belong together, and give each group its own state."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules.mean import Mean
from fedlit.names import Clustering
from fedlit.sharing import Sharing, State


def flat(state: State, names: Iterable[str]) -> Tensor:
    """Return several tensors as one flat float32 vector."""
    return torch.cat([state[name].detach().flatten().float() for name in names])


def cosine_similarities(updates: Mapping[str, Tensor]) -> dict[tuple[str, str], float]:
    """Return the cosine similarity of each pair of vectors, by name; 0 if one of them is 0.

    Example:
        >>> cosine_similarities({"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([-3.0, 0.0])})
        {('a', 'b'): -1.0}
    """
    names = sorted(updates)
    vectors = torch.stack([updates[name] for name in names])
    unit = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    matrix = (unit @ unit.T).clamp(-1, 1).tolist()
    return {(a, b): matrix[i][j] for i, a in enumerate(names) for j, b in enumerate(names) if a < b}


class Clustered(Rule):
    """A rule with clusters. A subclass defines them, and what each cluster receives.

    Attributes:
        weights: whether the clients of a cluster count the same (``uniform``) or by their training rows (``rows``).
        clustering: the clusters of the last exchange; None before the first.
    """

    clustering: Clustering | None = None

    def __init__(self, weights: Literal["uniform", "rows"] = "uniform") -> None:
        self.weights: Literal["uniform", "rows"] = weights
        self.needs = frozenset({"states", "rows"} if weights == "rows" else {"states"})

    @abstractmethod
    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Return the clusters and the state that each receives, in the order of the clusters.

        Clients that took no part, or whose update was not finite, are in a cluster too. A tensor that a state lacks
        stays as it is, or is reset if it is not finite.
        """

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse clients with different federated tensors, because they cannot be compared."""
        first, *others = sorted(sharing.names)
        for other in others:
            for name in sorted({*sharing.names[first]} ^ {*sharing.names[other]}):
                here, there = (first, other) if name in sharing.names[first] else (other, first)
                raise ConfigError(
                    f"exchange.rule: {type(self).__name__} compares clients, expected the same federated tensors at "
                    f"all, found {name} at {here} and not at {there}; federate what all have, or take another rule"
                )

    def mean_of(self, updates: Mapping[str, Update], clients: Iterable[str]) -> dict[str, Tensor]:
        """Return the mean of some clients' states."""
        return Mean(self.weights).average({client: updates[client] for client in clients})

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        self.clustering, states = self.cluster(round)
        self.scalars = {"clusters": float(len(self.clustering.clusters)), **self.clustering.scalars}
        return {
            client: {name: state[name] for name in round.receivers[client] if name in state}
            for cluster, state in zip(self.clustering.clusters, states, strict=True)
            for client in cluster
        }
