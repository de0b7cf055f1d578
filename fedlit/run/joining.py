"""Prepares a client that joins a trained run: the run's settings, with the newcomer's laid over them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlit.data.module import FederatedData
from fedlit.data.table import ClientTable, check_client
from fedlit.errors import ConfigError
from fedlit.run.allowed import check_allowed, check_no_links
from fedlit.run.arguments import Asked, layers_of, origins
from fedlit.run.config import find_config, flatten, read_yaml, shown
from fedlit.run.folders import CONFIG, find_trained
from fedlit.run.layers import Layer
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.train.manifest import Manifest, read_checkpoint

Settings = dict[str, Any]


@dataclass
class Joining:
    """A client that joins a run.

    Attributes:
        run: the folder of the run that it joins.
        checkpoint: the checkpoint of that run.
        client: the name of the newcomer.
        table: the table of the newcomer.
        clients: the clients of the run.
        federated: whether all clients continue to train together, instead of the newcomer alone around a frozen core.
        notes: what the user should know.
    """

    run: Path
    checkpoint: Path
    client: str
    table: ClientTable
    clients: list[str]
    federated: bool
    notes: list[str]
    _layers: Callable[[Settings], list[Layer]] = field(repr=False)
    _files: list[Path] = field(repr=False)
    _both: Settings = field(repr=False)
    _newcomer: Settings = field(repr=False)
    _start: Settings = field(repr=False)

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.run.parent.name}+{self.client}"

    def joined(self, *more: str) -> Run:
        """Return the newcomer's untrained run. ``more`` are further keys, written as on the command line."""
        over = {**(self._both if self.federated else self._newcomer), "model.start": self._start}
        return _built(self.name, [*self._layers(over), *layers_of(more)], self._files, exchange=self.federated)

    def alone(self) -> Run:
        """Return the run of the same network on the newcomer's rows, from random initial values, without exchange."""
        return _built(f"{self.name}-alone", self._layers(self._newcomer), self._files)


def _built(name: str, layers: list[Layer], files: list[Path], *, exchange: bool = False) -> Run:
    """Build a run of some layers, of which the first is the run's that is joined."""
    if not exchange:
        layers = [
            layer._replace(values={key: own for key, own in layer.values.items() if key.split(".")[0] != "exchange"})
            for layer in layers
        ]
        layers.append(Layer({"exchange.federated": []}))
    return parse(Asked("fit", layers, name, files, tuple(files[:1])))[0]


def prepare(
    run: str | Path,
    config: str | Path | Mapping[str, Any],
    typed: Sequence[str] = (),
    *,
    client: str | None = None,
    checkpoint: str = "last",
    federated: bool = False,
) -> Joining:
    """Read the run and the newcomer's configuration.

    Args:
        run: a run's folder, or the name of a configuration, which stands for its newest run.
        config: the newcomer's configuration: ``data.source``, and keys that differ from the run's.
        typed: further keys, written as on the command line.
        client: the client of the source, if it has several.
        checkpoint: the run's checkpoint: ``last``, ``best`` or a file.
        federated: whether all clients continue to train together.

    Raises:
        ConfigError: there is no such run or checkpoint, the run already has this name, the source has several clients,
            or nothing is shared.
    """
    folder, path = find_trained(run, checkpoint, "add-client")
    header = read_checkpoint(path, resumable=False)
    clients = sorted(Manifest.read(header).data)
    saved = folder / CONFIG
    if set(clients) != set(header["fedlit"].get("encoders") or clients) or not saved.is_file():
        raise ConfigError(
            f"--run: expected a federation that a client can join, with its config.yaml, found that {folder} has none "
            "or that its rows were pooled into one table; train one that exchanges tensors"
        )
    files = [saved, *([] if isinstance(config, Mapping) else [find_config(str(config))])]
    check_no_links(folder)
    settings = {key: value for key, value in read_yaml(saved).items() if key != "name"}
    own = dict(config) if isinstance(config, Mapping) else read_yaml(files[-1])
    words = Asked("fit", [Layer({} if isinstance(config, Mapping) else own), *layers_of(typed)], "").words
    check_allowed(settings, shown(saved), words)
    source, notes = (own.get("data") or {}).get("source"), list[str]()
    if not source:
        raise ConfigError(
            "--config: expected data.source, the newcomer's own table, found none; for instance data: {source: "
            "{class_path: fedlit.Tables, init_args: {files: {NAME: FILE}, target: COLUMN}}}"
        )
    if set(own) > {"data"} and files[-1] in origins(saved):  # what was laid over it counts, a method for instance
        own = {"data": {}}
        notes = [f"all settings are the run's, which was made from {shown(files[-1])}: of that data.source is taken"]
    own["data"] = {key: value for key, value in own["data"].items() if key != "source"}
    if changed := [key for key, _ in flatten(own)]:
        notes.append(f"changed from the run's settings: {shorten(changed)}")
    layers = layers_of(typed)
    unused = [key for key in [*changed, *(key for own in layers for key in own.values)] if key.startswith("exchange.")]
    if unused and not federated:
        notes.append(f"without effect: {shorten(unused)}; nothing is exchanged with a frozen core")
    start = {"checkpoint": str(path.absolute()), **_core(settings), "frozen": not federated}

    def laid_over(over: Settings) -> list[Layer]:
        below = {**settings, "data": {key: value for key, value in settings["data"].items() if key != "source"}}
        above = [Layer(values, f"{shown(files[-1])}: ") for values in (over, own)]
        return [Layer(below, f"{shown(saved)}: ", own=False), *above, *layers]  # a source is replaced, not merged

    table = _table(_built("add-client", laid_over(_for_newcomer(settings, source)), files).data, client, clients)
    chosen = source if client is None else _together((source, [client]))
    newcomer = _for_newcomer(settings, chosen, table, notes if not federated else [])
    both = {"data.source": _together((settings["data"]["source"], None), (source, [table.name]))}
    return Joining(folder, path, table.name, table, clients, federated, notes, laid_over, files, both, newcomer, start)


