"""A client in a folder of data: what it needs to score rows, and nothing that runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.columns import Kind
from fedlit.data.encoder import TableEncoder
from fedlit.errors import ConfigError, DataError, FedlitError, told_as
from fedlit.score.arrays import as_arrays, from_arrays
from fedlit.score.graph import Graph
from fedlit.score.ops import DTYPES
from fedlit.score.plain import read_json, write_json
from fedlit.score.scorer import Function, Scorer
from fedlit.tasks import Task, task_from, task_state

__all__ = ["ARRAYS", "MAIN", "NETWORKS", "Format", "ModelFunction", "columns_of", "load", "write_model", "write_scorer"]

Format = Literal["graph", "onnx", "torch"]

MAIN = "scorer.json"
NETWORKS: Mapping[str, tuple[str, ...]] = {
    "graph": ("network.json", "parameters.safetensors"),
    "onnx": ("model.onnx",),
    "torch": ("model.pt2",),
}
"""Format → the files that its network is in."""
ARRAYS = ("model.json", "parameters.safetensors")
"""The files of a go-alone model, whose format is ``arrays``."""

_VERSION = 1
_FREE = ("model_card.md", "columns.json")  # for people: never read
_KEYS = {"format", "network", "client", "task", "classes", "keys", "batch", "inputs", "files", "about"}
_LABELS = (bool, int, float, str)


def load(folder: str | Path, *, trusted: bool = False) -> Scorer:
    """A client that ``fedlit export`` wrote. Runs no code from the folder.

    Args:
        folder: that was written.
        trusted: whether to read a network of ``--format torch``, too: its reader can run what is in the file.

    Raises:
        DataError: something in the folder is not as it was written, or nobody can compute it.
        ConfigError: a network of ``--format torch`` that is not said to be trusted, or of ``onnx`` without onnxruntime.
    """
    folder = Path(folder)
    if not (folder / MAIN).is_file():
        raise DataError(f"{folder}: expected a folder that fedlit export wrote, found no {MAIN} in it")
    main = read_json(folder / MAIN)
    if main.get("format") != _VERSION:
        raise DataError(f"{folder / MAIN}: expected format {_VERSION}, found {main.get('format')!r}; update fedlit")
    kinds = {**NETWORKS, "arrays": ARRAYS}
    if set(main) != _KEYS or not isinstance(main["network"], str) or main["network"] not in kinds:
        odd = ", ".join(sorted(set(main) ^ _KEYS)) or f"network {main['network']!r}"
        raise DataError(f"{folder / MAIN}: expected what fedlit export writes, found others: {odd[:200]}")
    names = ("encoder.json", *kinds[main["network"]])
    _check_files(folder, main["files"], names)
    with told_as(lambda error: _unfit(folder / MAIN, error)):
        task = task_from(main["task"])
        _check_task(task, main)
    with told_as(lambda error: _unfit(folder / "encoder.json", error)):
        encoder = _encoder(read_json(folder / "encoder.json"), main["client"], main["inputs"])
    function: Function
    if main["network"] == "arrays":
        function = _read_arrays(folder, main["inputs"], task)
    else:
        function = _READERS[main["network"]](folder, main["inputs"], task.input_width, trusted)
    batch = min(main["batch"], function.batch) if isinstance(function, Graph) else main["batch"]
    return Scorer(
        main["client"], encoder, function, task, classes=main["classes"], keys=main["keys"], batch=batch,
        about=main["about"],
    )  # fmt: skip


class ModelFunction:
    """What a go-alone model predicts of encoded rows.

    Args:
        model: fitted; of scikit-learn, or as arrays.
        task: what it predicts.
    """

    def __init__(self, model: Any, task: Task) -> None:
        self.model, self.task = model, task

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) float32 → (n, width)."""
        return self.task.of_model(self.model, x.numpy())


