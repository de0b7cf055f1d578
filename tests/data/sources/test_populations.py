"""Made-up populations: drawn alike by a seed, at the rates that are stated; and written as files that are read back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedlit.data.shaping.concept import ConceptShift
from fedlit.data.sources import Populations, Reads
from fedlit.data.sources.populations import KINDS
from fedlit.data.sources.reads import BASES, codes_in, write_reads
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError


def arrays(table: ClientTable) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, length) and labels (n, length)."""
    return codes_in(table.features), np.array([list(text) for text in table.target])


def equal(first: ClientTable, second: ClientTable) -> None:
    assert first.name == second.name
    pd.testing.assert_frame_equal(first.features, second.features)
    pd.testing.assert_series_equal(first.target, second.target)
    assert all(np.array_equal(first.splits[split], second.splits[split]) for split in first.splits)


def test_a_seed_draws_everything_and_clients_do_not_depend_on_each_other() -> None:
    source = Populations(populations=2, clients=2, reads=20, length=30, reference=500)
    first = source.tables(3)
    assert [table.name for table in first] == ["pop1_1", "pop1_2", "pop2_1", "pop2_2"]
    for one, other in zip(first, source.tables(3), strict=True):
        equal(one, other)
    assert not first[0].features.equals(source.tables(4)[0].features)
    fewer = Populations(populations=2, clients=1, reads=20, length=30, reference=500).tables(3)
    equal(fewer[0], first[0])
    assert all(table.features.shape == (20, 30) and set(table.features.iloc[:, 0].cat.categories) == set(BASES)
               for table in first)  # fmt: skip


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
    source = Populations(
        1, 1, 2000, 40, 3000, variants=0.1, errors=0.05, uncalled=0.02, unlabelled=0.3, labels="regions"
    )
    (table,) = source.tables(1)
    world, (codes, labels) = source.world(1), arrays(table)
    total = codes.size
    assert abs((codes == BASES.index("N")).mean() - 0.02) < 4 * np.sqrt(0.02 / total)
    assert abs((labels == "?").mean() - 0.3) < 4 * np.sqrt(0.3 / total)
    # each read is where fewest of its bases differ from the reference
    windows = np.lib.stride_tricks.sliding_window_view(world.reference, 40)
    places = np.array([(windows != own).sum(1).argmin() for own in codes[:400]])[:, None] + np.arange(40)
    frequency = np.zeros(3000)
    frequency[world.sites] = world.frequencies[0]
    wrong = (codes[:400] != world.reference[places]) & (codes[:400] != BASES.index("N"))
    plain = frequency[places] == 0
    assert abs(wrong[plain].mean() - 0.05 * 0.98) < 4 * np.sqrt(0.05 / plain.sum())
    varying, chance = ~plain, frequency[places]
    # the second base is read right or as a third one; the first as the second or a third one
    expected = 0.98 * (chance * (1 - 0.05 / 3) + (1 - chance) * 0.05)[varying]
    assert abs(wrong[varying].mean() - expected.mean()) < 4 * np.sqrt(0.25 / varying.sum())
    kinds = np.array(list(KINDS))[world.kinds[places]]
    assert ((labels[:400] == kinds) | (labels[:400] == "?")).mean() > 0.99  # some reads fit elsewhere as well


def test_regions_are_geometric_and_their_bases_those_of_their_kind() -> None:
    world = Populations(reference=40000, region=50).world(2)
    ends = np.flatnonzero(np.diff(world.kinds)) + 1
    same = 0.5**2 + 0.3**2 + 0.2**2  # neighbours of one kind look like one region
    assert np.diff(ends).mean() == pytest.approx(50 / (1 - same), rel=0.1)
    share = [(world.kinds == kind).mean() for kind in range(3)]
    assert share == pytest.approx([0.5, 0.3, 0.2], abs=0.07)
    rich = [np.isin(world.reference[world.kinds == kind], [1, 2]).mean() for kind in range(3)]
    assert rich[0] == pytest.approx(0.4, abs=0.02) and rich[1] > 0.6  # C and G


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    source = Populations(2, 1, 30, 12, 300, unlabelled=0.1)
    files = write_reads(source.tables(5), tmp_path)
    assert sorted(files) == ["pop1_1", "pop2_1"]
    read = Reads({name: str(path) for name, path in files.items()}, length=12).tables(5)
    for one, other in zip(source.tables(5), read, strict=True):
        equal(one, other)
        assert not other.notes


def test_a_shift_of_concepts_permutes_labels_position_by_position() -> None:
    source = Populations(2, 1, 10, 50, 300, unlabelled=0.1, labels="regions")
    shifted = ConceptShift(source, concepts=2, groups=[["pop1_*"], ["pop2_*"]]).tables(0)
    plain = source.tables(0)
    equal(plain[0], shifted[0])
    assert [table.concept for table in shifted] == ["1", "2"]
    before, after = arrays(plain[1])[1], arrays(shifted[1])[1]
    meanings = {(one, other) for one, other in zip(before.ravel(), after.ravel(), strict=True)}
    assert ("?", "?") in meanings and len(meanings) == 4
    assert all(one != other for one, other in meanings if one != "?")


def test_a_position_is_a_reported_variant_or_not_and_the_shift_flips_recurrent_words() -> None:
    source = Populations(2, 1, 40, 30, 5000, errors=0.0, uncalled=0.0, variants=0.03, flipped=[2], flip=0.3)
    world = source.world(4)
    words = [
        "".join(BASES[code] for code in np.take(world.reference, range(k - 2, k + 3), mode="wrap")) for k in range(5000)
    ]
    counts = Counter(words)
    share = world.recurrent.mean()
    assert 0.25 < share <= 0.3
    assert min(counts[words[k]] for k in np.flatnonzero(world.recurrent)) >= max(
        counts[words[k]] for k in np.flatnonzero(~world.recurrent)
    )
    hot = [
        k for k in range(4999) if world.reference[k] == BASES.index("C") and world.reference[k + 1] == BASES.index("G")
    ]
    varies = np.isin(np.arange(5000), world.sites)
    pairs = np.isin(np.arange(5000), [*hot, *(k + 1 for k in hot)])
    assert varies[pairs].mean() == pytest.approx(10 * varies[~pairs].mean(), rel=0.5)
    windows = np.lib.stride_tricks.sliding_window_view(world.reference, 30)
    for number, table in enumerate(source.tables(4)):
        codes, labels = arrays(table)
        differs = (windows[None] != codes[:, None]) & ~np.lib.stride_tricks.sliding_window_view(varies, 30)[None]
        for row, own in enumerate(differs.sum(2)):
            (places,) = np.nonzero(own == 0)  # a read fits where it differs at varying positions alone
            expected = [varies[p : p + 30] ^ (world.recurrent[p : p + 30] & (number == 1)) for p in places]
            assert any(np.array_equal(labels[row] == "1", one) for one in expected)
    assert [table.concept for table in source.tables(4)] == ["1", "2"]


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
