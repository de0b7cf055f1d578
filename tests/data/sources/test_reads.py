"""Labelled reads from FASTA and FASTQ: small files of each format, whole ones and damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from made_tables import reads_of

from fedlit.data.sources import Reads
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError, FedlitError

READS = ["ACGT", "TTNA", "GGCA", "ACCA", "CATG"]
LABELS = ["aabb", "ab?b", "bbaa", "abab", "bbb?"]


def fasta(reads: list[str] = READS, labels: list[str] = LABELS) -> str:
    return "".join(f">r some words labels={y}\n{x}\n" for x, y in zip(reads, labels, strict=True))


FASTA = fasta()
FASTQ = "".join(f"@r labels={y}\n{x}\n+\n{'#' * len(x)}\n" for x, y in zip(READS, LABELS, strict=True))


def read(path: Path, content: str | bytes) -> ClientTable:
    own = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(own) if path.suffix == ".gz" and isinstance(content, str) else own)
    (table,) = Reads({"north": str(path)}, 4).tables(0)
    return table


def whole(table: ClientTable) -> tuple[list[str], list[str]]:
    return reads_of(table), table.target.tolist()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.fasta", FASTA),
        ("a.fa.gz", FASTA),
        ("a.fna", FASTA.replace("\n", "\r\n")),
        ("a.fasta", FASTA.replace("ACGT", "AC\nGT")),  # a sequence over two lines
        ("a.fastq", FASTQ),
        ("a.fq.gz", FASTQ),
    ],
)
def test_each_format_gives_the_same_table(name: str, content: str, tmp_path: Path) -> None:
    table = read(tmp_path / name, content)
    assert whole(table) == (READS, LABELS) and not table.notes
    assert list(table.features) == ["p1", "p2", "p3", "p4"] and table.task == "sequence_labelling"


def test_what_is_converted_is_noted(tmp_path: Path) -> None:
    reads, labels = ["acgt", "UUAC", "RYAC", "ACGTA", "AC"], ["abab", "abab", "abab", "ababb", "ba"]
    table = read(tmp_path / "a.fasta", fasta(reads, labels))
    assert whole(table) == (["ACGT", "TTAC", "NNAC", "ACGT", "AC"], ["abab", "abab", "abab", "abab", "ba??"])
    for word in ("U to T (2)", "R to N (1)", "a to A (1)", "1 reads are shorter than 4", "1 reads are longer than 4"):
        assert any(word in note and note.startswith("north: ") for note in table.notes), word


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.fasta", FASTA.replace("GGCA", "GG-A"), "read 3: expected bases .*found '-'"),
        ("a.fasta", "ACGT\n" + FASTA, "expected FASTA or FASTQ"),
        ("a.fasta", "", "expected reads, found an empty file"),
        ("a.fastq", FASTQ[:-9], "expected FASTA or FASTQ"),
        ("a.fasta", FASTA.replace("aabb", "????"), "read 1: expected a label"),
        ("a.fasta", fasta([*READS, "CCCCCC"], [*LABELS, "????bb"]), "read 6: expected a label"),
        ("a.fastq.gz", gzip.compress((FASTQ * 200).encode(), mtime=0)[:-40], "expected|cannot"),
        ("a.fa", b"\x1f\x8b no gzip", "expected FASTA or FASTQ"),
    ],
)
def test_a_damaged_file_is_refused(name: str, content: str | bytes, word: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=word) as caught:
        read(tmp_path / name, content)
    message = str(caught.value)
    assert message.startswith(f"client 'north', file {tmp_path / name}") and "\n" not in message


def test_settings_that_cannot_be_meant_are_refused() -> None:
    for files, length, word in (({"north": "a.fa"}, 0, "length: expected"), ("none/*", 4, "reads: files: expected")):
        with pytest.raises(FedlitError, match=word):
            Reads(files, length).tables(0)  # type: ignore[arg-type]


def test_a_folder_is_a_client_for_each_of_its_files(tmp_path: Path) -> None:
    for name, content in (("south.fasta", FASTA), ("north.fq", FASTQ), ("README", "?"), (".x.fa", "?")):
        (tmp_path / name).write_text(content)
    north, south = Reads(str(tmp_path), 4).tables(0)
    assert (north.name, south.name) == ("north", "south") and whole(north) == whole(south) == (READS, LABELS)
    assert north.notes[0].endswith("not read: README")
    assert whole(Reads(str(tmp_path), 4).some(["south"], 0)[0]) == (READS, LABELS)
    with pytest.raises(ConfigError, match="Did you mean 'south'"):
        Reads(str(tmp_path), 4).some(["sout"], 0)
