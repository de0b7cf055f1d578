"""A client that joins a trained run: the configurations of its own run, and of going alone."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.allowed import check_allowed, check_no_links
from fedlit.run.arguments import Asked, layers_of, origins, pairs_of
from fedlit.run.config import find_config, flatten, parse_yaml, read_yaml, shown
from fedlit.run.folders import find_run, to_score
from fedlit.run.layers import Layer
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.train.manifest import Manifest, read_checkpoint

__all__ = ["Joining", "prepare"]


@dataclass
class Joining:
    """A client that joins a run.

    Attributes:
        run: the folder of the run that it joins.
        checkpoint: of that run.
        client: its name.
        table: its rows.
        clients: of the run.
        federated: whether all go on training together, instead of the newcomer alone around a frozen core.
        notes: what a person should know.
    """

    run: Path
    checkpoint: Path
    client: str
    table: ClientTable
    clients: list[str]
    federated: bool
    notes: list[str]
    _base: dict[str, Any] = field(repr=False)
    _own: dict[str, Any] = field(repr=False)
    _typed: list[str] = field(repr=False)
    _made_from: list[Path] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.run.parent.name}+{self.client}"

    def joined(self, *more: str) -> Run:
        """Return its run, untrained; ``more`` are further keys as on the command line."""
        base = self._started()
        return _parse(base, self._own, [*self._typed, *more], self._made_from, self.name)

    def alone(self) -> Run:
        """Return the run of the same network on its own rows, from drawn values, without exchange."""
        own = {key: value for key, value in self._own.items() if key != "exchange"}
        typed = [arg for arg in self._typed if not arg.startswith("--exchange.")]
        return _parse(_pruned(self._base, self.table)[0], own, typed, self._made_from, f"{self.name}-alone")

    def _started(self) -> dict[str, Any]:
        start = {"checkpoint": str(self.checkpoint.absolute()), **self._base["core"], "frozen": not self.federated}
        if self.federated:
            base = {**self._base, "model": {**self._base["model"], "start": start}}
            both = {
                "sources": [self._base["run_source"], self._base["data"]["source"]],
                "clients": [None, [self.client]],
            }
            source = {"class_path": "fedlit.data.shaping.together.Together", "init_args": both}
            left = self._base["left"]
            return {**base, "data": {**self._base["data"], "source": source, "leave_out": left}}
        base = _pruned(self._base, self.table)[0]
        return {**base, "model": {**base["model"], "start": start}}


def prepare(
    run: str | Path,
    config: str | Path | Mapping[str, Any],
    typed: Sequence[str] = (),
    *,
    client: str | None = None,
    checkpoint: str = "last",
    federated: bool = False,
) -> Joining:
    """Read the run and the newcomer's own configuration.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        config: the newcomer's: ``data.source``, and keys that differ from the run's.
        typed: further keys, as on the command line.
        client: which of the source's clients, where it has several.
        checkpoint: of the run: ``last``, ``best`` or a file.
        federated: whether all go on training together.

    Raises:
        ConfigError: no such run or checkpoint, a name that the run has, several clients, nothing that is shared.
    """
    folder = find_run(run)
    path, _ = to_score(folder.parent.parent, folder.parent.name, checkpoint, folder, "add-client")
    header = read_checkpoint(path, resumable=False)
    clients = sorted(Manifest.read(header).data)
    if set(clients) != set(header["fedlit"].get("encoders") or clients):
        raise ConfigError(
            "--run: expected a federation that a client can join, found one whose rows were pooled into one table; "
            "train one that exchanges tensors"
        )
    saved = folder / "config.yaml"
    if not saved.is_file():
        raise ConfigError(f"--run: expected a run that has its config.yaml, found none in {folder}")
    files = [saved, *([] if isinstance(config, Mapping) else [find_config(str(config))])]
    check_no_links(folder)
    base = read_yaml(saved)
    own = dict(config) if isinstance(config, Mapping) else read_yaml(files[-1])
    mine = [Layer({} if isinstance(config, Mapping) else own), *layers_of(typed)]
    check_allowed(base, shown(saved), Asked("fit", mine, "").words)
    source = (own.get("data") or {}).get("source")
    if not source:
        raise ConfigError(
            "--config: expected data.source, the newcomer's own table, found none; for instance data: {source: "
            "{class_path: fedlit.Tables, init_args: {files: {NAME: FILE}, target: COLUMN}}}"
        )
    pairs, notes = [f"{flag}={value}" for flag, value in pairs_of(list(typed))], list[str]()
    if set(own) > {"data"} and files[-1] in origins(saved):  # what was laid over it counts, a method for instance
        own = {"data": {"source": source}}
        notes.append(
            f"all settings are the run's, which was made from {shown(files[-1])}: of that data.source is taken"
        )
    own = {**own, "data": {key: value for key, value in own["data"].items() if key != "source"}}
    base = _base(base, source)
    if changed := [key for key, _ in flatten(own)]:
        notes.append(f"changed from the run's settings: {shorten(changed)}")
    if not federated:
        own, pairs = _frozen(base, own, pairs, notes)
    if not base["core"]["core"]:
        raise ConfigError(
            "--run: expected a run whose clients share something, found that exchange.federated is empty; a newcomer "
            "would have nothing of it"
        )
    table, others = _table(base, own, pairs, files, client, clients)
    base["data"]["leave_out"] = others
    notes += [] if federated else _pruned(base, table)[1]
    return Joining(folder, path, table.name, table, clients, federated, notes, base, own, pairs, files)


def _base(saved: Mapping[str, Any], source: Any) -> dict[str, Any]:
    """The run's settings with the newcomer's source; what it was called and what it started from is left behind."""
    base = {key: dict(value) if isinstance(value, dict) else value for key, value in saved.items() if key != "name"}
    data, model, exchange = base["data"], base["model"], base.setdefault("exchange", {})
    started = model.pop("start", None) or {}
    # what the run shared, and no more: a newcomer takes nothing that was private there, whatever is said of it later
    patterns, buffers = exchange.get("federated"), exchange.get("buffers", "private")
    core = (
        {"core": patterns, "buffers": buffers} if patterns else {key: started.get(key) for key in ("core", "buffers")}
    )
    beside = {"run_source": data["source"], "left": data.get("leave_out"), "core": core}
    return {**base, "data": {**data, "source": source}, **beside}


def _frozen(
    base: dict[str, Any], own: dict[str, Any], pairs: list[str], notes: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Nothing is exchanged, and what the core is says the run: what is said of the exchange has no effect."""
    said = dict(own.get("exchange") or {})
    for pair in pairs:
        key, _, value = pair.removeprefix("--").partition("=")
        if key.startswith("exchange."):
            said[key.removeprefix("exchange.")] = parse_yaml(value, f"--{key}")
    if unused := [f"exchange.{key}" for key, value in said.items() if value != base["exchange"].get(key)]:
        notes.append(
            f"without effect: {shorten(unused)}; the core is what the run federated, and nothing is exchanged with a "
            "frozen one"
        )
    rest = {key: value for key, value in own.items() if key != "exchange"}
    return rest, [pair for pair in pairs if not pair.startswith("--exchange.")]


