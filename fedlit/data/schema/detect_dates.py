"""Detects dates among texts, and asks about days that may mean that there is no value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.dates import PARTS, expand, find_format, missing_date
from fedlit.data.schema.detection import Detection, TextColumn, converted
from fedlit.data.schema.odd_numbers import asked_missing, far_notes
from fedlit.show.text import counted

_NEARLY_ALL = 0.95
"""The least share of dates among the texts of a column of dates."""


def dates(texts: TextColumn, least: float = _NEARLY_ALL) -> Detection | None:
    """Describe texts of which at least a share is dates; return None for other texts."""
    cells = texts.cells
    form = texts.column.form
    notes = list[Note]()
    if not form:
        form, notes = find_format(cells.name, cells.texts, least)
    if form is None:
        return None
    column = replace(texts.column, kind="date", form=form)
    times = pd.Series(cells.take(column.read(cells.texts), np.datetime64("NaT")))
    notes += _missing_days(cells, times)
    late = int((times > pd.Timestamp.now()).sum())
    if "%y" in form and late:
        message = (
            f"{counted(late, 'day')} in the future, such as {times.max():%Y}, for years have "
            "two digits: write four"
        )
        notes.append(Note(message, "guess"))
    return converted(cells, replace(column, parts=_parts(times) or PARTS), notes, texts.head)


def _missing_days(cells: Cells, times: pd.Series) -> list[Note]:
    """Ask whether a day means that there is no value, or whether days far from all others are
    errors.
    """
    day = missing_date(times.dropna())
    if day is None:
        return _far_days(cells, times)
    is_day = (times == day).to_numpy()
    text = cells.texts[cells.codes[is_day][0]]
    return [asked_missing(cells.name, f"{text!r} ({is_day.sum():,} cells)", [text])]


def _far_days(cells: Cells, times: pd.Series) -> list[Note]:
    """Ask whether days far from all others are errors."""
    days = expand(times, "")[".elapsed"]
    far = [note for note in far_notes(cells.name, days) if note.kind == "far"]
    if not far:
        return []
    (setting,) = far[0].alternatives
    is_far = np.isin(days, setting["missing"][cells.name])
    texts = [cells.texts[code] for code in np.unique(cells.codes[is_far])]
    message = (
        f"{cells.shown(np.isin(cells.texts, texts))} is far from all other days; correct it, or "
        f"write missing: {{{cells.name}: {texts}}}"
    )
    return [Note(message, "far", alternatives=[{"missing": {cells.name: texts}}])]


def _parts(times: pd.Series) -> tuple[str, ...]:
    """Return the parts of dates that differ between rows."""
    columns = expand(times.dropna(), "")
    return tuple(part for part in PARTS if len(np.unique(columns[f".{part}"])) > 1)
