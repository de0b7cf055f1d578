"""Joins the clients of several sources in one federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlit.data.sources.base import Source, check_tables, choose_clients
from fedlit.data.table import ClientTable
from fedlit.errors import expect


@dataclass(eq=False)
class Together(Source):
    """The clients of several sources. Each source builds its tables independently of the others.

    Args:
        sources: the sources, no two of which may have a client with the same name.
        clients: the clients to use of each source, or None for all of its clients; all clients of all sources if None.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> both = Together([Bundled(clients=["wine"]), Bundled(clients=["digits"])])
        >>> [table.name for table in both.tables(seed=0)]
        ['wine', 'digits']
    """

    name: ClassVar[str] = "together"
    about: ClassVar[str] = "the clients of several sources"

    sources: Sequence[Source]
    clients: Sequence[Sequence[str] | None] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(len(self.sources) > 0, "together: sources", "at least one", self.sources)
        each = self.clients is None or len(self.clients) == len(self.sources)
        expect(each, "together: clients", "a list of names, or null, for each source", self.clients)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read all tables; ``seed`` is passed to each source."""
        made = []
        for source, wanted in zip(self.sources, self.clients or [None] * len(self.sources), strict=True):
            tables = source.tables(seed)
            chosen = {*choose_clients(wanted, [table.name for table in tables], source.name)}
            made += [table for table in tables if table.name in chosen]
        return check_tables(made)
