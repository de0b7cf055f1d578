"""Proposes a configuration for tables of which nothing is known yet, and writes it with
comments.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Template

from fedlit import yaml_text
from fedlit.data.note import Note
from fedlit.data.reading import Raw, ReadOptions, read_table
from fedlit.data.sources.base import check_names, owners_of
from fedlit.data.sources.places import MOVE_PREDICTIONS, Place, are_predictions, places_of
from fedlit.data.splitting import names_parts, parts_of
from fedlit.errors import DataError, Told, expect
from fedlit.outcomes import DEFAULT_TASK, NUMBER_TASK, outcome_type
from fedlit.show.text import MOST_ROWS, counted, more, shorten, wrap

if TYPE_CHECKING:
    import pandas as pd

# whole numbers, and words
_FEW_CLASSES = 10
_MOST_CLASSES = 30
_FIRST = 2**26  # bytes of a text that are looked at; of one that holds all clients, all are
_FEWEST_ROWS = 20  # of a client by default: below, its test rows are two or three


@dataclass
class Proposal:
    """What a configuration could contain.

    Attributes:
        settings: arguments of :class:`fedlit.Tables`.
        notes: client and what was found or guessed.
        rows: the number of labelled rows of the smallest client; of its training rows where a
            column says which these are.
    """

    settings: dict[str, Any] = field(default_factory=lambda: {"files": {}, "target": {}})
    notes: list[tuple[str, str]] = field(default_factory=list)
    rows: int = sys.maxsize

    def note(self, client: str, text: str, **setting: Any) -> None:
        """Add a note, and propose an argument's value for a client."""
        self.notes.append((client, text))
        for name, value in setting.items():
            self.settings.setdefault(name, {})[client] = value

    def told(self) -> list[str]:
        """Return the notes; equal ones stand once, with their clients.

        Example:
            >>> made = Proposal(notes=[("north", "predicts c1"), ("south", "predicts c2"), ("west", "predicts c1")])
            >>> made.told()
            ['north, west: predicts c1', 'south: predicts c2']
        """
        groups: dict[str, list[str]] = {}
        for client, text in self.notes:
            groups.setdefault(text, []).append(client)
        lines = [f"{shorten(clients, 4)}: {text}" for text, clients in groups.items()]
        return [*lines[:MOST_ROWS], *more(lines, "notes")]


def propose(
    files: Sequence[str], targets: Mapping[str | None, str], client_column: str | None = None
) -> Proposal:
    """Look at files and propose a configuration.

    Args:
        files: folders, patterns and files.
        targets: the column to predict by client; of all others under None.
        client_column: the column of one file that names the client of each row.

    Raises:
        DataError: a file cannot be read, or has no column that could be meant.
        ConfigError: a client or a column that is not there.
    """
    places = [place for pattern in files for place in places_of(pattern)]
    clients = check_names([place.client for place in places])
    whole = client_column is None or len(places) == 1
    expect(whole, "--client-column", "one file that holds all clients' rows", len(places))
    for client in targets:
        there = client is None or client in clients
        expect(there, "--target", f"a client among {shorten(clients)}", client, known=clients)
    made = Proposal()
    labels = dict[str, Any]()
    for place in places:
        raw = _looked(
            made, place, targets.get(place.client, targets.get(None)), client_column is not None
        )
        labels[place.client] = _labels(made, place.client, raw)
        _split(made, place.client, raw)
    _check_classes(made, labels)
    numbers = {held.name for held in labels.values() if _is_number(held)}
    for client, held in labels.items():  # few rows have few values: one task for all
        if held.name in numbers and held.dtype.kind in "iuf" and not {*held.unique()} <= {0, 1}:
            made.note(client, f"{held.name} is a number: {NUMBER_TASK}", task=NUMBER_TASK)
    settings = made.settings
    for key in ("target", "split"):
        values = list(settings.get(key, {}).values())
        if len(values) == len(clients) and all(value == values[0] for value in values):
            settings[key] = values[0]
    if client_column is not None:
        _federate(made, clients[0], raw, client_column)
        settings |= {
            key: own[clients[0]] for key in ("task", "positive") if (own := settings.get(key))
        }
        outcome = outcome_type(settings.get("task", DEFAULT_TASK))
        if outcome is not None and outcome.number:
            settings["task"] = {"name": settings["task"], "targets": "pooled"}
            text = (
                "all clients scale it alike (targets: pooled), which a forest that they grow "
                "together needs"
            )
            made.note(clients[0], text)
    return made


