"""Decides for each client which parts enter its mixture, and with which weights. It is a pure
function of the parts' predictions for rows that they have not seen, and uses neither runs nor
files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedlit.errors import Told, expect
from fedlit.mixture.settings import Mixing
from fedlit.mixture.together import choose_together
from fedlit.mixture.weigh import weights_of
from fedlit.score.plain import defined
from fedlit.tasks import COMPARED
from fedlit.tasks.judge import Judge
from fedlit.tasks.predictions import Predictions
from fedlit.weights import Stack, mixed, stacked


@dataclass(frozen=True)
class Combined:
    """A client's mixture, and how it was chosen.

    Attributes:
        weights: maps each part that entered to its weight; weights sum to 1.
        stack: the intercept and slope for each output that correct the weighted mean; empty for no
            correction.
        metric: the score by which the mixture was judged.
        rows: the number of rows on which it was judged.
        scores: maps each part to its score on these rows.
        mixture: the score of the mixture.
        own: the score of the local parts with which it began; NaN if nothing was compared.
        changes: maps each part to the improvement of the score when it entered, or if it had
            entered; NaN for local parts.
        notes: what the user should know.
    """

    weights: dict[str, float]
    metric: str
    rows: int
    scores: dict[str, float]
    mixture: float
    own: float
    changes: dict[str, float]
    notes: tuple[str, ...] = ()
    stack: Stack = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the mixture as plain data, in which undefined values are None."""
        content: dict[str, Any] = defined(vars(self))
        return content


def combine(
    clients: Mapping[str, Predictions],
    local: Collection[str],
    mixing: Mixing,
    networks: Collection[str] = (),
) -> dict[str, Combined]:
    """Return the mixtures of all clients.

    With given weights, or ``admit: false``, all parts enter. Otherwise a mixture begins with what
    the client would use alone: all its local parts, or a single one that is better than all of them
    together. Of the remaining parts, the one that gives the best score enters (among equals the
    first by name), as long as the score does not fall; weights are computed again for each mixture.
    Decisions are made by scores, not by tests of significance. If the score is undefined on these
    rows, nothing can be judged and federated parts stay out. A client without local parts begins
    with the best federated one.

    Args:
        clients: maps each client to its parts' predictions for rows that they have not seen.
        local: the parts in which no other client had a share.
        mixing: how parts are mixed.
        networks: the local parts that are networks; ``together`` also tries to leave them out.

    Raises:
        ConfigError: weights are given, but none of a client's parts has one.
        DataError: the parts' predictions do not fit together.

    Example:
        >>> import numpy as np, torch
        >>> from fedlit.tasks import Regression
        >>> y = torch.tensor([0.0, 1.0, 2.0])
        >>> parts = {name: y.double().numpy()[:, None] + off for name, off in (("own", 1), ("joint", -0.5), ("far", 9))}
        >>> rows = Predictions(Regression(), np.arange(3), y, parts)
        >>> found = combine({"a": rows}, ["own"], Mixing(by="mae"))["a"]
        >>> found.weights, found.own, found.mixture, found.changes["far"] < 0
        ({'own': 0.5, 'joint': 0.5}, 1.0, 0.25, True)
    """
    if mixing.weights != "together":
        return {name: _combined(name, rows, local, mixing) for name, rows in clients.items()}
    choices = choose_together(clients, local, mixing.shrink, networks)
    mixtures = dict[str, Combined]()
    for name, rows in clients.items():
        choice = choices[name]
        fixed = replace(mixing, weights=dict(choice.weights))
        combined = _combined(name, rows, local, fixed, choice.stack)
        mixtures[name] = replace(combined, notes=(choice.note, *combined.notes))
    return mixtures


