"""Labelled reads from FASTA, FASTQ and CSV: small files of each format, whole ones and damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fedlit.data.sources import Reads
from fedlit.data.sources.bases import codes_in, texts_of
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

READS = ["ACGT", "TTNA", "GGCA", "ACCA", "CATG"]
LABELS = ["aabb", "ab?b", "bbaa", "abab", "bbb?"]


def fasta(reads: list[str] = READS, labels: list[str] | None = LABELS) -> str:
    heads = [f" labels={own}" for own in labels] if labels else [""] * len(reads)
    return "".join(
        f">r{place} some words{head}\n{read}\n" for place, (read, head) in enumerate(zip(reads, heads, strict=True))
    )


def fastq(reads: list[str] = READS, labels: list[str] = LABELS) -> str:
    pairs = enumerate(zip(reads, labels, strict=True))
    return "".join(f"@r{place} labels={own}\n{read}\n+\n{'#' * len(read)}\n" for place, (read, own) in pairs)


def csv(reads: list[str] = READS, labels: list[str] = LABELS) -> str:
    return "read,labels\n" + "".join(f"{read},{own}\n" for read, own in zip(reads, labels, strict=True))


def read(path: Path, length: int = 4) -> ClientTable:
    (table,) = Reads({"north": str(path)}, length).tables(0)
    return table


def whole(table: ClientTable) -> tuple[list[str], list[str]]:
    return texts_of(codes_in(table.features)), table.target.tolist()


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    own = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(own) if name.endswith(".gz") else own)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.fasta", fasta()),
        ("a.fa.gz", fasta()),
        ("a.fna", fasta().replace("\n", "\r\n")),
        ("a.fasta", fasta().replace("ACGT", "AC\nGT")),  # a sequence over two lines
        ("a.fastq", fastq()),
        ("a.fq.gz", fastq()),
        ("a.csv", csv()),
        ("a.csv.gz", csv()),
        ("a.csv", "\ufeff" + csv()),
        ("a.fa.gz", "\ufeff" + fasta()),
        ("a.fq", "\ufeff" + fastq()),
    ],
)
def test_each_format_gives_the_same_table(name: str, content: str, tmp_path: Path) -> None:
    table = read(written(tmp_path, name, content))
    assert whole(table) == (READS, LABELS)
    assert list(table.features) == ["p1", "p2", "p3", "p4"] and table.task == "sequence_labelling"
    assert table.notes == (("north: qualities are not used",) if "q" in name else ())


def test_what_is_converted_is_said(tmp_path: Path) -> None:
    reads = ["acgt", "UUAC", "RYAC", "ACGTA", "AC"]
    labels = ["abab", "abab", "abab", "ababb", "ba"]
    table = read(written(tmp_path, "a.fasta", fasta(reads, labels)))
    assert whole(table) == (["ACGT", "TTAC", "NNAC", "ACGT", "AC"], ["abab", "abab", "abab", "abab", "ba??"])
    assert table.notes == (
        "north: lower-case bases in 1 reads are taken as capitals",
        "north: 2 U are taken as T",
        "north: letters for one of several bases became N: R (1), Y (1)",
        "north: 1 reads are shorter than 4: no base and no label behind their end",
        "north: 1 reads are longer than 4: what is behind is cut off",
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.fasta", fasta().replace("GGCA", "GG-A"), r"record 3 \(r2\): expected bases .*found '-' at position 3"),
        ("a.fastq", fastq().replace("GGCA", "GGXA"), r"line 10 \(r2\): expected bases .*found 'X' at position 3"),
        ("a.csv", csv().replace("GGCA", "GG5A"), "row 3 of data: expected bases .*found '5' at position 3"),
        ("a.fasta", fasta()[:-2], r"record 5 \(r4\): expected a label for each of 3 bases .*found 4"),
        ("a.fasta", "ACGT\n" + fasta(), "line 1: expected FASTA, found something else"),
        ("a.fasta", fasta(labels=None), r"record 1 \(r0\): expected its labels once in the header .*found none"),
        ("a.fasta", "", "expected reads, found an empty file"),
        ("a.fastq", fastq()[:-9], "line 18: expected FASTQ, found something else: Premature end"),
        ("a.fastq", fastq().replace("+\n####\n@r3", "+\n###\n@r3"), "line 12: expected FASTQ, found something else"),
        ("a.fastq", fastq().replace("+\n####\n@r3", "####\n@r3"), "line 11: expected FASTQ, found something else"),
        ("a.fasta", fasta().replace("aabb", "????"), r"record 1 \(r0\): expected a label at some of its positions"),
        ("a.fasta", fasta().replace("GGCA", "GGÄA"), "r2|ASCII"),
        ("a.fasta", fasta([*READS, "CCCCCC"], [*LABELS, "????bb"]), "record 6 .*a label within the first 4 .length."),
        ("a.csv", csv().replace("GGCA,bbaa", ","), "row 3 of data: .*found no bases"),
        ("a.csv", csv().replace("GGCA", "\n\nGG5A"), "row 3 of data: expected bases"),
        ("a.csv", csv().replace("bbaa", "bb a"), "row 3 of data: .*found white space at position 3"),
        ("a.csv", csv(READS, READS), "expected labels, found the bases themselves"),
        ("a.csv", csv().replace("labels", "label"), "expected a column 'labels' .*found 'read', 'label'"),
        ("a.csv", csv().replace("ACCA,", "ACCA"), "line 5: expected 2 fields .*, found 1"),
        ("a.csv", csv().replace("bbaa", "bba"), "row 3 of data: expected a label for each of 4 bases .*found 3"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_file_and_place(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    told = str(caught.value)
    assert told.startswith(f"client 'north', file {path}") and "\n" not in told


@pytest.mark.parametrize("name", ["a.fastq.gz", "a.csv.gz"])
def test_a_packed_file_that_is_cut_short_is_an_error(name: str, tmp_path: Path) -> None:
    many = [read * 8 for read in READS] * 200
    labels = [own * 8 for own in LABELS] * 200
    path = written(tmp_path, name, fastq(many, labels) if "q" in name else csv(many, labels))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"cut short or damaged|Truncated"):
        read(path, 32)
    path.write_bytes(b"no gzip at all")
    with pytest.raises(DataError, match=r"damaged|found none"):
        read(path, 32)


def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found {.north.: 7}"):
        Reads({"north": 7})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"a file for each client .*found {}"):
        Reads({})
    with pytest.raises(ConfigError, match=r"length: expected at least 1 position"):
        Reads({"north": "a.fa"}, length=0)
    for files, more, message in (
        (["a.fa"], {}, r"files: expected a path, a pattern, or .*found \['a.fa'\]"),
        ("a.csv", {"length": True}, "length: .*found True"),
    ):
        with pytest.raises(ConfigError, match=message):
            Reads(files, **more)  # type: ignore[arg-type]
    path = written(tmp_path, "a.bam", "x")
    with pytest.raises(ConfigError, match=r"expected a name that ends in one of .fasta"):
        read(path)
    with pytest.raises(DataError, match=r"client 'north': expected a file .*none.fa, found none"):
        read(tmp_path / "none.fa")


def test_a_folder_is_a_client_for_each_of_its_files_and_what_stands_twice_is_said(tmp_path: Path) -> None:
    for name, content in (("south.fasta", fasta() + fasta()), ("north.csv", csv()), ("README", "?"), (".x.csv", "?")):
        written(tmp_path, name, content)
    north, south = Reads(str(tmp_path), 4).tables(0)
    assert (north.name, south.name) == ("north", "south") and whole(north) == (READS, LABELS)
    assert north.notes[0].endswith("README (another ending)")
    (note,) = south.notes
    assert note.startswith("south: 5 names of records stand there several times, such as 'r0'")
    path = str(tmp_path / "north.csv")
    tables = Reads({"a": path, "b": path}, 4).tables(0)
    assert [table.notes[0].endswith("at another") for table in tables] == [True, True] and "b too" in tables[0].notes[0]
    with pytest.raises(DataError, match=r"^reads: files: expected files that fit .*none/\*, found none"):
        Reads(str(tmp_path / "none/*"), 4).tables(0)
