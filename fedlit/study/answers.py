"""Each client's answer of a study: its best federated method compared with its best model alone,
what others gain, and what leaves the site.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedlit.answers.answer import Answer
from fedlit.answers.decide import answer_of
from fedlit.statistics import Estimate
from fedlit.study.collect import Collected
from fedlit.study.lift import OTHERS, Scores, lift_over
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT
from fedlit.tasks import COMPARED, Score
from fedlit.tasks.units import points


@dataclass(frozen=True)
class _Choices:
    """What a client chose on validation rows.

    Attributes:
        labels: maps each method to its name for the user.
        methods: maps each kind of choice, such as :data:`BEST_ALONE`, to the chosen method of each
            seed.
    """

    labels: Mapping[str, str]
    methods: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, study: ResolvedStudy, collected: Collected, client: str) -> _Choices:
        """Return the choices of a client of a study."""
        chosen = collected.chosen
        chosen = chosen[(chosen["without"] == "") & (chosen["client"] == client)]
        by_kind = chosen.groupby("best")["method"]
        return cls(study.labels, {str(kind): methods.tolist() for kind, methods in by_kind})

    def usual(self, kind: str) -> str | None:
        """Return the method that was chosen most often; None if there is no choice."""
        methods = pd.Series(self.methods.get(kind, ()), dtype=object)
        return None if methods.empty else str(methods.value_counts().idxmax())

    def names(self, kind: str) -> list[str]:
        """Return the name for the user of the method that was chosen most often; empty if there is
        no choice.
        """
        method = self.usual(kind)
        return [] if method is None else [self.labels[method]]

    def varied(self, kind: str) -> bool:
        """Return whether the choices differ between seeds."""
        return len(set(self.methods.get(kind, ()))) > 1


def answers(
    study: ResolvedStudy, scores: Scores, estimates: pd.DataFrame, left_out: pd.DataFrame
) -> list[Answer]:
    """Compare, for each client, its best federated method with its best model alone. Both are
    chosen for each seed on validation rows. There are no answers if the study has no federated
    method that leaves rows at their sites.

    Args:
        study: the study.
        scores: the scores of the study's runs.
        estimates: the estimates of scores (:func:`fedlit.study.lift.estimates`).
        left_out: what the others gain by each client (:func:`fedlit.study.lift.leave_one_out`), if
            the study asks for it.
    """
    if not study.candidates:
        return []
    records = scores.collected.records.to_dict("records")
    rows = _test_rows(records)
    results = []
    for client in scores.collected.clients:
        metric = study.choose[client]
        means = _means(estimates, metric, client)
        choices = _Choices.of(study, scores.collected, client)
        chosen = study.best_alone == BEST_ALONE
        reference = [study.labels[study.best_alone]]
        if chosen:
            reference = choices.names(BEST_ALONE)
        lift = lift_over(scores, study.matters, BEST_FEDERATED, study.best_alone, client, metric)
        bar = lift_over(scores, study.matters, BEST_FEDERATED, HINDSIGHT, client, metric)
        remarks = [
            *_hindsight(choices, COMPARED[metric], means, lift.estimate, bar.estimate),
            *_leaves(records, client, choices.usual(BEST_FEDERATED)),
        ]
        if (left_out["joins"] == client).any():
            remarks.append(_joining(left_out, client, COMPARED[metric]))
        answer = answer_of(
            client,
            COMPARED[metric],
            lift.estimate,
            lift.least,
            reference=" ".join(reference),
            alone=means.get(study.best_alone, math.nan),
            methods=choices.names(BEST_FEDERATED),
            federated=means.get(BEST_FEDERATED, math.nan),
            rows=rows.get(client, 0),
            chosen=chosen,
            varied=(choices.varied(BEST_ALONE), choices.varied(BEST_FEDERATED)),
            remarks=remarks,
        )
        results.append(answer)
    return results


def _means(estimates: pd.DataFrame, metric: str, client: str) -> dict[str, float]:
    """Map each method to a client's mean score."""
    rows = estimates[(estimates["metric"] == metric) & (estimates["client"] == client)]
    return dict(zip(rows["method"], rows["mean"], strict=True))


def _test_rows(records: Sequence[Mapping[Any, Any]]) -> dict[str, int]:
    """Map each client to its number of test rows, with the first seed."""
    counts = dict[str, int]()
    for record in records:
        rows = record.get("rows")
        for client, splits in rows.items() if isinstance(rows, dict) else ():
            counts.setdefault(client, splits["test"]["rows"])
    return counts


def _hindsight(
    choices: _Choices, score: Score, means: Mapping[str, float], lift: Estimate, bar: Estimate
) -> list[str]:
    """Describe the lift over the model alone that is best in hindsight, if it is another one.

    Args:
        choices: what the client chose.
        score: the score by which it is judged.
        means: maps each method to the client's mean score.
        lift: the lift over the best model alone.
        bar: the lift over the model alone that is best in hindsight.
    """
    best = choices.names(HINDSIGHT)
    if not best or bar.mean == lift.mean or not math.isfinite(bar.mean):
        return []
    value = score.text(means.get(HINDSIGHT, math.nan))
    gain = f"{score.text(bar.mean, signed=True)}{points(score)}"
    return [f"Lift over the best alone in hindsight ({best[0]}, {value}): {gain}"]


def _leaves(records: Sequence[Mapping[Any, Any]], client: str, method: str | None) -> list[str]:
    """Describe what the federated method that a client chose most often would send from its
    site.
    """
    messages = [record.get("leaves") for record in records if record["method"] == method]
    sent = [
        leaves for leaves in messages if isinstance(leaves, dict) and client in leaves["numbers"]
    ]
    if not sent or not sent[0]["rounds"]:
        return []
    first = sent[0]
    patterns = ", ".join(
        "all tensors" if pattern == "*" else pattern for pattern in first["patterns"]
    )
    patterns = patterns or "answers to its rule's questions"
    numbers = first["numbers"][client]
    before = f"; before training, {_by_reason(first['before'])}" if first["before"] else ""
    rounds = Counter(message["rounds"] for message in sent).most_common(1)[0][0]
    return [
        f"The site would send {patterns} ({numbers:,} numbers) in each of {rounds} rounds{before}"
    ]


def _by_reason(facts: Sequence[str]) -> str:
    """Join facts such as ``labels for data.align: both``, and name each reason once."""
    by_reason: dict[str, list[str]] = {}
    for fact in facts:
        content, _, reason = fact.partition(" for ")
        by_reason.setdefault(reason, []).append(content)
    parts = []
    for reason, contents in by_reason.items():
        listing = ", ".join(contents)
        parts.append(f"{listing} for {reason}" if reason else listing)
    return "; ".join(parts)


def _joining(left_out: pd.DataFrame, client: str, score: Score) -> str:
    """Describe whether a client should join, for itself and for the others."""
    effects = left_out[(left_out["joins"] == client) & (left_out["method"] == BEST_FEDERATED)]
    rows = {
        row["client"]: row for row in effects[effects["metric"] == score.name].to_dict("records")
    }
    unit = f" {'percentage points' if score.percent else f'in {score.label}'}"
    sentences = [
        f"{score.text(rows[who]['mean'], signed=True)}{suffix} ({rows[who]['verdict']})"
        if who in rows and math.isfinite(rows[who]["mean"])
        else "not known (runs are missing, or nobody has this score)"
        for who, suffix in ((client, unit), (OTHERS, ""))
    ]
    return (
        f"Should {client} join? For {client} itself: {sentences[0]}. For the others: {sentences[1]}"
    )
