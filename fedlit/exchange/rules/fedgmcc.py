"""Federated geometric Monte Carlo clustering (Lucchetti, Decouchant, Fernandes, Chen and Völp 2022, "Federated
Geometric Monte Carlo Clustering to Counter Non-IID Datasets", arXiv:2204.11017).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.function import FederatedFunction
from fedlit.exchange.questions import Blueprint, InputRange
from fedlit.exchange.rule import Need, Round
from fedlit.exchange.rules.clustered import Clustered, components
from fedlit.names import Clustering, Clusters, sort_clusters
from fedlit.seeding import derive_seed
from fedlit.sharing import Sharing, State

__all__ = ["Curves", "FedGMCC", "bent", "mean_of_curve"]

MEMORY = {"cpu": 2**24}
"""Bytes that the curves that are trained at once may take, by kind of device: what stays in a processor's cache."""
ACCELERATOR_MEMORY = 2**30


def bent(first: Tensor, bend: Tensor, last: Tensor, u: float) -> Tensor:
    """A polygonal chain with one bend: ``first`` at u = 0, ``bend`` at 1/2, ``last`` at 1 (Eq. 4).

    Example:
        >>> [float(bent(torch.tensor(0.0), torch.tensor(4.0), torch.tensor(2.0), u)) for u in (0, 0.25, 0.5, 1)]
        [0.0, 2.0, 4.0, 2.0]
    """
    return 2 * (u * bend + (0.5 - u) * first) if u < 0.5 else 2 * ((u - 0.5) * last + (1 - u) * bend)


def mean_of_curve(first: Tensor, bend: Tensor, last: Tensor) -> Tensor:
    """E_u of :func:`bent` for u uniform in [0, 1]: (first + 2 bend + last) / 4.

    NOTE[DIFF]: Eq. 6 writes a sum over pairs where a mean is meant.
    """
    return (first + 2 * bend + last) / 4


class Curves:
    """Bent curves between pairs of functions, all at once.

    Args:
        part: the function.
        first: of each pair the parameters at u = 0, by name: (pairs, …).
        last: those at u = 1.
        x: inputs of each pair, (pairs, samples, *shape).
        probabilities: whether the function's outputs are logits of which probabilities are compared.

    Attributes:
        bend: the parameters at u = 1/2, which start halfway.
    """

    def __init__(
        self, part: FederatedFunction, first: State, last: State, x: Tensor, probabilities: bool = False
    ) -> None:
        self.part, self.first, self.last, self.x = part, dict(first), dict(last), x
        self.probabilities = probabilities
        # NOTE[DIFF]: Algorithm 1 starts at the sum, which lies outside of the two
        self.bend = {name: (first[name] + last[name]) / 2 for name in part.parameters}
        with torch.no_grad():
            self.target = self.outputs(self.last)

    def at(self, u: Tensor, bend: State) -> dict[str, Tensor]:
        """The curves' points at ``u``, (pairs,)."""
        first, last = (1 - 2 * u).clamp_min(0), (2 * u - 1).clamp_min(0)
        middle = 1 - first - last
        return {
            name: _each(first, own) * self.first[name] + _each(middle, own) * own + _each(last, own) * self.last[name]
            for name, own in bend.items()
        }

    def outputs(self, parameters: State) -> Tensor:
        """Of each pair's function on its inputs, (pairs, samples, …)."""
        raw = self.part.stacked(parameters, self.x)
        return self.part.bounded(raw) if self.probabilities else raw

    def losses(self, parameters: State) -> Tensor:
        """L = E‖f(x, w_l) − f(x, w)‖² of each pair over its inputs, (pairs,) (Eq. 5)."""
        return (self.outputs(parameters) - self.target).square().flatten(2).sum(2).mean(1)

    def train(self, u: Tensor, lr: float) -> None:
        """Gradient steps of the bends on L(u). Where L's mean along the curve becomes larger than on the straight line,
        or is not finite, the bend stays halfway (NOTE[DIFF]: the paper has no such precaution).

        Args:
            u: (steps, pairs), the point of each curve at which each step is taken.
            lr: learning rate.
        """
        straight = self.bend
        for own in u:
            bend = {name: value.detach().requires_grad_() for name, value in self.bend.items()}
            with torch.enable_grad():
                loss = self.losses(self.at(own, bend)).sum()
                gradients = torch.autograd.grad(loss, list(bend.values()), materialize_grads=True, allow_unused=True)
            self.bend = {
                name: value.detach() - lr * gradient
                for (name, value), gradient in zip(bend.items(), gradients, strict=True)
            }
        better = self._mean_loss(self.bend) <= self._mean_loss(straight)  # false where it is not a number
        self.bend = {name: torch.where(_each(better, own), own, straight[name]) for name, own in self.bend.items()}

    @torch.no_grad()
    def _mean_loss(self, bend: State) -> Tensor:
        points = (torch.full((len(self.x),), u, device=self.x.device) for u in (0.25, 0.5, 0.75))
        return torch.stack([self.losses(self.at(u, bend)) for u in points]).mean(0)

    def steepest(self, grid: int) -> Tensor:
        """Max over the grid of |∂L/∂u| of each pair, (pairs,): u at the middles of ``grid`` equal pieces of [0, 1],
        none of which is the bend, where there is no derivative, if ``grid`` is even.
        """
        slopes = []
        for step in range(grid):
            u = (step + 0.5) / grid
            with torch.enable_grad():
                here = {
                    name: value.requires_grad_()
                    for name, value in self.at(torch.full((len(self.x),), u, device=self.x.device), self.bend).items()
                }
                gradients = torch.autograd.grad(
                    self.losses(here).sum(), list(here.values()), materialize_grads=True, allow_unused=True
                )
            # ∂L/∂u is the gradient at the point times the curve's direction there
            terms = [
                (gradient * (self.bend[name] - self.first[name] if u < 0.5 else self.last[name] - self.bend[name]))
                .flatten(1)
                .sum(1)
                for name, gradient in zip(here, gradients, strict=True)
            ]
            slopes.append(2 * torch.stack(terms).sum(0).abs())
        return torch.stack(slopes).amax(0)


