"""A client as a folder of data: all that it needs to score rows, and no code. Does not import
PyTorch.

The folder of a model contains ``scorer.json`` (its task, and checksums of the other files),
``encoder.json``, and either ``model.onnx`` or ``model.json`` and ``model.npz``. The folder of a
mixture contains ``scorer.json`` (its weights) and the folder of a model for each part and fold:
``<part>/fold_<number>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from fedlit.data.row_encoder import RowEncoder
from fedlit.errors import ConfigError, DataError, told_as
from fedlit.extras import needs
from fedlit.outcomes import outcome_of, outcome_type, unknown_task
from fedlit.score import arrays
from fedlit.score.folder_checks import MAIN, check_column, check_files, check_main, digest
from fedlit.score.mixed_scorer import MixedScorer
from fedlit.score.plain import check_stack, check_weights, read_json, unfit, write_json
from fedlit.score.scorer import Function, Scorer
from fedlit.types import PredictionArray, SingleFloats, State

ENCODER = "encoder.json"
NETWORK = "model.onnx"
_FILES: Mapping[str, tuple[str, ...]] = {"onnx": (NETWORK,), "arrays": arrays.FILES}
_VERSION = 3
_KEYS = {
    "format",
    "network",
    "client",
    "task",
    "classes",
    "keys",
    "batch",
    "inputs",
    "files",
    "about",
}
_OF_MIXTURE = {"format", "client", "parts", "weights", "stack", "about"}


@runtime_checkable
class WritableFunction(Protocol):
    """The predictions of a client of a run, which can be written as data.

    Attributes:
        network: the kind of the files: ``onnx`` or ``arrays``.
    """

    network: str

    def __call__(self, x: SingleFloats, /) -> PredictionArray:
        """Return predictions (n, width) for rows (n, d)."""

    def write(self, folder: Path, /) -> None:
        """Write the files to a folder."""


def write(folder: Path, scorer: Scorer, *, of_rows: bool = True) -> None:
    """Write a client, or a client's whole mixture, to a folder.

    Args:
        folder: the folder, which is created if it does not exist.
        scorer: a scorer of a run.
        of_rows: whether to write what scores need to know of training rows, as for a part of a
            mixture. Predictions do not need it.

    Raises:
        ConfigError: the scorer was itself loaded from such a folder, or a package is missing.
        RunError: the network cannot be written as data.
        DataError: something is not plain data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    main = {"format": _VERSION, "client": scorer.client, "about": scorer.about}
    if isinstance(scorer, MixedScorer):
        for name, folds in scorer.scorers.items():
            for fold, part in enumerate(folds):
                write(folder / name / f"fold_{fold}", part, of_rows=of_rows)
        parts = {name: len(folds) for name, folds in scorer.scorers.items()}
        mix = {
            "parts": parts,
            "weights": scorer.weights,
            "stack": [list(settings) for settings in scorer.stack],
        }
        write_json(folder / MAIN, {**main, **mix})
        return
    function = scorer.function
    if not isinstance(function, WritableFunction):
        raise ConfigError(
            f"client {scorer.client!r}: expected a client of a run, found one that was exported; "
            "copy its folder"
        )
    function.write(folder)
    write_json(folder / ENCODER, scorer.encoder.state_dict())
    write_json(
        folder / "columns.json",
        {"columns": columns_of(scorer.encoder), "target": scorer.encoder.target_name},
    )
    names = (ENCODER, *_FILES[function.network])
    left_out = () if of_rows else scorer.outcome.of_rows
    settings = {
        "network": function.network,
        "task": {key: value for key, value in scorer.state.items() if key not in left_out},
        "classes": list(scorer.own_classes),
        "keys": list(scorer.keys),
        "batch": scorer.batch,
        "inputs": len(scorer.encoder.features),
        "files": {name: digest(folder / name) for name in names},
    }
    write_json(folder / MAIN, {**main, **settings})


def columns_of(encoder: RowEncoder) -> list[dict[str, Any]]:
    """Describe the columns that rows must have: name, kind, and the moments or categories of the
    training rows.
    """
    columns = []
    for name, column in encoder.columns.items():
        description: dict[str, Any] = {"name": name, "holds": column.kind}
        if column.moments:
            description["mean"] = column.moments.mean
            description["standard deviation"] = column.moments.variance**0.5
        if column.categories:
            description["categories"] = list(column.categories)
        raw = encoder.schema.columns.get(name)
        if raw and raw.values:
            description["values"] = dict(raw.values)
        if raw and raw.convert:
            description["convert"] = dict(raw.convert)
        columns.append(description)
    return columns


