"""A run's own configuration that this account did not sign: its settings are data, its instructions are not followed.

Built are classes that do nothing but compute: fedlit's clients, networks and rules, those of ``torch.nn`` and
``torch.optim``, and sources that read no file that the configuration names. Other classes are refused by name. What
would run at other times, read or write elsewhere (callbacks, loggers, paths) is left out, and listed.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from fedlit.errors import ConfigError
from fedlit.lazy import HOMES
from fedlit.run.config import parse_yaml, read_yaml, shown
from fedlit.run.keys import GROUPS
from fedlit.run.trust import FLAG, trusted_classes, trusts, why_not_signed
from fedlit.show.shown import say
from fedlit.show.text import shorten

__all__ = ["check_no_links", "harmless", "only_these", "readable", "review"]

_COMPUTING = ("fedlit.nn", "fedlit.methods", "fedlit.exchange.rules", "fedlit.client", "fedlit.client.client")
_OPTIMIZERS = """
    ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD SparseAdam
"""
_SCHEDULERS = """
    ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LinearLR MultiStepLR OneCycleLR
    PolynomialLR ReduceLROnPlateau StepLR
"""  # not those that take a function
_NAMED = {
    "torch.optim": tuple(_OPTIMIZERS.split()),
    "torch.optim.lr_scheduler": tuple(_SCHEDULERS.split()),
    "lightning.pytorch.cli": ("ReduceLROnPlateau",),
}
_SOURCES = (
    "Bundled", "Covertype", "Heart", "Partition", "ColumnSplit", "ConceptShift",
    "ByColumn", "Dirichlet", "Distance", "Iid", "Shards",
)  # fmt: skip
"""That read what comes with fedlit, or known files by their checksums, and what deals their rows."""
_LEFT_OUT = {
    "trainer": (
        "logger", "callbacks", "plugins", "profiler", "strategy", "devices", "num_nodes", "default_root_dir",
        "model_registry", "enable_autolog_hparams", "limit_train_batches", "limit_val_batches", "limit_test_batches",
        "limit_predict_batches", "overfit_batches", "fast_dev_run",
    ),
    "model": ("start",),
}  # fmt: skip
_USUAL: tuple[Any, ...] = (None, "auto", [], True, False, 1)  # values that say nothing
_NAMES = ("exchange.federated", "exchange.by_name", "data.columns", "data.leave_out", "board.chosen")
"""Lists of names that are read as text, whatever stands there."""
_WITHHELD = "fedlit.data.sources.withheld.Withheld"


def harmless(path: str) -> bool:
    """Whether a class does nothing but compute.

    Example:
        >>> harmless("fedlit.MLP"), harmless("torch.nn.ReLU"), harmless("fedlit.Run"), harmless("os.system")
        (True, True, False, False)
    """
    if path in trusted_classes() or path == _WITHHELD:
        return True
    module, _, name = path.rpartition(".")
    if not re.fullmatch(r"[A-Z]\w*", name):
        return False
    if module == "fedlit":
        return HOMES.get(name) in _COMPUTING
    return module in (*_COMPUTING, "torch.nn") or name in _NAMED.get(module, ())


def review(path: Path, source: Any = None) -> dict[str, Any]:
    """What may be used of a foreign run's configuration. What is left out is said.

    Args:
        path: of the configuration.
        source: the user's own ``data.source``, to take the place of the run's.

    Raises:
        ConfigError: it names classes that are not built without ``--trust``, or what could be one.
    """
    content, where, left = read_yaml(path), shown(path), list[str]()
    made: dict[str, Any] = {}
    for group, own in content.items():
        if group in GROUPS and isinstance(own, Mapping):
            out = _LEFT_OUT.get(group, ())
            left += [_told(group, key, own[key]) for key in out if own.get(key) not in _USUAL]
            made[group] = {key: value for key, value in own.items() if key in GROUPS[group] and key not in out}
        elif (group == "name" and isinstance(own, str) and re.fullmatch(r"[A-Za-z0-9][\w+-]*", own)) or group == "seed":
            made[group] = own
        elif own is not None:
            left.append(str(group))
    if "data" in made:
        theirs = made["data"].pop("source", None)
        made["data"]["source"] = source or _source(theirs, where, left)
    checked = {**made, "data": {key: own for key, own in made.get("data", {}).items() if key != "source"}}
    _check(checked, "", where)
    told = f"; left out: {shorten(left, 20)}" if left else ""
    say(f"{where} is read as data, {why_not_signed()}{told}. If you know who wrote it, {FLAG} follows all of it")
    return made


def _told(group: str, key: str, value: Any) -> str:
    classes = [found.rpartition(".")[2] for found in _classes(value)]
    return f"{group}.{key}" + (f" ({', '.join(classes)})" if classes else "")


def _classes(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        if "class_path" in tree:
            yield str(tree["class_path"])
        for own in tree.values():
            yield from _classes(own)
    elif isinstance(tree, list):
        for own in tree:
            yield from _classes(own)


def _source(theirs: Any, where: str, left: list[str]) -> dict[str, Any]:
    """The run's own source if it reads no file that it names itself; else one that gives no table."""
    classes = list(_classes(theirs))
    known = {own for name in _SOURCES for own in (f"fedlit.{name}",)} | set(trusted_classes())
    if isinstance(theirs, Mapping) and classes and set(classes) <= known and not _roots(theirs):
        _check(theirs, "data.source", where)
        return dict(theirs)
    told = ", ".join(classes) or "none"
    left.append(f"data.source ({told})")
    return {"class_path": _WITHHELD, "init_args": {"named": told, "config": where}}


