"""Prediction of the time to an event, of which some rows were observed in part only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import ConfigError
from fedlit.outcomes.base import Columns, Outcome
from fedlit.outcomes.censored import ENTRY, EVENT, TIME, observed
from fedlit.outcomes.periods import bounds_of, in_periods
from fedlit.outcomes.survival import SurvivalCurve
from fedlit.precision import double_on_cpu, in_double
from fedlit.sketches import SKETCHED, sketch
from fedlit.tasks.base import Facts, Scorer, Task
from fedlit.tasks.baselines import CURVES
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.scores import LOSS, Score
from fedlit.tasks.survival_agreement import agreed_times, needs_times, refuse_other_unit
from fedlit.tasks.survival_scores import SCORES, SurvivalScorer
from fedlit.tasks.survival_target import check_settings, target_values
from fedlit.tasks.weighing import weighted_mean
from fedlit.types import Label

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.tasks.base import Task as AnyTask

MOST_STEPS = 64
"""The most steps of the share that is not censored, which a task keeps for its scores."""
_IMAGINED = np.linspace(1.0, 2.0, SKETCHED).tolist()
"""Times of events at another client, from which as many intervals follow as from real ones."""
FEW_EVENTS = 10
"""With fewer events of its own, a client is told that its risks are not calibrated."""


@dataclass(frozen=True)
class Survival(Task):
    """Prediction of the time to an event in discrete time (Gensheimer and Narasimhan 2019).

    Time is cut into intervals (t[j−1], t[j]], the same for all clients that agree on them. A network
    outputs a logit for each interval: that of the hazard, which is the probability of an event in
    the interval without one before, less that of a hazard that all share. Predictions are the
    probabilities of no event up to the end of each interval. The loss is the negative
    log-likelihood: each interval in which a row is at risk is a case of yes or no.

    The encoded target is (n, 3) float32: the time at which observation ended, 1 if the event ended
    it and 0 if it was censored, and the time from which the row was observed, which is −∞ without
    late entry. A row of unknown target is NaN. A row is at risk at t if entry < t ≤ time.

    NOTE[DIFF]: an interval in which a row was observed in part only counts if its middle was
    observed, as in the paper for censoring; the same holds for late entry, which the paper does not
    treat. The interval of an event always counts.

    Attributes:
        target: the names of the target's columns.
        edges: the ends of the intervals.
        horizons: the times at which risks are shown and scored; each ends an interval.
        time_unit: the unit of times; "" if it is not known.
        hazard: the hazard of an interval for which the output 0 stands.
        censor_times: the times at which the share of the client's training rows that are not
            censored decreases.
        censor_left: that share from each of these times on.
        late: whether rows entered late, see :class:`fedlit.outcomes.censored.Steps`.

    Example:
        >>> import pandas as pd
        >>> task = Survival(edges=(10.0, 20.0), horizons=(20.0,), hazard=0.25)
        >>> y = task.encode(pd.Series([(20, 1), (8.5, 0)], name=("days", "died")))
        >>> task.predict(torch.zeros(1, 2))
        tensor([[0.7500, 0.5625]], dtype=torch.float64)
        >>> round(task.loss(torch.zeros(2, 2), y).item(), 4)  # (−2 log 0.75·0.25 − log 0.75) / 2
        0.9808
    """

    target: str = "time, event"
    edges: tuple[float, ...] = (1.0,)
    horizons: tuple[float, ...] = (1.0,)
    time_unit: str = ""
    hazard: float = 0.1
    censor_times: tuple[float, ...] = field(default=(), repr=False)
    censor_left: tuple[float, ...] = field(default=(), repr=False)
    late: bool = field(default=False, repr=False)

    name: ClassVar[str] = "survival"
    outcome_type: ClassVar[type[Outcome]] = SurvivalCurve
    scores: ClassVar[tuple[Score, ...]] = (*SCORES, LOSS)
    more_facts: ClassVar[tuple[str, ...]] = ("events",)
    fact_lists: ClassVar[tuple[str, ...]] = ("event_times",)
    more_settings: ClassVar[tuple[str, ...]] = ("unit", "horizons", "intervals")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"targets": ("pooled", "client")}
    go_alone: ClassVar[Mapping[str, GoAlone]] = CURVES

    # ------------------------------------------------------------------ the target

    @classmethod
    def check(cls, settings: Mapping[str, Any]) -> None:
        """Refuse an unknown unit, and horizons or intervals that are no times."""
        check_settings(settings)

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, Any], positive: Label | None = None
    ) -> Facts:
        """Return the numbers of rows and events, a sketch of the times of events, and the settings on
        which clients must agree. Nothing is said of fewer events than ``facts_from``, and of fewer
        censored rows only that they are fewer.
        """
        y = target_values(target)
        least = int(settings.get("facts_from", 1))
        times = y[y[:, EVENT] == 1, TIME].astype(np.float64)
        # The number of rows is sent, too, and the rows without an event are the censored ones.
        stated = min(len(times), len(target) - (least - 1))
        if stated < least:
            stated = 0
        agreed = {key: settings[key] for key in cls.more_settings if key in settings}
        columns: Any = target.name
        return {
            "task": cls.name,
            "target": ", ".join(columns),
            "count": len(target),
            "events": stated,
            "event_times": sketch(times, least, stated) if needs_times(settings) else [],
            "settings": json.dumps(agreed),
        }

    @classmethod
    def rows_behind(cls, facts: Facts) -> dict[str, int]:
        """Return the number of rows behind the number of events, and that of events behind each
        quantile of their times.
        """
        behind = {"events": int(facts["count"])}
        if facts["event_times"]:
            quantiles = max(len(facts["event_times"]) - 1, 1)
            behind["event_times"] = int(facts["events"]) // quantiles
        return behind

    @classmethod
    def of_another(cls, facts: Facts) -> Facts:
        """Return the facts with some times of events, if nothing is said of them."""
        if facts["events"]:
            return facts
        return {**facts, "events": min(1, facts["count"]), "event_times": [1, *_IMAGINED]}

    @classmethod
    def plausible(cls, facts: Facts) -> bool:
        """Return whether there are events among the rows, and times that may be those of events."""
        try:
            check_settings(json.loads(facts.get("settings", "{}")))
        except (ValueError, AttributeError, ConfigError):
            return False
        times = facts.get("event_times", ())
        ascending = bool((np.diff(times[1:]) >= 0).all())
        events = facts.get("events", 0)
        return ascending and 0 <= events <= facts.get("count", 0) and min(times, default=0) >= 0

    @classmethod
    def check_peer(cls, client: str, facts: Facts, peer: str, facts_of_peer: Facts) -> None:
        """Refuse a client whose task has another unit, or other settings, than that of a peer."""
        refuse_other_unit(client, facts, peer, facts_of_peer)
        super().check_peer(client, facts, peer, facts_of_peer)

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
        """Return the task with the intervals and horizons that all these clients share."""
        for peer in sorted(facts):
            cls.check_peer(client, facts[client], peer, facts[peer])
        agreed = agreed_times(client, facts)
        return cls(
            facts[client]["target"], agreed.edges, agreed.horizons, agreed.unit, agreed.hazard
        )

    def encode(self, target: pd.Series) -> Tensor:
        """Return times, events and entries, (n, 3) float32."""
        return torch.from_numpy(target_values(target))

    def unknown(self, rows: int) -> Tensor:
        """Return an unknown target, (rows, 3) NaN."""
        return torch.full((rows, 3), math.nan)

    def known(self, y: Tensor) -> Tensor:
        """Return which rows have a time and an event."""
        return (y == y).all(1)

    def fit(self, y: Tensor) -> Self:
        """Return the task with the share of the training rows that are not censored, over time, by
        which scores are weighted.
        """
        steps = observed(y[self.known(y)].cpu().numpy()).thinned(MOST_STEPS)
        return replace(
            self,
            censor_times=tuple(steps.times.tolist()),
            censor_left=tuple(steps.shares.tolist()),
            late=steps.late,
        )

    def remarks(self, y: Tensor) -> list[str]:
        """Say that events are few, or that a horizon lies beyond all observation."""
        labelled = y[self.known(y)]
        events = int(labelled[:, EVENT].sum())
        remarks = list[str]()
        if events < FEW_EVENTS:
            text = f"{events} events in {len(labelled):,} training rows"
            remarks.append(f"{text}: the level of predicted risks is not calibrated")
        last = float(labelled[:, TIME].max()) if len(labelled) else 0.0
        beyond = [f"{horizon:.7g}" for horizon in self.horizons if horizon > last]
        if beyond:
            text = f"no training row was observed up to the horizon {', '.join(beyond)}"
            remarks.append(f"{text}, as the last time is {last:.7g}; risks there are a guess")
        return remarks

    def at(self, classes: Sequence[int]) -> Self:
        """Return the task unchanged: it has no classes."""
        return self

    def written(self, y: Tensor) -> Columns:
        """Return ``target_time`` and ``target_event``, and ``target_entry`` where rows entered
        late.
        """
        numbers = y.numpy()
        columns: Columns = {"target_time": _as_written(numbers[:, TIME])}
        columns["target_event"] = numbers[:, EVENT].astype(np.float64)
        if np.isfinite(numbers[:, ENTRY]).any():
            columns["target_entry"] = _as_written(numbers[:, ENTRY])
        return columns

    def read(self, frame: pd.DataFrame) -> tuple[AnyTask, Tensor, Tensor]:
        """Return the task, the curves and the target."""
        names = [name for name in frame if str(name).startswith("survival_")]
        predictions = torch.tensor(frame[names].to_numpy(np.float64))
        y = torch.full((len(frame), 3), -math.inf)
        for column, name in enumerate(("target_time", "target_event", "target_entry")):
            if name in frame:
                y[:, column] = torch.tensor(frame[name].to_numpy(np.float32))
        return self, predictions, y

    # ------------------------------------------------------------------ outputs

    @property
    def outputs(self) -> int:
        """An output for each interval."""
        return len(self.edges)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The intervals."""
        starts = (0.0, *self.edges[:-1])
        return tuple(
            f"{start:.5g} to {end:.5g}" for start, end in zip(starts, self.edges, strict=True)
        )

    @property
    def meaning(self) -> tuple[str, ...]:
        """The intervals, and the hazard that the output 0 stands for. Columns may be called
        differently, because the task says which is the time and which the event.
        """
        names = ", ".join(self.output_names)
        return (f"logit hazard from {names} with 0 for {self.hazard:.6g}",)

    @property
    def described(self) -> Facts:
        """What is predicted, the intervals and the horizons."""
        return {
            "classes": [],
            "task": self.name,
            "target": self.target,
            "edges": list(self.edges),
            "horizons": list(self.horizons),
            "unit": self.time_unit,
        }

    @property
    def agreed_settings(self) -> dict[str, Any]:
        """The horizons and the intervals, as times."""
        return {"horizons": list(self.horizons), "intervals": list(self.edges)}

    @property
    def alike(self) -> tuple[str, tuple[float, ...], float]:
        """A key that is equal for tasks with the same intervals."""
        return self.name, self.edges, self.hazard

    @property
    def offset(self) -> float:
        """The logit that is added to outputs."""
        return math.log(self.hazard / (1 - self.hazard))

    @property
    def periods(self) -> tuple[str, ...]:
        """The intervals."""
        return self.output_names

    def cases(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the intervals in which rows are at risk, and whether the event happens in them."""
        at_risk, happens = self.intervals(y)
        row, period = at_risk.nonzero(as_tuple=True)
        return row, period, happens[row, period] > 0

    def outputs_of_cases(self, logits: Tensor) -> Tensor:
        """Return logit hazards as outputs."""
        return logits - self.offset

    def counted(self, y: Tensor) -> Tensor:
        """Return the number of rows with a known target, not that of their intervals."""
        return self.known(y).sum()

    def intervals(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return in which intervals each row is at risk, and in which it has the event, (n,
        intervals) float of y's type.
        """
        at_risk, happens = in_periods(y, *map(y.new_tensor, bounds_of(self.edges)))
        return at_risk.to(y.dtype), happens.to(y.dtype)

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean over rows of the negative log-likelihood, which sums over intervals."""
        at_risk, happens = self.intervals(y)
        logits = outputs + self.offset
        losses = functional.binary_cross_entropy_with_logits(
            logits, happens.to(logits.dtype), at_risk.to(logits.dtype), reduction="none"
        )
        return weighted_mean(losses.sum(1), rows)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the probabilities of no event up to the end of each interval, (n, intervals)
        float64.
        """
        return functional.logsigmoid(-(in_double(outputs) + self.offset)).cumsum(-1).exp()

    def bounded(self, outputs: Tensor) -> Tensor:
        """Return the hazards."""
        return (outputs + self.offset).sigmoid()

    def of_members(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the mean of the members' curves."""
        logarithm = functional.logsigmoid(-(in_double(outputs) + self.offset)).cumsum(-1)
        survival = logarithm.logsumexp(1) - math.log(outputs.shape[1])
        alone = torch.diff(survival, dim=1, prepend=survival.new_zeros(len(survival), 1))
        hazard = -torch.expm1(alone)
        return (hazard.log() - alone - self.offset).to(outputs.dtype)

    # ------------------------------------------------------------------ scores

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Compute the scores in NumPy, see :class:`fedlit.tasks.survival_scores.SurvivalScorer`."""
        curves = double_on_cpu(predictions).numpy()
        scorer = SurvivalScorer(self.outcome, curves, y.cpu().numpy())  # type: ignore[arg-type]  # a curve

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            weights = None if counts is None else counts.cpu().numpy()
            scores = scorer(weights)
            return {
                name: torch.tensor(value, dtype=torch.float64) for name, value in scores.items()
            }

        return score


def _as_written(numbers: np.ndarray) -> np.ndarray:
    """Return float32 numbers as the float64 that a person wrote: 0.1, not 0.10000000149."""
    return np.array([float(str(number)) for number in numbers])
