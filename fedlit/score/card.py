"""What a person should know of a client that was exported, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from fedlit.score.folder import columns_of
from fedlit.score.mixed import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.tasks import SCORES

__all__ = ["model_card"]

_TREATED = {
    "numeric": "standardised; a missing one counts as the training mean",
    "coded": "one of those that training had; another one counts as missing",
    "boolean": "true or false",
    "categorical": "one of those that training had; another one counts as missing",
}


def model_card(scorer: Scorer, checked: str, scores: Mapping[str, float] | None = None) -> str:
    """The card.

    Args:
        scorer: whose.
        checked: what its predictions were compared with, a sentence.
        scores: on its test rows, if they are known.
    """
    models = [folds[0] for folds in scorer.scorers.values()] if isinstance(scorer, MixedScorer) else [scorer]
    columns = {own["name"]: own for model in models for own in columns_of(model.encoder)}
    classes = scorer.outcome.classes
    what = f"one of {', '.join(map(str, classes))}" if classes else "a number"
    all_there = "All columns must be there. Cells may be empty. Further columns are not used."
    if scorer.labels_reads:
        what += " at each position"
        all_there = f"Or one column `read`, with a row's bases as a text. {all_there}"
    lines = [
        f"# {scorer.encoder.target_name} at {scorer.client}",
        "",
        f"Predicts `{scorer.encoder.target_name}`, {what}, for rows like those of the client `{scorer.client}`.",
        "",
        "## How it was made",
        "",
        *(_mixed(scorer) if isinstance(scorer, MixedScorer) else _trained(scorer.about)),
        f"- Exported on {datetime.now(UTC):%Y-%m-%d}, with fedlit {version('fedlit')}, torch {version('torch')}, "
        f"Python {platform.python_version()}.",
        f"- {checked}",
        "",
        "## Scores on the client's test rows",
        "",
        *_scores(scores),
        "",
        "## Columns",
        "",
        "| column | holds | treatment |",
        "| --- | --- | --- |",
        *(f"| {_cell(own['name'])} | {_holds(own)} | {_TREATED[own['holds']]} |" for own in columns.values()),
        "",
        all_there,
        "",
        "## Use and limits",
        "",
        f"- It is made for rows of `{scorer.client}`, collected as its training rows were. Of others it knows nothing.",
        "- A probability is the network's own. Nobody calibrated it.",
        "- It knows the classes and categories of its training rows alone.",
        "- Its parameters were learnt from training rows. They may tell of these rows, so share the folder with care.",
        "- It is no medical, legal or financial device. Whoever uses it so has to validate it first.",
    ]
    return "\n".join(lines) + "\n"


def _trained(about: Mapping[str, Any]) -> list[str]:
    rows = ", ".join(f"{name} {count:,}" for name, count in dict(about.get("rows", {})).items())
    return [
        f"- Trained by fedlit in a federation: {about.get('client', 'a client')}, {about.get('epochs', '?')} epochs, "
        f"precision {about.get('precision', '32-true')}.",
        f"- Checkpoint: `{about.get('checkpoint', '?')}`.",
        f"- Rows of the client: {rows or 'unknown'}.",
    ]


def _mixed(scorer: MixedScorer) -> list[str]:
    parts, weights = scorer.scorers.items(), scorer.weights
    return [
        "- A mixture: the models of a part's folds are averaged, then parts are mixed by weight.",
        *(f"- `{name}` ({own[0].about.get('client')}, {len(own)}): weight {weights[name]:.3f}." for name, own in parts),
    ]


def _scores(scores: Mapping[str, float] | None) -> list[str]:
    known = [name for name in scores or {} if name in SCORES and scores and scores[name] is not None]
    if not scores or not known:
        return ["Unknown: nobody has run `fedlit test` on this run."]
    table = [f"| {SCORES[name].label} | {scores[name]:.4g} |" for name in known]
    told = f"Of {int(scores['rows']):,} rows, " if "rows" in scores else ""
    return [f"{told}as the run's `test.json` has them; see there for the checkpoint.", "", "| score | value |",
            "| --- | --- |", *table]  # fmt: skip


def _holds(column: Mapping[str, Any]) -> str:
    if "categories" in column:
        shown = [_cell(own) for own in column["categories"][:6]]
        return ", ".join(shown) + (f", … ({len(column['categories'])})" if len(column["categories"]) > 6 else "")
    if "mean" in column:
        return f"numbers, {column['mean']:.4g} ± {column['standard deviation']:.4g}"
    return "numbers, of which training had none"


def _cell(text: Any) -> str:
    """Within a table."""
    return " ".join(str(text).replace("|", "\\|").split())
