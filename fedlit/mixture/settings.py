"""The settings of a configuration with ``mixture:``, with the changes typed on the command line,
and the folders of its runs. It imports nothing heavy, because it is read before torch is imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from fedlit import yaml_text
from fedlit.errors import ConfigError, DataError, Told, did_you_mean, expect, must_be_known
from fedlit.run.allowed import check_no_links, is_of_run
from fedlit.run.arguments import ROOT, origins, pairs_of
from fedlit.run.config import find_config, parse_yaml, read_yaml, shown
from fedlit.run.folders import check_name
from fedlit.run.keys import check_key
from fedlit.score.plain import check_stack, check_weights, read_json

TOP = ("mixture", "seed", "name", "folds", "workers", "score", "trainer")
SCORE = ("threshold", "subgroups")
MIXING = ("weights", "shrink", "admit", "by")
PART = ("config", "set", "go_alone", "grid")
WEIGHTS = ("equal", "half_own", "fitted", "together")
KEPT = "parts/{}/config.yaml"
"""Of a part, in the folder of a run."""
GO_ALONE = ("extra_trees", "logistic_regression", "ridge", "poisson_regression", "mean")
"""Models that can be kept as arrays, to predict new rows with; others enter a study as
baselines."""
_NUMBERS: Mapping[str, tuple[str, Callable[[int], bool]]] = {
    "seed": (f"a whole number from 0 to {2**32 - 1}", lambda own: 0 <= own < 2**32),
    "folds": ("0 for none, or 2 folds or more", lambda own: own == 0 or 2 <= own <= 1000),
    "workers": ("a whole number from 1 to 1000", lambda own: 1 <= own <= 1000),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REFUSED = (
    "seed",
    "name",
    "ckpt_path",
    "format",
    "data.folds",
    "data.fold",
    "trainer.default_root_dir",
)


@dataclass(frozen=True)
class PartSettings:
    """One part of a mixture: a configuration, trained as an ordinary run, or a model that each
    client fits alone.

    Attributes:
        config: the configuration's file; of a local baseline that whose tables it reads.
        set: keys of it to change → their values.
        go_alone: the name of a task's local baseline; None for a configuration.
        grid: settings of that model to choose from, by its out-of-fold predictions; its own if
            None.
    """

    config: Path
    set: dict[str, Any] = field(default_factory=dict)
    go_alone: str | None = None
    grid: dict[str, list[Any]] | None = None


@dataclass(frozen=True)
class Mixing:
    """How parts are mixed, see :func:`fedlit.mixture.combine.combine`.

    Attributes:
        weights: ``equal``, ``half_own``, ``fitted`` (see :func:`fedlit.mixture.weigh.weights_of`),
            ``together`` (see :func:`fedlit.mixture.together.choose_together`), or a mapping of each
            part to its weight.
        shrink: the number of rows that each part's equal weight counts for if weights are fitted.
        admit: whether federated parts enter only if they do not make the local ones worse on
            held-out rows.
        by: the score that decides, or a mapping of each client to its score; the main score of a
            client's task if None.

    Raises:
        ConfigError: a value is of another kind; the message begins with the key.
    """

    weights: str | dict[str, float] = "equal"
    shrink: float = 100.0
    admit: bool = True
    by: str | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        expect(type(self.admit) is bool, "admit", "true or false", self.admit)
        rows = type(self.shrink) in (int, float) and self.shrink >= 0
        expect(rows, "shrink", "a number of rows of at least 0", self.shrink)
        if isinstance(self.weights, dict):
            values = list(self.weights.values())
            numbers = all(type(value) in (int, float) and 0 <= value < math.inf for value in values)
            holds = numbers and sum(values) > 0
            expect(holds, "weights", "numbers of at least 0, not all of them 0", self.weights)
        elif self.weights not in WEIGHTS:
            expected = f"{', '.join(WEIGHTS)}, or {{PART: weight}}"
            expect(
                False,
                "weights",
                expected,
                self.weights,
                did_you_mean(str(self.weights), WEIGHTS).strip(),
            )


@dataclass(frozen=True)
class MixtureSettings:
    """A mixture of several parts.

    Attributes:
        parts: the parts, by name.
        name: the folder of its runs.
        root: the folder of all runs.
        seed: the seed of all parts.
        folds: the number of folds into which each client's training and validation rows are dealt;
            0 to train on the training rows only.
        workers: the number of processes that train parts simultaneously.
        mixing: how parts are mixed.
        origin: the configuration's file.
        score: what is scored beside the usual scores, see
            :class:`fedlit.run.scoring.ScoreSettings`.
    """

    parts: dict[str, PartSettings]
    name: str
    root: Path = Path(ROOT)
    seed: int = 0
    folds: int = 0
    workers: int = 1
    mixing: Mixing = Mixing()
    origin: Path | None = None
    score: Mapping[str, Any] = field(default_factory=dict)

    def trained(self) -> dict[str, Any]:
        """Return the settings with which parts are trained, without their configurations. They must
        not change when a run is continued.
        """
        parts = {name: [part.go_alone, part.grid] for name, part in self.parts.items()}
        return {"seed": self.seed, "folds": self.folds} | {
            f"parts.{name}": part_settings for name, part_settings in parts.items()
        }

    def text(self, *, of_run: bool = False) -> str:
        """Return the settings as YAML, which :func:`settings_of` can read.

        Args:
            of_run: whether the text is written to the folder of a run, which also contains each
                part's configuration. The text then refers to these, so that it does not depend on
                the original files or on the place of the folder.
        """
        parts = {}
        for name, part in self.parts.items():
            entry = asdict(part) | {"config": str(part.config)}
            if of_run:
                entry |= {"config": KEPT.format(name), "set": {}}
            parts[name] = {key: value for key, value in entry.items() if value not in (None, {})}
        content = {
            "seed": self.seed, "name": self.name, "folds": self.folds, "workers": self.workers,
            "mixture": {"parts": parts, **asdict(self.mixing)}, **({"score": dict(self.score)} if self.score else {}),
            "trainer": {"default_root_dir": str(self.root)},
        }  # fmt: skip
        head = f"# made from {self.origin}\n" if self.origin is not None else ""
        return head + yaml_text.dump(content)


def is_mixture(config: Path) -> bool:
    """Return whether a configuration has several parts."""
    return "mixture" in read_yaml(config)


def has_mixture(typed: Sequence[str]) -> bool:
    """Return whether a configuration typed after a command has several parts. Errors in it are
    reported later.
    """
    arguments = list[str]()
    for argument in typed:
        arguments += argument.split("=", 1)
    for flag, name in pairwise(arguments):
        with suppress(ConfigError):
            if flag == "--config" and is_mixture(find_config(name)):
                return True
    return False


def settings_of(path: Path, typed: Mapping[str, str] | None = None) -> MixtureSettings:
    """Read the settings in a configuration's file, with the typed changes.

    Raises:
        ConfigError: a key or value is unknown, which is reported with a similar known one; or a
            part's configuration does not exist.
    """
    content = read_yaml(path)
    if is_of_run(path):
        _check_kept(content, shown(path))
        check_no_links(path.parent)
    return settings_from(content, typed, prefix=shown(path), origin=path)


def _check_kept(content: Mapping[str, Any], prefix: str) -> None:
    """Check the configuration in a run's folder, which may have been copied from elsewhere. It may
    only refer to its parts' configurations in the same folder, which are checked separately, and
    names no classes.
    """
    mixture = content.get("mixture")
    parts = mixture.get("parts") if isinstance(mixture, Mapping) else None
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        if (
            not isinstance(part, Mapping)
            or part.get("config") != KEPT.format(name)
            or part.get("set")
        ):
            raise ConfigError(
                f"{prefix}: mixture.parts.{name}: expected config: {KEPT.format(name)} and nothing "
                "set, as in any run's own file, found others; start from the configuration that "
                "the run was made from"
            )


def settings_from(
    content: Mapping[str, Any],
    typed: Mapping[str, str] | None = None,
    prefix: str = "mixture",
    origin: Path | None = None,
) -> MixtureSettings:
    """Build the settings from keys and values.

    Args:
        content: the content of the file.
        typed: maps each key to its value, as typed on the command line.
        prefix: the beginning of messages.
        origin: the file of the configuration.
    """
    _known(content, TOP, prefix)
    mixture = content.get("mixture")
    parts = mixture.get("parts") if isinstance(mixture, Mapping) else None
    if not isinstance(mixture, Mapping) or not isinstance(parts, Mapping) or not parts:
        raise ConfigError(
            f"{prefix}: mixture: expected parts: {{NAME: {{config: FILE}}}}, found {mixture!r}"
        )
    _known(mixture, ("parts", *MIXING), f"{prefix}: mixture")
    raw = {str(name): dict(part or {}) for name, part in parts.items()}
    top = dict(content)
    mixing = {key: value for key, value in mixture.items() if key != "parts"}
    # A typed part comes first, because other typed keys may belong to it.
    changes = sorted((typed or {}).items(), key=lambda change: not change[0].endswith(".go_alone"))
    for key, value in changes:
        _type(key, parse_yaml(value, f"--{key}", key), top, mixing, raw)
    trainer = top.get("trainer") or {}
    _known(
        trainer,
        ("default_root_dir",),
        f"{prefix}: trainer (a part's own is set in its configuration)",
    )
    score = top.get("score") or {}
    _known(score, SCORE, f"{prefix}: score")
    name = str(top.get("name") or (origin.stem if origin is not None else "mixture"))
    check_name(name, f"{prefix}: name")
    numbers = {key: top[key] for key in _NUMBERS if top.get(key) is not None}
    for key, value in numbers.items():
        expected, allowed = _NUMBERS[key]
        expect(type(value) is int and allowed(value), f"{prefix}: {key}", expected, value)
    try:
        chosen = Mixing(**{key: value for key, value in mixing.items() if value is not None})
    except ConfigError as error:
        raise ConfigError(f"{prefix}: mixture.{error}") from error
    expect(
        isinstance(chosen.by, str | None),
        f"{prefix}: mixture.by",
        "the name of a score",
        chosen.by,
    )
    if isinstance(chosen.weights, dict) and (unknown := set(chosen.weights) - set(raw)):
        raise ConfigError(
            f"{prefix}: mixture.weights: expected weights of {', '.join(raw)}, found "
            f"{', '.join(unknown)}"
        )
    first = next((part["config"] for part in raw.values() if part.get("config")), None)
    below = origin.parent if origin is not None else None
    first_origin = origins(origin)[0] if origin is not None else None
    of_parts = dict[str, PartSettings]()
    for part, part_content in raw.items():
        key = f"{prefix}: mixture.parts.{part}"
        of_parts[part] = _part(part, part_content, first, key, below)
    return MixtureSettings(
        of_parts,
        name,
        Path(trainer.get("default_root_dir") or ROOT),
        **numbers,
        mixing=replace(chosen, shrink=float(chosen.shrink)),
        score=dict(score),
        origin=first_origin,
    )


def _known(content: Any, keys: Sequence[str], prefix: str) -> None:
    expect(isinstance(content, Mapping), prefix, f"keys and values such as {keys[0]}: …", content)
    must_be_known(prefix, content, keys)


def _type(
    key: str,
    value: Any,
    top: dict[str, Any],
    mixing: dict[str, Any],
    parts: dict[str, dict[str, Any]],
) -> None:
    """Apply one typed value to the setting that it belongs to."""
    group, _, rest = key.partition(".")
    name, _, inner = rest.partition(".")
    if key in TOP and key not in ("mixture", "score", "trainer"):
        top[key] = value
    elif key == "trainer.default_root_dir":
        top["trainer"] = {"default_root_dir": value}
    elif group == "mixture" and rest in MIXING:
        mixing[rest] = value
    elif group == "score" and rest in SCORE:
        _within(top, "score")[rest] = value
    elif group == "mixture" and name == "weights":
        _within(mixing, "weights")[inner] = value
    elif group == "parts" and (name in parts or inner == "go_alone"):
        # A name that is not known is a further part, which is fitted to the tables of the others.
        part = parts.setdefault(name, {})
        if inner in PART:
            part[inner] = value
        elif inner.startswith("grid."):
            _within(part, "grid")[inner.removeprefix("grid.")] = (
                value if isinstance(value, list) else [value]
            )
        else:
            _within(part, "set")[inner] = value
    elif group == "data":  # all parts have the same tables
        for part in parts.values():
            _within(part, "set")[key] = value
    else:
        keys = [
            "seed", "name", "folds", "workers", "trainer.default_root_dir", "data.KEY",
            *(f"score.{inner}" for inner in SCORE),
            *(f"mixture.{inner}" for inner in MIXING), *(f"parts.{part_name}.KEY" for part_name in parts),
        ]  # fmt: skip
        near = did_you_mean(name, parts) if group == "parts" else did_you_mean(key, keys, "--")
        raise ConfigError(
            f"--{key}: expected one of the keys of a mixture, {', '.join(keys)}, found another."
            + (near or f" For a part: --parts.{next(iter(parts))}.{key}")
        )


def _within(tree: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a mutable copy of the mapping under a key, or an empty mapping, after storing it
    there.
    """
    content = tree.get(key)
    tree[key] = dict(content) if isinstance(content, dict) else {}
    return cast("dict[str, Any]", tree[key])


