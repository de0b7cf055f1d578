"""Detects what a raw column holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import DEFAULTS, Declared, ReadOptions, check_declared
from fedlit.data.schema.cells import FALSE, ONE_AND_ZERO, TRUE, Cells, plain_types
from fedlit.data.schema.column import Column, Typed, as_numbers
from fedlit.data.schema.dates import OF_ZONES, PARTS, expand, look_like_dates, missing_date
from fedlit.data.schema.numbers import is_code, missing_codes, split
from fedlit.errors import ConfigError
from fedlit.show.text import shorten

_ID_NAME = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|identifier|mrn|ssn|rownum|row_number|row\.?names?|pid|patid|phone|telephone)$"
    r"|^(index|unnamed: ?\d+)$|^(patient|case|hospital|subject|customer|account)([_\s.-]?(id|no|nr|num|number))?$",
    re.I,
)
_ID_CAMEL = re.compile(r"[a-z](ID|Id|NR|Nr|No)$")
_COUNTED = re.compile(r"[_\s.-](no|nr|number)$", re.I)  # visit_number names rows only where each has another
_WORDS = re.compile(r"[^\W\d_]{2,}")
_TWO_NUMBERS = re.compile(r"(0|[1-9]\d*)([.,]\d+)? ?[/x×:;|] ?(0|[1-9]\d*)([.,]\d+)?")  # 2024/007 is a code
_SEVERAL = (list, dict, set, tuple, np.ndarray)
_MOST_ODD = 3  # different words among numbers that may all mean that there is no number
_MANY = 20  # rows from which all different says something


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


def declared_column(name: str, said: Declared, missing: tuple[str | float, ...] = ()) -> Column:
    """Make the column that a configuration declares.

    Raises:
        ConfigError: see :func:`fedlit.data.reading.options.check_declared`.

    Example:
        >>> declared_column("stage", ["I", "II"]).order, declared_column("ward", "categorical").kind
        (('I', 'II'), 'categorical')
    """
    check_declared(name, said)
    if isinstance(said, list):
        return Column("ordinal", missing=missing, order=tuple(map(str, said)))
    if isinstance(said, Mapping):
        return Column("date", missing=missing, form=str(said["date"]))
    if said in ("identifier", "text", "drop"):
        return Column("left out", why={"text": "free text", "drop": "dropped"}.get(said, said))
    return Column(said, missing=missing)  # type: ignore[arg-type]  # checked above


def find(values: pd.Series, options: ReadOptions = DEFAULTS, declared: Column | None = None, where: str = "") -> Found:
    """Detect what a column (n,) holds.

    Args:
        values: the raw cells: text, or typed as the file has them.
        options: how the file is written.
        declared: the column that the configuration declares; then only its notation is detected.
        where: the beginning of messages.

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
    values = plain_types(values)
    if what := unsupported(values):
        return _out(what, f"holds {what}")
    missing = options.missing_in(str(values.name))
    column = declared or Column("numeric", missing=missing)
    if values.dtype.kind == "M" and (declared is None or declared.kind == "date"):
        return _of_times(values, declared or replace(column, kind="date", form="ISO8601"), declared is not None)
    if declared is not None and declared.kind == "categorical" and values.dtype.kind in "iuf" and values.isna().all():
        return Found(replace(declared, kind="coded"), {str(values.name): values.to_numpy(np.float64, na_value=np.nan)})
    if declared is None or declared.kind == "numeric":
        # written as programs write them, unless the options say otherwise
        plain = options.decimal in (None, ".") and options.thousands in (None, ",") and not missing
        numbers = as_numbers(values, plain)
        if numbers is not None and declared is None:
            return _of_numbers(str(values.name), column.with_gaps(numbers), column)
        if numbers is not None:
            return Found(column, {str(values.name): column.with_gaps(numbers)})
    every = Cells.of(values)
    signs = {own: own for own in ("+", "++", "+++", "-", "--", "---")} if {"+", "++", "+++"} & {*every.texts} else {}
    cells, gaps = every.without(missing, signs)
    found = (
        _of_cells(cells, column, options, signs) if declared is None else _as_declared(cells, declared, options, where)
    )
    rows, held = len(cells.codes), int(cells.counts.sum())
    if found.column.why == "constant" and 0.05 < held / rows < 0.95:  # such as yes, or nothing
        said = f"has the single value {_short(cells.texts[0])} and {rows - held:,} gaps; used as value or gap"
        found = replace(_finished(cells, replace(column, kind="categorical")), notes=(Note(said, "one value"),))
    return replace(found, gaps=gaps, notes=(*found.notes, *cells.notes))