def _roots(tree: Any) -> bool:
    """Whether a folder to read from is named anywhere."""
    if isinstance(tree, Mapping):
        return tree.get("root") is not None or any(_roots(own) for own in tree.values())
    return isinstance(tree, list) and any(_roots(own) for own in tree)


def _check(tree: Any, key: str, where: str) -> None:
    """Refuse classes that are not harmless, and text that the parser could take for a class, a file or settings."""
    if key in _NAMES:
        return
    if isinstance(tree, Mapping):
        for name, own in tree.items():
            if name == "class_path":
                if not isinstance(own, str) or not (harmless(own) or (key.startswith("data.source"))):
                    _refuse(key, str(own), where)
                continue
            _check_text(str(name), key, where)
            _check(own, f"{key}.{name}".strip(".").replace(".init_args", ""), where)
    elif isinstance(tree, list):
        for own in tree:
            _check(own, key, where)
    elif isinstance(tree, str):
        _check_text(tree, key, where)


def _check_text(text: str, key: str, where: str) -> None:
    """See :func:`_check`; jsonargparse reads text where a class or a mapping is wanted, and files by their names."""
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", text) and not harmless(text) and _importable(text.partition(".")[0]):
        _refuse(key, text, where)
    if "\n" in text or re.search(r"[{\[]", text):
        try:
            inner = parse_yaml(text, where)
        except ConfigError:
            inner = None
        if isinstance(inner, Mapping | list):
            _refuse(key, repr(text[:60]), where, what="settings in their place, no settings written as text")
    if os.path.exists(text) and not os.path.isdir(text):
        _refuse(key, text, where, what="no name of a file")


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return True


def _refuse(key: str, found: str, where: str, what: str = "a class of fedlit, torch.nn or torch.optim") -> None:
    allowed = f"{FLAG} {found}, or {FLAG} alone" if what.startswith("a class") else FLAG
    raise ConfigError(
        f"{where}: {key}: expected {what}, {why_not_signed()}; found {found}. What it names would be run: look at the "
        f"file, and if you know who wrote it, add {allowed}"
    )


# ---------------------------------------------------------------------- for the parser


def readable(path: Path, source: Any = None, *, of_run: bool = False) -> Path:
    """A configuration's file for the parser: itself if the user's, else a copy of what may be used, elsewhere, so that
    nothing that lies beside it is read.

    Args:
        path: of the configuration.
        source: see :func:`review`.
        of_run: it is a run's own, wherever it lies.
    """
    if trusts(path, of_run=of_run):
        return path
    check_no_links(path.parent)
    made = review(path, source)
    folder = Path(mkdtemp(prefix="fedlit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / "config.yaml"
    copy.write_text(yaml.safe_dump(made, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return copy


def check_no_links(folder: Path) -> None:
    """Refuse a foreign run's folder with links that lead out of it: what is written there would lie elsewhere.

    Raises:
        ConfigError: names the link.
    """
    whole = folder.resolve()
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(whole):
                raise ConfigError(
                    f"{shown(path)}: expected a file or a folder, found a link to {os.readlink(path)}, outside of the "
                    f"run's folder, which is not signed on this account; remove the link, or add {FLAG}"
                )


@contextmanager
def only_these(*classes: str) -> Iterator[None]:
    """Have jsonargparse import nothing but harmless classes inside, and those that are named: a second barrier behind
    :func:`review`.

    Args:
        *classes: that the user has typed.
    """
    from jsonargparse import set_parsing_settings
    from jsonargparse._common import parsing_settings

    before = dict(parsing_settings)
    own = [name.partition(".")[0] for name in (*classes, *trusted_classes())]
    allowed = ["fedlit", "torch.nn", "torch.optim", *map(".".join, ((m, n) for m, own in _NAMED.items() for n in own))]
    try:
        set_parsing_settings(
            import_path_denylist=["*", "fedlit.run", "fedlit.cli", "fedlit.institutions", "fedlit.study"],
            import_path_allowlist=[*allowed, *(name for name in own if name != "jsonargparse")],
        )
        yield
    finally:
        parsing_settings.update(before)
