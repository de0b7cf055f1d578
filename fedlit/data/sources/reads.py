"""Labelled DNA reads, in a FASTA or FASTQ file for each client. As tables, they have a column for
each position, which all clients encode in the same way. They can be trained on and scored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedlit.data.note import Note
from fedlit.data.reading import Raw
from fedlit.data.sources.base import Source, check_tables
from fedlit.data.sources.places import Place, places_of
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError, expect, told_as
from fedlit.extras import needs
from fedlit.outcomes import SEQUENCE_TASK
from fedlit.show.text import counted

BASES = "ACGNT"
"""The symbols by their codes 0 to 4, sorted as encoders sort categories; N is a base that was not
read. The code of a position behind a read's end is −1."""
ENDINGS = (".fasta", ".fa", ".fna", ".fastq", ".fq")

_LABELS = re.compile(r"(?:^|\s)labels=(\S*)")
_PLAIN = str.maketrans({"U": "T", **dict.fromkeys("RYSWKMBDHV", "N")})
"""RNA's U, and IUPAC's letters for one of several bases → the base that stands for them."""
_LETTERS = np.array([*BASES, None], dtype=object)


def codes_of(reads: Sequence[str], length: int, head: str) -> tuple[np.ndarray, list[str]]:
    """Return the codes of bases (n, length) int8, with −1 after a read's end. Longer reads are cut.
    Other letters for a base are converted, which notes report.

    Args:
        reads: Texts of letters.
        length: The number of positions.
        head: The text with which messages begin: the owner of the reads.

    Returns:
        The codes, and notes.

    Raises:
        DataError: A letter does not stand for a base.

    Example:
        >>> codes, notes = codes_of(["ACGTT", "u"], 4, "client 'north'")
        >>> codes.tolist(), notes[0]
        ([[0, 1, 2, 4], [4, -1, -1, -1]], 'converted: u to T (1)')
    """
    rows = []
    converted = Counter[str]()
    for number, read in enumerate(reads, 1):
        plain = read[:length].upper().translate(_PLAIN)
        wrong = min(set(plain) - {*BASES}, default="")
        key = f"{head}, read {number}"
        expect(not wrong, key, "bases (A, C, G, T, N)", wrong, "correct it", DataError)
        if plain != read[:length]:
            converted.update(
                f"{old} to {new}" for old, new in zip(read, plain, strict=False) if old != new
            )
        rows.append([BASES.find(base) for base in plain.ljust(length)])
    notes = []
    if converted:
        changes = [f"{change} ({times:,})" for change, times in sorted(converted.items())]
        notes.append(f"converted: {', '.join(changes)}")
    shorter = sum(len(read) < length for read in reads)
    if shorter:
        count = counted(shorter, "read")
        notes.append(f"{count} shorter than {length}: no base and no label beyond the end")
    longer = sum(len(read) > length for read in reads)
    if longer:
        notes.append(f"{counted(longer, 'read')} longer than {length}: the rest is cut off")
    return np.array(rows, dtype=np.int8).reshape(-1, length), notes


def position_names(length: int) -> list[str]:
    """Return the names of the columns. Sorted as text, they are in the order of positions.

    Example:
        >>> position_names(10)[:2]
        ['p01', 'p02']
    """
    return [f"p{position + 1:0{len(str(length))}}" for position in range(length)]


def are_positions(columns: Sequence[str]) -> bool:
    """Return whether the columns are those of reads.

    Example:
        >>> are_positions(["p1", "p2"]), are_positions(["age", "p2"])
        (True, False)
    """
    return list(columns) == position_names(len(columns))


def records_of(path: Path, head: str) -> list[tuple[str, str]]:
    """Return the header and the bases of each record of a FASTA or FASTQ file, compressed or not.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: The file is damaged, or empty.
    """
    try:
        import dnaio
    except ImportError as error:
        raise ConfigError(f"{head}: {needs('dnaio')}") from error
    failure = told_as(
        lambda error: DataError(
            f"{head}: expected FASTA or FASTQ, found: {' '.join(str(error).split())}. Fetch the "
            "file again."
        )
    )
    with failure, dnaio.open(path) as reader:
        records = [(record.name, record.sequence) for record in reader]
    if not records:
        raise DataError(
            f"{head}: expected reads, found an empty file; fetch or write the file again"
        )
    return records


