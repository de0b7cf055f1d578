"""Files of labelled reads: FASTA and FASTQ by dnaio, CSV by pandas; read strictly, and written."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading import ReadOptions, read_table
from fedlit.data.sources.bases import BASES, codes_in, texts_of
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

if TYPE_CHECKING:
    pass

__all__ = [
    "ENDINGS",
    "Read",
    "format_of",
    "name_of",
    "plain_bases",
    "read_file",
    "records_of",
    "repeated",
    "said",
    "tidy",
    "write_reads",
]

ENDINGS = {
    **dict.fromkeys((".fasta", ".fa", ".fna"), "fasta"),
    **dict.fromkeys((".fastq", ".fq"), "fastq"),
    ".csv": "csv",
}
_LABELS = re.compile(r"(?:^|\s)labels=(\S*)")
_OTHERS = "RYSWKMBDHV"  # IUPAC's letters for one of several bases


@dataclass(frozen=True)
class Read:
    """One read as a file has it.

    Attributes:
        place: where, for messages: a line, or a record's number and name.
        bases: its letters.
        labels: one for each.
        name: of its record; empty where reads have no names.
    """

    place: str
    bases: str
    labels: str
    name: str = ""


def format_of(path: str | Path) -> str:
    """``fasta``, ``fastq`` or ``csv``, by a file's name.

    Raises:
        ConfigError: another ending.

    Example:
        >>> format_of("north.fq.gz")
        'fastq'
    """
    name = str(path).lower().removesuffix(".gz")
    for ending, format in ENDINGS.items():
        if name.endswith(ending):
            return format
    raise ConfigError(f"file {path}: expected a name that ends in one of {', '.join(ENDINGS)} (and .gz), found another")


def read_file(client: str, path: Path) -> list[Read]:
    """The reads of a file, with their labels.

    Args:
        client: whose; messages name it.
        path: the file.

    Raises:
        ConfigError: dnaio is not installed, or the name has another ending.
        DataError: a file is damaged, or has a read without labels.
    """
    format, where = format_of(path), f"client {client!r}, file {path}"
    if format == "csv":
        columns = ["read", "labels"]
        frame = read_table(path, ReadOptions(sep=",", keep=columns), client).frame.fillna("")
        rows = zip(frame["read"], frame["labels"], strict=True)
        return [Read(f"row {row} of data", read, own) for row, (read, own) in enumerate(rows, 1)]
    return [
        Read(place, bases, _in_header(header, f"{where}, {place}"), name_of(header))
        for place, header, bases in records_of(path, format, where)
    ]


def name_of(header: str) -> str:
    """A record's name: the first word of its header.

    Example:
        >>> name_of("r7 labels=bbb")
        'r7'
    """
    return (header.split(maxsplit=1) or [""])[0]


def _in_header(header: str, where: str) -> str:
    found = _LABELS.findall(header)
    if len(found) != 1:
        raise DataError(
            f"{where}: expected its labels once in the header (>name labels=bbbii), found {len(found) or 'none'}. Add "
            "them."
        )
    return str(found[0])


def records_of(path: Path, format: str, where: str) -> Iterator[tuple[str, str, str]]:
    """Place, header and sequence of each record of a FASTA or FASTQ file.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: the file is damaged, or empty.
    """
    try:
        import dnaio
    except ImportError as error:
        raise ConfigError(f'{where}: needs dnaio. Run: pip install "fedlit[reads]"') from error
    number = 0
    try:
        opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
        with opened(path, "rb") as file, dnaio.open(_without_mark(file), fileformat=format) as reader:
            for number, record in enumerate(reader, 1):
                line = f"line {4 * number - 2}" if format == "fastq" else f"record {number}"
                yield f"{line} ({name_of(record.name)})", record.name, record.sequence
    except dnaio.FileFormatError as error:
        line = f", line {error.line + 1}" if error.line is not None else ""
        found = " ".join(error.message.split()).rstrip(".")
        raise DataError(
            f"{where}{line}: expected {format.upper()}, found something else: {found}. Correct the file, or fetch it "
            "again."
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{where}: is cut short or damaged behind record {number} ({error}). Fetch the file again."
        ) from error
    except UnicodeError as error:
        raise DataError(
            f"{where}: expected plain ASCII, found other bytes behind record {number}. Write it so; "
            "of a packed file the name ends in .gz."
        ) from error
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror or error}. Check path and rights.") from error
    if not number:
        raise DataError(f"{where}: expected reads, found an empty file. Fetch or write the file again.")


def _without_mark(file: Any) -> Any:
    """The file behind the mark that some editors put in front of text."""
    if file.read(3) != codecs.BOM_UTF8:
        file.seek(0)
    return file


def tidy(reads: Sequence[Read], length: int, where: str, no_label: str) -> tuple[list[str], list[str], list[str]]:
    """Bases, labels and notes: capitals of A, C, G, N and T; reads of ``length`` positions.

    Shorter reads keep their bases and get ``no_label`` behind their end; longer ones are cut.

    Raises:
        DataError: a letter that means no base, no bases, as many labels as there are no bases, a read without any
            label, labels that are the bases.
    """
    bases, labels, found, others = [], [], Counter[str](), Counter[str]()
    for own in reads:
        here = f"{where}, {own.place}"
        if not own.bases:
            raise DataError(f"{here}: expected bases (A, C, G, T, N), found no bases. Leave the read out.")
        upper = plain_bases(own.bases, here, found, others)
        if len(own.labels) != len(upper):
            raise DataError(
                f"{here}: expected a label for each of {len(upper)} bases ({no_label} where there is none), found "
                f"{len(own.labels)}. Correct it; the file may be cut short."
            )
        if blank := [place for place, label in enumerate(own.labels, 1) if label.isspace()]:
            raise DataError(
                f"{here}: expected labels that can be seen, found white space at position {blank[0]}. Write another "
                f"letter, or {no_label} where there is no label."
            )
        if not own.labels[:length].strip(no_label):
            behind = own.labels.strip(no_label)
            within = f"within the first {length} (length)" if behind else "at some of its positions"
            more = ", for what is behind is cut off. Give a larger length, or leave" if behind else ". Leave"
            raise DataError(f"{here}: expected a label {within}, found none{more} the read out.")
        bases.append(upper[:length])
        labels.append(own.labels[:length].ljust(length, no_label))
    if reads and all(own.labels.upper() == own.bases.upper() for own in reads):
        raise DataError(f"{where}: expected labels, found the bases themselves in all reads. Correct the file.")
    found["shorter"] = sum(len(own.bases) < length for own in reads)
    found["longer"] = sum(len(own.bases) > length for own in reads)
    again = repeated([own.name for own in reads], "one read may be in training and in test")
    return bases, labels, [*said(found, others, length), *again]


def repeated(names: Iterable[str], so: str) -> list[str]:
    """Return a note on names that occur several times, and what follows from that."""
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    return [f"{len(twice):,} names of records stand there several times, such as {twice[0]!r}: {so}"] if twice else []


def plain_bases(text: str, here: str, found: Counter[str], others: Counter[str]) -> str:
    """Capitals of A, C, G, N and T; what is converted is counted.

    Args:
        text: letters of a read.
        here: where, for messages.
        found: gets 1 more of ``lower`` where there were small letters.
        others: gets the letters that were converted.

    Raises:
        DataError: a letter that means no base.
    """
    upper = text.upper()
    found["lower"] += upper != text
    if odd := set(upper) - set(BASES):
        if wrong := sorted(odd - {"U", *_OTHERS}):
            raise DataError(
                f"{here}: expected bases (A, C, G, T, N), found {wrong[0]!r} at position "
                f"{upper.index(wrong[0]) + 1}. Correct the read, or leave it out."
            )
        others.update(letter for letter in upper if letter in odd)
        upper = upper.translate(_PLAIN)
    return upper


_PLAIN = str.maketrans({"U": "T", **dict.fromkeys(_OTHERS, "N")})


def said(found: Mapping[str, int], others: Mapping[str, int], length: int) -> list[str]:
    """Return notes on what was converted."""
    notes = []
    if found["lower"]:
        notes.append(f"lower-case bases in {found['lower']:,} reads are taken as capitals")
    uracil = others.get("U", 0)
    if uracil:
        notes.append(f"{uracil:,} U are taken as T")
    if several := {letter: count for letter, count in sorted(others.items()) if letter != "U"}:
        listed = ", ".join(f"{letter} ({count:,})" for letter, count in several.items())
        notes.append(f"letters for one of several bases became N: {listed}")
    if found["shorter"]:
        notes.append(f"{found['shorter']:,} reads are shorter than {length}: no base and no label behind their end")
    if found["longer"]:
        notes.append(f"{found['longer']:,} reads are longer than {length}: what is behind is cut off")
    return notes


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
