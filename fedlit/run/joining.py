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
from fedlit.errors import ConfigError, Told, expect
from fedlit.run.allowed import check_allowed, is_of_run
from fedlit.run.arguments import Asked, layers_of, read
from fedlit.run.config import find_config, read_yaml, shown
from fedlit.run.folders import CONFIG, find_trained
from fedlit.run.layers import Layer, laid, leaves
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.show.text import shorten
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
        return _built(self._asked, f"{self.name}-alone")


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
    header = read_checkpoint(path, resumable=False)
    clients = sorted(Manifest.read(header).data)
    saved = folder / CONFIG
    if set(clients) != set(header["fedlit"].get("encoders") or clients) or not saved.is_file():
        raise ConfigError(
            "--run: expected a federation that a client can join, with its config.yaml, found "
            f"that {folder} has none or that its rows were pooled into one table; train one that "
            "exchanges tensors"
        )
    files = [] if isinstance(config, Mapping) else [find_config(str(config))]
    read_content, origin = (
        (read_yaml(files[0]), f"{shown(files[0])}: ") if files else (as_read(config), "")
    )
    content = laid([Layer(read_content)])
    source = (content.get("data") or {}).get("source")
    foreign = [path for path in files if is_of_run(path)]
    for path in foreign:
        check_allowed(content, shown(path))
    if not source:
        raise ConfigError(
            "--config: expected data.source, the newcomer's own table, found none; for instance "
            "data: {source: {class_path: fedlit.Tables, init_args: {files: {NAME: FILE}, target: "
            "COLUMN}}}"
        )
    request = read(
        "fit",
        ["--config", str(saved), *typed],
        of_run=True,
        trusted=[file for file in files if file not in foreign],
    )
    run_layer, *layers = request.layers
    settings = dict(run_layer.values)
    notes = list[str]()
    unused = [key for key, _ in leaves(layers) if key.startswith("exchange.")]
    expect(
        not unused,
        "--exchange",
        "no keys, for nothing is exchanged with a frozen core",
        Told(", ".join(unused)),
    )
    if set(content) > {"data"} or set(content["data"]) > {"source"}:
        notes.append(
            "only data.source of --config is used, all else is the run's; type what is to be "
            "changed"
        )
    core = _core(settings)
    cleared = dict[str, Any].fromkeys(_of_clients(settings))
    if cleared:
        notes.append(f"left out, because they name the run's clients: {shorten(list(cleared))}")
    kept_groups = {
        group: value for group, value in settings.items() if group not in ("name", "exchange")
    }
    # a source is replaced, not merged
    cleared |= {"exchange.federated": [], "model.start": None, "data.source": None}
    over = [
        run_layer._replace(values=kept_groups),
        Layer(cleared),
        Layer({"data.source": source}, origin),
    ]
    request = replace(request, layers=[*over, *layers], configs=[saved, *files])
    whole = replace(request, layers=[*request.layers, Layer({"data.columns": None})])
    table = _table(_built(whole, "add-client"), clients)
    columns = settings["data"].get("columns") or []
    names = list(map(str, table.features))
    if lost := [
        content for content in columns if not fnmatch.filter(names, content.removeprefix("!"))
    ]:
        notes.append(
            f"data.columns of the run names columns that {table.name} does not have: "
            f"{shorten(lost)}"
        )
        run_layer = Layer(
            {"data.columns": [content for content in columns if content not in lost] or None}
        )
        request = replace(request, layers=[*over, run_layer, *layers])
    start = {"checkpoint": str(path.absolute()), **core, "frozen": True}
    return Joining(folder, path, table, clients, notes, request, start)


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