def _core(settings: Settings) -> Settings:
    """Return what a newcomer takes: exactly what the run shared, whatever its configuration says about the exchange."""
    started, exchange = settings["model"].pop("start", None) or {}, settings.get("exchange") or {}
    if exchange.get("federated"):
        started = {"core": exchange["federated"], "buffers": exchange.get("buffers", "private")}
    if not started.get("core"):
        raise ConfigError(
            "--run: expected a run whose clients share something, found that exchange.federated is empty; a newcomer "
            "would have nothing of it"
        )
    return {key: started[key] for key in ("core", "buffers")}


def _table(data: FederatedData, client: str | None, clients: Sequence[str]) -> ClientTable:
    """Return the newcomer's table."""
    tables = {table.name: table for table in data.source.tables(data.seed)}
    if client is None and len(tables) > 1:
        raise ConfigError(
            f"--config: expected a source with one client, the newcomer, found {shorten(list(tables))}; choose one "
            "with --client NAME"
        )
    name = next(iter(tables)) if client is None else client
    check_client("--client", name, list(tables))
    if name.casefold() in map(str.casefold, clients):
        raise ConfigError(
            f"--config: expected a client that the run does not have, found {name!r}, which it has ("
            f"{shorten(list(clients))}); give the newcomer another name"
        )
    return tables[name]


def _for_newcomer(
    run: Settings, source: Any, table: ClientTable | None = None, notes: list[str] | None = None
) -> Settings:
    """Return the settings that change for a newcomer: its source, and no settings of other clients.
    Changes are noted.
    """
    name, notes = table.name if table is not None else "", notes if notes is not None else []
    over = {"data.source": source, "data.mutations": [], "data.leave_out": [], "data.columns": None}
    for group, key in (("model", "overrides"), ("data", "steps")):
        if isinstance(given := run[group].get(key), Mapping):
            own = {pattern: value for pattern, value in given.items() if fnmatch.fnmatchcase(name, pattern)}
            over[f"{group}.{key}"] = own or None
    if run["data"].get("mutations"):
        notes.append("data.mutations of the run is left out: its faults are planted in the run's clients")
    if table is not None and (columns := run["data"].get("columns")):
        names = list(map(str, table.features))
        over["data.columns"] = [own for own in columns if fnmatch.filter(names, own.removeprefix("!"))] or None
        if lost := [own for own in columns if own not in (over["data.columns"] or ())]:
            notes.append(f"data.columns of the run names columns that {name} does not have: {shorten(lost)}")
    return over


def _together(*parts: tuple[Any, list[str] | None]) -> dict[str, Any]:
    """Return a source that combines several, each with the clients that are taken from it."""
    sources, clients = zip(*parts, strict=True)
    both = {"sources": list(sources), "clients": list(clients)}
    return {"class_path": "fedlit.data.shaping.derived.Together", "init_args": both}