def write_model(folder: Path, scorer: Scorer, inputs: int) -> None:
    """Write a go-alone model as arrays.

    Args:
        folder: made if need be.
        scorer: whose function is a :class:`ModelFunction` of a fitted model of scikit-learn.
        inputs: width of its rows.

    Raises:
        TypeError: a model of a kind that is not kept as arrays.
    """
    from safetensors.numpy import save

    assert isinstance(scorer.function, ModelFunction)
    state, arrays = as_arrays(scorer.function.model)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ARRAYS[0], state)
    (folder / ARRAYS[1]).write_bytes(save(arrays))
    write_scorer(folder, scorer, "arrays", inputs)


def write_scorer(folder: Path, scorer: Scorer, network: Format | Literal["arrays"], inputs: int) -> None:
    """Write all but the network's own files, which are there already.

    Raises:
        DataError: something is no plain data.
    """
    write_json(folder / "encoder.json", scorer.encoder.state_dict())
    write_json(folder / "columns.json", {"columns": columns_of(scorer.encoder), "target": scorer.encoder.target_name})
    names = ("encoder.json", *{**NETWORKS, "arrays": ARRAYS}[network])
    main = {
        "format": _VERSION,
        "network": network,
        "client": scorer.client,
        "task": task_state(scorer.whole_task),
        "classes": list(scorer.own_classes),
        "keys": list(scorer.keys),
        "batch": scorer.batch,
        "inputs": inputs,
        "files": {name: _digest(folder / name) for name in names},
        "about": scorer.about,
    }
    write_json(folder / MAIN, main)


def columns_of(encoder: TableEncoder) -> list[dict[str, Any]]:
    """The columns that rows must have: name, what they hold, what of them was trained on."""
    return [
        {"name": name, "holds": own.kind}
        | ({"mean": own.moments.mean, "standard deviation": own.moments.variance**0.5} if own.moments else {})
        | ({"categories": list(own.categories)} if own.categories else {})
        for name, own in encoder.columns.items()
    ]


# ---------------------------------------------------------------------- checks


def _unfit(path: Path, error: Exception) -> FedlitError:
    told = " ".join(str(error).split())[:200]
    return DataError(f"{path}: expected what fedlit export writes, found others ({type(error).__name__}: {told})")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(folder: Path, written: Any, names: tuple[str, ...]) -> None:
    known = {MAIN, *names, *_FREE}
    for path in sorted(folder.iterdir()):
        if path.name not in known and not path.name.startswith("."):
            raise DataError(
                f"{folder}: expected {', '.join(sorted(known))} and nothing else, found {path.name}; it did not come "
                "from fedlit export, so look at it, and move it away"
            )
    if not isinstance(written, dict) or set(written) != set(names):
        raise DataError(f"{folder / MAIN}: files: expected {', '.join(names)}, found others; export the client again")
    for name in names:
        if not (folder / name).is_file():
            raise DataError(f"{folder}: expected the file {name}, found none; export the client again")
        if _digest(folder / name) != written[name]:
            raise DataError(
                f"{folder / name}: expected the file as it was written, found another (its checksum differs): it is "
                "cut short or was changed; copy the folder again, or export the client again"
            )


def _check_task(task: Task, main: Mapping[str, Any]) -> None:
    """What nobody else looks at before rows come."""
    labels, own = task.classes, main["classes"]
    if any(type(label) not in _LABELS for label in labels) or len(set(map(str, labels))) < len(labels):
        raise ValueError("expected labels that differ as text")
    if any(type(place) is not int or not 0 <= place < len(labels) for place in own) or len(set(own)) < len(own):
        raise ValueError("expected places of classes")
    if labels and not own:
        raise ValueError("expected at least one class of its own")
    if any(type(main[key]) is not int or main[key] < 1 for key in ("batch", "inputs")):
        raise ValueError("expected whole numbers as batch and inputs")
    if not isinstance(main["client"], str) or not all(isinstance(key, str) for key in main["keys"]):
        raise ValueError("expected names as text")
    if not isinstance(main["about"], dict):
        raise ValueError("expected an object as about")
    numbers = [getattr(task, name, 1.0) for name in ("mean", "scale")]
    if not all(isinstance(value, int | float) for value in numbers) or not numbers[1] > 0:
        raise ValueError("expected numbers as mean and scale")


