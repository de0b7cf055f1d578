"""A commented configuration for tables that were looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedlit.data.examine.facts import named
from fedlit.data.examine.paragraphs import flow
from fedlit.data.examine.propose import Proposal
from fedlit.show.text import counted, shorten

__all__ = ["MOST", "init_args", "written"]

MOST = 10
"""Notes of one kind that are printed or written; the rest is counted."""
_TOLD = 6  # names of columns in a comment


def init_args(proposals: Sequence[Proposal]) -> dict[str, Any]:
    """Return the arguments of :class:`fedlit.Tables`."""
    first = proposals[0]
    targets = {own.client: own.target for own in proposals}
    made: dict[str, Any] = {
        "files": {own.client: {"path": own.path, **own.options} if own.options else own.path for own in proposals},
        "target": targets if len(set(targets.values())) > 1 else first.target,
    }
    for key in ("task", "positive"):
        if own := {own.client: getattr(own, key) for own in proposals if getattr(own, key) is not None}:
            made[key] = getattr(first, key) if first.sites or first.federation else own
    if first.federation:
        made |= {} if first.options else {"files": first.path}
        made |= first.federation
    if any(own.unlabelled for own in proposals):
        made["unlabelled"] = "drop"
    made["validation"] = 0.2
    return made


def written(proposals: Sequence[Proposal], file: str) -> str:
    """The text of a configuration that trains as it is.

    Args:
        proposals: of all clients.
        file: how it will be called, for the commands in it.
    """
    environment = Environment(
        loader=PackageLoader("fedlit.data.examine", "."), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"yaml": _yaml, "comment": _comment, "some": some}
    held: dict[str, list[str]] = {}
    for own in proposals:
        kinds: dict[str, list[str]] = {}
        for name, kind in own.kinds.items():
            kinds.setdefault(kind, []).append(name)
        told = "; ".join(f"{kind}: {shorten(names, _TOLD)}" for kind, names in kinds.items())
        held.setdefault(told, []).append(own.client)
    # Each batch needs several rows, of the smallest client too, when part of its training rows is a fold.
    batches = max(1, min(10, int(0.5 * min(own.rows for own in proposals)) // 4))
    return environment.get_template("init.yaml.j2").render(
        file=file,
        settings=init_args(proposals),
        notes=notes_of(proposals),
        columns=[f"{named(clients)}: {told}" for told, clients in held.items()],
        codes=list(dict.fromkeys(name for own in proposals for name in own.codes)),
        sites=proposals[0].sites,
        batches=batches,
    )


def notes_of(proposals: Sequence[Proposal]) -> dict[str, list[str]]:
    """Key of :class:`fedlit.Tables` → what to say of it."""
    made: dict[str, list[str]] = {}
    for own in proposals:
        for key, text in own.notes:
            made.setdefault(key, []).append(text)
        if own.unlabelled:
            made.setdefault("unlabelled", []).append(f"{own.client}: {counted(own.unlabelled, 'row')} without a label")
    return made


def some(lines: Sequence[str]) -> list[str]:
    """The first of many lines, and how many more there are."""
    return [*lines[:MOST], *([f"… and {len(lines) - MOST:,} more"] if len(lines) > MOST else [])]


def _yaml(value: Any, key: str) -> str:
    """A key and its value as YAML; a mapping of files or of mappings over several lines."""
    import yaml

    nested = isinstance(value, dict) and any(isinstance(own, dict) for own in value.values())
    if not nested and (key != "files" or isinstance(value, str)):
        return f"{key}: {flow(value)}"
    block = None if nested else False
    text = yaml.safe_dump({key: value}, default_flow_style=block, allow_unicode=True, width=72, sort_keys=False)
    return textwrap.indent(text, " " * 6).strip()


def _comment(text: str, indent: int) -> str:
    """Text as lines of a comment of at most 79 columns."""
    start = " " * indent + "# "
    return textwrap.fill(
        " ".join(text.split()), 79, initial_indent=start, subsequent_indent=start + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
