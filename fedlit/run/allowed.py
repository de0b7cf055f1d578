"""Decides which classes may be named by a configuration that somebody else wrote.

A configuration names classes, so reading it runs code. The user's own configuration is trusted like
any script. ``federation.yaml`` and a run's ``config.yaml`` may come from elsewhere: before anything
is imported, each class that they name must be on a list (``allowed.json``), under a key that
accepts its kind. Classes that the user's own files and command line name are also allowed, and
those of the modules after ``--trust``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from fedlit.errors import ConfigError
from fedlit.run.config import shown
from fedlit.train.whole import CHECKPOINTS

FLAG = "--trust"
_trusted: ContextVar[tuple[str, ...]] = ContextVar("fedlit_trusted", default=())
_KINDS = {
    "data": ("source",),
    "exchange": ("rule",),
    "model": ("model", "optimizer", "scheduler"),
    "trainer": ("callbacks", "logger"),
}
"""Group of keys → kinds of classes that its keys take."""
_CLASSES = tuple(
    f"trainer.{key}" for key in ("callbacks", "logger", "plugins", "profiler", "strategy")
)
"""Keys where text may mean a class, such as ``logger: CSVLogger``."""
_USUAL: tuple[Any, ...] = (None, "auto", [], True, False, 1)
_PLACES = (
    "trainer.default_root_dir",
    "trainer.logger",
    "trainer.profiler",
    "model.start",
    "model.start.checkpoint",
)
"""Keys that may name places of the machine on which a run was made."""
_MACHINE: dict[str, tuple[Any, ...]] = {
    "ckpt_path": (None,),
    "format": (None,),
    "model.start": (None,),
    "trainer.accelerator": (None, "auto", "cpu", "gpu", "cuda", "mps"),
    "trainer.barebones": (None, False),
    "trainer.callbacks": (None, []),
    "trainer.default_root_dir": (None,),
    "trainer.devices": (None, "auto", 1),
    "trainer.fast_dev_run": (None, False),
    "trainer.logger": (None, True, False),
    "trainer.max_time": (None,),
    "trainer.model_registry": (None,),
    "trainer.num_nodes": (None, 1),
    "trainer.plugins": (None, []),
    "trainer.profiler": (None,),
    "trainer.strategy": (None, "auto"),
}
"""Keys that use a machine's files, devices or time → the values that a federation's configuration
may give them."""
_WRITTEN_TO = frozenset(
    {"artifact_location", "dir", "dirpath", "log_dir", "root_dir", "save_dir", "tracking_uri"}
)
"""Arguments of callbacks and loggers that say where they write."""
NAMES = (
    "exchange.federated",
    "exchange.by_name",
    "data.columns",
    "data.leave_out",
    "board.chosen",
    "score.subgroups",
)
"""Lists of names that are read as text, whatever stands there."""


_LIST: dict[str, list[str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
ALL = frozenset(chain.from_iterable(_LIST.values()))
"""The paths of all classes on the list."""


def allowed(path: Any, group: str) -> bool:
    """Return whether a configuration that somebody else wrote may name a class under a group of
    keys.

    Example:
        >>> allowed("fedlit.MLP", "model"), allowed("fedlit.MLP", "trainer"), allowed("fedlit.files.os.system", "model")
        (True, False, False)
    """
    if not isinstance(path, str):
        return False
    trusted = any(path.startswith(f"{module}.") for module in _trusted.get())
    return trusted or any(path in _LIST[kind] for kind in _KINDS.get(group, ()))


def check_allowed(content: Mapping[str, Any], where: str, own: Collection[str] = ()) -> None:
    """Refuse a configuration that names anything that is not allowed. This imports nothing.

    Args:
        content: the content of a file that somebody else may have written.
        where: the file, for messages.
        own: the words that the user has written; what they name may be named here, too.

    Raises:
        ConfigError: something is not allowed; the message has the key and the value.
    """
    _check(content, "", where, own)


def all_listed(content: Mapping[str, Any]) -> bool:
    """Return whether a configuration names only classes on the list, whatever modules the user
    trusts: what it means changes only with fedlit and torch. This imports nothing.

    Example:
        >>> all_listed({"model": {"client": {"class_path": "fedlit.FederatedClient"}}})
        True
        >>> with trusting("my"):
        ...     all_listed({"model": {"client": {"class_path": "my.Net"}}})
        False
    """
    token = _trusted.set(())
    try:
        check_allowed(content, "")
    except ConfigError:
        return False
    finally:
        _trusted.reset(token)
    return True


def check_shared(content: Mapping[str, Any], where: str) -> None:
    """Refuse a federation's configuration that uses its sites' machines: their files, devices or
    time.

    Args:
        content: the content of the file.
        where: the file, for messages.

    Raises:
        ConfigError: it sets such a key; the message has the key and the value.

    Example:
        >>> check_shared({"trainer": {"max_time": "00:01:00:00"}}, "federation.yaml")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: federation.yaml: trainer.max_time: expected nothing about a
            site's machine, ...
    """
    for key, usual in _MACHINE.items():
        group, _, name = key.rpartition(".")
        values = content.get(group) if group else content
        value = values.get(name) if isinstance(values, Mapping) else None
        if value not in usual:
            raise ConfigError(
                f"{where}: {key}: expected nothing about a site's machine, found {value!r}; take "
                "it out. Each site decides about its files, devices and time (model.keep ends "
                "each with its best epoch)"
            )


def without_training(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the callbacks, loggers, plugins and the like of a training.
    Scores and predictions need none, so that what is not installed or not allowed here is in
    nobody's way.

    Example:
        >>> without_training({"seed": 8, "trainer": {"max_epochs": 3, "logger": "CSVLogger", "profiler": None}})
        {'seed': 8, 'trainer': {'max_epochs': 3, 'profiler': None}}
    """
    trainer = content.get("trainer")
    if not isinstance(trainer, Mapping):
        return dict(content)
    trainer_keys = {
        key: value
        for key, value in trainer.items()
        if f"trainer.{key}" not in _CLASSES or value in _USUAL
    }
    return {**content, "trainer": trainer_keys}


