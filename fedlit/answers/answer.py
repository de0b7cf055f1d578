"""A client's answer: the verdict whether to join, and what it rests on. Studies, recommendations and
clients that join a trained run have the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedlit.answers.verdict import Verdict
from fedlit.score.plain import defined
from fedlit.statistics import Estimate
from fedlit.tasks import Score
from fedlit.tasks.units import drawn, heading, points


@dataclass(frozen=True)
class Answer:
    """Whether a client gains from federation.

    Attributes:
        client: the client whom the answer concerns.
        score: the score by which it is judged.
        verdict: the verdict on the lift.
        reference: what the client would use alone, for the user.
        alone: its score.
        methods: the federated methods that it would use, for the user; empty if there is none.
        federated: the score with these methods.
        lift: by how much this is better than alone.
        least: the smallest lift that matters.
        rows: the number of rows that judged.
        reason: why the verdict is so, where the interval alone does not tell; "" if it does.
        chosen: whether what it would use alone was chosen among several models.
        varied: whether the choices, of what it would use alone and of the method, differ between
            seeds.
        remarks: further sentences, without full stops.
    """

    client: str
    score: Score
    verdict: Verdict
    reference: str
    alone: float
    methods: tuple[str, ...]
    federated: float
    lift: Estimate
    least: float
    rows: int
    reason: str = ""
    chosen: bool = True
    varied: tuple[bool, bool] = (False, False)
    remarks: Sequence[str] = ()

    # ------------------------------------------------------------------ what it says

    @property
    def worth_a_try(self) -> bool:
        """Whether the client should join, or may gain although there is not enough data to
        decide.
        """
        return self.verdict == Verdict.JOIN or (self.verdict == Verdict.FEW and self.lift.mean > 0)

    def blocked(self) -> Answer:
        """Return the answer without a verdict, because a finding about the tables has to be settled
        first.
        """
        reason = "a column may reveal the target, see above"
        return replace(self, verdict=Verdict.BLOCKED, reason=reason)

    @property
    def title(self) -> str:
        """The verdict in words, with the methods to join with."""
        if self.verdict == Verdict.JOIN and self.methods:
            return f"{self.verdict.words} with {self._method}"
        return self.verdict.words

    @property
    def headline(self) -> str:
        """The verdict and its reason."""
        return f"{self.title}: {self.reason}" if self.reason else self.title

    @property
    def sentence(self) -> str:
        """The verdict, its reason and the lift; without a full stop."""
        if not self.methods or self.verdict == Verdict.BLOCKED or math.isnan(self.lift.mean):
            return self.headline
        return f"{self.headline}. {self.label}: lift {self.gain}"

    @property
    def _method(self) -> str:
        return " and ".join(self.methods)

    # ------------------------------------------------------------------ its numbers

    @property
    def label(self) -> str:
        """The heading of the score."""
        return heading(self.score)

    @property
    def scores(self) -> list[tuple[str, str, str]]:
        """The name, the score and the model that was chosen, first for training alone, then for
        federation; "" if nothing was chosen.
        """
        called = f"{self.reference}, alone"
        model = ""
        if self.chosen:
            called = "best alone"
            model = self.reference
        models = []
        for name, varied in zip((model, self._method), self.varied, strict=True):
            models.append(f"mostly {name}" if name and varied else name)
        return [
            (called, self.score.text(self.alone), models[0]),
            ("best federated", self.score.text(self.federated), models[1]),
        ]

    @property
    def gain(self) -> str:
        """The lift with its interval."""
        score = self.score
        low, high = self.lift.interval
        mean = f"{score.text(self.lift.mean, signed=True)}{points(score)}"
        if not math.isfinite(low + high):
            return mean
        if score.percent and max(-low, high) > 1:
            return f"{mean}, 95 % interval wider than any lift can be"
        return (
            f"{mean}, 95 % interval {score.text(low, signed=True)} to "
            f"{score.text(high, signed=True)}"
        )

    @property
    def bar(self) -> list[float]:
        """The lower end, mean and upper end of the lift, and the smallest lift that matters, on the
        scale of the text.
        """
        low, high = self.lift.interval
        return [
            float(drawn(self.score, value)) for value in (low, self.lift.mean, high, self.least)
        ]

    @property
    def text(self) -> str:
        """A sentence with the numbers."""
        scores = []
        for called, value, model in self.scores:
            scores.append(f"{called} {value} ({model})" if model else f"{called} {value}")
        numbers = f"{self.label}: {scores[0]}, {scores[1]}; lift {self.gain}"
        return ". ".join([numbers, *self.remarks])

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, in which undefined values are None."""
        numbers: Mapping[str, Any] = defined(
            {
                "alone": self.alone,
                "optimism": self.lift.optimism,
                "lift": self.lift.mean,
                "interval": self.lift.interval,
            }
        )
        return {
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "join": self.verdict == Verdict.JOIN,
            "best_alone": self.reference,
            **numbers,
        }
