"""What a network may know of its inputs by name: what their codes stand for, and where the bins of numbers lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a checkpoint."""
        return {"name": self.name, "column": self.column, "values": list(self.values), "edges": list(self.edges)}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Input:
        """Make it from its plain data.

        Example:
            >>> Input.of(Input("age", "age", edges=(0.0, 1.0)).to_dict())
            Input(name='age', column='age', values=(), edges=(0.0, 1.0))
        """
        return cls(state["name"], state["column"], tuple(state["values"]), tuple(state["edges"]))
