"""A client as a folder of data: all that it needs to score rows, and no code. Does not import
PyTorch.

The folder of a model contains ``scorer.json`` (its task, and checksums of the other files),
``encoder.json``, and either ``model.onnx`` or ``model.json`` and ``model.npz``. The folder of a
mixture contains ``scorer.json`` (its weights) and the folder of a model for each part and fold:
``<part>/fold_<number>``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.data.columns import RowEncoder
from fedlit.data.schema.column import TYPES
from fedlit.errors import ConfigError, DataError, Told, expect, told_as
from fedlit.extras import needs
from fedlit.outcomes import Outcome, outcome_of, outcome_type, unknown_task
from fedlit.score import arrays
from fedlit.score.plain import check_stack, check_weights, read_json, unfit, write_json
from fedlit.score.scorer import Function, MixedScorer, Scorer

MAIN = "scorer.json"
ENCODER = "encoder.json"
NETWORK = "model.onnx"
_FILES: Mapping[str, tuple[str, ...]] = {"onnx": (NETWORK,), "arrays": arrays.FILES}
_VERSION = 3
_FREE = ("model_card.md", "columns.json")  # for people: never read
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
_LABELS = (bool, int, float, str)


def write(folder: Path, scorer: Scorer) -> None:
    """Write a client, or a client's whole mixture, to a folder.

    Args:
        folder: the folder, which is created if it does not exist.
        scorer: a scorer of a run.

    Raises:
        ConfigError: the scorer was itself loaded from such a folder, or a package is missing.
        RunError: the network cannot be written as data.
        DataError: something is not plain data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    main: dict[str, Any] = {"format": _VERSION, "client": scorer.client, "about": scorer.about}
    if isinstance(scorer, MixedScorer):
        for name, folds in scorer.scorers.items():
            for fold, part in enumerate(folds):
                write(folder / name / f"fold_{fold}", part)
        parts = {name: len(folds) for name, folds in scorer.scorers.items()}
        mix = {
            "parts": parts,
            "weights": scorer.weights,
            "stack": [list(settings) for settings in scorer.stack],
        }
        write_json(folder / MAIN, {**main, **mix})
        return
    # one that can be written has ``write`` and ``network``: onnx or arrays
    function: Any = scorer.function
    writable = hasattr(function, "write")
    message = Told("one that was exported")
    expect(writable, f"client {scorer.client!r}", "a client of a run", message, "copy its folder")
    function.write(folder)
    write_json(folder / ENCODER, scorer.encoder.state_dict())
    write_json(
        folder / "columns.json",
        {"columns": columns_of(scorer.encoder), "target": scorer.encoder.target_name},
    )
    names = (ENCODER, *_FILES[function.network])
    settings = {
        "network": function.network,
        "task": scorer.state,
        "classes": list(scorer.own_classes),
        "keys": list(scorer.keys),
        "batch": scorer.batch,
        "inputs": len(scorer.encoder.features),
        "files": {name: _digest(folder / name) for name in names},
    }
    write_json(folder / MAIN, {**main, **settings})


def columns_of(encoder: RowEncoder) -> list[dict[str, Any]]:
    """Describe the columns that rows must have: name, kind, and the moments or categories of the
    training rows.
    """
    return [
        {"name": name, "holds": column.kind}
        | (
            {"mean": column.moments.mean, "standard deviation": column.moments.variance**0.5}
            if column.moments
            else {}
        )
        | ({"categories": list(column.categories)} if column.categories else {})
        | (
            {"values": dict(raw.values)}
            if (raw := encoder.schema.columns.get(name)) and raw.values
            else {}
        )
        | ({"convert": dict(raw.convert)} if raw and raw.convert else {})
        for name, column in encoder.columns.items()
    ]


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
    do = "export the client again, with this version of fedlit"
    expect(version == _VERSION, str(path), f"format {_VERSION}", version, do, DataError)
    if set(main) == _OF_MIXTURE:
        return _mixture(folder, main)
    if set(main) != _KEYS or main["network"] not in list(_FILES):
        unexpected = ", ".join(sorted(set(main) ^ _KEYS)) or f"network {main['network']!r}"
        raise DataError(
            f"{path}: expected what fedlit export writes, found others: {unexpected[:200]}"
        )
    _check_files(folder, main["files"], (ENCODER, *_FILES[main["network"]]))
    with told_as(lambda error: unfit(path, error)):
        name = main["task"]["name"]
    if not isinstance(name, str) or outcome_type(name) is None:
        raise DataError(f"{path}: task: {unknown_task(str(name))}")
    with told_as(lambda error: unfit(path, error)):
        outcome = outcome_of(main["task"])
        _check(outcome, main)
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


