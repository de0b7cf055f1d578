"""Partition and its deals, by rows, distances and columns: all rows once, splits kept, by the seed,
as a deal says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from fedlit.data.agree import negotiate
from fedlit.data.shaping.by_distance import Distance
from fedlit.data.shaping.common_columns import RANKS, choose_common, correlations
from fedlit.data.shaping.derived import ColumnSplit
from fedlit.data.shaping.partition import ByColumn, Deal, Dirichlet, Hand, Partition, Redraw
from fedlit.data.shaping.space import Space, codes_of_autoencoder, emd
from fedlit.data.sources import Bundled, Reads, Tables
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.data.terms import Terms
from fedlit.errors import ConfigError, DataError

DIGITS = Bundled(clients=["digits"])
DIABETES = Bundled(clients=["diabetes"])
TEN = np.repeat(np.arange(10), 600)


def whole_of(y: Sequence[Any] | np.ndarray) -> ClientTable:
    rng = np.random.default_rng(0)
    train, validation, test = np.split(
        rng.permutation(len(y)), [6 * len(y) // 10, 8 * len(y) // 10]
    )
    features = pd.DataFrame({"x": rng.normal(size=len(y))})
    return ClientTable(
        "all", features, pd.Series(y), {"train": train, "validation": validation, "test": test}
    )


def shares(whole: ClientTable, hands: dict[str, Hand], split: Split = "train") -> np.ndarray:
    """(clients, classes), the part of a class's rows that a client has."""
    counts = pd.DataFrame(
        {name: whole.target.iloc[hand[split]].value_counts() for name, hand in hands.items()}
    )
    return (counts.fillna(0).div(counts.sum(axis=1), axis=0)).sort_index().to_numpy().T


@pytest.mark.parametrize("deal", [None, Dirichlet(1.0), Distance("middle")])
def test_every_row_goes_to_one_client_in_its_own_split(deal: Deal | None) -> None:
    (whole,) = DIGITS.tables(seed=3)
    split_of = {row: split for split in SPLITS for row in whole.features.index[whole.splits[split]]}
    parts, again, other = (
        Partition(DIGITS, clients=4, deal=deal).tables(seed) for seed in (3, 3, 4)
    )
    assert [part.name for part in parts] == ["c01", "c02", "c03", "c04"]
    assert sorted(np.concatenate([part.features.index for part in parts])) == sorted(
        whole.features.index
    )
    for part, same in zip(parts, again, strict=True):
        assert all(
            set(map(split_of.get, part.features.index[part.splits[split]])) == {split}
            for split in SPLITS
        )
        assert part.features.equals(same.features) and part.features.equals(
            whole.features.loc[part.features.index]
        )
        assert part.target.equals(whole.target.loc[part.target.index])
    assert any(
        not part.features.index.equals(new.features.index)
        for part, new in zip(parts, other, strict=True)
    )


def test_splits_are_drawn_anew_and_test_rows_can_be_shared() -> None:
    (whole,) = DIGITS.tables(seed=3)
    rows = set(
        whole.features.index[np.concatenate([whole.splits["train"], whole.splits["validation"]])]
    )
    parts = Partition(
        DIGITS, 5, redraw=Redraw(("train", "validation"), 0.2, 0.25), shared_test=True
    ).tables(seed=3)
    own = {
        split: [set(part.features.index[part.splits[split]]) for part in parts] for split in SPLITS
    }
    assert all(test == own["test"][0] for test in own["test"])
    dealt = [*own["train"], *own["validation"], own["test"][0]]
    assert set().union(*dealt) == rows and sum(map(len, dealt)) == len(rows)
    found = [sum(map(len, own["train"])), sum(map(len, own["validation"])), len(own["test"][0])]
    np.testing.assert_allclose(np.array(found) / len(rows), [0.6, 0.2, 0.2], atol=0.001)


def test_dirichlet_shares_have_its_mean_and_variance() -> None:
    whole = whole_of(TEN)
    hands = [Dirichlet(0.5, least=1).deal(whole, 4, seed) for seed in range(40)]
    drawn = np.concatenate([shares(whole, own).ravel() for own in hands])
    np.testing.assert_allclose(drawn.mean(), 1 / 4, atol=1e-6)
    np.testing.assert_allclose(drawn.var(), (1 / 4) * (3 / 4) / (4 * 0.5 + 1), rtol=0.1)
    np.testing.assert_allclose(
        shares(whole, hands[1], "train"), shares(whole, hands[1], "test"), atol=0.02
    )
    np.testing.assert_allclose(
        shares(whole, Dirichlet(1e6).deal(whole, 4, seed=1)), 1 / 4, atol=0.01
    )
    least = Dirichlet(0.1, least=150).deal(whole, 8, 0)
    assert min(len(hand["train"]) for hand in least.values()) >= 150


