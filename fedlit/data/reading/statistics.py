"""Reads the files of SPSS, Stata and SAS with pyreadstat, and values by their labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.options import Add, ReadOptions
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

_CATALOG = ".sas7bcat"


def read_statistics(path: Path, program: str, options: ReadOptions, add: Add) -> pd.DataFrame:
    """Read a file of a statistics program. A value that has a label becomes its label.

    Args:
        path: The file. SAS keeps labels in a catalogue of the same name (``.sas7bcat``), if there
            is one.
        program: ``sav``, ``dta``, ``sas7bdat`` or ``xport``, see
            :func:`fedlit.data.reading.binary.program_of`.
        options: The encoding, if it is not the one that the file states, and the largest size.
        add: Called with each note.

    Raises:
        DataError: The table is too large.
        ImportError: pyreadstat is not installed.
    """
    import pyreadstat

    arguments: dict[str, Any] = {}
    if options.encoding is not None:
        arguments["encoding"] = options.encoding
    catalog = path.with_suffix(_CATALOG)
    if program in ("sav", "dta"):
        arguments |= {"apply_value_formats": True, "formats_as_category": False}
    elif program == "sas7bdat" and catalog.is_file():
        arguments |= {"catalog_file": str(catalog), "formats_as_category": False}
    reader = getattr(pyreadstat, f"read_{program}")
    frame: pd.DataFrame
    frame, about = reader(str(path), row_limit=options.max_rows + 1, **arguments)
    options.check_size(len(frame), int(frame.memory_usage(deep=True).sum()))
    labelled = [name for name in map(str, frame) if about.variable_value_labels.get(name)]
    if labelled:
        add(f"values are read by their labels in {shorten(labelled)}", "converted")
    # These programs pad texts, and write an empty one for no value.
    texts = {
        str(name): column.replace("", None)
        for name, column in frame.items()
        if column.dtype.kind not in "iufbM"
    }
    return frame.assign(**texts)
