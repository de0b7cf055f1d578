"""``fedlit explain --client``: on which columns a client relies, and whether its probabilities are
calibrated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.calibration import calibration_curve
from sklearn.inspection import permutation_importance

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, expect
from fedlit.files import write_frames
from fedlit.mixture.export import predictions_of
from fedlit.mixture.opened import opened
from fedlit.run.explanation import Explanation
from fedlit.run.run import Run
from fedlit.score.mixed_scorer import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.show.canvas import save_figure
from fedlit.show.inspection import calibration_figure, importance_figure
from fedlit.show.shown import Grid
from fedlit.show.text import MOST_ROWS, counted
from fedlit.tasks import Task, task_from

MOST = 5000
"""Rows that are shuffled and predicted again for each column."""
_BINS = 10
_ROWS_OF_A_BIN = 10

Rows = Literal["test", "validation"]


class _Typed(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A client that predicts rows as its table holds them."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def fit(self, rows: Any, y: Any = None) -> Self:  # scikit-learn asks for it, and never calls it
        return self

    def predictions(self, rows: pd.DataFrame) -> torch.Tensor:
        """Return predictions (n, width)."""
        return torch.from_numpy(predictions_of(self.scorer, rows))


def explain_client(
    run: str | Path,
    client: str,
    *,
    rows: Rows = "test",
    checkpoint: str | Path = "last",
    repeats: int = 10,
    seed: int = 0,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Explanation:
    """Find on which columns a trained client relies, by scikit-learn's permutation importance: how
    much of its main score is lost if a column is shuffled. For a classifier, also compare its
    probabilities with what came true.

    Args:
        run: a run's folder, or the name of a configuration, which stands for its newest run.
        client: the name of the client.
        rows: the rows of its table: ``test`` or ``validation``.
        checkpoint: ``last``, ``best`` or a file; for a mixture ``last``.
        repeats: how often each column is shuffled.
        seed: the seed of the shuffles, and of the choice among more than 5,000 rows.
        out: where to; ``explain/<client>`` in the run's folder if None.
        quiet: whether not to print which checkpoint is used.

    Raises:
        ConfigError: there is no such run, checkpoint or client; its table cannot be read;
            validation rows of a mixture or of folds are asked for, which its models were trained
            on; or these rows have no score.
    """
    expect(repeats >= 1, "--repeats", "a number of at least 1", repeats)
    expect(seed >= 0, "--seed", "a number of at least 0", seed)
    expect(rows in ("test", "validation"), "--rows", "test or validation", rows)
    scorer, folder, loaded = opened(run, client, checkpoint, quiet=quiet)
    table, positions = _rows_of(loaded, scorer, rows, seed)
    used = dict[str, None]()
    for encoder in _encoders(scorer):
        used |= dict.fromkeys(encoder.columns)
    features = table.features.iloc[positions][
        [column for column in used if column in table.features]
    ]
    task = task_from(scorer.own_state)
    y = task.encode(table.target.iloc[positions])
    subject = f"{counted(len(positions), f'{rows} row')} of {client}"
    target = Path(out) if out is not None else folder / "explain" / client
    weight = None if table.weights is None else torch.from_numpy(table.weights[positions])
    importance, score = _importance(scorer, task, features, y, weight, repeats, seed)
    main = task.scores[0]
    worse = "lost" if main.higher_is_better else "added"
    label = f"{main.label} {worse} if the column is shuffled"
    files = [target / "importance.csv"]
    tables = {files[0]: importance}
    calibration = _calibration(task, predictions_of(scorer, features), y.numpy())
    if calibration is not None:
        files.append(target / "calibration.csv")
        tables[files[1]] = calibration
    write_frames(tables)
    files += save_figure(importance_figure(importance, label, subject), target / "importance")
    if calibration is not None:
        files += save_figure(calibration_figure(calibration, subject), target / "calibration")
    lines: list[str | Grid] = [
        f"{main.label} {score:.4f} on {subject}; {label}:",
        "",
        _grid(importance),
    ]
    if calibration is not None:
        lines += [
            "",
            "Calibration: the mean predicted probability of a class, and its share of the rows",
            "",
        ]
        lines.append(_grid(calibration))
    return Explanation(importance, files, lines)


def _encoders(scorer: Scorer) -> list[Any]:
    if isinstance(scorer, MixedScorer):
        models = itertools.chain.from_iterable(scorer.scorers.values())
        return [model.encoder for model in models]
    return [scorer.encoder]


def _rows_of(
    loaded: Callable[[], Run], scorer: Scorer, rows: Rows, seed: int
) -> tuple[ClientTable, np.ndarray]:
    """Return the client's table, and the positions of the rows; some of them, if there are too
    many.
    """
    run = loaded()
    if rows == "validation" and (isinstance(scorer, MixedScorer) or run.data.folds):
        raise ConfigError(
            "--rows validation: expected a run without folds, found one whose models were trained "
            "on some of these rows; use --rows test"
        )
    (table,) = run.data.source.some([scorer.client], run.seed)
    positions = table.splits[rows]
    if len(positions) > MOST:
        positions = np.sort(np.random.default_rng(seed).choice(positions, MOST, replace=False))
    return table, positions


def _importance(
    scorer: Scorer,
    task: Task,
    features: pd.DataFrame,
    y: torch.Tensor,
    weight: torch.Tensor | None,
    repeats: int,
    seed: int,
) -> tuple[pd.DataFrame, float]:
    """Return the importance of each column, the largest first, and the score that it is a part
    of.
    """
    main = task.scores[0]

    def score(model: _Typed, rows: pd.DataFrame, target: torch.Tensor) -> float:
        values = task.evaluate(model.predictions(rows), target, weight)
        return float(main.gain(values[main.name], 0.0))

    model = _Typed(scorer)
    whole = score(model, features, y)
    if not math.isfinite(whole):
        raise ConfigError(
            f"client {scorer.client!r}: expected rows whose {main.label} is defined, found "
            f"{counted(len(y), 'row')} without it, as where one class has none; use other rows "
            "(--rows)"
        )
    permuted = permutation_importance(
        model, features, y, scoring=score, n_repeats=repeats, random_state=seed
    )
    table = pd.DataFrame(
        {
            "column": features.columns,
            "importance": permuted.importances_mean,
            "deviation": permuted.importances_std,
        }
    )
    return table.sort_values("importance", ascending=False, kind="stable", ignore_index=True), abs(
        whole
    )


def _calibration(task: Task, predictions: np.ndarray, y: np.ndarray) -> pd.DataFrame | None:
    """Return predicted probabilities and shares of rows, in bins of equally many rows: of the
    positive class if there are two, otherwise of each class. None if the task is not to predict one
    of several classes.
    """
    if not task.outcome.one_label:
        return None
    bins = max(1, min(_BINS, len(y) // _ROWS_OF_A_BIN))
    parts = []
    positions = [1] if len(task.classes) == 2 else range(len(task.classes))
    for position in positions:
        probability = predictions[:, position].astype(np.float64)
        observed, predicted = calibration_curve(
            y == position, probability, n_bins=bins, strategy="quantile"
        )
        edges = np.percentile(probability, np.linspace(0, 100, bins + 1))
        counts = np.bincount(np.searchsorted(edges[1:-1], probability), minlength=bins)
        curve = {"class": str(task.classes[position]), "predicted": predicted, "observed": observed}
        parts.append(pd.DataFrame({**curve, "rows": counts[counts > 0]}))
    return pd.concat(parts, ignore_index=True)


def _grid(table: pd.DataFrame) -> Grid:
    rows = table.head(MOST_ROWS).to_dict("records")
    cells = [list(map(_cell, row.values())) for row in rows]
    return Grid(list(map(str, table.columns)), cells)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
