"""One's own labelled reads: FASTA, FASTQ or CSV, a file for each client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from fedlit.data.sources.base import Source, check_client_name, check_fractions, check_names, check_tables
from fedlit.data.sources.bases import codes_of, table_of
from fedlit.data.sources.places import client_name, clients_of, files_in, find_file
from fedlit.data.sources.read_files import ENDINGS, Read, format_of, frame_of, read_file, tidy
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.show.text import shorten

__all__ = ["Reads"]


class Reads(Source):
    """Your own reads of DNA with a label for each position: a FASTA, FASTQ or CSV file for each client, ``.gz`` or not.

    A label is one letter; ``?`` where a position has none. Where labels stand:

    - FASTA and FASTQ: in the header, ``>name labels=bbbii``; or in a FASTA file of its own, whose records have the same
      names and labels in place of bases.
    - CSV: in the column ``labels``, beside the column ``read``.

    Bases are A, C, G, T and N (not read). Lower case, U, IUPAC's letters for one of several bases and reads of another
    length are converted, and said in one line each; qualities of FASTQ are not used. Any other letter is an error.

    Args:
        files: each client's name and its file, or ``{reads: FILE, labels: FILE}``; or a folder or pattern: a client for
            each file; or one CSV file, with ``client_column``. Relative paths are looked up in the working directory,
            then in ``root`` (``$FEDLIT_DATA`` if None), then in the cache.
        length: positions of a read. Longer reads are cut, shorter ones have no base and no label behind their end.
        client_column: the column of one CSV file that names the client of each read.
        root: a folder in which relative paths are looked up after the working directory.
        test: the share of a client's reads that are test rows, in (0, 1).
        validation: the share of its other reads that are validation rows, in (0, 1).

    Example::

        source = Reads({"north": "north.fastq.gz", "south": {"reads": "south.fa", "labels": "south.labels.fa"}})
        tables = source.tables(seed=8)
    """

    name: ClassVar[str] = "reads"
    about: ClassVar[str] = "your own reads of DNA with a label for each position: FASTA, FASTQ or CSV"
    layout: ClassVar[str] = (
        "Clients: one for each file you name, or for each value of client_column.\n"
        "Columns: p001 to p150, a base each (A, C, G, N, T).\n"
        "Target: labels, a text of one label for each position, ? where there is none.\n"
        "Splits: random by the run's seed, 20 % test, then 25 % of the rest validation."
    )

    def __init__(
        self,
        files: str | dict[str, str | dict[str, str]],
        length: int = 150,
        client_column: str | None = None,
        root: str | None = None,
        test: float = 0.2,
        validation: float = 0.25,
    ) -> None:
        check_fractions(test, validation)
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ConfigError(f"{self.name}: length: expected at least 1 position, found {length!r}")
        if not isinstance(files, str | Path | Mapping):
            raise ConfigError(
                f"{self.name}: files: expected a path, a pattern, or {{NAME: FILE, ...}}, found {files!r}. Name the "
                "clients"
            )
        if client_column is not None and isinstance(files, Mapping):
            raise ConfigError(
                f"{self.name}: client_column: expected one CSV file with all clients' reads, found named files "
                f"({', '.join(map(str, files))}), whose names would not be used. Leave client_column out, or say "
                "files: FILE"
            )
        if client_column in ("read", "labels"):
            raise ConfigError(
                f"{self.name}: client_column: expected a column that names clients, found {client_column!r}, which "
                "holds bases or labels. Name another"
            )
        if not files:
            raise ConfigError(f"{self.name}: files: expected a file for at least one client, found none")
        if isinstance(files, Mapping):
            for client, own in files.items():
                check_client_name(client)
                apart = own if isinstance(own, Mapping) else {"reads": own}
                named = {"reads"} <= {*apart} <= {"reads", "labels"}
                if not named or not all(isinstance(path, str | Path) for path in apart.values()):
                    wrong = next((key for key in apart if key not in ("reads", "labels")), "")
                    raise ConfigError(
                        f"{self.name}: files: client {client!r}: expected a path, or {{reads: FILE, labels: FILE}}, "
                        f"found {own!r}." + did_you_mean(wrong, ["reads", "labels"])
                    )
                if str(apart.get("labels", "")) == str(apart["reads"]):
                    raise ConfigError(
                        f"{self.name}: files: client {client!r}: expected labels in a file of their own, found the "
                        f"reads' file {apart['reads']}. Leave labels out where they stand in its headers"
                    )
            check_names(list(files))
        self.given, self.length, self.client_column, self.root = files, length, client_column, root
        self.test, self.validation, self._left_out = test, validation, ""

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the files; ``seed`` draws the splits."""
        places = self._places()
        if self.client_column is not None:
            return check_tables(self._by_client(places, seed))
        return check_tables([self._table(client, places, seed) for client in places])

    def table(self, client: str, seed: int) -> ClientTable:
        """One client's table; reads no other's file."""
        places = self._places()
        if self.client_column is not None or client not in places:
            return super().table(client, seed)
        return check_tables([self._table(client, places, seed)])[0]

    def _places(self) -> dict[str, dict[str, Path]]:
        """Client → its files: ``reads``, and ``labels`` where they stand apart."""
        if isinstance(self.given, Mapping):
            given = {
                client: {"reads": own} if isinstance(own, str | Path) else own for client, own in self.given.items()
            }
            return {
                client: {key: find_file(client, str(path), self.root) for key, path in own.items()}
                for client, own in given.items()
            }
        if self.client_column is not None:
            paths, _ = files_in(self.name, str(self.given), self.root, tuple(ENDINGS), (".gz",))
            return {str(place): {"reads": path} for place, path in enumerate(paths)}
        named, self._left_out = clients_of(self.name, str(self.given), self.root, tuple(ENDINGS), (".gz",))
        return {client: {"reads": path} for client, path, _ in named}

    def _table(self, client: str, places: Mapping[str, Mapping[str, Path]], seed: int) -> ClientTable:
        path, apart = places[client]["reads"], places[client].get("labels")
        where = f"client {client!r}, file {path}"
        format = format_of(path)
        if format == "csv":
            if apart is not None:
                raise ConfigError(
                    f"{where}: expected labels in the column labels of the CSV file, found a file {apart}"
                )
            frame = frame_of(path, client, ["read", "labels"])
            reads = _of_rows(frame["read"], frame["labels"], frame.index)
        else:
            reads = read_file(client, path, apart)
        notes = ["qualities are not used"] if format == "fastq" else []
        same = [name for name, own in places.items() if name != client and own["reads"].resolve() == path.resolve()]
        if self._left_out and client == next(iter(places)):
            notes.append(self._left_out)
        if same:
            notes.append(f"its file {path} is that of {shorten(same)} too: test reads of one are trained on at another")
        return self._made(client, reads, where, seed, notes)

    def _by_client(self, places: Mapping[str, Mapping[str, Path]], seed: int) -> list[ClientTable]:
        """The clients of one CSV file."""
        paths = [own["reads"] for own in places.values()]
        if len(paths) != 1 or format_of(paths[0]) != "csv":
            raise ConfigError(
                f"{self.name}: client_column: expected one CSV file with all clients' reads, found "
                f"{', '.join(map(str, paths[:3]))}; name a file for each client"
            )
        column, where = str(self.client_column), f"file {paths[0]}"
        frame = frame_of(paths[0], None, [column, "read", "labels"])
        owners: dict[str, list[int]] = {}
        called: dict[str, str] = {}
        for row, own in zip(frame.index.tolist(), frame[column].tolist(), strict=True):
            if not own.strip():
                raise DataError(
                    f"{where}, row {row + 1} of data: expected a client in column {column!r}, found none. Fill it in."
                )
            client = client_name(own)
            if called.setdefault(client, own) != own:
                raise DataError(
                    f"{where}, row {row + 1} of data: {called[client]!r} and {own!r} would both be client {client!r}. "
                    "Rename one."
                )
            owners.setdefault(client, []).append(row)
        check_names(list(owners))
        made = []
        for client in sorted(owners):
            own = frame.loc[owners[client]]
            note = [f"is {column} {called[client]!r}"] if called[client] != client else []
            reads = _of_rows(own["read"], own["labels"], own.index)
            made.append(self._made(client, reads, f"client {client!r}, {where}", seed, note))
        return made

    def _made(self, client: str, reads: list[Read], where: str, seed: int, notes: list[str]) -> ClientTable:
        from fedlit.tasks.sequence_labelling import NO_LABEL  # torch, which a list of sources does without

        bases, labels, said = tidy(reads, self.length, where, NO_LABEL)
        told = [f"{client}: {note}" for note in (*notes, *said)]
        codes = codes_of(bases, self.length)
        return table_of(client, codes, labels, seed, self.test, self.validation, told)


def _of_rows(reads: Any, labels: Any, rows: Any) -> list[Read]:
    """Reads of a CSV file. Lines may be blank, or one row may have several, so rows are counted."""
    return [Read(f"row {row + 1} of data", read, own) for read, own, row in zip(reads, labels, rows, strict=True)]
