"""``fedlit recommend``: tries sensible candidates within a time limit, and advises each client
whether to join, and with which method.

<out>/<name>_<part>.yaml     the candidates, as ordinary configurations
     /<name>_best.yaml       the mixture of local parts and of those by which some client may gain
     /recommend.json         what was found; written last
     /trained/               the mixture of all candidates
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.answers.answer import Answer
from fedlit.answers.shown import plot_lifts
from fedlit.answers.verdict import MATTERS, VERDICTS, Verdict
from fedlit.data.findings import Findings
from fedlit.errors import expect, must_be_known
from fedlit.jobs.workers import Room
from fedlit.mixture.advice import advise
from fedlit.mixture.candidates import Survey, candidates_of
from fedlit.mixture.combine import Combined
from fedlit.mixture.folders import newest
from fedlit.mixture.inquiry import DONE, Inquiry
from fedlit.mixture.mixture import Mixture
from fedlit.run.config import shown
from fedlit.score.plain import write_json
from fedlit.show.shown import Grid, Part, Shown, card_html, for_terminal
from fedlit.show.text import MOST_ROWS, Verbatim, counted, more, shorten
from fedlit.train.supplement import Supplement

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Recommendation(Shown):
    """The answers to all clients.

    Attributes:
        clients: maps each client to its answer.
        mixtures: maps each client to the mixture that its held-out rows chose.
        labels: maps each trained candidate to its name for the user.
        wanted: the federated candidates in the mixture of a client that should join, or that may
            gain although there is not enough data to decide.
        missing: maps a candidate to the reason why it was not tried, or to what its training lacks.
        survey: what is known about the tables.
        mixture: the mixture of all trained candidates.
        seconds: the seconds until training ended, the seconds in total, and the budget.
        best: the file of the mixture of local and wanted parts.
        supplements: scores at thresholds and by group, if the configuration asks for them.
        notes: all findings about the tables, if somebody has looked for them.
    """

    clients: dict[str, Answer]
    mixtures: dict[str, Combined]
    labels: dict[str, str]
    wanted: tuple[str, ...]
    missing: dict[str, str]
    survey: Survey
    mixture: Mixture
    seconds: tuple[float, float, float]
    best: Path
    supplements: tuple[Supplement, ...] = ()
    notes: Findings = field(default_factory=Findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the answers as plain data, as in ``recommend.json``."""
        settings = self.mixture.settings
        plan = self.mixture.plan
        supplements = dict[str, dict[str, Any]]()
        for supplement in self.supplements:
            supplements[supplement.name] = {name: supplement.of(name) for name in self.clients}
        return {
            "format": 2,
            "config": str(settings.origin),
            "seed": settings.seed,
            "folds": settings.folds,
            "seconds": round(self.seconds[1], 1),
            "budget": self.seconds[2],
            "clients": {
                name: {
                    "rows": self.survey.rows[name], "shared_columns": self.survey.shared[name],
                    "of_columns": self.survey.columns[name], **answer.to_dict(),
                    "with": self._federated(name), "mixture": self.mixtures[name].to_dict(),
                }
                for name, answer in self.clients.items()
            },
            "candidates": {
                name: {"label": label, "own": name in plan.local, "wanted": name in self.wanted}
                for name, label in self.labels.items()
            },
            "missing": self.missing,
            "leaves": {name: plan.sentence(name) for name in self.wanted},
            "notes": list(self.survey.notes),
            **self.survey.findings.to_dict(),
            **supplements,
            "best": str(self.best),
        }  # fmt: skip

    def parts(self) -> list[Part]:
        """Return the table of clients, their answers, the basis of the answers, what would leave a
        site, and the next steps.
        """
        trained, total, budget = self.seconds
        settings = self.mixture.settings
        best = shlex.quote(shown(self.best))
        assert settings.origin is not None
        config = shlex.quote(shown(settings.origin))
        rows = [self._row(name, answer) for name, answer in self.clients.items()]
        scores = list(dict.fromkeys(answer.score.label for answer in self.clients.values()))
        header = ["client", "rows", "shared", "alone", "by", "lift", "95 % interval", "verdict"]
        lines: list[Part] = [f"Note: {sentence}" for sentence in self.survey.findings.sentences()]
        if not self.notes:  # all notes are shown below, these questions among them
            questions = self.survey.findings.open_questions(config)
            lines += [f"Note: {sentence}." for sentence in questions]
        if self.survey.findings.blocks:
            lines += [Verbatim(f"  fedlit check --fix {config}"), ""]
        lines += [f"{' or '.join(scores)} of held-out rows:", Grid(header, rows[:MOST_ROWS])]
        lines += [*more(rows, "clients"), ""]
        lines += self._answers()
        lines += [
            "",
            f"{len(self.labels)} candidates, {settings.folds} folds, seed {settings.seed}. "
            f"Training took {trained:,.0f} s (budget: {budget:,.0f} s), and the answer "
            f"{total - trained:,.0f} s more. Test rows were not used.",
            "alone: the score of the best of a client's local models and their mixture. lift: the "
            "gain of the mixture of local and federated models over it. The same held-out rows "
            f"chose and judged both; a bootstrap corrects the lift for this (optimism in {DONE}). "
            "Intervals are a paired bootstrap over these rows: they cover other rows, but not "
            "another training, nor several clients at once.",
            *(f"Missing: {name}: {why}." for name, why in self.missing.items()),
            *(f"Note: {note}" for note in self.survey.notes),
            "",
        ]
        if self.wanted:
            lines.append("What would leave a site, for each federated part of the written mixture:")
            lines += [self.mixture.plan.sentence(name) for name in self.wanted]
            lines.append(
                "All clients took part in these trainings. Lifts may differ if some of them do not "
                "join."
            )
        else:
            lines.append("Nothing would leave a site: the written mixture has only local parts.")
        for supplement in self.supplements:
            lines += supplement.parts("validation")
        if self.supplements:
            lines.append(
                "These held-out rows also chose the thresholds; fedlit test scores them on test "
                "rows."
            )
        return [
            *lines, "", f"Wrote {shown(self.best)}, and next to it the candidates' configurations and "
                f"{DONE}. Next:",
            Verbatim(f"  fedlit fit --config {best}"), Verbatim(f"  fedlit test --config {best}"),
            *([""] if self.notes else []), *self.notes.parts(),
        ]  # fmt: skip

    def _repr_html_(self) -> str:
        if len(self.clients) > MOST_ROWS:
            return super()._repr_html_()
        from fedlit.show.canvas import THEME

        colours = {Verdict.JOIN: THEME["good"][0], Verdict.ALONE: THEME["bad"][0]}
        cards = [
            card_html(name, f"{answer.sentence}.", colours.get(answer.verdict, "gray"))
            for name, answer in self.clients.items()
        ]
        details = (
            "<details><summary>Scores, data and next "
            f"steps</summary>{super()._repr_html_()}</details>"
        )
        return "".join(cards) + details

    def _answers(self) -> Iterator[str]:
        """Yield a sentence for each client; of many clients, one for each answer."""
        if len(self.clients) <= MOST_ROWS:
            yield from (f"{name}: {answer.sentence}." for name, answer in self.clients.items())
            return
        by_title: dict[str, list[str]] = {}
        for verdict in (*VERDICTS, Verdict.BLOCKED):
            for name, answer in self.clients.items():
                if answer.verdict == verdict:
                    by_title.setdefault(answer.title, []).append(name)
        for title, names in by_title.items():
            yield f"{title}: {counted(len(names), 'client')} ({shorten(names)})."
        yield f"Each client's answer, with its reason, is in {DONE}."

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw each client's lift with its 95 % interval. An interval that includes zero proves no
        gain.

        Args:
            axes: Matplotlib's axes to draw on; if None, new ones, which a notebook shows below the
                cell.
        """
        return plot_lifts(self.clients.values(), axes)

    def _federated(self, client: str) -> list[str]:
        """Return the federated parts of a client's mixture."""
        local = self.mixture.plan.local
        return [name for name in self.mixtures[client].weights if name not in local]

    def _row(self, name: str, answer: Answer) -> list[str]:
        text = answer.score.text
        lift = ["–", "–"]
        if answer.methods:
            low, high = answer.lift.interval
            interval = f"{text(low, signed=True)} to {text(high, signed=True)}"
            lift = [text(answer.lift.mean, signed=True), interval]
        shared = f"{self.survey.shared[name]}/{self.survey.columns[name]}"
        return [
            name,
            f"{self.survey.rows[name]:,}",
            shared,
            text(answer.alone),
            answer.reference,
            *lift,
            answer.verdict.value,
        ]


