"""The scores of a split, shown as text, a frame or files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict

from fedlit.data.findings import Findings
from fedlit.data.table import Split
from fedlit.exchange.named import Found, words
from fedlit.files import csv_of, write_whole
from fedlit.names import joined
from fedlit.show.shown import Grid, Part, Shown
from fedlit.show.text import MOST_ROWS
from fedlit.tasks import SCORES
from fedlit.tasks.metrics import Summary, lost_sites
from fedlit.tasks.scores import Score
from fedlit.tasks.units import heading
from fedlit.train.supplement import SUPPLEMENTS, Supplement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class _OfClients(TypedDict):
    """The results of the clients of one process."""

    scores: dict[str, dict[str, float]]
    rows: dict[str, int]
    unseen: dict[str, int]
    absent: dict[str, tuple[str, ...]]


@dataclass(frozen=True, repr=False)
class Results(Shown):
    """The scores of every client on one split.

    Attributes:
        split: the split that was scored.
        step: the number of aligned steps that the clients had taken.
        scores: maps each client to its metrics and their values (``classes`` counts the classes
            that AUROC and AUPRC average); NaN if undefined.
        rows: maps each client to its number of rows.
        summary: the mean over clients, the worst client, and the number of clients that were
            counted, per metric.
        unseen: maps each client that has such rows to the number of rows whose label occurs in none
            of its training rows.
        absent: maps each client to those of its classes that no row of the split has, if AUROC is a
            mean over more than two classes.
        planted: descriptions of the attacks that were planted in these clients; mean and worst
            count attackers like the others.
        listed_scores: the scores of which it is known whether more is better.
        main: the score by which clients are ordered if there are too many to print.
        guarded: the clients that were left out of exchanges or watched, and how often.
        findings: sentences on what blocks a verdict on these scores, on what is known of columns,
            and on clients that left their stack.
        weak: descriptions of clients whose networks are no better than the simplest models.
        incomparable: scores whose units differ between clients, so that neither their mean nor
            their worst value is shown.
        selected: the scores to show; all if it is empty. Files have all scores.
        ended: how the training ended of which these are the last scores.
        best_epoch: the epoch whose mean score was best, if the training watched one; 0 if it was
            the last epoch.
        best_means: the means over clients in that epoch.
        supplements: tables that the user asked for beside the scores.
        notes: all findings about the tables, if somebody has looked for them.
    """

    split: Split
    step: int
    scores: dict[str, dict[str, float]]
    rows: dict[str, int]
    summary: Summary
    unseen: dict[str, int]
    absent: dict[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    planted: tuple[str, ...] = field(default=(), kw_only=True)
    listed_scores: Mapping[str, Score] = field(default_factory=lambda: SCORES)
    main: Score = SCORES["auroc"]
    guarded: Found = field(default_factory=dict, kw_only=True)
    findings: tuple[str, ...] = field(default=(), kw_only=True)
    weak: tuple[str, ...] = field(default=(), kw_only=True)
    incomparable: frozenset[str] = field(default=frozenset(), kw_only=True)
    selected: tuple[str, ...] = field(default=(), kw_only=True)
    ended: str = field(default="", kw_only=True)
    best_epoch: int = field(default=0, kw_only=True)
    best_means: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    supplements: tuple[Supplement, ...] = field(default=(), kw_only=True)
    notes: Findings = field(default_factory=Findings, kw_only=True)

    def brief(self) -> Results:
        """Return results that show only the main score, loss and accuracy; all, if a client lacks
        the main score.
        """
        if any(self.main.name not in values for values in self.scores.values()):
            return self
        return replace(self, selected=tuple(dict.fromkeys((self.main.name, "loss", "accuracy"))))

    def of_clients(self) -> _OfClients:
        """Return the results of each client as plain data."""
        return {
            "scores": self.scores,
            "rows": self.rows,
            "unseen": self.unseen,
            "absent": self.absent,
        }

    def joined(self, of_processes: Sequence[_OfClients]) -> Results:
        """Return results that include the clients of other processes, given what :meth:`of_clients`
        returned there.
        """
        if len(of_processes) == 1:
            return self
        return replace(
            self,
            scores=joined(part["scores"] for part in of_processes),
            rows=joined(part["rows"] for part in of_processes),
            unseen=joined(part["unseen"] for part in of_processes),
            absent=joined(part["absent"] for part in of_processes),
        )

    def scalars(self) -> dict[str, float]:
        """Return the values to log: ``<client>/<tag>/<metric>``, and for the federation
        ``<tag>/<metric>`` (mean) and ``<tag>/worst/<metric>``. Scores such as ``classes``, which
        are the same in each epoch, are left out.
        """
        tag = "val" if self.split == "validation" else self.split
        worst = {
            metric: value
            for metric, value in self.summary["worst"].items()
            if metric in self.listed_scores
        }
        groups = {f"{site}/{tag}": values for site, values in self.scores.items()}
        groups |= {tag: self.summary["mean"], f"{tag}/worst": worst}
        scalars = {}
        for group, values in groups.items():
            for metric, value in values.items():
                if metric not in SCORES or not SCORES[metric].context:
                    scalars[f"{group}/{metric}"] = value
        return scalars

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per client and one column per metric."""
        import pandas as pd

        frame = pd.DataFrame.from_dict(self.scores, orient="index")
        frame.insert(0, "rows", pd.Series(self.rows))
        return frame.rename_axis("client")

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the main score of each client. The label says so if lower is better.

        Args:
            axes: the Matplotlib axes to draw on; if None, new ones, which a notebook shows.
        """
        from fedlit.show.effects import plot_intervals

        scores = {
            name: values[self.main.name]
            for name, values in self.scores.items()
            if self.main.name in values
        }
        none = [math.nan] * len(scores)
        return plot_intervals(
            list(scores), list(scores.values()), none, none, heading(self.main), axes, zero=False
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data. Undefined values are None."""
        clients: dict[str, dict[str, Any]] = {
            name: {"rows": self.rows[name], **_plain(scores)}
            for name, scores in self.scores.items()
        }
        for supplement in self.supplements:
            for name, client in clients.items():
                client[supplement.name] = supplement.of(name)
        data: dict[str, Any] = {"split": self.split, "clients": clients}
        if self.planted:
            data["planted"] = list(self.planted)
        data["unseen"] = self.unseen
        optional = {
            "absent": {name: list(labels) for name, labels in self.absent.items()},
            "findings": list(self.findings),
            "weak": list(self.weak),
            "ended": self.ended,
            "guarded": {name: dict(counts) for name, counts in self.guarded.items()},
        }
        data |= {key: value for key, value in optional.items() if value}
        data["mean"] = _plain(self.summary["mean"])
        data["worst"] = _plain(self.summary["worst"])
        data["worst_client"] = self.summary["worst_client"]
        data["counted"] = self.summary["counted"]
        return data

    def parts(self) -> list[Part]:
        """Return the table with mean and worst client, followed by notes for the user."""
        metrics = list(joined(self.scores.values()))
        selected = [metric for metric in self.selected if metric in metrics] or metrics
        notes = self._notes(selected)
        if len(self.scores) > MOST_ROWS:
            order = "least" if self.main.higher_is_better else "largest"
            notes = [
                f"The {MOST_ROWS} clients of {order} {self.main.label}, of {len(self.scores)}",
                *notes[:MOST_ROWS],
            ]
        parts: list[Part] = [Grid([f"{self.split}:", "rows", *selected], self._lines(selected))]
        if len(selected) < len(metrics):
            parts.append(f"{len(metrics) - len(selected)} more scores with --all")
        parts += notes
        if self.ended:
            parts.append(self.ended)
        for supplement in self.supplements:
            parts += supplement.parts(self.split)
        if self.notes:
            parts += ["", *self.notes.parts()]
        return parts

    def _lines(self, metrics: list[str]) -> list[list[str]]:
        """Return the lines of the table: clients, quartiles if not all are printed, mean, worst."""
        lines = []
        for name, scores in self._printed().items():
            lines.append([name, f"{self.rows[name]:,}", *self._cells(metrics, scores)])
        if len(self.scores) > MOST_ROWS:
            quartiles = self.to_frame().drop(columns="rows").quantile([0.25, 0.5, 0.75])
            rows = quartiles.to_dict("records")
            for label, row in zip(("25 %", "median", "75 %"), rows, strict=True):
                lines.append([label, "", *self._cells(metrics, self._without_context(row))])
        undefined = dict.fromkeys(self.incomparable, math.nan)
        over_sites = {"mean": self.summary["mean"], "worst": self.summary["worst"]}
        for label, summary in over_sites.items():
            values = self._without_context(summary)
            values |= dict.fromkeys(self.incomparable & values.keys(), math.nan)
            lines.append([label, "", *self._cells(metrics, values)])
        if self.best_epoch:
            best = {**self.best_means, **undefined}
            lines.append([f"mean, epoch {self.best_epoch}", "", *self._cells(metrics, best)])
        return lines

    def _notes(self, metrics: list[str]) -> list[str]:
        """Return the notes below the table, those on findings first."""
        notes = [f"Note: {line}" for line in (*self.findings, *self.weak, *words(self.guarded))]
        notes += [f"Note: {line}; mean and worst count all clients" for line in self.planted]
        if incomparable := sorted(self.incomparable.intersection(metrics)):
            notes.append(
                f"Note: no mean of {' and '.join(incomparable)}: clients' targets are in other "
                "units, or of other sizes"
            )
        notes += [
            f"Note: {name}: its predictions are not finite, so there is no mean"
            for name in lost_sites(self.scores, self.listed_scores)
        ]
        notes += [
            f"Note: {name}: {count} rows have a label that no training row has; they count as wrong"
            for name, count in self.unseen.items()
        ]
        for name, labels in self.absent.items():
            score = self.scores[name]
            if not math.isnan(score.get("auroc", math.nan)) and "classes" in score:
                notes.append(
                    f"Note: {name}: AUROC and AUPRC are means over {score['classes']:.0f} of its "
                    "classes, so they are not those of clients with all; no row has "
                    f"{' or '.join(labels)}"
                )
        return notes

    def _printed(self) -> dict[str, dict[str, float]]:
        """Return the clients to print: if they are too many, the worst by the main score, undefined
        ones first.
        """
        if len(self.scores) <= MOST_ROWS:
            return self.scores
        main = {name: values.get(self.main.name, math.nan) for name, values in self.scores.items()}

        def quality(name: str) -> float:
            if math.isnan(main[name]):
                return -math.inf
            gain: float = self.main.gain(main[name], 0.0)
            return gain

        return {name: self.scores[name] for name in sorted(main, key=quality)[:MOST_ROWS]}

    def _context(self, metric: str) -> bool:
        return metric in self.listed_scores and self.listed_scores[metric].context

    def _without_context(self, values: Mapping[Any, float]) -> dict[str, float]:
        return {name: value for name, value in values.items() if not self._context(name)}

    def _cells(self, metrics: list[str], values: Mapping[str, float]) -> list[str]:
        return [self._cell(metric, values.get(metric)) for metric in metrics]

    def _cell(self, metric: str, value: float | None) -> str:
        if value is None:
            return ""
        if not math.isfinite(value):
            return "–"
        if self._context(metric):
            return f"{value:.0f}"
        if abs(value) < 1000:
            return f"{value:.4f}"
        return f"{value:,.1f}"

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write ``<split>.csv`` (one row per client), ``<split>.json`` (with mean and worst) and a
        file for each of :attr:`supplements` into the folder of a run. Files of earlier supplements
        are removed.
        """
        tables = {f"{self.split}.csv": csv_of(self.to_frame(), index=True)}
        for supplement in self.supplements:
            tables[supplement.file(self.split)] = csv_of(supplement.to_frame())
        texts = {**tables, f"{self.split}.json": json.dumps(self.to_dict(), indent=2) + "\n"}
        contents = {folder / name: text.encode() for name, text in texts.items()}
        write_whole({path: partial(_write, content) for path, content in contents.items()})
        for name in SUPPLEMENTS:
            path = folder / f"{self.split}_{name}.csv"
            if path not in contents:
                path.unlink(missing_ok=True)
        return tuple(contents)


def wrote(files: Sequence[Path], replaced: bool) -> str:
    """Return a line that names the files of results.

    Example:
        >>> wrote([Path("test.csv"), Path("test_subgroups.csv"), Path("test.json")], replaced=False)
        'Wrote test.csv, test_subgroups.csv and test.json'
    """
    *first, last = map(str, files)
    done = "Replaced" if replaced else "Wrote"
    return f"{done} {', '.join(first)} and {last}"


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def _plain(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return values in which numbers that are not finite are None."""
    return {key: value if math.isfinite(value) else None for key, value in values.items()}
