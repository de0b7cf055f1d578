"""Clustered federated learning (Sattler, Müller and Samek 2020, "Clustered Federated Learning: Model-Agnostic
Distributed Multitask Optimization Under Privacy Constraints", arXiv:1910.01991), and one-time clustering of updates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedlit.exchange.rule import Facts, Round, Update, demand
from fedlit.exchange.rules.clustered import Clustered, cosine_similarities, flat
from fedlit.names import Clustering, Clusters, sort_clusters
from fedlit.sharing import State

Linkage = Literal["single", "complete", "average"]


class _OfUpdates(Clustered):
    """The base class of both rules. It computes updates as differences from what each client received last."""

    facts = Facts(whole_rate=True)
    _memory: tuple[str, ...] = ("clusters", "before")

    def __init__(self, linkage: Linkage, weights: Literal["uniform", "rows"]) -> None:
        self.linkage: Linkage = linkage
        super().__init__(weights)
        self._clusters: Clusters = ()
        self._before: list[dict[str, Tensor]] = []  # by cluster, what its clients received

    def begin(self, round: Round) -> Mapping[str, State]:
        """Remember what all clients start from."""
        self._clusters = sort_clusters([round.updates])
        self._before = [{name: value.clone() for name, value in self.mean_of(round.updates, round.updates).items()}]
        return {}

    def _updates(self, updates: Mapping[str, Update]) -> dict[str, Tensor]:
        moved = {}
        for cluster, before in zip(self._clusters, self._before, strict=True):
            for client in (client for client in cluster if client in updates):
                names = updates[client].parameters
                moved[client] = flat(updates[client].state, names) - flat(before, names)
        return moved

    def _cut(
        self,
        clients: Sequence[str],
        similar: Mapping[tuple[str, str], float],
        absent: Iterable[str] = (),
        **how: Any,
    ) -> Clusters:
        """Cluster clients agglomeratively by cosine distance. Absent clients, about which nothing is known, join the
        largest cluster.
        """
        from sklearn.cluster import AgglomerativeClustering

        labels = [0]
        if len(clients) > 1:
            distance = np.array(
                [[0 if a == b else 1 - similar[min(a, b), max(a, b)] for b in clients] for a in clients]
            )
            clustering = AgglomerativeClustering(metric="precomputed", linkage=self.linkage, **how)
            labels = clustering.fit_predict(distance).tolist()
        found = sort_clusters(
            [c for c, found in zip(clients, labels, strict=True) if found == label] for label in {*labels}
        )
        largest = max(found, key=len)
        return sort_clusters((*cluster, *absent) if cluster is largest else cluster for cluster in found)

    def _keep(self, updates: Mapping[str, Update], clusters: Clusters) -> list[State]:
        """Use these clusters from now on, and return what each receives: the mean of its members, or what it received
        last if none of them took part.
        """
        last = zip(self._clusters, self._before, strict=True)
        before = {client: state for cluster, state in last for client in cluster}
        present = [[client for client in cluster if client in updates] for cluster in clusters]
        self._before = [
            self.mean_of(updates, members) if members else before[cluster[0]]
            for cluster, members in zip(clusters, present, strict=True)
        ]
        self._clusters = clusters
        return list(self._before)

    def state_dict(self) -> dict[str, Any]:
        """Return the clusters and what each of them received last."""
        return {**super().state_dict(), "clusters": [list(cluster) for cluster in self._clusters]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        super().load_state_dict(state)
        self._clusters = sort_clusters(state["clusters"])


class CFL(_OfUpdates):
    """Federated averaging within clusters. A cluster splits in two when its clients pull in different directions: their
    mean update is short, so that the average stands still, but some update is long (Algorithm 1 of the paper).

    The split minimises the largest cosine similarity of updates between the two halves, which single linkage finds.
    Clusters never merge again. NOTE[DIFF]: the authors' code uses complete linkage (``linkage``), and neither it nor
    this rule checks the paper's bound on gradient noise (its Eq. 32) before splitting. Clients of a cluster have equal
    weights; the paper weights them by rows (``weights: rows``).

    Args:
        epsilon_1: ε₁, the length of the mean update below which a cluster may split.
        epsilon_2: ε₂, the length above which some client's update must be. Both are in units of the parameters, and
            depend on the learning rate: see ``exchange/mean_update`` and ``exchange/largest_update``.
        linkage: the linkage by which the two halves are found.
        weights: see :class:`~fedlit.exchange.rules.clustered.Clustered`.
    """

    def __init__(
        self,
        epsilon_1: float = 0.2,
        epsilon_2: float = 0.4,
        linkage: Linkage = "single",
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        demand(epsilon_1 > 0 and epsilon_2 > 0, "CFL: epsilon_1, epsilon_2", "numbers above 0", (epsilon_1, epsilon_2))
        super().__init__(linkage, weights)
        self.epsilon_1, self.epsilon_2 = epsilon_1, epsilon_2

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Split clusters as the class describes it, and return them with their means."""
        updates = round.updates
        moved = self._updates(updates)
        similar = cosine_similarities(moved)
        halves: list[tuple[str, ...]] = []
        means, largest = [], []
        for cluster in self._clusters:
            present = [client for client in cluster if client in moved]
            halves.append(cluster)
            if not present:
                continue
            means.append(float(self._mean_update(moved, updates, present).norm()))
            largest.append(max(float(moved[client].norm()) for client in present))
            if len(present) > 1 and means[-1] < self.epsilon_1 and largest[-1] > self.epsilon_2:
                absent = [client for client in cluster if client not in moved]
                halves[-1:] = self._cut(present, similar, absent, n_clusters=2)
        found = sort_clusters(halves)
        scalars = {"mean_update": max(means, default=0.0), "largest_update": max(largest, default=0.0)}
        return Clustering(found, similar, "cosine similarity", scalars), self._keep(updates, found)

    def _mean_update(
        self, moved: Mapping[str, Tensor], updates: Mapping[str, Update], clients: Sequence[str]
    ) -> Tensor:
        weight = [float(updates[client].rows) if self.weights == "rows" else 1.0 for client in clients]
        share = torch.tensor(weight, device=moved[clients[0]].device) / sum(weight)
        return share @ torch.stack([moved[client] for client in clients])


