"""Clients by name: who belongs together, and how they tell each other facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Clustering", "Clusters", "Share", "sort_clusters"]

Share = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Tells facts: (topic, {client: JSON facts of the clients here}) → {client: those of all clients}, ordered by name."""


Clusters = tuple[tuple[str, ...], ...]
"""Clients by cluster: names sorted within a cluster, clusters sorted by their first name."""


@dataclass(frozen=True)
class Clustering:
    """The clusters that a rule found in one exchange.

    Attributes:
        clusters: who belongs together, of all clients.
        pairs: (client, client), the first before the second by name → what the rule compares them by.
        measure: what that is, in words.
        scalars: further numbers to log, by tag.
        paths: (client, client) → losses along paths between their models, at the middles of equal pieces, by path.
    """

    clusters: Clusters
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    measure: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)
    paths: Mapping[tuple[str, str], Mapping[str, Sequence[float]]] = field(default_factory=dict)


def sort_clusters(clusters: Iterable[Iterable[str]]) -> Clusters:
    """Clusters in the order that says which two are the same.

    Example:
        >>> sort_clusters([{"cedar"}, {"birch", "ash"}, set()])
        (('ash', 'birch'), ('cedar',))
    """
    return tuple(sorted(names for cluster in clusters if (names := tuple(sorted(cluster)))))
