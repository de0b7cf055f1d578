"""Detects what a raw column holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import DEFAULTS, Declared, ReadOptions, check_declared
from fedlit.data.schema.cells import FALSE, ONE_AND_ZERO, TRUE, Cells
from fedlit.data.schema.codes import are_whole, code_notes, has_padded, is_code, shortened_notes
from fedlit.data.schema.column import Column, Typed, as_numbers
from fedlit.data.schema.convert import conversion
from fedlit.data.schema.dates import PARTS, expand, find_format, look_like_dates, missing_date
from fedlit.data.schema.looks import day_notes, text_notes
from fedlit.data.schema.numbers import (
    find_notation,
    is_accounting,
    mark_of_thousands,
    plain_numbers,
    split,
    units_of,
)
from fedlit.data.schema.odd_numbers import asked_missing, far_notes, missing_notes
from fedlit.errors import Told, expect
from fedlit.show.text import counted, shorten

_ID_NAME = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|identifier|mrn|ssn|rownum|row_number|row\.?names?|pid|patid|phone|telephone)$"
    r"|^(index|unnamed: ?\d+)$|^(patient|case|hospital|subject|customer|account)([_\s.-]?(id|no|nr|num|number))?$",
    re.I,
)
_ID_CAMEL = re.compile(r"[a-z](ID|Id|NR|Nr|No)$")
# visit_number names rows only where each has another
_COUNTED = re.compile(r"[_\s.-](no|nr|number)$", re.I)
_DIGIT = re.compile(r"\d")
_WORDS = re.compile(r"[^\W\d_]{2,}")
_SEVERAL = (list, dict, set, tuple, np.ndarray)
# So many words, in a tenth of the cells at most, among so many different numbers say that there is
# no number; a single word may do so in more cells.
_MOST_ODD = 3
_NUMBERS = 10
_FEW = 5  # different numbers, of which each may be a level
_SAMPLE = 500  # cells that show whether numbers are codes
_COUNTS_ON = 0.9  # of the rows that have the number after the row before
ROWS_THAT_TELL = 20
"""Rows from which all different says something."""


@dataclass(frozen=True)
class Found:
    """What was detected in a column.

    Attributes:
        column: the description of the column.
        typed: its typed cells; none if the column is left out.
        notes: notes for a person, without the column's name.
        gaps: maps each word that counts as missing to its number of cells.
        unique: whether it holds whole numbers that differ in every row and are kept.
    """

    column: Column
    typed: Typed = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    gaps: Mapping[str, int] = field(default_factory=dict)
    unique: bool = False


def declared_column(name: str, declared: Declared, missing: tuple[str | float, ...] = ()) -> Column:
    """Make the column that a configuration declares.

    Raises:
        ConfigError: see :func:`fedlit.data.reading.options.check_declared`.

    Example:
        >>> declared_column("stage", ["I", "II"]).order, declared_column("ward", "categorical").kind
        (('I', 'II'), 'categorical')
    """
    check_declared(name, declared)
    if isinstance(declared, list):
        return Column("ordinal", missing=missing, order=tuple(map(str, declared)))
    if isinstance(declared, Mapping):
        return Column("date", missing=missing, form=str(declared["date"]))
    if declared in ("identifier", "text", "drop"):
        return Column("left out", why={"text": "free text", "drop": "dropped"}.get(declared, declared))
    return Column(declared, missing=missing)  # type: ignore[arg-type]  # checked above


def find(
    values: pd.Series,
    options: ReadOptions = DEFAULTS,
    declared: Column | None = None,
    head: str = "",
    not_missing: Mapping[str, str] | None = None,
) -> Found:
    """Detect what a column (n,) holds.

    Args:
        values: the raw cells: text, or typed as the file has them.
        options: how the file is written.
        declared: the column that the configuration declares; then only its notation is detected.
        where: the beginning of messages.
        kept: words, by lower case, that mean missing elsewhere, but are values here.

    Raises:
        ConfigError: declared dates whose format cannot be found.
        DataError: most cells are not what is declared.

    Example:
        >>> find(pd.Series(["12 mg", "8 mg", "."])).column.notation.unit
        'mg'
        >>> find(pd.Series(["yes", "No", "yes"])).column.kind, find(pd.Series(["a", "b", "a"])).column.kind
        ('boolean', 'categorical')
    """
    if declared is not None and declared.kind == "left out":
        return Found(declared)
    if content := unsupported(values):
        return _out(content, f"holds {content}")
    name = str(values.name)
    column = (declared or Column("numeric", missing=options.missing_in(name))).of_stored(values)
    if column.kind == "numeric":
        # written as programs write them, unless the options say otherwise
        plain = (
            options.decimal in (None, ".")
            and options.thousands in (None, ",")
            and not column.missing
        )
        numbers = as_numbers(values, plain)
        if numbers is not None:
            numbers = column.with_gaps(numbers)
            questions = (
                mark_of_thousands(values, numbers)
                if options.decimal is options.thousands is None
                else []
            )
            questions += _asked_codes(values, numbers) if declared is None else []
            if declared is not None:
                return Found(column, {name: numbers}, tuple(questions))
            return _of_numbers(name, numbers, column, questions)
    every = Cells.of(values)
    if {"+", "++", "+++"} & {*every.texts}:
        # no words for a missing value
        column = replace(column, spelling={mark: mark for mark in ("-", "--", "---")})
    if not_missing:
        column = replace(column, spelling={**column.spelling, **not_missing})
    cells, gaps = every.without(column.missing, column.kept)
    detected = (_of_cells if declared is None else _as_declared)(cells, column, options, head)
    return replace(detected, gaps=gaps, notes=(*detected.notes, *cells.notes))


def _asked_codes(values: pd.Series, numbers: np.ndarray) -> list[Note]:
    """Ask whether plain texts (n,) of numbers (n,) are codes."""
    if values.dtype.kind in "iufm":
        return []
    name = str(values.name)
    texts = values.iloc[:_SAMPLE].dropna().astype(str).tolist()
    if (numbers[:_SAMPLE] % 1 > 0).any():
        return code_notes(name, texts)
    return shortened_notes(name, texts)


def unsupported(values: pd.Series) -> str:
    """Describe cells that are neither text nor numbers; return an empty text if there are none."""
    if values.dtype.kind == "c":
        return "complex numbers"
    objects = values.dtype == object or isinstance(values.dtype, pd.ArrowDtype)
    types = {type(cell) for cell in values} if objects else set()
    if any(issubclass(kind, _SEVERAL) for kind in types):
        return "nested values"
    return "binary values" if bytes in types else ""


def _out(why: str, note: str, notes: Sequence[Note] = ()) -> Found:
    """Leave a column out."""
    return Found(
        Column("left out", why=why), notes=(Note(f"left out: it {note}", "left out"), *notes)
    )


def _out_by_group(name: str, note: str, gaps: int) -> Found:
    """Leave out an identifier whose values occur in several rows. To split by it, each row needs a
    value.
    """
    text = f"left out: it {note}. Rows of one belong in one split: split: {{group: {name}}}"
    if gaps:
        text += f", once {counted(gaps, 'row')} without a value are gone"
        said = Note(text, "group", alternatives=[{"types": {name: "identifier"}}])
    else:
        said = Note(text, "group", fix={"split": {"group": name}})
    return Found(Column("left out", why="identifier"), notes=(said,))


def _single(value: str, gaps: int) -> str:
    return f"has the single value {value}" + f" and {counted(gaps, 'gap')}" * bool(gaps)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:37]!r}..."


def _finished(cells: Cells, column: Column, notes: Sequence[Note] = (), head: str = "") -> Found:
    typed, further = column.take(cells, head)
    return Found(column, typed, (*notes, *further))


# ---------------------------------------------------------------------- numbers


def _of_numbers(
    name: str, numbers: np.ndarray, column: Column, notes: Sequence[Note] = ()
) -> Found:
    """Describe numbers (n,), NaN if missing: are they identifiers, a constant, or is there a code
    for a missing value?
    """
    values = numbers[~np.isnan(numbers)]
    if not len(values):
        return _out("empty", "has no value")
    if values.min() == values.max():
        return _out("constant", _single(f"{values[0]:g}", len(numbers) - len(values)), notes)
    whole = bool(np.isfinite(values).all() and (values[:1000] % 1 == 0).all() and (values % 1 == 0).all())
    different = len(np.unique(values)) if whole else 0
    unique = ROWS_THAT_TELL <= len(values) == different
    named = names_rows(name)
    close = unique and np.ptp(values) < 1.25 * len(values) and bool((np.diff(values) > 0).all())
    if unique and (named or close or _COUNTED.search(name)):
        return _out("identifier", "has a different value in each row, as an identifier has", notes)
    if named and whole and float((np.diff(values) == 1).mean()) > _COUNTS_ON:
        return _out("identifier", "counts rows, from one on again and again", notes)
    if named and different > max(ROWS_THAT_TELL, len(values) / 10):
        said = f"names rows or people ({different:,} values in {len(values):,} rows)"
        return _out_by_group(name, said, len(numbers) - len(values))
    questions = [*missing_notes(name, values), *far_notes(name, values)]
    if whole and len(values) > ROWS_THAT_TELL and values.min() >= 19000101 and values.max() <= 21001231:
        said = f"{values[0]:.0f} looks like a date. Then write types: {{{name}: {{date: '%Y%m%d'}}}}"
        questions.append(Note(said, "date", fix={"types": {name: {"date": "%Y%m%d"}}}))
    questions += day_notes(name, values) if whole else []
    return Found(column, {name: numbers}, (*notes, *questions), unique=unique)


def names_rows(name: str) -> bool:
    """Return whether the name of a column is that of an identifier."""
    return bool(_ID_NAME.search(name) or _ID_CAMEL.search(name))


# ---------------------------------------------------------------------- text


def _of_cells(cells: Cells, column: Column, options: ReadOptions, head: str) -> Found:
    """Describe texts about which the configuration says nothing."""
    texts = cells.texts
    folded = {text.casefold() for text in cells.texts}
    rows = len(cells.codes)
    filled = int(cells.counts.sum())
    if not texts:
        return _out("empty", "has no value")
    if len(folded) == 1:
        message = _single(_short(texts[0]), rows - filled)
        if not 0.05 < filled / rows < 0.95:
            return _out("constant", message)
        notes = [Note(f"{message}; used as value or gap", "one value")]
        return _finished(cells, replace(column, kind="categorical"), notes)
    if folded & TRUE and folded & FALSE and folded <= TRUE | FALSE | ONE_AND_ZERO.keys():
        return _finished(cells, replace(column, kind="boolean"))
    detected = _date(cells, column, head) or _number(cells, column, options)
    return detected or _unusable(cells) or _categories(cells, column)


def _date(cells: Cells, column: Column, head: str, least: float = 0.95) -> Found | None:
    """Describe texts of which a share is dates; return None if they are something else."""
    form, notes = (column.form, []) if column.form else find_format(cells.name, cells.texts, least)
    if form is None:
        return None
    column = replace(column, kind="date", form=form)
    times = pd.Series(cells.take(column.read(cells.texts), np.datetime64("NaT")))
    if (day := missing_date(times.dropna())) is not None:
        gone = (times == day).to_numpy()
        text = cells.texts[cells.codes[gone][0]]
        notes.append(asked_missing(cells.name, f"{text!r} ({gone.sum():,} cells)", [text]))
    else:
        notes += _far_days(cells, times)
    if "%y" in form and (late := int((times > pd.Timestamp.now()).sum())):
        message = (
            f"{counted(late, 'day')} in the future, such as {times.max():%Y}, for years have "
            "two digits: write four"
        )
        notes.append(Note(message, "guess"))
    return _finished(cells, replace(column, parts=_parts(times) or PARTS), notes, head)


def _far_days(cells: Cells, times: pd.Series) -> list[Note]:
    """Ask whether days far from all others are errors."""
    days = expand(times, "")[".elapsed"]
    far = [note for note in far_notes(cells.name, days) if note.kind == "far"]
    if not far:
        return []
    (setting,) = far[0].alternatives
    is_far = np.isin(days, setting["missing"][cells.name])
    far_texts = [cells.texts[code] for code in np.unique(cells.codes[is_far])]
    text = f"{cells.shown(np.isin(cells.texts, far_texts))} is far from all other days; correct it, or "
    text += f"write missing: {{{cells.name}: {far_texts}}}"
    return [Note(text, "far", alternatives=[{"missing": {cells.name: far_texts}}])]


def _parts(times: pd.Series) -> tuple[str, ...]:
    """Return the parts of dates that differ between rows."""
    columns = expand(times.dropna(), "")
    return tuple(part for part in PARTS if len(np.unique(columns[f".{part}"])) > 1)


def _number(cells: Cells, column: Column, options: ReadOptions) -> Found | None:
    """Describe texts that are numbers, but for a few words; return None if they are something
    else.
    """
    texts = cells.texts
    counts = cells.counts
    notation, notes = find_notation(texts, options.decimal, options.thousands)
    column = replace(column, notation=notation)
    numbers = column.read(texts)
    lost = np.isnan(numbers)
    failed = [text for text, gone in zip(texts, lost, strict=True) if gone]
    if (
        lost.all()
        or any(map(is_code, texts))
        or (has_padded(texts) and len(texts) <= counts.sum() / 2)
    ):
        return None
    if all(map(is_accounting, texts)):
        return None  # (1), (2): names of levels
    levels = any(written.level for text in texts if (written := split(text)) is not None)
    if all(text[0] in "<>≤≥" for text in texts) or (levels and any(map(_DIGIT.search, failed))):
        return None  # levels: below 20 and 20 or more; <=20 and 20-50; 1a and 2b
    if any(text[0] in "<>≤≥" for text in texts) and len(np.unique(numbers[~lost])) < min(
        _FEW, (~lost).sum()
    ):
        return None  # <20, 20 and >20, which would be one number
    share = counts[~lost].sum() / counts.sum()
    if (
        failed
        and len(units := units_of(cells)) > 1
        and len(texts) > max(ROWS_THAT_TELL, counts.sum() / 10)
    ):
        return _of_several_units(cells, units)
    if failed and (
        len(failed) > (_MOST_ODD if share >= 0.9 else 1) or len(np.unique(numbers[~lost])) < _NUMBERS
    ):
        return _mostly_numbers(cells, column, lost) if share >= 0.5 else None
    notes = [*column.notes_on(cells, numbers), *notes, *code_notes(cells.name, texts)]
    column = replace(column, missing=(*column.missing, *(text.casefold() for text in failed)))
    return _of_numbers(cells.name, cells.take(column.with_gaps(numbers)), column, notes)


def _of_several_units(cells: Cells, units: Mapping[str, int]) -> Found:
    """Leave out numbers of which some have another unit than others."""
    listing = " and ".join(f"{unit!r} ({count:,} cells)" for unit, count in units.items())
    message = f"left out: it has numbers in {listing}. Convert them to one unit, or drop it"
    first, *rest = units
    changes = {unit: conversion(unit, first) for unit in rest}
    either: list[dict[str, Any]] = [{"drop": [cells.name]}]
    if all(changes.values()):
        factors = {
            unit: list(change) if change[1] else change[0]
            for unit, change in changes.items()
            if change
        }
        either.insert(0, {"convert": {cells.name: factors}})
    note = Note(message, "unit", alternatives=either)
    return Found(Column("left out", why="several units"), notes=(note,))


def _mostly_numbers(cells: Cells, column: Column, lost: np.ndarray) -> Found:
    """Describe a column that is treated as text although most of its cells are numbers, but for
    some texts.
    """
    read = cells.counts[~lost].sum()
    listing = cells.shown(lost)
    message = (
        f"is treated as text, though {read:,} of its {cells.counts.sum():,} values are numbers; "
        f"{listing} are not"
    )
    name = cells.name
    unread = [cells.texts[position] for position in np.flatnonzero(lost)]
    either: list[dict[str, Any]] = [{"types": {name: kind}} for kind in ("categorical", "numeric")]
    levels = any(map(_DIGIT.search, unread))
    if levels:
        message += f"; with types: {{{name}: numeric}}, these would be missing"
    else:
        message += f". If they mean that there is no value, write missing: {{{name}: {unread}}}"
        either.append({"missing": {name: unread}})
    detected = _unusable(cells) or _categories(cells, column)
    note = Note(message, "level" if levels else "text", alternatives=either)
    return replace(detected, notes=(note, *detected.notes))


def _unusable(cells: Cells) -> Found | None:
    """Leave out identifiers and free text; return None for other columns."""
    texts = cells.texts[:1000]
    different = len(cells.texts)
    rows = int(cells.counts.sum())
    if rows < ROWS_THAT_TELL or different <= max(2, rows / 10):
        return None
    if np.mean([len(_WORDS.findall(text)) for text in texts]) >= 4:
        return _out("free text", f"is free text, such as {_short(texts[0])}")
    message = f"has {different:,} different values in {rows:,} rows, such as {_short(texts[0])}"
    if different > max(ROWS_THAT_TELL, rows / 2) and look_like_dates(cells.texts):
        message = (
            f"left out: it {message}, which look like dates, but of no one format. Write them in one"
        )
        note = Note(message, "formats", alternatives=[{"drop": [cells.name]}])
        return Found(Column("left out", why="unread dates"), notes=(note,))
    if different == rows:
        return _out("identifier", message)
    if names_rows(cells.name):
        return _out_by_group(cells.name, message, len(cells.codes) - rows)
    return None


def _categories(cells: Cells, column: Column) -> Found:
    (spelt, notes), rows = spellings(cells), int(cells.counts.sum())
    spelling = spelt if notes else column.spelling
    if column.kind != "categorical" and look_like_dates(cells.texts):  # else it is declared
        notes.append(
            Note("looks like dates, but of no one format, and is treated as categories", "formats")
        )
    if len(cells.texts) > max(ROWS_THAT_TELL, rows / 2):
        message = (
            f"has {len(cells.texts):,} different texts in {rows:,} cells, so its categories say "
            "next to nothing. Split it into columns, or drop it"
        )
        notes.append(Note(message, "different", alternatives=[{"drop": [cells.name]}]))
    if column.kind != "categorical":
        notes += text_notes(cells.name, cells.texts)
    return _finished(cells, Column("categorical", missing=column.missing, spelling=spelling), notes)


def spellings(cells: Cells) -> tuple[dict[str, str], list[Note]]:
    """Map each text in lower case to its most frequent spelling; return a note if a text has
    several.

    Example:
        >>> spellings(Cells.of(pd.Series(["yes", "no", "yes", "Yes"])))[0]
        {'yes': 'yes', 'no': 'no'}
    """
    found: dict[str, list[str]] = {}
    for position in np.argsort(-cells.counts, kind="stable"):
        found.setdefault(cells.texts[position].casefold(), []).append(cells.texts[position])
    several = shorten([" = ".join(map(repr, own)) for own in found.values() if len(own) > 1])
    notes = (
        [Note(f"spellings that are treated as one value: {several}", "spelling")] if several else []
    )
    return {low: own[0] for low, own in found.items()}, notes


def _as_declared(cells: Cells, column: Column, options: ReadOptions, head: str) -> Found:
    """Describe texts as the configuration declares them; only how they are written is detected."""
    notes = list[Note]()
    if column.kind == "date":
        detected = _date(cells, column, head, 0.5)
        example = _short(cells.texts[0]) if cells.texts else "no value"
        told = Told(example)
        advice = "write the format: {date: '%d/%m/%Y'}"
        expect(detected is not None, f"types: {cells.name}", "dates", told, advice)
        return cast("Found", detected)
    if column.kind == "categorical":
        numbers = plain_numbers(pd.Series(cells.texts, dtype=object))
        if numbers is None or not are_whole(cells.texts):  # 1.1 and 1.10 are two levels
            return _categories(cells, column)
        column = replace(column, kind="coded")
    if column.kind == "numeric":
        notation, notes = find_notation(cells.texts, options.decimal, options.thousands)
        column = replace(column, notation=notation)
    return _finished(cells, column, notes, head)
