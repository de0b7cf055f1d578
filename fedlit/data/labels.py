"""A raw target as labels or numbers: spellings, rows without one, what should be asked."""

from __future__ import annotations

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

    from fedlit.data.schema.cells import Cells

__all__ = ["Labels", "class_labels", "likely_positive", "plain_target", "read_target"]

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
    notes: tuple[Note, ...] = ()


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
        raw: (n,), text or typed as a file had it; (n, labels) for several labels a row, some of which it may lack.
        task: as in a configuration.
        unlabelled: ``refuse`` or ``drop`` rows without one.
        decimal: the decimal mark of numbers, where it is known.
        thousands: what groups digits, where it is known.
        positive: the label that counts as positive, where it is said.
        missing: column → further words and numbers that stand for no label.

    Raises:
        DataError: rows without a label, or values that are none.
    """
    import pandas as pd

    from fedlit.data.schema.find import asked_of_numbers

    where, marks = f"client {client!r}, target", (decimal, thousands)
    classes = raw.ndim > 1 or is_classification(own_task(task, client))
    frame = cast("pd.Series", raw).to_frame() if raw.ndim == 1 else cast("pd.DataFrame", raw)
    if raw.ndim > 1:
        several(frame.iloc[:0], where)  # names each column once
    made, notes = list[pd.Series](), list[Note]()
    for name, column in frame.items():
        values, said = _values(f"{where} {name!r}", column, classes, marks, (missing or {}).get(str(name), ()))
        made.append(values)
        notes += [behind(f"{client}: {name}", note, column=str(name)) for note in said]
    target = made[0] if raw.ndim == 1 else several(pd.concat(made, axis=1), where)
    labelled, gaps = _labelled(client, ", ".join(map(str, frame)), target, unlabelled)
    target = target[labelled]
    if raw.ndim == 1:
        target = class_labels(client, target.infer_objects(), task)
        if target.dtype.kind in "iuf" and len(target):
            asked = asked_of_numbers(str(raw.name), target.to_numpy(np.float64))
            notes += [behind(f"{client}: {raw.name}", note, column=str(raw.name)) for note in asked]
        if positive is not None:
            positive = _meant(f"{where} {raw.name!r}", positive, target.unique().tolist())
        if classes:
            asked = _asked(target, task, positive)
            notes += [behind(f"{client}: {raw.name}", note, column=str(raw.name)) for note in asked]
    return Labels(target, labelled, positive, (*gaps, *notes))


def _values(
    where: str, raw: pd.Series, classes: bool, marks: tuple[str | None, str | None], missing: tuple[str | float, ...]
) -> tuple[pd.Series, list[Note]]:
    """Cells (n,) as labels or numbers, missing where there is none."""
    import pandas as pd

    from fedlit.data.schema.cells import LABEL_MISSING, Cells, is_text, plain_types
    from fedlit.data.schema.find import strange

    raw = plain_types(raw)
    if what := strange(raw):
        raise DataError(
            f"{where}: expected labels or numbers, found {what}. Write one label in each row, or name another target."
        )
    if not is_text(raw):
        held = raw.mask(raw.isin([own for own in missing if not isinstance(own, str)]))
        whole = held.dtype.kind in "iu" and held.notna().all()
        kind = held.dtype.kind
        return held.astype(
            np.int64 if whole else np.float64 if kind in "iuf" else object if kind == "b" else held.dtype
        ), []
    cells, _ = Cells.of(raw).without(missing, words=LABEL_MISSING)
    made, notes = (_classes(cells) if classes else _numbers(cells, marks)) if cells.texts else (np.array([]), [])
    return pd.Series(cells.take(made), raw.index, name=raw.name), notes


def _numbers(cells: Cells, marks: tuple[str | None, str | None]) -> tuple[np.ndarray, list[Note]]:
    from fedlit.data.schema.column import Column

    column, guessed = Column("numeric").written(cells, *marks)
    made = column.read(cells.texts)
    if np.isnan(made).any():  # the task says which
        return np.array(cells.texts, object), []
    return made, [*column.said_of(cells, made), *guessed]


def _classes(cells: Cells) -> tuple[np.ndarray, list[Note]]:
    """Each text as a number, true or false, or the most frequent spelling of a word."""
    import pandas as pd

    from fedlit.data.schema.cells import MISSING
    from fedlit.data.schema.find import spellings
    from fedlit.data.schema.numbers import find_notation, is_code

    texts, notes = cells.texts, list[Note]()
    if not any(map(is_code, texts)):
        numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
        if np.isnan(numbers).any() and len(texts) > _MANY_CLASSES:
            numbers = find_notation(texts)[0].read(texts)
        if np.isfinite(numbers).all():
            return numbers, []
    if {text.casefold() for text in texts} <= {"true", "false"}:
        return np.array([text.casefold() == "true" for text in texts], object), []
    spelt = spellings(cells)
    if several := shorten([" = ".join(map(repr, own)) for own in spelt.values() if len(own) > 1]):
        notes.append(Note(f"spellings that are one class: {several}", "spelling"))
    counts = dict(zip(texts, cells.counts.tolist(), strict=True))
    if words := [own for low, (own, *_) in spelt.items() if low in MISSING]:
        asked = shorten([f"{own!r} ({counts[own]:,})" for own in words])
        said = f"{asked}: a class, or no label? If none, write missing: {{{cells.name}: {words}}}"
        notes.append(Note(said, "no label"))
    return np.array([spelt[text.casefold()][0] for text in texts], object), notes


def _labelled(client: str, name: str, target: pd.Series, unlabelled: str) -> tuple[np.ndarray, list[Note]]:
    """Which rows have a label, and what to say of the others."""
    labelled, where = target.notna().to_numpy(), f"client {client!r}, target {name!r}"
    without = int((~labelled).sum())
    if without and unlabelled != "drop":
        raise DataError(
            f"{where}: expected a label in every row, found {without:,} rows without one of {len(target):,}. Fill them "
            "in, or leave those rows out: unlabelled: drop."
        )
    if not labelled.any():
        raise DataError(f"{where}: expected labels, found none. Name another target, or leave the client out.")
    said = f"{without:,} of {len(target):,} rows have no label in {name} and were left out"
    return labelled, [Note(said, "unlabelled", head=client)] * bool(without)


def _meant(where: str, positive: Any, labels: list[Any]) -> Any:
    """The label that a configuration means: in YAML, yes is true."""
    from fedlit.data.schema.cells import true_or_false

    def same(label: Any) -> bool:
        spelt = str(label).casefold() == str(positive).casefold()
        return spelt or (isinstance(positive, bool) and true_or_false(label) is positive)

    exact = [label for label in labels if type(label) is type(positive) and label == positive]
    for label in (*exact, *filter(same, labels)):
        return label
    raise DataError(f"{where}: positive: expected one of {shorten([*map(repr, labels)])}, found {positive!r}.")


def _asked(labels: pd.Series, task: TaskSettings | None, positive: Any) -> list[Note]:
    """What should be noted or asked about classes."""
    counts, notes = labels.value_counts(), list[Note]()
    names = counts.index.tolist()
    if task is None and labels.dtype.kind in "iu" and len(counts) > _MANY_CLASSES:
        said = (
            f"{len(counts)} different whole numbers are treated as classes; if they are numbers, set task: regression"
        )
        notes.append(Note(f"{said} or task: counts", "task", fix={"task": "regression"}))
    if len(counts) > 1 and counts.iloc[0] >= _SKEW * counts.iloc[-1]:
        said = f"1 row of {names[-1]!r} for {counts.iloc[0] // counts.iloc[-1]:,} of {names[0]!r}"
        notes.append(Note(f"{said}: look at AUPRC and balanced accuracy, not at accuracy", "skew"))
    if len(counts) == 2 and positive is None and not {0, 1} >= set(labels.unique().tolist()):
        largest = max(names, key=lambda own: (str(type(own)), own))
        likely = likely_positive(names)
        if likely is None:
            notes.append(Note(f"AUROC and AUPRC are those of {largest!r}; to change it, set positive", "positive"))
        elif likely != largest:
            said = f"AUROC and AUPRC are those of {largest!r}; did you mean {likely!r}?"
            notes.append(Note(said, "positive", fix={"positive": likely}))
    return notes


def plain_target(client: str, raw: pd.Series) -> pd.Series:
    """A raw column (n,) as numbers where all are, else as labels; without the rows that have none.

    Raises:
        DataError: cells that are neither.
    """
    values, _ = _values(f"client {client!r}, target {raw.name!r}", raw, True, (None, None), ())
    return values.dropna().infer_objects()


def likely_positive(labels: list[Any]) -> Any:
    """Return the label of two that means that something is present; None if the words do not tell.

    Example:
        >>> likely_positive(["ill", "well"]), likely_positive(["Yes", "No"]), likely_positive([0, 1])
        ('ill', 'Yes', None)
    """
    from fedlit.data.schema.cells import FALSE, TRUE

    if len(labels) != 2 or not all(isinstance(own, str) for own in labels):
        return None
    for label, other in (labels, labels[::-1]):
        if label.casefold() in {*TRUE, *_CASES.split()} or other.casefold() in {*FALSE, *_NO_CASES.split()}:
            return label
    return None
