"""Cox's proportional hazards model with a baseline hazard for each stratum, from terms that are
summed over strata.

A row i of stratum s has the hazard h_s(t) exp(xᵢᵀβ). The partial likelihood (Cox 1972, JRSS B
34:187) compares, at each time of an event, the rows that had it with all rows of their stratum that
were at risk: log L = Σ_s log L_s, so that its gradient and Hessian are sums over strata, too. A
stratum may be a site: its baseline hazard and its rows stay there.

Rows whose events have the same time are handled as Breslow (1974, Biometrics 30:89) or Efron (1977,
JASA 72:557) suggests. At a time with d events, Efron's likelihood has d terms: in the k-th, k = 0 …
d − 1, each of the d rows counts 1 − k/d in the sum over rows at risk. In Breslow's, it counts fully
in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedlit.outcomes.censored import ENTRY, EVENT, TIME
from fedlit.types import Floats, Ints, Numbers

Ties = Literal["efron", "breslow"]

_FARTHEST = 600.0
"""Hazards are not told apart where they are e to the power of this times smaller than the largest
one, so that no sum over rows at risk is 0."""

Terms = Mapping[str, Floats]
"""What a stratum says at given effects; sums over strata have the same names.

``value`` (): log L_s; ``gradient`` (p,); ``information`` (p, p): the negative Hessian.
"""


@dataclass(frozen=True, eq=False)
class Stratum:
    """The rows of one stratum, and which of them are at risk when.

    Attributes:
        x: (n, p) the inputs, less their means, which the partial likelihood does not depend on.
        weight: (n,) how much each row counts.
        times: (m,) the times of events, ascending.
        entered: (n,) the number of these times that are not after a row's entry.
        ended: (n,) the number of these times that are not after the end of its observation: a row
            is at risk at times ``entered`` to ``ended`` − 1.
        events: (d,) the rows with an event, which are at risk for the last time when they have it.
        term_time: (terms,) the time of each term of the likelihood.
        term_share: (terms,) the share of the rows with an event that does not count in it: k/d, or
            0.
        term_weight: (terms,) how much the term counts: the mean weight of these rows.
    """

    x: Floats
    weight: Floats
    times: Floats
    entered: Ints
    ended: Ints
    events: Ints
    term_time: Ints
    term_share: Floats
    term_weight: Floats

    @classmethod
    def of(
        cls, x: Floats, y: Numbers, weight: Floats | None = None, ties: Ties = "efron"
    ) -> Stratum:
        """Find out which rows are at risk when.

        Args:
            x: (n, p) float64.
            y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
            weight: (n,) how much each row counts; once if None. At a time with several events
                Efron's terms count as the mean of their weights.
            ties: how events at the same time are handled.

        Example:
            >>> y = np.array([[5.0, 1.0, -np.inf], [5.0, 1.0, -np.inf], [9.0, 0.0, -np.inf]])
            >>> Stratum.of(np.zeros((3, 1)), y).term_share
            array([0. , 0.5])
        """
        y = np.asarray(y, np.float64)
        weights = np.ones(len(y)) if weight is None else weight
        events = np.flatnonzero((y[:, EVENT] == 1) & (weights > 0))
        times, position, counts = np.unique(
            y[events, TIME], return_inverse=True, return_counts=True
        )
        of_time = np.bincount(position.reshape(-1), weights[events], len(times))
        term_time = np.repeat(np.arange(len(times)), counts)
        begin = np.repeat(np.cumsum(counts) - counts, counts)
        share = (np.arange(len(events)) - begin) / counts[term_time]
        if ties == "breslow":
            share = np.zeros(len(events))
        centred = x
        if len(x):
            centred = x - x.mean(0)
        return cls(
            centred,
            weights,
            times,
            np.searchsorted(times, y[:, ENTRY], side="right"),
            np.searchsorted(times, y[:, TIME], side="right"),
            events,
            term_time,
            share,
            (of_time / counts)[term_time],
        )

    def at_risk(self, values: Floats) -> Floats:
        """Return the sum of values (n, …) over the rows at risk at each time of an event, (m,
        …).
        """
        late = np.flatnonzero(self.entered)
        total = self._from(self.ended, values)
        if len(late):
            total = total - self._from(self.entered[late], values[late])
        return total

    def _from(self, position: Ints, values: Floats) -> Floats:
        """Return the sum of values over the rows whose position is beyond each time."""
        sums = np.zeros((len(self.times) + 1, *values.shape[1:]))
        np.add.at(sums, position, values)
        beyond: Floats = sums[::-1].cumsum(0)[::-1][1:]
        return beyond

    def at_events(self, values: Floats) -> Floats:
        """Return the sum of values (n, …) over the rows with an event at each time, (m, …)."""
        sums = np.zeros((len(self.times), *values.shape[1:]))
        np.add.at(sums, self.ended[self.events] - 1, values[self.events])
        return sums

    def while_at_risk(self, terms: Floats) -> Floats:
        """Return the sum of terms (terms, …) over those in which each row counts, as far as it
        does, (n, …).
        """
        sums = np.zeros((len(self.times) + 1, *terms.shape[1:]))
        np.add.at(sums, self.term_time + 1, terms)
        up_to = sums.cumsum(0)
        total = up_to[self.ended] - up_to[self.entered]
        lacking = np.zeros((len(self.times), *terms.shape[1:]))
        np.add.at(lacking, self.term_time, (terms.T * self.term_share).T)
        total[self.events] -= lacking[self.ended[self.events] - 1]
        of_rows: Floats = total
        return of_rows


@dataclass(frozen=True, eq=False)
class At:
    """A stratum at given effects.

    Attributes:
        stratum: its rows.
        predictor: (n,) the linear predictor.
        relative: (n,) its exponential times the row's weight, in units of the largest one's
            exponential.
        scale: the logarithm of that unit.
        totals: (terms,) the sum of these over the rows at risk, as far as they count in a term.
        means: (terms, p) the mean of the inputs, weighted by them.
        increments: (terms,) the increment of the baseline's cumulative hazard, times the unit.
    """

    stratum: Stratum
    predictor: Floats
    relative: Floats
    scale: float
    totals: Floats
    means: Floats
    increments: Floats

    @classmethod
    def of(cls, stratum: Stratum, predictor: Floats) -> At:
        """Compute the sums over rows at risk.

        Args:
            stratum: the rows.
            predictor: (n,) their linear predictor.
        """
        scale = 0.0
        if len(predictor):
            scale = float(predictor.max())
        relative = stratum.weight * np.exp(np.maximum(predictor - scale, -_FARTHEST))
        risks = relative[:, None] * np.hstack([np.ones((len(relative), 1)), stratum.x])
        at_events = stratum.at_events(risks)[stratum.term_time]
        sums = stratum.at_risk(risks)[stratum.term_time]
        sums = sums - stratum.term_share[:, None] * at_events
        # Late entry takes differences of sums, which rounding must not make too small.
        sums[:, 0] = np.maximum(sums[:, 0], (1 - stratum.term_share) * at_events[:, 0])
        totals = sums[:, 0]
        means = sums[:, 1:] / totals[:, None]
        increments = stratum.term_weight / totals
        return cls(stratum, predictor, relative, scale, totals, means, increments)

    def information(self, weights: Floats | float = 1.0) -> Floats:
        """Return Σ wₖ Vₖ over terms, where Vₖ is the covariance of the inputs of the rows at risk,
        (p, p).
        """
        x = self.stratum.x
        hazards = self.relative * self.stratum.while_at_risk(self.increments * weights)
        sizes = self.stratum.term_weight * weights
        second = (x.T * hazards) @ x
        information: Floats = second - (self.means.T * sizes) @ self.means
        return information

    def score(self, weights: Floats | float = 1.0) -> Floats:
        """Return Σ wₖ (xₖ − mean of the rows at risk) over events and their terms, (p,)."""
        stratum = self.stratum
        hazards = self.relative * stratum.while_at_risk(self.increments * weights)
        of_time = np.zeros(len(stratum.times))
        of_time[stratum.term_time] = weights
        residuals = -hazards
        rows = stratum.events
        residuals[rows] += stratum.weight[rows] * of_time[stratum.ended[rows] - 1]
        score: Floats = residuals @ stratum.x
        return score

    def terms(self) -> dict[str, Floats]:
        """Return the terms of the likelihood, see :data:`Terms`."""
        stratum = self.stratum
        rows = stratum.events
        value = stratum.weight[rows] @ (self.predictor[rows] - self.scale)
        value -= stratum.term_weight @ np.log(self.totals)
        return {
            "value": np.asarray(value),
            "gradient": self.score(),
            "information": self.information(),
        }

    def residuals(self) -> Floats:
        """Return the score residuals of rows (n, p): their sum is the gradient, and the sum of
        their outer products the middle of the sandwich (Lin and Wei 1989, JASA 84:1074).
        """
        stratum = self.stratum
        rows = stratum.events
        hazards = self.relative * stratum.while_at_risk(self.increments)
        from_means = stratum.while_at_risk(self.increments[:, None] * self.means)
        residuals = self.relative[:, None] * from_means - hazards[:, None] * stratum.x
        counts = np.bincount(stratum.term_time, minlength=len(stratum.times))
        of_time = np.zeros((len(stratum.times), stratum.x.shape[1]))
        np.add.at(of_time, stratum.term_time, self.means)
        means = (of_time / counts[:, None])[stratum.ended[rows] - 1]
        residuals[rows] += stratum.weight[rows, None] * (stratum.x[rows] - means)
        return residuals

    def baseline(self, times: Floats) -> Floats:
        """Return the cumulative hazard of a row whose linear predictor is 0, up to any times:
        Breslow's estimate, or Efron's.
        """
        stratum = self.stratum
        increments = np.bincount(stratum.term_time, self.increments, len(stratum.times))
        cumulative = np.concatenate([[0.0], np.cumsum(increments)])
        up_to = cumulative[np.searchsorted(stratum.times, times, side="right")]
        hazards: Floats = up_to * np.exp(-self.scale)
        return hazards


def site_terms(
    stratum: Stratum, effects: Floats, offset: Floats | float = 0.0
) -> dict[str, Floats]:
    """Return a stratum's terms, see :data:`Terms`.

    Args:
        stratum: its rows.
        effects: (p,) β.
        offset: (n,) what is added to the linear predictor.

    Example:
        >>> x = np.array([[1.0], [0.0], [0.0]])
        >>> y = np.array([[2.0, 1.0, -np.inf], [4.0, 1.0, -np.inf], [6.0, 0.0, -np.inf]])
        >>> terms = site_terms(Stratum.of(x, y), np.zeros(1))
        >>> {name: term.round(3).tolist() for name, term in terms.items()}  # −log 3 − log 2, 1 − 1/3
        {'value': -1.792, 'gradient': [0.667], 'information': [[0.222]]}
    """
    return At.of(stratum, stratum.x @ effects + offset).terms()


def site_residuals(stratum: Stratum, effects: Floats, trend: Floats) -> dict[str, Floats]:
    """Return a stratum's terms of the robust covariance and of the test of proportional hazards.

    Args:
        stratum: its rows.
        effects: (p,) the fitted β.
        trend: (m,) g(t) at the stratum's times of events.

    Returns:
        :data:`Terms`, and ``meat`` (p, p): the sum of outer products of score residuals; ``trend``
        (p,): the score of x g(t); ``trend_information`` (2, p, p): its information with x, and with
        itself.
    """
    at = At.of(stratum, stratum.x @ effects)
    residuals = at.residuals()
    of_term = trend[stratum.term_time]
    return {
        **at.terms(),
        "meat": residuals.T @ residuals,
        "trend": at.score(of_term),
        "trend_information": np.stack([at.information(of_term), at.information(of_term**2)]),
    }
