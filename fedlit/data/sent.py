"""Describes what clients send each other before training."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, NotRequired, TypedDict

from fedlit.data.targets import numbers_sent
from fedlit.data.terms import Terms

_SKETCH = (
    "smallest and largest value, 255 quantiles evenly between (of up to 257 rows: all their "
    "values) and number of rows"
)
_GROUPED = "number of rows, and means of groups of at least {rows} neighbouring values, 257 at most"


Facts = Mapping[str, Mapping[str, Any]]
"""Client → what it sent, by topic."""


class SentStatement(TypedDict):
    """What clients sent about some columns, the key that demands it, and client → how many numbers."""

    what: str
    key: str
    columns: list[str]
    numbers: NotRequired[dict[str, int]]


def describe_sent(sent: Facts, terms: Terms) -> list[SentStatement]:
    """Describe what clients sent before the first step.

    Args:
        sent: client → its :func:`fedlit.data.agree.facts`.
        terms: the settings, the same at all clients.

    Returns:
        For each kind: ``what`` was sent, the ``key`` that demands it, the ``columns`` concerned,
        and, where numbers were sent, ``numbers``: client → how many.
    """
    if terms.features:
        key = f"data.align: {terms.align}"
    elif terms.common is not None:
        common = terms.common if isinstance(terms.common, str) else "listed"
        key = f"data.common: {common}"
    elif terms.pooled:
        key = "data.scaling: pooled"
    else:
        key = "data.bins: agreed"
    targets = {client: entry["target"] for client, entry in sent.items() if "target" in entry}
    quantiles = _SKETCH
    if terms.facts_from > 1:
        quantiles = _GROUPED.format(rows=terms.facts_from)
    return [
        *_sent_about(sent, "columns", "names and kinds of columns", key),
        *_sent_about(sent, "categories", "categories", key),
        *_sent_about_targets(targets, terms.align),
        *_numbers_sent(sent, "moments", "count, mean and variance", "data.scaling: pooled"),
        *_numbers_sent(sent, "sketches", quantiles, "data.bins: agreed"),
    ]


def _sent_about(sent: Facts, topic: str, description: str, key: str) -> list[SentStatement]:
    """Return the entry on one topic, if any client sent something about it."""
    columns = sorted({*chain(*(entry.get(topic, ()) for entry in sent.values()))})
    if not columns:
        return []
    return [{"what": description, "key": key, "columns": columns}]


def _numbers_sent(sent: Facts, topic: str, description: str, key: str) -> list[SentStatement]:
    """Return the entry on one topic, with the number of numbers that each client sent."""
    numbers = {
        client: sum(map(len, entry.get(topic, {}).values())) for client, entry in sent.items()
    }
    return [{**entry, "numbers": numbers} for entry in _sent_about(sent, topic, description, key)]


def _sent_about_targets(facts: Facts, align: str) -> list[SentStatement]:
    """Return the entries on labels and on numbers of targets."""
    entries: list[SentStatement] = []
    if align in ("classes", "both"):
        labelled = [sent for sent in facts.values() if "labels" in sent]
        if labelled:
            content = "labels"
            if any("length" in sent for sent in labelled):
                content = "labels and length of sequences"
            columns = [str(labelled[0]["target"])]
            entries.append({"what": content, "key": f"data.align: {align}", "columns": columns})
    pooled = {name: str(sent["target"]) for name, sent in facts.items() if sent["shared"]}
    if pooled:
        numbers = {name: numbers_sent(facts[name]) for name in pooled}
        *names, last = [name.replace("_", " ") for name in max(numbers.values(), key=len)]
        content = last
        if names:
            content = f"{', '.join(names)} and {last}"
        entries.append(
            {
                "what": content,
                "key": "task.targets: pooled",
                "columns": sorted(set(pooled.values())),
                "numbers": {name: sum(sent.values()) for name, sent in numbers.items()},
            }
        )
    return entries
