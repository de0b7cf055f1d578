"""Questions about a cell of a target that says yes or no beside numbers, such as an event beside a
time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fedlit.data.note import Note
from fedlit.show.text import shorten
from fedlit.types import Label

_OPPOSITES = frozenset({"alive", "survived", "censored", "censor", "censoring", "eventfree"})
"""Names of columns whose 1 usually says that nothing happened."""
_MOST_CODES = 4
"""Columns with more values hold something else."""


def plain_label(value: Any) -> Label:
    """Return a label as a person writes it: 1, not 1.0.

    Example:
        >>> plain_label(1.0), plain_label("dead")
        (1, 'dead')
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    label: Label = value
    return label


def asked_of_codes(name: str, values: Collection[Any]) -> list[Note]:
    """Return a question where the values of a column do not say which of them is the event.

    Args:
        name: the name of the column.
        values: its different values.

    Example:
        >>> (note,) = asked_of_codes("status", [2.0, 1.0])
        >>> note.alternatives
        ({'values': {'status': {1: 1, 2: 0}}}, {'values': {'status': {1: 0, 2: 1}}})
        >>> asked_of_codes("died", [1, 0])
        []
    """
    labels = sorted({plain_label(value) for value in values}, key=str)
    if {*labels} <= {0, 1}:
        letters = "".join(filter(str.isalpha, name.casefold()))
        if letters not in _OPPOSITES:
            return []
        sentence = "does 1 say that the event happened? The name says the opposite"
        return [Note(sentence, "event", alternatives=_either(name, [0, 1]))]
    values_text = shorten([*map(repr, labels)])
    if not 0 < len(labels) <= _MOST_CODES:
        return [Note(f"expected 1 (the event) or 0 (censored), found {values_text}", "event")]
    sentence = f"which of {values_text} is the event? Map each to 1 (the event) or 0 (censored)"
    return [Note(sentence, "event", alternatives=_either(name, labels))]


def _either(name: str, labels: Sequence[Label]) -> list[dict[str, Any]]:
    """Return, for each label but 0, that it alone is the event; for 0 and 1 both ways."""
    events = [label for label in labels if label != 0]
    if len(events) < len(labels) == 2:
        events = list(labels)
    choices = list[dict[str, Any]]()
    for event in events:
        codes = {label: int(label == event) for label in labels}
        choices.append({"values": {name: codes}})
    return choices
