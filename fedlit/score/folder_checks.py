"""Checks of an exported folder, whose files may come from anybody."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedlit.data.schema.column import TYPES
from fedlit.errors import DataError
from fedlit.outcomes import Outcome
from fedlit.outcomes.numbers import is_number
from fedlit.types import State

MAIN = "scorer.json"


_FREE = ("model_card.md", "columns.json")  # for people: never read


_LABELS = (bool, int, float, str)


def digest(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(folder: Path, written: object, names: tuple[str, ...]) -> None:
    """Refuse a folder with further files, or whose files are not those that were written.

    Args:
        folder: the folder.
        written: the checksums of the files, as :data:`MAIN` states them.
        names: the files that a folder of this kind has.

    Raises:
        DataError: a file is missing, was changed, or is none of fedlit's.
    """
    expected_names = {MAIN, *names, *_FREE}
    for path in sorted(folder.iterdir()):
        if path.name not in expected_names and path.name[0] != ".":
            raise DataError(
                f"{folder}: expected {', '.join(sorted(expected_names))} and nothing else, found "
                f"{path.name}; it did not come from fedlit export, so look at it, and move it away"
            )
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
        if digest(folder / name) != written[name]:
            raise DataError(
                f"{folder / name}: expected the file as it was written, found another (its checksum "
                "differs); it is cut short or was changed; copy the folder again, or export the "
                "client again"
            )


def check_main(outcome: Outcome, main: State) -> None:
    """Refuse values that nothing else would check before rows are scored."""
    outcome.check()
    positions = main["classes"]
    count = len(outcome.classes)
    valid = all(type(position) is int and 0 <= position < count for position in positions)
    if not valid or len(set(positions)) < len(positions):
        raise ValueError("expected positions of classes, each once")
    if count and not positions:
        raise ValueError("expected at least one class of its own")
    if any(type(main[key]) is not int or main[key] < 1 for key in ("batch", "inputs")):
        raise ValueError("expected whole numbers as batch and inputs")
    if not isinstance(main["client"], str) or not all(isinstance(key, str) for key in main["keys"]):
        raise ValueError("expected names as text")
    if not isinstance(main["about"], dict):
        raise ValueError("expected an object as about")


def check_column(name: str, described: State) -> None:
    """Refuse values of an encoded column that nothing else would check before rows are scored.

    Raises:
        ValueError: its kind, its moments or its categories are invalid.
    """
    moments = described.get("moments")
    labels = described.get("categories", [])
    if described["kind"] not in TYPES:
        raise ValueError(
            f"expected the column {name[:60]!r} of one of the kinds {', '.join(TYPES)}"
        )
    numbers = moments is None or (len(moments) == 3 and all(map(is_number, moments)))
    if not numbers or (moments is not None and not moments[2] >= 0):
        raise ValueError(f"expected a count, a mean and a variance of the column {name[:60]!r}")
    if not isinstance(labels, list) or any(type(label) not in _LABELS for label in labels):
        raise ValueError(f"expected a list of categories of the column {name[:60]!r}")