def load(folder: str | Path) -> Scorer:
    """Load a client, or a client's whole mixture, from a folder that ``fedlit export`` wrote. Runs
    no code from the folder, and needs neither PyTorch nor Lightning.

    Args:
        folder: the exported folder.

    Raises:
        DataError: something in the folder is not as it was written, or another version wrote it.
        ConfigError: onnxruntime, which computes networks, is not installed.
    """
    folder = Path(folder)
    path = folder / MAIN
    if not path.is_file():
        raise DataError(
            f"{folder}: expected a folder that fedlit export wrote, found no {MAIN} in it"
        )
    main = read_json(path)
    version = main.get("format")
    if version != _VERSION:
        raise DataError(
            f"{path}: expected format {_VERSION}, found {version!r}; export the client again, with "
            "this version of fedlit"
        )
    if set(main) == _OF_MIXTURE:
        return _mixture(folder, main)
    if set(main) != _KEYS or main["network"] not in list(_FILES):
        unexpected = ", ".join(sorted(set(main) ^ _KEYS)) or f"network {main['network']!r}"
        raise DataError(
            f"{path}: expected what fedlit export writes, found others: {unexpected[:200]}"
        )
    check_files(folder, main["files"], (ENCODER, *_FILES[main["network"]]))
    with told_as(lambda error: unfit(path, error)):
        name = main["task"]["name"]
    if not isinstance(name, str) or outcome_type(name) is None:
        raise DataError(f"{path}: task: {unknown_task(str(name))}")
    with told_as(lambda error: unfit(path, error)):
        outcome = outcome_of(main["task"])
        check_main(outcome, main)
    with told_as(lambda error: unfit(folder / ENCODER, error)):
        encoder = _encoder(read_json(folder / ENCODER), main["client"], main["inputs"])
    function: Function
    if main["network"] == "onnx":
        function = _network(folder / NETWORK, main["inputs"])
    else:
        function = arrays.ArrayFunction.read(folder, outcome, main["inputs"])
    return Scorer(
        main["client"], encoder, function, main["task"], classes=main["classes"], keys=main["keys"],
        batch=main["batch"], about=main["about"],
    )  # fmt: skip


def _mixture(folder: Path, main: State) -> MixedScorer:
    path = folder / MAIN
    if not isinstance(main["parts"], dict) or not isinstance(main["client"], str):
        raise DataError(
            f"{path}: expected parts and a client, found others; export the client again"
        )
    weights = check_weights(main["weights"], str(path))
    parts = dict[str, list[Scorer]]()
    for name, folds in main["parts"].items():
        if type(folds) is not int or not 0 < folds <= 1000 or Path(name).name != name:
            raise DataError(
                f"{path}: expected parts with their numbers of folds, found {name!r}: {folds!r}"
            )
        parts[name] = [load(folder / name / f"fold_{fold}") for fold in range(folds)]
        if any(scorer.client != main["client"] for scorer in parts[name]):
            raise DataError(
                f"{folder / name}: expected models of {main['client']}, found another client's; copy "
                "it again"
            )
    return MixedScorer(
        main["client"], parts, weights, main["about"], check_stack(main["stack"], str(path))
    )


def _encoder(state: State, client: str, inputs: int) -> RowEncoder:
    for name, column in state["columns"].items():
        check_column(name, column)
    encoder = RowEncoder(client)
    encoder.load_state_dict(state)
    if len(encoder.features) != inputs or len(set(encoder.features)) != inputs:
        raise ValueError(f"expected {inputs} inputs, each with a name of its own")
    encoder.schema.apply(
        pd.DataFrame({name: pd.Series([None], dtype=object) for name in encoder.schema.used}),
        "here",
    )
    # The row without any value passes through all that the encoder learnt about columns.
    encoded = encoder.transform(pd.DataFrame({name: [np.nan] for name in encoder.columns}))
    if encoded.shape != (1, inputs):
        raise ValueError(f"expected {inputs} inputs")
    return encoder


def _network(path: Path, inputs: int) -> Function:
    try:
        from onnxruntime import InferenceSession, SessionOptions
    except ImportError as error:
        only = "or, only to score: pip install onnxruntime"
        raise ConfigError(f"{path}: {needs('onnxruntime')}, {only}") from error
    options = SessionOptions()
    options.log_severity_level = 4  # errors are raised, so that they need not be logged
    with told_as(lambda error: unfit(path, error)):
        # Given a path, onnxruntime can read other files of that folder only, and there are none.
        session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (rows,) = session.get_inputs()
        (predictions,) = session.get_outputs()
        session.run([predictions.name], {rows.name: np.zeros((1, inputs), np.float32)})

    def function(x: SingleFloats) -> PredictionArray:
        outputs: PredictionArray = session.run([predictions.name], {rows.name: x})[0]
        return outputs

    return function
