"""Labelled DNA reads, in a FASTA or FASTQ file for each client. As tables, they have a column for each position, which
all clients encode in the same way. They can be trained on and scored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.sources.places import Place, places_of
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError, Told, expect, told_as
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

BASES = "ACGNT"
"""The symbols by their codes 0 to 4, sorted as encoders sort categories; N is a base that was not read. The code of a
position behind a read's end is −1."""
ENDINGS = (".fasta", ".fa", ".fna", ".fastq", ".fq")

_READ = "read"
_LABELS = re.compile(r"(?:^|\s)labels=(\S*)")
_PLAIN = str.maketrans({"U": "T", **dict.fromkeys("RYSWKMBDHV", "N")})  # RNA; IUPAC's letters for one of several bases
_LETTERS = np.array([*BASES, None], dtype=object)


def codes_of(reads: Iterable[str], length: int, where: str) -> tuple[np.ndarray, list[str]]:
    """Return the codes of bases (n, length) int8, with −1 after a read's end. Longer reads are cut. Other letters for a
    base are converted, which notes report.

    Args:
        reads: texts of letters.
        length: the number of positions.
        where: the owner of the reads, for messages.

    Returns:
        The codes, and notes.

    Raises:
        DataError: a letter does not stand for a base.

    Example:
        >>> codes, notes = codes_of(["ACGTT", "u"], 4, "client 'north'")
        >>> codes.tolist(), notes[0]
        ([[0, 1, 2, 4], [4, -1, -1, -1]], 'converted: u to T (1)')
    """
    made, converted, others = [], Counter[str](), Counter[int]()
    for row, read in enumerate(reads, 1):
        plain = read[:length].upper().translate(_PLAIN)
        wrong = min(set(plain) - {*BASES}, default="")
        expect(not wrong, f"{where}, read {row}", "bases (A, C, G, T, N)", wrong, "correct it", DataError)
        if plain != read[:length]:
            converted.update(f"{old} to {new}" for old, new in zip(read, plain, strict=False) if old != new)
        others[(len(read) > length) - (0 < len(read) < length)] += 1
        made.append([BASES.find(base) for base in plain.ljust(length)])
    notes = []
    if converted:
        notes.append(f"converted: {', '.join(f'{own} ({times:,})' for own, times in sorted(converted.items()))}")
    if others[-1]:
        notes.append(f"{others[-1]:,} reads are shorter than {length}: they have no base and no label beyond their end")
    if others[1]:
        notes.append(f"{others[1]:,} reads are longer than {length}: the rest is cut off")
    return np.array(made, dtype=np.int8).reshape(-1, length), notes


def position_names(length: int) -> list[str]:
    """Return the names of the columns. Sorted as text, they are in the order of positions.

    Example:
        >>> position_names(10)[:2]
        ['p01', 'p02']
    """
    return [f"p{place + 1:0{len(str(length))}}" for place in range(length)]


def are_positions(columns: Sequence[str]) -> bool:
    """Return whether the columns are those of reads.

    Example:
        >>> are_positions(["p1", "p2"]), are_positions(["age", "p2"])
        (True, False)
    """
    return list(columns) == position_names(len(columns))


def records_of(path: Path, where: str) -> list[tuple[str, str]]:
    """Return the header and the bases of each record of a FASTA or FASTQ file, compressed or not.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: the file is damaged, or empty.
    """
    try:
        import dnaio
    except ImportError as error:
        raise ConfigError(f'{where}: needs dnaio. Run: pip install "fedlit[reads]"') from error
    what = "expected FASTA or FASTQ, found"
    tell = told_as(lambda error: DataError(f"{where}: {what}: {' '.join(str(error).split())}. Fetch the file again."))
    with tell, dnaio.open(path) as reader:
        records = [(record.name, record.sequence) for record in reader]
    expect(len(records) > 0, where, "reads", Told("an empty file"), "fetch or write the file again", DataError)
    return records


def new_reads(path: Path, where: str) -> pd.DataFrame:
    """Return the columns ``name`` and ``read`` of the records in a FASTA or FASTQ file. Headers need no labels.

    Args:
        path: the file.
        where: the owner and the name of the file, for messages.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: the file is damaged or empty.
    """
    import pandas as pd

    records = [((header.split() or [""])[0], bases) for header, bases in records_of(path, where)]
    return pd.DataFrame(records, columns=["name", _READ], dtype=object)


