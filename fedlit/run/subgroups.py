"""Scores by the levels of a column, such as sex, or of a number that is cut, such as age."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np
import pandas as pd

from fedlit.data.sources.base import Source
from fedlit.errors import ConfigError, DataError, expect
from fedlit.run.thresholds import AT_HALF, AT_THRESHOLD, Chosen, at_thresholds
from fedlit.show.text import shorten
from fedlit.tasks import Task
from fedlit.tasks.operating import scores_at
from fedlit.tasks.predictions import Predictions
from fedlit.train.supplement import Record, Supplement

Cuts = Mapping[str, Sequence[float] | None]
"""Column → the numbers at which it is cut; None for each of its values."""

FEW = 20
"""Fewer rows than this are pointed out."""
_MOST_LEVELS = 20
_MISSING = "missing"
_KEY = "score.subgroups"


def check_cuts(subgroups: object) -> dict[str, Sequence[float] | None]:
    """Return the setting as a mapping.

    Raises:
        ConfigError: cuts are no ascending numbers.
    """
    if subgroups is None:
        return {}
    if isinstance(subgroups, str):
        return {subgroups: None}
    if isinstance(subgroups, list) and all(isinstance(column, str) for column in subgroups):
        return dict.fromkeys(subgroups)
    if not isinstance(subgroups, Mapping):
        raise ConfigError(
            f"{_KEY}: expected columns, such as [sex] or {{age: [40, 65]}}, found {subgroups!r}"
        )
    for column, cuts in subgroups.items():
        if cuts is not None and not _ascending(cuts):
            raise ConfigError(
                f"{_KEY}.{column}: expected ascending numbers to cut at, such as [40, 65], found "
                f"{cuts!r}"
            )
    return dict(subgroups)


def _ascending(cuts: object) -> bool:
    if not isinstance(cuts, list) or not cuts:
        return False
    if any(type(cut) not in (int, float) for cut in cuts):
        return False
    return all(low < high for low, high in pairwise(cuts))


def levels(column: pd.Series, cuts: Sequence[float] | None, where: str) -> pd.Series:
    """Return the level of each row as ordered categories. Rows without a value are a level, too.

    Args:
        column: (n,) the values.
        cuts: the numbers at which they are cut; None for a level for each value.
        where: the client and the column, for messages.

    Raises:
        DataError: text is to be cut, or there are too many values.

    Example:
        >>> levels(pd.Series([39.0, 40.0, None, 80.0]), [40, 65], "age").tolist()
        ['below 40', '40 to below 65', 'missing', '65 and above']
    """
    if cuts:
        if not pd.api.types.is_numeric_dtype(column):
            raise DataError(
                f"{_KEY}: {where}: expected numbers to cut, found others; name the column without "
                "cuts"
            )
        inner = [f"{low:g} to below {high:g}" for low, high in pairwise(cuts)]
        names = [f"below {cuts[0]:g}", *inner, f"{cuts[-1]:g} and above"]
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        position = np.searchsorted(np.asarray(cuts, np.float64), numbers, side="right")
        texts = np.array(names, dtype=object)[position]
    else:
        values = sorted(column.dropna().unique().tolist(), key=_sorting)
        if len(values) > _MOST_LEVELS:
            raise DataError(
                f"{_KEY}: {where}: expected at most {_MOST_LEVELS} values, found {len(values):,}; "
                f"cut a number, as in subgroups: {{age: [40, 65]}}, or name another column"
            )
        names = [_text(value) for value in values]
        texts = column.map(_text).to_numpy(dtype=object)
    missing = column.isna().to_numpy()
    with_missing = np.where(missing, _MISSING, texts)
    if missing.any():
        names.append(_MISSING)
    return pd.Series(pd.Categorical(with_missing, list(dict.fromkeys(names))), column.index)


def _sorting(value: str | float) -> tuple[bool, str | float]:
    return isinstance(value, str), value


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def records_of(
    cuts: Cuts, source: Source, seed: int, scored: Mapping[str, Predictions], chosen: Chosen
) -> tuple[list[Record], dict[str, list[str]]]:
    """Return the scores of each level of each column at each client, and the columns that each
    client has.

    Args:
        cuts: the columns.
        source: the source of the tables, whose columns may also be some that the clients do not
            train on.
        seed: the seed of the run.
        scored: maps each client to the rows that were scored.
        chosen: the thresholds of the clients, if any were chosen.
    """
    records: list[Record] = []
    columns = dict[str, list[str]]()
    for table in source.some(list(scored), seed):
        rows = scored[table.name]
        threshold = chosen[table.name]["value"] if chosen else None
        columns[table.name] = list(map(str, table.features))
        for column, at in cuts.items():
            if column not in table.features:
                continue
            level = levels(table.features[column], at, f"client {table.name!r}, column {column!r}")
            for name, scores in _by_level(rows, level.loc[rows.row], threshold):
                records.append({"client": table.name, "column": column, "level": name, **scores})
    return records, columns


def _by_level(
    rows: Predictions, level: pd.Series, threshold: float | None
) -> Iterator[tuple[str, Record]]:
    for name in level.cat.categories:
        positions = np.flatnonzero(level == name)
        yield str(name), _scores(rows.some(positions), threshold)


def _scores(rows: Predictions, threshold: float | None) -> Record:
    """Return the scores of some rows; NaN if undefined, as AUROC is where one class has no row."""
    task: Task = rows.task
    scores: Record = {"rows": len(rows.y)}
    two = task.outcome.one_label and len(task.classes) == 2
    if two:
        scores["positives"] = int((rows.y == 1).sum())
    context = {score.name for score in task.scores if score.context}
    scores |= {name: value for name, value in rows.scores().items() if name not in context}
    if two:
        labelled = rows.known
        positive = rows.y.numpy()[labelled] == 1
        for at, predicted in at_thresholds(rows, threshold).items():
            suffix = "" if at == AT_HALF else f"_at_{AT_THRESHOLD}"
            at_threshold = scores_at(positive, predicted[labelled], rows.known_weight)
            scores |= {
                f"{measure}{suffix}": at_threshold[measure]
                for measure in ("sensitivity", "specificity")
            }
    return scores


def supplement_of(
    cuts: Cuts, records: list[Record], columns: Mapping[str, Sequence[str]], main: str
) -> Supplement:
    """Return the table of all clients' scores by level.

    Args:
        cuts: the columns.
        records: the scores of each level at each client.
        columns: maps each client to the columns that it has.
        main: the main score of the clients.

    Raises:
        ConfigError: no client has a column.
    """
    columns_seen = dict.fromkeys(chain.from_iterable(columns.values()))
    advice = (
        "columns that the tables are read without (drop) are unknown: leave them out by "
        "data.columns instead"
    )
    for column in cuts:
        expect(
            column in columns_seen,
            _KEY,
            "a column of some client's table",
            column,
            advice,
            known=columns_seen,
        )
    notes = []
    for client, record in columns.items():
        lacking = [column for column in cuts if column not in record]
        if lacking:
            notes.append(f"{client}: its table has no {', '.join(lacking)}")
    few = [
        f"{record['client']} {record['column']} {record['level']} ({record['rows']})"
        for record in records
        if record["rows"] < FEW
    ]
    if few:
        notes.append(f"fewer than {FEW} rows, so these scores say little: {shorten(few)}")
    measures = ("sensitivity", "specificity")
    at = tuple(f"{measure}_at_{AT_THRESHOLD}" for measure in measures)
    printed = ("column", "level", "rows", "positives", main, *measures, *at)
    return Supplement("subgroups", f"By {', '.join(cuts)}:", records, printed, tuple(notes))