def _looked(made: Proposal, place: Place, said: str | None, whole: bool) -> Raw:
    """Read a file's table, or the beginning of a long one; add how it is read, and its target, to
    the proposal.
    """
    client = place.client
    path = place.find()
    raw = read_table(path, ReadOptions(), client, None if whole else _FIRST)
    notes = [note for note in raw.notes if isinstance(note, Note) and note.kind == "read"]
    options = {key: value for note in notes for key, value in note.fix.items()}
    here = Path.cwd()
    absolute = path.absolute()
    shown = str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
    made.settings["files"][client] = {"path": shown, **options} if options else shown
    guessed = [
        note.text
        for note in raw.notes
        if note.kind == "sample" or {"encoding", "names", "sheet", "skiprows"} & {*note.fix}
    ]
    for text in filter(None, (place.note.removeprefix(f"{client}: "), *guessed)):
        made.note(client, text)
    columns = list(map(str, raw.frame))
    told = f"the column to predict, one of {shorten(columns, 20)}"
    advice = "; ".join(
        ["for one client alone, write --target CLIENT=COLUMN", *(note.text for note in raw.notes)]
    )
    if are_predictions(columns):
        advice = MOVE_PREDICTIONS
    expect(
        said in columns, f"{raw.head}: --target", told, said or Told("none"), advice, known=columns
    )
    made.note(client, f"predicts {said}", target=said)
    return raw


