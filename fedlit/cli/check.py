"""``fedlit check``: a page about clients' tables, which shows their contents, oddities, and what to configure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from fedlit.errors import ConfigError, FedlitError
from fedlit.run.arguments import Asked, read
from fedlit.show.shown import for_terminal

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source
    from fedlit.data.table import ClientTable

_SHAPED = ("leave_out", "mutations")  # keys of data that change tables and need all of fedlit to be understood


def check(
    *keys: str,
    config: tuple[str, ...] = (),
    strict: bool = False,
    format: Literal["text", "json"] = "text",
) -> int:
    """Look at the tables of a configuration.

    Shows rows, types, missing cells and classes; columns that reveal the target; similar names, units, categories and
    labels of several clients; the same rows or identifiers at two clients; and what to write. Any key of
    the configuration can be changed: --seed 5

    Args:
        *keys: keys of the configuration and their values: --seed 5
        config: the configuration: its name, or a file; again for changes
        strict: exit with status 1 if there is anything to look at
        format: of the page
    """
    if "--columns" in keys:
        raise ConfigError("--columns: expected another flag, found one that is gone. --format json shows all columns.")
    asked = read("describe", [*(word for name in config for word in ("--config", name)), *keys])
    from fedlit.data.examine import examine

    tables, source = _tables(asked)
    page = examine(tables, source)
    if format == "json":
        print(json.dumps(page.to_dict(), indent=2, default=_plain))
    else:
        print(for_terminal(page, otherwise=80))
    return int(strict and bool(page.odd))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _tables(asked: Asked) -> tuple[list[ClientTable], Source]:
    """Return the tables that a run would read. In simple cases only the source is built, so that torch need not be
    imported; all other cases are left to the full parser.
    """
    source = None
    content = asked.content
    data = content.get("data") or {}
    seed = content.get("seed", 0)
    if isinstance(data.get("source"), dict) and type(seed) is int and not any(data.get(key) for key in _SHAPED):
        source = _source(data["source"], asked)
    if source is None:
        from fedlit.run.load import parse

        module = parse(asked)[0].data
        return module.tables(), module.source
    from fedlit.data.table import choose_columns

    tables = source.tables(seed)
    columns = data.get("columns")
    return (choose_columns(tables, columns) if columns else tables), source


def _source(given: dict[str, Any], asked: Asked) -> Source | None:
    """Return the source that a configuration names, or None if the full parser has to report what is wrong."""
    import sys

    from jsonargparse import ArgumentParser

    from fedlit.data.sources.base import Source

    sys.path[:0] = [own for own in (str(asked.configs[0].parent), ".") if own not in sys.path]
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--source", type=Source)
    try:
        made: Source = parser.instantiate(parser.parse_object({"source": given})).source
    except FedlitError:
        raise
    except Exception:  # jsonargparse's words are not ours
        return None
    return made
