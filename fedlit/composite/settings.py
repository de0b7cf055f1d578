"""What a configuration with ``mixture:`` says, and what is typed over it. Light: read before torch is imported."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.allowed import check_no_links, is_of_run
from fedlit.run.arguments import ROOT, pairs_of
from fedlit.run.config import find_config, parse_yaml, read_yaml, shown, typed_value
from fedlit.run.folders import check_name
from fedlit.run.keys import check_key

__all__ = ["WEIGHTS", "MixtureSettings", "PartSettings", "is_composite", "is_mixture", "settings_from", "settings_of"]

TOP = ("mixture", "seed", "name", "folds", "workers", "trainer")
MIXTURE = ("parts", "weights", "shrink", "admit", "by")
PART = ("config", "set", "checkpoint", "go_alone", "grid")
WEIGHTS = ("equal", "half_own", "fitted", "together")
KEPT = "parts/{}/config.yaml"
"""Of a part, in the folder of a run."""
ONLY_TYPED = ("ckpt_path", "format")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REFUSED = ("seed", "name", "ckpt_path", "format", "data.folds", "data.fold", "trainer.default_root_dir")


@dataclass(frozen=True)
class PartSettings:
    """One part of a mixture: a configuration, trained as an ordinary run, or a model that each client fits alone.

    Attributes:
        config: the configuration's file; of a go-alone model that whose tables it reads.
        set: keys of it to change → their values.
        checkpoint: which state of a run is used, ``last`` or ``best``.
        go_alone: the name of a task's go-alone model; None for a configuration.
        grid: settings of that model to choose from, by its out-of-fold predictions; its own if None.
    """

    config: Path
    set: dict[str, Any] = field(default_factory=dict)
    checkpoint: str = "last"
    go_alone: str | None = None
    grid: dict[str, list[Any]] | None = None

    @property
    def arguments(self) -> list[str]:
        """The changed keys as command-line arguments."""
        return [f"--{key}={typed_value(value)}" for key, value in self.set.items()]


@dataclass(frozen=True)
class MixtureSettings:
    """A run of several parts.

    Attributes:
        parts: by name.
        name: the folder of its runs.
        root: the folder of all runs.
        seed: of all parts.
        folds: into how many each client's training and validation rows are dealt; 0 to train on the training rows.
        workers: how many processes train parts at once.
        weights: ``equal``, ``half_own``, ``fitted``, ``together`` (see :func:`fedlit.mix.together.choose_together`), or
            part → its weight.
        shrink: how many rows each part's equal weight counts where weights are fitted.
        admit: whether federated parts enter only where they do not make the own ones worse on held-out rows.
        by: the score that decides; the main one of a client's task if None.
        origin: the configuration's file.
    """

    parts: dict[str, PartSettings]
    name: str
    root: Path = Path(ROOT)
    seed: int = 0
    folds: int = 0
    workers: int = 1
    weights: str | dict[str, float] = "equal"
    shrink: float = 100.0
    admit: bool = True
    by: str | None = None
    origin: Path | None = None

    @property
    def each_fold(self) -> range:
        """The folds' numbers; one where there are no folds."""
        return range(max(self.folds, 1))

    def trained(self) -> dict[str, Any]:
        """What parts are trained with, but for their configurations: a run that is continued must have the same."""
        own = ("seed", "folds")
        parts = {
            name: {key: value for key, value in asdict(part).items() if key not in ("config", "set")}
            for name, part in self.parts.items()
        }
        return {**{key: getattr(self, key) for key in own}, "parts": parts}

    def text(self, *, kept: bool = False) -> str:
        """As YAML, to be read by :func:`settings_of`.

        Args:
            kept: whether it will lie in the folder of a run, where each part's configuration lies too: then it names
                these, whatever becomes of the files that they were made from, and wherever the folder goes.
        """
        head = f"# made from {self.origin}\n" if self.origin is not None else ""
        mixing = {key: getattr(self, key) for key in MIXTURE[1:]}
        parts = {name: {**asdict(part), "config": str(part.config)} for name, part in self.parts.items()}
        if kept:
            parts = {name: {**part, "config": KEPT.format(name), "set": {}} for name, part in parts.items()}
        for part in parts.values():
            for key in [
                key for key, value in part.items() if value in (None, {}) or (key, value) == ("checkpoint", "last")
            ]:
                del part[key]
        own = {
            "seed": self.seed, "name": self.name, "folds": self.folds, "workers": self.workers,
            "mixture": {"parts": parts, **mixing},
            "trainer": {"default_root_dir": str(self.root)},
        }  # fmt: skip
        return head + yaml.safe_dump(own, sort_keys=False, allow_unicode=True)


def is_composite(typed: Sequence[str]) -> bool:
    """Whether the configuration behind a command has several parts. What is wrong with it is said later."""
    for place, arg in enumerate(typed):
        flag, equals, value = arg.partition("=")
        if flag in ("--config", "-c"):
            name = value if equals else (typed[place + 1] if place + 1 < len(typed) else "")
            try:
                if "mixture" in read_yaml(find_config(name)):
                    return True
            except ConfigError:
                continue
    return False


