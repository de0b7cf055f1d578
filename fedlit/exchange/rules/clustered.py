"""Rules that find out which clients belong together, and give each group a state of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.rules.mean import mean
from fedlit.names import Clusters, sort_clusters
from fedlit.sharing import Sharing, State

if TYPE_CHECKING:
    from fedlit.client.client import FederatedClient

__all__ = ["Clustered", "Grouping", "components", "cosine_similarities"]


@dataclass(frozen=True)
class Grouping:
    """What a rule found in one exchange.

    Attributes:
        clusters: who belongs together, of all clients.
        pairs: (client, client), the first before the second by name → what the rule compares them by.
        measure: what that is, in words.
        scalars: further numbers to log, by tag.
    """

    clusters: Clusters
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    measure: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)


def components(clients: Iterable[str], connected: Iterable[tuple[str, str]]) -> Clusters:
    """Connected components.

    Example:
        >>> components("abcd", [("a", "c"), ("c", "d")])
        (('a', 'c', 'd'), ('b',))
    """
    of = {client: {client} for client in clients}
    for first, second in connected:
        if of[first] is not of[second]:
            joint = of[first] | of[second]
            of |= dict.fromkeys(joint, joint)
    return sort_clusters({id(cluster): cluster for cluster in of.values()}.values())


def flat(state: State, names: Iterable[str]) -> Tensor:
    """One vector of several tensors, float32."""
    return torch.cat([state[name].detach().flatten().float() for name in names])


def cosine_similarities(updates: Mapping[str, Tensor]) -> dict[tuple[str, str], float]:
    """Of each pair of vectors, by name; 0 where one of them is 0.

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
    """A rule with clusters. A subclass says which, and what each cluster receives.

    Attributes:
        weights: whether clients of a cluster count the same (``uniform``) or by their training rows (``rows``).
        grouping: what was found in the last exchange; None before the first.
    """

    weights: Literal["uniform", "rows"] = "uniform"
    grouping: Grouping | None = None

    @abstractmethod
    def group(self, updates: Mapping[str, Update], clients: Sequence[str]) -> tuple[Grouping, list[State]]:
        """Who belongs together, and what each cluster receives, in the order of the clusters.

        Args:
            updates: ordered by client name.
            clients: all, also those that took no part or whose update was not finite: they are in a cluster too. What
                a state leaves out stays as it is, or starts anew where it is not finite.
        """

    def check(self, clients: Mapping[str, FederatedClient], sharing: Sharing, rate: float) -> None:
        """Refuse clients that federate different things, which cannot be compared."""
        first, *others = sorted(sharing.names)
        for other in others:
            for name in sorted({*sharing.names[first]} ^ {*sharing.names[other]}):
                here, there = (first, other) if name in sharing.names[first] else (other, first)
                raise ConfigError(
                    f"exchange.rule: {type(self).__name__} compares clients, expected the same federated tensors at "
                    f"all, found {name} at {here} and not at {there}; federate what all have, or take another rule"
                )

    def mean_of(self, updates: Mapping[str, Update], clients: Iterable[str]) -> dict[str, Tensor]:
        """The mean of some clients' states."""
        states = {client: updates[client].state for client in clients}
        weights = {client: float(updates[client].rows) for client in states} if self.weights == "rows" else None
        return mean(states, weights)

    def __call__(self, updates: Mapping[str, Update], receivers: Mapping[str, tuple[str, ...]]) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        self.grouping, states = self.group(dict(sorted(updates.items())), sorted(receivers))
        return {
            client: {name: state[name] for name in receivers[client] if name in state}
            for cluster, state in zip(self.grouping.clusters, states, strict=True)
            for client in cluster
        }

    @property
    def scalars(self) -> Mapping[str, float]:
        """The number of clusters, and what else was found."""
        found = self.grouping
        return {} if found is None else {"clusters": float(len(found.clusters)), **found.scalars}
