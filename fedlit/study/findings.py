"""What a study found: what its tables, sentences, figures and report are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pandas as pd

from fedlit.study.answer import Answer, answers
from fedlit.study.collect import Collected
from fedlit.study.lift import MEAN, WORST, Scores, estimates, leave_one_out, lifts
from fedlit.study.study import Study
from fedlit.tasks import COMPARED, Score

__all__ = ["MANY", "Findings"]

MANY, _MOST = 12, 3
"""Clients up to which all have a column and an answer of their own; of more, so many at each end."""


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """What a study found.

    Attributes:
        study: what was compared.
        seeds: with which seeds.
        collected: results and records.
        estimates: one row per metric, method and client.
        lift: one row per metric, reference, method and client.
        answers: for each client, whether federation pays.
        folder: where the files are.
        failures: run → its error.
        predicted: client → what is predicted, in words; without those of whom that is not known.
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
        """What is found in results.

        Args:
            study: completed by its clients' tasks.
            seeds: with which it was run.
            collected: its results.
            folder: where the files are.
            more: ``failures``, ``predicted``, ``notes``.
        """
        scores = Scores(collected)
        of_scores, of_lifts, left_out = estimates(study, scores), lifts(study, scores), leave_one_out(study, scores)
        own = answers(study, collected, of_scores, of_lifts, left_out)
        return cls(study, seeds, collected, of_scores, of_lifts, own, folder, left_out=left_out, **more)

    @property
    def extremes(self) -> list[str]:
        """The clients that are shown: all, or of more than :data:`MANY` the three that gain least by the best federated
        method and the three that gain most, in this order.
        """
        every = self.collected.clients
        if len(every) <= MANY:
            return every
        gains = {own.client: own.lift["mean"] for own in self.answers if math.isfinite(own.lift["mean"])}
        order = sorted(gains, key=lambda client: gains[client]) or every
        return list(dict.fromkeys([*order[:_MOST], *order[-_MOST:]]))

    @property
    def scores(self) -> list[Score]:
        """Those that tables show, the main one first."""
        return [COMPARED[name] for name in self.study.metrics or ()]

    @property
    def choices(self) -> list[Score]:
        """Those by which clients choose."""
        return [COMPARED[name] for name in self.study.choices]

    @property
    def clients(self) -> list[str]:
        """Of tables: :attr:`extremes`, and of several clients their mean and the worst."""
        return self._with_all(self.extremes)

    def clients_of(self, score: Score) -> list[str]:
        """Those of :attr:`clients` that have a score; without their mean and worst, unless all have it."""
        every = self.collected.clients_of(score.name)
        own = [client for client in self.extremes if client in every]
        return self._with_all(own) if len(every) == len(self.collected.clients) else own

    def _with_all(self, clients: list[str]) -> list[str]:
        return [*clients, MEAN, WORST] if len(self.collected.clients) > 1 else clients
