"""Labelled reads: small FASTA and FASTQ files, whole and damaged; made-up populations, at the rates
that are stated."""

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_tables import fasta, reads_of

from fedlit.data.sources import Populations, Reads
from fedlit.data.sources.reads import BASES
from fedlit.data.table import ClientTable
from fedlit.errors import DataError

READS = ["ACGT", "TTNA", "GGCA", "ACCA", "CATG"]
LABELS = ["aabb", "ab?b", "bbaa", "abab", "bbb?"]
NAMES = ["r some words"] * 6
FASTA = fasta(NAMES[:5], READS, LABELS)
FASTQ = "".join(
    f"@r labels={y}\n{x}\n+\n{'#' * len(x)}\n" for x, y in zip(READS, LABELS, strict=True)
)


def read(path: Path, content: str | bytes) -> ClientTable:
    own = content.encode() if isinstance(content, str) else content
    path.write_bytes(
        gzip.compress(own) if path.suffix == ".gz" and isinstance(content, str) else own
    )
    (table,) = Reads({"north": str(path)}, 4).tables(0)
    return table


def whole(table: ClientTable) -> tuple[list[str], list[str]]:
    return reads_of(table), table.target.tolist()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.fna", FASTA.replace("\n", "\r\n")),
        ("a.fasta", FASTA.replace("ACGT", "AC\nGT")),  # a sequence over two lines
        ("a.fq.gz", FASTQ),
    ],
)
def test_each_format_gives_the_same_table(name: str, content: str, tmp_path: Path) -> None:
    table = read(tmp_path / name, content)
    assert whole(table) == (READS, LABELS) and not table.notes
    assert list(table.features) == ["p1", "p2", "p3", "p4"] and table.task == "sequence_labelling"


def test_what_is_converted_is_noted(tmp_path: Path) -> None:
    reads = ["acgt", "UUAC", "RYAC", "ACGTA", "AC"]
    labels = ["abab", "abab", "abab", "ababb", "ba"]
    table = read(tmp_path / "a.fasta", fasta(NAMES[:5], reads, labels))
    assert whole(table) == (
        ["ACGT", "TTAC", "NNAC", "ACGT", "AC"],
        ["abab", "abab", "abab", "abab", "ba??"],
    )
    for word in (
        "U to T (2)",
        "R to N (1)",
        "a to A (1)",
        "1 read shorter than 4",
        "1 read longer than 4",
    ):
        assert any(word in note and note.startswith("north: ") for note in table.notes), word


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.fasta", FASTA.replace("GGCA", "GG-A"), "read 3: expected bases .*found '-'"),
        ("a.fasta", "ACGT\n" + FASTA, "expected FASTA or FASTQ"),
        ("a.fasta", "", "expected reads, found an empty file"),
        (
            "a.fasta",
            fasta(NAMES, [*READS, "CCCCCC"], [*LABELS, "????bb"]),
            "read 6: expected a label",
        ),
        ("a.fastq.gz", gzip.compress((FASTQ * 200).encode(), mtime=0)[:-40], "expected|cannot"),
    ],
)
def test_a_damaged_file_is_refused(
    name: str, content: str | bytes, word: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=word) as caught:
        read(tmp_path / name, content)
    message = str(caught.value)
    assert message.startswith(f"client 'north', file {tmp_path / name}") and "\n" not in message


def test_a_folder_is_a_client_for_each_of_its_files(tmp_path: Path) -> None:
    for name, content in (
        ("south.fasta", FASTA),
        ("north.fq", FASTQ),
        ("README", "?"),
        (".x.fa", "?"),
    ):
        (tmp_path / name).write_text(content)
    north, south = Reads(str(tmp_path), 4).tables(0)
    assert whole(north) == whole(south) == (READS, LABELS)
    assert north.notes[0].endswith("not read: README")


# ------------------------------------------------------------------ populations

N = BASES.index("N")