def recommend(
    config: str | Path, *, budget: float = 600.0, folds: int = 4, seed: int | None = None, by: str | None = None,
    workers: int | None = None, matters: float = MATTERS, out: str | Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> Recommendation:  # fmt: skip
    """Try sensible candidates, and report what each client gains. The targets of test rows are
    never read.

    Args:
        config: the name or path of a configuration with tables; if it has a method, that is a
            candidate, too.
        budget: seconds from the call to the end of training, roughly: a training that has begun
            ends with an epoch, or with the first settings of a local baseline, of which each client
            has all. What is missing is said. The answer takes a little longer.
        folds: the number of folds.
        seed: the seed of everything; that of the configuration if None.
        by: the score that decides; the main one of a client's task if None.
        workers: the number of parallel processes; if None, one per core, or fewer if memory is
            short.
        matters: the smallest lift that matters, in percentage points (see
            :meth:`fedlit.tasks.Score.least_lift`).
        out: the folder for everything; ``recommended/<name>`` if None.
        tell: where progress is told; printed if None.

    Raises:
        ConfigError: a configuration that cannot be read, or a folder with other contents.
        RunError: local models could not be trained.
    """
    begun = time.monotonic()
    expect(budget >= 0, "--budget", "at least 0", budget)
    expect(workers is None or workers >= 1, "--workers", "at least 1", workers)
    notify = tell or (lambda line: print(for_terminal(line), flush=True))
    inquiry = Inquiry.of(config, out, seed, folds)
    surveyed = inquiry.survey()
    if by is not None:
        must_be_known("--by", [by], sorted(surveyed.scores))
    for sentence in surveyed.findings.sentences():
        notify(f"Note: {sentence}")
    if workers is None:
        room = Room.here()  # now that the tables are read
        notify(f"{room.sentence}.")
        workers = room.workers
    candidates, missing = candidates_of(inquiry.content, surveyed)
    mixture = inquiry.mixture(candidates, by, workers)
    notify(f"Trying {', '.join(candidates)} on {folds} folds")
    _train(mixture, budget - (time.monotonic() - begun), notify)
    trained = time.monotonic() - begun
    labels = {
        name: candidate.label for name, candidate in candidates.items() if name not in mixture.out
    }
    clients, mixtures = _answers(mixture, labels, matters, surveyed.findings)
    promising = _promising(mixture, clients, mixtures, labels)
    best = _keep_best(inquiry, mixture, [*labels], promising)
    supplements = mixture.validate(quiet=True).supplements if mixture.score.asked else ()
    seconds = (trained, time.monotonic() - begun, budget)
    lacking = missing | _lacking(mixture)
    recommendation = Recommendation(
        clients, mixtures, labels, promising, lacking, surveyed, mixture, seconds, best, supplements
    )
    write_json(inquiry.folder / DONE, recommendation.to_dict())
    return recommendation


def _train(mixture: Mixture, seconds: float, notify: Callable[[str], None]) -> None:
    """Train all candidates within a number of seconds. An interrupted training is continued."""
    begun_before = "last" if newest(mixture.runs) else None
    mixture.fit(begun_before, quiet=True, seconds=max(0.0, seconds), progress=notify)


def _keep_best(
    inquiry: Inquiry, mixture: Mixture, labels: Sequence[str], promising: Sequence[str]
) -> Path:
    """Mix the local candidates and the promising federated ones, and write this mixture as a
    configuration.
    """
    chosen = [name for name in labels if name in (*mixture.plan.local, *promising)]
    about = "Own models alone."
    if promising:
        about = "Own models, and federated ones that at least one client may gain by."
    mixture.mix(chosen)
    return inquiry.write_best(mixture.settings, chosen, about)


def _answers(
    mixture: Mixture, labels: Mapping[str, str], matters: float, findings: Findings
) -> tuple[dict[str, Answer], dict[str, Combined]]:
    """Return each client's answer, and the mixture that its held-out rows chose. A client that has
    a column which reveals the target has no verdict.
    """
    local = mixture.plan.local
    settings = mixture.settings
    federated = {name: label for name, label in labels.items() if name not in local}
    answers = dict[str, Answer]()
    mixtures = dict[str, Combined]()
    for name, rows in mixture.held.items():
        answers[name], mixtures[name] = advise(
            name, rows, local, settings.mixing, federated, matters=matters, seed=settings.seed
        )
    for name in findings.blocked(answers):
        answers[name] = answers[name].blocked()
    return answers, mixtures


def _promising(
    mixture: Mixture,
    answers: Mapping[str, Answer],
    mixtures: Mapping[str, Combined],
    labels: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the federated candidates by which some client may gain."""
    used = set[str]()
    for name, answer in answers.items():
        if answer.worth_a_try:
            used |= set(mixtures[name].weights)
    local = mixture.plan.local
    return tuple(name for name in labels if name in used and name not in local)


def _lacking(mixture: Mixture) -> dict[str, str]:
    """Map each candidate to the error that ended it, or to what it lacks because time was up."""
    lacks = {name: part.lacks for name, part in mixture.built().items() if name not in mixture.out}
    return {name: why for name, why in {**mixture.out, **lacks}.items() if why}
