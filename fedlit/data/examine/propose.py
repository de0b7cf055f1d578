"""Proposes a configuration for tables of which nothing is known yet, and writes it with comments."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from fedlit.data.examine.page import flow
from fedlit.data.note import Note
from fedlit.data.reading import Raw, ReadOptions, read_table
from fedlit.data.sources.places import Place, places_of
from fedlit.errors import DataError, Told, expect
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

_FEW_CLASSES, _MOST_CLASSES = 10, 30  # whole numbers, and words
_FEWEST_ROWS = 20  # of a client by default: below, its test rows are two or three
_MOST = 10
"""Notes of one kind that are printed or written; the rest is counted."""
_ORDER = ("files", "client_column", "least_rows", "target", "task", "positive", "unlabelled")


@dataclass
class Proposal:
    """What a configuration could contain.

    Attributes:
        settings: arguments of :class:`fedlit.Tables`.
        notes: notes for a person, by the argument that they concern.
        rows: the number of labelled rows of the smallest client.
    """

    settings: dict[str, Any] = field(default_factory=lambda: {"files": {}, "target": {}})
    notes: dict[str, list[str]] = field(default_factory=dict)
    rows: int = sys.maxsize

    def note(self, key: str, client: str, text: str, **setting: Any) -> None:
        """Add a note about an argument, and propose the argument's value for a client."""
        self.notes.setdefault(key, []).append(f"{client}: {text}")
        for name, value in setting.items():
            self.settings.setdefault(name, {})[client] = value


def propose(
    folder: str,
    targets: Mapping[str | None, str],
    names: Sequence[str] | None = None,
    client_column: str | None = None,
) -> Proposal:
    """Look at the files of a folder and propose a configuration.

    Args:
        folder: a folder, a pattern or one file.
        targets: the column to predict by client; of all others under None.
        names: the names of columns, for files without a header.
        client_column: the column of one file that names the client of each row.

    Raises:
        DataError: a file cannot be read, or has no column that could be meant.
        ConfigError: a client or a column that is not there.
    """
    places = places_of(folder)
    clients = [place.client for place in places]
    whole = client_column is None or len(places) == 1
    expect(whole, "--client-column", "one file that holds all clients' rows", len(places))
    for client in targets:
        there = client is None or client in clients
        expect(there, "--target", f"a client among {shorten(clients)}", client, known=clients)
    made, labels = Proposal(), dict[str, Any]()
    for place in places:
        raw = _looked(made, place, names, targets.get(place.client, targets.get(None)))
        labels[place.client] = _predict(made, place.client, raw)
    settings, target = made.settings, made.settings["target"]
    tasks = settings.get("task", {})
    numbers = {target[client] for client in tasks}
    for client, held in labels.items():
        whole = held.dtype.kind in "iu" and not {*held} <= {0, 1}
        if client not in tasks and whole and target[client] in numbers:  # few rows have few values: one task for all
            text = f"{target[client]} is a number at other clients: regression"
            made.note("task", client, text, task="regression")
    bare = names is None or any("names" in own for own in settings["files"].values())
    expect(bare, "--names", "a file without a header", Told("that all have one"), "leave it out")
    if len({*target.values()}) == 1:
        settings["target"] = target[clients[0]]
    if client_column is not None:
        _federate(made, clients[0], raw, client_column)
        settings |= {key: own[clients[0]] for key in ("task", "positive") if (own := settings.get(key))}
        if settings.get("task") == "regression":
            settings["task"] = {"name": "regression", "targets": "pooled"}
            text = "all clients scale it alike (targets: pooled), which a forest that they grow together needs"
            made.note("task", clients[0], text)
    return made


def _looked(made: Proposal, place: Place, names: Sequence[str] | None, said: str | None) -> Raw:
    """Read a file's table; add how it is read, and its target, to the proposal."""
    client, path = place.client, place.find()
    raw = read_table(path, ReadOptions(), client)
    notes = [note for note in raw.notes if isinstance(note, Note) and note.kind == "read"]
    options = {key: value for note in notes for key, value in note.fix.items()}
    if names is not None and "names" in options:
        options["names"] = list(names)
        raw = read_table(path, ReadOptions(**options), client)
    here, whole = Path.cwd(), path.absolute()
    shown = str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
    made.settings["files"][client] = {"path": shown, **options} if options else shown
    guessed = [note.text for note in notes if "encoding" in note.fix or ("names" in note.fix and names is None)]
    for text in filter(None, (place.note.removeprefix(f"{client}: "), *guessed)):
        made.note("files", client, text)
    columns = list(map(str, raw.frame))
    told = f"the column to predict, one of {shorten(columns, 20)}"
    advice = "for one client alone, write --target CLIENT=COLUMN" + (raw.hint and f".{raw.hint.removesuffix('.')}")
    expect(said in columns, f"{raw.where}: --target", told, said or Told("none"), advice, known=columns)
    made.note("target", client, f"predicts {said}", target=said)
    return raw


