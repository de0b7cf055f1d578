"""Names of columns: made unique text, chosen, renamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, counted
from fedlit.errors import did_you_mean

__all__ = ["check_no_header", "chosen", "mostly_numbers", "renamed", "shown", "tidy", "with_made_names"]


def tidy(header: Sequence[object], notes: Notes) -> list[str]:
    """The names of a header without outer blanks; what has no name is called ``""``.

    Args:
        header: the names as they stand in the file.
        notes: takes what was changed.

    Returns:
        One name for each column.

    Raises:
        DataError: if two columns have one name, or none has any.
    """
    texts = [str(name) for name in header]
    names = [name.strip().strip("\ufeff").strip() for name in texts]  # a mark may stand there twice
    changed = [name for name, text in zip(names, texts, strict=True) if name and name != text]
    for name, times in Counter(names).items():
        if times > 1 and name:
            hint = " If the file has no header, write names." if mostly_numbers(names) else ""
            raise notes.error(
                f"{times} columns are called {name!r}. Rename or remove all but one in the file, or write skiprows: 1 "
                f"and names for all columns.{hint}"
            )
    if not any(names):
        raise notes.error("expected a header with the names of columns, found only empty cells. Write them, or names.")
    if changed:
        notes.add(f"blanks around {counted(len(changed), 'name of a column', 'names of columns')} were left out.")
    return names


def with_made_names(names: Sequence[str]) -> list[str]:
    """Names where columns without one are called by their place, counted from 1.

    >>> with_made_names(["age", "", "unnamed_2"])
    ['age', 'unnamed_2_', 'unnamed_2']
    """
    taken, result = set(names), []
    for place, name in enumerate(names):
        made = name or f"unnamed_{place + 1}"
        while not name and made in taken:
            made += "_"
        taken.add(made)
        result.append(made)
    return result


def mostly_numbers(names: Iterable[str]) -> bool:
    """Whether a header looks like a row of data.

    >>> mostly_numbers(["63.0", "1", "-1", "?"]), mostly_numbers(["age", "sex", "2019"])
    (True, False)
    """
    given = [name for name in names if name]
    return bool(given) and 2 * sum(map(_number, given)) > len(given)


def check_no_header(first: Sequence[str], names: Sequence[str], notes: Notes, where: str) -> None:
    """Refuse ``names`` for a file whose first line holds the names already."""
    if 2 * sum(cell.strip() in names for cell in first) > len(names):
        raise notes.error(
            f"{where}: names are for a file without a header, but here stand the names. Leave out names, or write "
            f"skiprows: 1."
        )


def _number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return text.lower() not in ("nan", "inf", "infinity")


def chosen(names: Sequence[str], options: ReadOptions, notes: Notes) -> list[int]:
    """Which columns to read.

    Args:
        names: all names in the file's order.
        options: their ``keep`` and ``drop``.
        notes: whose columns they are.

    Returns:
        Their places, ascending.

    Raises:
        DataError: if a name or glob fits no column, or no column is left.
    """
    kept = set(range(len(names)))
    if options.keep is not None:
        kept = _fitting(names, options.keep, "keep", notes)
    if options.drop is not None:
        kept -= _fitting(names, options.drop, "drop", notes)
    if not kept:
        raise notes.error("keep and drop leave no column. Keep one, or drop fewer.")
    return sorted(kept)


def _fitting(names: Sequence[str], patterns: Iterable[str], key: str, notes: Notes) -> set[int]:
    places: set[int] = set()
    for pattern in patterns:
        # An exact name comes first: 'dose [mg]' would be a glob too.
        fit = {place for place, name in enumerate(names) if name == pattern}
        fit = fit or {place for place, name in enumerate(names) if fnmatchcase(name, pattern)}
        if not fit:
            raise notes.error(
                f"expected a column {pattern!r} ({key}), found {shown(names)}."
                f"{did_you_mean(pattern, names)} Correct the name."
            )
        places |= fit
    return places


def renamed(names: Sequence[str], options: ReadOptions, notes: Notes) -> list[str]:
    """The names after ``rename``.

    Raises:
        DataError: if an old name is no column, or two columns would have one name.
    """
    given = options.rename or {}
    for old in given:
        if old not in names:
            raise notes.error(
                f"rename names {old!r}, but the columns read are {shown(names)}.{did_you_mean(old, names)} "
                f"Correct the name."
            )
    result = [given.get(name, name) for name in names]
    for name, times in Counter(result).items():
        if times > 1:
            raise notes.error(f"rename would make {times} columns called {name!r}. Choose another name, or drop one.")
    return result


def shown(names: Sequence[str]) -> str:
    """The first names, for a message.

    >>> shown(["a", "b"])
    "'a', 'b'"
    """
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(repr(name[:80]) for name in names[:12]) + more
