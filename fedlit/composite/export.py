"""``fedlit export`` of a client's whole mixture: a folder of data for each part and fold, and how they are mixed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import torch

from fedlit.composite.folders import CONFIG, find_composite
from fedlit.composite.parts import Part
from fedlit.composite.served import load_mixture
from fedlit.composite.settings import settings_of
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.run import export as single
from fedlit.run.export import MOST_ROWS, TOLERANCE, Exported, export_scorer, random_rows, written_whole
from fedlit.score.folder import Format, ModelFunction
from fedlit.score.mixed import MIXTURE, MixedScorer, load, write_recipe

__all__ = ["export"]


def export(
    run: str | Path,
    client: str,
    out: str | Path | None = None,
    format: Format = "graph",
    checkpoint: str | Path = "last",
    *,
    quiet: bool = False,
) -> Exported:
    """Write one client of a trained run as a folder of data; of a run of several parts, its whole mixture.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        client: its name.
        out: the folder; ``export/<client>`` in the run's if None. An earlier export is replaced.
        format: of networks: ``graph`` (operations and tensors as data), ``onnx``, or ``torch`` (``torch.export``).
        checkpoint: ``last``, ``best`` or a file; of a mixture ``last``.
        quiet: do not say which checkpoint is used.

    Raises:
        ConfigError: no such run, checkpoint or client, or a folder that holds something else.
        RunError: the client cannot be exported, or predicts otherwise once it is.
    """
    folder = find_composite(run)
    if folder is None:
        return single.export(run, client, out, format, checkpoint, quiet=quiet)
    if checkpoint != "last":
        raise ConfigError(f"--ckpt_path: expected last, for a mixture has one state, found {checkpoint}")
    scorer = load_mixture(folder, client)
    target = Path(out) if out is not None else folder / "export" / client
    with written_whole(target, MIXTURE) as made:
        checked = _write(made, scorer, folder, format)
        size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    return Exported(target, checked, size, format)


def _write(made: Path, scorer: MixedScorer, folder: Path, format: Format) -> str:
    """All of it; how it was checked, a sentence."""
    parts = Part.of(settings_of(folder / CONFIG), folder)
    rows = _rows(parts, scorer)
    for name, folds in scorer.scorers.items():
        (made / name).mkdir()
        for fold, own in enumerate(folds):
            place = made / name / f"fold_{fold}"
            if isinstance(own.function, ModelFunction):
                shutil.copytree(parts[name].fold(fold) / scorer.client, place)
            else:
                export_scorer(own, place, format, rows)
    write_recipe(made, scorer)
    checked = _compare(scorer, load(made, trusted=True), rows)
    (made / "model_card.md").write_text(_card(scorer, checked), encoding="utf-8")
    for path in made.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return checked


def _rows(parts: dict[str, Part], scorer: MixedScorer) -> pd.DataFrame | None:
    """Test rows of the client's own table; None where it cannot be read any more."""
    try:
        table = parts[next(iter(scorer.scorers))].load(0).data.table(scorer.client)
        return table.features.iloc[table.splits["test"]][:MOST_ROWS]
    except (FedlitError, OSError, KeyError):
        return None


def _compare(own: MixedScorer, read: object, rows: pd.DataFrame | None) -> str:
    """That both predict the same, as a sentence.

    Raises:
        RunError: they do not.
    """
    assert isinstance(read, MixedScorer)
    known = rows is not None and len(rows)
    widest = max((folds[0].encoder for folds in own.scorers.values()), key=lambda encoder: len(encoder.columns))
    frame = rows if rows is not None and len(rows) else random_rows(widest, MOST_ROWS)
    kind = "test rows of the client" if known else "random rows, for its tables are not here"
    expected, found = (
        scorer.mix(
            {
                name: [one.of_inputs(torch.from_numpy(one.encoder.transform(frame))) for one in folds]
                for name, folds in scorer.scorers.items()
            }
        ).double()
        for scorer in (own, read)
    )
    scale = float(getattr(own.whole_task, "scale", 1.0))
    worst = float((found - expected).abs().max())
    if not torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * scale):
        raise RunError(
            f"client {own.client!r}: expected the exported mixture to predict what the run predicts, found differences "
            f"of up to {worst:.3g} on {len(frame):,} {kind}; nothing was written. Use another --format, or fedlit "
            "predict --run"
        )
    return f"Checked: on {len(frame):,} {kind} it predicts what the run predicts (largest difference {worst:.2g})."


def _card(scorer: MixedScorer, checked: str) -> str:
    weights = "\n".join(
        f"| {name} | {scorer.recipe.weights[name]:.3f} | {len(folds)} | {folds[0].about.get('client', '')} |"
        for name, folds in scorer.scorers.items()
    )
    return (
        f"# {scorer.client}: a mixture that predicts {scorer.encoder.target_name}\n\n"
        "The models of a part's folds are averaged, then parts are mixed by weight.\n\n"
        f"| part | weight | models | what |\n| --- | --- | --- | --- |\n{weights}"
        f"\n\n{checked}\n"
    )
