"""Federated geometric Monte Carlo clustering (Lucchetti, Decouchant, Fernandes, Chen and Völp 2022,
"Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets", arXiv:2204.11017).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.questions import InputRange
from fedlit.exchange.rule import Facts, Need, Round, Update, demand
from fedlit.exchange.rules.clustered import Clustered
from fedlit.exchange.rules.curves import Curves, mean_of_curve
from fedlit.names import Clustering, Clusters, sort_clusters
from fedlit.sharing import Sharing, State

MEMORY = {"cpu": 2**24}
"""The bytes that curves may take that are trained at once, by kind of device; on a CPU, what fits
into its cache."""
ACCELERATOR_MEMORY = 2**30


class Joined(NamedTuple):
    """The result of training the curve of one pair."""

    barrier: float
    """The steepest rise of L along it."""
    straight: list[float]
    """L along the straight line."""
    bent: list[float]
    """L along the curve."""
    mean: State
    """Its mean."""

    @property
    def loss(self) -> float:
        """The training loss: the mean of L along the curve."""
        return float(np.nan_to_num(np.mean(self.bent), nan=np.inf))


def _stacked(
    updates: Mapping[str, Update], clients: Sequence[str], names: Iterable[str]
) -> dict[str, Tensor]:
    """Return the tensors of clients along a new first axis, float32."""
    stacked = {}
    for name in names:
        tensors = [updates[client].state[name].detach().float() for client in clients]
        stacked[name] = torch.stack(tensors)
    return stacked


class FedGMCC(Clustered):
    """Clients belong together if a curve joins their functions along which a loss does not rise
    steeply.

    After each round, for each two clients k and l, in the order of their names: a curve with one
    bend θ leads from the federated parameters w_k to w_l. θ is trained on L(u) = E_x‖f(x, w_l) −
    f(x, γ_θ(u))‖² at random u (Eq. 4), on inputs x that are drawn uniformly: no row of any client
    is needed. Two clients are connected if the *barrier* between them, max ∂L/∂u along the curve,
    is at most ε (Eq. 5). A pair that earlier pairs have already joined is skipped (Algorithm 1,
    line 6). Clusters are the resulting disjoint sets. Each client of a cluster receives the mean
    over the cluster's curves of E_u γ_θ(u) = (w_k + 2θ + w_l)/4 (Eq. 6); a client that is connected
    to nobody keeps its own. The order of clients does not matter; their names do.

    ε is a percentile of the training losses E_u L(u) of all pairs in the first round: the median
    there. After each round it moves by ``move`` percentiles: up where there is more than one
    cluster, down otherwise.

    Where the paper leaves something open, or this rule departs from it:

    - §III has f map to the probability simplex, §IV-B compares "raw outputs". ``outputs:
      probabilities`` is the first reading, ``raw`` (logits) the second.
    - NOTE[DIFF]: X_MC ~ U(0, 1) presumes inputs in [0, 1], as pixels are. Standardised columns are
      not there. With ``inputs: range`` the inputs are drawn from the range of all clients' inputs,
      which the plan then asks for.
    - NOTE[DIFF]: Eq. 6 writes a sum over pairs where a mean is meant: a sum is no network of the
      same scale.
    - NOTE[DIFF]: one step of θ takes one u and all inputs; Algorithm 1 writes a step for each u and
      x. The paper does not say how many steps or inputs it takes. Inputs are drawn anew in each
      round.
    - NOTE[DIFF]: the maximum of ∂L/∂u is taken over a grid.
    - NOTE[DIFF]: θ starts halfway between w_k and w_l; Algorithm 1 starts at their sum, which lies
      outside of the two.
    - NOTE[DIFF]: where training makes a curve worse than the straight line, θ stays halfway.
    - NOTE[DIFF]: a client that takes no part in a round stays with those of its last cluster, or is
      by itself where they take no part either; one that never took part is with the largest
      cluster.
    - NOTE[DIFF]: clients train as configured. In the paper's experiments (§V) they take 10 or 5
      passes over their rows, in batches of 64, by SGD at 0.001 on
      :class:`binary cross-entropy <fedlit.BinaryCrossEntropy>`, as the methods ``fedavg_paper`` and
      ``fedgmcc_paper`` of the study ``clusters`` do. The paper trains on 80 % of the rows and
      scores on the rest, which it calls validation rows; studies keep rows to choose by, and others
      to score.
    - NOTE[DIFF]: ``epsilon: barriers`` is ours. L falls from L(0) to 0, so on a trained curve it
      hardly rises anywhere, and the rule as it is written connects nearly all clients. Here the
      barrier is max |∂L/∂u|, ε is a percentile of the round's own barriers, and ε is fixed once
      three times in a row a single cluster has split into the same
      clusters: as the paper moves it, one cluster and two would alternate.

    Args:
        samples: the number of inputs, n.
        steps: the number of gradient steps of each bend.
        lr: the learning rate of the bends, η.
        grid: the number of points on each curve at which the change of L is computed; even.
        inputs: drawn from [0, 1] (``unit``), or from the range that clients send of the inputs of
            their federated part (``range``).
        outputs: what is compared: ``probabilities``, for a part with the head, or ``raw`` outputs.
        epsilon: what ε is a percentile of: the first round's ``losses``, as in the paper, or
            ``barriers``, see above.
        move: the number of percentiles by which ε moves.

    Raises:
        ConfigError: a value is out of range.
    """

    _memory = ("percentile", "losses", "companions", "last", "down")

    def __init__(
        self,
        samples: int = 512,
        steps: int = 50,
        lr: float = 0.1,
        grid: int = 20,
        inputs: Literal["unit", "range"] = "unit",
        outputs: Literal["probabilities", "raw"] = "probabilities",
        epsilon: Literal["losses", "barriers"] = "losses",
        move: float = 5.0,
    ) -> None:
        super().__init__()
        demand(samples >= 1, "FedGMCC: samples", "at least 1", samples)
        demand(steps >= 0, "FedGMCC: steps", "at least 0", steps)
        demand(lr > 0, "FedGMCC: lr", "a number above 0", lr)
        demand(grid >= 2 and grid % 2 == 0, "FedGMCC: grid", "an even number of at least 2", grid)
        demand(0 < move <= 50, "FedGMCC: move", "percentiles in (0, 50]", move)
        self.samples = samples
        self.steps = steps
        self.lr = lr
        self.grid = grid
        self.move = move
        self.inputs = inputs
        self.outputs = outputs
        self.epsilon = epsilon
        self.needs |= frozenset[Need]({"model"})
        if inputs == "range":
            self.needs |= frozenset[Need]({"answers"})
            self.asks = "least and largest value of each input of its federated part"
            self.facts = Facts(questions={"input_range": QuestionTerms({}, times=1)})
        self._percentile = 50.0
        self._losses: list[float] = []
        self._companions: dict[str, list[str]] = {}
        self._last: Clusters = ()
        self._down: list[Clusters] = []

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Also refuse a federated part that is no function, or lacks the head if probabilities are
        compared.
        """
        super().check(sharing, rate, model, clients)
        possible = model.function().ends_in_head or self.outputs == "raw"
        expected = "the head in exchange.federated"
        mend = "take outputs: raw"
        demand(possible, "FedGMCC: outputs: probabilities", expected, "a part without it", mend)

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """Connect clients by curves as the class describes it, and return the clusters with their
        states.
        """
        updates = {client: round.updates[client] for client in sorted(round.updates)}
        pairs = list(combinations(updates, 2))
        inputs = self._draw(round, updates) if pairs else None
        joined_pairs: dict[tuple[str, str], Joined] = {}
        if self.epsilon == "barriers" or not self._losses:
            joined_pairs = self._join(round, pairs, inputs)
        epsilon = self._threshold(joined_pairs)
        of: dict[str, tuple[str, ...]] = {client: (client,) for client in updates}
        curves: list[tuple[str, State]] = []
        for k in updates:
            row = [(k, partner) for partner in updates if partner > k and partner not in of[k]]
            joined_pairs |= self._join(
                round, [pair for pair in row if pair not in joined_pairs], inputs
            )
            for pair in row:
                if pair[1] not in of[k] and joined_pairs[pair].barrier <= epsilon:
                    joint = (*of[k], *of[pair[1]])
                    of |= dict.fromkeys(joint, joint)
                    curves.append((k, joined_pairs[pair].mean))
        grouped = sort_clusters(set(of.values()))
        states: list[State] = []
        for cluster in grouped:
            means = [mean for client, mean in curves if client in cluster]
            joined = {}
            if means:
                for name in means[0]:
                    joined[name] = torch.stack([mean[name] for mean in means]).mean(0)
            # Tensors on which the function does not depend, such as buffers, have no curve.
            states.append({**self.mean_of(updates, cluster), **joined})
        scalars = {}
        if pairs:
            scalars = {"epsilon": epsilon, "percentile": self._percentile}
        self._advance(grouped)
        clusters, states = self._everybody(round.receivers, grouped, states)
        barriers = {pair: joined.barrier for pair, joined in joined_pairs.items()}
        paths = {
            pair: {"straight": joined.straight, "bent": joined.bent}
            for pair, joined in joined_pairs.items()
        }
        return Clustering(clusters, barriers, "barrier", scalars, paths), states

    def _threshold(self, joined_pairs: Mapping[tuple[str, str], Joined]) -> float:
        """Return ε, and remember the losses of the first round."""
        self._losses = self._losses or sorted(joined.loss for joined in joined_pairs.values())
        levels = self._losses
        if self.epsilon == "barriers":
            levels = [joined.barrier for joined in joined_pairs.values()]
        if not levels:
            return 0.0
        # An infinite barrier must connect nobody, whatever the percentile.
        finite = np.minimum(levels, np.finfo(np.float32).max)
        return float(np.percentile(finite, self._percentile))

    def _everybody(
        self, receivers: Iterable[str], found: Clusters, states: list[State]
    ) -> tuple[Clusters, list[State]]:
        """Return the clusters and their states, with the clients that took no part."""
        at: dict[str, int] = {}
        for number, cluster in enumerate(found):
            at |= dict.fromkeys(cluster, number)
        whole = [list(cluster) for cluster in found]
        for client in sorted(receivers):
            if client not in at:
                companions = [
                    at[companion]
                    for companion in self._companions.get(client, at)
                    if companion in at
                ]
                if companions:
                    whole[max(companions, key=companions.count)].append(client)
                else:
                    whole.append([client])
                    states.append({})
        for members in whole:
            self._companions |= dict.fromkeys(members, sorted(members))
        order = sorted(range(len(whole)), key=lambda number: min(whole[number]))
        return sort_clusters(whole), [states[number] for number in order]

    def _draw(self, round: Round, clients: Iterable[str]) -> tuple[Tensor, list[float]]:
        """Draw the inputs, and the points at which curves are trained, from the round's seed."""
        assert round.model is not None
        generator = torch.Generator().manual_seed(round.seed)
        x = torch.rand(self.samples, *round.model.function().shape, generator=generator)
        if self.inputs == "range":
            answers = round.ask(dict.fromkeys(clients, InputRange()))
            ranges = torch.stack([answer.cpu() for answer in answers.values()])
            low = ranges[:, 0].amin(0)
            high = ranges[:, 1].amax(0)
            x = low + (high - low) * x
        return x, torch.rand(self.steps, generator=generator).tolist()

    def _join(
        self, round: Round, pairs: list[tuple[str, str]], inputs: tuple[Tensor, list[float]] | None
    ) -> dict[tuple[str, str], Joined]:
        """Train the curves of some pairs."""
        if not pairs:
            return {}
        assert round.model is not None and inputs is not None
        updates = round.updates
        part = round.model.function()
        (x, u) = inputs
        state = updates[pairs[0][0]].state
        device = state[part.parameters[0]].device
        part = part.to(device)
        size = sum(state[name].numel() for name in part.parameters)
        # A curve takes a handful of copies of the parameters, and the outputs of layers with their
        # gradients.
        bytes_of_pair = 4 * (8 * size + 2 * self.samples * part.activations)
        at_once = max(1, MEMORY.get(device.type, ACCELERATOR_MEMORY) // bytes_of_pair)
        joined_pairs: dict[tuple[str, str], Joined] = {}
        for start in range(0, len(pairs), at_once):
            some = pairs[start : start + at_once]
            first = _stacked(updates, [pair[0] for pair in some], part.parameters)
            last = _stacked(updates, [pair[1] for pair in some], part.parameters)
            curves = Curves(part, first, last, x.to(device), self.outputs == "probabilities")
            straight, along = (losses.T.tolist() for losses in curves.train(u, self.lr, self.grid))
            slopes = curves.slopes(self.grid)
            if self.epsilon == "barriers":
                slopes = slopes.abs()
            steepest = slopes.amax(0).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
            barriers = steepest.tolist()
            means = {
                name: mean_of_curve(first[name], value, last[name])
                for name, value in curves.bend.items()
            }
            for at, pair in enumerate(some):
                mean = {name: value[at] for name, value in means.items()}
                joined_pairs[pair] = Joined(barriers[at], straight[at], along[at], mean)
        return joined_pairs

    def _advance(self, clusters: Clusters) -> None:
        if len(self._last) == 1 < len(clusters):  # ε has come down to several clusters.
            self._down = [*self._down, clusters][-3:]
        self._last = clusters
        if self.epsilon == "barriers" and len(self._down) == 3 and len({*self._down}) == 1:
            return
        moved = self._percentile - self.move
        if len(clusters) > 1:
            moved = self._percentile + self.move
        self._percentile = min(100.0, max(0.0, moved))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        super().load_state_dict(state)
        self._last = sort_clusters(state["last"])
        self._down = [sort_clusters(down) for down in state["down"]]