def _combined(
    client: str, rows: Predictions, local: Collection[str], mixing: Mixing, stack: Stack = ()
) -> Combined:
    stacked(rows.parts)  # names a part at fault
    comparable = [
        score.name for score in rows.task.scores if score.name in COMPARED and not score.test_only
    ]
    by = mixing.by if not isinstance(mixing.by, Mapping) else mixing.by.get(client)
    metric = by if by in comparable else rows.task.scores[0].name
    notes = list[str]()
    if by not in (None, metric):
        notes.append(f"judged by {metric}, because its task has no {by}")
    judge = rows.judge(metric)
    before = math.nan
    changes = dict[str, float]()
    if isinstance(mixing.weights, Mapping):
        chosen_weights = {
            name: float(value)
            for name, value in mixing.weights.items()
            if name in rows.parts and value
        }
        total = sum(chosen_weights.values())
        expected = f"a weight above 0 for one of its parts, {', '.join(rows.parts)}"
        expect(total > 0, f"client {client!r}: mixture.weights", expected, Told("none"))
        weights = {name: value / total for name, value in chosen_weights.items()}
    elif mixing.admit:
        weights, before, changes, admission_notes = _admitted(rows, local, judge, mixing)
        notes = [*admission_notes, *notes]
    else:
        local_names = [name for name in rows.parts if name in local]
        before = (
            judge(mixed(rows.parts, dict.fromkeys(local_names, 1.0))) if local_names else math.nan
        )
        weights = weights_of(mixing.weights, rows, local, mixing.shrink)
    scores = {name: judge(predictions) for name, predictions in rows.parts.items()}
    reached = judge(rows.array(weights, stack))
    best = judge.score.best(dict(sorted(scores.items(), reverse=True)))
    if best is not None and judge.score.gain(scores[best], reached) > 0:
        notes.append(
            f"{best} alone is better here ({metric} {scores[best]:.4f}) than the mixture "
            f"({reached:.4f}); to take it alone: --ckpt_path last --mixture.weights.{best} 1"
        )
    changes = {name: changes.get(name, math.nan) for name in rows.parts}
    return Combined(
        weights, metric, len(rows.row), scores, reached, before, changes, tuple(notes), stack
    )


def _admitted(
    rows: Predictions, local: Collection[str], judge: Judge, mixing: Mixing
) -> tuple[dict[str, float], float, dict[str, float], list[str]]:
    """Return the weights, the score of the mixture of local parts, the changes, and the notes; see
    :class:`Combined`.
    """
    score = judge.score
    names = sorted(rows.parts)
    alone = {name: judge(rows.parts[name]) for name in names}
    inside = [name for name in names if name in local]
    candidates = [name for name in names if name not in local]
    before = math.nan
    notes = list[str]()
    changes = dict[str, float]()

    def of(chosen: list[str]) -> tuple[dict[str, float], float]:
        weights = weights_of(str(mixing.weights), rows.only(chosen), local, mixing.shrink)
        return weights, judge(mixed(rows.parts, weights))

    if not inside:
        inside = [score.best(alone) or names[0]]
        candidates.remove(inside[0])
        notes.append(
            f"there is no own part: {inside[0]!r}, the best federated one by itself, is what "
            "others are compared with"
        )
    best = score.best({name: alone[name] for name in inside})
    weights, now = of(inside)
    if best is not None and score.gain(alone[best], now) > 0:
        candidates = [name for name in inside if name != best] + candidates
        inside = [best]
        (weights, now) = of([best])
    if inside[0] in local:
        before = now
    if candidates and math.isnan(now):
        notes.append(
            f"the score is not defined on these {len(rows.row):,} rows: federated parts could not "
            f"be judged and stay out ({', '.join(candidates)}); give validation rows of each class"
        )
    while candidates:
        tried = {name: of([*inside, name]) for name in candidates}
        gained = {name: score.gain(value, now) for name, (_, value) in tried.items()}
        changes |= gained
        enters = max(
            candidates, key=lambda name: -math.inf if math.isnan(gained[name]) else gained[name]
        )
        if not gained[enters] >= 0:
            break
        inside = [*inside, enters]
        candidates = [name for name in candidates if name != enters]
        weights, now = tried[enters]
    return weights, before, changes, notes
