"""What a network may know about its inputs: their names, the values that codes stand for, and the
edges of bins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Input:
    """The description of one input of a client.

    Attributes:
        name: the name of the input, unique within a client.
        column: the column of the table that the input was made from.
        values: the values that the category codes 0, 1, … stand for, as text, so that a value has
            the same name at all clients; empty for a number.
        edges: the edges of a number's bins, ascending, in the units of the encoded input; empty if
            it has no bins.

    Example:
        >>> Input("town", "town", ("Aachen", "Bonn")).values
        ('Aachen', 'Bonn')
    """

    name: str
    column: str
    values: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
