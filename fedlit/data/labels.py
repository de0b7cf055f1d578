"""Reads a raw target as labels or numbers: spellings, rows without a label, and questions for the
user.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.label_cells import asked_of_codes
from fedlit.data.note import Note, prefixed
from fedlit.data.reading.options import DEFAULTS, LABEL_MISSING, MISSING, ReadOptions
from fedlit.data.schema.cells import FALSE, ONE_AND_ZERO, TRUE, Cells, true_or_false
from fedlit.data.schema.codes import is_code
from fedlit.data.schema.column import Column
from fedlit.data.schema.detect_names import spellings
from fedlit.data.schema.find import find, unsupported
from fedlit.data.schema.numbers import find_notation, plain_numbers
from fedlit.data.schema.odd_numbers import missing_notes
from fedlit.data.settings import ClientSettings
from fedlit.data.table import several
from fedlit.data.targets import class_labels
from fedlit.errors import DataError, Told, expect
from fedlit.outcomes import COUNT_TASK, DEFAULT_TASK, NUMBER_TASK
from fedlit.show.text import in_rows, shorten

_DIGIT = re.compile(r"\d")
_MINORITY = 0.5  # If fewer cells than this share are no numbers, they are mistakes among numbers.
_FEWEST_GRADES = 6
"""Fewest different whole numbers that may be grades."""
_PEAK = 3
"""Least ratio of the most frequent grade to the rarest."""
_MANY_CLASSES = 10
"""More whole numbers than these may be meant as numbers."""
_CASES = """positive pos ill sick diseased disease case event dead died deceased malignant cancer abnormal readmitted
    default churn churned fraud spam bad failure failed relapse present"""  # labels that say that something is there
_NO_CASES = (
    "negative neg healthy well control alive survived benign normal good none ok absent success"
)


@dataclass(frozen=True)
class Labels:
    """A target after reading.

    Attributes:
        target: the target of the labelled rows, with their index.
        labelled: (n,) bool, whether each row has a label.
        positive: the label that counts as positive, if it is set.
        notes: notes for a person; each names the client.
        unit: the unit beside numbers; "" if there is none.
    """

    target: pd.Series
    labelled: np.ndarray
    positive: Any = None
    notes: tuple[Note, ...] = ()
    unit: str = ""


def read_target(settings: ClientSettings, rows: pd.DataFrame) -> Labels:
    """Read the raw columns that a client predicts.

    Args:
        settings: the settings of the client. The positive label is a label even if its word means
            missing elsewhere.
        rows: raw rows, text or typed as a file had them, with the target's columns. A row may lack
            some of several labels.

    Raises:
        DataError: rows without a label, or values that are none.
    """
    client = settings.client
    subject = f"client {client!r}, target"
    label_words = set(settings.label_words)
    if settings.positive is not None:
        label_words.add(str(settings.positive).casefold())
    outcome = settings.outcome
    is_single = isinstance(settings.target, str)
    classes = outcome.one_label or (not is_single and not outcome.number)
    read_columns = list[pd.Series]()
    notes = list[Note]()
    unit = ""
    for position, name in enumerate(settings.targets):
        are_labels = classes or position in outcome.label_cells
        values, column_notes, unit = _values(
            f"{subject} {name!r}", rows[name], are_labels, settings.options, label_words
        )
        read_columns.append(values)
        if position in outcome.label_cells and str(name) not in settings.values:
            column_notes = [*column_notes, *asked_of_codes(str(name), values.dropna().unique())]
        notes += [prefixed(f"{client}: {name}", note, column=str(name)) for note in column_notes]
    if is_single:
        target = read_columns[0]
    else:
        # The empty frame keeps the index if there is no column.
        columns = pd.concat([rows.iloc[:, :0], *read_columns], axis=1)
        # Without a task, several columns are several labels.
        partial = outcome.partial or not outcome.several_columns
        target = several(columns, subject, partial=partial)
    labelled = target.notna().to_numpy()
    gaps = list[Note]()
    if not (len(labelled) and labelled.all()):
        raw = rows[list(settings.targets)]
        gaps = _gaps(client, raw, labelled, settings.unlabelled)
    if not labelled.all():
        target = target[labelled]
    if not is_single:
        return Labels(target, labelled, settings.positive, (*gaps, *notes), unit)
    target = class_labels(client, target.infer_objects(), outcome)
    positive = settings.positive
    # The positive label of a client with one label comes from other clients.
    if positive is not None and target.nunique() > 1:
        positive = meant(f"{subject} {target.name!r}", positive, target.unique().tolist())
    questions = list[Note]()
    if target.dtype.kind in "iuf" and len(target):
        questions += missing_notes(str(target.name), target.to_numpy(np.float64))
    if classes:
        questions += _asked(target, settings.asks_for_task, positive)
    head = f"{client}: {target.name}"
    notes += [prefixed(head, note, column=str(target.name)) for note in questions]
    return Labels(target, labelled, positive, (*gaps, *notes), unit)


def read_weights(where: str, raw: pd.Series, options: ReadOptions = DEFAULTS) -> np.ndarray | None:
    """Read a raw column as how much each row counts.

    Args:
        where: the client, for messages.
        raw: (n,), text or typed as a file had it.
        options: how the file is written.

    Returns:
        (n,) float64; None if all rows count alike.

    Raises:
        DataError: a cell is no finite number above 0.

    Example:
        >>> read_weights("here", pd.Series(["1", "2.5"])), read_weights("here", pd.Series(["3", "3"]))
        (array([1. , 2.5]), None)
    """
    values, _, _ = _values(f"{where}, weight {raw.name!r}", raw, False, options)
    weights = values.to_numpy(np.float64, na_value=np.nan)
    wrong = ~(np.isfinite(weights) & (weights > 0))
    wrong_cells = (
        f"{int(wrong.sum()):,} others of {len(raw):,}: {in_rows(raw.index[wrong], raw[wrong])}"
    )
    advice = "correct them, or leave these rows out"
    expect(
        not wrong.any(),
        f"{where}, weight {raw.name!r}",
        "finite numbers above 0",
        Told(wrong_cells),
        advice,
        DataError,
    )
    return None if weights.min() == weights.max() else weights


def _values(
    where: str,
    raw: pd.Series,
    classes: bool,
    options: ReadOptions,
    label_words: Collection[str] = (),
) -> tuple[pd.Series, list[Note], str]:
    """Return cells (n,) as labels or numbers, missing where there is none; notes; and the unit
    beside numbers.
    """
    missing = options.missing_in(str(raw.name))
    kind = raw.dtype.kind
    problem = unsupported(raw)
    advice = "write one label in each row, or name another target"
    expect(not problem, where, "labels or numbers", Told(problem), advice, DataError)
    if not classes:
        typed = find(raw, options, Column("numeric", missing=missing), where)
        numbers = pd.Series(typed.typed[str(raw.name)], raw.index, name=raw.name)
        return numbers, list(typed.notes), typed.column.notation.unit
    if kind in "iufb":
        number_words = [marker for marker in missing if not isinstance(marker, str)]
        present = raw.mask(raw.isin(number_words))
        dtype: type = np.int64
        if kind == "b":
            dtype = object
        elif kind == "f" or present.isna().any():
            dtype = np.float64
        return present.astype(dtype), [], ""
    cells, _ = Cells.of(raw).without(missing, label_words, LABEL_MISSING)
    labels, notes = _classes(cells, label_words) if cells.texts else (np.array([]), [])
    if labels.dtype.kind == "f":
        labels = Column("numeric", missing=missing).with_gaps(labels)
    return pd.Series(cells.take(labels), raw.index, name=raw.name), [*notes, *cells.notes], ""


def _classes(cells: Cells, label_words: Collection[str] = ()) -> tuple[np.ndarray, list[Note]]:
    """Read each text as a number, as true or false, or as the most frequent spelling of a word."""
    texts = cells.texts
    numbers = None
    if all(map(_DIGIT.search, texts)):
        numbers = plain_numbers(pd.Series(texts, dtype=object))
    if numbers is None and len(texts) > _MANY_CLASSES and not any(map(is_code, texts)):
        numbers = find_notation(texts)[0].read(texts)
    if numbers is not None and np.isfinite(numbers).all():
        return numbers, []
    if {text.casefold() for text in texts} <= {"true", "false"}:
        return np.array([text.casefold() == "true" for text in texts], object), []
    spelt, notes = spellings(cells)
    is_missing_word = np.array(
        [text.casefold() in MISSING.difference(label_words) for text in texts]
    )
    if is_missing_word.any():
        word_cells = cells.shown(is_missing_word)
        write = [text for text, is_word in zip(texts, is_missing_word, strict=True) if is_word]
        sentence = (
            f"{word_cells}: a class, or no label? If none, write missing: {{{cells.name}: {write}}}"
        )
        notes.append(Note(sentence, "no label"))
    return np.array([spelt[text.casefold()] for text in texts], object), notes


def _gaps(client: str, raw: pd.DataFrame, labelled: np.ndarray, unlabelled: str) -> list[Note]:
    """Return a note on the rows of a raw target that have no label, unless these are refused."""
    name = ", ".join(map(str, raw))
    subject = f"client {client!r}, target {name!r}"
    without = int((~labelled).sum())
    cells = raw.loc[~labelled].iloc[:, 0]
    if raw.shape[1] > 1:
        rows = raw[~labelled].itertuples(index=False, name=None)
        cells = pd.Series([", ".join(map(_cell_text, row)) for row in rows], cells.index)
    if without and unlabelled != "drop":
        raise DataError(
            f"{subject}: expected a label in every row, found {without:,} rows without one of "
            f"{len(labelled):,}: {in_rows(cells.index, cells)}; correct them, say with values what "
            "they mean, or write unlabelled: drop"
        )
    advice = "name another target, or leave the client out"
    expect(bool(labelled.any()), subject, "labels", Told("none"), advice, DataError)
    sentence = f"{without:,} of {len(labelled):,} rows have no label in {name} and were left out"
    return [Note(sentence, "unlabelled", head=client)]


def _cell_text(cell: str | float | None) -> str:
    return "none" if pd.isna(cell) or not str(cell).strip() else str(cell)


def meant(where: str, positive: Any, labels: list[Any]) -> Any:
    """Return the label that a configuration means: one with that spelling, otherwise one with that
    meaning (``1e3`` is 1000, and ``yes`` may be a column's true).
    """
    matches = [label for label in labels if str(label).casefold() == str(positive).casefold()]
    number = _number(positive)
    matches += [label for label in labels if number is not None and number == label]
    meaning = true_or_false(positive)
    if meaning is not None and str(positive) not in ONE_AND_ZERO:
        matches += [label for label in labels if true_or_false(label) is meaning]
    expect(
        bool(matches),
        f"{where}: positive",
        f"one of {shorten([*map(repr, labels)])}",
        positive,
        kind=DataError,
    )
    return matches[0]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _asked(labels: pd.Series, asks_for_task: bool, positive: Any) -> list[Note]:
    """Return notes on classes that the user should know of or decide."""
    notes = list[Note]()
    are_whole = asks_for_task and labels.dtype.kind in "iu"
    codes, different = labels.factorize()
    if not are_whole and len(different) != 2:
        return notes
    counts = np.bincount(codes)
    in_order = different.tolist()
    names = [in_order[position] for position in np.argsort(-counts, kind="stable").tolist()]
    if are_whole and len(counts) > _MANY_CLASSES:
        sentence = (
            f"{len(counts)} different whole numbers are treated as classes; if they are "
            "numbers, set task: regression"
        )
        tasks = [{"task": task} for task in (NUMBER_TASK, COUNT_TASK, DEFAULT_TASK)]
        notes.append(Note(f"{sentence} or task: counts", "task", alternatives=tasks))
    elif are_whole and _is_peaked(counts[different.argsort()]):
        sentence = (
            f"{len(counts)} whole numbers from {min(names)} to {max(names)} are treated as "
            "classes, without order; if "
        )
        sentence += (
            "they are grades, set task: regression; if they are numbers of something, task: counts"
        )
        tasks = [{"task": task} for task in (NUMBER_TASK, COUNT_TASK, DEFAULT_TASK)]
        notes.append(Note(sentence, "task", alternatives=tasks))
    if len(counts) == 2 and positive is None and not {0, 1} >= set(names):
        largest = max(names)
        likely = likely_positive(names)
        ask = "to change it, set positive" if likely is None else f"did you mean {likely!r}?"
        if likely != largest:
            sentence = f"AUROC and AUPRC are those of {largest!r}; {ask}"
            if likely is None:
                either = [{"positive": label} for label in (largest, min(names))]
                notes.append(Note(sentence, "positive", alternatives=either))
            else:
                notes.append(Note(sentence, "positive", fix={"positive": likely}))
    return notes


def _is_peaked(counts: np.ndarray) -> bool:
    """Return whether the row counts (n,) of ascending values rise to one peak and fall again, up to
    chance. Grades and counts have one peak, numbers that stand for names rarely.

    Example:
        >>> _is_peaked(np.array([20, 163, 1457, 2198, 880, 175, 5])), _is_peaked(np.array([78, 82, 77, 83, 81, 80]))
        (True, False)
        >>> _is_peaked(np.array([211840, 283301, 35754, 2747, 9493, 17367, 20510]))
        False
    """
    if len(counts) < _FEWEST_GRADES or counts.max() < _PEAK * counts.min():
        return False
    top = int(counts.argmax())
    steps = np.diff(counts) * np.where(np.arange(len(counts) - 1) < top, 1, -1)
    chance = 2 * np.sqrt(counts[:-1] + counts[1:])
    return bool((steps >= -chance).all())


def unread(raw: pd.Series) -> str:
    """List the cells of a raw target (n,) that are no numbers, with their rows, if most of them
    are; otherwise "".

    Example:
        >>> unread(pd.Series(["1.5", "2", "7.5", "1.2.3"]))
        "'1.2.3' in row 3"
    """
    cells, _ = Cells.of(raw).without((), missing_words=LABEL_MISSING)
    if not cells.texts:
        return ""
    lost = np.isnan(find_notation(cells.texts)[0].read(cells.texts))
    share = cells.counts[lost].sum() / cells.counts.sum()
    if not 0 < share < _MINORITY:
        return ""
    bad = raw[cells.take(lost.astype(np.float64), 0.0) > 0]
    return in_rows(bad.index, bad)


def plain_target(client: str, raw: pd.Series) -> pd.Series:
    """Read a raw column (n,) as numbers if all cells are numbers, but for words for a missing value
    beside many of them, otherwise as labels. Rows without a label are dropped.

    Raises:
        DataError: cells that are neither.
    """
    subject = f"client {client!r}, target {raw.name!r}"
    values, _, _ = _values(subject, raw, True, DEFAULTS)
    if values.dtype.kind == "O" and values.nunique() > _MANY_CLASSES:
        cells, _ = Cells.of(raw).without(())
        numbers, _ = _classes(cells)
        if numbers.dtype.kind == "f":
            values = pd.Series(cells.take(numbers), raw.index, name=raw.name)
    return values.dropna().infer_objects()


def likely_positive(labels: list[Any]) -> Any:
    """Return which of two labels means that something is present, or None if the words do not say.

    Example:
        >>> likely_positive(["ill", "well"]), likely_positive(["Yes", "No"]), likely_positive([0, 1])
        ('ill', 'Yes', None)
    """
    if len(labels) != 2 or not all(isinstance(label, str) for label in labels):
        return None
    orders = (labels, labels[::-1])
    for label, opposite in orders:
        if _means_presence(label) and _means_absence(opposite):
            return label
    for label, opposite in orders:
        is_word = len(label) > 1 < len(opposite)  # N may be north, and T a treatment
        if is_word and (_means_presence(label) or _means_absence(opposite)):
            return label
    return None


def _means_presence(label: str) -> bool:
    return label.casefold() in {*TRUE, *_CASES.split()}


def _means_absence(label: str) -> bool:
    return label.casefold() in {*FALSE, *_NO_CASES.split()}
