"""Names of clients: which patterns match, who is together."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Clusters", "sort_clusters"]


Clusters = tuple[tuple[str, ...], ...]
"""Clients by cluster: names sorted within a cluster, clusters sorted by their first name."""


def sort_clusters(clusters: Iterable[Iterable[str]]) -> Clusters:
    """Clusters in the order that says which two are the same.

    Example:
        >>> sort_clusters([{"cedar"}, {"birch", "ash"}, set()])
        (('ash', 'birch'), ('cedar',))
    """
    return tuple(sorted(names for cluster in clusters if (names := tuple(sorted(cluster)))))
