"""Which clients a rule put together, round by round, and how far apart they are: read, judged, drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlit.names import Clusters, sort_clusters

__all__ = [
    "CLUSTERS",
    "PAIRS",
    "adjusted_rand",
    "clusters_of",
    "concepts_of",
    "in_words",
    "judged",
    "stable_numbers",
]

CLUSTERS = "clusters.csv"

"""Of a run's folder: round, epoch, client, cluster, concept (what was planted; empty where that is not known)."""

PAIRS = "pairs.csv"

"""Of a run's folder: round, first, second, measure, value of each pair that a rule compared."""


def clusters_of(own: pd.DataFrame) -> Clusters:
    """Who is together in one round, whatever the clusters are called.

    Example:
        >>> clusters_of(pd.DataFrame({"client": ["oak", "elm", "ash"], "cluster": [1, 2, 1]}))
        (('ash', 'oak'), ('elm',))
    """
    return sort_clusters(clients for _, clients in own.groupby("cluster")["client"])


def judged(frame: pd.DataFrame, last: int = 5) -> Clusters:
    """Who belongs together at the end: the most frequent partition of the last rounds, of equals the latest.

    Args:
        frame: of :data:`CLUSTERS`.
        last: how many rounds are asked.

    Raises:
        ValueError: no rounds.

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
    """Client → planted concept, of those of which it is known."""
    known = frame[frame["concept"] != ""]
    return dict(zip(known["client"], known["concept"], strict=True))


def in_words(partition: Clusters) -> str:
    """Clusters as a person reads them.

    Example:
        >>> in_words((("ash", "elm"), ("oak",)))
        'ash, elm | oak'
    """
    return " | ".join(", ".join(cluster) for cluster in partition)


def adjusted_rand(partition: Clusters, concepts: Mapping[str, str]) -> float:
    """The adjusted Rand index of a partition against planted concepts: 1 for the same groups, about 0 for what chance
    gives; NaN where no concept is known. Clients without one do not count.

    Where all have the same concept it is 1 if they are one cluster, else 0.

    Example:
        >>> adjusted_rand((("ash", "oak"), ("elm",)), {"ash": "a", "oak": "a", "elm": "b"})
        1.0
    """
    from sklearn.metrics import adjusted_rand_score

    known = {name: number for number, names in enumerate(partition) for name in names if name in concepts}
    if not known:
        return float("nan")
    return float(adjusted_rand_score([concepts[name] for name in known], list(known.values())))


def stable_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Clients × rounds: a number (from 0) for each cluster of two or more that stays the same from round to round, −1
    for a client by itself, NaN for one that took no part.

    Clusters take over the numbers that most of their members had last (an optimal assignment); what is new gets one
    that no client had last. The clusters of the last round have the smallest numbers, by their first client.

    Example:
        >>> rows = {"round": [1, 1, 1, 2, 2, 2], "client": ["ash", "elm", "oak"] * 2, "cluster": [1, 2, 2, 1, 1, 1]}
        >>> stable_numbers(pd.DataFrame(rows)).to_numpy().tolist()
        [[-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    from scipy.optimize import linear_sum_assignment

    had: dict[str, int] = {}
    columns: dict[int, dict[str, int]] = {}
    for number, own in frame.groupby("round"):
        partition = clusters_of(own)
        groups = [group for group in partition if len(group) > 1]
        overlap = np.zeros((len(groups), max(had.values(), default=-1) + 1))
        for row, group in enumerate(groups):
            for name in group:
                if name in had:
                    overlap[row, had[name]] += 1
        rows, kept = linear_sum_assignment(overlap, maximize=True)
        given = {int(row): int(old) for row, old in zip(rows, kept, strict=True) if overlap[row, old]}
        taken = {*had.values(), *given.values()}
        for row in range(len(groups)):
            if row not in given:
                given[row] = next(new for new in range(len(taken) + 1) if new not in taken)
                taken.add(given[row])
        now = {name: given[row] for row, group in enumerate(groups) for name in group}
        columns[int(str(number))] = {name: now.get(name, -1) for group in partition for name in group}
        had |= now
    table = pd.DataFrame(columns, dtype=float).sort_index()
    order = dict.fromkeys(
        table.iloc[:, ::-1].to_numpy().ravel(order="F")
    )  # the last round first, from the first client
    places = {old: new for new, old in enumerate(old for old in order if old >= 0)}
    return table.replace(places)
