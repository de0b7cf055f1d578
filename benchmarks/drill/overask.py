"""A coordinator that asks more than was agreed to: thresholds of its choice, more points, and again
from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedlit import Forest, GrowForest, Newton, PooledLogistic
from fedlit.data.encoding import Rows
from fedlit.errors import RunError
from fedlit.exchange.answerer import Answerer
from fedlit.exchange.questions import Own
from fedlit.institutions.consent import Consent
from fedlit.institutions.terms import Terms
from fedlit.spec import ClientSpec

Rows_ = list[tuple[str, int, int, str]]
NAMES = ("age", "pressure", "chol", "sex")
THRESHOLDS = 20_000
POINTS = 3_000
LEVELS = 12


def _rows(rng: np.random.Generator, rows: int = 120) -> Rows:
    columns = [rng.integers(20, 90, rows), rng.normal(120, 15, rows), rng.normal(200, 40, rows)]
    x = np.column_stack([*columns, rng.integers(0, 2, rows)]).astype(np.float32)
    y = (rng.random(rows) < 0.4).astype(np.int64)
    return Rows(torch.from_numpy(x), torch.from_numpy(y), torch.arange(rows))


def _site(
    rule: Any, client: Any, parameters: tuple[str, ...], rows: Rows
) -> Callable[..., dict[str, np.ndarray]]:
    """Return what a site answers to (topic, tensors), with the checks that stand before its
    rows.
    """
    questions = rule.facts.questions
    kinds = (
        tuple(sorted(questions))
        if all(isinstance(own, dict) for own in questions.values())
        else questions
    )
    consent = Consent(Terms("north", {}, {}, {}, questions=kinds))
    answerer = Answerer(client, parameters, rows)

    def ask(topic: str, **tensors: Any) -> dict[str, np.ndarray]:
        question = Own(
            topic, {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
        )
        consent.check_question(question)
        return {name: value.numpy() for name, value in answerer(question).items()}

    return ask


def _spec(rows: Rows) -> ClientSpec:
    return ClientSpec("north", NAMES, (0, 1), {"train": len(rows)}, ())


@contextmanager
def _refusal(notes: list[str]) -> Iterator[None]:
    try:
        yield
        notes.append("answered")
    except RunError as error:
        notes.append(f"refused: {str(error)[:120]}")


def _start(rule: GrowForest) -> dict[str, Any]:
    known = {
        "trees": rule.trees,
        "minimum": rule.minimum,
        "summed": rule.summed,
        "max_features": rule.max_features,
    }
    return {"seed": 1, **known, "thresholds": rule.thresholds, "levels": getattr(rule, "levels", 0)}


def overask(folder: Path, tries: int) -> Rows_:
    """See the module."""
    rows = _rows(np.random.default_rng(0))
    rule = GrowForest(trees=25, thresholds=2, minimum=5)
    return [_thresholds(rule, rows), _box(rule, rows), _redraws(rule, rows), _points(rows)]


def _thresholds(rule: GrowForest, rows: Rows) -> tuple[str, int, int, str]:
    """Count the rows of which a question with a fine grid tells a value."""
    ask = _site(rule, Forest(_spec(rows)), (), rows)
    notes: list[str] = []
    start = ask("forest/start", **_start(rule))
    grid = np.stack(
        [
            np.linspace(*ends, THRESHOLDS)
            for ends in zip(start["low"] - 1, start["high"] + 1, strict=True)
        ]
    )
    asked = np.repeat(grid[:, :, None], rule.trees, 2).astype(np.float32)
    with _refusal(notes):
        left = ask("forest/counts", thresholds=asked)["left"].astype(int)
        single = int((np.diff(left[:, :2, :, 0], axis=2) == 1).sum())
        notes.append(f"{single} single rows of two columns told")
    return (
        "overask: thresholds of the coordinator's choice are refused",
        1,
        int("answered" not in notes),
        "; ".join(notes),
    )


def _box(rule: GrowForest, rows: Rows) -> tuple[str, int, int, str]:
    """A range within the site's own puts all thresholds where the coordinator wants them."""
    ask = _site(rule, Forest(_spec(rows)), (), rows)
    notes: list[str] = []
    start = ask("forest/start", **_start(rule))
    low = start["low"] + np.float32(5)
    with _refusal(notes):
        ask("forest/counts", low=low, high=low + np.float32(0.01), open=np.ones(rule.trees, bool))
    return (
        "overask: a range within the site's own is refused",
        1,
        int("answered" not in notes),
        "; ".join(notes),
    )


def _redraws(rule: GrowForest, rows: Rows) -> tuple[str, int, int, str]:
    """The same nodes again and again: thresholds are drawn anew each time."""
    ask = _site(rule, Forest(_spec(rows)), (), rows)
    notes: list[str] = []
    start = ask("forest/start", **_start(rule))
    with _refusal(notes):
        answer = ask(
            "forest/counts", low=start["low"], high=start["high"], open=np.ones(rule.trees, bool)
        )
        nodes = answer["left"].shape[-1]
        told = {"feature": np.full(nodes, -1, np.int16), "number": np.zeros(nodes, np.uint8)}
        keep = np.tile([True, False], (nodes, 1))
        empty = np.zeros(answer["left"].shape[1:], np.uint8)
        for _ in range(LEVELS):
            ask("forest/counts", **told, keep=keep, empty=empty)
    return (
        "overask: a node that can be split is not drawn again",
        1,
        int("answered" not in notes),
        "; ".join(notes),
    )


def _points(rows: Rows) -> tuple[str, int, int, str]:
    """Many points in one of Newton's questions."""
    rule = Newton(of="all", ridge=3.0)
    parameters = tuple(f"prior.1: {name}" for name in NAMES)
    ask = _site(rule, PooledLogistic(_spec(rows)), parameters, rows)
    notes: list[str] = []
    points = np.random.default_rng(1).normal(size=(len(NAMES), POINTS)) / 100
    with _refusal(notes):
        ask("curvature", ridge=3.0, **dict(zip(parameters, points, strict=True)))
    return (
        "overask: more than one point is refused",
        1,
        int("answered" not in notes),
        "; ".join(notes),
    )