def _each(u: Tensor, like: Tensor) -> Tensor:
    return u.view(-1, *[1] * (like.dim() - 1))


class FedGMCC(Clustered):
    """Clients belong together whose functions are joined by a curve along which nothing changes steeply.

    After each round, for each two clients k and l and in both directions: a curve with one bend θ leads from the
    federated parameters w_k to w_l. θ is trained to bring the function along the curve near that of w_l, on inputs
    drawn uniformly: no row of any client is needed. The *barrier* between the two is the steepest change of L(u), the
    squared distance to f(·, w_l), along the trained curve, mean of both directions. Two clients are connected whose
    barrier is at most ε; clusters are the connected components. Each client of a cluster receives the mean over its
    connected pairs of the mean of their curves, (w_k + 2θ + w_l)/4; a client that is connected to nobody keeps its own.

    ε starts at the median of the barriers; its percentile moves by ``move`` after each round: up where there is more
    than one cluster, down otherwise. NOTE[DIFF]: so it never comes to rest: one cluster lets it fall until there are
    two, which lets it rise until there is one. Membership is judged by the majority of the last five rounds
    (:func:`fedlit.explain.clusters.judged`), which is a matter of the last round's parity then. ``settle`` stops the
    percentile when, for the third time in succession, it has come down from a single cluster to the same several: what
    chance tells apart differs from time to time. ``threshold: gap`` is ours too: ε lies in the widest gap between
    barriers, on a logarithmic scale, if the barrier above it is at least ``gap`` times the one below; otherwise all
    clients are connected.

    Args:
        samples: inputs per pair, n.
        steps: gradient steps of each bend.
        lr: learning rate of the bends. Where L becomes larger than on the straight line, or is not finite, that line
            is taken. NOTE[DIFF]: the paper has 0.1. On logits of networks that are far apart, bends are thrown far away
            then, to where random inputs look right and real rows do not, and what clients receive is of no use.
        grid: points on each curve at which L's change is taken; even.
        inputs: drawn from [0, 1] (``unit``), or from the range that a pair's clients tell of what enters their
            federated part (``range``).
        outputs: what the function's are: ``raw``, logits for a part with the head; or their ``probabilities``, which
            are bounded.
        threshold: how ε is found: ``percentile`` as in the paper, or ``gap``.
        move: percentiles by which ε moves.
        settle: whether it stops when clusters have repeated.
        gap: ratio of neighbouring barriers from which on they are told apart.

    Raises:
        ConfigError: values out of range.
    """

    def __init__(
        self,
        samples: int = 512,
        steps: int = 50,
        lr: float = 0.001,
        grid: int = 20,
        inputs: Literal["unit", "range"] = "unit",
        outputs: Literal["raw", "probabilities"] = "raw",
        threshold: Literal["percentile", "gap"] = "percentile",
        move: float = 5.0,
        settle: bool = False,
        gap: float = 2.0,
    ) -> None:
        super().__init__()
        if samples < 1 or steps < 0 or grid < 2 or grid % 2:
            raise ConfigError(
                "FedGMCC: expected at least 1 of samples, 0 or more steps, and an even grid of at least 2, found "
                f"{samples}, {steps} and {grid}"
            )
        if not lr > 0 or not 0 < move <= 50 or not gap > 1:
            raise ConfigError(
                f"FedGMCC: expected lr above 0, move in (0, 50] and gap above 1, found {lr}, {move} and {gap}"
            )
        self.samples, self.steps, self.lr, self.grid = samples, steps, lr, grid
        self.inputs: Literal["unit", "range"] = inputs
        self.outputs: Literal["raw", "probabilities"] = outputs
        self.threshold: Literal["percentile", "gap"] = threshold
        self.move, self.settle, self.gap = move, settle, gap
        self._percentile, self._joint, self._settled = 50.0, False, False
        self._last: Clusters = ()
        self._repeats = 0
        self._companions: dict[str, list[str]] = {}

    @property
    def asks(self) -> str:
        """The range, if inputs are drawn from it."""
        return "least and largest value of each input of its federated part" if self.inputs == "range" else ""

    @property
    def questions(self) -> frozenset[str]:
        """The range, if inputs are drawn from it."""
        return frozenset({"input_range"} if self.inputs == "range" else ())

    @property
    def needs(self) -> frozenset[Need]:
        """The model; answers, if inputs are drawn from the range that clients tell."""
        own: set[Need] = {"model", "answers"} if self.inputs == "range" else {"model"}
        return super().needs | own

    def check(self, sharing: Sharing, rate: float, model: Blueprint) -> None:
        """Refuse a federated part that is no function, too."""
        super().check(sharing, rate, model)
        part = model.function()
        if self.outputs == "probabilities" and not part.ends_in_head:
            raise ConfigError(
                "FedGMCC: outputs: probabilities: expected the head in exchange.federated, found a part without it; "
                "take raw"
            )

    def cluster(self, round: Round) -> tuple[Clustering, list[State]]:
        """See the class; a client that takes no part stays with those of its last cluster, most of them where they are
        parted, or by itself; one that never did is with the largest cluster.
        """
        updates = round.updates
        barriers, means = self._curves(round, list(combinations(updates, 2)))
        epsilon, scalars = self._epsilon(np.array(list(barriers.values())))
        connected = [pair for pair, barrier in barriers.items() if barrier <= epsilon and np.isfinite(barrier)]
        found = components(updates, connected)
        states: list[State] = []
        for cluster in found:
            own = [means[pair] for pair in connected if pair[0] in cluster]
            joint = {name: torch.stack([mean[name] for mean in own]).mean(0) for name in own[0]} if own else {}
            # what the function does not depend on has no curve: buffers, an optimizer's state
            states.append({**self.mean_of(updates, cluster), **joint})
        self._advance(found)
        at = {client: number for number, cluster in enumerate(found) for client in cluster}
        whole = [list(cluster) for cluster in found]
        for client in round.receivers:
            if client not in at:
                met = [at[other] for other in self._companions.get(client, at) if other in at]
                if met:
                    whole[max(met, key=met.count)].append(client)
                else:
                    whole.append([client])
                    states.append({})
        self._companions |= {client: list(cluster) for cluster in whole for client in cluster}
        order = sorted(range(len(whole)), key=lambda number: min(whole[number]))
        scalars = {"epsilon": epsilon, **scalars} if barriers else {}
        return Clustering(sort_clusters(whole), barriers, "barrier", scalars), [states[number] for number in order]

    def _curves(
        self, round: Round, pairs: list[tuple[str, str]]
    ) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], State]]:
        """Barrier of each pair, and the mean of its curves."""
        if not pairs:
            return {}, {}
        assert round.model is not None
        updates, part = round.updates, round.model.function()
        first = next(iter(updates.values()))
        device = first.state[part.parameters[0]].device
        part = part.to(device)
        size = sum(first.state[name].numel() for name in part.parameters)
        # both directions; a handful of copies of the parameters, and outputs of layers with their gradients
        each = 2 * 4 * (8 * size + 2 * self.samples * part.activations)
        at_once = max(1, MEMORY.get(device.type, ACCELERATOR_MEMORY) // each)
        ranges = round.ask(dict.fromkeys(updates, InputRange())) if self.inputs == "range" else {}
        barriers: dict[tuple[str, str], float] = {}
        means: dict[tuple[str, str], State] = {}
        for start in range(0, len(pairs), at_once):
            some = pairs[start : start + at_once]
            x, u = zip(*(self._draw(part, pair, ranges, round.seed) for pair in some), strict=True)
            firsts, lasts = [pair[0] for pair in some], [pair[1] for pair in some]
            stacks = [
                {
                    name: torch.stack([updates[client].state[name].detach().float() for client in clients])
                    for name in part.parameters
                }
                for clients in (firsts + lasts, lasts + firsts)
            ]
            curves = Curves(
                part, stacks[0], stacks[1], torch.stack([*x, *x]).to(device), self.outputs == "probabilities"
            )
            curves.train(torch.stack(u, 1).flatten(0, 1).T.to(device), self.lr)
            forth, back = curves.steepest(self.grid).nan_to_num(nan=torch.inf, posinf=torch.inf).chunk(2)
            barriers |= dict(zip(some, ((forth + back) / 2).tolist(), strict=True))
            for name, bend in curves.bend.items():
                along = mean_of_curve(stacks[0][name], bend, stacks[1][name])
                both = (along[: len(some)] + along[len(some) :]) / 2
                for position, pair in enumerate(some):
                    own = means.setdefault(pair, {})
                    own[name] = both[position]  # type: ignore[index]
        return barriers, means

    def _draw(
        self, part: FederatedFunction, pair: tuple[str, str], ranges: Mapping[str, Tensor], seed: int
    ) -> tuple[Tensor, Tensor]:
        """Inputs of a pair, and the points at which its two curves are trained, (2, steps): by (seed, round, pair)."""
        generator = torch.Generator().manual_seed(derive_seed(seed, *pair))
        x = torch.rand(self.samples, *part.shape, generator=generator)
        if ranges:
            both = torch.stack([ranges[client].cpu() for client in pair])
            low, high = both[:, 0].amin(0), both[:, 1].amax(0)
            x = low + (high - low) * x
        return x, torch.rand(2, self.steps, generator=generator)

    def _epsilon(self, barriers: np.ndarray) -> tuple[float, dict[str, float]]:
        if not len(barriers):
            return float("inf"), {}
        if self.threshold == "gap":
            known = np.sort(barriers[np.isfinite(barriers)])
            if len(known) < 2:
                return float("inf"), {"gap": 1.0}
            ratios = known[1:] / np.maximum(known[:-1], np.finfo(np.float32).tiny)
            widest = int(ratios.argmax())
            wide = ratios[widest] >= self.gap
            epsilon = float(np.sqrt(known[widest] * known[widest + 1])) if wide else float(known[-1])
            return epsilon, {"gap": float(ratios[widest])}
        finite = np.minimum(barriers, np.finfo(np.float32).max)
        return float(np.percentile(finite, self._percentile)), {"percentile": self._percentile}

    def _advance(self, clusters: Clusters) -> None:
        if len(clusters) > 1 and self._joint:  # ε has come down to them
            self._repeats = self._repeats + 1 if clusters == self._last else 1
            self._last = clusters
        self._joint = len(clusters) == 1
        self._settled |= self.settle and self._repeats >= 3
        if not self._settled:
            up = self.move if len(clusters) > 1 else -self.move
            self._percentile = min(100.0, max(0.0, self._percentile + up))

    def state_dict(self) -> dict[str, Any]:
        """Where ε is, and what it waits for."""
        own = {name: getattr(self, f"_{name}") for name in ("percentile", "joint", "settled", "repeats", "companions")}
        return {**own, "last": [list(cluster) for cluster in self._last]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore."""
        for name in ("percentile", "joint", "settled", "repeats", "companions"):
            setattr(self, f"_{name}", state[name])
        self._last = sort_clusters(state["last"])