def _check(tree: Any, key: str, where: str, own: Collection[str], *, plain: bool = True) -> None:
    group = key.partition(".")[0]
    named = isinstance(tree, Mapping) and "class_path" in tree
    text = not (plain or named or isinstance(tree, list))
    if (
        key in _CLASSES
        and text
        and tree not in _USUAL
        and not allowed(tree, group)
        and tree not in own
    ):
        _refuse(key, tree, where)
    if isinstance(tree, Mapping):
        if plain or named:
            for name in tree:
                # "callbacks+" and "callbacks.init_args" would mean what stands inside
                if not str(name).isidentifier():
                    _refuse(key or str(name), name, where, "plain keys, each in its own mapping")
        for name, value in tree.items():
            if name == "class_path":
                if not allowed(value, group) and str(value) not in own:
                    _refuse(key, value, where)
            else:
                inside = f"{key}.{name}".strip(".").replace(".init_args", "")
                _check(value, inside, where, own, plain=not key or name == "init_args")
    elif isinstance(tree, list) and key not in NAMES:
        for item in tree:
            _check(item, key, where, own, plain=False)
    elif isinstance(tree, str) and key not in NAMES and tree not in own:
        _check_text(tree, key, where)


def _check_text(text: str, key: str, where: str) -> None:
    """Refuse text that the parser could take for a class, a file or settings."""
    group = key.partition(".")[0]
    dotted = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", text) is not None
    if dotted and not allowed(text, group) and _importable(text.partition(".")[0]):
        _refuse(key, text, where)
    scheme, address, _ = text.partition("://")
    if group == "data" and address and scheme not in _trusted.get():
        _refuse(key, text, where, "tables of your own", f"the kind of database: {FLAG} {scheme}")
    if group in ("model", "exchange", "trainer") and ("\n" in text or re.search(r"[{\[]", text)):
        _refuse(key, text[:60], where, "settings in their place, not written as text")
    if group in ("model", "exchange", "trainer") and key not in _PLACES and os.path.isfile(text):
        _refuse(key, text, where, "no name of a file")
    if (
        group == "trainer"
        and key.count(".") > 1
        and _leads_elsewhere(key, text)
        and "lightning" not in _trusted.get()
    ):
        _refuse(
            key,
            text,
            where,
            "what is written below the run's folder",
            f"who writes there: {FLAG} lightning",
        )


def _leads_elsewhere(key: str, text: str) -> bool:
    """Return whether an argument of a callback or a logger may name a place outside of the run's
    folder.
    """
    path = PurePath(text)
    placed = (
        path.is_absolute()
        or ".." in path.parts
        or text.startswith("~")
        or "://" in text
        or "\\" in text
    )
    return placed or key.rpartition(".")[2] in _WRITTEN_TO


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return True


def _refuse(
    key: str,
    found: Any,
    where: str,
    what: str = "a class of fedlit, torch.nn or torch.optim",
    trust: str = "",
) -> None:
    module = str(found).rpartition(".")[0] or "MODULE"
    trust = (
        trust
        or f"its module: {FLAG} {module if module.replace('.', '').isidentifier() else 'MODULE'}"
    )
    raise ConfigError(
        f"{where}: {key}: expected {what}, found {found!r}. The file may have come from somebody "
        "else, and what it names would run here. If it is yours, or you know who wrote it, name "
        f"{trust}"
    )