def _labels(made: Proposal, client: str, raw: Raw) -> pd.Series:
    """Return the labels or numbers of labelled rows; add the positive label to the proposal."""
    from fedlit.data.labels import likely_positive, plain_target, unread

    target = made.settings["target"][client]
    found = plain_target(client, raw.frame[target])
    different = found.nunique()
    most = max(_MOST_CLASSES, len(found) // 10)
    some = shorten([*map(repr, found.unique()[:4].tolist())])
    shown = Told(
        f"{counted(different, 'different value')} in {len(found):,} rows" + (some and f": {some}")
    )
    few = different > 0 and (found.dtype.kind in "iuf" or different <= most)
    told = "several numbers, or a few classes"
    bad = unread(raw.frame[target])
    asked = f"correct {bad}, or name another --target" if bad else "name another --target"
    advice = "; ".join([asked, *(note.text for note in raw.notes)])
    expect(few, f"{raw.head}: --target: {target}", told, shown, advice, DataError)
    made.rows = min(made.rows, len(found))
    if len(found) < len(raw.frame):
        made.settings["unlabelled"] = "drop"
        made.note(
            client, "rows without a label are left out" + _blank(target, found) * (different == 1)
        )
    if (positive := likely_positive(found.unique().tolist())) is not None:
        made.note(client, f"AUROC and AUPRC are those of {positive}", positive=positive)
    return found


def _plain(value: Any) -> Any:
    """Return a label as a person writes it: 1, not 1.0 of some library."""
    number = value.item() if hasattr(value, "item") else value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _blank(target: str, found: pd.Series) -> str:
    """Return the question whether an empty cell of a target with one label is a class."""
    other = "no" if found.dtype == object else "0"
    return f"; if an empty cell is a class, write values: {{{target}: {{'': {other!r}}}}}"


def _check_classes(made: Proposal, labels: Mapping[str, pd.Series]) -> None:
    """Refuse a target of which all clients have the same single value; note the clients that have
    one value.

    Raises:
        DataError: nothing can be learnt of a target.
    """
    values: dict[str, set[str]] = {}
    for held in labels.values():
        values.setdefault(str(held.name), set()).update(map(str, held.unique()))
    for client, held in labels.items():
        several = len(values[str(held.name)]) > 1
        advice = "; ".join(
            ["name another --target", *(text for own, text in made.notes if own == client)]
        )
        shown = Told(f"1 different value in {len(held):,} rows: {_plain(held.iloc[0])!r}")
        where = f"client {client!r}: --target: {held.name}"
        expect(several, where, "several numbers, or a few classes", shown, advice, DataError)
        if held.nunique() == 1:
            label = _plain(held.iloc[0])
            made.note(
                client, f"all rows have the {held.name} {label}: alone, nothing is learnt of it"
            )


def _split(made: Proposal, client: str, raw: Raw) -> None:
    """Add the column that says which rows are training, validation and test rows to the proposal,
    if there is one.
    """
    target = made.settings["target"][client]
    columns = [
        str(name) for name in raw.frame if str(name) != target and names_parts(raw.frame[name])
    ]
    if len(columns) == 1:
        column = columns[0]
        training = parts_of(raw.frame[column]) == "train"
        made.rows = min(made.rows, int((training & raw.frame[target].notna()).sum()))
        made.note(
            client,
            f"{column} says which rows are training, validation and test rows",
            split={"column": column},
        )


def _is_number(labels: pd.Series) -> bool:
    return labels.dtype.kind in "iuf" and (
        labels.nunique() > _FEW_CLASSES or bool((labels % 1 != 0).any())
    )


def _federate(made: Proposal, client: str, raw: Raw, column: str) -> None:
    """Make a client of each value of a column.

    Raises:
        ConfigError: there is no such column, or it names one client.
    """
    frame = raw.frame
    target = made.settings["target"]
    file = made.settings["files"][client]
    names = [name for name in map(str, frame) if name != target]
    expect(
        column in names,
        "--client-column",
        f"a column of {raw.head}, not the target",
        column,
        known=names,
    )
    named = frame.loc[frame[target].notna(), column].dropna()
    sizes = owners_of(named).value_counts()
    expect(
        len(sizes) > 1,
        f"--client-column: {column}",
        "several values",
        len(sizes),
        "there is no federation of one",
    )
    made.settings |= {
        "client_column": column,
        "files": file if isinstance(file, str) else {client: file},
    }
    made.note(client, f"{len(sizes):,} clients of {sizes.min():,} to {sizes.max():,} rows")
    large = sizes[sizes >= _FEWEST_ROWS]
    if 2 <= len(large) < len(sizes):
        made.settings["least_rows"] = _FEWEST_ROWS
        small = counted(len(sizes) - len(large), "client")
        made.note(client, f"left out because of fewer than {_FEWEST_ROWS} rows: {small}")
        sizes = large
    made.rows = int(sizes.min())


def written(proposal: Proposal, file: str) -> str:
    """Return the text of a configuration that can be trained as it is.

    Args:
        proposal: the content of the configuration.
        file: the name of the configuration, for the commands in it.
    """
    settings = yaml_text.dump(proposal.settings, width=72)
    template = Path(__file__).with_name("init.yaml.j2").read_text(encoding="utf-8")
    text: str = Template(template, keep_trailing_newline=True).render(
        file=file,
        # some client's rows are split at random
        drawn="column" not in proposal.settings.get("split", {}),
        settings=textwrap.indent(settings, 6 * " ").strip(),
        notes=wrap("".join(f"\n# - {note}" for note in proposal.told()), 79),
        # Each batch needs several rows, of the smallest client too, when part of its training rows
        # is a fold.
        batches=max(1, min(10, int(0.5 * proposal.rows) // 4)),
    )
    return text
