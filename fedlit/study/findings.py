"""The findings of a study, from which its tables, sentences, figures and report are made, with each
client's answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from fedlit.answers.answer import Answer
from fedlit.answers.shown import plot_lifts
from fedlit.answers.verdict import Verdict
from fedlit.data.findings import Finding, blocked_clients
from fedlit.errors import expect
from fedlit.study.answers import answers
from fedlit.study.collect import Collected
from fedlit.study.lift import MEAN, WORST, Scores, estimates, leave_one_out, lifts
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.supplements import Beside
from fedlit.tasks import COMPARED, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MANY = 12
_MOST = 3
"""Clients up to which all have a column and an answer of their own; of more, so many at each
end."""


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
        blocks: what must be settled before the clients that it concerns have a verdict; they have
            no answer.
        supplements: scores at thresholds and by group, if the reference's configuration asks for
            them.
    """

    study: ResolvedStudy
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
    blocks: Sequence[Finding] = ()
    supplements: Sequence[Beside] = ()

    @classmethod
    def of(
        cls,
        study: ResolvedStudy,
        seeds: list[int],
        collected: Collected,
        folder: Path,
        **details: Any,
    ) -> Self:
        """Compute the findings from results.

        Args:
            study: the study.
            seeds: the seeds with which it was run.
            collected: the results of the study.
            folder: the folder of the files.
            details: the attributes ``failures``, ``predicted``, ``notes``, ``blocks`` and
                ``supplements``.
        """
        scores = Scores(collected)
        of_scores = estimates(study, scores)
        of_lifts = lifts(study, scores)
        left_out = leave_one_out(study, scores)
        client_answers = answers(study, scores, of_scores, left_out)
        if blocked := blocked_clients(details.get("blocks", ()), collected.clients):
            free = [client for client in collected.clients if client not in blocked]
            client_answers = [answer for answer in client_answers if answer.client in free]
            # A mean over several clients contains those of blocked ones, too.
            of_lifts.loc[~of_lifts["client"].isin(free), "verdict"] = Verdict.BLOCKED.value
            left_out.loc[
                ~(left_out["client"].isin(free) & left_out["joins"].isin(free)), "verdict"
            ] = Verdict.BLOCKED.value
        return cls(
            study,
            seeds,
            collected,
            of_scores,
            of_lifts,
            client_answers,
            folder,
            left_out=left_out,
            **details,
        )

    def plot(self, axes: Axes | None = None, score: Score | None = None) -> Axes:
        """Draw the lift of the best federated method over the best model alone, with its 95 %
        interval, for those of :attr:`extremes` that choose by one score.

        Args:
            axes: Matplotlib's axes to draw on; if None, new ones, which a notebook shows below the
                cell.
            score: the score; if None, the first client's.
        """
        methods = [*self.study.methods]
        expect(bool(self.answers), "plot", "a study with a federated method", methods, "add one")
        return plot_lifts(self.shown_answers, axes, score)

    @property
    def extremes(self) -> list[str]:
        """The clients that are shown: all of them, or if there are more than :data:`MANY`, the
        three that gain least by the best federated method and the three that gain most, in this
        order.
        """
        every = self.collected.clients
        if len(every) <= MANY:
            return every
        gains = {
            answer.client: answer.lift.mean
            for answer in self.answers
            if math.isfinite(answer.lift.mean)
        }
        order = sorted(gains, key=lambda client: gains[client]) or every
        return list(dict.fromkeys([*order[:_MOST], *order[-_MOST:]]))

    @property
    def shown_answers(self) -> list[Answer]:
        """The answers to :attr:`extremes`, in the order of :attr:`answers`."""
        extremes = self.extremes
        return [answer for answer in self.answers if answer.client in extremes]

    @property
    def scores(self) -> list[Score]:
        """The scores that tables show, the main one first."""
        return [COMPARED[name] for name in self.study.metrics]

    @property
    def choices(self) -> list[Score]:
        """The scores by which clients choose."""
        return [COMPARED[name] for name in self.study.choices]

    @property
    def clients(self) -> list[str]:
        """The columns of tables: :attr:`extremes`, and if there are several clients, their mean and
        the worst.
        """
        return self._with_all(self.extremes)

    def clients_of(self, score: Score) -> list[str]:
        """Return those of :attr:`clients` that have a score, without their mean and worst unless
        all clients have it.
        """
        every = self.collected.clients_of(score.name)
        clients = [client for client in self.extremes if client in every]
        return self._with_all(clients) if len(every) == len(self.collected.clients) else clients

    def _with_all(self, clients: list[str]) -> list[str]:
        return [*clients, MEAN, WORST] if len(self.collected.clients) > 1 else clients
