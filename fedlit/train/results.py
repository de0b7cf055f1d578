"""The table of a split's scores: printed, as a frame, written as CSV and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.table import Split
from fedlit.show.text import MOST_ROWS, text_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results"]


@dataclass(frozen=True)
class Results:
    """Scores of every client on one split.

    Attributes:
        split: which rows were scored.
        step: aligned steps that the clients had behind them.
        scores: client → metric → value (``classes`` counts the classes that AUROC and AUPRC average); NaN where
            undefined.
        rows: client → number of rows.
        summary: mean over clients, worst client, and how many clients were counted, per metric.
        unseen: client → rows whose label no training row of the client has, where there are any.
    """

    split: Split
    step: int
    scores: dict[str, dict[str, float]]
    rows: dict[str, int]
    summary: dict[str, dict[str, Any]]
    unseen: dict[str, int]

    def scalars(self) -> dict[str, float]:
        """For logs: ``<client>/<tag>/<metric>``, and for the federation ``<tag>/<metric>`` (mean) and
        ``<tag>/worst/<metric>``.
        """
        tag = "val" if self.split == "validation" else self.split
        values = {f"{site}/{tag}/{metric}": value for site, own in self.scores.items() for metric, value in own.items()}
        values |= {f"{tag}/{metric}": value for metric, value in self.summary["mean"].items()}
        return values | {f"{tag}/worst/{metric}": value for metric, value in self.summary["worst"].items()}

    def to_frame(self) -> pd.DataFrame:
        """One row per client, one column per metric."""
        import pandas as pd

        frame = pd.DataFrame.from_dict(self.scores, orient="index")
        frame.insert(0, "rows", pd.Series(self.rows))
        return frame.rename_axis("client")

    def to_dict(self) -> dict[str, Any]:
        """Plain data; undefined values are None."""
        clients = {name: {"rows": self.rows[name], **_plain(scores)} for name, scores in self.scores.items()}
        return {
            "split": self.split,
            "clients": clients,
            "unseen": self.unseen,
            **{key: _plain(values) for key, values in self.summary.items()},
        }

    def __str__(self) -> str:
        metrics = [metric for metric in next(iter(self.scores.values()))]
        lines = [
            [name, f"{self.rows[name]:,}", *(_cell(metric, scores[metric]) for metric in metrics)]
            for name, scores in self._printed().items()
        ]
        for label in ("mean", "worst"):
            values = self.summary[label]
            lines.append(
                [label, "", *(_cell(metric, values[metric]) if metric != "classes" else "" for metric in metrics)]
            )
        notes = [
            f"Note: {name}: its predictions are not finite, so there is no mean"
            for name, own in self.scores.items()
            if math.isnan(own.get("accuracy", 0.0))
        ]
        notes += [
            f"Note: {name}: {count} rows have a label that no training row has; they count as wrong"
            for name, count in self.unseen.items()
        ]
        if len(self.scores) > MOST_ROWS:
            notes = [f"The {MOST_ROWS} clients of least AUROC, of {len(self.scores)}", *notes[:MOST_ROWS]]
        return "\n".join([text_table([f"{self.split}:", "rows", *metrics], lines), *notes])

    def _printed(self) -> dict[str, dict[str, float]]:
        """Where there are too many clients to look at: those of least AUROC, undefined ones first."""
        if len(self.scores) <= MOST_ROWS:
            return self.scores
        auroc = {name: own.get("auroc", math.nan) for name, own in self.scores.items()}
        least = sorted(auroc, key=lambda name: -math.inf if math.isnan(auroc[name]) else auroc[name])
        return {name: self.scores[name] for name in least[:MOST_ROWS]}

    def _repr_html_(self) -> str:
        html: str = self.to_frame().to_html(float_format="{:.4f}".format)
        return html

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ``<split>.csv`` (one row per client) and ``<split>.json`` (with mean and worst) into the folder of
        a run.
        """
        csv, plain = folder / f"{self.split}.csv", folder / f"{self.split}.json"
        self.to_frame().to_csv(csv)
        plain.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return csv, plain


def _cell(metric: str, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.0f}" if metric == "classes" else f"{value:.4f}"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }
