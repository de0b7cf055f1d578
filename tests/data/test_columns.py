"""What clients tell each other before training, indicators, raw numbers, columns that are chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_tables import encode, mixed, numbers, table

from fedlit.data.columns import ColumnEncoder, categories_of
from fedlit.data.module import FederatedData
from fedlit.data.sources import Tables
from fedlit.data.table import choose_columns
from fedlit.errors import ConfigError, DataError


def test_indicators_are_one_column_a_category_and_half_where_missing() -> None:
    town = np.array(["Bonn", "Köln", "Aachen", None] * 5, dtype=object)
    sex = np.array([1.0, 0.0, np.nan, 1.0] * 5)
    (client,) = encode([table("a", {"town": town, "sex": sex}, categorical=["town", "sex"])], categories="indicators")
    assert client.spec.features == ("town=Aachen", "town=Bonn", "town=Köln", "sex")
    assert client.categorical == ()
    rows = client.train.row - 100
    for position, name in enumerate(["Aachen", "Bonn", "Köln"]):
        expected = [0.5 if town[row] is None else float(town[row] == name) for row in rows]
        assert client.train.x[:, position].tolist() == expected
    assert client.train.x[:, 3].tolist() == [0.5 if np.isnan(sex[row]) else sex[row] for row in rows]
    third = table(
        "a",
        {"sex": np.where(np.arange(20) == table("a", {"x": sex}).splits["test"][0], 9, [1, 0] * 10)},
        categorical=["sex"],
    )
    assert encode([third], categories="indicators")[0].sites["a"]["test"].x[0, 0] == 0.5


def test_indicators_of_common_columns_are_those_of_all_clients() -> None:
    first = table("a", {"grade": [1, 2] * 10}, categorical=["grade"])
    second = table("b", {"grade": [2, 5] * 10}, categorical=["grade"])
    a, b = encode([first, second], align="features", categories="indicators")
    assert a.spec.features == b.spec.features == ("grade=1", "grade=2", "grade=5")
    assert a.train.x[:, 2].sum() == 0 and b.train.x[:, 0].sum() == 0
    alone = encode([first], categories="indicators")[0]
    assert alone.spec.features == ("grade",)
    assert alone.train.x[:, 0].tolist() == [float(row % 2) for row in alone.train.row]  # 1 for the second category


@pytest.mark.parametrize(("patterns", "left"), [(["age"], ["age"]), (["*", "!t*"], ["age", "dose", "grade"])])
def test_columns_are_chosen_by_pattern(patterns: list[str], left: list[str]) -> None:
    own = mixed("a")
    (chosen,) = choose_columns([own], patterns)
    assert [name for name in chosen.features if name in (*left, "town")] == [n for n in own.features if n in left]
    assert set(chosen.categorical) <= set(chosen.features)
    with pytest.raises(
        ConfigError, match=r"data.columns: expected the name or pattern of a column, found 'agee'.*'age'"
    ):
        choose_columns([own], ["agee"])


@pytest.mark.parametrize(
    ("columns", "asked"), [(["age"], ["age"]), (["*", "!seen*"], ["age", "sex"]), (["seen.month"], ["seen"])], ids=str
)
def test_new_rows_need_no_column_that_is_not_chosen(columns: list[str], asked: list[str], tmp_path: Path) -> None:
    rows = {"age": [f"{n * 7 % 20}" for n in range(20)], "sex": ["m", "f"] * 10, "y": [0, 1] * 10}
    frame = pd.DataFrame({**rows, "seen": [f"2024-0{n % 7 + 1}-1{n % 9}" for n in range(20)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = FederatedData(Tables({"a": str(tmp_path / "a.csv")}, "y"), batches=2, columns=columns)
    data.setup()
    typed, _ = data.encoders["a"].read(frame[asked])
    assert data.encoders["a"].asked == asked and typed.shape[1] == len(data.specs[0].features)


def test_indicators_have_exact_names_that_no_column_takes() -> None:
    codes = [1000001, 1000002, 1000003, 2.5] * 5
    (client,) = encode([table("a", {"zip": codes}, categorical=["zip"])], categories="indicators")
    assert client.spec.features == ("zip=2.5", "zip=1000001", "zip=1000002", "zip=1000003")
    columns = {"ward": ["x", "y", "z", "x"] * 5, "ward=y": numbers()}
    with pytest.raises(DataError, match=r"column 'ward': expected indicators of names .* found 'ward=y' twice"):
        encode([table("a", columns, categorical=["ward"])], categories="indicators")


def test_declared_categories_are_those_of_all_clients() -> None:
    """Whatever training rows hold; and their codes are as those of plain text."""
    declared = pd.CategoricalDtype(["A", "C", "G"])
    train = pd.Series(["C", None, "C"], dtype=declared)
    assert categories_of(train, "categorical") == ["A", "C", "G"]
    assert categories_of(train.astype(object), "categorical") == ["C"]
    for gap in (False, True):
        column = ColumnEncoder("p1", "categorical", None, ("A", "C", "G"), gap=gap)
        rows = pd.Series(["G", None, "A"], dtype=declared)
        for made, plain in zip(
            column.transform(rows, "client", "codes", "here"),
            column.transform(rows.astype(object), "client", "codes", "here"),
            strict=True,
        ):
            assert made.tolist() == plain.tolist()
    other = ColumnEncoder("p1", "categorical", None, ("C", "G"))
    assert other.transform(rows, "client", "codes", "here")[0].tolist() == [1, -1, -1]