def _table(
    base: Mapping[str, Any],
    own: Mapping[str, Any],
    pairs: list[str],
    files: list[Path],
    client: str | None,
    clients: Sequence[str],
) -> tuple[ClientTable, list[str]]:
    """The newcomer's table, and the source's other clients."""
    plain = {"data": {key: value for key, value in base["data"].items() if key not in _OF_CLIENTS}}
    model = {key: value for key, value in base["model"].items() if key != "overrides"}
    data = _parse({**base, **plain, "model": model, "exchange": {}}, own, pairs, files, "add-client").data
    tables = {table.name: table for table in data.source.tables(data.seed)}
    if client is None and len(tables) > 1:
        raise ConfigError(
            f"--config: expected a source with one client, the newcomer, found {shorten(list(tables))}; choose one "
            "with --client NAME"
        )
    name = next(iter(tables)) if client is None else client
    if name not in tables:
        raise ConfigError(
            f"--client: expected one of {', '.join(tables)}, found {name!r}." + did_you_mean(name, tables)
        )
    if name.casefold() in map(str.casefold, clients):
        raise ConfigError(
            f"--config: expected a client that the run does not have, found {name!r}, which it has ("
            f"{shorten(list(clients))}); give the newcomer another name"
        )
    return tables[name], [other for other in tables if other != name]


_OF_CLIENTS = ("columns", "mutations", "leave_out", "steps")  # keys of data that may name clients or their columns


def _pruned(base: Mapping[str, Any], table: ClientTable) -> tuple[dict[str, Any], list[str]]:
    """The settings for a newcomer alone, and notes: what the run says of its other clients has no place there."""
    data, model, notes = dict(base["data"]), dict(base["model"]), list[str]()
    overrides = model.get("overrides") or {}
    model["overrides"] = {key: own for key, own in overrides.items() if fnmatch.fnmatchcase(table.name, key)}
    if data.get("mutations"):
        notes.append("data.mutations of the run is left out: its faults are planted in the run's clients")
        data["mutations"] = []
    if isinstance(data.get("steps"), dict):
        data["steps"] = {key: n for key, n in data["steps"].items() if fnmatch.fnmatchcase(table.name, key)} or None
    columns = data.get("columns") or []
    names = list(map(str, table.features))
    if lost := [own for own in columns if not fnmatch.filter(names, own.removeprefix("!"))]:
        notes.append(f"data.columns of the run names columns that {table.name} does not have: {shorten(lost)}")
        data["columns"] = [own for own in columns if own not in lost] or None
    return {**base, "data": data, "model": model, "exchange": {"federated": []}}, notes


def _parse(base: Mapping[str, Any], own: Mapping[str, Any], typed: list[str], files: list[Path], name: str) -> Run:
    """The run of settings, changed by others and by what is typed."""
    whole = {key: value for key, value in base.items() if key not in ("run_source", "left", "core", "data")}
    data = {key: value for key, value in base["data"].items() if key != "source"}
    layers = [
        Layer({**whole, "data": data}, f"{shown(files[0])}: ", own=False),
        Layer(
            {"data.source": base["data"]["source"]}, f"{shown(files[-1])}: "
        ),  # the newcomer's, or checked with the run
        Layer(own, f"{shown(files[-1])}: "),
        *layers_of(typed),
    ]
    return parse(Asked("fit", layers, name, files, tuple(files[:1])))[0]
