"""Reads plain data from JSON files of unknown origin, strictly."""

from __future__ import annotations

import json
import math
from itertools import chain
from pathlib import Path
from typing import Any

from fedlit.errors import DataError, FedlitError, Told, expect
from fedlit.files import reason, write_text

_MOST = 256 * 2**20  # bytes


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises:
        DataError: the file is missing, too large, cut short, not an object, nested too deeply, has
            a key twice, or has a number that is not finite.
    """
    try:
        if path.stat().st_size > _MOST:
            raise ValueError(f"more than {_MOST >> 20} MiB")
        value = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_object, parse_int=_int
        )
        json.dumps(value, allow_nan=False)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {reason(error)}; export the client again"
        ) from error
    except (RecursionError, ValueError) as error:  # of JSON, of UTF-8, or of what is refused here
        raise DataError(
            f"{path}: expected plain data, found: {error}; export the client again"
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"{path}: expected an object, found a {type(value).__name__}; export the client again"
        )
    return value


def _int(text: str) -> int:
    if len(text) > 19:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(entries := dict(pairs)) < len(pairs):
        raise ValueError(f"a key twice among {str(list(entries))[:60]}")
    return entries


def check_weights(weights: Any, key: str) -> dict[str, float]:
    """Return the weights of a mixture's parts, after checking that they are numbers from 0 to 1
    that sum to 1.

    Raises:
        DataError: the weights are invalid.
    """
    values = list(weights.values()) if isinstance(weights, dict) else []
    numbers = all(type(value) in (int, float) and 0 <= value <= 1 for value in values)
    valid = numbers and math.isclose(sum(values), 1, abs_tol=1e-9)
    message = Told(str(weights)[:99])
    expect(valid, key, "weights from 0 to 1, of sum 1", message, "fit or export again", DataError)
    return dict(weights)


def check_stack(stack: Any, key: str) -> list[list[float]]:
    """Return the intercept and slope of each output, for a mixture that has them, after checking
    that they are numbers.

    Raises:
        DataError: the values are invalid.
    """
    pairs = isinstance(stack, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in stack
    )
    numbers = chain.from_iterable(stack) if pairs else ()
    if not pairs or not all(type(n) in (int, float) and -1e9 < n < 1e9 for n in numbers):
        raise DataError(
            f"{key}: expected pairs of numbers as stack, found {str(stack)[:99]}; fit or export "
            "again"
        )
    return list(stack)


def unfit(path: Path, error: Exception) -> FedlitError:
    """Return the error for a file that fedlit did not write like this, or not in this version."""
    message = " ".join(str(error).split())[:200]
    return DataError(
        f"{path}: expected what fedlit export writes, found others ({type(error).__name__}: {message})"
    )


def defined(value: Any) -> Any:
    """Return plain data in which numbers that are not finite are None.

    Example:
        >>> defined({"auroc": math.nan, "interval": (0.1, math.inf)})
        {'auroc': None, 'interval': [0.1, None]}
    """
    if isinstance(value, dict):
        return {key: defined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [defined(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Write plain data as JSON.

    Raises:
        DataError: a number is not finite, or something is not plain data.
    """
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path.name}: expected plain, finite data, found: {error}") from error
    write_text(text + "\n", path)
