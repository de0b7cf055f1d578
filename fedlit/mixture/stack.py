"""The stack: one mixed model of all clients' outcomes on the mean of their parts, with a random intercept and slope for
each client. It corrects a client's mean by its rows, with shrinkage towards the effects over all rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fedlit import reml
from fedlit.mixture.weigh import Predicted, weights_of
from fedlit.weights import Array, Stack, linked, mixed

FOLDS = 2  # rows that weights and stacks are fitted to are not those that judge them

_FAMILY = {"regression": "gaussian", "counts": "poisson", "classification": "logistic", "multi_label": "logistic"}
_LEAST_CLIENTS = 5  # fewer groups say too little of how they vary (Gelman and Hill 2007, section 12.9)
_RIDGE = 0.1  # as of fedlit.MixedEffects


def stackable(clients: Mapping[str, Predicted]) -> bool:
    """Return whether there are at least five clients, which all have the same parts and one task with the same outputs,
    and enough targets to fit the model to each fold of the rows.
    """
    kinds = {(rows.task.name, rows.task.classes, frozenset(rows.parts)) for rows in clients.values()}
    if len(clients) < _LEAST_CLIENTS or len(kinds) != 1 or next(iter(kinds))[0] not in _FAMILY:
        return False
    folds = [[_outcomes(rows)[number::FOLDS] for rows in clients.values()] for number in range(FOLDS)]
    if not all(len(own) for fold in folds for own in fold):
        return False
    return all((np.sum([(~np.isnan(own)).sum(0) for own in fold], 0) > 2).all() for fold in folds)


def stacks(clients: Mapping[str, Predicted]) -> dict[str, Stack]:
    """Map each client to the intercept and slope of each output, on the scale of :func:`fedlit.weights.linked`.

    Clients send only sums: of the mean of their parts and of its square, and the terms of :func:`fedlit.reml.solve`.
    """
    task = next(iter(clients.values())).task
    sites = {client: (linked(task.name, _mean(rows)), _outcomes(rows)) for client, rows in sorted(clients.items())}
    made: dict[str, list[tuple[float, float]]] = {client: [] for client in clients}
    for output in range(next(iter(sites.values()))[0].shape[1]):
        known = {}
        for client, (means, outcomes) in sites.items():
            kept = ~np.isnan(outcomes[:, output])
            known[client] = means[kept, output], outcomes[kept, output]
        for client, own in _effects(known, _FAMILY[task.name]).items():
            made[client].append(own)
    return dict(made)


def _effects(sites: Mapping[str, tuple[Array, Array]], family: str) -> dict[str, tuple[float, float]]:
    """Map each client to its intercept and slope, given means (n,) on the link scale and outcomes (n,)."""
    rows = np.concatenate([mean for mean, _ in sites.values()])
    centre, spread = rows.mean(), rows.std()
    scale = spread if spread > 1e-9 * max(1.0, abs(centre)) else np.inf  # of a constant, intercepts alone
    designs = {
        client: (np.column_stack([np.ones(len(y)), (mean - centre) / scale]), y) for client, (mean, y) in sites.items()
    }

    def ask(theta: Array, at: Array, effects: Array) -> reml.Terms:
        said = [reml.site_answer(x, y, x, theta, at, effects, family) for x, y in designs.values()]
        return {name: np.sum([own[name] for own in said], 0) for name in said[0]}

    fit, _, _ = reml.solve(ask, 2, 2, family, _RIDGE)
    found = {}
    for client, (x, y) in designs.items():
        intercept, slope = fit.effects + reml.own_effects(x, y, x, fit.theta, fit.effects, family)[0]
        found[client] = float(intercept - slope * centre / scale), float(slope / scale)
    return found


def _mean(rows: Predicted) -> Array:
    return mixed(rows.parts, weights_of("equal", rows, []))


def _outcomes(rows: Predicted) -> Array:
    """Return the outcomes (n, outputs): 0 and 1 for classes and labels, or numbers in the user's units;
    NaN if unknown.
    """
    task, y = rows.task, rows.y.cpu()
    if task.name in ("regression", "counts"):
        return task.true(y).numpy()[:, None]  # type: ignore[attr-defined, no-any-return]  # tasks of a number have it
    if task.name == "multi_label":
        return y.double().numpy()
    classes = torch.arange(1 if len(task.classes) == 2 else 0, len(task.classes))
    each = (y[:, None] == classes).double()
    each[~task.known(y)] = torch.nan
    return each.numpy()
