"""Rules that find which clients belong together, and give each group its own state."""

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.questions import Losses
from fedlit.exchange.rule import Facts, Need, Round, Rule, Update, demand
from fedlit.exchange.rules.mean import Mean
from fedlit.names import Clustering, Clusters, sort_clusters
from fedlit.seeding import derive_seed
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
    return {
        (names[row], names[column]): matrix[row][column]
        for row, column in itertools.product(range(len(names)), repeat=2)
        if names[row] < names[column]
    }


class Clustered(Rule):
    """A rule with clusters. A subclass defines them, and what each cluster receives.

    Attributes:
        weights: whether the clients of a cluster count the same (``uniform``) or by their training
            rows (``rows``).
        clustering: the clusters of the last exchange; None before the first.
    """

    clustering: Clustering | None = None

    def __init__(self, weights: Literal["uniform", "rows"] = "uniform") -> None:
        self.weights: Literal["uniform", "rows"] = weights
        self.needs = frozenset[Need]({"states"})
        if weights == "rows":
            self.needs |= frozenset[Need]({"rows"})

    @abstractmethod
    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Return the clusters and the state that each receives, in the order of the clusters.

        Clients that took no part, or whose update was not finite, are in a cluster too. A tensor
        that a state lacks stays as it is, or is reset if it is not finite.
        """

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse clients with different federated tensors, because they cannot be compared."""
        first, *rest = sorted(sharing.names)
        for second in rest:
            for name in sorted({*sharing.names[first]} ^ {*sharing.names[second]}):
                having = first
                lacking = second
                if name not in sharing.names[first]:
                    having = second
                    lacking = first
                raise ConfigError(
                    f"exchange.rule: {type(self).__name__} compares clients, expected the same "
                    f"federated tensors at all, found {name} at {having} and not at {lacking}; "
                    "federate what all have, or take another rule"
                )

    def mean_of(self, updates: Mapping[str, Update], clients: Iterable[str]) -> dict[str, Tensor]:
        """Return the mean of some clients' states."""
        return Mean(self.weights).average({client: updates[client] for client in clients})

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        self.clustering, states = self.cluster(round)
        self.scalars = {"clusters": float(len(self.clustering.clusters)), **self.clustering.scalars}
        received: dict[str, dict[str, Tensor]] = {}
        for cluster, state in zip(self.clustering.clusters, states, strict=True):
            for client in cluster:
                names = round.receivers[client]
                received[client] = {name: state[name] for name in names if name in state}
        return received


Linkage = Literal["single", "complete", "average"]


