"""A method or a rule that ships is one Python file and one YAML: ``fedlit/__init__.pyi`` and the
reference list what stands in their rooms. ``python tests/run/test_listed.py`` writes both lists.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedlit.client.client import FederatedClient
from fedlit.exchange.rule import Rule

ROOT = Path(__file__).parents[2]
STUB = ROOT / "fedlit" / "__init__.pyi"
MARK = "\n# methods and rules: written by tests/run/test_listed.py\n"
BASES = "fedlit.methods.bases"
"""The module with bases of methods, which are no methods themselves."""
SECTIONS: dict[Path, tuple[str, str, type[Any]]] = {
    ROOT / "docs" / "api" / "clients.md": ("## Methods\n", "fedlit.methods", FederatedClient),
    ROOT / "docs" / "api" / "exchange.md": ("## Rules\n", "fedlit.exchange.rules", Rule),
}
"""Page of the reference → the section of methods or rules, their room and their base."""


def public(room: str, *kinds: type[Any]) -> Iterator[type[Any]]:
    """Yield the public classes of a room, by module and name."""
    package = importlib.import_module(room)
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{room}.{found.name}")
        for name, kind in sorted(vars(module).items()):
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, kinds) and not name.startswith("_"):
                yield kind


def listed(kind: type[Any]) -> bool:
    """Return whether a configuration names the class by ``fedlit.<name>``."""
    return not inspect.isabstract(kind) and kind.__module__ != BASES


def stub() -> str:
    """Return the list of public names, with one line for each method and rule."""
    before, _, _ = STUB.read_text("utf-8").partition(MARK)
    lines = [
        f"from {kind.__module__.removeprefix('fedlit')} import {kind.__name__} as {kind.__name__}"
        for room in ("fedlit.exchange.rules", "fedlit.methods")
        for kind in public(room, FederatedClient, Rule)
        if listed(kind)
    ]
    return before + MARK + "\n".join([*lines, ""])


def page(path: Path) -> str:
    """Return a page of the reference, with all methods or rules in their section."""
    title, room, base = SECTIONS[path]
    before, _, rest = path.read_text("utf-8").partition(title)
    _, heading, after = rest.partition("\n## ")
    names = [kind.__name__ for kind in public(room, base) if listed(kind)]
    if base is FederatedClient:  # a method's own rule stands beside it
        names += [kind.__name__ for kind in public(room, Rule) if listed(kind)]
    entries = "\n\n".join(f"::: fedlit.{name}" for name in names)
    return f"{before}{title}\n{entries}\n{heading}{after}"


def test_methods_and_rules_are_listed_where_they_are_named() -> None:
    assert STUB.read_text("utf-8") == stub(), f"run python {__file__}"
    for path in SECTIONS:
        assert path.read_text("utf-8") == page(path), f"run python {__file__}"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    for path in SECTIONS:
        path.write_text(page(path), encoding="utf-8")