def arrays(table: ClientTable) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, length) and labels (n, length)."""
    codes = np.stack([table.features[name].cat.codes for name in table.features], 1)
    return codes, np.array([list(text) for text in table.target])


def equal(first: ClientTable, second: ClientTable) -> None:
    assert first.name == second.name
    pd.testing.assert_frame_equal(first.features, second.features)
    pd.testing.assert_series_equal(first.target, second.target)
    assert all(np.array_equal(first.splits[split], second.splits[split]) for split in first.splits)


def test_a_seed_draws_everything_and_files_are_read_back(tmp_path: Path) -> None:
    source = Populations(populations=2, clients=2, reads=20, length=30, reference=500)
    first = source.tables(3)
    assert [table.name for table in first] == ["pop1_1", "pop1_2", "pop2_1", "pop2_2"]
    for table in first:
        text = fasta([f"r{row}" for row in range(20)], reads_of(table), table.target.tolist())
        (tmp_path / f"{table.name}.fasta").write_text(text)
    for one, other, read in zip(
        first, source.tables(3), Reads(str(tmp_path), length=30).tables(3), strict=True
    ):
        equal(one, other)
        equal(one, read)
        assert one.features.shape == (20, 30) and set(
            one.features.iloc[:, 0].cat.categories
        ) == set(BASES)
    assert not first[0].features.equals(source.tables(4)[0].features)
    fewer = Populations(populations=2, clients=1, reads=20, length=30, reference=500).tables(3)
    equal(fewer[0], first[0])  # clients do not depend on each other


def test_allele_frequencies_have_balding_and_nichols_moments() -> None:
    drift = 0.2
    populations = 300
    world = Populations(
        populations=populations, reference=4000, variants=0.05, divergence=drift
    ).world(0)
    p = world.ancestral
    assert abs(len(world.sites) - 200) < 4 * np.sqrt(4000 * 0.05 * 0.95)
    assert (world.alternative != world.reference[world.sites]).all()
    assert p.min() >= 0.05 and p.max() <= 0.95
    spread = drift * p * (1 - p)
    z = (world.frequencies.mean(0) - p) / np.sqrt(spread / populations)
    assert abs(z.mean()) < 0.3 and 0.85 < z.std() < 1.15  # standard normal, of 200 sites
    ratio = world.frequencies.var(0, ddof=1) / spread
    assert abs(ratio.mean() - 1) < 0.03


def test_reads_have_the_stated_rates() -> None:
    source = Populations(1, 1, 2000, 40, 3000, variants=0.1, errors=0.05)
    (table,) = source.tables(1)
    world = source.world(1)
    (codes, labels) = arrays(table)
    assert abs((codes == N).mean() - 0.001) < 4 * np.sqrt(0.001 / codes.size)
    # each read is where fewest of its bases differ from the reference
    windows = np.lib.stride_tricks.sliding_window_view(world.reference, 40)
    places = np.array([(windows != own).sum(1).argmin() for own in codes[:400]])[
        :, None
    ] + np.arange(40)
    chance = np.zeros(3000)
    chance[world.sites] = world.frequencies[0]
    # the second base is read right or as a third one; the first as the second or a third one
    expected = 0.999 * (chance * (1 - 0.05 / 3) + (1 - chance) * 0.05)[places]
    wrong = (codes[:400] != world.reference[places]) & (codes[:400] != N)
    varying = (chance > 0)[places]
    for some in (varying, ~varying):
        assert abs((wrong - expected)[some].mean()) < 4 * np.sqrt(
            expected[some].mean() / some.sum()
        )
    assert ((labels[:400] == "1") == varying).mean() > 0.99  # some reads fit elsewhere as well


def test_the_shift_flips_recurrent_words_and_pairs_cg_vary_most() -> None:
    source = Populations(2, 1, 40, 30, 5000, errors=0.0, variants=0.03, flipped=[2], flip=0.3)
    world = source.world(4)
    words = [
        tuple(np.take(world.reference, range(k - 2, k + 3), mode="wrap").tolist())
        for k in range(5000)
    ]
    counts = Counter(words)
    recurrent = world.recurrent
    assert 0.25 < recurrent.mean() <= 0.3
    often = np.array([counts[word] for word in words])
    assert often[recurrent].min() >= often[~recurrent].max()
    varies = np.isin(np.arange(5000), world.sites)
    pairs = np.zeros(5000, bool)
    first = np.flatnonzero(
        (world.reference[:-1] == BASES.index("C")) & (world.reference[1:] == BASES.index("G"))
    )
    pairs[first] = pairs[first + 1] = True
    assert varies[pairs].mean() == pytest.approx(10 * varies[~pairs].mean(), rel=0.5)
    windows = np.lib.stride_tricks.sliding_window_view(world.reference, 30)
    fixed = ~np.lib.stride_tricks.sliding_window_view(varies, 30)
    for number, table in enumerate(source.tables(4)):
        assert table.concept == str(number + 1)
        for codes, labels in zip(*arrays(table), strict=True):
            # where the read fits
            (places,) = np.nonzero(((windows != codes) & fixed & (codes != N)).sum(1) == 0)
            expected = [
                varies[p : p + 30] ^ (recurrent[p : p + 30] & (number == 1)) for p in places
            ]
            assert any(np.array_equal(labels == "1", one) for one in expected)
