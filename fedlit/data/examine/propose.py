"""Proposes a configuration for unknown tables, and writes it with comments."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Template

from fedlit import yaml_text
from fedlit.data.reading import Raw, ReadOptions, read_table
from fedlit.data.sources.base import check_names, owners_of
from fedlit.data.sources.places import MOVE_PREDICTIONS, Place, are_predictions, places_of
from fedlit.data.splitting import names_parts, parts_of
from fedlit.errors import DataError, Told, expect
from fedlit.outcomes import DEFAULT_TASK, NUMBER_TASK, outcome_type
from fedlit.show.text import MOST_ROWS, counted, more, shorten, wrap

if TYPE_CHECKING:
    import pandas as pd

_FEW_CLASSES = 10
"""Most different whole numbers that are taken for classes."""
_MOST_CLASSES = 30
"""Most different words that are taken for classes."""
_FIRST = 2**26
"""Bytes at the beginning of a text that are read; a text that holds all clients is read whole."""
_GUESSED = frozenset({"encoding", "names", "sheet", "skiprows"})
"""Options for reading that are noted, because they may be guessed wrongly."""
_FEWEST_ROWS = 20  # A client with fewer rows has two or three test rows.


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

    def note_lines(self) -> list[str]:
        """Return the notes with their clients; equal notes share a line.

        Example:
            >>> proposal = Proposal(notes=[("north", "predicts c1"), ("south", "predicts c2"), ("west", "predicts c1")])
            >>> proposal.note_lines()
            ['north, west: predicts c1', 'south: predicts c2']
        """
        groups: dict[str, list[str]] = {}
        for client, text in self.notes:
            groups.setdefault(text, []).append(client)
        lines = [f"{shorten(clients, 4)}: {text}" for text, clients in groups.items()]
        return [*lines[:MOST_ROWS], *more(lines, "notes")]


def places_by_client(files: Sequence[str], client_column: str | None) -> list[Place]:
    """Return the file of each client.

    Args:
        files: folders, patterns and files.
        client_column: the column of one file that names the client of each row.

    Raises:
        ConfigError: two clients of one name, or several files that have such a column.
    """
    data_files = [*chain(*map(places_of, files))]
    check_names([data_file.client for data_file in data_files])
    is_enough = client_column is None or len(data_files) == 1
    expect(is_enough, "--client-column", "one file that holds all clients' rows", len(data_files))
    return data_files


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
    data_files = places_by_client(files, client_column)
    clients = [data_file.client for data_file in data_files]
    for client in targets:
        expect_client("--target", client, clients)
    proposal = Proposal()
    labels = dict[str, Any]()
    for data_file in data_files:
        raw = _looked(
            proposal,
            data_file,
            targets.get(data_file.client, targets.get(None)),
            client_column is not None,
        )
        labels[data_file.client] = _labels(proposal, data_file.client, raw)
        look(proposal, data_file.client, raw, (proposal.settings["target"][data_file.client],))
    _check_classes(proposal, labels)
    numbers = {column.name for column in labels.values() if _is_number(column)}
    for client, column in labels.items():  # few rows have few values: one task for all
        if (
            column.name in numbers
            and column.dtype.kind in "iuf"
            and not {*column.unique()} <= {0, 1}
        ):
            proposal.note(client, f"{column.name} is a number: {NUMBER_TASK}", task=NUMBER_TASK)
    settings = proposal.settings
    for key in ("target", "split"):
        values = list(settings.get(key, {}).values())
        if len(values) == len(clients) and all(value == values[0] for value in values):
            settings[key] = values[0]
    if client_column is not None:
        federate(proposal, clients[0], raw, client_column, (settings["target"],))
        for key in ("task", "positive"):
            if settings.get(key):
                settings[key] = settings[key][clients[0]]
        outcome = outcome_type(settings.get("task", DEFAULT_TASK))
        if outcome is not None and outcome.number:
            settings["task"] = {"name": settings["task"], "targets": "pooled"}
            text = (
                "all clients scale the target the same way (targets: pooled), as a federated "
                "forest requires"
            )
            proposal.note(clients[0], text)
    return proposal


def expect_client(option: str, client: str | None, clients: Sequence[str]) -> None:
    """Raise unless an option is for all other clients (None), or for one of the clients.

    Raises:
        ConfigError: no such client.
    """
    is_there = client is None or client in clients
    expect(is_there, option, f"a client among {shorten(clients)}", client, known=clients)


def read_beginning(proposal: Proposal, data_file: Place, *, whole: bool) -> Raw:
    """Read a file's table, or the beginning of a long one; add its options for reading to the
    proposal.
    """
    client = data_file.client
    path = data_file.find()
    most_bytes = None if whole else _FIRST
    raw = read_table(path, ReadOptions(), client, most_bytes)
    options = dict[str, Any]()
    for note in raw.notes:
        if note.kind == "read":
            options |= note.fix
    working_folder = Path.cwd()
    absolute = path.absolute()
    written_path = str(absolute)
    if absolute.is_relative_to(working_folder):
        written_path = str(absolute.relative_to(working_folder))
    entry = {"path": written_path, **options} if options else written_path
    proposal.settings["files"][client] = entry
    guessed = [note.text for note in raw.notes if note.kind == "sample" or _GUESSED & {*note.fix}]
    for text in filter(None, (data_file.note.removeprefix(f"{client}: "), *guessed)):
        proposal.note(client, text)
    return raw


def _looked(proposal: Proposal, data_file: Place, target: str | None, whole: bool) -> Raw:
    """Read a file's table, and add its target to the proposal."""
    client = data_file.client
    raw = read_beginning(proposal, data_file, whole=whole)
    columns = list(map(str, raw.frame))
    key = f"{raw.head}: --target"
    expected = f"the column to predict, one of {shorten(columns, 20)}"
    if are_predictions(columns):
        advice = MOVE_PREDICTIONS
    else:
        request = "for one client alone, write --target CLIENT=COLUMN"
        advice = "; ".join([request, *(note.text for note in raw.notes)])
    named = target or Told("none")
    expect(target in columns, key, expected, named, advice, known=columns)
    proposal.note(client, f"predicts {target}", target=target)
    return raw