def _part(
    name: str, content: Any, first: str | None, prefix: str, below: Path | None
) -> PartSettings:
    _known(content, PART, prefix)
    settings = PartSettings(
        Path(),
        **{key: value for key, value in content.items() if key != "config" and value is not None},
    )
    config = content.get("config") or first
    alone = settings.go_alone
    grid = settings.grid
    well = isinstance(grid, Mapping) and all(
        isinstance(choices, list) and choices for choices in grid.values()
    )
    for holds, expected in (
        (_NAME.fullmatch(name) and name not in (*WEIGHTS, "alone", "stack"),
         f"a name of letters, digits, _ and -, found {name!r}"),
        ("config" in content or alone is not None, "config: FILE, or go_alone: MODEL such as "
            "extra_trees, found neither"),
        (config is not None, "config: FILE, whose tables the model is fitted to, found none in any "
            "part"),
        (alone in (None, *GO_ALONE), f"go_alone: one of {', '.join(GO_ALONE)}, which are kept as "
            f"arrays to predict new rows with, found {alone!r}; others enter a study as "
            f"baselines.{did_you_mean(str(alone), GO_ALONE)}"),
        (grid is None or alone is not None, "grid beside go_alone: MODEL, found a configuration; "
            "use set"),
        (grid is None or well, f"grid: {{SETTING: [VALUE, …]}}, found {grid!r}"),
        (isinstance(settings.set, Mapping), f"set: {{KEY: value}}, found {settings.set!r}"),
    ):  # fmt: skip
        if not holds:
            raise ConfigError(f"{prefix}: expected {expected}")
    for key in settings.set:
        if key in _REFUSED:
            raise ConfigError(
                f"{prefix}: set: {key}: the mixture decides it for all its parts; leave it out here"
            )
        check_key(str(key), f"{prefix}: set.")
    file = find_config(str(config), also=below, what=f"{prefix}: config:")
    if is_mixture(file):
        raise ConfigError(
            f"{prefix}: config: expected a configuration of one run, found the mixture {file.name}"
        )
    return replace(settings, config=file)


