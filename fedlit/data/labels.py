"""A raw target as labels or numbers: spellings, rows without one, what should be asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedlit.data.note import Note, behind
from fedlit.data.table import TaskSettings, several
from fedlit.data.target import is_classification, own_task
from fedlit.errors import DataError
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Labels", "class_labels", "likely_positive", "plain_target", "read_target"]

_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0*)?")
_MANY_CLASSES = 10  # whole numbers: from here on they may be meant as numbers
_SKEW = 50  # rows of the largest class for one of the smallest
_CASES = """
    positive pos ill sick diseased disease case event dead died deceased malignant cancer abnormal readmitted
    default churn churned fraud spam bad failure failed relapse present
"""  # labels that say that something is there
_NO_CASES = """
    negative neg healthy well control alive survived benign normal good none ok absent success
"""


@dataclass(frozen=True)
class Labels:
    """A target that was read.

    Attributes:
        target: of the rows that have one, with their index.
        labelled: (n,) bool, which rows have one.
        positive: the label that counts as positive, where it is said.
        notes: what a person should know; each names the client.
    """

    target: pd.Series
    labelled: np.ndarray
    positive: Any = None
    notes: tuple[str, ...] = ()


def class_labels(client: str, target: pd.Series | pd.DataFrame, task: TaskSettings | None = None) -> pd.Series:
    """Labels as they are, but whole numbers as integers where missing ones elsewhere made them floats; the numbers of
    another task as they are; several columns as :func:`~fedlit.data.table.several` has them.

    Raises:
        DataError: numbers that are no classes.
    """
    if target.ndim > 1:
        return several(cast("pd.DataFrame", target), f"client {client!r}, target")
    target = cast("pd.Series", target)
    if is_classification(own_task(task, client)) and target.dtype.kind == "f" and target.notna().all():
        if (target % 1 != 0).any():
            raise DataError(
                f"client {client!r}, target {target.name!r}: expected class labels, found numbers such as "
                f"{target[target % 1 != 0].iloc[0]}. Say task: regression to predict numbers; or name another target, "
                "or cut this one into classes first."
            )
        return target.astype(np.int64)  # the label is 1, not 1.0
    return target


def read_target(
    client: str,
    raw: pd.Series | pd.DataFrame,
    task: TaskSettings | None,
    unlabelled: str = "refuse",
    decimal: str | None = None,
    thousands: str | None = None,
    positive: Any = None,
    missing: Mapping[str, tuple[str | float, ...]] | None = None,
) -> Labels:
    """A raw column as a target.

    Args:
        client: whose; messages name it.
        raw: (n,), text or typed as a file had it; (n, labels) for several labels a row.
        task: as in a configuration.
        unlabelled: ``refuse`` or ``drop`` rows without one.
        decimal: the decimal mark of numbers, where it is known.
        thousands: what groups digits, where it is known.
        positive: the label that counts as positive, where it is said.
        missing: column → further words and numbers that stand for no label.

    Raises:
        DataError: rows without a label, or values that are none.
    """
    from fedlit.data.schema.column import is_text

    if raw.ndim > 1:
        return _several(client, cast("pd.DataFrame", raw), unlabelled, missing or {})
    raw = cast("pd.Series", raw)
    where = f"client {client!r}, target {raw.name!r}"
    held = _cells(where, raw, (missing or {}).get(str(raw.name), ()))
    labelled, notes = _labelled(client, str(raw.name), held, unlabelled)
    held = held[labelled]
    if not is_classification(own_task(task, client)):
        values, said = _numbers(held, decimal, thousands) if is_text(held) else (held, [])
        return Labels(values, labelled, None, (*notes, *_of(client, raw.name, said)))
    values, said = _classes(held) if is_text(held) else (_plain(held), [])
    values = class_labels(client, values, task)
    if positive is not None:
        positive = _meant(where, positive, values.unique().tolist())
    said += _asked(values, task, positive)
    return Labels(values, labelled, positive, (*notes, *_of(client, raw.name, said)))


def _cells(where: str, raw: pd.Series, missing: tuple[str | float, ...]) -> pd.Series:
    """Cells that hold one label or number each; NaN where none."""
    from fedlit.data.schema.column import NESTED, is_text, plain_types
    from fedlit.data.schema.missing import LABEL_TOKENS, blank, plain_text

    raw = plain_types(raw)
    if not is_text(raw):
        return raw.mask(raw.isin([own for own in missing if not isinstance(own, str)]))
    if raw.dtype == object:
        nested = raw[raw.map(lambda cell: isinstance(cell, (*NESTED, bytes)))]
        if len(nested):
            raise DataError(
                f"{where}: expected labels or numbers, found {type(nested.iloc[0]).__name__} values such as "
                f"{str(nested.iloc[0])[:40]!r}. Write one label in each row, or name another target."
            )
    plain = plain_text(raw)
    return plain.mask(blank(plain, missing, LABEL_TOKENS), np.nan)


def _labelled(client: str, name: str, held: pd.Series, unlabelled: str) -> tuple[np.ndarray, list[str]]:
    """Which rows have a label, and what to say of the others."""
    labelled, where = held.notna().to_numpy(), f"client {client!r}, target {name!r}"
    without = int((~labelled).sum())
    if without and unlabelled != "drop":
        raise DataError(
            f"{where}: expected a label in every row, found {without:,} rows without one of {len(held):,}. Fill them "
            "in, or leave those rows out: unlabelled: drop."
        )
    if not labelled.any():
        raise DataError(f"{where}: expected labels, found none. Name another target, or leave the client out.")
    said = f"{client}: {without:,} of {len(held):,} rows have no label in {name} and were left out"
    return labelled, [said] if without else []


def _several(client: str, raw: pd.DataFrame, unlabelled: str, missing: Mapping[str, tuple[str | float, ...]]) -> Labels:
    """Several labels a row, each of two values; a row may lack some of them."""
    several(raw.iloc[:0], f"client {client!r}, target")  # names each column once
    made, notes = raw.iloc[:, :0].copy(), list[str]()
    for name in map(str, raw):
        held = _cells(f"client {client!r}, target {name!r}", raw[name], missing.get(name, ()))
        known = held.dropna()
        values, said = _classes(known) if known.dtype.kind == "O" or str(known.dtype) == "str" else (_plain(known), [])
        made[name] = values.reindex(raw.index)
        notes += _of(client, name, said)
    target = several(made, f"client {client!r}, target")
    labelled, said = _labelled(client, ", ".join(map(str, raw)), target, unlabelled)
    return Labels(target[labelled], labelled, None, (*said, *notes))


def _meant(where: str, positive: Any, labels: list[Any]) -> Any:
    """The label that a configuration means: in YAML, yes is true."""
    from fedlit.data.schema.column import true_or_false

    for label in labels:
        if type(label) is type(positive) and label == positive:
            return label
    for label in labels:
        same = str(label).casefold() == str(positive).casefold()
        if same or (isinstance(positive, bool) and true_or_false(label) is positive):
            return label
    raise DataError(f"{where}: positive: expected one of {shorten([*map(repr, labels)])}, found {positive!r}.")


def _plain(held: pd.Series) -> pd.Series:
    """Nullable numbers as plain ones."""
    if held.dtype.kind in "iuf":
        return held.astype(np.float64 if held.dtype.kind == "f" else np.int64)
    return held.astype(bool) if str(held.dtype) == "boolean" else held


def _numbers(held: pd.Series, decimal: str | None, thousands: str | None) -> tuple[pd.Series, list[str]]:
    import pandas as pd

    from fedlit.data.schema.numbers import find_notation, parse, told

    notation, guess = find_notation(map(str, held.unique()), decimal, thousands)
    found = parse(held, notation)
    if found.failed:  # the task says which
        return held, []
    return pd.Series(found.values, index=held.index, name=held.name), told(found, notation, guess)


def _classes(held: pd.Series) -> tuple[pd.Series, list[str]]:
    import pandas as pd

    from fedlit.data.schema.missing import TOKENS
    from fedlit.data.schema.numbers import find_notation, is_code, parse
    from fedlit.data.schema.spelling import spellings, told_of_spellings

    texts = [str(text) for text in held.unique()]
    codes = any(map(is_code, texts))
    if not codes and all(_WHOLE.fullmatch(text) for text in texts):
        return held.map({text: int(text.partition(".")[0]) for text in texts}).astype(np.int64), []
    numbers = pd.to_numeric(held, errors="coerce")
    if not codes and numbers.notna().all() and np.isfinite(numbers.to_numpy(np.float64)).all():
        return numbers.astype(np.float64), []
    if len(texts) > _MANY_CLASSES and not codes:
        found = parse(held, find_notation(texts[:5000])[0])
        if not found.failed:
            return pd.Series(found.values, index=held.index, name=held.name), []
    counts = held.value_counts()
    if {str(text).casefold() for text in counts.index} <= {"true", "false"}:
        return held.map(lambda text: str(text).casefold() == "true").astype(bool), []
    spelt = spellings(counts.index)  # the most frequent first
    known = {text: own[0] for own in spelt.values() for text in own}
    shown = told_of_spellings(spelt)
    notes = [f"spellings that are one class: {shown}"] if shown else []
    words = [own for low, (own, *_) in spelt.items() if low in TOKENS]
    if words:
        asked = shorten([f"{own!r} ({int((held == own).sum()):,})" for own in words])
        notes.append(f"{asked}: a class, or no label? If none, write missing: {{{held.name}: {words}}}")
    return held.map(lambda text: known[str(text)]), notes


def _asked(labels: pd.Series, task: TaskSettings | None, positive: Any) -> list[str]:
    """What should be noted or asked about classes."""
    counts, notes = labels.value_counts(), list[str]()
    names = counts.index.tolist()
    if task is None and labels.dtype.kind in "iu" and len(counts) > _MANY_CLASSES:
        said = f"{len(counts)} different whole numbers are taken for classes; if they are numbers, say task: regression"
        notes.append(Note(f"{said} or task: counts", "task", fix={"task": "regression"}))
    if len(counts) > 1 and counts.iloc[0] >= _SKEW * counts.iloc[-1]:
        notes.append(
            f"1 row of {names[-1]!r} for {counts.iloc[0] // counts.iloc[-1]:,} of {names[0]!r}: look at "
            "AUPRC and balanced accuracy, not at accuracy"
        )
    if len(counts) == 2 and positive is None and not {0, 1} >= set(labels.unique().tolist()):
        largest = max(names, key=lambda own: (str(type(own)), own))
        likely = likely_positive(names)
        if likely is None:
            notes.append(Note(f"AUROC and AUPRC are of {largest!r}; for the other say positive", "positive"))
        elif likely != largest:
            said = f"AUROC and AUPRC are of {largest!r}; is {likely!r} what you look for?"
            notes.append(Note(said, "positive", fix={"positive": likely}))
    return notes


def plain_target(client: str, raw: pd.Series) -> pd.Series:
    """A raw column (n,) as numbers where all are, else as labels; without the rows that have none.

    Raises:
        DataError: cells that are neither.
    """
    from fedlit.data.schema.column import is_text

    held = _cells(f"client {client!r}, target {raw.name!r}", raw, ()).dropna()
    return _classes(held)[0] if is_text(held) else _plain(held)


def likely_positive(labels: list[Any]) -> Any:
    """Return the label of two that means that something is present; None if the words do not tell.

    Example:
        >>> likely_positive(["ill", "well"]), likely_positive(["Yes", "No"]), likely_positive([0, 1])
        ('ill', 'Yes', None)
    """
    from fedlit.data.schema.column import FALSE, TRUE

    if len(labels) != 2 or not all(isinstance(own, str) for own in labels):
        return None
    for label, other in (labels, labels[::-1]):
        if label.casefold() in TRUE.union(_CASES.split()) or other.casefold() in FALSE.union(_NO_CASES.split()):
            return label
    return None


def _of(client: str, column: object, notes: list[str]) -> list[str]:
    return [behind(f"{client}: {column}", note, column=str(column)) for note in notes]