def is_mixture(config: Path) -> bool:
    """Whether a configuration has several parts."""
    return "mixture" in read_yaml(config)


def settings_of(path: Path, typed: Mapping[str, str] | None = None) -> MixtureSettings:
    """What a configuration's file says, changed by what is typed.

    Raises:
        ConfigError: keys or values that there are not, with those that may be meant; a part's configuration that is
            not there.
    """
    content = read_yaml(path)
    if is_of_run(path):
        _check_kept(content, shown(path))
        check_no_links(path.parent)
    return settings_from(content, typed, where=shown(path), origin=path)


def _check_kept(content: Mapping[str, Any], where: str) -> None:
    """A run's own file, which may have been copied here: its parts' configurations are those that lie in its folder,
    which are checked by themselves, and it names no classes.
    """
    mixture = content.get("mixture")
    parts = mixture.get("parts") if isinstance(mixture, Mapping) else None
    for name, own in parts.items() if isinstance(parts, Mapping) else ():
        found = own if isinstance(own, Mapping) else {}
        if found.get("config") != KEPT.format(name) or found.get("set"):
            raise ConfigError(
                f"{where}: mixture.parts.{name}: expected config: {KEPT.format(name)} and nothing set, as in any run's "
                "own file, found others; start from the configuration that the run was made from"
            )


def settings_from(
    content: Mapping[str, Any],
    typed: Mapping[str, str] | None = None,
    *,
    where: str = "mixture",
    origin: Path | None = None,
) -> MixtureSettings:
    """The same of keys and values.

    Args:
        content: as the file has it.
        typed: key → value, as on the command line.
        where: what messages begin with.
        origin: the file.
    """
    _known(content, TOP, where)
    mixture = content.get("mixture")
    if not isinstance(mixture, Mapping) or not isinstance(mixture.get("parts"), Mapping) or not mixture["parts"]:
        raise ConfigError(f"{where}: mixture: expected parts: {{NAME: {{config: FILE}}}}, found {mixture!r}")
    _known(mixture, MIXTURE, f"{where}: mixture")
    raw, top = {name: dict(own or {}) for name, own in mixture["parts"].items()}, dict(content)
    mixing = {key: value for key, value in mixture.items() if key != "parts"}
    for key, value in (typed or {}).items():
        _type(key, parse_yaml(value, f"--{key}"), top, mixing, raw)
    trainer = top.get("trainer") or {}
    _known(trainer, ("default_root_dir",), f"{where}: trainer", "a part's own trainer is set in its configuration")
    below = origin.parent if origin is not None else None
    first = next((own["config"] for own in raw.values() if isinstance(own, dict) and own.get("config")), None)
    parts = {
        str(name): _part(str(name), own, first, f"{where}: mixture.parts.{name}", below) for name, own in raw.items()
    }
    own = {
        "name": str(top.get("name") or (origin.stem if origin is not None else "mixture")),
        "root": Path(trainer.get("default_root_dir") or ROOT),
        **{key: top[key] for key in ("seed", "folds", "workers") if top.get(key) is not None},
        **{key: value for key, value in mixing.items() if value is not None},
    }  # fmt: skip
    check_name(str(own["name"]), f"{where}: name")
    made = MixtureSettings(parts, **own, origin=_first_origin(origin))
    _check(made, where)
    return replace(made, shrink=float(made.shrink))


def _first_origin(path: Path | None) -> Path | None:
    """The file that a run's own configuration was made from."""
    from fedlit.run.arguments import origins

    return None if path is None else origins(path)[0]


def _known(found: Mapping[Any, Any], keys: Sequence[str], where: str, more: str = "") -> None:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where}: expected keys and values such as {keys[0]}: …, found {found!r}")
    for key in found:
        if key not in keys:
            hint = did_you_mean(str(key), keys) + (f" ({more})" if more else "")
            raise ConfigError(f"{where}: expected some of {', '.join(keys)}, found {key!r}.{hint}")


def _type(key: str, value: Any, top: dict[str, Any], mixing: dict[str, Any], parts: dict[str, dict[str, Any]]) -> None:
    """Put one typed value where it belongs."""
    group, _, rest = key.partition(".")
    if key in TOP and key not in ("mixture", "trainer"):
        top[key] = value
    elif key == "trainer.default_root_dir":
        top["trainer"] = {"default_root_dir": value}
    elif group == "mixture" and rest in MIXTURE[1:]:
        mixing[rest] = value
    elif group == "mixture" and rest.startswith("weights."):
        own = mixing.get("weights")
        mixing["weights"] = {**(own if isinstance(own, dict) else {}), rest.removeprefix("weights."): value}
    elif group == "parts":
        name, _, inner = rest.partition(".")
        if name not in parts:
            raise ConfigError(
                f"--{key}: expected one of the parts {', '.join(parts)}, found {name!r}." + did_you_mean(name, parts)
            )
        if inner in PART:
            parts[name][inner] = value
        elif inner.startswith("grid."):
            choices = value if isinstance(value, list) else [value]
            parts[name]["grid"] = {**(parts[name].get("grid") or {}), inner.removeprefix("grid."): choices}
        else:
            parts[name]["set"] = {**(parts[name].get("set") or {}), inner: value}
    elif group == "data":  # whose tables, of all parts
        for own in parts.values():
            own["set"] = {**(own.get("set") or {}), key: value}
    else:
        known = [
            *(own for own in TOP if own not in ("mixture", "trainer")), "trainer.default_root_dir",
            "data.KEY", *(f"mixture.{own}" for own in MIXTURE[1:]), *(f"parts.{name}.KEY" for name in parts),
        ]  # fmt: skip
        raise ConfigError(
            f"--{key}: expected one of the keys of a mixture, {', '.join(known)}, found another."
            + (did_you_mean(key, known, "--") or f" For a part: --parts.{next(iter(parts))}.{key}")
        )