def unsupported(values: pd.Series) -> str:
    """Describe cells that are neither text nor numbers; return an empty text if there are none."""
    if values.dtype.kind == "c":
        return "complex numbers"
    types = {type(cell) for cell in values} if values.dtype == object else set()
    if any(issubclass(own, _SEVERAL) for own in types):
        return "nested values"
    return "binary values" if bytes in types else ""


def _out(why: str, note: str, others: Sequence[Note] = (), group: str = "") -> Found:
    """Leave a column out. ``group`` is its name if its values occur in several rows."""
    if group:
        note += f". Rows of one belong in one split: split: {{group: {group}}}"
    fix = {"split": {"group": group}} if group else {}
    said = Note(f"left out: it {note}", "group" if group else "left out", fix=fix)
    return Found(Column("left out", why=why), notes=(said, *others))


def _constant(value: object, gaps: int, notes: Sequence[Note] = ()) -> Found:
    return _out("constant", f"has the single value {_short(value)}" + (f" and {gaps:,} gaps" if gaps else ""), notes)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    text = repr(text) if isinstance(value, str) else text
    return text if len(text) <= 40 else f"{text[:37]}..."


def _finished(cells: Cells, column: Column, notes: Sequence[Note] = (), where: str = "") -> Found:
    typed, said = column.take(cells, where)
    return Found(column, typed, (*notes, *said))


# ---------------------------------------------------------------------- numbers and times


def _of_times(values: pd.Series, column: Column, declared: bool) -> Found:
    """Describe cells (n,) that a file stores as times."""
    times = column.times(values)
    if not declared and times.isna().all():
        return _out("empty", "has no value")
    parts = _parts(times)
    if not declared and not parts:
        return _constant(times.dropna().iloc[0], 0)
    column = replace(column, parts=parts or PARTS)
    zoned = isinstance(values.dtype, pd.DatetimeTZDtype) and bool(
        (values.dt.tz_localize(None) != times)[times.notna()].any()
    )
    notes = [OF_ZONES] if zoned else []
    notes += _asked_of_days(str(values.name), times, "{:%Y-%m-%d}".format)
    return Found(column, column.dates(times), tuple(notes))


def _of_numbers(name: str, numbers: np.ndarray, column: Column, notes: Sequence[Note] = ()) -> Found:
    """Describe numbers (n,), NaN if missing: are they identifiers, a constant, or is there a code for a
    missing value?
    """
    own = numbers[~np.isnan(numbers)]
    if not len(own):
        return _out("empty", "has no value")
    if own.min() == own.max():
        return _constant(float(own[0]), len(numbers) - len(own), notes)
    whole = bool(np.isfinite(own).all() and (own[:1000] % 1 == 0).all() and (own % 1 == 0).all())
    different = len(np.unique(own)) if whole else 0
    if whole and (why := _identifies(name, own, different)):
        return _out("identifier", why, notes, name if different < len(own) else "")
    asked = missing_notes(name, own)
    if whole and len(own) > _MANY and _are_days(own):
        said = f"{own[0]:.0f} looks like a date. Then write types: {{{name}: {{date: '%Y%m%d'}}}}"
        asked.append(Note(said, "date", fix={"types": {name: {"date": "%Y%m%d"}}}))
    return Found(column, {name: numbers}, (*notes, *asked), unique=_MANY <= len(own) == different)


def missing_notes(name: str, numbers: np.ndarray) -> list[Note]:
    """Ask whether some of the numbers (n,) of a column or target stand for a missing value."""
    words = [int(value) if value.is_integer() else value for value in missing_codes(numbers)]
    shown = " and ".join(f"{value:g} ({int((numbers == value).sum()):,} cells)" for value in words)
    return [_asked(name, shown, words)] if words else []


def _asked(name: str, shown: str, words: Sequence[object]) -> Note:
    said = f"does {shown} mean that there is no value? Then write missing: {{{name}: {words}}}"
    return Note(said, "missing", fix={"missing": {name: words}})


def _are_days(numbers: np.ndarray) -> bool:
    """Return whether whole numbers (n,) are days such as 20240131."""
    if numbers.min() < 19000101 or numbers.max() > 21001231:
        return False
    days = pd.Series(numbers[:1000]).astype(np.int64).astype(str)
    return bool(pd.to_datetime(days, format="%Y%m%d", errors="coerce").notna().all())