class Agglomerative(_OfUpdates):
    """Federated averaging among all clients for some rounds, then agglomerative clustering of their updates by cosine
    distance, and from then on federated averaging within clusters (after Briggs, Fan and Andras 2020, "Federated
    learning with hierarchical clustering of local updates to improve training on non-IID data", arXiv:2004.11791).

    Args:
        after: the number of the exchange that clusters, from 1.
        clusters: the number of clusters; give this or ``distance``.
        distance: the cosine distance (1 − similarity) above which clusters are not joined.
        linkage: the linkage of scikit-learn's AgglomerativeClustering.
        weights: see :class:`~fedlit.exchange.rules.clustered.Clustered`.
    """

    _memory = (*_OfUpdates._memory, "rounds")

    def __init__(
        self,
        after: int = 3,
        clusters: int | None = None,
        distance: float | None = None,
        linkage: Linkage = "average",
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        mend = "for example distance: 1.0, which joins updates that do not point away from each other"
        one, both = "one of clusters and distance", f"{clusters} and {distance}"
        demand((clusters is None) != (distance is None), "Agglomerative", one, both, mend)
        demand(after >= 1, "Agglomerative: after", "the number of an exchange, from 1", after)
        demand(clusters is None or clusters >= 1, "Agglomerative: clusters", "at least 1", clusters)
        super().__init__(linkage, weights)
        self.after, self.clusters, self.distance = after, clusters, distance
        self._rounds = 0

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Cluster the clients if it is the exchange ``after``, and return the clusters with their means."""
        self._rounds += 1
        updates = round.updates
        moved = self._updates(updates)
        similar = cosine_similarities(moved)
        clusters = self._clusters
        if self._rounds == self.after:
            number = None if self.clusters is None else min(self.clusters, len(moved))
            absent = [client for cluster in clusters for client in cluster if client not in moved]
            clusters = self._cut(sorted(moved), similar, absent, n_clusters=number, distance_threshold=self.distance)
        return Clustering(clusters, similar, "cosine similarity"), self._keep(updates, clusters)
