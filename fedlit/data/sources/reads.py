"""One's own labelled reads: FASTA or FASTQ, a file for each client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_tables, choose_clients, random_split
from fedlit.data.sources.bases import BASES, ENDINGS, codes_in, codes_of, position_names, records_of, texts_of
from fedlit.data.sources.places import Place, places_of
from fedlit.data.table import ClientTable
from fedlit.errors import DataError, expect
from fedlit.names import Share

__all__ = ["Reads", "table_of", "write_reads"]

_LABELS = re.compile(r"(?:^|\s)labels=(\S*)")


@dataclass(eq=False)
class Reads(Source):
    """Your own reads of DNA with a label for each position: a FASTA or FASTQ file for each client, ``.gz`` or not.

    A label is one letter; ``?`` where a position has none. Labels stand in the header, ``>name labels=bbbii``.

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
    about: ClassVar[str] = "your own reads of DNA with a label for each position: FASTA or FASTQ"

    files: str | dict[str, str]
    length: int = 150
    root: str | None = None
    test: float = 0.2
    validation: float = 0.25

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        fits = isinstance(self.length, int) and not isinstance(self.length, bool) and self.length >= 1
        expect(fits, "reads: length", "at least 1 position", self.length)
        if isinstance(self.files, Mapping):
            self._places()

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the files; ``seed`` draws the splits."""
        return check_tables([self._table(place, seed) for place in self._places().values()])

    def some(self, clients: Sequence[str], seed: int, share: Share | None = None) -> list[ClientTable]:
        """Some clients' tables; reads no others' files."""
        places = self._places()
        chosen = choose_clients(clients, list(places), self.name)
        return check_tables([self._table(places[client], seed) for client in chosen])

    def _places(self) -> dict[str, Place]:
        return {place.client: place for place in places_of(self.files, None, self.root, self.name, ENDINGS)}

    def _table(self, place: Place, seed: int) -> ClientTable:
        from fedlit.tasks.sequence_labelling import NO_LABEL  # torch, which a list of sources does without

        client, path = place.client, place.find()
        where = f"client {client!r}, file {path}"
        reads, labels = [], []
        for row, (header, read) in enumerate(records_of(path, where), 1):
            found = _LABELS.findall(header)
            own = found[0] if len(found) == 1 else ""
            if len(read) != len(own) or not own[: self.length].strip(NO_LABEL):
                raise DataError(
                    f"{where}, read {row}: expected a label for each of {len(read)} bases ({NO_LABEL} where there is "
                    f"none) and one at least, as in >name labels=bbbii, found {header[:80]!r}. Correct it."
                )
            reads.append(read)
            labels.append(own[: self.length].ljust(self.length, NO_LABEL))
        codes, notes = codes_of(reads, self.length, where)
        notes = [*filter(None, [place.note]), *(f"{client}: {note}" for note in notes)]
        return table_of(client, codes, labels, seed, self.test, self.validation, notes)


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
