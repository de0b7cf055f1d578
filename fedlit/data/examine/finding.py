"""One thing that a person should look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["KINDS", "Finding", "Kind", "counted", "named"]

Kind = Literal["untrainable", "leak", "rows", "group", "missing", "task", "date", "positive", "name", "scale", "kind",
               "values", "labels"]  # fmt: skip

KINDS: dict[Kind, str] = {
    "untrainable": "a client that cannot be trained",
    "leak": "a column tells the target",
    "rows": "the same rows at two clients",
    "group": "several rows of one person or thing",
    "missing": "numbers that may mean that there is no value",
    "task": "a target that may be meant otherwise",
    "date": "numbers that look like dates",
    "positive": "which of two classes counts as positive",
    "name": "two names for what looks the same",
    "scale": "one name, numbers of another size",
    "kind": "one name, values of another kind",
    "values": "two spellings of what looks like one category",
    "labels": "labels that look alike",
}
"""What is looked for, the worst first."""


@dataclass(frozen=True)
class Finding:
    """One thing that a person should look at.

    Attributes:
        kind: one of :data:`KINDS`.
        clients: at whom.
        column: of which column; the name that most clients use.
        what: what was found.
        advice: what can be done about it.
        change: what to write: client → key of :class:`fedlit.Tables` or of how its file is read (``drop``, ``rename``,
            ``missing``, ``types``, ``task``, ``positive``) → value; ``split`` is of all. Empty where a person must
            decide.
    """

    kind: Kind
    clients: tuple[str, ...]
    column: str
    what: str
    advice: str
    change: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "clients": list(self.clients),
            "column": self.column,
            "what": self.what,
            "advice": self.advice,
            "change": {client: dict(own) for client, own in self.change.items()},
        }


def named(clients: tuple[str, ...] | list[str], most: int = 4) -> str:
    """Clients in a sentence.

    Example:
        >>> named(["a"]), named(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    if len(clients) > most:
        return f"{', '.join(clients[: most - 1])} and {len(clients) - most + 1} more"
    *others, last = clients
    return f"{', '.join(others)} and {last}" if others else last


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun.

    Example:
        >>> counted(1, "row"), counted(2000, "row")
        ('1 row', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
