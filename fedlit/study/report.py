"""A study's report: one HTML file that needs nothing else, for people who would rather look than read."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fedlit.explain.clusters import CLUSTERS, PAIRS, judged
from fedlit.explain.judge import CORRECTIONS, judge
from fedlit.explain.words import ABOUT
from fedlit.files import read_named, write_text
from fedlit.show.canvas import svg_text
from fedlit.show.clusters import membership_figure, pairs_figure
from fedlit.show.corrections import heatmap_figure
from fedlit.show.palette import THEME
from fedlit.statistics import ALONE, JOIN
from fedlit.study import figures
from fedlit.study.answer import answer_cards, shown, summary
from fedlit.study.explanations import about_explanations, explanations
from fedlit.study.findings import Findings
from fedlit.study.job import DONE, digest_of, each_variant, title_of, variant_name
from fedlit.study.lift import WORST, client_label
from fedlit.study.seeds import seed_words
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED
from fedlit.study.tables import chosen_table, cluster_table, joining_tables, lift_table, score_table, tuned_lines
from fedlit.study.units import drawn, heading, in_percent, lift_unit
from fedlit.study.words import about_joining, context, each_of, glossary, paper_notes
from fedlit.tasks import Score

__all__ = ["write_report"]

MOST_FINDINGS = 20
MOST_SEEDS = 3  # whose clusters are drawn


def write_report(found: Findings, path: Path, provenance: list[str]) -> None:
    """Write the report, unless the same is there: its pictures take long.

    Args:
        found: the study's results.
        path: of the file.
        provenance: how it was made, a line each.
    """
    environment = Environment(
        loader=PackageLoader("fedlit.study", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"whole": _whole, "breakable": _breakable, "bar": _bar}
    results = pd.util.hash_pandas_object(found.collected.results, index=False).to_numpy()
    same = digest_of([version("fedlit"), hashlib.blake2b(results.tobytes()).hexdigest(), repr(found.study), found.seeds,
                      list(found.notes), found.failures, provenance])  # fmt: skip
    mark = f"<!-- {same} -->"
    if path.is_file() and path.read_text(encoding="utf-8").rstrip().endswith(mark):
        return
    found = replace(found, study=found.finished)
    page = environment.get_template("report.html.j2").render(**_content(found, provenance))
    write_text(f"{page}\n{mark}\n", path)


def _whole(text: str) -> str:
    r"""A cell's second line with spaces at which it may not be broken but before a bracket and behind a comma: what
    belongs to a number stays with it, however narrow the page.

    Example:
        >>> _whole("± 7.81 (0.00 to 100.00), p 0.03").split(" ")
        ['±\xa07.81', '(0.00\xa0to\xa0100.00),', 'p\xa00.03']
    """
    return re.sub(r"(?<!,) (?!\(|n =)", "\xa0", text)


def _breakable(name: str) -> Markup:
    """A name that may be broken behind its underscores, and nowhere else."""
    return Markup(str(escape(name)).replace("_", "_<wbr>"))


def _bar(own: tuple[float, float, float, float]) -> Markup:
    """A lift and its interval as a bar around zero, with what does not matter in grey; nothing where there is none.

    Args:
        own: lower end, mean and upper end of the lift, and the least that matters.
    """
    low, mean, high, least = own
    if not np.isfinite(low + high + mean):
        return Markup("")
    reach = 1.1 * max(-low, high, 2 * least, 1e-9)
    at = [f"{50 + 50 * value / reach:.2f}" for value in (-least, least, low, mean, high)]
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{told}">'
        '<rect x="{at[0]}" width="{wide:.2f}" height="10"/><path d="M50 0V10"/>'
        '<path class="lift" d="M{at[2]} 5H{at[4]}M{at[2]} 2V8M{at[4]} 2V8"/>'
        '<path class="mean" d="M{at[3]} 1V9"/></svg>'
    ).format(
        told=f"lift {mean:+.3g}, 95 % interval {low:+.3g} to {high:+.3g}; less than {least:.3g} does not matter",
        at=at, wide=100 * least / reach,
    )  # fmt: skip


def _content(found: Findings, provenance: list[str]) -> dict[str, Any]:
    study = found.study
    drawn_as = figures.looks(study)
    cards, joins = answer_cards(found), joining_tables(found)
    kinds = {
        *(card.kind for card in cards),
        *found.lift[found.lift["metric"].isin([score.name for score in found.scores])]["verdict"],
        *(cell.kind for _, own in joins for _, cells in own.rows for cell in cells),
    }
    drawn_methods = [method for method in study.methods if (found.estimates["method"] == method).any()]
    return {
        "study": study,
        "theme": THEME,
        "seeds": seed_words(found.seeds),
        "count": len(found.seeds),
        "unit": in_percent(found.scores),
        "context": context(found),
        "notes": found.notes,
        "answers": shown(found, cards),
        "summary": summary(cards),
        "verdicts": [kind for kind in (JOIN, ALONE) if kind in kinds],
        "metrics": [_metric(found, score) for score in found.scores],
        "choose": " or ".join(score.label for score in found.choices),
        "legend": [(study.labels[method], drawn_as[method]) for method in drawn_methods],
        "signs": list(dict.fromkeys(drawn_as[method].sign for method in drawn_methods)),
        "federated": BEST_FEDERATED in study.labels,
        "alone": study.labels.get(BEST_ALONE),
        "reference": study.labels[study.reference],
        "chosen": chosen_table(study, found.collected.chosen) if len(found.collected.chosen) else None,
        "joining": joins,
        "about_joining": about_joining(found),
        "tuned": tuned_lines(study, found.collected),
        "explanations": explanations(found),
        "about_explanations": about_explanations(),
        "together": cluster_table(study, found.collected),
        "clusters": _clusters(found),
        "corrections": _corrections(found),
        "about_corrections": ABOUT,
        "times": _times(found),
        "words": glossary(),
        "paper": paper_notes(study),
        "provenance": provenance,
        "failures": found.failures,
        "configurations": _configurations(found),
    }


def _metric(found: Findings, score: Score) -> dict[str, Any]:
    """What is shown of one score."""
    study, curves = found.study, found.collected.curves
    lift = found.lift[found.lift["metric"] == score.name]
    clients = found.clients_of(score)
    finite = lift[["low", "high", "mean"]].to_numpy(float)
    finite = drawn(score, finite[np.isfinite(finite)])
    reach = 1.08 * float(np.abs(finite).max()) if len(finite) and np.abs(finite).max() else 1.0
    if means := np.nanmax(np.abs(drawn(score, lift["mean"].to_numpy(float))), initial=0.0):
        reach = min(reach, 8 * float(means))  # intervals of few seeds would flatten all that was found
    logged = set(curves.loc[curves["metric"] == f"val/{score.name}", "client"])
    return {
        "label": score.label,
        "heading": heading(score),
        "unit": lift_unit(score),
        "scores": score_table(study, found.estimates, score, found.clients),
        "lifts": [
            (study.labels[reference], lift_table(study, found.lift, score, reference, found.clients))
            for reference in found.lift["reference"].unique()
        ],
        "forests": [
            (study.labels[method], figures.lift_figure(study, lift, score, method, clients, (-reach, reach)))
            for method in study.labels
            if (found.lift["method"] == method).any()
        ],
        "dots": [
            (client_label(client), figures.scores_figure(study, found.estimates, score, client))
            for client in clients
            if client != WORST
        ],
        "curves": [
            (client, figures.curves_figure(study, curves, score, client, _alone(found, score.name, client)))
            for client in found.collected.clients
            if client in logged
        ],
    }


def _alone(found: Findings, metric: str, client: str) -> float | None:
    values = found.collected.values(metric, "validation")
    return float(values[BEST_ALONE, client].mean()) if (BEST_ALONE, client) in values else None


def _clusters(found: Findings) -> list[tuple[str, list[tuple[str, str]]]]:
    """Of each method that tells clients apart: who was together, of the first seeds, and what the first measured."""
    study, clusters = found.study, found.collected.clusters
    sections = []
    for name, tuned in each_variant(study):
        label, figures = title_of(study.labels[name], tuned), []
        seeds = clusters.loc[clusters["method"] == title_of(name, tuned), "seed"].unique().tolist()
        for seed in seeds[:MOST_SEEDS]:
            folder = found.folder / "runs" / variant_name(name, tuned) / f"seed_{seed}"
            frame = read_named(folder / CLUSTERS)
            title = f"{label}: who is together, seed {seed}"
            figures.append((title, svg_text(membership_figure(frame), title)))
            if seed == seeds[0] and (folder / PAIRS).is_file():
                title = f"{label}: pairs of clients in the last round, seed {seed}"
                figures.append((title, svg_text(pairs_figure(read_named(folder / PAIRS), judged(frame)), title)))
        if figures:
            sections.append((label, figures))
    return sections


def _corrections(found: Findings) -> list[dict[str, Any]]:
    """Of each method whose clients show what they correct: its findings in words, and pictures; means over seeds."""
    sections = []
    for method, label in found.study.labels.items():
        if method in found.study.methods and found.study.methods[method].tune:
            continue  # clients chose different federations: what they correct cannot be compared
        seeds = [found.folder / "runs" / method / f"seed_{seed}" for seed in found.seeds]
        files = [
            folder / CORRECTIONS for folder in seeds if (folder / DONE).is_file() and (folder / CORRECTIONS).is_file()
        ]
        if not files:
            continue
        values = pd.concat([read_named(file) for file in files])
        judged = judge(values.groupby(["client", "part", "feature"], sort=False)["value"].mean().reset_index())
        drawn = [
            (f"{side}s", svg_text(heatmap_figure(judged, side), f"{label}: corrected {side}s")) for side in judged.sides
        ]
        words = judged.findings["words"].tolist()
        more = len(words) - MOST_FINDINGS
        sections.append(
            {"label": label, "words": words[:MOST_FINDINGS], "more": max(more, 0), "figures": drawn, "runs": len(files)}
        )
    return sections


def _times(found: Findings) -> list[tuple[str, str, str]]:
    """(method, mean seconds of a run, runs)."""
    records = found.collected.records
    lines = []
    for method, label in found.study.labels.items():
        own = records[records["method"] == method]
        if len(own):
            seconds = own["seconds"].astype(float).mean()
            shown = f"{seconds:.1f} s{each_of(found.study, method)}" if np.isfinite(seconds) else "–"
            lines.append((label, shown, str(len(own))))
    return lines


def _configurations(found: Findings) -> list[tuple[str, str]]:
    """The study's own file, and the resolved configuration of each method's first run, of its first combination."""
    study = found.study
    texts = []
    file = Path(study.folder) / f"{study.name.partition('/')[0]}.yaml"  # behind a slash is a scenario
    if study.folder and file.is_file():
        texts.append((f"the study: {file.name}", file.read_text(encoding="utf-8")))
    for name, method in study.methods.items():
        settings = method.combinations[0]
        folder = found.folder / "runs" / variant_name(name, settings)
        for config in sorted(folder.glob("seed_*/version_*/config.yaml"))[:1]:
            lines = config.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if not line.startswith("#") and "default_root_dir" not in line]
            texts.append((f"{title_of(study.labels[name], settings)}: {config.parent.parent.name}", "\n".join(kept)))
    return texts
