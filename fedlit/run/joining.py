"""Prepares a client that joins a trained run: the run's settings, with the newcomer's table and
what is typed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedlit.data.table import ClientTable
from fedlit.data.targets import task_for
from fedlit.errors import ConfigError, Told, expect
from fedlit.run.allowed import check_allowed, is_of_run
from fedlit.run.arguments import Asked, layers_of, read
from fedlit.run.config import find_config, read_yaml, shown
from fedlit.run.folders import CONFIG, find_trained
from fedlit.run.layers import Layer, laid, leaves
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.tasks import task_from
from fedlit.train.manifest import Manifest, read_checkpoint
from fedlit.yaml_text import as_read

Settings = dict[str, Any]


@dataclass
class Joining:
    """A client that joins a run.

    Attributes:
        run: the folder of the run that it joins.
        checkpoint: the checkpoint of that run.
        table: the table of the newcomer.
        clients: the clients of the run.
        notes: what the user should know.
    """

    run: Path
    checkpoint: Path
    table: ClientTable
    clients: list[str]
    notes: list[str]
    _asked: Asked = field(repr=False)
    _start: Settings = field(repr=False)
    _of_task: Settings = field(repr=False)

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.run.parent.name}+{self.table.name}"

    def joined(self, *more: str) -> Run:
        """Return the newcomer's untrained run. ``more`` are further keys, written as on the command
        line.
        """
        return _built(self._asked, self.name, Layer({"model.start": self._start}), *layers_of(more))

    def alone(self) -> Run:
        """Return the run of the same network on the newcomer's rows, from random initial values."""
        return _built(self._asked, f"{self.name}-alone", Layer(self._of_task))


def _built(asked: Asked, name: str, *more: Layer) -> Run:
    return parse(replace(asked, layers=[*asked.layers, *more], name=name))[0]


def prepare(
    run: str | Path,
    config: str | Path | Mapping[str, Any],
    typed: Sequence[str] = (),
    *,
    checkpoint: str = "last",
) -> Joining:
    """Read the run, and the newcomer's table.

    Args:
        run: a run's folder, or the name of a configuration, which stands for its newest run.
        config: a configuration, of which ``data.source`` is taken: the newcomer's table.
        typed: keys that differ from the run's, written as on the command line.
        checkpoint: the run's checkpoint: ``last``, ``best`` or a file.

    Raises:
        ConfigError: there is no such run or checkpoint, the run already has this name, the source
            has several clients, or nothing is shared.
    """
    folder, path = find_trained(run, checkpoint, "add-client")
    clients = _clients(folder, path)
    newcomer = _newcomer(config)
    request = read(
        "fit",
        ["--config", str(folder / CONFIG), *typed],
        of_run=True,
        trusted=[file for file in newcomer.files if not is_of_run(file)],
    )
    run_layer, *layers = request.layers
    unused = [key for key, _ in leaves(layers) if key.startswith("exchange.")]
    if unused:
        raise ConfigError(
            "--exchange: expected no keys, for nothing is exchanged with a frozen core, found "
            + ", ".join(unused)
        )
    settings = dict(run_layer.values)
    core = _core(settings)
    cleared = _of_clients(settings)
    notes = list(newcomer.notes)
    if cleared:
        notes.append(f"left out, because they name the run's clients: {shorten(cleared)}")
    kept_groups = {
        group: value for group, value in settings.items() if group not in ("name", "exchange")
    }
    # A source is replaced, not merged.
    reset = dict[str, Any].fromkeys([*cleared, "model.start", "data.source"])
    below = [
        run_layer._replace(values=kept_groups),
        Layer({**reset, "exchange.federated": []}),
        Layer({"data.source": newcomer.source}, newcomer.origin),
    ]
    request = replace(request, layers=[*below, *layers], configs=[folder / CONFIG, *newcomer.files])
    whole = replace(request, layers=[*request.layers, Layer({"data.columns": None})])
    table = _table(_built(whole, "add-client"), clients)
    columns = settings["data"].get("columns") or []
    lacking = _lacking(columns, table)
    if lacking:
        notes.append(
            f"data.columns of the run names columns that {table.name} does not have: "
            f"{shorten(lacking)}"
        )
        remaining = [pattern for pattern in columns if pattern not in lacking] or None
        request = replace(request, layers=[*below, Layer({"data.columns": remaining}), *layers])
    start = {"checkpoint": str(path.absolute()), **core, "frozen": True}
    of_task = _of_task(path, table)
    return Joining(folder, path, table, clients, notes, request, start, of_task)