def new_reads(path: Path, columns: Sequence[str], head: str) -> Raw:
    """Return the records in a FASTA or FASTQ file, whose headers need no labels: the column
    ``name``, and a column for each position, without a value where there is no base. Bases are
    converted in the same way as in training.

    Args:
        path: The file.
        columns: The columns of the positions, in their order.
        head: The text with which messages begin: the owner and the name of the file.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: The file is damaged or empty, or a letter does not stand for a base.
    """
    import pandas as pd

    names, reads = zip(*records_of(path, head), strict=True)
    codes, notes = codes_of(reads, len(columns), head)
    frame = pd.DataFrame(_LETTERS[codes], columns=list(columns))
    frame.insert(0, "name", [next(iter(name.split()), "") for name in names])
    return Raw(frame, tuple(map(Note, notes)), head)


@dataclass(eq=False)
class Reads(Source):
    """Your own DNA reads with a label for each position: a FASTA or FASTQ file for each client,
    ``.gz`` or not.

    A label is one letter, or ``?`` where a position has none. Labels are in the header: ``>name
    labels=bbbii``.

    Bases are A, C, G, T and N (not read). Lower case, U, IUPAC's ambiguity codes and reads of
    another length are converted, with a note; FASTQ qualities are not used. Any other letter is an
    error.

    - Clients: one for each file.
    - Columns: p001 to p150, a base each (A, C, G, N, T).
    - Target: labels, a text of one label for each position, ? where there is none.
    - Splits: random by the run's seed, 20 % test, then 25 % of the rest validation.

    Args:
        files: maps each client's name to its file; or a folder or a pattern, in which each file is
            a client. Relative paths are searched in the working directory, then in ``root``
            (``$FEDLIT_DATA`` if None), then in the cache.
        length: the number of positions of a read. Longer reads are cut; shorter ones have no base
            and no label after their end.
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

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the files; ``seed`` draws the splits."""
        locations = places_of(self.files, None, self.root, self.name, ENDINGS)
        return check_tables([self._table(location, seed) for location in locations])

    def _table(self, location: Place, seed: int) -> ClientTable:
        # It imports torch, which a list of sources does without.
        from fedlit.tasks.sequence_labelling import NO_LABEL

        client = location.client
        path = location.find()
        head = f"client {client!r}, file {path}"
        reads = []
        labels = []
        for row, (header, read) in enumerate(records_of(path, head), 1):
            texts = _LABELS.findall(header)
            text = texts[0] if len(texts) == 1 else ""
            is_labelled = len(read) == len(text) and bool(text[: self.length].strip(NO_LABEL))
            expected = (
                f"a label for each of {len(read)} bases ({NO_LABEL}: none) and one at least: "
                ">name labels=bbbii"
            )
            key = f"{head}, read {row}"
            expect(is_labelled, key, expected, header[:80], "correct it", DataError)
            reads.append(read)
            labels.append(text[: self.length].ljust(self.length, NO_LABEL))
        codes, notes = codes_of(reads, self.length, head)
        notes = [*filter(None, [location.note]), *(f"{client}: {note}" for note in notes)]
        return table_of(self, client, codes, labels, seed, notes)


def table_of(
    source: Any,
    client: str,
    codes: np.ndarray,
    labels: Sequence[str],
    seed: int,
    notes: Sequence[str] = (),
) -> ClientTable:
    """Return a client's table, with the columns ``p1``, ``p2``, … (with leading zeros) and the
    target ``labels``. Each column has all bases as categories, and is missing after a read's end.

    Args:
        source: the source, which has the shares ``test`` and ``validation``.
        client: the name of the client.
        codes: (n, length), the codes that :func:`codes_of` returns.
        labels: a text of ``length`` labels for each read.
        seed: the seed of the splits.
        notes: what the user should know.
    """
    import pandas as pd

    # The bases are declared, so that all clients have the same codes, whatever their training rows
    # hold.
    bases = pd.CategoricalDtype([*BASES])
    names = position_names(codes.shape[1])
    columns = {
        name: pd.Categorical.from_codes(codes[:, position], dtype=bases)
        for position, name in enumerate(names)
    }
    features = pd.DataFrame(columns)
    return ClientTable(
        name=client,
        features=features,
        target=pd.Series(list(labels), features.index, name="labels", dtype=object),
        splits=random_split(len(features), seed, source.test, source.validation, client),
        categorical=tuple(names),
        task=SEQUENCE_TASK,
        notes=tuple(notes),
    )
