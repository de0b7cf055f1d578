"""One's own labelled reads: FASTA, FASTQ or CSV, a file for each client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedlit.data.reading import ReadOptions, read_table
from fedlit.data.sources.base import Source, check_fractions, check_tables, random_split
from fedlit.data.sources.bases import BASES, ENDINGS, codes_in, codes_of, position_names, records_of, texts_of
from fedlit.data.sources.places import Place, find_file, places_of
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

__all__ = ["Reads", "table_of", "write_reads"]

_LABELS = re.compile(r"(?:^|\s)labels=(\S*)")


class Reads(Source):
    """Your own reads of DNA with a label for each position: a FASTA, FASTQ or CSV file for each client, ``.gz`` or not.

    A label is one letter; ``?`` where a position has none. In FASTA and FASTQ they stand in the header,
    ``>name labels=bbbii``; in CSV in the column ``labels``, beside the column ``read``.

    Bases are A, C, G, T and N (not read). Lower case, U, IUPAC's letters for one of several bases and reads of another
    length are converted, with a note; qualities of FASTQ are not used. Any other letter is an error.

    - Clients: one for each file.
    - Columns: p001 to p150, a base each (A, C, G, N, T).
    - Target: labels, a text of one label for each position, ? where there is none.
    - Splits: random by the run's seed, 20 % test, then 25 % of the rest validation.

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
            raise ConfigError(f"{self.name}: length: expected at least 1 position, found {length!r}.")
        self.given, self.length, self.root = files, length, root
        self.test, self.validation = test, validation
        if isinstance(files, Mapping):
            places_of(files, None, root, self.name)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the files; ``seed`` draws the splits."""
        return check_tables([self._table(place, seed) for place in self._places()])

    def table(self, client: str, seed: int) -> ClientTable:
        """Return one client's table; reads no other's file."""
        places = [place for place in self._places() if place.client == client]
        return check_tables([self._table(places[0], seed)])[0] if places else super().table(client, seed)

    def _places(self) -> list[Place]:
        return places_of(self.given, None, self.root, self.name, ENDINGS)

    def _table(self, place: Place, seed: int) -> ClientTable:
        from fedlit.tasks.sequence_labelling import NO_LABEL  # torch, which a list of sources does without

        client, path = place.client, find_file(place.client, place.path, self.root)
        where = f"client {client!r}, file {path}"
        reads, labels = _labelled(path, client, where)
        for row, (read, own) in enumerate(zip(reads, labels, strict=True), 1):
            if len(read) != len(own) or not own[: self.length].strip(NO_LABEL):
                raise DataError(
                    f"{where}, read {row}: expected a label for each of {len(read)} bases ({NO_LABEL} where there is "
                    f"none) and one at least, found {own[:80]!r}. Correct it."
                )
        codes, notes = codes_of(reads, self.length, where)
        labels = [own[: self.length].ljust(self.length, NO_LABEL) for own in labels]
        notes = [f"{client}: {note}" for note in notes]
        notes = [place.note, *notes] if place.note else notes
        return table_of(client, codes, labels, seed, self.test, self.validation, notes)


def _labelled(path: Path, client: str, where: str) -> tuple[list[str], list[str]]:
    """The reads of a file, and the labels of each."""
    if path.name.lower().removesuffix(".gz").endswith(".csv"):
        raw = read_table(path, ReadOptions(sep=",", keep=["read", "labels"]), client)
        frame = raw.frame.fillna("")
        return frame["read"].tolist(), frame["labels"].tolist()
    records = records_of(path, where)
    labels = [_LABELS.findall(header) for header, _ in records]
    if wrong := [header for (header, _), own in zip(records, labels, strict=True) if len(own) != 1]:
        raise DataError(
            f"{where}: expected labels once in each header (>name labels=bbbii), found {wrong[0][:80]!r}. Add them."
        )
    return [bases for _, bases in records], [own for (own,) in labels]


def table_of(
    client: str,
    codes: np.ndarray,
    labels: Sequence[str],
    seed: int,
    test: float,
    validation: float,
    notes: Sequence[str] = (),
) -> ClientTable:
    """A client's table: categories ``p1``, ``p2``, … (with leading zeros) over all bases, missing behind a read's end,
    and the target ``labels``.

    Args:
        client: its name.
        codes: (n, length), as :func:`~fedlit.data.sources.bases.codes_of` gives them.
        labels: a text of ``length`` labels for each read.
        seed: draws the splits.
        test: the share of reads that are test rows.
        validation: the share of the others that are validation rows.
        notes: what a person should know.
    """
    import pandas as pd

    # declared, so that the codes of all clients are the same whatever their training rows hold
    bases = pd.CategoricalDtype([*BASES])
    names = position_names(codes.shape[1])
    columns = {name: pd.Categorical.from_codes(codes[:, place], dtype=bases) for place, name in enumerate(names)}
    features = pd.DataFrame(columns)
    return ClientTable(
        name=client,
        features=features,
        target=pd.Series(list(labels), features.index, name="labels", dtype=object),
        splits=random_split(len(features), seed, test, validation, client),
        categorical=tuple(names),
        task="sequence_labelling",
        notes=tuple(notes),
    )


def write_reads(tables: Sequence[ClientTable], folder: str | Path) -> dict[str, Path]:
    """Write tables of reads as FASTA files, with labels in the headers.

    Args:
        tables: as :class:`fedlit.Reads` or :class:`fedlit.Populations` make them.
        folder: made if need be; files of the same name are replaced.

    Returns:
        Client → its file.
    """
    folder, files = Path(folder), dict[str, Path]()
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        files[table.name] = folder / f"{table.name}.fasta"
        pairs = enumerate(zip(texts_of(codes_in(table.features)), table.target, strict=True))
        records = [f">{table.name}_{number} labels={own[: len(read)]}\n{read}\n" for number, (read, own) in pairs]
        files[table.name].write_text("".join(records), encoding="ascii")
    return files
