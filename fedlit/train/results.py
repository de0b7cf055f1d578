"""Scores of one split: collected batch by batch over all clients and sites, and shown as text, a
frame or files.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient, main_score
from fedlit.client.hooks import hook_of
from fedlit.data.findings import Findings
from fedlit.data.loader import Batch
from fedlit.data.table import Split
from fedlit.engine.base import Evaluation
from fedlit.exchange.members import Members
from fedlit.exchange.named import Found, words
from fedlit.files import csv_of, write_whole
from fedlit.names import Share
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.show.shown import Grid, Part, Shown
from fedlit.show.text import MOST_ROWS
from fedlit.tasks import SCORES
from fedlit.tasks.base import Score, by_name
from fedlit.tasks.metrics import Site, SiteMetrics, lost_sites, summarise
from fedlit.train.supplement import SUPPLEMENTS, Supplement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


_log = logging.getLogger(__name__)


class Scoring:
    """Collects clients' predictions for a split's batches and scores each site.

    Args:
        clients: the clients by name.
        split: the rows that will be scored.
        scores_of: maps each client to its scores, for all clients that are judged together; those
            of ``clients`` if None.

    Attributes:
        predictions: maps each site to its client's predictions for each batch, in the order of the
            site's rows; (n, width) float, empty for a union of other sites.
    """

    def __init__(
        self,
        clients: Mapping[str, FederatedClient],
        split: Split,
        scores_of: Mapping[str, tuple[Score, ...]] | None = None,
    ) -> None:
        self.split: Split = split
        scores_of = scores_of or {name: client.scores for name, client in clients.items()}
        self.sites = {site.name: site for client in clients.values() for site in client.spec.sites}
        self._sites_of = {
            name: [site.name for site in client.spec.sites] for name, client in clients.items()
        }
        own = by_name(score for scores in scores_of.values() for score in scores)
        self.scores = {**SCORES, **own}  # those of clients elsewhere, too
        self.main = main_score(scores_of)
        self.metrics = {
            site.name: client.configure_metrics(site)
            for client in clients.values()
            for site in client.spec.sites
        }
        self.batches = dict.fromkeys(self.sites, 0)
        self.predictions: dict[str, list[Tensor]] = {name: [] for name in self.sites}
        self._pending: list[
            tuple[str, list[SiteMetrics], Batch, Future[tuple[Tensor, Tensor]]]
        ] = []

    def add(
        self,
        client: FederatedClient,
        site: str,
        batch: Batch,
        outcome: Future[tuple[Tensor, Tensor]],
    ) -> None:
        """Add a batch of a client's site. Its (predictions, loss) may not have been computed
        yet.
        """
        scored = [
            self.metrics[own.name] for own in client.spec.sites if own.name == site or own.union
        ]
        self._pending.append((site, scored, batch, outcome))
        self.batches[site] += 1

    def results(self, step: int, share: Share) -> Results:
        """Score everything that was added.

        Args:
            step: the number of aligned steps that the clients have taken.
            share: sends the scores to other processes, so that all know mean and worst.
        """
        for site, scored, batch, outcome in self._pending:
            predictions, loss = outcome.result()
            self.predictions[site].append(predictions)
            for metrics in scored:
                metrics.update(
                    predictions, batch.y, loss, *([] if batch.weight is None else [batch.weight])
                )
        self._pending.clear()
        scores = {
            name: {key: float(value) for key, value in own.compute().items()}
            for name, own in self.metrics.items()
        }
        own = {
            name: metrics
            for name, metrics in self.metrics.items()
            if isinstance(metrics, SiteMetrics)
        }
        if self.split == "test":
            for name, metrics in own.items():
                scores[name] |= metrics.compute_once()
        for metric in {
            metric for values in scores.values() for metric in values
        } - self.scores.keys():
            _say_unlisted(metric)
        unseen = {name: metrics.unseen() for name, metrics in own.items()}
        absent = {name: metrics.absent() for name, metrics in own.items()}
        return Results(
            self.split,
            step,
            scores,
            {name: site.rows[self.split] for name, site in self.sites.items()},
            summarise(*self._of_all(scores, share), self.scores),
            {name: count for name, count in unseen.items() if count},
            self.scores,
            self.main,
            absent={name: labels for name, labels in absent.items() if labels},
        )

    def _of_all(
        self, scores: Mapping[str, Mapping[str, float]], share: Share
    ) -> tuple[dict[str, Mapping[str, float]], list[Site]]:
        """Return the scores and sites of all clients, including those of other processes."""
        told = share(
            f"scores/{self.split}",
            {name: {own: scores[own] for own in sites} for name, sites in self._sites_of.items()},
        )
        everybody = {site: scored for sites in told.values() for site, scored in sites.items()}
        return everybody, [self.sites.get(site, Site(site, (), {})) for site in everybody]

    def confusion(self) -> dict[str, tuple[list[str], Tensor]]:
        """Map each site to (labels, confusion matrix). Rows are true classes; labels unknown to the
        client are last.

        Sites without classes are left out, and so are sites whose client has a metric of its own,
        which may count something else.
        """
        found = {}
        for site, metrics in self.metrics.items():
            if isinstance(metrics, SiteMetrics) and (matrix := metrics.confusion()) is not None:
                found[site] = list(map(str, metrics.task.classes)), matrix
        return found


@cache
def _say_unlisted(metric: str) -> None:
    _log.warning(
        "score %r: it is not known whether more is better, so there is no worst client; list it in "
        "the client's class: scores = (*Classification.scores, Score(%r, ...))",
        metric,
        metric,
    )


class Evaluations:
    """The evaluations of a federation: the splits that are being scored, and the batches that wait
    to be evaluated.

    A client's first batch is evaluated at once, which shows whether the client draws random numbers
    (dropout at test time). If it draws none, its later batches wait, so that an engine can execute
    them side by side.

    Args:
        federation: the federation whose clients are evaluated.
    """

    def __init__(self, federation: Members) -> None:
        self.federation = federation
        self.scoring: dict[Split, Scoring] = {}
        self._waiting: list[Evaluation] = []
        self._draws: dict[str, bool] = {}

    def begin(self, split: Split) -> None:
        """Begin to score a split."""
        self.scoring[split] = Scoring(self.federation.clients, split, self.federation.scores_of)

    def add(self, split: Split, batch: Batch, dataloader_idx: int) -> None:
        """Score a batch of a site, at the latest when the split ends."""
        own = self.federation
        owner, site, _ = own.data.sites(split)[dataloader_idx]
        client = own.clients[owner]
        job = Evaluation(client, batch, partial(self._evaluate, client, batch))
        if self._draws.get(owner) is False:
            self._waiting.append(job)
        else:
            position = self.scoring[split].batches[site]
            with isolated_rng(
                derive_seed(own.seed, split, site, own.step, position), own.device
            ) as drawn:
                job.outcome.set_result(job.run())
                self._draws[owner] = drawn()
        self.scoring[split].add(client, site, batch, job.outcome)

    def take(self) -> list[Evaluation]:
        """Return the waiting evaluations, and no longer keep them."""
        waiting = self._waiting
        self._waiting = []
        return waiting

    def _evaluate(self, client: FederatedClient, batch: Batch) -> tuple[Tensor, Tensor]:
        # Both belong to a thread.
        with hook_of(client, "evaluate"), self.federation.scope_of_scoring(), torch.no_grad():
            return client.evaluate(batch)


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
        known: the scores that are known to be better the larger, or the smaller, they are.
        main: the score by which clients are ordered if there are too many to print.
        guarded: the clients that were left out of exchanges or watched, and how often.
        findings: sentences on what blocks a verdict on these scores, and on what is known of
            columns.
        weak: descriptions of clients whose networks are no better than the simplest models.
        apart: scores whose units differ between clients, so that neither their mean nor their worst
            value is shown.
        shown: the scores to show; all if it is empty. Files have all scores.
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
    summary: dict[str, dict[str, Any]]
    unseen: dict[str, int]
    absent: dict[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    planted: tuple[str, ...] = field(default=(), kw_only=True)
    known: Mapping[str, Score] = field(default_factory=lambda: SCORES)
    main: Score = SCORES["auroc"]
    guarded: Found = field(default_factory=dict, kw_only=True)
    findings: tuple[str, ...] = field(default=(), kw_only=True)
    weak: tuple[str, ...] = field(default=(), kw_only=True)
    apart: frozenset[str] = field(default=frozenset(), kw_only=True)
    shown: tuple[str, ...] = field(default=(), kw_only=True)
    ended: str = field(default="", kw_only=True)
    best_epoch: int = field(default=0, kw_only=True)
    best_means: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    supplements: tuple[Supplement, ...] = field(default=(), kw_only=True)
    notes: Findings = field(default_factory=Findings, kw_only=True)

    def brief(self) -> Results:
        """Return results that show only the main score, loss and accuracy; all, if a client lacks
        the main score.
        """
        if any(self.main.name not in own for own in self.scores.values()):
            return self
        return replace(self, shown=tuple(dict.fromkeys((self.main.name, "loss", "accuracy"))))

    def of_clients(self) -> dict[str, Any]:
        """Return the results of each client as plain data."""
        return {
            "scores": self.scores,
            "rows": self.rows,
            "unseen": self.unseen,
            "absent": self.absent,
        }

    def joined(self, told: Sequence[Mapping[str, Any]]) -> Results:
        """Return results that include the clients of other processes, given what :meth:`of_clients`
        returned there.
        """
        if len(told) == 1:
            return self
        scores, rows, unseen, absent = (
            {name: value for own in told for name, value in own[key].items()}
            for key in self.of_clients()
        )
        return replace(self, scores=scores, rows=rows, unseen=unseen, absent=absent)

    def scalars(self) -> dict[str, float]:
        """Return the values to log: ``<client>/<tag>/<metric>``, and for the federation
        ``<tag>/<metric>`` (mean) and ``<tag>/worst/<metric>``. Scores such as ``classes``, which
        are the same in each epoch, are left out.
        """
        tag = "val" if self.split == "validation" else self.split
        worst = {
            metric: value for metric, value in self.summary["worst"].items() if metric in self.known
        }
        of = {
            **{f"{site}/{tag}": own for site, own in self.scores.items()},
            tag: self.summary["mean"],
        }
        return {
            f"{where}/{metric}": value
            for where, own in {**of, f"{tag}/worst": worst}.items()
            for metric, value in own.items()
            if metric not in SCORES or not SCORES[metric].context
        }

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per client and one column per metric."""
        import pandas as pd

        frame = pd.DataFrame.from_dict(self.scores, orient="index")
        frame.insert(0, "rows", pd.Series(self.rows))
        return frame.rename_axis("client")

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the main score of each client.

        Args:
            axes: the Matplotlib axes to draw on; if None, new ones, which a notebook shows.
        """
        from fedlit.show.effects import plot_intervals

        scores = {
            name: own[self.main.name] for name, own in self.scores.items() if self.main.name in own
        }
        none = [math.nan] * len(scores)
        return plot_intervals(
            list(scores), list(scores.values()), none, none, self.main.label, axes, zero=False
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data. Undefined values are None."""
        clients = {
            name: {"rows": self.rows[name], **_plain(scores)}
            for name, scores in self.scores.items()
        }
        for supplement in self.supplements:
            for name, own in clients.items():
                own[supplement.name] = supplement.of(name)
        return {
            "split": self.split,
            "clients": clients,
            **({"planted": list(self.planted)} if self.planted else {}),
            "unseen": self.unseen,
            **(
                {"absent": {name: list(labels) for name, labels in self.absent.items()}}
                if self.absent
                else {}
            ),
            **({"findings": list(self.findings)} if self.findings else {}),
            **({"weak": list(self.weak)} if self.weak else {}),
            **({"ended": self.ended} if self.ended else {}),
            **(
                {"guarded": {name: dict(own) for name, own in self.guarded.items()}}
                if self.guarded
                else {}
            ),
            **{key: _plain(values) for key, values in self.summary.items()},
        }

    def parts(self) -> list[Part]:
        """Return the table with mean and worst client, followed by notes for the user."""
        known = dict.fromkeys(metric for own in self.scores.values() for metric in own)
        metrics = [metric for metric in self.shown if metric in known] or list(known)
        lines = [
            [
                name,
                f"{self.rows[name]:,}",
                *(self._cell(metric, scores.get(metric)) for metric in metrics),
            ]
            for name, scores in self._printed().items()
        ]
        if len(self.scores) > MOST_ROWS:
            quartiles = self.to_frame().drop(columns="rows").quantile([0.25, 0.5, 0.75])
            for label, row in zip(
                ("25 %", "median", "75 %"), quartiles.to_dict("records"), strict=True
            ):
                lines.append(
                    [
                        label,
                        "",
                        *(
                            "" if self._context(own) else self._cell(own, row[own])
                            for own in metrics
                        ),
                    ]
                )
        for label in ("mean", "worst"):
            values = {
                metric: value
                for metric, value in self.summary[label].items()
                if not self._context(metric)
            }
            values |= dict.fromkeys(self.apart & values.keys(), math.nan)
            lines.append(
                [label, "", *(self._cell(metric, values.get(metric)) for metric in metrics)]
            )
        if self.best_epoch:
            values = dict.fromkeys(self.apart, math.nan)
            best = {**self.best_means, **values}
            lines.append(
                [
                    f"mean, epoch {self.best_epoch}",
                    "",
                    *(self._cell(metric, best.get(metric)) for metric in metrics),
                ]
            )
        lost = lost_sites(self.scores, self.known)
        notes = [f"Note: {line}; mean and worst count all clients" for line in self.planted]
        if shown := sorted(self.apart.intersection(metrics)):
            notes.append(
                f"Note: no mean of {' and '.join(shown)}: clients' targets are in other units, or "
                "of other sizes"
            )
        notes += [
            f"Note: {name}: its predictions are not finite, so there is no mean" for name in lost
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
        notes = [
            *(f"Note: {line}" for line in (*self.findings, *self.weak, *words(self.guarded))),
            *notes,
        ]
        if len(self.scores) > MOST_ROWS:
            order = "least" if self.main.higher_is_better else "largest"
            notes = [
                f"The {MOST_ROWS} clients of {order} {self.main.label}, of {len(self.scores)}",
                *notes[:MOST_ROWS],
            ]
        more = (
            [f"{len(known) - len(metrics)} more scores with --all"]
            if len(metrics) < len(known)
            else []
        )
        ended = [self.ended] if self.ended else []
        tables = [part for own in self.supplements for part in own.parts(self.split)]
        found = ["", *self.notes.parts()] if self.notes else []
        return [
            Grid([f"{self.split}:", "rows", *metrics], lines),
            *more,
            *notes,
            *ended,
            *tables,
            *found,
        ]

    def _printed(self) -> dict[str, dict[str, float]]:
        """Return the clients to print: if they are too many, the worst by the main score, undefined
        ones first.
        """
        if len(self.scores) <= MOST_ROWS:
            return self.scores
        main = {name: own.get(self.main.name, math.nan) for name, own in self.scores.items()}
        worst = sorted(
            main,
            key=lambda name: (
                -math.inf if math.isnan(main[name]) else self.main.gain(main[name], 0.0)
            ),
        )
        return {name: self.scores[name] for name in worst[:MOST_ROWS]}

    def _context(self, metric: str) -> bool:
        return metric in self.known and self.known[metric].context

    def _cell(self, metric: str, value: float | None) -> str:
        if value is None:
            return ""
        if not math.isfinite(value):
            return "–"
        return (
            f"{value:.0f}"
            if self._context(metric)
            else f"{value:.4f}"
            if abs(value) < 1000
            else f"{value:,.1f}"
        )

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write ``<split>.csv`` (one row per client), ``<split>.json`` (with mean and worst) and a
        file for each of :attr:`supplements` into the folder of a run. Files of earlier supplements
        are removed.
        """
        tables = {f"{self.split}.csv": csv_of(self.to_frame(), index=True)}
        tables |= {own.file(self.split): csv_of(own.to_frame()) for own in self.supplements}
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
    return f"{'Replaced' if replaced else 'Wrote'} {', '.join(first)} and {last}"


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
