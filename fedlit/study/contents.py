"""What configurations say: the keys that determine what is trained, without anything that a table
says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedlit.files import write_text
from fedlit.jobs.job import digest_of, is_free
from fedlit.run.allowed import all_listed
from fedlit.run.arguments import read
from fedlit.run.load import load

KEPT = "plan.json"
"""In a study's folder: what its configurations say."""
_FILES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Content:
    """The content of a configuration.

    Attributes:
        keys: all keys that determine what is computed, by dotted name, without the seed.
        shares: whether clients exchange anything.
        pools: whether clients' rows are put in one place.
    """

    keys: dict[str, Any]
    shares: bool
    pools: bool


class Contents:
    """The contents of configurations. To build one takes a tenth of a second and is often repeated,
    so contents are cached by the text of all layers.

    Args:
        folder: the folder in which contents are cached for the next time; None to always build
            them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._built = dict[str, Content]()
        self._kept = dict[str, Content]()
        self._before = _read(folder)

    def of(self, config: str | Path, overrides: Mapping[str, Any]) -> Content:
        """Return the content of a configuration with changed keys.

        A configuration that names classes that are not fedlit's or torch's, or another file, is
        always built again, because their defaults may have changed.

        Raises:
            ConfigError: the configuration is not valid.
        """
        layers = read("fit", ["--config", str(config)], overrides=overrides).content
        key = digest_of({"layers": layers, "packages": installed()})
        if key not in self._built:
            content = self._before.get(key)
            if content is None:
                content = _build(config, overrides)
            self._built[key] = content
            if _is_closed(layers):
                self._kept[key] = content
        return self._built[key]

    def keep(self) -> None:
        """Write the contents to the folder."""
        if self._folder is not None:
            contents = {key: vars(content) for key, content in self._kept.items()}
            write_text(json.dumps(contents), self._folder / KEPT)


def _read(folder: Path | None) -> dict[str, Content]:
    """Return the contents that a folder has; if the file is missing or damaged, none."""
    contents = dict[str, Content]()
    if folder is not None:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            saved = json.loads((folder / KEPT).read_text(encoding="utf-8"))
            contents = {key: Content(**content) for key, content in saved.items()}
    return contents


def _build(config: str | Path, overrides: Mapping[str, Any]) -> Content:
    """Build a run to learn the values of all keys, with defaults."""
    run = load(str(config), overrides=overrides)
    settings = run.settings or {}
    keys = {key: value for key, value in settings.items() if key != "seed" and not is_free(key)}
    plain = json.loads(json.dumps(keys, default=str))
    return Content(plain, run.exchange.on, bool(run.data.pool))


def _is_closed(layers: Mapping[str, Any]) -> bool:
    """Return whether nothing that these layers name can change while fedlit and torch stay the
    same: they name listed classes only, and no file that the parser could read.
    """
    return all_listed(layers) and not any(text.endswith(_FILES) for text in _texts(layers))


def _texts(tree: Any) -> Iterator[str]:
    """Yield all values of a tree that are text."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _texts(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _texts(value)


@cache
def installed() -> dict[str, Any]:
    """Return what changes with fedlit's files, and with the packages whose defaults a configuration
    contains.
    """
    newest = max(path.stat().st_mtime_ns for path in Path(__file__).parents[1].rglob("*.py"))
    packages = {name: version(name) for name in ("fedlit", "torch", "lightning")}
    return {"newest file of fedlit": newest, **packages}
