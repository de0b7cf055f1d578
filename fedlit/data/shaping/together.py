"""Clients of several sources as one federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fedlit.data.sources.base import Source, check_tables, choose_clients
from fedlit.data.table import ClientTable
from fedlit.errors import expect

__all__ = ["Together"]


class Together(Source):
    """The clients of several sources: each source makes its own tables, as if the others were not there.

    Args:
        sources: no two may have a client of one name.
        clients: of each source the clients that are taken, None for all of it; all of all if None.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> both = Together([Bundled(clients=["wine"]), Bundled(clients=["digits"])])
        >>> [table.name for table in both.tables(seed=0)]
        ['wine', 'digits']
    """

    name: ClassVar[str] = "together"
    about: ClassVar[str] = "the clients of several sources"

    def __init__(self, sources: Sequence[Source], clients: Sequence[Sequence[str] | None] | None = None) -> None:
        clients = [None] * len(sources) if clients is None else clients
        expect(len(sources) > 0, "together: sources", "at least one", list(sources))
        expect(len(clients) == len(sources), "together: clients", "a list of names, or null, for each source", clients)
        self.sources, self.clients = list(sources), clients

    def tables(self, seed: int) -> list[ClientTable]:
        """Read all tables; ``seed`` goes to each source."""
        made = []
        for source, wanted in zip(self.sources, self.clients, strict=True):
            tables = source.tables(seed)
            chosen = None if wanted is None else choose_clients(wanted, [own.name for own in tables], source.name)
            made += [table for table in tables if chosen is None or table.name in chosen]
        return check_tables(made)