@dataclass(frozen=True)
class _Newcomer:
    """The configuration of a newcomer.

    Attributes:
        source: its ``data.source``.
        files: its file; none if it was given in Python.
        origin: the text before its keys in messages.
        notes: what the user should know.
    """

    source: Any
    files: list[Path]
    origin: str
    notes: list[str]


def _newcomer(config: str | Path | Mapping[str, Any]) -> _Newcomer:
    """Read the newcomer's configuration, of which the source is used."""
    files = list[Path]()
    origin = ""
    if isinstance(config, Mapping):
        content = laid([Layer(as_read(config))])
    else:
        file = find_config(str(config))
        files.append(file)
        origin = f"{shown(file)}: "
        content = laid([Layer(read_yaml(file))])
        if is_of_run(file):
            check_allowed(content, shown(file))
    source = (content.get("data") or {}).get("source")
    if not source:
        raise ConfigError(
            "--config: expected data.source, the newcomer's own table, found none; for instance "
            "data: {source: {class_path: fedlit.Tables, init_args: {files: {NAME: FILE}, target: "
            "COLUMN}}}"
        )
    notes = list[str]()
    if set(content) > {"data"} or set(content["data"]) > {"source"}:
        notes.append(
            "only data.source of --config is used, all else is the run's; type what is to be "
            "changed"
        )
    return _Newcomer(source, files, origin, notes)


def _clients(folder: Path, checkpoint: Path) -> list[str]:
    """Return the clients of a run that a client can join."""
    header = read_checkpoint(checkpoint, resumable=False)
    clients = sorted(Manifest.read(header).data)
    pooled = set(clients) != set(header["fedlit"].get("encoders") or clients)
    if pooled or not (folder / CONFIG).is_file():
        raise ConfigError(
            "--run: expected a federation that a client can join, with its config.yaml, found "
            f"that {folder} has none or that its rows were pooled into one table; train one that "
            "exchanges tensors"
        )
    return clients


def _of_task(checkpoint: Path, table: ClientTable) -> Settings:
    """Return the keys by which a newcomer alone has the scores of the run's clients."""
    settings = task_for(table.task, table.name)
    specs = read_checkpoint(checkpoint, resumable=False)["fedlit"].get("specs", {})
    for _, spec in sorted(specs.items()):
        task = task_from(spec["task"])
        if settings is not None and task.name == settings["name"] and task.agreed_settings:
            return {"data.source.init_args.task": {**settings, **task.agreed_settings}}
    return {}


def _lacking(columns: Sequence[str], table: ClientTable) -> list[str]:
    """Return the patterns of columns that match none of a table."""
    names = list(map(str, table.features))
    return [pattern for pattern in columns if not fnmatch.filter(names, pattern.removeprefix("!"))]


def _core(settings: Settings) -> Settings:
    """Return what a newcomer takes: exactly what the run shared, whatever its configuration says
    about the exchange.
    """
    started = settings["model"].get("start") or {}
    exchange = settings.get("exchange") or {}
    if exchange.get("federated"):
        started = {"core": exchange["federated"], "buffers": exchange.get("buffers", "private")}
    if not started.get("core"):
        raise ConfigError(
            "--run: expected a run whose clients share something, found that exchange.federated is "
            "empty; a newcomer would have nothing of it"
        )
    return {key: started[key] for key in ("core", "buffers")}


def _of_clients(settings: Settings) -> list[str]:
    """Return the keys by which the run's settings name its clients."""
    data = settings["data"]
    model = settings["model"]
    named = {f"data.{key}": data.get(key) for key in ("mutations", "leave_out", "steps")}
    named |= {"model.overrides": model.get("overrides")}
    return [key for key, value in named.items() if value and not isinstance(value, int)]


def _table(run: Run, clients: Sequence[str]) -> ClientTable:
    """Return the newcomer's table."""
    tables = {table.name: table for table in run.data.tables()}
    names = Told(shorten(list(tables)))
    do = "name those that do not join in --data.leave_out"
    expect(len(tables) == 1, "--config", "a source with one client, the newcomer", names, do)
    (table,) = tables.values()
    new = table.name.casefold() not in map(str.casefold, clients)
    expected = f"a client that the run does not have ({shorten(list(clients))})"
    expect(new, "--config", expected, table.name, "give the newcomer another name")
    return table