def _mixture(folder: Path, main: Mapping[str, Any]) -> MixedScorer:
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
        same = all(scorer.client == main["client"] for scorer in parts[name])
        expected = f"models of {main['client']}"
        expect(
            same, str(folder / name), expected, Told("another client's"), "copy it again", DataError
        )
    return MixedScorer(
        main["client"], parts, weights, main["about"], check_stack(main["stack"], str(path))
    )


# ---------------------------------------------------------------------- checks


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(folder: Path, written: Any, names: tuple[str, ...]) -> None:
    expected_names = {MAIN, *names, *_FREE}
    for path in sorted(folder.iterdir()):
        expected_file = path.name in expected_names or path.name[0] == "."
        expected = f"{', '.join(sorted(expected_names))} and nothing else"
        do = "it did not come from fedlit export, so look at it, and move it away"
        expect(expected_file, str(folder), expected, Told(path.name), do, DataError)
    if not isinstance(written, dict) or set(written) != set(names):
        raise DataError(
            f"{folder / MAIN}: files: expected {', '.join(names)}, found others; export the client "
            "again"
        )
    for name in names:
        if not (folder / name).is_file():
            raise DataError(
                f"{folder}: expected the file {name}, found none; export the client again"
            )
        same = _digest(folder / name) == written[name]
        message = Told("another (its checksum differs)")
        do = "it is cut short or was changed; copy the folder again, or export the client again"
        expect(same, str(folder / name), "the file as it was written", message, do, DataError)


def _check(outcome: Outcome, main: Mapping[str, Any]) -> None:
    """Refuse values that nothing else would check before rows are scored."""
    outcome.check()
    positions = main["classes"]
    count = len(outcome.classes)
    if any(type(position) is not int or not 0 <= position < count for position in positions) or len(
        set(positions)
    ) < len(positions):
        raise ValueError("expected places of classes")
    if count and not positions:
        raise ValueError("expected at least one class of its own")
    if any(type(main[key]) is not int or main[key] < 1 for key in ("batch", "inputs")):
        raise ValueError("expected whole numbers as batch and inputs")
    if not isinstance(main["client"], str) or not all(isinstance(key, str) for key in main["keys"]):
        raise ValueError("expected names as text")
    if not isinstance(main["about"], dict):
        raise ValueError("expected an object as about")


def _check_column(name: str, described: Mapping[str, Any]) -> None:
    moments = described.get("moments")
    labels = described.get("categories", [])
    if described["kind"] not in TYPES:
        raise ValueError(
            f"expected the column {name[:60]!r} of one of the kinds {', '.join(TYPES)}"
        )
    if moments is not None and (
        len(moments) != 3
        or any(type(described) not in (int, float) for described in moments)
        or not moments[2] >= 0
    ):
        raise ValueError(f"expected a count, a mean and a variance of the column {name[:60]!r}")
    if not isinstance(labels, list) or any(type(label) not in _LABELS for label in labels):
        raise ValueError(f"expected a list of categories of the column {name[:60]!r}")


def _encoder(state: Mapping[str, Any], client: str, inputs: int) -> RowEncoder:
    for name, column in state["columns"].items():
        _check_column(name, column)
    encoder = RowEncoder(client)
    encoder.load_state_dict(state)
    if len(encoder.features) != inputs or len(set(encoder.features)) != inputs:
        raise ValueError(f"expected {inputs} inputs, each with a name of its own")
    encoder.schema.apply(
        pd.DataFrame({name: pd.Series([None], dtype=object) for name in encoder.schema.used}),
        "here",
    )
    # a row without any value goes through all that was learnt of columns
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
    options.log_severity_level = 4  # what is wrong is raised, too
    with told_as(lambda error: unfit(path, error)):
        # by its path: onnxruntime reads other files of the same folder alone then, and there are
        # none
        session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (rows,) = session.get_inputs()
        (predictions,) = session.get_outputs()
        session.run([predictions.name], {rows.name: np.zeros((1, inputs), np.float32)})

    def function(x: NDArray[np.float32]) -> NDArray[Any]:
        outputs: NDArray[Any] = session.run([predictions.name], {rows.name: x})[0]
        return outputs

    return function
