"""Encoding: what is learnt from training rows alone, the common space, the pooled client, and what is refused."""

from __future__ import annotations

import re
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
from fedlit.data.table import SPLITS
from fedlit.errors import ConfigError, DataError

PROPERTY = settings(derandomize=True, max_examples=30, deadline=None)
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


@pytest.mark.parametrize("dtype", ["int64", "Int64", "Float64", "float32", "uint8"])
def test_types_of_numbers_make_no_difference(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 200, N)
    plain, typed = (encode([table("a", {"x": pd.Series(values).astype(kind)})])[0] for kind in ("float64", dtype))
    assert_same(plain, typed)


def test_constant_and_empty_columns_become_zero() -> None:
    columns = {"constant": np.full(N, 7.5), "empty": np.full(N, np.nan), "x": numbers()}
    source = table("a", columns)
    (client,) = encode([source])
    assert (matrix(client)[:, :2] == 0).all()
    assert client.spec.features == ("constant", "empty", "x")


def test_column_constant_in_training_alone_is_only_shifted() -> None:
    source = table("a", {"x": np.full(N, 7.5)})
    source.features.iloc[source.splits["test"][0], 0] = 9.0
    (client,) = encode([source])
    assert (client.train.x == 0).all()
    assert client.sites["a"]["test"].x[0].item() == 1.5


@PROPERTY
@given(st.integers(0, 10_000))
def test_test_rows_change_nothing_in_training(seed: int) -> None:
    generator = np.random.default_rng(seed)
    source, changed = mixed("a", seed=1), mixed("a", seed=1)
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


def test_tables_are_left_alone() -> None:
    source, untouched = mixed("a"), mixed("a")
    encode([source, mixed("b", seed=3)], align="both", scaling="pooled", pool=True)
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