def _part(name: str, own: Any, first: str | None, where: str, below: Path | None) -> PartSettings:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: expected a name of letters, digits, _ and -, found {name!r}")
    _known(own, PART, where)
    if "config" not in own and "go_alone" not in own:
        raise ConfigError(f"{where}: expected config: FILE, or go_alone: MODEL such as extra_trees, found neither")
    config = own.get("config") or first
    if config is None:
        raise ConfigError(
            f"{where}: expected config: FILE, whose tables the model is fitted to, found none in any part"
        )
    keys = own.get("set") or {}
    for key in keys:
        if key in _REFUSED:
            raise ConfigError(f"{where}: set: {key}: the mixture decides it for all its parts; leave it out here")
        check_key(str(key), f"{where}: set.")
    if own.get("checkpoint", "last") not in ("last", "best"):
        raise ConfigError(f"{where}: checkpoint: expected last or best, found {own['checkpoint']!r}")
    alone = own.get("go_alone")
    if alone is not None:
        _check_alone(str(alone), own, where)
    if own.get("grid") is not None and alone is None:
        raise ConfigError(f"{where}: grid: expected it beside go_alone: MODEL, found a configuration; use set")
    found = find_config(str(config), also=below, what=f"{where}: config:")
    if "mixture" in read_yaml(found):
        raise ConfigError(
            f"{where}: config: expected a configuration of one run, found {found.name}, which is a mixture"
        )
    return PartSettings(found, dict(keys), own.get("checkpoint", "last"), alone, own.get("grid"))


_KEPT = ("extra_trees", "logistic_regression", "ridge", "poisson_regression")


def _check_alone(model: str, own: Mapping[str, Any], where: str) -> None:
    if model not in _KEPT:
        raise ConfigError(
            f"{where}: go_alone: expected one of {', '.join(_KEPT)}, which are kept as arrays to predict new rows "
            f"with, found {model!r}; others enter a study as baselines." + did_you_mean(model, _KEPT)
        )
    grid = own.get("grid")
    if grid is not None and not (
        isinstance(grid, Mapping) and all(isinstance(choices, list) and choices for choices in grid.values())
    ):
        raise ConfigError(f"{where}: grid: expected {{SETTING: [VALUE, …]}}, found {grid!r}")


def _check(own: MixtureSettings, where: str) -> None:
    numbers = {"seed": (0, 2**32 - 1), "folds": (0, 1000), "workers": (1, 1000)}
    for key, (low, high) in numbers.items():
        value = getattr(own, key)
        if type(value) is not int or not low <= value <= high or (key == "folds" and value == 1):
            what = f"a whole number from {low} to {high}" if key != "folds" else "0 for none, or 2 folds or more"
            raise ConfigError(f"{where}: {key}: expected {what}, found {value!r}")
    if type(own.admit) is not bool:
        raise ConfigError(f"{where}: mixture.admit: expected true or false, found {own.admit!r}")
    if type(own.shrink) not in (int, float) or not math.isfinite(own.shrink) or own.shrink < 0:
        raise ConfigError(f"{where}: mixture.shrink: expected a number of rows of at least 0, found {own.shrink!r}")
    if isinstance(own.weights, str):
        if own.weights not in WEIGHTS:
            raise ConfigError(
                f"{where}: mixture.weights: expected {', '.join(WEIGHTS)}, or {{PART: weight}}, found {own.weights!r}."
                + did_you_mean(own.weights, WEIGHTS)
            )
        return
    if not isinstance(own.weights, dict) or set(own.weights) - set(own.parts):
        found = ", ".join(map(str, own.weights)) if isinstance(own.weights, dict) else repr(own.weights)
        raise ConfigError(f"{where}: mixture.weights: expected weights of {', '.join(own.parts)}, found {found}")
    values = list(own.weights.values())
    if any(type(value) not in (int, float) or not 0 <= value < math.inf for value in values) or not sum(values) > 0:
        raise ConfigError(
            f"{where}: mixture.weights: expected numbers of at least 0, not all of them 0, found {values}"
        )


def typed_pairs(typed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """(configurations, key → value) of what is typed behind a command."""
    configs, changed = [], {}
    for flag, value in pairs_of(list(typed)):
        if flag in ("--config", "-c"):
            configs.append(value)
        else:
            changed[flag.removeprefix("--")] = value
    return configs, changed
