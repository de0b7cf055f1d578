"""What a raw column holds, by looking at it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.schema.column import FALSE, NESTED, TRUE, ColumnType, as_floats, is_text, plain_types
from fedlit.data.schema.dates import PARTS, expand, find_format, look_like_dates, parse_dates, suspect_day
from fedlit.data.schema.declared import Declared, check_declared
from fedlit.data.schema.missing import are_days, blank, plain_text, suspects
from fedlit.data.schema.numbers import (
    Notation,
    are_levels,
    find_notation,
    is_code,
    measures,
    only_bounds,
    parse,
    plain_numbers,
    told,
)
from fedlit.data.schema.spelling import spellings, told_of_spellings
from fedlit.errors import ConfigError
from fedlit.show.text import shorten

__all__ = ["Found", "Habits", "declared_type", "find_type"]

_ID_NAME = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|identifier|mrn|ssn|rownum|row_number|row\.?names?|pid|patid|phone|telephone)$"
    r"|^(index|unnamed: ?\d+)$|^(patient|case|hospital|subject|customer|account)([_\s.-]?(id|no|nr|num|number))?$",
    re.I,
)
_COUNTED = re.compile(r"[_\s.-](no|nr|number)$", re.I)  # visit_number names rows only where each has another
_ID_CAMEL = re.compile(r"[a-z](ID|Id|NR|Nr|No)$")
_SUM = re.compile(r"(sub)?total|sum|mean|average|median|gesamt|summe|source|note|\*", re.I)
_WORDS = re.compile(r"[^\W\d_]{2,}")
_DIGIT = re.compile(r"\d")
_MOST_ODD = 3  # different words among numbers that may all mean that there is no number
_SAMPLE = 5_000  # different texts by which it is told how numbers are written
_MANY = 20  # rows from which all different says something


@dataclass(frozen=True)
class Found:
    """What was found in a column.

    Attributes:
        type: what it holds.
        notes: what a person should know, without the column's name.
        gaps: words that count as missing → in how many cells.
        unique: whether it is whole numbers, another in each row, which are kept.
        numbers: (n,) float64 of a numeric column that is written as programs do, so that it is parsed once.
    """

    type: ColumnType
    notes: tuple[str, ...] = ()
    gaps: Mapping[str, int] = field(default_factory=dict)
    unique: bool = False
    numbers: np.ndarray | None = None


@dataclass(frozen=True)
class Habits:
    """What is known of all columns of a file."""

    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[str | float, ...] = ()


_NO_HABITS = Habits()


def declared_type(column: str, said: Declared, habits: Habits = _NO_HABITS) -> ColumnType:
    """A column's type as a configuration says it.

    Raises:
        ConfigError: see :func:`fedlit.data.schema.declared.check_declared`.

    Example:
        >>> declared_type("stage", ["I", "II"]).order, declared_type("ward", "categorical").kind
        (('I', 'II'), 'categorical')
    """
    check_declared(column, said)
    if isinstance(said, list):
        return ColumnType("ordinal", missing=habits.missing, order=tuple(map(str, said)))
    if isinstance(said, Mapping):
        return ColumnType("date", missing=habits.missing, form=str(said["date"]))
    if said in ("identifier", "text", "drop"):
        return ColumnType("left out", why={"text": "free text", "drop": "dropped"}.get(said, said))
    return ColumnType(said, missing=habits.missing)  # type: ignore[arg-type]  # checked above


def find_type(values: pd.Series, habits: Habits = _NO_HABITS, declared: ColumnType | None = None) -> Found:
    """What a column (n,) holds.

    Args:
        values: its raw cells: text, or typed as a file had them.
        habits: what is known of all columns of the file.
        declared: what a configuration says; then only how it is written is looked for.

    Example:
        >>> find_type(pd.Series(["12 mg", "8 mg", "."])).type.notation.unit
        'mg'
        >>> find_type(pd.Series(["yes", "No", "yes"])).type.kind, find_type(pd.Series(["a", "b", "a"])).type.kind
        ('boolean', 'categorical')
    """
    if declared is not None and declared.kind == "left out":
        return Found(declared)
    values = plain_types(values)
    if is_text(values):
        if values.dtype == object:
            nested = values[values.map(lambda cell: isinstance(cell, NESTED))]
            if len(nested):
                return _out("nested values", f"holds nested values such as {_short(nested.iloc[0])}")
            if values.map(lambda cell: isinstance(cell, bytes)).any():
                return _out("binary", "holds binary values")
        return _of_text(values, habits, declared)
    return _of_typed(values, habits, declared)


def _out(why: str, note: str, others: Sequence[str] = (), group: str = "") -> Found:
    """A column that is left out; ``group`` is its name if its values stand in several rows."""
    fix = {"split": {"group": group}} if group else {}
    said = Note(f"left out: it {note}", "group" if group else "left out", fix=fix)
    return Found(ColumnType("left out", why=why), (said, *others))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


# ---------------------------------------------------------------------- typed columns


def _of_typed(values: pd.Series, habits: Habits, declared: ColumnType | None) -> Found:
    missing = habits.missing
    kind = values.dtype.kind if isinstance(values.dtype, np.dtype) else getattr(values.dtype, "kind", "O")
    if values.isna().all():
        return Found(declared) if declared else _out("empty", "has no value")
    if kind == "M":
        found = ColumnType("date", missing=missing, form="ISO8601", parts=_parts(parse_dates(values, None)))
        return Found(declared or found) if found.parts else _out("constant", "has one value")
    if kind == "c":
        return _out("complex numbers", "holds complex numbers")
    if declared is not None:
        return Found(replace(declared, missing=missing, coded=declared.kind == "categorical" and kind in "iuf"))
    if kind == "b":
        return Found(ColumnType("boolean", missing=missing)) if values.nunique() > 1 else _constant(values)
    numbers = as_floats(values, str(values.name))
    return _of_numbers(str(values.name), numbers, ColumnType("numeric", missing=habits.missing), ())


def _constant(values: pd.Series) -> Found:
    text = _short(values.dropna().iloc[0])
    gaps = int(values.isna().sum())
    return _out("constant", f"has the one value {text}" + (f" and {gaps:,} gaps" if gaps else ""))


def _of_numbers(name: str, numbers: np.ndarray, type_: ColumnType, notes: Sequence[str]) -> Found:
    """Numbers that are read: identifiers, constants, what may mean a gap."""
    declared = [own for own in type_.missing if not isinstance(own, str)]
    gone = np.isnan(numbers)
    if declared:
        gone |= np.isin(numbers, declared)
    own = numbers[~gone] if gone.any() else numbers
    if not len(own):
        return _out("empty", "has no value")
    if own.min() == own.max():
        gaps = len(numbers) - len(own)
        return _out("constant", f"has the one value {own[0]:g}" + (f" and {gaps:,} gaps" if gaps else ""), notes)
    whole = _whole(own[:1000]) and _whole(own)
    if whole and (said := _identifies(name, own)):
        return _out("identifier", said, notes, name if len(np.unique(own)) < len(own) else "")
    notes = list(notes)
    if asked := suspects(own):
        shown = " and ".join(f"{value:g} ({int((own == value).sum()):,} cells)" for value in asked)
        words = [int(value) if float(value).is_integer() else value for value in asked]
        said = f"does {shown} mean that there is no value? Then write missing: {{{name}: {words}}}"
        notes.append(Note(said, "missing", fix={"missing": {name: words}}))
    if whole and len(own) > _MANY and are_days(own):
        said = f"{own[0]:.0f} looks like a date. Then write types: {{{name}: {{date: '%Y%m%d'}}}}"
        notes.append(Note(said, "date", fix={"types": {name: {"date": "%Y%m%d"}}}))
    return Found(type_, tuple(notes), unique=whole and len(own) >= _MANY and len(np.unique(own)) == len(own))


def _whole(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all() and (numbers % 1 == 0).all())


def _identifies(name: str, own: np.ndarray) -> str:
    """Why whole numbers name rows, or nothing."""
    different = len(np.unique(own))
    named = _named_id(name)
    if different == len(own) >= _MANY:
        close = own.max() - own.min() < 1.25 * len(own)
        if close and ((np.diff(own) > 0).all() or named):
            return "numbers the rows"
        if named or _COUNTED.search(name):
            return "has another value in each row, and its name says identifier"
    if named and different > max(_MANY, len(own) / 10):
        return (
            f"names rows or people ({different:,} values in {len(own):,} rows). Rows of one belong in one split: "
            f"split: {{group: {name}}}"
        )
    return ""


def _named_id(name: str) -> bool:
    return bool(_ID_NAME.search(name) or _ID_CAMEL.search(name))


# ---------------------------------------------------------------------- text


def _of_text(values: pd.Series, habits: Habits, declared: ColumnType | None) -> Found:
    name, missing = str(values.name), habits.missing
    if declared is None and not missing and habits.decimal in (None, ".") and habits.thousands in (None, ","):
        numbers = plain_numbers(values)
        if numbers is not None and not np.isnan(numbers).all():
            return replace(_of_numbers(name, numbers, ColumnType("numeric"), ()), numbers=numbers)
    plain = plain_text(values)
    signs = ("-", "--", "---") if plain.isin(["+", "++", "+++"]).any() else ()
    held = plain[~blank(plain, missing) | plain.isin(signs)]
    found = _of_held(name, held, habits) if declared is None else _as_declared(declared, held, habits)
    if signs:
        found = replace(found, type=replace(found.type, kept=signs))
    if found.type.why == "constant" and 0.05 < len(held) / len(plain) < 0.95:  # such as yes, or nothing
        value = _short(held.iloc[0])
        said = f"has the one value {value} and {len(plain) - len(held):,} gaps: which of the two it is, is used"
        found = Found(ColumnType("categorical", missing=missing), (said,))
    return replace(found, gaps=_gaps(plain, held)) if len(held) < len(plain) else found


def _of_held(name: str, held: pd.Series, habits: Habits) -> Found:
    """What texts without those that are missing hold."""
    missing, notes, counts = habits.missing, list[str](), held.value_counts()
    texts = [str(text) for text in counts.index]
    if not texts:
        return _out("empty", "has no value")
    words = {text.casefold() for text in texts}
    if words & TRUE and words & FALSE and words <= TRUE | FALSE | {"0", "1", "0.0", "1.0"}:
        return Found(ColumnType("boolean", missing=missing))
    form, guess = find_format(texts)
    if form is not None:
        times = parse_dates(held, form)
        parts = _parts(times)
        if not parts:
            return _constant(held)
        late = int((times.dt.year > pd.Timestamp.now().year).sum()) if "%y" in form else 0
        if late:
            notes.append(f"{late:,} years of two digits are in the future, such as {times.max():%Y}: write four digits")
        bad = held[times.isna()]
        said = (
            [f"{len(bad):,} cells are no dates and count as missing: {shorten(sorted(set(bad)))}"] if len(bad) else []
        )
        type_ = ColumnType("date", missing=missing, form=form, parts=parts)
        if (day := suspect_day(times.dropna())) is not None:
            cells = held[times == day]
            asked = f"does {cells.iloc[0]!r} ({len(cells):,} cells) mean that there is no value? Then write missing: "
            asked += f"{{{name}: [{cells.iloc[0]!r}]}}"
            notes.append(Note(asked, "missing", fix={"missing": {name: [str(cells.iloc[0])]}}))
        return Found(type_, (*notes, *said, *([guess.replace("…", name)] if guess else [])))
    found = _numeric(name, held, texts, counts, habits)
    if found is not None:
        return found
    if len(words) == 1:
        return _constant(held)
    if look_like_dates(texts):
        notes.append("looks like dates of several formats, and is taken for categories; write them in one")
    return _is_unusable(name, held, texts) or _categories(counts, missing, notes)


def _gaps(plain: pd.Series, held: pd.Series) -> dict[str, int]:
    words = plain[plain.notna() & ~plain.index.isin(held.index)]
    return {str(word): int(count) for word, count in words[words != ""].value_counts().items()}


def _as_declared(declared: ColumnType, held: pd.Series, habits: Habits) -> Found:
    texts = [str(text) for text in held.unique()]
    type_ = replace(declared, missing=habits.missing)
    if declared.kind == "numeric":
        notation, guess = find_notation(texts, habits.decimal, habits.thousands)
        return Found(replace(type_, notation=notation), (guess,) if guess else ())
    if declared.kind == "date":
        form, guess = (declared.form, "") if declared.form else find_format(texts, 0.5)
        if form is None:
            raise ConfigError(
                f"types: {held.name}: expected dates, found {_short(texts[0]) if texts else 'no value'}; write the "
                f"format: {{date: '%d/%m/%Y'}}"
            )
        parts = _parts(parse_dates(held, form)) or PARTS
        return Found(replace(type_, form=form, parts=parts), (guess,) if guess else ())
    if declared.kind == "categorical":
        if texts and not any(map(is_code, texts)) and pd.to_numeric(pd.Series(texts), errors="coerce").notna().all():
            return Found(replace(type_, coded=True))
        return _categories(held.value_counts(), habits.missing)
    return Found(type_)


def _numeric(name: str, held: pd.Series, texts: list[str], counts: pd.Series, habits: Habits) -> Found | None:
    """What texts hold of which some are numbers; None where they are something else."""
    plain = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").notna().to_numpy()
    odd = [text for text, own in zip(texts, plain, strict=True) if not own][:_SAMPLE]
    sample = [*odd, *texts[:_SAMPLE]] if odd or habits.decimal == "," or habits.thousands == "." else []
    notation, guess = find_notation(sample, habits.decimal, habits.thousands)
    found = parse(held, notation)
    if found.failed and habits.decimal is None:  # a single 3,4 must not change what 99 others are
        for other in (Notation(".", "", notation.unit), Notation(",", "", notation.unit)):
            again = parse(held, other)
            if np.isnan(again.values).sum() < np.isnan(found.values).sum():
                notation, found, guess = other, again, ""
    read, lost = int((~np.isnan(found.values)).sum()), sum(found.failed.values())
    if not read:
        return None
    if len(units := measures(odd)) > 1:
        return _out("several units", f"holds numbers in several units ({', '.join(units)}); write them in one")
    if any(map(is_code, texts)) or (found.failed and are_levels(odd, found.failed)) or only_bounds(texts):
        return None
    different = len(texts) - len(found.failed)
    share = read / (read + lost)
    few = len(found.failed) <= _MOST_ODD and (share >= 0.9 or (different >= 10 and len(found.failed) == 1))
    if lost and not few:
        if share < 0.5:
            return None
        others = shorten([f"{text!r} ({n:,})" for text, n in found.failed.items()])
        kept = _is_unusable(name, held, texts) or _categories(counts, habits.missing)
        note = f"is taken for text, though {read:,} of its {read + lost:,} values are numbers; {others} are not"
        if not any(map(_DIGIT.search, found.failed)):  # else it may be a level
            note += f". If they mean that there is no value, write missing: {{{name}: [...]}}"
        return Found(kept.type, (note, *kept.notes))
    if found.failed and np.unique(found.values[~np.isnan(found.values)]).size == 1:
        return None  # one number and a word are two levels
    notes = told(found, notation, guess)
    if found.failed:
        others = shorten([f"{text!r} ({n:,})" for text, n in found.failed.items()])
        notes.append(f"{lost:,} cells are no numbers and count as missing: {others}")
        if sums := [text for text in found.failed if _SUM.match(text)]:
            notes.append(f"the row of {sums[0]!r} looks like a sum or a footnote, not a case. Remove it from the file")
    gaps = (*habits.missing, *(text.casefold() for text in found.failed))
    type_ = ColumnType("numeric", missing=gaps, notation=notation)
    return _of_numbers(name, found.values, type_, notes)


def _parts(times: pd.Series) -> tuple[str, ...]:
    """Which parts of dates differ between rows."""
    made = expand(times.dropna().rename("t"))
    return tuple(part for part in PARTS if made[f"t.{part}"].nunique() > 1)


def _is_unusable(name: str, held: pd.Series, texts: Sequence[str]) -> Found | None:
    """Identifiers and free text."""
    different, rows = len(texts), len(held)
    if rows < _MANY or different <= max(2, rows / 10):
        return None
    words = float(np.mean([len(_WORDS.findall(text)) for text in texts[:1000]]))
    letters = float(np.mean([len(text) for text in texts[:1000]]))
    if words >= 4 or (letters > 60 and words >= 2):
        return _out("free text", f"is free text, such as {_short(texts[0])}")
    if different == rows or (_named_id(name) and different > rows / 10):
        some = "another value in each row" if different == rows else f"{different:,} values in {rows:,} rows"
        group = "" if different == rows else f". Rows of one belong in one split: split: {{group: {name}}}"
        return _out("identifier", f"has {some}, such as {_short(texts[0])}{group}", group=name if group else "")
    return None


def _categories(counts: pd.Series, missing: tuple[str | float, ...], notes: Sequence[str] = ()) -> Found:
    """Values and how often, the most frequent spelling first, as categories."""
    spelt = spellings(counts.index)
    several = told_of_spellings(spelt)
    said = [*notes, *([f"spellings that are taken for one value: {several}"] if several else [])]
    if len(counts) > max(_MANY, counts.sum() / 2):
        said.append(
            f"has {len(counts):,} different texts in {counts.sum():,} cells, so its categories say next to nothing. "
            "Split it into columns, or drop it"
        )
    spelling = {low: own[0] for low, own in spelt.items()} if several else {}
    return Found(ColumnType("categorical", missing=missing, spelling=spelling), tuple(said))
