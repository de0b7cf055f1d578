"""Reads plain data from JSON files of unknown origin, strictly."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fedlit.errors import DataError, FedlitError
from fedlit.files import reason, write_text
from fedlit.outcomes.numbers import is_number

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
    except (RecursionError, ValueError) as error:  # JSON, UTF-8, or one of the checks here
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


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError(f"a key twice among {str(list(entries))[:60]}")
    return entries


def check_weights(weights: object, key: str) -> dict[str, float]:
    """Return the weights of a mixture's parts, after checking that they are numbers from 0 to 1
    that sum to 1.

    Raises:
        DataError: the weights are invalid.
    """
    valid: dict[str, float] = {}
    if isinstance(weights, dict):
        valid = {
            name: value for name, value in weights.items() if is_number(value) and 0 <= value <= 1
        }
    if valid != weights or not math.isclose(sum(valid.values()), 1, abs_tol=1e-9):
        raise DataError(
            f"{key}: expected weights from 0 to 1, of sum 1, found {str(weights)[:99]}; fit or "
            "export again"
        )
    return valid


def check_stack(stack: object, key: str) -> list[list[float]]:
    """Return the intercept and slope of each output, for a mixture that has them, after checking
    that they are numbers.

    Raises:
        DataError: the values are invalid.
    """
    if not isinstance(stack, list) or not all(map(_is_pair, stack)):
        raise DataError(
            f"{key}: expected pairs of numbers as stack, found {str(stack)[:99]}; fit or export "
            "again"
        )
    return list(stack)


def _is_pair(pair: object) -> bool:
    """Return whether something is a list of two numbers of possible size."""
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return all(is_number(number) and -1e9 < number < 1e9 for number in pair)


def unfit(path: Path, error: Exception) -> FedlitError:
    """Return the error for a file that fedlit did not write like this, or not in this version."""
    message = " ".join(str(error).split())[:200]
    return DataError(
        f"{path}: expected what fedlit export writes, found others ({type(error).__name__}: {message})"
    )


def defined(value: object) -> Any:
    """Return plain data in which numbers that are not finite are None.

    Example:
        >>> defined({"auroc": math.nan, "interval": (0.1, math.inf)})
        {'auroc': None, 'interval': [0.1, None]}
    """
    if isinstance(value, dict):
        return {key: defined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [defined(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_json(path: Path, value: object) -> None:
    """Write plain data as JSON.

    Raises:
        DataError: a number is not finite, or something is not plain data.
    """
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path.name}: expected plain, finite data, found: {error}") from error
    write_text(text + "\n", path)
