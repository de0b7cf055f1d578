"""What a network may know of its inputs by name: what their codes stand for, and where the bins of numbers lie."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Input"]


@dataclass(frozen=True)
class Input:
    """The description of one input of a client.

    Attributes:
        name: the input's; names of a client are unique.
        column: of the table, which it was made of.
        values: what the category codes 0, 1, … stand for, as text, so that a value is called alike at all clients;
            empty for a number.
        edges: of a number's bins, ascending, in the units of the encoded input; empty where there are none.

    Example:
        >>> Input("town", "town", ("Aachen", "Bonn")).values
        ('Aachen', 'Bonn')
    """

    name: str
    column: str
    values: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
