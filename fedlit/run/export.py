"""``fedlit export``: a client of a run as a folder of data, compared with the run's own numbers before it is kept."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.columns import NUMBERS
from fedlit.data.encoder import TableEncoder
from fedlit.data.loader import Batch
from fedlit.engine.kernels import use_kernels
from fedlit.errors import ConfigError, FedlitError, RunError, told_as
from fedlit.files import naming
from fedlit.run.run import Run
from fedlit.run.served import ClientFunction
from fedlit.run.trained import open_run
from fedlit.score.card import model_card
from fedlit.score.folder import MAIN, NETWORKS, Format, load, write_scorer
from fedlit.score.plain import write_json
from fedlit.score.scorer import Scorer, unknown_target
from fedlit.score.trace import graph_of, traced
from fedlit.show.shown import Shown
from fedlit.show.text import Verbatim

__all__ = ["Exported", "export", "export_scorer"]

MOST_ROWS = 1000  # that are compared
TOLERANCE = 1e-6


@dataclass(frozen=True, repr=False)
class Exported(Shown):
    """What was written, and how it was checked.

    Attributes:
        folder: it is complete in itself.
        checked: what it was compared with, a sentence.
        bytes: of all files.
        format: of the network.
    """

    folder: Path
    checked: str
    bytes: int
    format: Format

    def parts(self) -> list[str]:
        """How it was checked, what is to be known, where it is."""
        pickle = ["Note: the reader of model.pt2 can fall back to pickle, which runs what is in the file: only for "
                  "readers who trust you"]  # fmt: skip
        return [
            self.checked,
            *(pickle if self.format == "torch" else []),
            Verbatim(f"Wrote {self.folder} ({self.bytes / 2**20:.1f} MiB)"),
        ]


class _Predicting(nn.Module):
    """From encoded rows to predictions, without a target."""

    def __init__(self, client: FederatedClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor) -> Tensor:
        own = type(self.client)
        if own.evaluate is FederatedClient.evaluate and own.score is FederatedClient.score:
            return self.client.probabilities(self.client(x))  # without the loss, which looks at labels
        return self.client.evaluate(Batch(x, unknown_target(self.client.spec.task, x.shape[0])))[0]


def export(
    run: str | Path,
    client: str,
    out: str | Path | None = None,
    format: Format = "graph",
    checkpoint: str | Path = "last",
    *,
    quiet: bool = False,
) -> Exported:
    """Write one client of a trained run as a folder of data.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        client: its name.
        out: the folder; ``export/<client>`` in the run's if None. An earlier export is replaced.
        format: of the network: ``graph`` (operations and tensors as data), ``onnx``, or ``torch`` (``torch.export``).
        checkpoint: ``last``, ``best`` or a file.
        quiet: do not say which checkpoint is used.

    Raises:
        ConfigError: no such run, checkpoint or client, or a folder that holds something else.
        RunError: the client cannot be exported, or predicts otherwise once it is.
    """
    loaded, path = open_run(run, client, checkpoint, quiet=quiet)
    scorer = loaded.client(client, path)
    folder = path.parent.parent
    target = Path(out) if out is not None else folder / "export" / client
    return export_scorer(scorer, target, format, _test_rows(loaded, client), _scores(folder, client))


def export_scorer(
    scorer: Scorer,
    out: Path,
    format: Format = "graph",
    rows: pd.DataFrame | None = None,
    scores: dict[str, Any] | None = None,
) -> Exported:
    """Write a scorer that ``Run.client`` made.

    Args:
        scorer: of a run.
        out: the folder.
        format: see :func:`export`.
        rows: to compare with; random ones if None.
        scores: on the client's test rows, for the card.

    Raises:
        ConfigError, RunError: see :func:`export`.
    """
    where = f"client {scorer.client!r}"
    if format not in NETWORKS:
        raise ConfigError(f"--format: expected one of {', '.join(NETWORKS)}, found {format!r}")
    if not isinstance(scorer.function, ClientFunction):
        raise ConfigError(f"{where}: expected a client of a run, found one that was exported; copy its folder")
    with written_whole(out, MAIN) as made:
        client = scorer.function.client
        use_kernels({scorer.client: client}, "torch")  # what is compiled here is not elsewhere
        inputs = client.spec.num_features
        _WRITERS[format](made, client, where)
        write_scorer(made, scorer, format, inputs)
        checked = _compare(scorer, load(made, trusted=True), rows)
        (made / "model_card.md").write_text(model_card(scorer, checked, scores), encoding="utf-8")
        size = sum(path.stat().st_size for path in made.iterdir())
        for path in made.iterdir():
            path.chmod(0o644)
    return Exported(out, checked, size, format)


@contextmanager
def written_whole(out: Path, main: str) -> Iterator[Path]:
    """An empty folder that takes the place of another once it is complete; nothing is left of it if it never is.

    Args:
        out: what it becomes.
        main: a file by which an earlier export is known, which may be replaced.

    Raises:
        ConfigError: the folder holds something else.
    """
    if out.exists() and not (out / main).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out: expected a new folder, or one of an earlier export, found {out} with other contents")
    with naming(out, instead=out.parent):
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


def _write_graph(folder: Path, client: FederatedClient, where: str) -> None:
    from safetensors.torch import save

    graph, tensors = graph_of(traced(_Predicting(client), client.spec.num_features, where), where)
    write_json(folder / "network.json", graph | {"inputs": client.spec.num_features})
    (folder / "parameters.safetensors").write_bytes(save(tensors))  # its own writing tells of no full disk


def _write_onnx(folder: Path, client: FederatedClient, where: str) -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"--format onnx: expected onnx, onnxscript and onnxruntime, found that one is missing ({error.name}); pip "
            "install 'fedlit[onnx]'"
        ) from error
    program = traced(_Predicting(client), client.spec.num_features, where)
    unable = told_as(
        lambda error: RunError(
            f"{where}: --format onnx: torch cannot write this network: {' '.join(str(error).split())[:200]}; use the "
            "default format"
        )
    )
    log = logging.getLogger("torch.onnx")
    level = log.level
    with unable, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated ways inside of torch, and of torchvision, which nobody needs
        log.setLevel(logging.ERROR)
        made = torch.onnx.export(program, (), input_names=["x"], output_names=["predictions"], verbose=False)
    log.setLevel(level)
    assert made is not None
    (folder / "model.onnx").write_bytes(made.model_proto.SerializeToString())


def _write_torch(folder: Path, client: FederatedClient, where: str) -> None:
    content = BytesIO()
    torch.export.save(traced(_Predicting(client), client.spec.num_features, where), content)
    (folder / "model.pt2").write_bytes(content.getvalue())


_WRITERS = {"graph": _write_graph, "onnx": _write_onnx, "torch": _write_torch}


def _compare(own: Scorer, read: Scorer, rows: pd.DataFrame | None) -> str:
    """That both predict the same, as a sentence.

    Raises:
        RunError: they do not.
    """
    kind = "test rows of the client" if rows is not None and len(rows) else "random rows, for its tables are not here"
    frame = rows if rows is not None and len(rows) else random_rows(own.encoder, MOST_ROWS)
    scale = float(getattr(own.whole_task, "scale", 1.0))
    # one row alone, too: what is traced must not depend on their number
    pairs = [[scorer.encoder.transform(part) for scorer in (own, read)] for part in (frame, frame.head(1))]
    worst = 0.0
    for first, second in pairs:
        expected, found = own.of_inputs(torch.from_numpy(first)), read.of_inputs(torch.from_numpy(second))
        close = torch.isclose(found.double(), expected.double(), rtol=TOLERANCE, atol=TOLERANCE * scale)
        worst = max(worst, float((found.double() - expected.double()).abs().max()))
        if not bool(close.all()):
            raise RunError(
                f"client {own.client!r}: expected the exported network to predict what the run predicts, found "
                f"differences of up to {worst:.3g} on {len(frame):,} {kind}; nothing was written. Use another "
                "--format, or fedlit predict --run"
            )
    return f"Checked: on {len(frame):,} {kind} it predicts what the run predicts (largest difference {worst:.2g})."


def random_rows(encoder: TableEncoder, rows: int) -> pd.DataFrame:
    """Rows within the range of what an encoder was fitted to, a tenth of the cells missing."""
    rng, columns = np.random.default_rng(0), {}
    for name, own in encoder.columns.items():
        if own.kind == NUMBERS:
            mean, scale = (own.moments.mean, own.moments.variance**0.5) if own.moments else (0.0, 1.0)
            values = pd.Series(mean + scale * rng.normal(size=rows))
        else:
            values = pd.Series(rng.choice(np.array(own.categories or [None], dtype=object), rows), dtype=object)
            if own.kind == "true/false categories":
                values = values.map(bool, na_action="ignore").astype("boolean")
        columns[name] = values.mask(pd.Series(rng.random(rows) < 0.1)).infer_objects()
    return pd.DataFrame(columns)


def _test_rows(run: Run, client: str) -> pd.DataFrame | None:
    """Of the client's own table; None where it cannot be read any more."""
    try:
        table = run.data.table(client)
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