def typed_pairs(typed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the configurations, and the mapping of each other key to its value, that were typed
    after a command.
    """
    pairs = list(pairs_of(list(typed)))
    configs = [value for flag, value in pairs if flag == "--config"]
    return configs, {flag.removeprefix("--"): value for flag, value in pairs if flag != "--config"}


CONFIG = "config.yaml"
MIXED = "mixture.json"
FORMAT = 2


def newest(folder: Path) -> Path | None:
    """Return the newest mixture in a folder of runs, or None if there is none."""
    folders = [
        path
        for path in folder.glob("version_*")
        if path.name[8:].isdigit() and (path / "parts").is_dir()
    ]
    return max(folders, key=lambda path: int(path.name[8:]), default=None)


def find_mixture(run: str | Path) -> Path | None:
    """Return the folder of a mixture, given this folder or the name of its configuration; None if
    there is no mixture.
    """
    path = Path(run)
    if (path / "parts").is_dir() and (path / CONFIG).is_file():
        return path
    name = path.stem if path.suffix in (".yaml", ".yml") else path.name
    return newest(path) or newest(Path("lightning_logs", name))


def read_mixture(folder: Path, parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Map each client to the stored result of its mixture.

    Args:
        folder: the folder of the run.
        parts: the parts of the run, by name.

    Raises:
        ConfigError: the run was not trained to its end.
        DataError: the file was altered.
    """
    path = folder / MIXED
    do = "it was not trained to its end, so continue with fedlit fit … --ckpt_path last"
    expect(
        path.is_file(), str(folder), f"{MIXED}, which says how parts are mixed", Told("none"), do
    )
    content = read_json(path)
    clients = content.get("clients")
    if content.get("format") != FORMAT or not isinstance(clients, dict) or not clients:
        raise DataError(
            f"{path}: expected what fedlit fit writes, found others; fit again with --ckpt_path "
            "last"
        )
    for client, entry in clients.items():
        prefix = f"{path}: client {client!r}"
        entry = entry if isinstance(entry, dict) else {}
        weights = check_weights(entry.get("weights"), prefix)
        _ = check_stack(entry.get("stack"), prefix)
        if not set(weights) <= set(parts):
            raise DataError(
                f"{path}: client {client!r}: expected weights of some of {', '.join(parts)}, found "
                "others"
            )
    return clients
