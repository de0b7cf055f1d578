"""The findings of a study, from which its tables, sentences, figures and report are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from fedlit.errors import expect
from fedlit.study.answer import Answer, answers
from fedlit.study.collect import Collected
from fedlit.study.lift import MEAN, WORST, Scores, estimates, leave_one_out, lifts
from fedlit.study.study import Study
from fedlit.study.units import drawn, lift_unit
from fedlit.tasks import COMPARED, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY, _MOST = 12, 3
"""Clients up to which all have a column and an answer of their own; of more, so many at each end."""


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """The findings of a study.

    Attributes:
        study: the study that was compared.
        seeds: the seeds of the study.
        collected: the results and records.
        estimates: the estimates of scores, one row for each metric, method and client.
        lift: the lifts, one row for each metric, reference, method and client.
        answers: whether federation pays, for each client.
        folder: the folder of the files.
        failures: maps each failed run to its error.
        predicted: maps each client to what is predicted, in words, if it is known.
        left_out: what the others gain by each client (:func:`fedlit.study.lift.leave_one_out`).
        notes: what a reader must know before comparing methods.
    """

    study: Study
    seeds: list[int]
    collected: Collected
    estimates: pd.DataFrame
    lift: pd.DataFrame
    answers: list[Answer]
    folder: Path
    failures: Mapping[str, str] = field(default_factory=dict)
    predicted: Mapping[str, str] = field(default_factory=dict)
    left_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, study: Study, seeds: list[int], collected: Collected, folder: Path, **more: Any) -> Self:
        """Compute the findings from results.

        Args:
            study: the study, completed by :meth:`~fedlit.study.study.Study.for_tasks`.
            seeds: the seeds with which it was run.
            collected: the results of the study.
            folder: the folder of the files.
            more: the attributes ``failures``, ``predicted`` and ``notes``.
        """
        scores = Scores(collected)
        of_scores, of_lifts, left_out = estimates(study, scores), lifts(study, scores), leave_one_out(study, scores)
        own = answers(study, collected, of_scores, of_lifts, left_out)
        return cls(study, seeds, collected, of_scores, of_lifts, own, folder, left_out=left_out, **more)

    def plot(self, axes: Axes | None = None, score: Score | None = None) -> Axes:
        """Draw the lift of the best federated method over the best model alone, with its 95 % interval, for those of
        :attr:`extremes` that choose by one score.

        Args:
            axes: Matplotlib's axes to draw on; if None, new ones, which a notebook shows below the cell.
            score: the score; if None, the first client's.
        """
        from fedlit.show.effects import plot_intervals

        expect(bool(self.answers), "plot", "a study with a federated method", [*self.study.methods], "add one")
        shown = self.shown_answers
        score = score or shown[0].score
        told = [own for own in shown if own.score == score]
        values, lows, highs = ([drawn(score, own.lift[key]) for own in told] for key in ("mean", "low", "high"))
        label = f"lift in {score.label}, {lift_unit(score)}, with 95 % intervals"
        return plot_intervals([own.client for own in told], values, lows, highs, label, axes)

    @property
    def extremes(self) -> list[str]:
        """The clients that are shown: all of them, or if there are more than :data:`MANY`, the three that gain least by
        the best federated method and the three that gain most, in this order.
        """
        every = self.collected.clients
        if len(every) <= MANY:
            return every
        gains = {own.client: own.lift["mean"] for own in self.answers if math.isfinite(own.lift["mean"])}
        order = sorted(gains, key=lambda client: gains[client]) or every
        return list(dict.fromkeys([*order[:_MOST], *order[-_MOST:]]))

    @property
    def shown_answers(self) -> list[Answer]:
        """The answers to :attr:`extremes`, in the order of :attr:`answers`."""
        extremes = self.extremes
        return [own for own in self.answers if own.client in extremes]

    @property
    def scores(self) -> list[Score]:
        """The scores that tables show, the main one first."""
        return [COMPARED[name] for name in self.study.metrics or ()]

    @property
    def choices(self) -> list[Score]:
        """The scores by which clients choose."""
        return [COMPARED[name] for name in self.study.choices]

    @property
    def clients(self) -> list[str]:
        """The columns of tables: :attr:`extremes`, and if there are several clients, their mean and the worst."""
        return self._with_all(self.extremes)

    def clients_of(self, score: Score) -> list[str]:
        """Return those of :attr:`clients` that have a score, without their mean and worst unless all
        clients have it.
        """
        every = self.collected.clients_of(score.name)
        own = [client for client in self.extremes if client in every]
        return self._with_all(own) if len(every) == len(self.collected.clients) else own

    def _with_all(self, clients: list[str]) -> list[str]:
        return [*clients, MEAN, WORST] if len(self.collected.clients) > 1 else clients
