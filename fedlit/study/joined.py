"""What a client gains that has joined a run: a table, and the answer in the words of studies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.run.config import shown
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import Verbatim
from fedlit.statistics import MIN_SEEDS, TITLES
from fedlit.study.answer import Answer, answers
from fedlit.study.collect import Collected
from fedlit.study.lift import Scores, estimates, lifts
from fedlit.study.study import BEST_ALONE, Study
from fedlit.study.tables import NOTHING
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

    def parts(self) -> Iterable[str | Grid]:
        """The table, the answer, the notes, the folder."""
        many = len(self.seeds) > 1
        over = f"mean ± standard deviation over {len(self.seeds)} seeds" if many else f"seed {self.seeds[0]}"
        told: list[str | Grid] = [f"{self.client}, test rows, {over}:", "", self._grid(), "", *self.sentences, ""]
        yield from told
        yield from (f"Note: {note}." for note in self.notes)
        yield Verbatim(f"Run folder: {self.folder}")
        yield Verbatim(f"Next: fedlit predict --run {shown(self.folder)} --client {self.client} --data FILE")

    def _grid(self) -> Grid:
        metrics = list(dict.fromkeys(self.table["metric"]))
        rows = []
        for label, mine in self.table.groupby("label", sort=False):
            cells = {row["metric"]: row for row in mine.to_dict("records")}
            values = [self._score(cells[metric]) if metric in cells else NOTHING for metric in metrics]
            rows.append([str(label), *values, _gain(cells[metrics[0]]) if metrics[0] in cells else ""])
        return Grid(["", *(in_unit(COMPARED[metric]) for metric in metrics), "gain of joining [95 %]"], rows)

    def _score(self, row: Mapping[Any, Any]) -> str:
        score = COMPARED[row["metric"]]
        spread = f" ± {printed(score, drawn(score, row['sd']))}" if math.isfinite(row["sd"]) else ""
        return f"{score.text(row['mean'])}{spread}" + (f" (n = {row['n']})" if row["n"] < len(self.seeds) else "")


def _gain(row: Mapping[Any, Any]) -> str:
    score, low, high = COMPARED[row["metric"]], row["gain_low"], row["gain_high"]
    if not math.isfinite(row["gain"]):
        return ""
    between = f" [{score.text(low, signed=True)}, {score.text(high, signed=True)}]" if math.isfinite(low + high) else ""
    return f"{score.text(row['gain'], signed=True)}{between}"


def gains(
    study: Study, collected: Collected, seeds: Sequence[int], tested: int, *, federated: bool
) -> tuple[pd.DataFrame, Answer, list[str]]:
    """The newcomer's table and answer, and the answer in words (see :class:`Joined`).

    Args:
        study: of the methods ``joined`` and ``local`` and local baselines, completed by the newcomer's task.
        collected: the newcomer's results alone.
        seeds: that were trained.
        tested: its test rows.
        federated: whether all clients went on training together.
    """
    scores, (client,) = Scores(collected), collected.clients
    models = [LOCAL, *(study.baselines or ()), BEST_ALONE]
    of_scores, of_lifts = estimates(study, scores), lifts(study, scores, models)
    (answer,) = answers(study, collected, of_scores, of_lifts)
    own = of_scores[(of_scores["client"] == client) & of_scores["metric"].isin(study.metrics or ())]
    own = own[own["method"].isin([JOINED, *models])].rename(columns={"method": "model"})
    own.insert(2, "label", [_label(study, answer, model) for model in own["model"]])
    gain = of_lifts[(of_lifts["method"] == JOINED) & (of_lifts["client"] == client)]
    for end in ("low", "high"):  # of one seed the interval is that of test rows
        gain = gain.assign(**{f"gain_{end}": gain[f"rows_{end}"].where(gain["n"] == 1, gain[end])})
    gain = gain.rename(columns={"reference": "model", "mean": "gain"})
    told = ["metric", "model", "gain", "gain_low", "gain_high", "verdict"]
    table = own[["metric", "model", "label", "n", "mean", "sd"]].merge(gain[told], "left", ["metric", "model"])
    of = "test rows and seeds" if collected.fixed else "seeds"
    table["interval_of"] = ["test rows" if n == 1 else of for n in table["n"]]
    return table.fillna({"verdict": ""}), answer, _sentences(study, answer, seeds, tested, collected.fixed, federated)


def _label(study: Study, answer: Answer, method: str) -> str:
    if method != BEST_ALONE or answer.usual[1] is None:
        return study.labels[method]
    return f"Best alone ({'mostly ' * answer.varied[1]}{study.labels[answer.usual[1]]})"


def _sentences(
    study: Study, answer: Answer, seeds: Sequence[int], tested: int, fixed: bool, federated: bool
) -> list[str]:
    """Whether it should join, in the words of studies."""
    score, client, lift = answer.score, answer.client, answer.lift
    between = f", 95 % interval {score.text(lift['low'], signed=True)} to {score.text(lift['high'], signed=True)}"
    between = between if math.isfinite(lift["low"] + lift["high"]) else ""
    lines = [f"Should {client} join? {TITLES[answer.verdict]}{': ' * bool(answer.why)}{answer.why}."]
    if not lift["n"]:
        return [
            *lines,
            f"No best model alone can be chosen: {score.label} is undefined on {client}'s validation rows (they may "
            "have one class alone). The table has the test scores; give it more validation rows.",
        ]
    best = "best alone" if answer.usual[1] is None else _label(study, answer, BEST_ALONE).lower()
    lines.append(
        f"{score.label} on {tested:,} test rows: joined {score.text(answer.federated)}, {best} "
        f"{score.text(answer.alone)}; gain {score.text(lift['mean'], signed=True)}{points(score)}{between}. "
        f"The best model alone has {choice_words([score])} on validation rows."
    )
    if lift["n"] < len(seeds):
        lines.append(
            f"This is of {lift['n']} of {len(seeds)} seeds: in the others {score.label} is undefined on {client}'s "
            "validation or test rows (they may have one class alone), so that nothing can be chosen or compared."
        )
    if len(seeds) < MIN_SEEDS:
        how = "train the federation anew with other seeds" if federated else "give --seeds 0 1 2, or more"
        lines.append(f"For a verdict {how}.")
    elif not fixed:
        lines.append("Each seed draws its own splits of the same table; the interval is of these (Nadeau and Bengio).")
    return [*lines, *(f"{line}." for line in answer.more)]