# ---------------------------------------------------------------------- what the user says


@contextmanager
def trusting(*modules: str) -> Iterator[None]:
    """Allow all classes of some installed modules inside the block.

    Args:
        *modules: modules such as ``package`` or ``package.networks``; everything in them is
            allowed.

    Raises:
        ConfigError: a module belongs to Python itself.

    Example:
        >>> with trusting("my"):
        ...     allowed("my.Net", "model")
        True
    """
    check_trusted(modules, FLAG)
    token = _trusted.set((*_trusted.get(), *modules))
    try:
        yield
    finally:
        _trusted.reset(token)


def import_trusted(modules: Collection[str]) -> None:
    """Import the modules that the user trusts, so that tasks in them are known where no
    configuration names them: in exported folders, and in what sites send. Other words, such as
    kinds of databases, are left alone.

    Args:
        modules: the words after ``--trust``.

    Raises:
        ConfigError: a module fails when it is imported.
    """
    for module in modules:
        if not _importable(module.partition(".")[0]):
            continue
        try:
            import_module(module)
        except Exception as error:  # whatever a module does when it is imported
            raise ConfigError(
                f"{FLAG}: expected a module that can be imported, found {module!r}: {error}"
            ) from error


def check_trusted(modules: Collection[str], where: str) -> None:
    """Refuse to trust modules of the standard library, which start processes and read any file.

    Args:
        modules: the names of modules.
        where: the flag or key, for the message.

    Raises:
        ConfigError: a module belongs to Python itself.
    """
    for module in modules:
        if module.partition(".")[0] in {*sys.stdlib_module_names, "__main__"}:
            raise ConfigError(
                f"{where}: expected an installed module with classes for federations, found "
                f"{module!r}, which belongs to Python itself and can do anything; leave it out"
            )


def trusted() -> tuple[str, ...]:
    """Return the modules that are trusted now."""
    return _trusted.get()


# ---------------------------------------------------------------------- files and the parser


def is_of_run(path: Path) -> bool:
    """Return whether a configuration is in a run's folder, which may have been copied from
    elsewhere.
    """
    folder = path.parent
    in_place = folder.name.startswith("version_") or any(
        (folder / name).is_dir() for name in (CHECKPOINTS, "parts")
    )
    return path.name.startswith("config") and in_place


_LINKING = ("wandb",)
"""Folders of loggers that link to files elsewhere: W&B to its cache. fedlit writes nothing
there."""


def check_no_links(folder: Path) -> None:
    """Refuse a run's folder with links that lead out of it, because files could be written
    elsewhere through them.

    Raises:
        ConfigError: there is such a link; the message names it.
    """
    whole = folder.resolve()
    for directory, folders, files in os.walk(folder):
        if Path(directory).parent == folder and Path(directory).name in _LINKING:
            folders.clear()
            continue
        for name in (*folders, *files):
            path = Path(directory, name)
            if path.is_symlink() and not path.resolve().is_relative_to(whole):
                raise ConfigError(
                    f"{shown(path)}: expected a file or a folder, found a link to "
                    f"{os.readlink(path)}, outside of the run's folder; put the file itself there"
                )


@contextmanager
def only_allowed(own: Collection[str], folders: Collection[Path]) -> Iterator[None]:
    """Make jsonargparse import only allowed classes inside the block, and nothing from the folder
    of a foreign file.

    Args:
        own: the words that the user has written; classes among them are allowed.
        folders: the folders with files that somebody else may have written.
    """
    from jsonargparse import set_parsing_settings
    from jsonargparse._common import parsing_settings

    before = dict(parsing_settings)
    path = list(sys.path)
    foreign = {folder.resolve() for folder in folders}
    sys.path[:] = [entry for entry in path if Path(entry or ".").resolve() not in foreign]
    named = [name for name in own if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name)]
    importable = [
        name for name in (*named, *_trusted.get()) if name.partition(".")[0] != "jsonargparse"
    ]
    try:
        set_parsing_settings(
            import_path_denylist=["*", "fedlit.run", "fedlit.cli", "fedlit.institutions", "fedlit.study"],
            import_path_allowlist=[
                "fedlit", "torch.nn", "torch.optim",
                *ALL, *importable,
            ],
        )  # fmt: skip
        yield
    finally:
        parsing_settings.update(before)
        sys.path[:] = [*(entry for entry in sys.path if entry not in path), *path]