class _OfUpdates(Clustered):
    """The base class of rules that cluster updates, which are differences from what each client
    received last.
    """

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
        self._before = [
            {
                name: value.clone()
                for name, value in self.mean_of(round.updates, round.updates).items()
            }
        ]
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
        n_clusters: int | None = None,
        distance_threshold: float | None = None,
    ) -> Clusters:
        """Cluster clients agglomeratively by cosine distance. Absent clients, about which nothing
        is known, join the largest cluster.
        """
        from sklearn.cluster import AgglomerativeClustering

        labels = [0]
        if len(clients) > 1:
            distance = np.zeros((len(clients), len(clients)))
            for row, column in itertools.permutations(range(len(clients)), 2):
                first, second = sorted((clients[row], clients[column]))
                distance[row, column] = 1 - similar[first, second]
            clustering = AgglomerativeClustering(
                metric="precomputed",
                linkage=self.linkage,
                n_clusters=n_clusters,
                distance_threshold=distance_threshold,
            )
            labels = clustering.fit_predict(distance).tolist()
        members: dict[int, list[str]] = {}
        for client, label in zip(clients, labels, strict=True):
            members.setdefault(label, []).append(client)
        clusters = sort_clusters(members.values())
        largest = max(clusters, key=len)
        smaller = [cluster for cluster in clusters if cluster is not largest]
        return sort_clusters([(*largest, *absent), *smaller])

    def _keep(self, updates: Mapping[str, Update], clusters: Clusters) -> list[State]:
        """Use these clusters from now on, and return what each receives: the mean of its members,
        or what it received last if none of them took part.
        """
        last = zip(self._clusters, self._before, strict=True)
        before: dict[str, dict[str, Tensor]] = {}
        for cluster, state in last:
            before |= dict.fromkeys(cluster, state)
        self._before = []
        for cluster in clusters:
            members = [client for client in cluster if client in updates]
            if members:
                self._before.append(self.mean_of(updates, members))
            else:
                self._before.append(before[cluster[0]])
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
    """Federated averaging within clusters. A cluster splits in two when its clients pull in
    different directions: their mean update is short, so that the average stands still, but some
    update is long (Sattler, Müller and Samek 2020, "Clustered Federated Learning: Model-Agnostic
    Distributed Multitask Optimization Under Privacy Constraints", arXiv:1910.01991, Algorithm 1).

    The split minimises the largest cosine similarity of updates between the two halves, which
    single linkage finds. Clusters never merge again. NOTE[DIFF]: the authors' code uses complete
    linkage (``linkage``), and neither it nor this rule checks the paper's bound on gradient noise
    (its Eq. 32) before splitting. Clients of a cluster have equal weights; the paper weights them
    by rows (``weights: rows``).

    Args:
        epsilon_1: ε₁, the length of the mean update below which a cluster may split.
        epsilon_2: ε₂, the length above which some client's update must be. Both are in units of the
            parameters, and depend on the learning rate: see ``exchange/mean_update`` and
            ``exchange/largest_update``.
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
        demand(
            epsilon_1 > 0 and epsilon_2 > 0,
            "CFL: epsilon_1, epsilon_2",
            "numbers above 0",
            (epsilon_1, epsilon_2),
        )
        super().__init__(linkage, weights)
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Split clusters as the class describes it, and return them with their means."""
        updates = round.updates
        moved = self._updates(updates)
        similar = cosine_similarities(moved)
        halves: list[tuple[str, ...]] = []
        means = []
        largest = []
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
        clusters = sort_clusters(halves)
        scalars = {
            "mean_update": max(means, default=0.0),
            "largest_update": max(largest, default=0.0),
        }
        clustering = Clustering(clusters, similar, "cosine similarity", scalars)
        return clustering, self._keep(updates, clusters)

    def _mean_update(
        self, moved: Mapping[str, Tensor], updates: Mapping[str, Update], clients: Sequence[str]
    ) -> Tensor:
        weight = [1.0] * len(clients)
        if self.weights == "rows":
            weight = [float(updates[client].rows) for client in clients]
        share = torch.tensor(weight, device=moved[clients[0]].device) / sum(weight)
        return share @ torch.stack([moved[client] for client in clients])


class Agglomerative(_OfUpdates):
    """Federated averaging among all clients for some rounds, then agglomerative clustering of their
    updates by cosine distance, and from then on federated averaging within clusters (after Briggs,
    Fan and Andras 2020, "Federated learning with hierarchical clustering of local updates to
    improve training on non-IID data", arXiv:2004.11791).

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
        mend = (
            "for example distance: 1.0, which joins updates that do not point away from each other"
        )
        one = "one of clusters and distance"
        both = f"{clusters} and {distance}"
        demand((clusters is None) != (distance is None), "Agglomerative", one, both, mend)
        demand(after >= 1, "Agglomerative: after", "the number of an exchange, from 1", after)
        demand(clusters is None or clusters >= 1, "Agglomerative: clusters", "at least 1", clusters)
        demand(distance is None or distance >= 0, "Agglomerative: distance", "at least 0", distance)
        super().__init__(linkage, weights)
        self.after = after
        self.clusters = clusters
        self.distance = distance
        self._rounds = 0

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Cluster the clients if it is the exchange ``after``, and return the clusters with their
        means.
        """
        self._rounds += 1
        updates = round.updates
        moved = self._updates(updates)
        similar = cosine_similarities(moved)
        clusters = self._clusters
        if self._rounds == self.after:
            number = self.clusters
            if number is not None:
                number = min(number, len(moved))
            everybody = itertools.chain.from_iterable(clusters)
            absent = [client for client in everybody if client not in moved]
            clusters = self._cut(
                sorted(moved), similar, absent, n_clusters=number, distance_threshold=self.distance
            )
        return Clustering(clusters, similar, "cosine similarity"), self._keep(updates, clusters)