def _predict(made: Proposal, client: str, raw: Raw) -> pd.Series:
    """Add the task and the positive label to the proposal; return the labels or numbers."""
    from fedlit.data.labels import likely_positive, plain_target

    target = made.settings["target"][client]
    found = plain_target(client, raw.frame[target])
    different, number, without = found.nunique(), found.dtype.kind in "iuf", len(raw.frame) - len(found)
    where, other = f"{raw.where}: --target: {target}", "say another --target"
    shown = Told(f"one value, {found.iloc[0]}" if different else "no value")
    expect(different > 1, where, "several values", shown, other, DataError)
    few = number or different <= max(_MOST_CLASSES, len(found) // 10)
    shown = Told(f"{different:,} different texts in {len(found):,} rows, such as {found.iloc[0]!r}")
    expect(few, where, "a number, or one of some classes", shown, other, DataError)
    made.rows = min(made.rows, len(found))
    if without:
        made.settings["unlabelled"] = "drop"
        made.note("unlabelled", client, f"{counted(without, 'row')} without a label")
    if number and (different > _FEW_CLASSES or bool((found % 1 != 0).any())):
        text = f"{target} is a number, from {found.min():.4g} to {found.max():.4g}: regression"
        made.note("task", client, text, task="regression")
        return found
    found = found.astype(np.int64) if number else found
    labels = found.value_counts()
    made.note("target", client, shorten([f"{label} ({counted(int(n), 'row')})" for label, n in labels.items()], 6))
    if (positive := likely_positive(labels.index.tolist())) is not None:
        made.note("positive", client, f"AUROC and AUPRC are those of {positive}", positive=positive)
    return found


def _federate(made: Proposal, client: str, raw: Raw, column: str) -> None:
    """Make a client of each value of a column.

    Raises:
        ConfigError: there is no such column, or it names one client.
    """
    frame, target, file = raw.frame, made.settings["target"], made.settings["files"][client]
    names = [name for name in map(str, frame) if name != target]
    expect(column in names, "--client-column", f"a column of {raw.where}, not the target", column, known=names)
    sizes = frame[frame[target].notna()].groupby(column).size()
    expect(len(sizes) > 1, f"--client-column: {column}", "several values", len(sizes), "there is no federation of one")
    made.settings |= {"client_column": column, "files": file if isinstance(file, str) else {client: file}}
    made.note("client_column", client, f"{len(sizes):,} clients of {sizes.min():,} to {sizes.max():,} rows")
    large = sizes[sizes >= _FEWEST_ROWS]
    if 2 <= len(large) < len(sizes):
        made.settings["least_rows"] = _FEWEST_ROWS
        few = f"{len(sizes) - len(large):,} clients of fewer than {_FEWEST_ROWS} rows are left out"
        made.note("least_rows", client, few)
        sizes = large
    made.rows = int(sizes.min())


def written(proposal: Proposal, file: str) -> str:
    """Return the text of a configuration that can be trained as it is.

    Args:
        proposal: the content of the configuration.
        file: the name of the configuration, for the commands in it.
    """
    environment = Environment(
        loader=PackageLoader("fedlit.data.examine", "."), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"yaml": _yaml, "comment": _comment, "some": some}
    return environment.get_template("init.yaml.j2").render(
        file=file,
        settings={key: proposal.settings[key] for key in _ORDER if key in proposal.settings},
        notes=proposal.notes,
        # Each batch needs several rows, of the smallest client too, when part of its training rows is a fold.
        batches=max(1, min(10, int(0.5 * proposal.rows) // 4)),
    )


def some(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    return [*lines[:_MOST], *([f"… and {len(lines) - _MOST:,} more"] if len(lines) > _MOST else [])]


def _yaml(value: Any, key: str) -> str:
    """Return a key and its value as YAML; a mapping of files or of mappings takes several lines."""
    nested = isinstance(value, dict) and any(isinstance(own, dict) for own in value.values())
    if not nested and (key != "files" or isinstance(value, str)):
        return f"{key}: {flow(value)}"
    block = None if nested else False
    text = yaml.safe_dump({key: value}, default_flow_style=block, allow_unicode=True, width=72, sort_keys=False)
    return textwrap.indent(text, " " * 6).strip()


def _comment(text: str, indent: int) -> str:
    """Wrap a text as lines of a comment of at most 79 columns."""
    start = " " * indent + "# "
    return textwrap.fill(
        " ".join(text.split()), 79, initial_indent=start, subsequent_indent=start + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
