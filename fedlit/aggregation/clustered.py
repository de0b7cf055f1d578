"""Rules that find out which clients belong together, and give each group a state of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedlit.aggregation.mean import mean
from fedlit.aggregation.rule import Rule, Update
from fedlit.sharing import State

__all__ = ["Clustered", "Clusters", "Grouping", "components", "cosine_similarities", "sort_clusters"]

Clusters = tuple[tuple[str, ...], ...]
"""Clients by cluster: names sorted within a cluster, clusters sorted by their first name."""


@dataclass(frozen=True)
class Grouping:
    """What a rule found in one exchange.

    Attributes:
        clusters: who belongs together; clients that did not take part are where they were.
        pairs: (client, client), the first before the second by name → what the rule compares them by.
        measure: what that is, in words.
        scalars: further numbers to log, by tag.
    """

    clusters: Clusters
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    measure: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)


def sort_clusters(clusters: Iterable[Iterable[str]]) -> Clusters:
    """Clusters in the order that says which two are the same.

    Example:
        >>> sort_clusters([{"cedar"}, {"birch", "ash"}, set()])
        (('ash', 'birch'), ('cedar',))
    """
    return tuple(sorted(tuple(sorted(cluster)) for cluster in clusters if cluster))


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

    A client that did not take part, or whose update was not finite, receives what most of those receive that were in
    its cluster when it last took part, and stays as it is if none of them did. One that never did receives the mean of
    all, and has no cluster yet.

    Attributes:
        weights: whether clients of a cluster count the same (``uniform``) or by their training rows (``rows``).
        grouping: what was found in the last exchange.
    """

    weights: Literal["uniform", "rows"] = "uniform"

    def __init__(self) -> None:
        self._companions: dict[str, list[str]] = {}
        self._grouping: Grouping | None = None

    @property
    def grouping(self) -> Grouping | None:
        """See the class."""
        return self._grouping

    @abstractmethod
    def group(self, updates: Mapping[str, Update]) -> tuple[Grouping, list[State]]:
        """Who belongs together, and what each cluster receives, in the order of the clusters."""

    def mean_of(self, updates: Mapping[str, Update], clients: Iterable[str]) -> dict[str, Tensor]:
        """The mean of some clients' states."""
        states = {client: updates[client].state for client in clients}
        weights = {client: float(updates[client].rows) for client in states} if self.weights == "rows" else None
        return mean(states, weights)

    def __call__(self, updates: Mapping[str, Update], receivers: Mapping[str, tuple[str, ...]]) -> Mapping[str, State]:
        """See :class:`~fedlit.aggregation.rule.Rule`."""
        found, states = self.group(dict(sorted(updates.items())))
        at = {client: number for number, cluster in enumerate(found.clusters) for client in cluster}
        standing = [list(cluster) for cluster in found.clusters]
        received: dict[str, State] = {}
        for client, names in receivers.items():
            number = at.get(client)
            if number is None and client in self._companions:
                met = [at[other] for other in self._companions[client] if other in at]
                number = max(met, key=met.count) if met else None
                if number is not None:
                    standing[number].append(client)
                state = states[number] if number is not None else self.kept(client)
            else:
                state = states[number] if number is not None else self.mean_of(updates, sorted(updates))
            received[client] = {name: state[name] for name in names if name in state}
        self._grouping = replace(found, clusters=sort_clusters(standing))
        self._companions |= {client: list(cluster) for cluster in self._grouping.clusters for client in cluster}
        return received

    def kept(self, client: str) -> State:
        """What a client receives of whose cluster nobody took part: nothing, unless the rule has kept its state."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Who was with whom."""
        return {"companions": self._companions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore."""
        self._companions = state["companions"]
