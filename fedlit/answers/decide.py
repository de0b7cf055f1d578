"""Decides a client's answer: the verdict on its lift, with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedlit.answers.answer import Answer
from fedlit.answers.verdict import MIN_SEEDS, Verdict, verdict_on
from fedlit.statistics import Estimate
from fedlit.tasks import Score
from fedlit.tasks.units import points


def answer_of(
    client: str,
    score: Score,
    lift: Estimate,
    least: float,
    *,
    reference: str,
    alone: float,
    methods: Sequence[str],
    federated: float,
    rows: int,
    tried: bool = True,
    chosen: bool = True,
    varied: tuple[bool, bool] = (False, False),
    remarks: Sequence[str] = (),
) -> Answer:
    """Return a client's answer: the verdict on a lift, with the reason.

    Args:
        client: the client.
        score: the score by which it is judged.
        lift: by how much it is better with others than alone.
        least: the smallest lift that matters.
        reference: what it would use alone, for the user.
        alone: the score of that.
        methods: the federated methods that it would use, for the user.
        federated: the score with these.
        rows: the number of rows that judged.
        tried: whether any federated model was tried.
        chosen: whether what it would use alone was chosen among several models.
        varied: whether the choices, of what it would use alone and of the method, differ between
            seeds.
        remarks: further sentences.
    """
    verdict, reason = _decided(score, lift, least, used=bool(methods), tried=tried)
    return Answer(
        client,
        score,
        verdict,
        reference,
        alone,
        tuple(methods),
        federated,
        lift,
        least,
        rows,
        reason,
        chosen,
        varied,
        remarks,
    )


def _decided(
    score: Score, lift: Estimate, least: float, *, used: bool, tried: bool
) -> tuple[Verdict, str]:
    """Return the verdict on a lift, and its reason."""
    if not tried:
        return Verdict.FEW, "no federated model was tried"
    if lift.over == "rows":
        if not math.isfinite(lift.mean):
            return (
                Verdict.FEW,
                f"{score.label} is not defined on these rows; give rows of each class",
            )
        if not used:
            reason = (
                "no federated model was better on its held-out rows, so it keeps its own models"
            )
            return Verdict.SAME, reason
    verdict = verdict_on(lift, least)
    if verdict == Verdict.SAME and lift.sd == 0:
        return verdict, f"the same {score.label} in each of {lift.n} seeds"
    amount = f"{score.text(least)}{points(score)}"
    if verdict == Verdict.SAME:
        return verdict, f"less than {amount}"
    if verdict == Verdict.FEW:
        return verdict, _too_few(lift, amount)
    return verdict, ""


def _too_few(lift: Estimate, amount: str) -> str:
    """Return why there is not enough data.

    Args:
        lift: the lift.
        amount: the smallest lift that matters, as text.
    """
    if lift.over == "rows":
        return f"{lift.n:,} held-out rows cannot distinguish a lift of {amount} from none"
    if not lift.n:
        return "its validation rows do not allow a choice of method, or runs are missing"
    if lift.n < MIN_SEEDS:
        plural = "s" if lift.n > 1 else ""
        return f"{lift.n} seed{plural}; a verdict needs {MIN_SEEDS} or more"
    if not math.isfinite(lift.mean):
        return "predictions were not finite"
    if not math.isfinite(sum(lift.interval)):
        return "all seeds gave the same lift, so no interval can be computed"
    return f"{lift.n} seeds and these test rows cannot distinguish a lift of {amount} from none"