ATTEMPTS = 4
"""How often clients pick in a round, at most: once, and again without each client whose answer was
false."""


class IFCA(Clustered):
    """There are k models. Each client gets the one with the smallest mean loss on its training
    rows, and each model becomes the mean of the clients that had it (Ghosh, Chung, Yin and
    Ramchandran 2020, "An Efficient Framework for Clustered Federated Learning", arXiv:2006.04088,
    Algorithm 1, with model averaging).

    The first model starts from the clients' common initial values, the others from values drawn by
    other seeds. A model that no client picked stays unchanged, and is offered again. All k models
    are sent to all clients.

    Untrained networks hardly differ: often all clients pick the same one, and continue to do so.
    With ``start: drawn`` each client is assigned a model for the first round, as evenly as
    possible; NOTE[DIFF]: the paper restarts instead, and keeps the best of several trainings.

    Args:
        clusters: k, the number of models.
        start: how clients get their first model: by their ``losses``, or ``drawn``.
        weights: see :class:`~fedlit.exchange.rules.clustered.Clustered`.
    """

    _memory = ("models", "picked")

    def __init__(
        self,
        clusters: int = 2,
        start: Literal["losses", "drawn"] = "losses",
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        demand(clusters >= 1, "IFCA: clusters", "at least 1", clusters)
        self.clusters = clusters
        super().__init__(weights)
        self.needs |= frozenset[Need]({"model", "answers"})
        self.asks = f"its mean training loss under each of {clusters} models"
        self.facts = Facts(
            questions={
                "losses": QuestionTerms({"models": ("float32", (clusters,))}, times=ATTEMPTS)
            }
        )
        self.start: Literal["losses", "drawn"] = start
        self._models: list[State] = []
        self._picked: dict[str, int] = {}

    def begin(self, round: Round) -> Mapping[str, State]:
        """Draw the models, and let clients pick."""
        assert round.model is not None
        first = next(iter(round.updates.values()))
        self._models = [{name: value.clone() for name, value in first.state.items()}]
        for number in range(1, self.clusters):
            self._models.append(round.model.fresh(derive_seed(round.seed, "model", number)))
        if self.start == "drawn":
            generator = torch.Generator().manual_seed(derive_seed(round.seed, "start"))
            order = torch.randperm(len(round.updates), generator=generator).tolist()
            self._picked = {
                client: position % self.clusters
                for client, position in zip(round.updates, order, strict=True)
            }
        else:
            self._pick(round)
        return {client: self._models[number] for client, number in self._picked.items()}

    def _pick(self, round: Round) -> None:
        for client, losses in round.ask(dict.fromkeys(round.updates, Losses(self._models))).items():
            self._picked[client] = int(torch.nan_to_num(losses, nan=torch.inf).argmin())

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Average the models, let clients pick, and return the clusters. A client that takes no
        part keeps its pick.
        """
        for number in range(self.clusters):
            members = [client for client in round.updates if self._picked[client] == number]
            if members:
                self._models[number] = {
                    **self._models[number],
                    **self.mean_of(round.updates, members),
                }
        self._pick(round)
        chosen: list[list[str]] = [[] for _ in range(self.clusters)]
        for client in round.receivers:
            chosen[self._picked[client]].append(client)
        clusters = sort_clusters(chosen)
        return Clustering(clusters), [
            self._models[self._picked[cluster[0]]] for cluster in clusters
        ]