def test_numeric_categories_are_in_the_order_of_numbers() -> None:
    """As text, 10 would come before 9."""
    source = table("a", {"x": [9, 10] * (N // 2)}, categorical=["x"])
    np.testing.assert_array_equal(matrix(encode([source])[0])[:, 0], [0, 1] * (N // 2))


def test_missing_and_unseen_categories_become_minus_one() -> None:
    source = table("a", {"x": np.array(["p", "q"] * (N // 2), object)}, categorical=["x"])
    test = source.splits["test"]
    source.features.iloc[test[0], 0] = "between p and q"
    source.features.iloc[test[1], 0] = None
    source.features.iloc[source.splits["train"][0], 0] = None
    (client,) = encode([source])
    assert client.sites["a"]["test"].x[:2, 0].tolist() == [-1, -1]
    assert client.train.x[0, 0] == -1
    assert set(client.train.x[1:, 0].tolist()) == {0, 1}  # a gap among training rows takes no code


def test_another_spelling_of_one_known_category_is_that_category() -> None:
    sex = ColumnEncoder("sex", "categorical", None, ("F", "f", "male"))  # F and f were told apart in training
    rows = pd.Series(["Male", " MALE", "F", "f", "F ", "mle"])
    assert sex.transform(rows, "client", "codes", "here")[0].tolist() == [2, 2, 0, 1, -1, -1]
    assert sex.unseen(rows) == (2, ["F ", "mle"])


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
def test_types_of_text_make_no_difference(dtype: str) -> None:
    values = pd.Series(np.random.default_rng(0).choice(["p", "q", "r"], N))
    values[3] = None
    plain, typed = (
        encode([table("a", {"x": values.astype(kind)}, categorical=["x"])])[0] for kind in ("object", dtype)
    )
    assert_same(plain, typed)


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


def test_label_that_training_rows_do_not_have_becomes_minus_one() -> None:
    source = table("a", {"x": numbers()}, ["no", "yes"] * (N // 2))
    source.target.iloc[source.splits["test"][0]] = "maybe"
    (client,) = encode([source])
    assert client.spec.classes == ("no", "yes")
    assert client.sites["a"]["test"].y[0] == -1
    assert (client.sites["a"]["test"].y[1:] >= 0).all()


@pytest.mark.parametrize(
    ("positive", "classes"), [(None, ("no", "yes")), ("yes", ("no", "yes")), ("no", ("yes", "no"))]
)
def test_positive_label_comes_second(positive: str | None, classes: tuple[str, str]) -> None:
    source = table("a", {"x": numbers()}, ["no", "yes"] * (N // 2), positive=positive)
    (client,) = encode([source])
    assert client.spec.classes == classes
    assert client.spec.num_outputs == 1
    np.testing.assert_array_equal(labels(client), [classes.index("no"), classes.index("yes")] * (N // 2))


def test_positive_label_of_common_classes() -> None:
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


@pytest.mark.parametrize("align", ["classes", "both"])
def test_common_classes(align: Any) -> None:
    a, b, d = encode(small_tables(), align=align)
    assert {client.spec.classes for client in (a, b, d)} == {(1, 2, 3)}
    assert [client.spec.sites[0].classes for client in (a, b, d)] == [(0, 2), (0, 1), (0, 2)]
    np.testing.assert_array_equal(labels(a), [2, 0] * (N // 2))
    np.testing.assert_array_equal(labels(b), [0, 1] * (N // 2))


def test_label_that_only_other_clients_train_on_is_known_but_not_the_sites() -> None:
    tables = small_tables()
    tables[0].target.iloc[tables[0].splits["test"][0]] = 3
    _, b, _ = encode(tables, align="classes")
    assert b.sites["b"]["test"].y[0] == 2
    assert b.spec.sites[0].classes == (0, 1)


def test_category_codes_come_from_training_rows_of_all() -> None:
    """Seen by another client's training rows: a code; only in somebody's test rows: −1."""
    tables = small_tables()
    tables[0].features.iloc[tables[0].splits["test"][0], 1] = "s"
    tables[0].features.iloc[tables[0].splits["test"][1], 1] = "new"
    _, b, _ = encode(tables, align="features")
    assert b.sites["b"]["test"].x[:2, 0].tolist() == [3, -1]


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


@pytest.mark.parametrize("align", ["none", "features", "classes"])
def test_pool_needs_a_common_space(align: Any) -> None:
    text = f"pool: true puts all rows into one table and so needs align: both, found align: {align}"
    with pytest.raises(ConfigError, match=re.escape(text)):
        FederatedData(Given(small_tables()), align=align, pool=True).setup()


def test_pool_keeps_the_name_of_the_union_for_itself() -> None:
    with pytest.raises(ConfigError, match="client 'all': this name is taken by the union of pooled rows"):
        encode([table("all", {"x": numbers()}), table("b", {"x": numbers(2)})])
    tables = [table("centralized", {"x": numbers()}), table("b", {"x": numbers(2)})]
    assert len(encode(tables, align="both")) == 2
    with pytest.raises(DataError, match="client 'centralized': pool: true needs the names all, centralized"):
        encode(tables, align="both", pool=True)


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


def test_kind_of_a_column_is_the_clients_own() -> None:
    number = table("b", {"x": numbers()})
    category = table("a", {"x": [1, 2] * (N // 2)}, categorical=["x"])
    (alone,) = encode([number])
    assert_same(alone, encode([category, number])[1])


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("other", "categorical", "found"),
    [(numbers(), (), "numeric"), ([1, 2] * (N // 2), ("c",), "coded")],
)
def test_kinds_that_clash_are_refused(other: Any, categorical: tuple[str, ...], found: str) -> None:
    tables = [
        table("a", {"c": ["p", "q"] * (N // 2)}, categorical=["c"]),
        table("b", {"c": other}, categorical=categorical),
    ]
    text = (
        "column 'c': expected one kind on all clients that share it, found categorical at 'a' and "
        f"{found} at 'b'; rename one of the two, or list it under categorical for both"
    )
    for options in ({"align": "features"}, {"align": "both"}, {"scaling": "pooled"}):
        with pytest.raises(DataError, match=re.escape(text)):
            encode(tables, **options)


@pytest.mark.parametrize("empty", ["a", "z"])
def test_empty_column_clashes_with_no_kind(empty: str) -> None:
    """A file without any value in a column says nothing about its kind."""
    tables = [
        table(empty, {"c": np.full(N, np.nan), "x": numbers()}),
        table("m", {"c": ["p", "q"] * (N // 2), "x": numbers(2)}, categorical=["c"]),
    ]
    clients = {client.spec.name: client for client in encode(tables, align="features")}
    assert clients[empty].spec.features == ("c", "x")
    assert set(matrix(clients[empty])[:, 0].tolist()) == {-1.0}  # missing, as categories are


@pytest.mark.parametrize("label", [1, "healthy"])
def test_one_class_among_training_rows_is_refused(label: Any) -> None:
    source = table("a", {"x": numbers()}, [label] * N)
    text = f"client 'a': expected at least two classes in its training rows, found one ({label!r})"
    with pytest.raises(DataError, match=re.escape(text)):
        encode([source])


def test_one_class_is_let_through_with_common_classes() -> None:
    tables = [table("a", {"x": numbers()}, [1] * N), table("b", {"x": numbers(2)}, [0, 2] * (N // 2))]
    with pytest.raises(DataError, match="give all clients the common classes with align: classes"):
        encode(tables)
    a, b = encode(tables, align="classes")
    assert a.spec.classes == b.spec.classes == (0, 1, 2)
    assert (a.spec.sites[0].classes, b.spec.sites[0].classes) == ((1,), (0, 2))


@pytest.mark.parametrize("align", ["none", "classes"])
def test_labels_of_several_types_are_refused(align: Any) -> None:
    if align == "none":
        tables = [table("a", {"x": numbers()}, ["yes", 1] * (N // 2))]
    else:
        tables = [table("a", {"x": numbers()}), table("b", {"x": numbers()}, ["no", "yes"] * (N // 2))]
    with pytest.raises(DataError, match=r"target 'y': expected labels of one type.* found a mixture"):
        encode(tables, align=align)


HUGE = (
    "client 'a': column 'x' is not finite after standardisation: expected numbers within the range of float32; "
    "rescale the column or mark the outliers as missing"
)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_huge_number_in_a_test_row_is_refused() -> None:
    source = table("a", {"z": numbers(), "x": numbers()})
    source.features.iloc[source.splits["test"][0], 1] = 1e300
    with pytest.raises(DataError, match=re.escape(HUGE)):
        encode([source])


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("factor", [1e200, 1e306])
def test_huge_numbers_in_training_rows_are_refused(factor: float) -> None:
    with pytest.raises(DataError, match=re.escape(HUGE)):
        encode([table("a", {"x": factor * numbers()})])


def test_infinite_numbers_are_refused() -> None:
    source = table("a", {"x": numbers()})
    source.features.iloc[0, 0] = np.inf
    with pytest.raises(DataError, match=re.escape("client 'a', column 'x': expected finite numbers, found 1 infinite")):
        encode([source])


def test_large_but_harmless_numbers_pass() -> None:
    plain, large = (encode([table("a", {"x": factor * numbers()})])[0] for factor in (1.0, 1e30))
    np.testing.assert_allclose(matrix(plain), matrix(large), rtol=1e-5)


def test_an_empty_column_listed_as_category_is_a_number_where_others_have_numbers() -> None:
    tables = [
        table("a", {"c": np.full(N, np.nan), "x": numbers()}, categorical=["c"]),
        table("m", {"c": numbers(3), "x": numbers(2)}),
    ]
    first, _ = encode(tables, align="features")
    assert set(matrix(first)[:, 0].tolist()) == {0.0}
    (alone,) = encode(tables[:1])
    assert set(matrix(alone)[:, 0].tolist()) == {-1.0}


def test_a_positive_label_that_does_not_occur_is_refused() -> None:
    source = replace(table("a", {"x": numbers()}, ["no", "yes"] * (N // 2)), positive="Yes")
    with pytest.raises(DataError, match=re.escape("one of ['no', 'yes'], found 'Yes'")):
        encode([source])


def test_what_a_person_should_know_about_a_table_is_noted() -> None:
    source = table("a", {"x": numbers(), "e": np.full(N, np.nan), "c": np.ones(N)}, [0, 1] * (N // 2))
    source.target.iloc[source.splits["validation"][0]] = 7
    source.target.iloc[source.splits["test"][0]] = 7  # not looked at before `fedlit test`
    (client,) = encode([source])
    assert client.notes == (
        "a: no value in training rows, so without effect: e",
        "a: the same value in all training rows: c",
        "a: 1 validation rows have a label that no training row has; they count as wrong",
    )