def _identifies(name: str, own: np.ndarray, different: int) -> str:
    """Explain why whole numbers identify rows; return an empty text if they do not."""
    named = _names_rows(name)
    if different == len(own) >= _MANY:
        close = own.max() - own.min() < 1.25 * len(own)
        if close and ((np.diff(own) > 0).all() or named):
            return "numbers the rows"
        if named or _COUNTED.search(name):
            return "has a different value in each row, and its name suggests an identifier"
    many = named and different > max(_MANY, len(own) / 10)
    return f"names rows or people ({different:,} values in {len(own):,} rows)" if many else ""


def _names_rows(name: str) -> bool:
    return bool(_ID_NAME.search(name) or _ID_CAMEL.search(name))


# ---------------------------------------------------------------------- text


def _of_cells(cells: Cells, column: Column, options: ReadOptions, signs: Mapping[str, str]) -> Found:
    """Describe texts about which the configuration says nothing."""
    texts = cells.texts
    if not texts:
        return _out("empty", "has no value")
    words = {text.casefold() for text in texts}
    if words & TRUE and words & FALSE and words <= TRUE | FALSE | ONE_AND_ZERO.keys():
        return _finished(cells, replace(column, kind="boolean"))
    found = _date(cells, column) or _number(cells, column, options)
    if found is not None:
        return found
    if len(words) == 1:
        return _constant(texts[0], int((cells.codes < 0).sum()))
    said = "looks like dates in several formats, and is treated as categories; use one format"
    notes = [Note(said, "formats")] if look_like_dates(texts) else []
    return _unusable(cells) or _categories(cells, column, notes, signs)


def _date(cells: Cells, column: Column) -> Found | None:
    column, notes = replace(column, kind="date").fitted(cells)
    if column.form is None:
        return None
    times = pd.Series(cells.take(column.read(cells.texts), np.datetime64("NaT")))
    if not (parts := _parts(times)):
        return None
    if "%y" in column.form and (late := int((times.dt.year > pd.Timestamp.now().year).sum())):
        said = f"{late:,} years of two digits are in the future, such as {times.max():%Y}: write four digits"
        notes.append(Note(said, "guess"))
    notes += _asked_of_days(cells.name, times, lambda day: cells.texts[cells.codes[(times == day).to_numpy()][0]])
    return _finished(cells, replace(column, parts=parts), notes)


def _asked_of_days(name: str, times: pd.Series, written: Callable[[pd.Timestamp], str]) -> tuple[Note, ...]:
    """Ask whether a day stands for a missing value."""
    if (day := missing_date(times.dropna())) is None:
        return ()
    word = written(day)
    return (_asked(name, f"{word!r} ({int((times == day).sum()):,} cells)", [word]),)


def _parts(times: pd.Series) -> tuple[str, ...]:
    """Return the parts of dates that differ between rows."""
    made = expand(times.dropna().rename("t"))
    return tuple(part for part in PARTS if made[f"t.{part}"].nunique() > 1)


def _number(cells: Cells, column: Column, options: ReadOptions) -> Found | None:
    """Describe texts of which at least half are numbers; return None if they are something else."""
    texts, counts = cells.texts, cells.counts
    column, guessed = column.fitted(cells, options.decimal, options.thousands)
    made = column.read(texts)
    lost = np.isnan(made)
    read, failed = int(counts[~lost].sum()), [text for text, gone in zip(texts, lost, strict=True) if gone]
    if not read or any(map(is_code, texts)):
        return None
    written = [own for text in texts if (own := split(text)) is not None]
    if len(units := sorted({own.unit for own in written if own.unit and own.measured})) > 1:
        return _out("several units", f"holds numbers in several units ({', '.join(units)}); write them in one")
    vague = any(own.bound or (own.unit and not own.measured) for own in written)
    if all(text[0] in "<>≤≥" for text in texts) or (vague and any(re.search(r"\d", text) for text in failed)):
        return None  # levels: below 20 and 20 or more; <=20 and 20-50; 1 White and 2 Black
    share, different = read / counts.sum(), len(np.unique(made[~lost]))
    few = len(failed) <= _MOST_ODD and (share >= 0.9 or (different >= 10 and len(failed) == 1))
    if failed and (not few or different == 1):  # one number and a word are two levels
        return _mostly_numbers(cells, column, failed, read) if share >= 0.5 else None
    notes = [*column.notes_on(cells, made), *guessed]
    column = replace(column, missing=(*column.missing, *(text.casefold() for text in failed)))
    return _of_numbers(cells.name, cells.take(column.with_gaps(made)), column, notes)


