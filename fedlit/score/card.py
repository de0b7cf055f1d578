"""The model card of an exported client, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader

from fedlit.score.folder import columns_of
from fedlit.score.mixed import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.tasks import SCORES

_SEEN = "one of those that training had; another one counts as missing"
_TREATED = {
    "numeric": "standardised; a missing one counts as the training mean",
    "coded": _SEEN,
    "boolean": "true or false",
    "categorical": _SEEN,
}


def model_card(scorer: Scorer, checked: str, scores: Mapping[str, Any] | None = None) -> str:
    """Return the model card.

    Args:
        scorer: the scorer of the client.
        checked: a sentence that states what its predictions were compared with.
        scores: its scores on its test rows, if they are known.
    """
    found = scores or {}
    models = [folds[0] for folds in scorer.scorers.values()] if isinstance(scorer, MixedScorer) else [scorer]
    environment = Environment(
        loader=PackageLoader("fedlit.score", "."), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).replace("|", "\\|").split())
    made = {"on": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version()}
    return environment.get_template("card.md.j2").render(
        scorer=scorer,
        weights=scorer.weights if isinstance(scorer, MixedScorer) else None,
        about=scorer.about,
        made=made | {name: version(name) for name in ("fedlit", "torch")},
        checked=checked,
        known=[(SCORES[name].label, value) for name, value in found.items() if name in SCORES and value is not None],
        rows=found.get("rows"),
        columns={own["name"]: own for model in models for own in columns_of(model.encoder)}.values(),
        treated=_TREATED,
    )