@pytest.mark.parametrize("deal", [Dirichlet(1.0, least=1), Distance("middle")])
def test_the_deal_does_not_depend_on_the_order_of_rows_or_splits(deal: Deal) -> None:
    whole = whole_of(np.repeat(["a", "b", "c"], 100))
    turned = replace(
        whole, splits={split: rows[::-1] for split, rows in [*whole.splits.items()][::-1]}
    )
    for hand, other in zip(
        *(deal.deal(own, 3, 5).values() for own in (whole, turned)), strict=True
    ):
        assert all(np.array_equal(hand[split], other[split]) for split in whole.splits)


def by_column(
    values: list[Any],
    cuts: list[float] | None = None,
    clients: int | None = None,
    column: str = "own",
) -> dict[str, list[Any]]:
    frame = pd.DataFrame({"own": values})
    whole = ClientTable("all", frame, frame["own"], {"train": np.arange(len(values))})
    hands = ByColumn(column, cuts=cuts).deal(whole, clients, 0)
    return {name: [values[row] for row in hand["train"]] for name, hand in hands.items()}


def test_each_value_of_a_column_or_range_of_a_number_is_a_client() -> None:
    held = by_column([44.9, 45.0, 60.0, 59.9, 88.0], [45, 60])
    assert held == {"45-to-60": [45.0, 59.9], "below-45": [44.9], "from-60": [60.0, 88.0]}
    assert by_column([2.0, 1.0]) == {"1": [1.0], "2": [2.0]}
    towns = by_column(["Zug", "St. Gallen", "Bern", "Zug"])
    assert towns == {"Bern": ["Bern"], "St_Gallen": ["St. Gallen"], "Zug": ["Zug", "Zug"]}


# ------------------------------------------------------------------ distances


def test_the_distance_is_scipys_or_that_of_an_assignment() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(6, 3))
    b = rng.normal(size=(4, 3))
    y = rng.integers(0, 2, 6)
    z = rng.integers(0, 2, 4)
    same = emd(a[:, :1], np.zeros(6), b[:, :1], np.zeros(4), 9.0)
    assert same == pytest.approx(wasserstein_distance(a[:, 0], b[:, 0]))
    cost = cdist(a, b) + 0.7 * (y[:, None] != z)
    twelve = cost.repeat(2, 0).repeat(3, 1)  # as many rows on both sides
    assert emd(a, y, b, z, 0.7) == pytest.approx(twelve[linear_sum_assignment(twelve)].mean())


def test_another_label_costs_the_mean_distance_over_rows() -> None:
    frame = pd.DataFrame({"x": [0.0, 0.0, 0.0, 4.0]})
    rows = np.arange(4)
    space = Space(
        ClientTable("all", frame, pd.Series([0, 0, 0, 1]), {"train": rows}),
        rows,
        seed=0,
        features="raw",
    )
    mean, each = space.mean(np.array([0, 0, 0, 1]))
    label = 3 * 4.0 / 6  # three of six pairs of rows are 4 apart
    assert each == pytest.approx([0.25 * (4 + label), 0.75 * (4 + label)])
    assert mean == pytest.approx((1 * 0.75 + 3 * 0.25) / 4 * (4 + label))
    assert np.isnan(space.normal(np.array([0, 0, 0, 1])))


