"""A client that joins a trained run: the settings of the run, with the newcomer's laid over them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from fedlit.data.module import FederatedData
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.allowed import check_allowed, check_no_links
from fedlit.run.arguments import Asked, origins, pairs_of
from fedlit.run.config import find_config, flatten, read_yaml, shown
from fedlit.run.folders import CONFIG, find_run, to_score
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.train.manifest import Manifest, read_checkpoint

__all__ = ["Joining", "prepare"]

Settings = dict[str, dict[str, Any]]


@dataclass
class _Layers:
    """What is laid over the settings of a run.

    Attributes:
        own: the newcomer's configuration, without its source.
        typed: ``--key=value``.
        files: the configurations that all came from, the run's first.
    """

    own: Settings
    typed: list[str]
    files: list[Path]

    def parse(self, name: str, base: Settings, more: Sequence[str] = (), *, exchange: bool = True) -> Run:
        """The run of settings, with the newcomer's laid over them."""
        own = {key: value for key, value in self.own.items() if exchange or key != "exchange"}
        typed = [arg for arg in self.typed if exchange or not arg.startswith("--exchange.")] + [*more]
        named = [*typed, *(str(value) for content in (own, base["data"]["source"]) for _, value in flatten(content))]
        with TemporaryDirectory(prefix="fedlit-") as place:
            args = []
            for number, content in enumerate(layer for layer in (base, own) if flatten(layer)):
                path = Path(place, f"{number}.yaml")
                path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
                args += ["--config", str(path)]
            return parse(Asked("fit", named, [*args, *typed], self.files, name, False, tuple(self.files[:1])))[0]


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
    _joined: Settings = field(repr=False)
    _alone: Settings = field(repr=False)
    _layers: _Layers = field(repr=False)

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.run.parent.name}+{self.client}"

    def joined(self, *more: str) -> Run:
        """Return its run, untrained; ``more`` are further keys as on the command line."""
        return self._layers.parse(self.name, self._joined, more, exchange=self.federated)

    def alone(self) -> Run:
        """Return the run of the same network on its own rows, from drawn values, without exchange."""
        return self._layers.parse(f"{self.name}-alone", self._alone, exchange=False)


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
    saved = folder / CONFIG
    if set(clients) != set(header["fedlit"].get("encoders") or clients) or not saved.is_file():
        raise ConfigError(
            f"--run: expected a federation that a client can join, with its config.yaml, found that {folder} has none "
            "or that its rows were pooled into one table; train one that exchanges tensors"
        )
    files = [saved, *([] if isinstance(config, Mapping) else [find_config(str(config))])]
    check_no_links(folder)
    check_allowed(saved, [*files[1:], *typed])
    settings = {key: value for key, value in read_yaml(saved).items() if key != "name"}
    own = dict(config) if isinstance(config, Mapping) else read_yaml(files[-1])
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
    pairs = [f"{flag}={value}" for flag, value in pairs_of(list(typed))]
    said = [key for key in [*changed, *(pair.partition("=")[0][2:] for pair in pairs)] if key.startswith("exchange.")]
    if said and not federated:
        notes.append(f"without effect: {shorten(said)}; nothing is exchanged with a frozen core")
    start = _start(settings, path, frozen=not federated)
    layers = _Layers(own, pairs, files)
    alone = _for_newcomer(settings, source)
    table = _table(layers.parse("add-client", alone, exchange=False).data, client, clients)
    chosen = source if client is None else _together((source, [client]))
    alone = _for_newcomer(settings, chosen, table, notes if not federated else [])
    both = _together((settings["data"]["source"], None), (source, [table.name]))
    joined = {**settings, "data": {**settings["data"], "source": both}} if federated else alone
    joined = {**joined, "model": {**joined["model"], "start": start}}
    return Joining(folder, path, table.name, table, clients, federated, notes, joined, alone, layers)


def _start(settings: Settings, checkpoint: Path, *, frozen: bool) -> dict[str, Any]:
    """What a newcomer takes: what the run shared, and no more, whatever its own configuration says of the exchange."""
    started, exchange = settings["model"].pop("start", None) or {}, settings.get("exchange") or {}
    if exchange.get("federated"):
        started = {"core": exchange["federated"], "buffers": exchange.get("buffers", "private")}
    if not started.get("core"):
        raise ConfigError(
            "--run: expected a run whose clients share something, found that exchange.federated is empty; a newcomer "
            "would have nothing of it"
        )
    core = {key: started[key] for key in ("core", "buffers")}
    return {"checkpoint": str(checkpoint.absolute()), **core, "frozen": frozen}


def _table(data: FederatedData, client: str | None, clients: Sequence[str]) -> ClientTable:
    """The newcomer's table."""
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
    return tables[name]


def _for_newcomer(
    run: Settings, source: Any, table: ClientTable | None = None, notes: list[str] | None = None
) -> Settings:
    """A run's settings for a newcomer alone, without what they say of other clients, which is noted."""
    data, model = {**run["data"], "source": source, "mutations": [], "columns": None}, dict(run["model"])
    name, notes = table.name if table is not None else "", notes if notes is not None else []
    for place, key in ((model, "overrides"), (data, "steps")):
        if isinstance(place.get(key), Mapping):
            place[key] = {own: value for own, value in place[key].items() if fnmatch.fnmatchcase(name, own)} or None
    if run["data"].get("mutations"):
        notes.append("data.mutations of the run is left out: its faults are planted in the run's clients")
    if table is not None and (columns := run["data"].get("columns")):
        names = list(map(str, table.features))
        data["columns"] = [own for own in columns if fnmatch.filter(names, own.removeprefix("!"))] or None
        if lost := [own for own in columns if own not in (data["columns"] or ())]:
            notes.append(f"data.columns of the run names columns that {name} does not have: {shorten(lost)}")
    data["leave_out"] = []
    return {**run, "data": data, "model": model, "exchange": {"federated": []}}


def _together(*parts: tuple[Any, list[str] | None]) -> dict[str, Any]:
    """A source of several, each with the clients that are taken of it."""
    sources, clients = zip(*parts, strict=True)
    both = {"sources": list(sources), "clients": list(clients)}
    return {"class_path": "fedlit.data.shaping.together.Together", "init_args": both}
