"""Made-up populations: drawn alike by a seed, at the rates that are stated; and read back from files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_tables import fasta, reads_of

from fedlit.data.sources import Populations, Reads
from fedlit.data.sources.reads import BASES
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError

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
    for one, other, read in zip(first, source.tables(3), Reads(str(tmp_path), length=30).tables(3), strict=True):
        equal(one, other)
        equal(one, read)
        assert one.features.shape == (20, 30) and set(one.features.iloc[:, 0].cat.categories) == set(BASES)
    assert not first[0].features.equals(source.tables(4)[0].features)
    fewer = Populations(populations=2, clients=1, reads=20, length=30, reference=500).tables(3)
    equal(fewer[0], first[0])  # clients do not depend on each other


def test_allele_frequencies_have_the_moments_of_balding_and_nichols() -> None:
    drift, populations = 0.2, 300
    world = Populations(populations=populations, reference=4000, variants=0.05, divergence=drift).world(0)
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
    world, (codes, labels) = source.world(1), arrays(table)
    assert abs((codes == N).mean() - 0.001) < 4 * np.sqrt(0.001 / codes.size)
    # each read is where fewest of its bases differ from the reference
    windows = np.lib.stride_tricks.sliding_window_view(world.reference, 40)
    places = np.array([(windows != own).sum(1).argmin() for own in codes[:400]])[:, None] + np.arange(40)
    frequency = np.zeros(3000)
    frequency[world.sites] = world.frequencies[0]
    wrong = (codes[:400] != world.reference[places]) & (codes[:400] != N)
    plain = frequency[places] == 0
    assert abs(wrong[plain].mean() - 0.05 * 0.999) < 4 * np.sqrt(0.05 / plain.sum())
    varying, chance = ~plain, frequency[places]
    # the second base is read right or as a third one; the first as the second or a third one
    expected = 0.999 * (chance * (1 - 0.05 / 3) + (1 - chance) * 0.05)[varying]
    assert abs(wrong[varying].mean() - expected.mean()) < 4 * np.sqrt(0.25 / varying.sum())
    reported = np.isin(np.arange(3000), world.sites)[places]
    assert ((labels[:400] == "1") == reported).mean() > 0.99  # some reads fit elsewhere as well


def test_the_shift_flips_recurrent_words_and_pairs_cg_vary_most() -> None:
    source = Populations(2, 1, 40, 30, 5000, errors=0.0, variants=0.03, flipped=[2], flip=0.3)
    world = source.world(4)
    words = [tuple(np.take(world.reference, range(k - 2, k + 3), mode="wrap").tolist()) for k in range(5000)]
    counts, recurrent = Counter(words), world.recurrent
    assert 0.25 < recurrent.mean() <= 0.3
    often = np.array([counts[word] for word in words])
    assert often[recurrent].min() >= often[~recurrent].max()
    varies, pairs = np.isin(np.arange(5000), world.sites), np.zeros(5000, bool)
    first = np.flatnonzero((world.reference[:-1] == BASES.index("C")) & (world.reference[1:] == BASES.index("G")))
    pairs[first] = pairs[first + 1] = True
    assert varies[pairs].mean() == pytest.approx(10 * varies[~pairs].mean(), rel=0.5)
    windows = np.lib.stride_tricks.sliding_window_view(world.reference, 30)
    fixed = ~np.lib.stride_tricks.sliding_window_view(varies, 30)
    for number, table in enumerate(source.tables(4)):
        assert table.concept == str(number + 1)
        for codes, labels in zip(*arrays(table), strict=True):
            (places,) = np.nonzero(((windows != codes) & fixed & (codes != N)).sum(1) == 0)  # where the read fits
            expected = [varies[p : p + 30] ^ (recurrent[p : p + 30] & (number == 1)) for p in places]
            assert any(np.array_equal(labels == "1", one) for one in expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"populations": 0}, "populations: expected at least 1, found 0"),
        ({"reference": 20}, "reference: expected at least 150, found 20"),
        ({"divergence": 0.0}, "divergence: expected a number above 0"),
        ({"errors": 1.5}, r"errors: expected a share in \[0, 1\], found 1.5"),
        ({"flipped": [5]}, "flipped: expected numbers from 1 to 4"),
    ],
)
def test_impossible_populations_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Populations(**changes)  # type: ignore[arg-type]
