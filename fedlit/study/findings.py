"""The findings of a study, from which its tables, sentences, figures and report are made; and each
client's answer: the verdict, two scores, the lift between them, what others gain, and what leaves
the site.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from fedlit.data.findings import Finding, blocked_clients
from fedlit.errors import expect
from fedlit.show.text import shorten
from fedlit.statistics import ALONE, BLOCKED, FEW, JOIN, MIN_SEEDS, SAME, TITLES, estimate
from fedlit.study.collect import Collected
from fedlit.study.lift import MEAN, OTHERS, WORST, Scores, estimates, flat, leave_one_out, lifts
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT
from fedlit.study.supplements import Beside
from fedlit.study.tables import drawn, heading, lift_unit, points
from fedlit.tasks import COMPARED, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SUMMARY = {
    JOIN: "{} should join",
    ALONE: "{} should stay alone",
    SAME: "{} would see no difference that matters",
    FEW: "for {} there is not enough data",
}


@dataclass(frozen=True)
class Answer:
    """Whether a client gains from federation, by the metric by which it chooses.

    Attributes:
        study: the study that was compared.
        client: the client whom the answer concerns.
        metric: the metric by which the client chooses.
        federated: the mean test score of the federated method that is best for the client on
            validation rows, chosen for each seed.
        alone: the mean test score of what it would do alone, chosen in the same way.
        lift: the lift of the first over the second: mean, low, high, n, verdict, … as in
            ``lift.csv``.
        usual: the federated method, and the local baseline, that was chosen most often; None if
            there is no choice.
        varied: whether the choices differ between seeds.
        remarks: sentences on the best in hindsight, on what would leave the site, and on what the
            others gain.
    """

    study: ResolvedStudy
    client: str
    metric: str
    federated: float
    alone: float
    lift: Mapping[str, Any]
    usual: tuple[str | None, str | None]
    varied: tuple[bool, bool] = (False, False)
    remarks: Sequence[str] = ()

    @property
    def score(self) -> Score:
        """The score by which the client chooses."""
        return COMPARED[self.metric]

    @property
    def verdict(self) -> str:
        """The verdict on the lift, one of :data:`fedlit.statistics.TITLES`."""
        return str(self.lift["verdict"])

    @property
    def title(self) -> str:
        """The verdict in words."""
        title = TITLES[self.verdict]
        federated = self.usual[0]
        if self.verdict == JOIN and federated is not None:
            return f"{title} with {self.study.labels[federated]}"
        return title

    @property
    def least(self) -> float:
        """The smallest lift that matters."""
        return self.score.least_lift(self.study.matters, self.alone)

    @property
    def why(self) -> str:
        """The reason for the verdict if it is not the interval alone; "" if there is none."""
        lift = self.lift
        seeds = self.lift["n"]
        least = f"{self.score.text(self.least)}{points(self.score)}"
        if self.verdict == SAME and lift["sd"] == 0:
            return f"the same {self.score.label} in each of {seeds} seeds"
        if self.verdict == SAME:
            return f"less than {least}"
        if self.verdict != FEW:
            return ""
        if not seeds:
            return "its validation rows do not allow a choice of method, or runs are missing"
        if seeds < MIN_SEEDS:
            plural = "s" if seeds > 1 else ""
            return f"{seeds} seed{plural}; a verdict needs {MIN_SEEDS} or more"
        if not math.isfinite(lift["mean"]):
            return "predictions were not finite"
        if not math.isfinite(lift["low"] + lift["high"]):
            return "all seeds gave the same lift, so no interval can be computed"
        return f"{seeds} seeds and these test rows cannot distinguish a lift of {least} from none"

    @property
    def headline(self) -> str:
        """The verdict and its reason."""
        return f"{self.title}: {self.why}" if self.why else self.title

    @property
    def scores(self) -> list[tuple[str, str, str]]:
        """The name, the test score and the model that was chosen, first for training alone, then
        for federation.
        """
        # A study whose reference is all that a client has alone leaves nothing to choose from.
        chosen = self.study.best_alone == BEST_ALONE
        labels = self.study.labels
        called = "best alone" if chosen else f"{labels[self.study.best_alone]}, alone"
        models = list[str]()
        for method, varied in zip(self.usual, self.varied, strict=True):
            often = "mostly " if varied else ""
            models.append("" if method is None else f"{often}{labels[method]}")
        federated, alone = models
        return [
            (called, self.score.text(self.alone), alone if chosen else ""),
            ("best federated", self.score.text(self.federated), federated),
        ]

    @property
    def gain(self) -> str:
        """The lift with its interval."""
        score = self.score
        low = self.lift["low"]
        high = self.lift["high"]
        mean = f"{score.text(self.lift['mean'], signed=True)}{points(score)}"
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
        ends = (*(self.lift[name] for name in ("low", "mean", "high")), self.least)
        return [float(drawn(self.score, value)) for value in ends]

    @property
    def label(self) -> str:
        """The heading of the score."""
        return heading(self.score)

    @property
    def text(self) -> str:
        """A sentence with the numbers."""
        scores = [
            f"{called} {value}" + (f" ({model})" if model else "")
            for called, value, model in self.scores
        ]
        return ". ".join(
            [f"{self.label}: {scores[0]}, {scores[1]}; lift {self.gain}", *self.remarks]
        )


def answers(
    study: ResolvedStudy,
    collected: Collected,
    estimates: pd.DataFrame,
    lift: pd.DataFrame,
    left_out: pd.DataFrame,
) -> list[Answer]:
    """Compare, for each client, its best federated method with its best model alone. Both are
    chosen for each seed on validation rows. There are no answers if the study has no federated
    method that leaves rows at their sites.

    Args:
        study: the study.
        collected: the results of the study.
        estimates: the estimates of scores (:func:`fedlit.study.lift.estimates`).
        lift: the estimates of lifts (:func:`fedlit.study.lift.lifts`).
        left_out: what the others gain by each client (:func:`fedlit.study.lift.leave_one_out`), if
            the study asks for it.
    """
    scores = {
        (estimated["metric"], estimated["method"], estimated["client"]): estimated["mean"]
        for estimated in estimates.to_dict("records")
    }
    of_best = lift[lift["method"] == BEST_FEDERATED].to_dict("records")
    lifts: dict[tuple[str, str, str], Mapping[Any, Any]] = {
        (row["metric"], row["reference"], row["client"]): row for row in of_best
    }
    nothing: Mapping[Any, Any] = {**flat(estimate([])), "verdict": FEW}
    chosen = collected.chosen[collected.chosen["without"] == ""]
    records = collected.records.to_dict("records")
    results = []
    for client in collected.clients if study.candidates else ():
        metric = study.choose[client]
        choices = chosen[chosen["client"] == client].groupby("best")["method"]
        often = {str(best): str(methods.value_counts().idxmax()) for best, methods in choices}
        varied = choices.nunique() > 1
        row = lifts.get((metric, study.best_alone, client), nothing)
        bar = lifts.get((metric, HINDSIGHT, client), nothing)
        remarks = _leaves(records, client, often.get(BEST_FEDERATED))
        if HINDSIGHT in often and bar["mean"] != row["mean"] and math.isfinite(bar["mean"]):
            score = COMPARED[metric]
            value = scores.get((metric, HINDSIGHT, client), math.nan)
            over = (
                f"Lift over the best alone in hindsight ({study.labels[often[HINDSIGHT]]}, "
                f"{score.text(value)})"
            )
            remarks = [f"{over}: {score.text(bar['mean'], signed=True)}{points(score)}", *remarks]
        if (left_out["joins"] == client).any():
            remarks.append(_joining(left_out, client, COMPARED[metric]))
        federated = scores.get((metric, BEST_FEDERATED, client), math.nan)
        alone = scores.get((metric, study.best_alone, client), math.nan)
        usual = often.get(BEST_FEDERATED), often.get(BEST_ALONE)
        changing = bool(varied.get(BEST_FEDERATED, False)), bool(varied.get(BEST_ALONE, False))
        results.append(
            Answer(study, client, metric, federated, alone, row, usual, changing, remarks)
        )
    return results


def summary(answers: Sequence[Answer], few: bool = True) -> str:
    """Summarise the answers of all clients in a sentence; "" if there are none.

    Args:
        answers: all answers.
        few: whether every answer is shown; if not, the sentence states which are.
    """
    if not answers:
        return ""
    parts = []
    for verdict in TITLES:
        clients = [answer.client for answer in answers if answer.verdict == verdict]
        if clients:
            parts.append(f"{_SUMMARY[verdict].format(len(clients))} ({shorten(clients, 4)})")
    plural = "s" if len(answers) > 1 else ""
    sentence = f"Of {len(answers)} client{plural}, {'; '.join(parts)}"
    if few:
        return sentence
    return (
        f"{sentence}. The clients with the smallest and largest gains are shown; lift.csv has all"
    )


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
        client_answers = answers(study, collected, of_scores, of_lifts, left_out)
        if blocked := blocked_clients(details.get("blocks", ()), collected.clients):
            free = [client for client in collected.clients if client not in blocked]
            client_answers = [answer for answer in client_answers if answer.client in free]
            # A mean over several clients contains those of blocked ones, too.
            of_lifts.loc[~of_lifts["client"].isin(free), "verdict"] = BLOCKED
            left_out.loc[
                ~(left_out["client"].isin(free) & left_out["joins"].isin(free)), "verdict"
            ] = BLOCKED
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
        from fedlit.show.effects import plot_intervals

        methods = [*self.study.methods]
        expect(bool(self.answers), "plot", "a study with a federated method", methods, "add one")
        extreme_answers = self.shown_answers
        score = score or extreme_answers[0].score
        compared = [answer for answer in extreme_answers if answer.score == score]
        values = [drawn(score, answer.lift["mean"]) for answer in compared]
        lows = [drawn(score, answer.lift["low"]) for answer in compared]
        highs = [drawn(score, answer.lift["high"]) for answer in compared]
        label = f"lift in {score.label}, {lift_unit(score)}, with 95 % intervals"
        clients = [answer.client for answer in compared]
        return plot_intervals(clients, values, lows, highs, label, axes)

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
            answer.client: answer.lift["mean"]
            for answer in self.answers
            if math.isfinite(answer.lift["mean"])
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
