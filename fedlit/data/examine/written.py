"""Writes a commented configuration for tables that were examined."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedlit.data.examine.facts import named
from fedlit.data.examine.page import flow
from fedlit.data.examine.propose import Proposal
from fedlit.show.text import shorten

_MOST = 10
"""Notes of one kind that are printed or written; the rest is counted."""
_TOLD = 6  # names of columns in a comment


_ORDER = ("files", "client_column", "least_rows", "target", "task", "positive", "unlabelled")


def written(proposal: Proposal, file: str) -> str:
    """Return the text of a configuration that can be trained as it is.

    Args:
        proposal: the content of the configuration.
        file: the name of the configuration, for the commands in it.
    """
    environment = Environment(
        loader=PackageLoader("fedlit.data.examine", "."), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"yaml": _yaml, "comment": _comment, "some": some}
    held: dict[str, list[str]] = {}
    for client, columns in proposal.kinds.items():
        kinds: dict[str, list[str]] = {}
        for name, kind in columns.items():
            kinds.setdefault(kind, []).append(name)
        told = "; ".join(f"{kind}: {shorten(names, _TOLD)}" for kind, names in kinds.items())
        held.setdefault(told, []).append(client)
    return environment.get_template("init.yaml.j2").render(
        file=file,
        settings={key: proposal.settings[key] for key in _ORDER if key in proposal.settings},
        notes=proposal.notes,
        columns=[f"{named(clients)}: {told}" for told, clients in held.items()],
        # Each batch needs several rows, of the smallest client too, when part of its training rows is a fold.
        batches=max(1, min(10, int(0.5 * proposal.rows) // 4)),
    )


def some(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    return [*lines[:_MOST], *([f"… and {len(lines) - _MOST:,} more"] if len(lines) > _MOST else [])]


def _yaml(value: Any, key: str) -> str:
    """Return a key and its value as YAML; a mapping of files or of mappings takes several lines."""
    import yaml

    nested = isinstance(value, dict) and any(isinstance(own, dict) for own in value.values())
    if not nested and (key != "files" or isinstance(value, str)):
        return f"{key}: {flow(value)}"
    block = None if nested else False
    text = yaml.safe_dump({key: value}, default_flow_style=block, allow_unicode=True, width=72, sort_keys=False)
    return textwrap.indent(text, " " * 6).strip()


def _comment(text: str, indent: int) -> str:
    """Wrap a text as lines of a comment of at most 79 columns."""
    start = " " * indent + "# "
    return textwrap.fill(
        " ".join(text.split()), 79, initial_indent=start, subsequent_indent=start + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