def _mostly_numbers(cells: Cells, column: Column, failed: list[str], read: int) -> Found:
    """Describe a column that is treated as text although most of its cells are numbers."""
    counts = dict(zip(cells.texts, cells.counts.tolist(), strict=True))
    others = shorten([f"{text!r} ({counts[text]:,})" for text in failed])
    note = f"is treated as text, though {read:,} of its {cells.counts.sum():,} values are numbers; {others} are not"
    if not any(re.search(r"\d", text) for text in failed):  # else it may be a level
        note += f". If they mean that there is no value, write missing: {{{cells.name}: [...]}}"
    kept = _unusable(cells) or _categories(cells, column)
    return replace(kept, notes=(Note(note, "text"), *kept.notes))


def _unusable(cells: Cells) -> Found | None:
    """Leave out identifiers and free text; return None for other columns."""
    texts, different, rows = cells.texts[:1000], len(cells.texts), int(cells.counts.sum())
    if rows < _MANY or different <= max(2, rows / 10):
        return None
    words = float(np.mean([len(_WORDS.findall(text)) for text in texts]))
    if words >= 4 or (words >= 2 and np.mean([len(text) for text in texts]) > 60):
        return _out("free text", f"is free text, such as {_short(texts[0])}")
    two = sum(map(bool, map(_TWO_NUMBERS.fullmatch, texts))) > 0.9 * len(texts)
    if 2 * different > rows and two and not _names_rows(cells.name) and not _COUNTED.search(cells.name):
        said = f"holds several numbers in a cell, such as {_short(texts[0])}; write one in each"
        return _out("several numbers", said)
    if different == rows:
        return _out("identifier", f"has a different value in each row, such as {_short(texts[0])}")
    if _names_rows(cells.name):
        said = f"has {different:,} values in {rows:,} rows, such as {_short(texts[0])}"
        return _out("identifier", said, group=cells.name)
    return None


def _categories(
    cells: Cells, column: Column, notes: Sequence[Note] = (), signs: Mapping[str, str] | None = None
) -> Found:
    (spelt, several), rows = spellings(cells), int(cells.counts.sum())
    notes = [*notes, *several]
    if len(cells.texts) > max(_MANY, rows / 2):
        said = (
            f"has {len(cells.texts):,} different texts in {rows:,} cells, so its categories say next to nothing. Split "
            "it into columns, or drop it"
        )
        notes.append(Note(said, "different"))
    spelling = {low: own[0] for low, own in spelt.items()} if several else dict(signs or {})
    return _finished(cells, Column("categorical", missing=column.missing, spelling=spelling), notes)


def spellings(cells: Cells) -> tuple[dict[str, list[str]], list[Note]]:
    """Map each text in lower case to its spellings, the most frequent first; return a note if a text has several.

    Example:
        >>> spellings(Cells.of(pd.Series(["yes", "no", "yes", "Yes"])))[0]
        {'yes': ['yes', 'Yes'], 'no': ['no']}
    """
    found: dict[str, list[str]] = {}
    for place in np.argsort(-cells.counts, kind="stable"):
        found.setdefault(cells.texts[place].casefold(), []).append(cells.texts[place])
    several = shorten([" = ".join(map(repr, own)) for own in found.values() if len(own) > 1])
    return found, [Note(f"spellings that are treated as one value: {several}", "spelling")] if several else []


def _as_declared(cells: Cells, column: Column, options: ReadOptions, where: str) -> Found:
    """Describe texts as the configuration declares them; only how they are written is detected."""
    texts = cells.texts
    if column.kind == "categorical":
        numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce")
        versions = numbers[numbers % 1 != 0].duplicated().any()  # 1.1 and 1.10 are two levels
        if not texts or any(map(is_code, texts)) or numbers.isna().any() or versions:
            return _categories(cells, column)
        column = replace(column, kind="coded")
    column, notes = column.fitted(cells, options.decimal, options.thousands, wanted=0.5)
    if column.kind == "date":
        if column.form is None:
            found = _short(texts[0]) if texts else "no value"
            raise ConfigError(
                f"types: {cells.name}: expected dates, found {found}; write the format: {{date: '%d/%m/%Y'}}"
            )
        column = replace(column, parts=_parts(pd.Series(column.read(texts))) or PARTS)
    return _finished(cells, column, notes, where)
