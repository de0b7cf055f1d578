"""What a client gains that has joined a run: a table, and the answer in the words of studies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.run.config import shown
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import Verbatim
from fedlit.statistics import MIN_SEEDS, TITLES
from fedlit.study.answer import answer_card
from fedlit.study.collect import Collected
from fedlit.study.lift import Answer, Scores, answers, flat, judged
from fedlit.study.study import BEST_ALONE, Study
from fedlit.study.units import choice_words, drawn, in_unit, points, printed
from fedlit.tasks import COMPARED

__all__ = ["JOINED", "LOCAL", "Joined", "gains"]

JOINED, LOCAL = "joined", "local"


@dataclass(frozen=True, repr=False, eq=False)
class Joined(Shown):
    """A client that has joined a run.

    Attributes:
        client: its name.
        folder: of its run, which ``fedlit predict`` and ``fedlit export`` take.
        federated: whether all clients went on training together.
        seeds: with which it was trained; the run in the folder is that of the first.
        table: one row per score and model: test score (mean over seeds), and what joining gains over that model.
        answer: joined against the best model alone, chosen on validation rows.
        sentences: the answer in words.
        notes: what a person should know.
    """

    client: str
    folder: Path
    federated: bool
    seeds: list[int]
    table: pd.DataFrame
    answer: Answer
    sentences: list[str]
    notes: list[str]

    def parts(self) -> list[str | Grid]:
        """The table, the answer, the notes, the folder."""
        own = self.table
        metrics = list(dict.fromkeys(own["metric"]))
        rows = []
        for label, mine in own.groupby("label", sort=False):
            cells: dict[str, dict[str, Any]] = {
                row["metric"]: {str(key): value for key, value in row.items()} for row in mine.to_dict("records")
            }
            values = [_score_cell(metric, cells.get(metric), len(self.seeds)) for metric in metrics]
            rows.append([str(label), *values, _lift_cell(metrics[0], cells.get(metrics[0]))])
        head = ["", *(in_unit(COMPARED[metric]) for metric in metrics), "gain of joining [95 %]"]
        return [
            f"{self.client}, test rows{_over(self.seeds)}:", "", Grid(head, rows), "", *self.sentences, "",
            *(f"Note: {note}" for note in self.notes),
            Verbatim(f"Run folder: {self.folder}"),
            Verbatim(f"Next: fedlit predict --run {shown(self.folder)} --client {self.client} --data FILE"),
        ]  # fmt: skip


def gains(
    study: Study, collected: Collected, seeds: Sequence[int], tested: int, *, federated: bool
) -> tuple[pd.DataFrame, Answer, list[str]]:
    """The newcomer's table and answer, and the answer in words (see :class:`Joined`).

    Args:
        study: of the methods ``joined`` and ``local`` and go-alone models, completed by the newcomer's task.
        collected: the newcomer's results alone.
        seeds: that were trained.
        tested: its test rows.
        federated: whether all clients went on training together.
    """
    scores, (client,) = Scores(collected), collected.clients
    answer = answers(study, scores)[0]
    rows = []
    for metric in study.metrics or ():
        for method in (JOINED, LOCAL, *(study.baselines or ()), BEST_ALONE):
            own, (gain, _) = scores.estimate(method, client, metric), scores.lift(JOINED, method, client, metric)
            if not own.n:
                continue
            itself, one = method == JOINED, gain.n == 1
            low, high = (math.nan,) * 2 if itself else gain.rows if one else gain.interval
            least = scores.least(method, client, metric, study.matters)
            rows.append(
                {
                    "metric": metric, "model": method, "label": _label(study, answer, method),
                    **{key: value for key, value in flat(own).items() if key in ("n", "mean", "sd")},
                    "gain": math.nan if itself else gain.mean, "gain_low": low, "gain_high": high,
                    "interval_of": "test rows" if one else "test rows and seeds" if collected.fixed else "seeds",
                    "verdict": "" if itself else judged(gain, least),
                }
            )  # fmt: skip
    return pd.DataFrame(rows), answer, _sentences(study, answer, seeds, tested, collected.fixed, federated)


def _label(study: Study, answer: Answer, method: str) -> str:
    if method != BEST_ALONE or answer.usual_alone is None:
        return study.labels[method]
    return f"Best alone ({'mostly ' * answer.varied[1]}{study.labels[answer.usual_alone]})"


def _sentences(
    study: Study, answer: Answer, seeds: Sequence[int], tested: int, fixed: bool, federated: bool
) -> list[str]:
    """Whether it should join, in the words of studies."""
    score, card, client = COMPARED[study.choice_of(answer.client)], answer_card(study, answer), answer.client
    low, high = answer.lift.interval
    between = f", 95 % interval {score.text(low, signed=True)} to {score.text(high, signed=True)}"
    between = between if math.isfinite(low + high) else ""
    lines = [f"Should {client} join? {TITLES[card.kind]}{': ' * bool(card.why)}{card.why}."]
    if not answer.lift.n:
        return [
            *lines,
            f"No best model alone can be chosen: {score.label} is undefined on {client}'s validation rows (they may "
            "have one class alone). The table has the test scores; give it more validation rows.",
        ]
    lines.append(
        f"{score.label} on {tested:,} test rows: joined {score.text(answer.federated.mean)}, {_best(study, answer)} "
        f"{score.text(answer.alone.mean)}; gain {score.text(answer.lift.mean, signed=True)}{points(score)}{between}. "
        f"The best model alone has {choice_words([score])} on validation rows."
    )
    if 0 < answer.lift.n < len(seeds):
        lines.append(
            f"This is of {answer.lift.n} of {len(seeds)} seeds: in the others {score.label} is undefined on {client}'s "
            "validation or test rows (they may have one class alone), so that nothing can be chosen or compared."
        )
    if len(seeds) < MIN_SEEDS:
        lines.append(
            "For a verdict "
            + ("train the federation anew with other seeds" if federated else "give --seeds 0 1 2, or more")
            + "."
        )
    elif not fixed:
        lines.append("Each seed draws its own splits of the same table; the interval is of these (Nadeau and Bengio).")
    if card.hindsight:
        lines.append(f"{card.hindsight}.")
    return lines


def _best(study: Study, answer: Answer) -> str:
    return "best alone" if answer.usual_alone is None else _label(study, answer, BEST_ALONE).lower()


def _over(seeds: Sequence[int]) -> str:
    return f", seed {seeds[0]}" if len(seeds) == 1 else f", mean ± standard deviation over {len(seeds)} seeds"


def _score_cell(metric: str, row: Mapping[str, Any] | None, seeds: int) -> str:
    if row is None:
        return "–"
    score = COMPARED[metric]
    spread = f" ± {printed(score, drawn(score, row['sd']))}" if math.isfinite(row["sd"]) else ""
    return f"{score.text(row['mean'])}{spread}" + (f" (n = {row['n']})" if row["n"] < seeds else "")


def _lift_cell(metric: str, row: Mapping[str, Any] | None) -> str:
    score = COMPARED[metric]
    if row is None or not math.isfinite(row["gain"]):
        return ""
    low, high = row["gain_low"], row["gain_high"]
    between = f" [{score.text(low, signed=True)}, {score.text(high, signed=True)}]" if math.isfinite(low + high) else ""
    return f"{score.text(row['gain'], signed=True)}{between}"