def test_standardised_columns_indicators_and_missing_numbers() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, np.nan, 3.0, 99.0], "kind": ["x", "y", None, "x"], "b": [5.0] * 4}
    )
    whole = ClientTable("all", frame, pd.Series([0, 1, 0, 1]), {}, ("kind",))
    # by the three training rows
    expected = [[-1, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [97, 0, 1, 0]]
    np.testing.assert_allclose(Space(whole, np.arange(3), 0).x, expected, rtol=1e-6)
    raw = Space(whole, np.arange(3), 0, features="raw")
    np.testing.assert_allclose(raw.x[:, :2], [[1, 5], [2, 5], [3, 5], [99, 5]])


@pytest.mark.parametrize("features", ["standardised", "raw"])
def test_the_dial_reaches_what_is_wanted(features: Any) -> None:
    (whole,) = DIGITS.tables(seed=1)
    space = Space(whole, np.sort(whole.splits["train"]), 1, features)
    owner = np.empty(1797, int)
    found = []
    for wanted in ("highest", "middle", "lowest"):
        for client, hand in enumerate(Distance(wanted, features).deal(whole, 5, seed=1).values()):
            assert len(hand["train"]) >= 20
            owner[hand["train"]] = client
        found.append(space.mean(owner)[0])
    highest, middle, lowest = found
    assert highest > middle > lowest
    goal = (highest + lowest) / 2
    assert goal - 0.1 * (highest - lowest) <= middle <= goal + 1e-6 + 0.02 * (highest - lowest)


def mean_of(space: Space, hands: dict[str, Hand], rows: int) -> float:
    owner = np.empty(rows, int)
    for client, hand in enumerate(hands.values()):
        owner[hand["train"]] = client
    return space.mean(owner)[0]


@pytest.mark.parametrize(
    ("features", "wanted"), [("standardised", 9.5), ("raw", 48.9), ("autoencoded", 6.5)]
)
def test_a_number_is_reached_in_its_space(features: Any, wanted: float) -> None:
    (whole,) = DIGITS.tables(seed=1)
    space = Space(whole, np.sort(whole.splits["train"]), 1, features, code=30)
    hands = Distance(wanted, features, code=30).deal(whole, 5, seed=1)
    assert 0.97 * wanted <= mean_of(space, hands, 1797) <= 1.001 * wanted
    with pytest.raises(ConfigError, match=r"a distance from \d.* to \d.*, found 999"):
        Distance(999, features, code=30).deal(whole, 5, seed=1)


def test_codes_are_few_and_keep_what_varies() -> None:
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(600, 2))
    x = (hidden @ rng.normal(size=(2, 12)) + 0.01 * rng.normal(size=(600, 12))).astype(np.float32)
    codes = codes_of_autoencoder(x, np.arange(400), 8, seed=0)
    assert codes.shape == (600, 8) and np.array_equal(
        codes, codes_of_autoencoder(x, np.arange(400), 8, seed=0)
    )
    linear = np.column_stack([codes, np.ones(600)])
    fitted = linear[:400]
    left = hidden[400:] - linear[400:] @ np.linalg.lstsq(fitted, hidden[:400], rcond=None)[0]
    assert left.var() < 0.1 * hidden.var()  # in rows that it did not see


def write_reads(folder: Path, rows: int) -> None:
    """Reads of two kinds, whose labels mark C and G in one and A and T in the other."""
    rng = np.random.default_rng(0)
    lines = []
    for row in range(rows):
        read = "".join(rng.choice(list("CCCG" if row % 2 else "AAAT"), 12))
        labels = "".join(str(int(base in "GT")) for base in read)
        lines += [f">r{row} labels={labels}", read]
    (folder / "all.fasta").write_text("\n".join(lines) + "\n")


def test_reads_are_dealt_by_bases_and_the_share_of_other_labels(tmp_path: Path) -> None:
    write_reads(tmp_path, 200)
    source = Reads({"genomes": str(tmp_path / "all.fasta")}, length=12)
    (whole,) = source.tables(seed=0)
    train = np.sort(whole.splits["train"])
    space = Space(whole, train, 0)
    bases = np.array([list(read) for read in whole.features.astype(str).agg("".join, axis=1)])
    letters = np.array([list(labels) for labels in whole.target])
    differ = (bases[:, None] != bases[None]).sum(axis=2)
    np.testing.assert_allclose(cdist(space.x, space.x) ** 2, 2 * differ, atol=1e-4)
    one = train[:3]
    two = train[3:6]
    label = cdist(space.x, space.x)[np.ix_(train, train)].sum() / (len(train) * (len(train) - 1))
    others = (letters[one][:, None] != letters[two][None]).mean(axis=2)
    cost = np.sqrt(2 * differ[np.ix_(one, two)]) + label * others
    expected = cost[linear_sum_assignment(cost)].mean()
    assert emd(space.x[one], space.y[one], space.x[two], space.y[two], label) == pytest.approx(
        expected, rel=1e-5
    )
    for features in ("standardised", "autoencoded"):
        deal = Distance("highest", features, code=8)
        tables = Partition(source, clients=2, deal=deal).tables(seed=0)
        kinds = [{*table.features.astype(str).to_numpy().ravel()} for table in tables]
        assert sorted(map(sorted, kinds)) == [["A", "T"], ["C", "G"]]
    far = mean_of(space, Distance("highest").deal(whole, 2, seed=0), len(whole.target))
    near = mean_of(space, Distance("lowest").deal(whole, 2, seed=0), len(whole.target))
    wanted = (far + 2 * near) / 3
    assert mean_of(
        space, Distance(wanted).deal(whole, 2, seed=0), len(whole.target)
    ) == pytest.approx(wanted, rel=0.05)


