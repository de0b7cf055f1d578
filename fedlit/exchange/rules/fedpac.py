"""FedPAC, its rule (Xu, Tong and Huang 2023, "Personalized Federated Learning with Feature
Alignment and Classifier Collaboration", ICLR, arXiv:2306.11867). Its client is
:mod:`fedlit.methods.fedpac`.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedlit.exchange.rule import DOWN, Facts, Round, Update
from fedlit.exchange.rules.mean import Mean, mean, spread
from fedlit.exchange.rules.prototypes import mean_prototypes
from fedlit.precision import double_on_cpu
from fedlit.sharing import State

HEAD = "head."
"""The beginning of the names of a classifier's tensors."""
FEATURE = "feature/"
"""The beginning of the name of h_c = p_c μ_c; the label follows."""
VARIANCE = "variance"
"""The name of V."""
LEAST = 1e-3
"""Smaller weights are taken to be 0, as in the authors' program."""
_ROUNDING = 1e-12


class FedPACMean(Mean):
    """Every client receives the mean of encoders and cores, weighted by rows, the mean prototype of
    each label, and a classifier of its own: Σ_j α_j head_j with the weights α on the simplex that
    minimise αᵀPα. For client i, P_jl = Σ_c (h_ic − h_jc)·(h_ic − h_lc) + V_j [j = l], where clients
    publish h_c and V. A client that took no part keeps its classifier. Labels are matched by name;
    h_c is 0 at a client without the label.

    NOTE[DIFF]: the quadratic programme is solved exactly, in float64; the authors' program calls a
    solver, after it has dropped eigenvalues below 0.01 where rounding made one negative. A tensor
    of a classifier, or a slice by label, that some clients do not have is combined over those that
    have it, with weights that sum to 1.

    Example:
        >>> north = {"variance": torch.tensor(1.0), "feature/ill": torch.zeros(1)}
        >>> south = {"variance": torch.tensor(1.0), "feature/ill": torch.ones(1)}
        >>> heads = {"north": torch.zeros(1), "south": torch.ones(1)}
        >>> published = {"north": north, "south": south}
        >>> sent = {name: Update({"head.bias": heads[name]}, 9, published[name]) for name in heads}
        >>> received = FedPACMean()(Round(0, 0, sent, dict.fromkeys(sent, ("head.bias",))))
        >>> {name: state["head.bias"].item() for name, state in received.items()}
        {'north': 0.3333333432674408, 'south': 0.6666666865348816}
    """

    sends = "the mean feature of each label"
    facts = Facts(requires="FedPAC")

    def __init__(self) -> None:
        super().__init__("rows")
        self.needs = frozenset({"rows", "states"})

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        updates = round.updates
        heads = {client: _part(update.state, head=True) for client, update in updates.items()}
        bodies = {
            client: replace(update, state=_part(update.state, head=False))
            for client, update in updates.items()
        }
        received = spread(self.average(bodies), round)
        prototypes = {f"{DOWN}{name}": value for name, value in mean_prototypes(updates).items()}
        for state in received.values():
            state.update(prototypes)
        for client, weights in collaboration(updates).items():
            combined = mean({peer: heads[peer] for peer in weights}, weights)
            received[client].update(
                {name: combined[name] for name in heads[client] if name in combined}
            )
        return received


def collaboration(updates: Mapping[str, Update]) -> dict[str, dict[str, float]]:
    """Map each client to its weights α of clients, without those that are 0.

    Example:
        >>> alone = {"variance": torch.tensor(1.0), "feature/ill": torch.ones(1)}
        >>> collaboration({"north": Update({}, published=alone)})
        {'north': {'north': 1.0}}
    """
    names = sorted(updates)
    h = _features([updates[name].published for name in names])
    v = torch.stack([double_on_cpu(updates[name].published[VARIANCE]) for name in names])
    products = h @ h.T
    weights = {}
    for row, client in enumerate(names):
        to_client = products[row]
        p = products - to_client - to_client[:, None] + to_client[row] + v.diag()
        alpha = least_on_simplex(p, row)
        alpha[alpha <= LEAST] = 0
        alpha /= alpha.sum()
        chosen = zip(names, alpha.tolist(), strict=True)
        weights[client] = {peer: weight for peer, weight in chosen if weight > 0}
    return weights


def least_on_simplex(p: Tensor, start: int = 0) -> Tensor:
    """Return the weights α ≥ 0 that sum to 1 and minimise αᵀPα.

    The method of Wolfe 1976, "Finding the nearest point in a polytope": a weight whose gradient
    promises a decrease joins those that may be positive; the least point of their affine hull is
    approached until a weight would become negative, which leaves. It ends at the exact solution,
    because the value decreases each time.

    Args:
        p: P, symmetric and positive semidefinite, in float64.
        start: the place of the first positive weight.

    Shape:
        - p: (n, n)
        - output: (n,)

    Example:
        >>> least_on_simplex(torch.tensor([[1.0, 0.0], [0.0, 3.0]]).double())
        tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    alpha = torch.zeros(len(p), dtype=p.dtype)
    alpha[start] = 1
    best = p[start, start]
    sizes = _ROUNDING * p.abs()
    while True:
        gain = best - p @ alpha - sizes @ alpha
        joining = int(gain.argmax())
        if gain[joining] <= 0 or alpha[joining] > 0:
            return alpha
        lower = _lowered(p, alpha, joining)
        value = lower @ p @ lower
        if not value < best:  # rounding, or a system without a solution
            return alpha
        alpha = lower
        best = value


def _lowered(p: Tensor, alpha: Tensor, joining: int) -> Tensor:
    """Return the least weights over the positive ones and one that joins, or over those of them
    that stay positive.
    """
    alpha = alpha.clone()
    support = alpha > 0
    support[joining] = True
    while True:
        target = _affine_least(p, support)
        negative = support & (target < 0)
        if not negative.any():
            return target
        ratios = alpha[negative] / (alpha - target)[negative]
        alpha += ratios.min() * (target - alpha)
        leaving = negative.nonzero()[ratios.argmin()]
        alpha[leaving] = 0
        support[leaving] = False


def _affine_least(p: Tensor, support: Tensor) -> Tensor:
    """Return the least point of αᵀPα among weights of a support that sum to 1, without regard to
    their signs.
    """
    columns = support.nonzero().flatten()
    count = len(columns)
    system = torch.ones(count + 1, count + 1, dtype=p.dtype)
    system[:count, :count] = p[columns][:, columns]
    system[count, count] = 0
    right = torch.zeros(count + 1, dtype=p.dtype)
    right[count] = 1
    target = torch.zeros(len(p), dtype=p.dtype)
    target[columns] = torch.linalg.solve_ex(system, right).result[:count]
    return target


def _features(published: list[State]) -> Tensor:
    """Return h of each client, for all labels one after another, centred so that differences keep
    their digits.

    Shape:
        - output: (clients, labels · d) float64
    """
    sent = set().union(*published)
    names = sorted(name for name in sent if name.startswith(FEATURE))
    width = len(next(statistics[names[0]] for statistics in published if names[0] in statistics))
    h = torch.zeros(len(published), len(names), width, dtype=torch.float64)
    for client, statistics in enumerate(published):
        for row, name in enumerate(names):
            if name in statistics:
                h[client, row] = double_on_cpu(statistics[name])
    h = h.flatten(1)
    return h - h.mean(0)


def _part(state: State, head: bool) -> dict[str, Tensor]:
    """Return the tensors of the classifier, or all others."""
    return {name: value for name, value in state.items() if name.startswith(HEAD) == head}
