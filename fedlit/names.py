"""Clusters of clients, and the function by which clients exchange facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Share = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Tells facts: (topic, {client: JSON facts of the clients here}) → {client: those of all clients}, ordered by name."""


Clusters = tuple[tuple[str, ...], ...]
"""Clients by cluster: names sorted within a cluster, clusters sorted by their first name."""


@dataclass(frozen=True)
class Clustering:
    """The clusters that a rule found in one exchange.

    Attributes:
        clusters: the clusters of all clients.
        pairs: maps each pair (client, client), the first before the second by name, to the number by which the rule
            compares them.
        measure: what this number is, in words.
        scalars: further numbers to log, by tag.
        paths: maps each pair (client, client) to the losses along paths between their models, at the midpoints of equal
            pieces, by path.
    """

    clusters: Clusters
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    measure: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)
    paths: Mapping[tuple[str, str], Mapping[str, Sequence[float]]] = field(default_factory=dict)


def sort_clusters(clusters: Iterable[Iterable[str]]) -> Clusters:
    """Return clusters in canonical order, so that equal clusterings compare equal.

    Example:
        >>> sort_clusters([{"cedar"}, {"birch", "ash"}, set()])
        (('ash', 'birch'), ('cedar',))
    """
    return tuple(sorted(names for cluster in clusters if (names := tuple(sorted(cluster)))))
