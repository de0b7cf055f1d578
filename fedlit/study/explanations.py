"""What the report says of each client's best federated method beside its scores: columns, calibration, threshold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedlit.show.table import Cell, Table
from fedlit.study.explained import CALIBRATION, IMPORTANCE, JUDGED, LEAST_OF_CLASS
from fedlit.study.figures import calibration_figure, importance_figure
from fedlit.study.findings import Findings
from fedlit.study.importance import MOST_COLUMNS, MOST_ROWS, REPEATS
from fedlit.study.study import BEST_FEDERATED
from fedlit.tasks import COMPARED

__all__ = ["LEAST_ROWS", "Explanation", "about_explanations", "explanations"]

LEAST_ROWS = 30  # below, neither columns nor probabilities are judged
_MOST_DRAWN = 8  # columns in a picture


@dataclass
class Explanation:
    """What is shown of one client.

    Attributes:
        client: whose.
        method: what is explained.
        figures: (caption, SVG), of columns and of calibration.
        lines: sentences beside them.
        threshold: what comes of a threshold, of two classes; None where there is none.
    """

    client: str
    method: str
    figures: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    threshold: Table | None = None


def explanations(found: Findings) -> list[Explanation]:
    """Of each client that has a best federated method; none where the study has none, or runs are not explained."""
    parts = {name: _of_best(frame) for name, frame in found.collected.explained.items()}
    if not parts:
        return []
    usual = {answer.client: answer for answer in found.answers}
    sections = []
    for client in found.collected.clients:
        if client not in usual or usual[client].usual_federated is None:
            continue
        answer = usual[client]
        own = Explanation(client, f"{'mostly ' * answer.varied[0]}{found.study.labels[str(answer.usual_federated)]}")
        frames = {name: frame[frame["client"] == client] for name, frame in parts.items()}
        if IMPORTANCE in frames:
            _add_columns(own, frames[IMPORTANCE])
        if CALIBRATION in frames:
            _add_calibration(own, frames[CALIBRATION])
        if JUDGED in frames:
            _add_judged(own, frames[JUDGED])
        if own.figures or own.lines:
            sections.append(own)
    return sections


def about_explanations() -> list[str]:
    """How what is shown was computed, a sentence each."""
    return [
        "Of the federated method that is best for a client on its validation rows, seed by seed",
        "Columns: by how much the score falls on validation rows when the values of one column are shuffled among rows "
        f"(permutation importance: {REPEATS} shuffles a seed of at most {MOST_ROWS} rows, the first {MOST_COLUMNS} "
        "columns at most; line: ± standard deviation). Of columns that say the same, each looks unimportant",
        "Came true: of the test rows to which a probability was given, how many it was true of, beside the number of "
        "rows (mean over seeds); on the dashed line what is predicted comes true. Of more than two classes it is the "
        "probability of the predicted one; of numbers it is the true beside the predicted, over bins of equally many "
        "rows",
        "Brier score: mean squared distance of the probabilities from what happened, 0 is best (of two classes up to "
        "1, of more up to 2)",
        "Threshold: chosen on validation rows, where balanced accuracy is largest; what comes of it is of test rows",
        f"Too few rows to mean anything: fewer than {LEAST_ROWS} rows, for a threshold fewer than {LEAST_OF_CLASS} of "
        "either class",
    ]


def _of_best(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["method"] == BEST_FEDERATED]


def _too_few(rows: float, split: str) -> str:
    return f"too few rows to mean anything ({rows:.0f} {split} rows, fewer than {LEAST_ROWS})"


def _add_columns(own: Explanation, frame: pd.DataFrame) -> None:
    if frame.empty:
        own.lines.append("Columns: not known, for the score is not defined on validation rows, or there are none")
        return
    first = frame.iloc[0]
    if first["rows"] < LEAST_ROWS:
        own.lines.append(f"Columns: {_too_few(first['rows'], 'validation')}")
        return
    score, by_column = COMPARED[str(first["metric"])], frame.groupby("column", sort=False)
    several = frame["seed"].nunique() > 1
    means = pd.DataFrame(
        {"mean": by_column["mean"].mean(), "sd": by_column["mean"].std() if several else by_column["sd"].mean()}
    ).reset_index()
    top = means.sort_values("mean", ascending=False, kind="stable").head(_MOST_DRAWN)
    own.figures.append(("What it rests on", importance_figure(top, score, own.client)))
    shown = f"{len(top)} of {first['of_columns']} columns" if len(top) < first["of_columns"] else "all columns"
    unseen = first["of_columns"] - first["columns"]
    left = f"; the last {unseen} were not looked at" if unseen else ""
    rows = f"{first['rows']} of {first['of_rows']}" if first["rows"] < first["of_rows"] else f"{first['rows']}"
    over = "seeds" if several else "shuffles"
    own.lines.append(f"Columns: {shown}, by {score.label} on {rows} validation rows, ± over {over}{left}")


def _add_calibration(own: Explanation, frame: pd.DataFrame) -> None:
    if frame.empty:
        return
    rows = frame.groupby("seed")["rows"].sum().mean()
    what = str(frame["of"].iloc[0])
    title = "Predicted and true" if what == "number" else "What came true"
    if rows < LEAST_ROWS:
        own.lines.append(f"{title}: {_too_few(rows, 'test')}")
        return
    weighed = frame.assign(predicted=frame["predicted"] * frame["rows"], true=frame["true"] * frame["rows"])
    sums = weighed.groupby("bin")[["predicted", "true", "rows"]].sum()
    bins = pd.DataFrame({name: sums[name] / sums["rows"] for name in ("predicted", "true")})
    bins = bins.assign(rows=sums["rows"] / frame["seed"].nunique(), of=what)
    label = frame["label"].iloc[0]
    named = f": {label}" if what == "class" else ", of the predicted class" if what == "confidence" else ""
    own.figures.append((f"{title}{named}", calibration_figure(bins, own.client)))


def _add_judged(own: Explanation, frame: pd.DataFrame) -> None:
    means = frame.groupby("name")["value"].mean()
    rows = float(means.get("rows", 0.0))
    if "brier" not in means:
        return
    if rows < LEAST_ROWS:
        own.lines.append(f"Brier score, threshold: {_too_few(rows, 'test')}")
        return
    own.lines.append(
        f"Brier score {means['brier']:.3f} on {rows:.0f} test rows; who always predicts the classes' shares has "
        f"{means['brier_share']:.3f}"
    )
    labelled = frame.loc[frame["name"] == "threshold", "label"]
    if labelled.empty:
        if means["classes"] == 2:
            own.lines.append(
                f"Threshold: too few rows to mean anything (fewer than {LEAST_OF_CLASS} validation or test rows of a "
                "class)"
            )
        return
    head, names = [f"at {means['threshold']:.2f}, chosen", "at 0.50"], ("sensitivity", "specificity", "precision")
    body = [
        (name, [Cell(_percent(float(means.get(f"{place}/{name}", np.nan)))) for place in ("chosen", "half")])
        for name in names
    ]
    own.lines.append(f"Threshold for {labelled.iloc[0]!r}, in %")
    own.threshold = Table(head, body)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}" if np.isfinite(value) else "–"
