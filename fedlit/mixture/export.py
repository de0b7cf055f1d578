"""``fedlit export``: writes a client of a run as a folder of data, after comparing its predictions
with the run's.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from numpy.typing import NDArray

from fedlit.data.columns import NUMBERS
from fedlit.data.row_encoder import RowEncoder
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.files import naming
from fedlit.mixture.opened import opened
from fedlit.run.run import Run
from fedlit.score.folder import columns_of, load, write
from fedlit.score.folder_checks import MAIN
from fedlit.score.mixed_scorer import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.show.shown import Shown
from fedlit.show.text import Verbatim, in_markdown
from fedlit.tasks import SCORES

MOST_ROWS = 1000  # that are compared
TOLERANCE = 1e-6


@dataclass(frozen=True, repr=False)
class Exported(Shown):
    """The exported folder, and how it was checked.

    Attributes:
        folder: the exported folder, which is complete in itself.
        checked: a sentence that states what it was compared with.
        bytes: the size of all files.
    """

    folder: Path
    checked: str
    bytes: int

    def parts(self) -> list[str]:
        """Return how it was checked, and the folder."""
        return [self.checked, Verbatim(f"Wrote {self.folder} ({self.bytes / 2**20:.1f} MiB)")]


def export(
    run: str | Path,
    client: str,
    out: str | Path | None = None,
    checkpoint: str | Path = "last",
    *,
    quiet: bool = False,
) -> Exported:
    """Write one client of a trained run as a folder of data. If the run has several parts, write
    the client's whole mixture.

    Args:
        run: a run's folder, or the name of a configuration, which stands for its newest run.
        client: the name of the client.
        out: the folder to write; ``export/<client>`` in the run's folder if None. An earlier export
            is replaced.
        checkpoint: ``last``, ``best`` or a file; for a mixture ``last``.
        quiet: whether not to print which checkpoint is used.

    Raises:
        ConfigError: there is no such run, checkpoint or client, the folder holds something else, or
            a package is missing.
        RunError: the client cannot be exported, or its export predicts something else.
    """
    scorer, folder, loaded = opened(run, client, checkpoint, quiet=quiet)
    target = Path(out) if out is not None else folder / "export" / client
    return export_scorer(scorer, target, _test_rows(loaded, client), _scores(folder, client))


def export_scorer(
    scorer: Scorer,
    out: Path,
    rows: pd.DataFrame | None = None,
    scores: dict[str, Any] | None = None,
) -> Exported:
    """Write a scorer that ``Run.client`` or ``Mixture.client`` returned.

    Args:
        scorer: a scorer of a run.
        out: the folder.
        rows: the rows for the comparison; random ones if None.
        scores: the scores on the client's test rows, for the model card.

    Raises:
        ConfigError, RunError: see :func:`export`.
    """
    with _written_whole(out) as folder:
        write(folder, scorer, of_rows=False)
        checked = _compare(scorer, load(folder), rows)
        (folder / "model_card.md").write_text(model_card(scorer, checked, scores), encoding="utf-8")
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Exported(out, checked, size)


@contextmanager
def _written_whole(out: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces another one when it is complete. If it is never
    completed, nothing is left of it.

    Raises:
        ConfigError: the folder holds something other than an earlier export.
    """
    if out.exists() and not (out / MAIN).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"--out: expected a new folder, or one of an earlier export, found {out} with other "
            "contents"
        )
    with naming(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(mkdtemp(prefix=".export-", dir=out.parent))
        try:
            yield partial
            partial.chmod(0o755)
            if out.exists():
                shutil.rmtree(out)
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _compare(original: Scorer, read: Scorer, rows: pd.DataFrame | None) -> str:
    """Check that both scorers predict the same, and return a sentence that says so.

    Raises:
        RunError: their predictions differ.
    """
    if rows is not None and len(rows):
        kind = "test rows of the client"
        frame = rows
    else:
        encoders = [model.encoder for model in _models(original)]
        widest = max(encoders, key=lambda encoder: len(encoder.columns))
        kind = "random rows, for its tables are not here"
        frame = random_rows(widest, MOST_ROWS)
    worst = 0.0
    # One row is predicted alone, too: what is traced must not depend on the number of rows.
    for part in (frame, frame.head(1)):
        expected = predictions_of(original, part).astype(np.float64)
        predictions = predictions_of(read, part).astype(np.float64)
        worst = max(worst, float(np.abs(predictions - expected).max()))
        if not np.allclose(
            predictions, expected, rtol=TOLERANCE, atol=TOLERANCE * original.outcome.magnitude
        ):
            raise RunError(
                f"client {original.client!r}: expected the exported network to predict what the run "
                f"predicts, found differences of up to {worst:.3g} on {len(part):,} {kind}; "
                "nothing was written. A network that draws random numbers, or looks at how many "
                "rows there are, cannot be exported: use fedlit predict --run"
            )
    return (
        f"Checked: on {len(frame):,} {kind} it predicts what the run predicts (largest "
        f"difference {worst:.2g})."
    )


def _models(scorer: Scorer) -> list[Scorer]:
    """Return the scorer of each part of a mixture, that of its first fold; a single scorer is its
    only model.
    """
    if isinstance(scorer, MixedScorer):
        return [folds[0] for folds in scorer.scorers.values()]
    return [scorer]


def predictions_of(scorer: Scorer, frame: pd.DataFrame) -> NDArray[Any]:
    """Return the predictions for rows that are already typed, like those of a table."""
    if isinstance(scorer, MixedScorer):
        of_parts = dict[str, list[NDArray[Any]]]()
        for name, folds in scorer.scorers.items():
            of_parts[name] = [predictions_of(model, frame) for model in folds]
        return scorer.mix(of_parts)
    return scorer.of_inputs(scorer.encoder.transform(frame))


def random_rows(encoder: RowEncoder, rows: int) -> pd.DataFrame:
    """Return random rows within the range of the rows to which an encoder was fitted, with a tenth
    of the cells missing.
    """
    rng = np.random.default_rng(0)
    columns = {}
    for name, column in encoder.columns.items():
        if column.kind == NUMBERS:
            mean = column.moments.mean if column.moments else 0.0
            scale = column.moments.variance**0.5 if column.moments else 1.0
            values = pd.Series(mean + scale * rng.normal(size=rows))
        else:
            values = pd.Series(
                rng.choice(np.array(column.categories or [None], dtype=object), rows), dtype=object
            )
            if column.kind == "boolean":
                values = values.map(bool, na_action="ignore").astype("boolean")
        columns[name] = values.mask(pd.Series(rng.random(rows) < 0.1)).infer_objects()
    return pd.DataFrame(columns)


def _test_rows(run: Callable[[], Run], client: str) -> pd.DataFrame | None:
    """Return the test rows of the client's table, or None if it can no longer be read."""
    try:
        (table,) = (loaded := run().data).source.some([client], loaded.seed)
        return table.features.iloc[table.splits["test"]][:MOST_ROWS]
    except (FedlitError, OSError, KeyError):
        return None


def _scores(folder: Path, client: str) -> dict[str, Any] | None:
    """Return the scores on the client's test rows, as ``fedlit test`` wrote them."""
    try:
        scores: dict[str, Any] = json.loads((folder / "test.json").read_text(encoding="utf-8"))[
            "clients"
        ][client]
    except (OSError, ValueError, KeyError):
        return None
    return scores


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
    known_scores = scores or {}
    models = _models(scorer)
    environment = Environment(
        loader=PackageLoader("fedlit.score", "."),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["text"] = in_markdown
    environment.filters["score"] = _score_text
    grouped = (known_scores.get("subgroups") or [{}])[0]
    findings = dict[str, None]()
    columns = dict[str, Any]()
    for model in models:
        findings |= dict.fromkeys(model.about.get("findings", ()))
        columns |= {column["name"]: column for column in columns_of(model.encoder)}
    origin = {"on": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version()}
    weights = scorer.weights if isinstance(scorer, MixedScorer) else None
    threshold = None if scorer.threshold is None else scorer.about.get("threshold")
    return environment.get_template("card.md.j2").render(
        scorer=scorer,
        target=in_markdown(scorer.encoder.target_name),
        weights=weights,
        about=scorer.about,
        made=origin | {name: version(name) for name in ("fedlit", "torch")},
        checked=checked,
        known=[
            (SCORES[name].label, value)
            for name, value in known_scores.items()
            if name in SCORES and value is not None
        ],
        rows=known_scores.get("rows"),
        threshold=threshold,
        at=known_scores.get("thresholds") or [],
        subgroups=known_scores.get("subgroups") or [],
        known_of_groups=[
            (SCORES[name].label, name)
            for name in known_scores
            if name in SCORES and name in grouped
        ],
        columns=columns.values(),
        treated=_TREATED,
        findings=list(findings),
    )


def _score_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
