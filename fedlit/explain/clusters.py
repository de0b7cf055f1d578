"""Reads and evaluates the clusters of clients that a rule found in each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

import pandas as pd

from fedlit.names import Clusters, sort_clusters

CLUSTERS = "clusters.csv"
"""The file of a run's folder with the cluster of each client. Columns: round, epoch, client,
cluster, concept (the true one; empty if it is not known)."""

PAIRS = "pairs.csv"
"""The file of a run's folder with the pairs of clients that a rule compared. Columns: round, first,
second, measure, value."""


def clusters_of(rows: pd.DataFrame) -> Clusters:
    """Return the clusters of one round, whatever their numbers are.

    Example:
        >>> clusters_of(pd.DataFrame({"client": ["oak", "elm", "ash"], "cluster": [1, 2, 1]}))
        (('ash', 'oak'), ('elm',))
    """
    return sort_clusters(clients for _, clients in rows.groupby("cluster")["client"])


def judged(frame: pd.DataFrame, last: int = 5) -> Clusters:
    """Return the final clusters: the most frequent partition of the last rounds, the latest among
    equals.

    Args:
        frame: the table of :data:`CLUSTERS`.
        last: the number of last rounds that count.

    Raises:
        ValueError: there are no rounds.

    Example:
        >>> frame = pd.DataFrame({"round": [1, 1, 2, 2, 3, 3], "client": ["ash", "oak"] * 3})
        >>> frame["cluster"] = [1, 2, 1, 2, 1, 1]
        >>> judged(frame), judged(frame, last=2)
        ((('ash',), ('oak',)), (('ash', 'oak'),))
    """
    if not len(frame):
        raise ValueError("expected clusters of at least one round, found none")
    partitions = [clusters_of(rows) for _, rows in frame.groupby("round")]
    latest_first = partitions[: -last - 1 : -1]
    counts = Counter(latest_first)
    return max(latest_first, key=counts.__getitem__)


def concepts_of(frame: pd.DataFrame) -> dict[str, str]:
    """Map each client to its true concept, if it is known."""
    rows = frame[frame["concept"] != ""]
    return dict(zip(rows["client"], rows["concept"], strict=True))


def adjusted_rand(partition: Clusters, concepts: Mapping[str, str]) -> float:
    """Return the adjusted Rand index of a partition against the true concepts: 1 for the same
    groups, about 0 for random groups, NaN if no concept is known. Clients without a known concept
    do not count.

    If all have the same concept, it is 1 if they are one cluster, otherwise 0.

    Example:
        >>> adjusted_rand((("ash", "oak"), ("elm",)), {"ash": "a", "oak": "a", "elm": "b"})
        1.0
    """
    from sklearn.metrics import adjusted_rand_score

    true: list[str] = []
    clusters: list[int] = []
    for number, names in enumerate(partition):
        known_concepts = [concepts[name] for name in names if name in concepts]
        true += known_concepts
        clusters += [number] * len(known_concepts)
    if not true:
        return float("nan")
    return float(adjusted_rand_score(true, clusters))


def stable_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of clients × rounds with a stable number (from 0) for each cluster of two or
    more clients, −1 for a client by itself, and NaN for a client that took no part.

    A cluster is recognised by its first client: those of one first client have one number in all
    rounds. The clusters of the last round have the smallest numbers, in the order of their first
    clients.

    Example:
        >>> frame = pd.DataFrame({"round": [1, 1, 1, 2, 2, 2], "client": ["ash", "elm", "oak"] * 2})
        >>> frame["cluster"] = [1, 2, 2, 1, 1, 1]
        >>> stable_numbers(frame).to_numpy().tolist()
        [[-1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    """
    rounds = {number: clusters_of(rows) for number, rows in frame.groupby("round")}
    numbers: dict[str, int] = {}  # first client of a cluster → its number
    for partition in reversed(rounds.values()):
        for group in partition:
            if len(group) > 1:
                numbers.setdefault(group[0], len(numbers))
    columns: dict[Hashable, dict[str, int]] = {}
    for number, partition in rounds.items():
        columns[number] = {}
        for group in partition:
            cluster = numbers[group[0]] if len(group) > 1 else -1
            columns[number] |= dict.fromkeys(group, cluster)
    return pd.DataFrame(columns, dtype=float).sort_index()
