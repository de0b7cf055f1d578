"""Clients choose one way to mix together: each alone has too few rows to choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedlit.mix.losses import row_loss
from fedlit.mix.weights import mixed_parts, weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from fedlit.tasks import Task

__all__ = ["ALONE", "Chosen", "choose_together"]

ALONE = "alone"
_FOLDS = 2  # rows by which weights are fitted are not those that judge them


@dataclass(frozen=True)
class Chosen:
    """A client's mixture.

    Attributes:
        candidate: what it takes: ``equal``, ``half_own``, ``fitted``, ``alone``, or a federated part.
        weights: part → weight.
        common: what all chose together.
        difference: where it leaves the common choice: by how much a row's loss is less with its own candidate, and the
            interval of 95 %.
    """

    candidate: str
    weights: Mapping[str, float]
    common: str
    difference: tuple[float, float, float] | None = None


def choose_together(
    clients: Mapping[str, tuple[Task, Tensor, Mapping[str, np.ndarray]]], own: Collection[str], shrink: float = 100
) -> dict[str, Chosen]:
    """The candidate with the least sum, over clients, of mean losses of rows that no part has seen, in units of each
    client's spread (the standard deviation of its rows' losses with equal weights).

    Candidates are equal weights, one half for own parts, fitted and shrunk weights (judged by rows that they were not
    fitted to), each federated part by itself, and own parts alone. A client leaves the common choice only where the
    interval of the difference to its own best candidate excludes zero, widened for the number of candidates
    (Bonferroni). All that a client tells is one number for each candidate.

    Args:
        clients: task, y as the task encodes it, and part → predictions (n, width), of out-of-fold rows.
        own: names of parts that a client trains by itself.
        shrink: see :func:`fedlit.mix.weights.weights_of`.

    Example:
        >>> import torch
        >>> from fedlit.tasks import Regression
        >>> y = torch.arange(40.0) - 20
        >>> good, bad = y.double().numpy()[:, None] + 0.1, np.zeros((40, 1))
        >>> one = (Regression(), y, {"mine": bad, "ours": good})
        >>> choose_together({"a": one, "b": one}, ["mine"])["a"].candidate
        'ours'
    """
    from scipy.stats import norm

    losses = {client: _losses(*given, own, shrink) for client, given in clients.items()}
    names = set.intersection(*(set(own_losses) for own_losses in losses.values()))
    order = sorted(names, key=lambda name: (name != "equal", name))  # of equals the first
    total = dict.fromkeys(order, 0.0)
    for rows in losses.values():
        spread = float(rows["equal"].std()) or 1.0
        for name in order:
            total[name] += float(rows[name].mean() - rows["equal"].mean()) / spread
    common = min(order, key=lambda name: total[name])
    chosen = {}
    for client, (task, y, parts) in clients.items():
        rows = losses[client]
        best, difference = common, None
        mine = min(sorted(rows), key=lambda name: float(rows[name].mean()))
        apart = rows[common] - rows[mine]
        if mine != common and len(apart) > 1:
            wide = float(norm.ppf(1 - 0.025 / (len(rows) - 1)))
            error = wide * float(apart.std(ddof=1)) / np.sqrt(len(apart))
            mean = float(apart.mean())
            if mean - error > 0:
                best, difference = mine, (mean, mean - error, mean + error)
        chosen[client] = Chosen(best, _weights(best, task, y, parts, own, shrink), common, difference)
    return chosen


def _weights(
    candidate: str, task: Task, y: Tensor, parts: Mapping[str, np.ndarray], own: Collection[str], shrink: float
) -> dict[str, float]:
    mine = [name for name in parts if name in own]
    if candidate == ALONE:
        return dict.fromkeys(mine, 1 / len(mine))
    if candidate in parts:
        return {candidate: 1.0}
    loss = row_loss(task, y) if candidate == "fitted" else None
    return dict(weights_of(candidate, parts, mine, loss, shrink))  # type: ignore[arg-type]


def _losses(
    task: Task, y: Tensor, parts: Mapping[str, np.ndarray], own: Collection[str], shrink: float
) -> dict[str, np.ndarray]:
    """Candidate → the losses of rows whose target is known."""
    loss = row_loss(task, y)
    mine = [name for name in parts if name in own]
    candidates = ["equal", "half_own", *(name for name in parts if name not in own), *([ALONE] if mine else [])]
    made = {
        name: loss(mixed_parts(parts, _weights(name, task, y, parts, own, shrink)))[loss.known] for name in candidates
    }
    fold = np.arange(len(y)) % _FOLDS
    fitted = np.zeros(len(y))
    for number in range(_FOLDS):
        seen, unseen = fold != number, fold == number
        if not loss.known[seen].any():
            return made
        weights = _weights("fitted", task, y[seen], {name: rows[seen] for name, rows in parts.items()}, own, shrink)
        fitted[unseen] = loss(mixed_parts(parts, weights))[unseen]
    return {**made, "fitted": fitted[loss.known]}
