"""The kinds of notes that ``fedlit check`` makes, and words for them."""

from __future__ import annotations

__all__ = ["KINDS", "named"]

KINDS = {
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
