"""One's own labelled reads: FASTA, FASTQ or CSV, a file for each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from fedlit.data.sources.base import Source, check_client_name, check_fractions, check_names, check_tables
from fedlit.data.sources.bases import codes_of, table_of
from fedlit.data.sources.places import clients_of, find_file
from fedlit.data.sources.read_files import ENDINGS, format_of, read_file, tidy
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError
from fedlit.show.text import shorten

__all__ = ["Reads"]


class Reads(Source):
    """Your own reads of DNA with a label for each position: a FASTA, FASTQ or CSV file for each client, ``.gz`` or not.

    A label is one letter; ``?`` where a position has none. In FASTA and FASTQ they stand in the header,
    ``>name labels=bbbii``; in CSV in the column ``labels``, beside the column ``read``.

    Bases are A, C, G, T and N (not read). Lower case, U, IUPAC's letters for one of several bases and reads of another
    length are converted, and said in one line each; qualities of FASTQ are not used. Any other letter is an error.

    Args:
        files: each client's name and its file; or a folder or pattern: a client for each file. Relative paths are
            looked up in the working directory, then in ``root`` (``$FEDLIT_DATA`` if None), then in the cache.
        length: positions of a read. Longer reads are cut, shorter ones have no base and no label behind their end.
        root: a folder in which relative paths are looked up after the working directory.
        test: the share of a client's reads that are test rows, in (0, 1).
        validation: the share of its other reads that are validation rows, in (0, 1).

    Example::

        source = Reads({"north": "north.fastq.gz", "south": "south.fa"})
        tables = source.tables(seed=8)
    """

    name: ClassVar[str] = "reads"
    about: ClassVar[str] = "your own reads of DNA with a label for each position: FASTA, FASTQ or CSV"
    layout: ClassVar[str] = (
        "Clients: one for each file.\n"
        "Columns: p001 to p150, a base each (A, C, G, N, T).\n"
        "Target: labels, a text of one label for each position, ? where there is none.\n"
        "Splits: random by the run's seed, 20 % test, then 25 % of the rest validation."
    )

    def __init__(
        self,
        files: str | dict[str, str],
        length: int = 150,
        root: str | None = None,
        test: float = 0.2,
        validation: float = 0.25,
    ) -> None:
        check_fractions(test, validation)
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ConfigError(f"{self.name}: length: expected at least 1 position, found {length!r}")
        named = files if isinstance(files, Mapping) else {"": files}
        if not named or not all(isinstance(path, str | Path) for path in named.values()):
            raise ConfigError(
                f"{self.name}: files: expected a path, a pattern, or a file for each client ({{NAME: FILE, ...}}), "
                f"found {files!r}"
            )
        if isinstance(files, Mapping):
            for client in files:
                check_client_name(client)
            check_names(list(files))
        self.given, self.length, self.root = files, length, root
        self.test, self.validation = test, validation

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the files; ``seed`` draws the splits."""
        places, left_out = self._places()
        tables = [self._table(client, places, seed) for client in places]
        if left_out:
            tables[0] = replace(tables[0], notes=(f"{tables[0].name}: {left_out}", *tables[0].notes))
        return check_tables(tables)

    def table(self, client: str, seed: int) -> ClientTable:
        """Return one client's table; reads no other's file."""
        places, _ = self._places()
        if client not in places:
            return super().table(client, seed)
        return check_tables([self._table(client, places, seed)])[0]

    def _places(self) -> tuple[dict[str, Path], str]:
        """Client → its file, and what is said of files that are nobody's."""
        if isinstance(self.given, Mapping):
            return {client: find_file(client, str(path), self.root) for client, path in self.given.items()}, ""
        named, left_out = clients_of(self.name, str(self.given), self.root, tuple(ENDINGS), (".gz",))
        return {client: path for client, path, _ in named}, left_out

    def _table(self, client: str, places: Mapping[str, Path], seed: int) -> ClientTable:
        from fedlit.tasks.sequence_labelling import NO_LABEL  # torch, which a list of sources does without

        path = places[client]
        bases, labels, said = tidy(read_file(client, path), self.length, f"client {client!r}, file {path}", NO_LABEL)
        notes = ["qualities are not used"] if format_of(path) == "fastq" else []
        if same := [name for name, own in places.items() if name != client and own.resolve() == path.resolve()]:
            notes.append(f"its file {path} is that of {shorten(same)} too: test reads of one are trained on at another")
        told = [f"{client}: {note}" for note in (*notes, *said)]
        codes = codes_of(bases, self.length)
        return table_of(client, codes, labels, seed, self.test, self.validation, told)