def test_k_means_subsets_that_are_too_small_get_rows() -> None:
    far = pd.DataFrame({"x": [*np.zeros(97), 50.0, 100.0, 200.0]})
    rows: Any = {
        "train": np.arange(20, 100),
        "validation": np.arange(10),
        "test": np.arange(10, 20),
    }
    hands = Distance("highest", least=15).deal(
        ClientTable("all", far, pd.Series([0, 1] * 50), rows), 4, seed=0
    )
    assert min(len(hand["train"]) for hand in hands.values()) == 15
    assert all(len(hand[split]) >= 1 for hand in hands.values() for split in rows)


# ------------------------------------------------------------------ columns

BOTH = Bundled(clients=["breast_cancer", "wine"])
DEALT = Partition(Bundled(clients=["breast_cancer"]), clients=4)  # 30 columns


def test_a_share_of_columns_is_common_and_others_at_one_client() -> None:
    tables = ColumnSplit(DEALT, common=0.3).tables(seed=2)
    (group,) = negotiate(tables, Terms(common="all"))[0].groups or ()
    assert len(group.columns) == 9
    own = [set(table.features) - set(group.columns) for table in tables]
    assert [len(names) for names in own] == [6, 5, 5, 5]
    assert len(set.union(*own)) == 21  # none twice, none lost
    for table, whole in zip(tables, DEALT.tables(seed=2), strict=True):
        assert table.features.equals(whole.features[list(table.features)])
        assert all(np.array_equal(table.splits[split], whole.splits[split]) for split in SPLITS)
    ways = [
        [list(own.features) for own in ColumnSplit(DEALT, ways=3).tables(seed)]
        for seed in (1, 2, 4)
    ]
    assert ways[0] == ways[2] != ways[1]


def common_to(tables: list[ClientTable]) -> list[str]:
    return [
        str(name) for name in tables[0].features if all(name in table.features for table in tables)
    ]