def _labels(proposal: Proposal, client: str, raw: Raw) -> pd.Series:
    """Return the labels or numbers of labelled rows; add the positive label to the proposal."""
    from fedlit.data.labels import likely_positive, plain_target, unread

    target = proposal.settings["target"][client]
    labels = plain_target(client, raw.frame[target])
    different = labels.nunique()
    most = max(_MOST_CLASSES, len(labels) // 10)
    found_text = f"{counted(different, 'different value')} in {len(labels):,} rows"
    if different:
        found_text += f": {shorten([*map(repr, labels.unique()[:4].tolist())])}"
    few = different > 0 and (labels.dtype.kind in "iuf" or different <= most)
    expected = "several numbers, or a few classes"
    bad = unread(raw.frame[target])
    request = "name another --target"
    if bad:
        request = f"correct {bad}, or {request}"
    advice = "; ".join([request, *(note.text for note in raw.notes)])
    key = f"{raw.head}: --target: {target}"
    expect(few, key, expected, Told(found_text), advice, DataError)
    proposal.rows = min(proposal.rows, len(labels))
    if len(labels) < len(raw.frame):
        proposal.settings["unlabelled"] = "drop"
        text = "rows without a label are left out"
        if different == 1:
            text += _blank(target, labels)
        proposal.note(client, text)
    positive = likely_positive(labels.unique().tolist())
    if positive is not None:
        proposal.note(client, f"AUROC and AUPRC are those of {positive}", positive=positive)
    return labels


def _plain(value: Any) -> Any:
    """Return a label as a person writes it: 1, not 1.0 of some library."""
    number = value.item() if hasattr(value, "item") else value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _blank(target: str, labels: pd.Series) -> str:
    """Return the question whether an empty cell of a target with one label is a class."""
    second = "no" if labels.dtype == object else "0"
    return f"; if an empty cell is a class, write values: {{{target}: {{'': {second!r}}}}}"


def _check_classes(proposal: Proposal, labels: Mapping[str, pd.Series]) -> None:
    """Refuse a target that has the same single value at all clients; add a note for each client
    that has one value.

    Raises:
        DataError: nothing can be learnt of a target.
    """
    values: dict[str, set[str]] = {}
    for column in labels.values():
        values.setdefault(str(column.name), set()).update(map(str, column.unique()))
    for client, column in labels.items():
        differs = len(values[str(column.name)]) > 1
        advice = "; ".join(
            ["name another --target", *(text for noted, text in proposal.notes if noted == client)]
        )
        found_text = Told(f"1 different value in {len(column):,} rows: {_plain(column.iloc[0])!r}")
        key = f"client {client!r}: --target: {column.name}"
        expect(differs, key, "several numbers, or a few classes", found_text, advice, DataError)
        if column.nunique() == 1:
            label = _plain(column.iloc[0])
            proposal.note(
                client, f"all rows have the {column.name} {label}: alone, nothing is learnt of it"
            )


def look(proposal: Proposal, client: str, raw: Raw, targets: Sequence[str]) -> None:
    """Add the number of labelled rows, and the split column if there is exactly one, to the
    proposal.
    """
    columns = [
        str(name) for name in raw.frame if str(name) not in targets and names_parts(raw.frame[name])
    ]
    labelled = raw.frame[[*targets]].notna().all(axis=1)
    proposal.rows = min(proposal.rows, int(labelled.sum()))
    if len(columns) == 1:
        column = columns[0]
        training = parts_of(raw.frame[column]) == "train"
        proposal.rows = min(proposal.rows, int((training & labelled).sum()))
        proposal.note(
            client,
            f"{column} says which rows are training, validation and test rows",
            split={"column": column},
        )


def _is_number(labels: pd.Series) -> bool:
    return labels.dtype.kind in "iuf" and (
        labels.nunique() > _FEW_CLASSES or bool((labels % 1 != 0).any())
    )


def federate(
    proposal: Proposal, client: str, raw: Raw, column: str, targets: Sequence[str]
) -> None:
    """Make a client of each value of a column.

    Raises:
        ConfigError: there is no such column, or it names one client.
    """
    frame = raw.frame
    file = proposal.settings["files"][client]
    names = [name for name in map(str, frame) if name not in targets]
    expect(
        column in names,
        "--client-column",
        f"a column of {raw.head}, not the target",
        column,
        known=names,
    )
    named = frame.loc[frame[[*targets]].notna().all(axis=1), column].dropna()
    sizes = owners_of(named).value_counts()
    expect(
        len(sizes) > 1,
        f"--client-column: {column}",
        "several values",
        len(sizes),
        "there is no federation of one",
    )
    proposal.settings |= {
        "client_column": column,
        "files": file if isinstance(file, str) else {client: file},
    }
    proposal.note(client, f"{len(sizes):,} clients of {sizes.min():,} to {sizes.max():,} rows")
    large = sizes[sizes >= _FEWEST_ROWS]
    if 2 <= len(large) < len(sizes):
        proposal.settings["least_rows"] = _FEWEST_ROWS
        small = counted(len(sizes) - len(large), "client")
        proposal.note(client, f"left out because of fewer than {_FEWEST_ROWS} rows: {small}")
        sizes = large
    proposal.rows = int(sizes.min())


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
        # True if some client's rows are split at random.
        drawn="column" not in proposal.settings.get("split", {}),
        settings=textwrap.indent(settings, 6 * " ").strip(),
        notes=wrap("".join(f"\n# - {note}" for note in proposal.note_lines()), 79),
        # Each batch needs several rows, even at the smallest client with a fold held out.
        batches=max(1, min(10, int(0.5 * proposal.rows) // 4)),
    )
    return text