def as_positions(frame: pd.DataFrame, columns: Sequence[str], where: str) -> tuple[pd.DataFrame, list[str]]:
    """Return rows with a column for each position. Bases are converted in the same way as in training.

    Args:
        frame: rows with the column ``read``; other rows are returned unchanged.
        columns: the columns of the positions, in their order.
        where: the owner of the rows, for messages.

    Returns:
        The rows without ``read`` and with all columns (None where there is no base), and notes.

    Raises:
        DataError: there is no column of reads or positions, or a letter does not stand for a base.

    Example:
        >>> import pandas as pd
        >>> frame, notes = as_positions(pd.DataFrame({"read": ["acg", "U"]}), ["p1", "p2"], "client 'north'")
        >>> frame.fillna("-").to_dict("list")
        {'p1': ['A', 'T'], 'p2': ['C', '-']}
    """
    import pandas as pd

    rows, notes = frame, list[str]()
    if _READ in frame:
        codes, notes = codes_of(_texts(frame), len(columns), where)
        read = pd.DataFrame(_LETTERS[codes], index=frame.index, columns=list(columns))
        rows = pd.concat([frame.drop(columns=[name for name in (*columns, _READ) if name in frame]), read], axis=1)
    else:
        told = f"a column {_READ}, or a file that ends in .fasta or .fastq"
        expect(bool(set(columns) & set(frame)), where, told, Told(shorten([*map(str, frame)])), kind=DataError)
    if empty := int(rows.reindex(columns=list(columns)).isna().all(axis=1).sum()):
        notes.append(f"rows without any base: {empty:,}; nothing is predicted of them (?)")
    return rows, notes


def _texts(frame: pd.DataFrame) -> list[str]:
    return [str(text).strip() for text in frame[_READ].astype(object).fillna("").tolist()]


@dataclass(eq=False)
class Reads(Source):
    """Your own DNA reads with a label for each position: a FASTA or FASTQ file for each client, ``.gz`` or not.

    A label is one letter, or ``?`` where a position has none. Labels are in the header: ``>name labels=bbbii``.

    Bases are A, C, G, T and N (not read). Lower case, U, IUPAC's ambiguity codes and reads of another length are
    converted, with a note; FASTQ qualities are not used. Any other letter is an error.

    - Clients: one for each file.
    - Columns: p001 to p150, a base each (A, C, G, N, T).
    - Target: labels, a text of one label for each position, ? where there is none.
    - Splits: random by the run's seed, 20 % test, then 25 % of the rest validation.

    Args:
        files: maps each client's name to its file; or a folder or a pattern, in which each file is a client. Relative
            paths are searched in the working directory, then in ``root`` (``$FEDLIT_DATA`` if None), then in the cache.
        length: the number of positions of a read. Longer reads are cut; shorter ones have no base and no label after
            their end.
        root: a folder that is searched for relative paths after the working directory.
        test: the share of a client's reads that are test rows, in (0, 1).
        validation: the share of the client's other reads that are validation rows, in (0, 1).

    Example::

        source = Reads({"north": "north.fastq.gz", "south": "south.fa"})
        tables = source.tables(seed=8)
    """

    name: ClassVar[str] = "reads"

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
        return check_tables([self._table(place, seed) for place in self._places()])

    def _places(self) -> list[Place]:
        return places_of(self.files, None, self.root, self.name, ENDINGS)

    def _table(self, place: Place, seed: int) -> ClientTable:
        from fedlit.tasks.sequence_labelling import NO_LABEL  # torch, which a list of sources does without

        client, path = place.client, place.find()
        where = f"client {client!r}, file {path}"
        reads, labels = [], []
        for row, (header, read) in enumerate(records_of(path, where), 1):
            found = _LABELS.findall(header)
            own = found[0] if len(found) == 1 else ""
            labelled = len(read) == len(own) and bool(own[: self.length].strip(NO_LABEL))
            told = f"a label for each of {len(read)} bases ({NO_LABEL}: none) and one at least: >name labels=bbbii"
            expect(labelled, f"{where}, read {row}", told, header[:80], "correct it", DataError)
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
    """Return a client's table, with the columns ``p1``, ``p2``, … (with leading zeros) and the target ``labels``. Each
    column has all bases as categories, and is missing after a read's end.

    Args:
        client: the name of the client.
        codes: (n, length), the codes that :func:`codes_of` returns.
        labels: a text of ``length`` labels for each read.
        seed: the seed of the splits.
        test: the share of reads that are test rows.
        validation: the share of the other reads that are validation rows.
        notes: what the user should know.
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
