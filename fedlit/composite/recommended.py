"""What ``fedlit recommend`` found, as people read it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedlit.composite.advice import Advice
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, Verbatim, more

__all__ = ["DONE", "Leaving", "Recommendation"]

DONE = "recommend.json"


@dataclass(frozen=True)
class Leaving:
    """What of a part leaves a client.

    Attributes:
        before: what is told before the first step, as :attr:`fedlit.run.plan.Plan.before`.
        exchanges: in one training; there are as many trainings as folds.
        bytes: of a client in an exchange, both ways, as measured in the pilot.
        sentence: all of it in words.
    """

    before: tuple[dict[str, Any], ...]
    exchanges: int
    bytes: int
    sentence: str


@dataclass(frozen=True, repr=False)
class Recommendation(Shown):
    """Each client's answer.

    Attributes:
        name: of the configuration.
        clients: client → its answer.
        labels: candidate that was trained → as people read it.
        own: those that nobody else had a share in.
        wanted: federated ones in the mixture of a client that should join, or may
            gain though there is not enough data to tell.
        leaving: federated candidate → what of it leaves a client.
        out: candidate → why it was not tried, or not trained to its end.
        cut: candidate → its epochs, and those that it should have.
        folds: as asked for, and as used.
        seed: of everything.
        seconds: that it took.
        budget: seconds that were given.
        notes: of the tables.
        best: the file of the mixture.
    """

    name: str
    clients: dict[str, Advice]
    labels: dict[str, str]
    own: tuple[str, ...]
    wanted: tuple[str, ...]
    leaving: dict[str, Leaving]
    out: dict[str, str]
    cut: dict[str, tuple[int, int]]
    folds: tuple[int, int]
    seed: int
    seconds: float
    budget: float
    notes: tuple[str, ...]
    best: Path

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in ``recommend.json``."""
        return {
            "format": 1,
            "config": self.name,
            "seed": self.seed,
            "folds": self.folds[1],
            "seconds": round(self.seconds, 1),
            "budget": self.budget,
            "clients": {name: own.to_dict() for name, own in self.clients.items()},
            "candidates": {
                name: {"label": label, "own": name in self.own, "wanted": name in self.wanted}
                for name, label in self.labels.items()
            },
            "left_out": self.out,
            "cut": {name: {"epochs": own, "of": whole} for name, (own, whole) in self.cut.items()},
            "leaves": {name: asdict(own) for name, own in self.leaving.items()},
            "notes": list(self.notes),
            "best": str(self.best),
        }

    def parts(self) -> list[str | Grid]:
        """The table of clients, a sentence for each, what it rests on, what would leave a site, how to go on."""
        rows = [self._row(name, own) for name, own in self.clients.items()]
        scores = list(dict.fromkeys(own.score.label for own in self.clients.values()))
        header = ["client", "rows", "shared", "alone", "by", "lift", "95 % interval", "verdict"]
        lines: list[str | Grid] = [f"{' or '.join(scores)} of held-out rows:", Grid(header, rows[:MOST_ROWS])]
        lines += [*more(rows, "clients"), ""]
        lines += [f"{name}: {own.verdict.sentence}." for name, own in self.clients.items()]
        return [*lines, "", *self._ground(), "", *self._leaves(), "", *self._further()]

    def _row(self, name: str, own: Advice) -> list[str]:
        text, (low, high) = own.score.text, own.interval
        shared = f"{len(own.common.columns)}/{own.common.of_columns}"
        lift = ["–", "–"]
        if own.parts:
            lift = [text(own.lift, signed=True), f"{text(low, signed=True)} to {text(high, signed=True)}"]
        return [name, f"{own.common.rows:,}", shared, text(own.alone), own.best, *lift, own.verdict.kind]

    def _ground(self) -> list[str]:
        """What it rests on, and what was not tried."""
        lines = [
            f"{len(self.labels)} candidates, {self.folds[1]} folds, seed {self.seed}: {self.seconds:,.0f} s of "
            f"{self.budget:,.0f}. Test rows were not touched.",
            "alone: the best of a client's own parts and their blend. lift: of the mixture of own and federated parts "
            "over it. The same held-out rows chose both; the lift is corrected for that (by the bootstrap, optimism in "
            f"{DONE}). Intervals are a paired bootstrap over these rows: they speak of other rows, not of another "
            "training, nor of several clients at once.",
        ]
        if self.folds[0] != self.folds[1]:
            lines.append(f"Because of the budget: {self.folds[1]} folds instead of {self.folds[0]}.")
        lines += [
            f"Because of the budget: {name} has {own} epochs instead of {whole}."
            for name, (own, whole) in self.cut.items()
        ]
        lines += [f"Left out: {name}: {why}." for name, why in self.out.items()]
        return [*lines, *(f"Note: {note}" for note in self.notes)]

    def _leaves(self) -> list[str | Grid]:
        """What would leave a site."""
        if not self.wanted:
            why = "no client gains by a federated part" if self.leaving else "no federated part was tried"
            return [f"Nothing would leave a site: {why}, so the mixture that is written has own parts alone."]
        rows = [
            [
                name,
                ", ".join(client for client, own in self.clients.items() if own.worth_a_try and name in own.parts),
                str(self.leaving[name].exchanges), f"{self.leaving[name].bytes:,}",
                "yes" if self.leaving[name].before else "nothing",
            ]
            for name in self.wanted
        ]  # fmt: skip
        lines: list[str | Grid] = [
            "What would leave a site, by parts of the mixture that is written: those of clients that should join, or "
            "may gain though there is not enough data to tell. Bytes are of a client, both ways.",
            Grid(["part", "for", "exchanges", "bytes each", "told before"], rows),
        ]
        lines += [self.leaving[name].sentence for name in self.wanted]
        lines.append(
            f"All {len(self.clients)} clients took part in these trainings. Without those that do not join, lifts may "
            "be others."
        )
        return lines

    def _further(self) -> list[str]:
        best = shlex.quote(str(self.best))
        return [
            f"Wrote {self.best}, the candidates' configurations and {DONE} beside it. Next:",
            Verbatim(f"  fedlit fit --config {best}"),
            Verbatim(f"  fedlit test --config {best}"),
        ]
