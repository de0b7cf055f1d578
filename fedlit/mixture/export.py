"""``fedlit export``: a client of a run as a folder of data, compared with the run's own numbers before it is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.data.columns import NUMBERS
from fedlit.data.row_encoder import RowEncoder
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.files import naming
from fedlit.mixture.served import opened
from fedlit.run.run import Run
from fedlit.score.card import model_card
from fedlit.score.folder import MAIN, load, write
from fedlit.score.mixed import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.show.shown import Shown
from fedlit.show.text import Verbatim

__all__ = ["Exported", "export", "export_scorer", "random_rows"]

MOST_ROWS = 1000  # that are compared
TOLERANCE = 1e-6


@dataclass(frozen=True, repr=False)
class Exported(Shown):
    """What was written, and how it was checked.

    Attributes:
        folder: it is complete in itself.
        checked: what it was compared with, a sentence.
        bytes: of all files.
    """

    folder: Path
    checked: str
    bytes: int

    def parts(self) -> list[str]:
        """How it was checked, and where it is."""
        return [self.checked, Verbatim(f"Wrote {self.folder} ({self.bytes / 2**20:.1f} MiB)")]


def export(
    run: str | Path,
    client: str,
    out: str | Path | None = None,
    checkpoint: str | Path = "last",
    *,
    quiet: bool = False,
) -> Exported:
    """Write one client of a trained run as a folder of data; of a run of several parts, its whole mixture.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        client: its name.
        out: the folder; ``export/<client>`` in the run's if None. An earlier export is replaced.
        checkpoint: ``last``, ``best`` or a file; of a mixture ``last``.
        quiet: do not say which checkpoint is used.

    Raises:
        ConfigError: no such run, checkpoint or client, a folder that holds something else, or a package is missing.
        RunError: the client cannot be exported, or predicts otherwise once it is.
    """
    scorer, folder, loaded = opened(run, client, checkpoint, quiet=quiet)
    target = Path(out) if out is not None else folder / "export" / client
    return export_scorer(scorer, target, _test_rows(loaded, client), _scores(folder, client))


def export_scorer(
    scorer: Scorer, out: Path, rows: pd.DataFrame | None = None, scores: dict[str, Any] | None = None
) -> Exported:
    """Write a scorer that ``Run.client`` or ``Mixture.client`` made.

    Args:
        scorer: of a run.
        out: the folder.
        rows: to compare with; random ones if None.
        scores: on the client's test rows, for the card.

    Raises:
        ConfigError, RunError: see :func:`export`.
    """
    with _written_whole(out) as made:
        write(made, scorer)
        checked = _compare(scorer, load(made), rows)
        (made / "model_card.md").write_text(model_card(scorer, checked, scores), encoding="utf-8")
        for path in made.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    return Exported(out, checked, size)


@contextmanager
def _written_whole(out: Path) -> Iterator[Path]:
    """An empty folder that takes the place of another once it is complete; nothing is left of it if it never is.

    Raises:
        ConfigError: the folder holds something else than an earlier export.
    """
    if out.exists() and not (out / MAIN).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out: expected a new folder, or one of an earlier export, found {out} with other contents")
    with naming(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix=".export-", dir=out.parent))
        try:
            yield made
            made.chmod(0o755)
            if out.exists():
                shutil.rmtree(out)
            made.rename(out)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _compare(own: Scorer, read: Scorer, rows: pd.DataFrame | None) -> str:
    """That both predict the same, as a sentence.

    Raises:
        RunError: they do not.
    """
    if rows is not None and len(rows):
        kind, frame = "test rows of the client", rows
    else:
        models = [folds[0] for folds in own.scorers.values()] if isinstance(own, MixedScorer) else [own]
        widest = max((one.encoder for one in models), key=lambda encoder: len(encoder.columns))
        kind, frame = "random rows, for its tables are not here", random_rows(widest, MOST_ROWS)
    worst = 0.0
    for part in (frame, frame.head(1)):  # one row alone, too: what is traced must not depend on their number
        expected, found = (_predicted(scorer, part).astype(np.float64) for scorer in (own, read))
        worst = max(worst, float(np.abs(found - expected).max()))
        if not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * own.outcome.scale):
            raise RunError(
                f"client {own.client!r}: expected the exported network to predict what the run predicts, found "
                f"differences of up to {worst:.3g} on {len(part):,} {kind}; nothing was written. A network that draws "
                "random numbers, or looks at how many rows there are, cannot be exported: use fedlit predict --run"
            )
    return f"Checked: on {len(frame):,} {kind} it predicts what the run predicts (largest difference {worst:.2g})."


def _predicted(scorer: Scorer, frame: pd.DataFrame) -> NDArray[Any]:
    """Of rows that are typed already, as a table's are."""
    if isinstance(scorer, MixedScorer):
        return scorer.mix({name: [_predicted(own, frame) for own in folds] for name, folds in scorer.scorers.items()})
    return scorer.of_inputs(scorer.encoder.transform(frame))


def random_rows(encoder: RowEncoder, rows: int) -> pd.DataFrame:
    """Rows within the range of what an encoder was fitted to, a tenth of the cells missing."""
    rng, columns = np.random.default_rng(0), {}
    for name, own in encoder.columns.items():
        if own.kind == NUMBERS:
            mean, scale = (own.moments.mean, own.moments.variance**0.5) if own.moments else (0.0, 1.0)
            values = pd.Series(mean + scale * rng.normal(size=rows))
        else:
            values = pd.Series(rng.choice(np.array(own.categories or [None], dtype=object), rows), dtype=object)
            if own.kind == "boolean":
                values = values.map(bool, na_action="ignore").astype("boolean")
        columns[name] = values.mask(pd.Series(rng.random(rows) < 0.1)).infer_objects()
    return pd.DataFrame(columns)


def _test_rows(run: Callable[[], Run], client: str) -> pd.DataFrame | None:
    """Of the client's own table; None where it cannot be read any more."""
    try:
        table = run().data.table(client)
        return table.features.iloc[table.splits["test"]][:MOST_ROWS]
    except (FedlitError, OSError, KeyError):
        return None


def _scores(folder: Path, client: str) -> dict[str, Any] | None:
    """On the client's test rows, as ``fedlit test`` wrote them."""
    try:
        found: dict[str, Any] = json.loads((folder / "test.json").read_text(encoding="utf-8"))["clients"][client]
    except (OSError, ValueError, KeyError):
        return None
    return found