def _check_column(name: str, own: Mapping[str, Any]) -> None:
    kinds, moments, labels = get_args(Kind), own.get("moments"), own.get("categories", [])
    if own["kind"] not in kinds:
        raise ValueError(f"expected the column {name[:60]!r} of one of the kinds {', '.join(kinds)}")
    if moments is not None and (
        len(moments) != 3 or any(type(own) not in (int, float) for own in moments) or not moments[2] >= 0
    ):
        raise ValueError(f"expected a count, a mean and a variance of the column {name[:60]!r}")
    if not isinstance(labels, list) or any(type(label) not in _LABELS for label in labels):
        raise ValueError(f"expected a list of categories of the column {name[:60]!r}")


def _encoder(state: Mapping[str, Any], client: str, inputs: int) -> TableEncoder:
    for name, own in state["columns"].items():
        _check_column(name, own)
    encoder = TableEncoder(client)
    encoder.load_state_dict(state)
    if len(encoder.features) != inputs or len(set(encoder.features)) != inputs:
        raise ValueError(f"expected {inputs} inputs, each with a name of its own")
    if encoder.schema is not None:  # formats, parts and notations are tried
        encoder.schema.check()
        encoder.schema.apply(pd.DataFrame({name: pd.Series([None], dtype=object) for name in encoder.asked}), "here")
    # a row without any value goes through all that was learnt of columns
    made = encoder.transform(pd.DataFrame({name: [np.nan] for name in encoder.columns}))
    if made.shape != (1, inputs):
        raise ValueError(f"expected {inputs} inputs")
    return encoder


# ---------------------------------------------------------------------- networks


def _read_graph(folder: Path, inputs: int, outputs: int, trusted: bool) -> Function:
    where = folder / "network.json"
    graph = Graph(read_json(where), _tensors(folder / "parameters.safetensors"), outputs, str(where))
    if graph.inputs != inputs:
        raise DataError(f"{where}: expected {inputs} inputs, found {graph.inputs}; export the client again")
    return graph


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with told_as(lambda error: _unfit(path, error)):
        tensors: dict[str, Tensor] = load_file(path)
    for name, own in tensors.items():
        if own.dtype not in DTYPES.values() or bool(torch.isnan(own).any()):
            raise DataError(f"{path}: expected numbers in {name[:60]!r}, found {own.dtype}, or some that are none")
    return tensors


def _read_arrays(folder: Path, inputs: int, task: Task) -> ModelFunction:
    tensors = _tensors(folder / ARRAYS[1])
    state = read_json(folder / ARRAYS[0])
    with told_as(lambda error: _unfit(folder / ARRAYS[0], error)):
        function = ModelFunction(from_arrays(state, {name: own.numpy() for name, own in tensors.items()}, inputs), task)
        function(torch.zeros(1, inputs))
    return function


def _read_onnx(folder: Path, inputs: int, outputs: int, trusted: bool) -> Function:
    try:
        from onnxruntime import InferenceSession, SessionOptions
    except ImportError as error:
        raise ConfigError(
            f"{folder}: expected onnxruntime, which computes a network of --format onnx, found none; pip install "
            "'fedlit[onnx]'"
        ) from error
    path, options = folder / "model.onnx", SessionOptions()
    options.log_severity_level = 3
    with told_as(lambda error: _unfit(path, error)):
        # from bytes: it cannot name other files then
        session = InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
        (rows,), (predictions,) = session.get_inputs(), session.get_outputs()

    def function(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run([predictions.name], {rows.name: x.numpy()})[0])

    return function


def _read_torch(folder: Path, inputs: int, outputs: int, trusted: bool) -> Function:
    path = folder / "model.pt2"
    if not trusted:
        raise ConfigError(
            f"{path}: expected a network that is data alone, found one of --format torch, whose reader can run what is "
            "in the file; if you trust who wrote it, fedlit.score.load(folder, trusted=True); else ask for the "
            "default format"
        )
    with told_as(lambda error: _unfit(path, error)):
        module: Function = torch.export.load(path).module()
    return module


_READERS = {"graph": _read_graph, "onnx": _read_onnx, "torch": _read_torch}
