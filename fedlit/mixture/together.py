"""Clients choose one way of mixing together, because each of them has too few rows to choose alone.

One of the ways is the stack: one mixed model of all clients' outcomes on the mean of their parts,
with a random intercept and slope for each client. It corrects a client's mean by its rows, with
shrinkage towards the effects over all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

import numpy as np
from scipy.stats import norm

from fedlit import reml
from fedlit.mixture.weigh import HOW, weights_of
from fedlit.tasks.predictions import Predictions
from fedlit.types import Floats
from fedlit.weights import Stack, mixed

ALONE = "alone"
STACK = "stack"
WITHOUT = " without own network"
AND = " and "
Candidates = dict[str, tuple[str, list[str]]]
"""Name → how the weights of which parts are set."""
_Known = tuple[Floats, Floats, Floats | None]
"""Means (n,) on the link scale, outcomes (n,), and how much each row counts; None if all count
alike."""


@dataclass(frozen=True)
class Chosen:
    """The mixture of a client.

    Attributes:
        candidate: the candidate that the client uses, see :func:`choose_together`.
        weights: maps each part to its weight.
        common: the candidate that all clients chose together.
        stack: the intercept and slope for each output that correct the mean; empty for no
            correction.
        difference: by how much a row's loss is smaller than with the common choice, and the 95 %
            interval; None if the client uses the common choice.
    """

    candidate: str
    weights: Mapping[str, float]
    common: str
    stack: Stack = ()
    difference: tuple[float, float, float] | None = None

    @property
    def note(self) -> str:
        """What the user should know about the choice."""
        message = f"all chose {self.common} together"
        if self.difference is None:
            return message
        mean, low, high = self.difference
        return (
            f"{message}; {self.candidate} is better here: a row's loss is {mean:.3g} less "
            f"({low:.3g} to {high:.3g})"
        )


def choose_together(
    clients: Mapping[str, Predictions],
    local: Collection[str],
    shrink: float = 100,
    networks: Collection[str] = (),
) -> dict[str, Chosen]:
    """Choose the candidate with the smallest sum over clients of mean losses on rows that no part
    has seen, in units of each client's spread (the standard deviation of its rows' losses with
    equal weights).

    Candidates are equal weights, one half for local parts, fitted and shrunk weights, these three
    without the client's local networks, each federated part by itself, the stack (:func:`stacks`)
    if there are five or more clients, and local parts alone; if no part is federated, each part by
    itself and each pair with equal weights. Fitted weights, and the stack, are judged by rows that
    they were not fitted to. A client leaves the common choice only if the interval of the
    difference to its best candidate excludes zero, after widening for the number of candidates
    (Bonferroni). A client sends only one number for each candidate, and the sums of the stack.

    Args:
        clients: maps each client to its parts' predictions for out-of-fold rows.
        local: the names of the parts that a client trains by itself.
        shrink: see :func:`fedlit.mixture.weigh.weights_of`.
        networks: the local parts that are networks.

    Example:
        >>> import torch
        >>> from fedlit.tasks import Regression
        >>> y = torch.arange(40.0) - 20
        >>> good, bad = y.double().numpy()[:, None] + 0.1, np.zeros((40, 1))
        >>> one = Predictions(Regression(), np.arange(40), y, {"mine": bad, "ours": good})
        >>> choose_together({"a": one, "b": one}, ["mine"])["a"].candidate
        'ours'
    """
    candidates = {client: _candidates(rows, local, networks) for client, rows in clients.items()}
    losses = {
        client: _losses(rows, local, shrink, candidates[client]) for client, rows in clients.items()
    }
    stacked = {}
    if stackable(clients) and not set(next(iter(clients.values())).parts) <= {*local}:
        for client, losses_of_stack in _stack_losses(clients).items():
            losses[client][STACK] = losses_of_stack
        stacked = stacks(clients)
    names = set.intersection(*map(set, losses.values()))
    order = sorted(names, key=lambda name: (name != "equal", name))  # of equals the first
    counts = {client: _counts(rows) for client, rows in clients.items()}
    sent = {client: _told(rows, order, counts[client]) for client, rows in losses.items()}
    in_order = [sent[client] for client in sorted(sent)]
    total = {name: sum(map(itemgetter(name), in_order)) for name in order}
    common = min(order, key=lambda name: total[name])
    chosen = {}
    for client, rows in clients.items():
        best, difference = _leaves(losses[client], common, counts[client])
        how, parts = candidates[client]["equal" if best == STACK else best]
        weights = weights_of(how, rows.only(parts), local, shrink)
        stack = stacked[client] if best == STACK else ()
        chosen[client] = Chosen(best, weights, common, stack, difference)
    return chosen


def _counts(rows: Predictions) -> Floats:
    """Return how much each row with a known target counts, (n,)."""
    labelled = rows.loss.labelled
    return np.ones(int(labelled.sum())) if rows.weight is None else rows.weight.numpy()[labelled]


def _told(losses: Mapping[str, Floats], order: Collection[str], counts: Floats) -> dict[str, float]:
    """Return what a client sends: for each candidate, its mean loss above that of equal weights, in
    units of its spread.
    """
    equal = _mean(losses["equal"], counts)
    spread = float(np.sqrt(_mean((losses["equal"] - equal) ** 2, counts))) or 1.0
    return {name: (_mean(losses[name], counts) - equal) / spread for name in order}


def _leaves(
    losses: Mapping[str, Floats], common: str, counts: Floats
) -> tuple[str, tuple[float, float, float] | None]:
    """Return a client's candidate, and, if it differs from the common choice, by how much it is
    better.
    """
    best = min(sorted(losses), key=lambda name: _mean(losses[name], counts))
    difference = losses[common] - losses[best]
    rows = len(difference)
    if best == common or rows < 2:
        return common, None
    wide = float(norm.ppf(1 - 0.025 / (len(losses) - 1)))
    mean = _mean(difference, counts)
    # A row of weight 2 counts twice in the mean, but was drawn once.
    variance = (
        float((counts**2 * (difference - mean) ** 2).sum() / counts.sum() ** 2) * rows / (rows - 1)
    )
    error = wide * float(np.sqrt(variance))
    return (best, (mean, mean - error, mean + error)) if mean - error > 0 else (common, None)


def _mean(values: Floats, counts: Floats) -> float:
    return float(np.average(values, weights=counts))


def _candidates(rows: Predictions, local: Collection[str], networks: Collection[str]) -> Candidates:
    every = [*rows.parts]
    without_networks = [name for name in rows.parts if name not in networks]
    local_names = [name for name in every if name in local]
    federated = [name for name in every if name not in local]
    candidates: Candidates = {how: (how, every) for how in HOW}
    if 0 < len(without_networks) < len(every):
        candidates |= {f"{how}{WITHOUT}": (how, without_networks) for how in HOW}
    candidates |= {name: ("equal", [name]) for name in federated or every}
    if not federated:
        return candidates | {AND.join(two): ("equal", [*two]) for two in combinations(every, 2)}
    return candidates | ({ALONE: ("equal", local_names)} if local_names else {})


def _losses(
    rows: Predictions, local: Collection[str], shrink: float, candidates: Candidates
) -> dict[str, Floats]:
    """Map each candidate to the losses of the rows with a known target, with weights that were
    fitted to the other half of the rows.
    """
    loss = rows.loss
    fold = np.arange(len(rows.row)) % FOLDS
    by_candidate = {}
    for name, (how, parts) in candidates.items():
        losses = np.zeros(len(rows.row))
        for number in range(FOLDS):
            seen = fold != number
            unseen = fold == number
            if how == "fitted" and not loss.labelled[seen].any():
                break
            weights = weights_of(how, rows.some(seen).only(parts), local, shrink)
            losses[unseen] = loss(rows.array(weights))[unseen]
        else:
            by_candidate[name] = losses[loss.labelled]
    return by_candidate


def _stack_losses(clients: Mapping[str, Predictions]) -> dict[str, Floats]:
    """Map each client to the losses of its rows with a known target, by the stack that was fitted
    to the other half of all clients' rows.
    """
    losses = {client: np.zeros(len(rows.row)) for client, rows in clients.items()}
    for number in range(FOLDS):
        unseen = {
            client: np.arange(len(rows.row)) % FOLDS == number for client, rows in clients.items()
        }
        fitted = stacks({client: rows.some(~unseen[client]) for client, rows in clients.items()})
        for client, rows in clients.items():
            mixture = rows.array(weights_of("equal", rows, []), fitted[client])
            losses[client][unseen[client]] = rows.loss(mixture)[unseen[client]]
    return {client: losses[client][rows.loss.labelled] for client, rows in clients.items()}


FOLDS = 2  # rows that weights and stacks are fitted to are not those that judge them

# fewer groups say too little of how they vary (Gelman and Hill 2007, section 12.9)
_LEAST_CLIENTS = 5
_RIDGE = 0.1  # as of fedlit.MixedEffects


def stackable(clients: Mapping[str, Predictions]) -> bool:
    """Return whether there are at least five clients, which all have the same parts and one task
    with the same outputs, and enough targets to fit the model to each fold of the rows.
    """
    kinds = {
        (rows.task.name, rows.task.classes, frozenset(rows.parts)) for rows in clients.values()
    }
    if len(clients) < _LEAST_CLIENTS or len(kinds) != 1:
        return False
    if next(iter(clients.values())).task.outcome.family is None:
        return False
    for number in range(FOLDS):
        fold = [_observed(rows)[number::FOLDS] for rows in clients.values()]
        if not all(map(len, fold)):
            return False
        targets = np.sum([(~np.isnan(observed)).sum(0) for observed in fold], 0)
        if not (targets > 2).all():
            return False
    return True


def stacks(clients: Mapping[str, Predictions]) -> dict[str, Stack]:
    """Map each client to the intercept and slope of each output, on the scale of the outcome's
    link.

    Clients send only sums: of the mean of their parts and of its square, and the terms of
    :func:`fedlit.reml.solve`.
    """
    outcome = next(iter(clients.values())).task.outcome
    family = outcome.family
    assert family is not None  # stackable
    sites = {
        client: (outcome.link(_equal(rows)), _observed(rows))
        for client, rows in sorted(clients.items())
    }
    counts = {
        client: None if rows.weight is None else rows.weight.numpy()
        for client, rows in clients.items()
    }
    by_client: dict[str, list[tuple[float, float]]] = {client: [] for client in clients}
    for output in range(next(iter(sites.values()))[0].shape[1]):
        observed = {}
        for client, (means, outcomes) in sites.items():
            labelled = ~np.isnan(outcomes[:, output])
            weight = counts[client]
            counted = None if weight is None else weight[labelled]
            observed[client] = means[labelled, output], outcomes[labelled, output], counted
        for client, effects in _effects(observed, family).items():
            by_client[client].append(effects)
    return dict(by_client)


def _effects(sites: Mapping[str, _Known], family: str) -> dict[str, tuple[float, float]]:
    """Map each client to its intercept and slope."""
    rows = np.concatenate([mean for mean, _, _ in sites.values()])
    counts = np.concatenate(
        [np.ones(len(mean)) if weight is None else weight for mean, _, weight in sites.values()]
    )
    centre = _mean(rows, counts)
    spread = float(np.sqrt(_mean((rows - centre) ** 2, counts)))
    # A constant mean of the parts has intercepts alone.
    scale = spread if spread > 1e-9 * max(1.0, abs(centre)) else np.inf
    designs = {}
    for client, (mean, y, weight) in sites.items():
        designs[client] = np.column_stack([np.ones(len(y)), (mean - centre) / scale]), y, weight

    def ask(theta: Floats, at: Floats, effects: Floats) -> reml.Terms:
        answers = [
            reml.site_answer(x, y, x, theta, at, effects, family, weight)
            for x, y, weight in designs.values()
        ]
        return {name: np.sum(list(map(itemgetter(name), answers)), 0) for name in answers[0]}

    fit, _, _ = reml.solve(ask, 2, 2, family, _RIDGE)
    lines = {}
    for client, (x, y, weight) in designs.items():
        intercept, slope = (
            fit.effects + reml.own_effects(x, y, x, fit.theta, fit.effects, family, weight)[0]
        )
        lines[client] = float(intercept - slope * centre / scale), float(slope / scale)
    return lines


def _equal(rows: Predictions) -> Floats:
    return mixed(rows.parts, weights_of("equal", rows, []))


def _observed(rows: Predictions) -> Floats:
    """Return the target (n, outputs), see :meth:`fedlit.outcomes.base.Outcome.observed`."""
    return rows.task.outcome.observed(rows.y.cpu().numpy())
