"""A client's statement about the values of one column, with the number of training rows behind
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.columns import category_rows, frequent, named_categories, plain_values
from fedlit.data.moments import Moments
from fedlit.data.note import Note, client_note
from fedlit.show.text import counted, shorten
from fedlit.sketches import sketch

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.column import Kind

Statements = Mapping[str, Mapping[str, "Statement"]]
"""Topic → column → a client's statement about it."""


@dataclass(frozen=True)
class Statement:
    """What a client sends on one topic about a column.

    Attributes:
        value: what is sent, as JSON.
        rows: the number of training rows behind each category, in the order of ``value``; behind
            the moments; or behind the quantile of a sketch that has the fewest.
        withheld: maps each category that has too few rows to be sent to its number of rows.
        few: the number of values of a column that has too few of them to be sent; otherwise 0.
    """

    value: Any
    rows: list[int] | int
    withheld: Mapping[Any, int] = field(default_factory=dict)
    few: int = 0


def state(topic: str, train: pd.Series, kind: Kind, categories: str, least: int) -> Statement:
    """Return what a client sends about the training rows of a column.

    Args:
        topic: ``categories``, ``tails``, ``moments`` or ``sketches`` (see
            :meth:`fedlit.data.agree.Agreement.topics`).
        train: (n,) the cells.
        kind: the kind of the column.
        categories: how categories are coded (``data.categories``).
        least: the number of rows that must stand behind each value.

    Raises:
        DataError: the cells are of another type.

    Example:
        >>> import pandas as pd
        >>> town = pd.Series(["Bonn"] * 6 + ["Köln"] * 9 + ["Ulm"], name="town")
        >>> state("categories", town, "categorical", "codes", 1).value
        ['Bonn', 'Köln', 'Ulm']
        >>> state("categories", town, "categorical", "codes", 5)
        Statement(value=['Bonn', 'Köln'], rows=[6, 9], withheld={'Ulm': 1}, few=0)
        >>> age = pd.Series([31.0, 42.0, 55.0, 64.0, None], name="age")
        >>> state("moments", age, "numeric", "codes", 5)
        Statement(value=[0, 0.0, 0.0], rows=0, withheld={}, few=4)
    """
    if topic == "tails":
        return Statement(frequent(train, kind, least)[1], len(train))
    if topic == "categories":
        return _categories(train, kind, categories, least)
    numbers = plain_values(train, kind, str(train.name))
    present = numbers[~np.isnan(numbers)]
    few = len(present) if len(present) < least else 0
    if few:
        present = present[:0]
    if topic == "moments":
        moments = Moments.of(present) or Moments(0, 0.0, 0.0)
        return Statement(moments.to_list(), moments.count, few=few)
    quantiles = sketch(present, least)
    return Statement(quantiles, min(least, len(present)), few=few)


def _categories(train: pd.Series, kind: Kind, coding: str, least: int) -> Statement:
    rows = category_rows(train, kind)
    if coding == "auto":
        named = list(frequent(train, kind, least)[0])
        candidates = frequent(train, kind)[0]
    else:
        named = named_categories(train, kind, least)
        candidates = tuple(rows)
    withheld = {label: rows[label] for label in candidates if label not in named}
    return Statement(named, [rows[label] for label in named], withheld)


def notes_on_withheld(
    client: str, stated: Iterable[tuple[str, Statement]], least: int
) -> list[Note]:
    """Return a note on each column whose values a client withholds in part.

    Args:
        client: the client's name.
        stated: columns, with the client's statements about them.
        least: the number of rows that must stand behind each value.
    """
    notes = dict[str, Note]()
    for column, statement in stated:
        if statement.withheld:
            names = shorten([f"{label} ({rows})" for label, rows in statement.withheld.items()])
            text = (
                f"fewer than {least} training rows have {names}: the name is not sent, and "
                "these rows count as another category, unless other clients send it "
                "(data.facts_from)"
            )
        elif statement.few:
            values = counted(statement.few, "value")
            text = (
                f"{values} in training rows, fewer than {least}: nothing is sent about them "
                "(data.facts_from)"
            )
        else:
            continue
        notes.setdefault(column, client_note(client, "withheld", text, columns=[column]))
    return list(notes.values())