def test_common_columns_by_correlation_are_those_of_all_ways() -> None:
    # 13 columns, of which 4 in common: 715 ways
    source = Partition(Bundled(clients=["wine"]), clients=3)
    tables = source.tables(seed=0)
    training = pd.concat([table.features.iloc[table.splits["train"]] for table in tables])
    related: Any = training.corr().abs()
    names = list(related)
    sums = {
        common: sum(
            related.loc[one, other] for one in common for other in names if other not in common
        )
        for common in combinations(names, 4)
    }
    ordered = sorted(sums, key=lambda common: sums[common])
    expected: dict[Any, Any] = {
        "minimum": ordered[0],
        "median": ordered[len(ordered) // 2],
        "maximum": ordered[-1],
    }
    for by, common in expected.items():
        split = ColumnSplit(source, common=0.3, by=by, ways=1)
        assert common_to(split.tables(seed=0)) == list(common)
        # other rows train there, but the way is the same
        assert common_to(split.tables(seed=5)) == list(common)
    own = {
        tuple(table.features)
        for seed in (0, 1)
        for table in ColumnSplit(source, by="median").tables(seed)
    }
    assert len(own) == 6


def test_of_too_many_ways_drawn_ones_are_compared() -> None:
    (whole,) = Bundled(clients=["breast_cancer"]).tables(seed=0)
    related = whole.features.iloc[whole.splits["train"]].corr().abs().to_numpy()

    def strength(common: np.ndarray) -> float:
        return float(related[common][:, np.setdiff1d(range(30), common)].sum())

    rng = np.random.default_rng(1)
    chance = [strength(rng.permutation(30)[:9]) for _ in range(500)]
    chosen = {
        rank: strength(choose_common(related, 9, rank, np.random.default_rng(0))) for rank in RANKS
    }
    assert chosen["minimum"] <= min(chance) and max(chance) <= chosen["maximum"]
    assert np.quantile(chance, 0.45) < chosen["median"] < np.quantile(chance, 0.55)


def test_categories_correlate_by_codes_and_constants_never() -> None:
    columns: dict[str, Any] = {
        "x": [1.0, 2.0, 3.0, 4.0],
        "c": ["a", "a", "b", "b"],
        "constant": [1.0] * 4,
    }
    splits: dict[Split, np.ndarray] = {
        "train": np.arange(4),
        "validation": np.arange(0),
        "test": np.arange(0),
    }
    table = ClientTable(
        "one", pd.DataFrame(columns), pd.Series([0, 1, 0, 1]), splits, categorical=("c",)
    )
    related = correlations([table])
    assert related[0, 1] == pytest.approx(np.corrcoef(columns["x"], [0, 0, 1, 1])[0, 1])
    assert not related[2].any()


def test_new_rows_need_only_a_clients_own_columns(
    tmp_path: Path,
) -> None:
    rows = pd.DataFrame({f"x{k}": np.arange(60) * 7 % (41 + k) / 4 for k in range(6)})
    rows = rows.assign(site=["a", "b"] * 30, y=[0, 1, 1] * 20)
    for name in ("north", "south"):
        rows.assign(constant=1).to_csv(tmp_path / f"{name}.csv", index=False)
    source = Tables(str(tmp_path), "y")
    dealt = Partition(source, deal=ByColumn("site", drop=True))
    first, second = dealt.tables(0)
    assert (
        first.notes == tuple(note for table in source.tables(0) for note in table.notes)
        and not second.notes
    )
    for table in (first, second, *ColumnSplit(dealt).tables(0)):
        assert table.schema is not None and list(table.schema.used) == list(table.features)
        assert "site" not in table.features and not table.categorical


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Partition(DIGITS, 0).tables(0),
            ConfigError,
            "partition: clients: expected the number .* found 0",
        ),
        (
            lambda: Partition(DIGITS, 4, rows={"train": 3}).tables(0),
            DataError,
            "at least 4 train rows for 4 clients",
        ),
        (
            lambda: Partition(DIGITS, 4, rows={"tarin": 9}).tables(0),  # type: ignore[dict-item]
            ConfigError,
            "rows: .* Did you mean 'train'",
        ),
        (
            lambda: Partition(Bundled(), 2).tables(0),
            DataError,
            "expected the columns, .* found others",
        ),
        (
            lambda: Partition(DIABETES, 3, deal=Dirichlet()).tables(0),
            ConfigError,
            "classes to deal by, .*a number",
        ),
        (lambda: by_column(["a", "b", "c"], clients=4), ConfigError, "clients: .* 3"),
        (lambda: by_column(["a", "b"], column="owm"), ConfigError, "column: .*'own'"),
        (
            lambda: Partition(DIABETES, 3, deal=Distance()).tables(0),
            ConfigError,
            "classes to deal by, .*a number",
        ),
        (lambda: Distance("far"), ConfigError, "partition: deal: emd"),  # type: ignore[arg-type]
        (lambda: Distance(features="row"), ConfigError, "deal: features: .* Did you mean 'raw'"),  # type: ignore[arg-type]
        (
            lambda: Dirichlet(0.01, least=55).deal(whole_of(TEN[::10]), 6, 0),
            DataError,
            "larger alpha than 0.01",
        ),
        (lambda: by_column(["a b", "a_b"]), ConfigError, "client 'a_b': 2 clients have this name"),
        (lambda: by_column(["44.9"], [3]), DataError, "cuts: expected numbers in own"),
        (lambda: ByColumn("age", cuts=[3, 3]), ConfigError, "cuts: .*found \\[3, 3\\]"),
        (
            lambda: ColumnSplit(DEALT, common=0.9).tables(0),
            DataError,
            "beside 27 common ones, found 30 columns",
        ),
        (lambda: ColumnSplit(DEALT, by="most").tables(0), ConfigError, "column split: by"),  # type: ignore[arg-type]
        (
            lambda: ColumnSplit(BOTH).tables(0),
            DataError,
            "the columns of breast_cancer at wine, found others",
        ),
    ],
)
def test_what_is_refused(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
