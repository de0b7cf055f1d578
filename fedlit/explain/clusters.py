"""Reads and evaluates the clusters of clients that a rule found in each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from fedlit.names import Clusters, sort_clusters

CLUSTERS = "clusters.csv"

"""Of a run's folder: round, epoch, client, cluster, concept (what was planted; empty where that is
not known)."""

PAIRS = "pairs.csv"

"""Of a run's folder: round, first, second, measure, value of each pair that a rule compared."""


def clusters_of(own: pd.DataFrame) -> Clusters:
    """Return the clusters of one round, whatever their numbers are.

    Example:
        >>> clusters_of(pd.DataFrame({"client": ["oak", "elm", "ash"], "cluster": [1, 2, 1]}))
        (('ash', 'oak'), ('elm',))
    """
    return sort_clusters(clients for _, clients in own.groupby("cluster")["client"])


def judged(frame: pd.DataFrame, last: int = 5) -> Clusters:
    """Return the final clusters: the most frequent partition of the last rounds, the latest among
    equals.

    Args:
        frame: the table of :data:`CLUSTERS`.
        last: the number of last rounds that count.

    Raises:
        ValueError: there are no rounds.

    Example:
        >>> rows = {"round": [1, 1, 2, 2, 3, 3], "client": ["ash", "oak"] * 3, "cluster": [1, 2, 1, 2, 1, 1]}
        >>> judged(pd.DataFrame(rows)), judged(pd.DataFrame(rows), last=2)
        ((('ash',), ('oak',)), (('ash', 'oak'),))
    """
    if not len(frame):
        raise ValueError("expected clusters of at least one round, found none")
    latest_first = [clusters_of(own) for _, own in frame.groupby("round")][: -last - 1 : -1]
    counts = Counter(latest_first)
    return max(latest_first, key=counts.__getitem__)


def concepts_of(frame: pd.DataFrame) -> dict[str, str]:
    """Map each client to its planted concept, if it is known."""
    known = frame[frame["concept"] != ""]
    return dict(zip(known["client"], known["concept"], strict=True))


def adjusted_rand(partition: Clusters, concepts: Mapping[str, str]) -> float:
    """Return the adjusted Rand index of a partition against planted concepts: 1 for the same
    groups, about 0 for random groups, NaN if no concept is known. Clients without a known concept
    do not count.

    If all have the same concept, it is 1 if they are one cluster, otherwise 0.

    Example:
        >>> adjusted_rand((("ash", "oak"), ("elm",)), {"ash": "a", "oak": "a", "elm": "b"})
        1.0
    """
    from sklearn.metrics import adjusted_rand_score

    known = {
        name: number for number, names in enumerate(partition) for name in names if name in concepts
    }
    if not known:
        return float("nan")
    return float(adjusted_rand_score([concepts[name] for name in known], list(known.values())))


def stable_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of clients × rounds with a stable number (from 0) for each cluster of two or
    more clients, −1 for a client by itself, and NaN for a client that took no part.

    A cluster is recognised by its first client: those of one first client have one number in all
    rounds. The clusters of the last round have the smallest numbers, in the order of their first
    clients.

    Example:
        >>> rows = {"round": [1, 1, 1, 2, 2, 2], "client": ["ash", "elm", "oak"] * 2, "cluster": [1, 2, 2, 1, 1, 1]}
        >>> stable_numbers(pd.DataFrame(rows)).to_numpy().tolist()
        [[-1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    """
    rounds = {number: clusters_of(own) for number, own in frame.groupby("round")}
    firsts = [group[0] for number in reversed(rounds) for group in rounds[number] if len(group) > 1]
    numbers = {first: place for place, first in enumerate(dict.fromkeys(firsts))}
    columns = {
        number: {
            name: numbers[group[0]] if len(group) > 1 else -1
            for group in partition
            for name in group
        }
        for number, partition in rounds.items()
    }
    return pd.DataFrame(columns, dtype=float).sort_index()
