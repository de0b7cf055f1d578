"""Encoding: what is learnt from training rows alone, the common space, the pooled client, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import Given, N, assert_same, encode, labels, matrix, mixed, numbers, small_tables, table
from sklearn.preprocessing import LabelEncoder, OrdinalEncoder, StandardScaler

from fedlit.data.columns import ColumnEncoder
from fedlit.data.module import FederatedData
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import DataError, FedlitError

PROPERTY = settings(derandomize=True, max_examples=10, deadline=None)
# ------------------------------------------------------------------ numbers


def test_numbers_are_standardised_by_the_clients_own_training_rows() -> None:
    a, b = table("a", {"x": numbers(1), "z": 1e4 * numbers(2)}), table("b", {"x": 3 + numbers(3)}, seed=4)
    for client, source in zip(encode([a, b]), (a, b), strict=True):
        scaler = StandardScaler().fit(source.features.iloc[source.splits["train"]].to_numpy())
        np.testing.assert_allclose(matrix(client), scaler.transform(source.features.to_numpy()), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(client.train.x.mean(0), 0, atol=1e-6)
        np.testing.assert_allclose(client.train.x.std(0, unbiased=False), 1, rtol=1e-6)


def test_rows_keep_split_order_and_source_number() -> None:
    source = mixed("a")
    (client,) = encode([source])
    for split in SPLITS:
        rows = client.sites["a"][split]
        np.testing.assert_array_equal(rows.row, 100 + source.splits[split])
        np.testing.assert_array_equal(rows.x, matrix(client)[source.splits[split]])
        assert len(rows) == client.spec.rows[split] == client.spec.sites[0].rows[split] == len(source.splits[split])
        assert (rows.x.dtype, rows.y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(client.train.x, client.sites["a"]["train"].x)


def test_missing_number_becomes_the_training_mean() -> None:
    source = mixed("a")
    (client,) = encode([source])
    observed = source.features["dose"].to_numpy()
    train = observed[source.splits["train"]]
    expected = np.where(np.isnan(observed), 0, (observed - np.nanmean(train)) / np.nanstd(train))
    assert np.isnan(train).any()
    np.testing.assert_allclose(matrix(client)[:, 1], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "Float64", "float32", "uint8", "category", "string"])
def test_types_of_cells_make_no_difference(dtype: str) -> None:
    values, plain, coded = pd.Series(np.random.default_rng(0).integers(0, 200, N)), "float64", []
    if dtype in ("category", "string"):
        values, plain, coded = values.map(lambda n: "pqr"[n % 3]).mask(values > 190), "object", ["x"]
    assert_same(*(encode([table("a", {"x": values.astype(own)}, categorical=coded)])[0] for own in (plain, dtype)))


def test_columns_without_spread_in_training_are_zero_there() -> None:
    source = table("a", {"constant": np.full(N, 7.5), "empty": np.full(N, np.nan), "x": numbers()})
    source.features.iloc[source.splits["test"][0], 0] = 9.0
    (client,) = encode([source])
    assert (client.train.x[:, :2] == 0).all() and client.sites["a"]["test"].x[0, :2].tolist() == [1.5, 0]


@PROPERTY
@given(st.integers(0, 10_000))
def test_test_rows_change_nothing_in_training(seed: int) -> None:
    generator = np.random.default_rng(seed)
    source, changed, untouched = mixed("a", seed=1), mixed("a", seed=1), mixed("a", seed=1)
    for split in ("validation", "test"):
        rows = changed.splits[split]
        changed.features.iloc[rows, 0] = 1e6 * generator.normal(size=len(rows))
        changed.features.iloc[rows, 1] = np.nan
        changed.features.iloc[rows, 2] = generator.choice(["Aa", "Zz", None], len(rows))
        changed.features.iloc[rows, 3] = generator.integers(-9, 9, len(rows))
        changed.target.iloc[rows] = generator.integers(-2, 5, len(rows))
    one, other = encode([source])[0], encode([changed])[0]
    assert torch.equal(one.train.x, other.train.x)
    assert torch.equal(one.train.y, other.train.y)
    assert one.spec == other.spec
    assert not torch.equal(one.sites["a"]["test"].x, other.sites["a"]["test"].x)
    pd.testing.assert_frame_equal(source.features, untouched.features)
    pd.testing.assert_series_equal(source.target, untouched.target)


# ------------------------------------------------------------------ categories


@pytest.mark.parametrize("column", ["town", "ward"])
def test_codes_equal_ordinal_encoder(column: str) -> None:
    source = mixed("a", seed=2)
    (client,) = encode([source])
    values = source.features[[column]].to_numpy(object)
    missing = pd.isna(values)
    train = values[source.splits["train"]]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1).fit(train[~pd.isna(train)][:, None])
    expected = np.full(len(values), -1.0)
    expected[~missing[:, 0]] = encoder.transform(values[~missing[:, 0]])[:, 0]
    np.testing.assert_array_equal(matrix(client)[:, client.spec.features.index(column)], expected)


def test_another_spelling_of_one_known_category_is_that_category() -> None:
    sex = ColumnEncoder("sex", "categorical", None, ("F", "f", "male"))  # F and f were told apart in training
    rows = pd.Series(["Male", " MALE", "F", "f", "F ", "mle"])
    assert sex.transform(rows, "client", "codes", "here")[0].tolist() == [2, 2, 0, 1, -1, -1]
    assert sex.unseen(rows) == (2, ["F ", "mle"])


# ------------------------------------------------------------------ labels


@pytest.mark.parametrize("values", [[3, -1, 7], ["b", "ä", "A"], [2.5, 1.0, -3.0], [True, False]], ids=str)
def test_labels_equal_label_encoder(values: list[Any]) -> None:
    target = [*values, *np.random.default_rng(0).choice(len(values), N - len(values))]
    target = [values[int(label)] if position >= len(values) else label for position, label in enumerate(target)]
    source = table("a", {"x": numbers()}, target)
    (client,) = encode([source])
    encoder = LabelEncoder().fit(source.target.iloc[source.splits["train"]])
    assert client.spec.classes == tuple(encoder.classes_.tolist())
    np.testing.assert_array_equal(labels(client), encoder.transform(source.target))
    assert client.spec.sites[0].classes == tuple(range(len(values)))
    if values[0] == 3:  # a label that no training row has
        source.target.iloc[source.splits["test"][0]] = 9
        assert encode([source])[0].sites["a"]["test"].y[0] == -1


def test_the_positive_label_comes_second() -> None:
    source = table("a", {"x": numbers()}, ["no", "yes"] * (N // 2), positive="no")
    (client,) = encode([source])
    assert client.spec.classes == ("yes", "no") and client.spec.num_outputs == 1
    np.testing.assert_array_equal(labels(client), [1, 0] * (N // 2))
    with pytest.raises(DataError, match="found 'Yes'"):
        encode([replace(source, positive="Yes")])

    def classes(*positives: Any) -> tuple[Any, ...]:
        tables = [table(name, {"x": numbers()}, positive=p) for name, p in zip("abc", positives, strict=True)]
        return encode(tables, align="classes")[0].spec.classes

    assert classes(None, None, None) == (0, 1)
    assert classes(0, None, 0) == (1, 0)
    assert classes(0, 1, 0) == (0, 1)  # clients disagree: the larger one


# ------------------------------------------------------------------ the common space


@pytest.mark.parametrize("align", ["features", "both"])
def test_common_features(align: Any) -> None:
    apart = {client.spec.name: client for client in encode(small_tables())}
    for client in encode(small_tables(), align=align):
        assert client.spec.features == ("c", "x", "z")
        own = apart[client.spec.name]
        wide = matrix(client)
        for position, feature in enumerate(client.spec.features):
            if feature not in own.spec.features:
                assert (wide[:, position] == 0).all()
            elif feature != "c":
                np.testing.assert_array_equal(wide[:, position], matrix(own)[:, own.spec.features.index(feature)])
    a, b, _ = encode(small_tables(), align=align)
    np.testing.assert_array_equal(matrix(a)[:, 0], [3, 0] * (N // 2))  # p q r s
    np.testing.assert_array_equal(matrix(b)[:, 0], [1, 2] * (N // 2))


def test_codes_and_classes_come_from_training_rows_of_all() -> None:
    tables = small_tables()
    tables[0].features.iloc[tables[0].splits["test"][:2], 1] = ["s", "new"]  # of another client's; of nobody's
    tables[0].target.iloc[tables[0].splits["test"][0]] = 3
    _, b, _ = encode(tables, align="both")
    assert b.sites["b"]["test"].x[:2, 0].tolist() == [3, -1]
    assert b.sites["b"]["test"].y[0] == 2 and b.spec.sites[0].classes == (0, 1)  # known, but not the site's


@pytest.mark.parametrize("align", ["classes", "both"])
def test_common_classes(align: Any) -> None:
    a, b, d = encode(small_tables(), align=align)
    assert {client.spec.classes for client in (a, b, d)} == {(1, 2, 3)}
    assert [client.spec.sites[0].classes for client in (a, b, d)] == [(0, 2), (0, 1), (0, 2)]
    np.testing.assert_array_equal(labels(a), [2, 0] * (N // 2))
    np.testing.assert_array_equal(labels(b), [0, 1] * (N // 2))


@pytest.mark.parametrize("align", ["none", "both"])
def test_pooled_scaling_uses_training_rows_of_all_that_have_the_column(align: Any) -> None:
    tables = {source.name: source for source in small_tables()}
    pooled = np.concatenate(
        [tables[name].features["x"].to_numpy()[tables[name].splits["train"]] for name in ("b", "d")]
    )
    clients = {client.spec.name: client for client in encode(list(tables.values()), align=align, scaling="pooled")}
    for name in ("b", "d"):
        scaler = StandardScaler().fit(pooled[:, None])
        position = clients[name].spec.features.index("x")
        expected = scaler.transform(tables[name].features[["x"]].to_numpy())[:, 0]
        np.testing.assert_allclose(matrix(clients[name])[:, position], expected, rtol=1e-5, atol=1e-6)
    own = StandardScaler().fit(tables["a"].features[["z"]].to_numpy()[tables["a"].splits["train"]])
    position = clients["a"].spec.features.index("z")
    np.testing.assert_allclose(
        matrix(clients["a"])[:, position],
        own.transform(tables["a"].features[["z"]].to_numpy())[:, 0],
        rtol=1e-5,
        atol=1e-6,
    )


# ------------------------------------------------------------------ the pooled client


def test_pool_puts_all_rows_into_one_client() -> None:
    apart = encode(small_tables(), align="both", scaling="pooled")
    (pooled,) = encode(small_tables(), align="both", scaling="pooled", pool=True)
    assert torch.equal(pooled.train.x, torch.cat([client.train.x for client in apart]))
    assert torch.equal(pooled.train.y, torch.cat([client.train.y for client in apart]))
    np.testing.assert_array_equal(pooled.train.row, np.concatenate([client.train.row for client in apart]))
    spec = pooled.spec
    assert (spec.name, spec.features, spec.classes) == ("centralized", ("c", "x", "z"), (1, 2, 3))
    assert spec.rows == {"train": 36, "validation": 12, "test": 12}
    assert [(site.name, site.classes, site.union) for site in spec.sites] == [
        ("a", (0, 2), False),
        ("b", (0, 1), False),
        ("d", (0, 2), False),
        ("all", (0, 1, 2), True),
    ]
    assert [site.rows for site in spec.sites] == [*({"train": 12, "validation": 4, "test": 4},) * 3, spec.rows]
    assert list(pooled.sites) == ["a", "b", "d"]
    for client in apart:
        for split in SPLITS:
            assert torch.equal(pooled.sites[client.spec.name][split].x, client.sites[client.spec.name][split].x)


# ------------------------------------------------------------------ clients do not depend on others


@pytest.mark.parametrize(("align", "pool"), [("none", False), ("features", False), ("both", False), ("both", True)])
@pytest.mark.parametrize("scaling", ["client", "pooled"])
def test_order_of_clients_is_irrelevant(align: Any, scaling: Any, pool: bool) -> None:
    tables = [*small_tables(), mixed("e")]
    forwards = encode(tables, align=align, scaling=scaling, pool=pool)
    backwards = encode(tables[::-1], align=align, scaling=scaling, pool=pool)
    assert len(forwards) == len(backwards) == (1 if pool else 4)
    for one, other in zip(forwards, backwards, strict=True):
        assert_same(one, other)


# ------------------------------------------------------------------ what is refused


HUGE = (
    "client 'a': column 'x' is not finite after standardisation: expected numbers within the range of float32; "
    "rescale the column or mark the outliers as missing"
)


def column(name: str, values: Any, categorical: bool = False, target: Any = None) -> ClientTable:
    return table(name, {"c": values, "x": numbers()}, target, categorical=["c"] if categorical else [])


PQ, GAPS, ONE, TRUE = ["p", "q"] * (N // 2), np.full(N, np.nan), [1, 2] * (N // 2), [True, False] * (N // 2)


@pytest.mark.parametrize(("other", "categorical", "found"), [(numbers(), False, "numeric"), (ONE, True, "coded")])
def test_kinds_that_clash_are_refused(other: Any, categorical: bool, found: str) -> None:
    tables = [column("a", PQ, True), column("b", other, categorical)]
    for options in ({"align": "features"}, {"align": "both"}, {"scaling": "pooled"}):
        with pytest.raises(DataError, match=f"column 'c': .* categorical at 'a' and {found} at 'b'"):
            encode(tables, **options)
    assert len(encode(tables)) == 2  # each on its own


@pytest.mark.parametrize("listed", [False, True])
def test_a_column_without_values_is_of_the_others_kind(listed: bool) -> None:
    for others, categorical, gap in ((PQ, True, -1.0), (numbers(3), False, 0.0)):
        clients = encode([column("a", GAPS, listed), column("m", others, categorical)], align="features")
        assert set(matrix(clients[0])[:, 0].tolist()) == {gap}
    (alone,) = encode([column("a", GAPS, listed)])
    assert set(matrix(alone)[:, 0].tolist()) == {-1.0 if listed else 0.0}


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        ([column("a", PQ, True, [1] * N)], {}, r"client 'a': expected at least two classes .* found one \(1\)"),
        ([column("a", PQ, True, ["yes", 1] * (N // 2))], {}, "target 'y': expected labels of one type.* a mixture"),
        ([column("a", ONE), column("b", ONE, target=PQ)], {"align": "classes"}, "labels of one type.* a mixture"),
        ([column("a", ONE, target=TRUE), column("b", ONE)], {"align": "both"}, "true/false .* at 'a' and num"),
        ([column("a", np.append(numbers()[1:], np.inf))], {}, "column 'c': expected finite numbers, found 1 infinite"),
        ([column("a", 1e200 * numbers())], {}, "column 'c' is not finite after"),
        ([column("a", 1e306 * numbers())], {}, "column 'c' is not finite after"),
        (small_tables(), {"pool": True, "align": "features"}, "pool: true .* needs align: both, found align: features"),
        ([column("all", ONE), column("b", ONE)], {}, "client 'all': this name is taken"),
        ([column("centralized", ONE), column("b", ONE)], {"pool": True, "align": "both"}, "needs the names all, centr"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_what_cannot_be_encoded_is_refused(tables: list[ClientTable], options: dict[str, Any], message: str) -> None:
    with pytest.raises(FedlitError, match=message):
        FederatedData(Given(tables), **options).setup()


def test_one_class_is_let_through_with_common_classes() -> None:
    a, b = encode([column("a", ONE, target=[1] * N), column("b", ONE, target=[0, 2] * (N // 2))], align="classes")
    assert a.spec.classes == b.spec.classes == (0, 1, 2)
    assert (a.spec.sites[0].classes, b.spec.sites[0].classes) == ((1,), (0, 2))


def test_what_a_person_should_know_about_a_table_is_noted() -> None:
    source = table("a", {"x": numbers(), "e": GAPS, "c": np.ones(N)}, [0, 1] * (N // 2))
    for split in ("validation", "test"):  # test rows are not looked at before `fedlit test`
        source.target.iloc[source.splits[split][0]] = 7  # type: ignore[index]
    (client,) = encode([source])
    assert [note.kind for note in client.notes] == ["no value", "one value", "rare class"]
    assert [note.column for note in client.notes] == ["e", "c", "y"] and "1 validation rows" in client.notes[2]
