"""Encoding: what each table becomes, by hand; what is learnt from training rows alone, pooled,
chosen, refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from contracts import covering
from made_tables import (
    Given,
    N,
    assert_same,
    encode,
    labels,
    matrix,
    mixed,
    numbers,
    small_tables,
    table,
)

from fedlit.data.columns import ColumnEncoder, categories_of
from fedlit.data.module import FederatedData
from fedlit.data.sources import Tables
from fedlit.data.table import SPLITS, ClientTable, choose_columns
from fedlit.errors import ConfigError, DataError, FedlitError

ALIGN = ("none", "features", "classes", "both")
COMMON: tuple[Any, ...] = (
    None,
    {"people": ["age"], "place": ["town", "ward"]},
    {"code": ["c"], "sick": ["age", "ill"]},
)

# ------------------------------------------------------------------ by hand


def several() -> list[ClientTable]:
    """Columns that some have, with gaps, without spread in training or any value; test rows with
    other categories."""
    ill = np.array([True, None, False, True] * 5, dtype=object)
    first = mixed("e", bmi=np.full(N, np.nan), flat=np.full(N, 7.5))
    second = replace(mixed("f", 3, bmi=numbers(9), ill=ill), categorical=("town", "ward", "ill"))
    third = table(
        "g", {"ill": [True, False] * 10, "age": numbers(4)}, [2, 1] * 10, categorical=["ill"]
    )
    made = [*small_tables(), first, second, third]
    # of another client's; of nobody's
    made[0].features.iloc[made[0].splits["test"][:2], 1] = ["s", "new"]
    made[0].target.iloc[made[0].splits["test"][0]] = 3
    first.features.iloc[first.splits["test"][0], first.features.columns.get_loc("flat")] = 9.0  # type: ignore[index]
    first.features.iloc[first.splits["validation"], 0] = 1e6
    return made


def trained_on(tables: Sequence[ClientTable], name: str) -> pd.Series:
    """What training rows hold of a column."""
    return pd.concat([own.features[name].iloc[own.splits["train"]] for own in tables]).dropna()


def by_hand(
    tables: Sequence[ClientTable], own: ClientTable, aligned: bool, terms: Mapping[str, Any]
) -> pd.DataFrame:
    """The inputs of a client before those that it lacks are filled in."""
    made = {}
    for name, values in own.features.items():
        have = [other for other in tables if name in other.features]
        met = have
        common = terms["common"]
        if common is not None and not aligned:
            group = next(
                (columns for columns in common.values() if name in columns), ["nobody has it"]
            )
            members = [other for other in have if {*group} <= {*other.features}]
            met = members if own in members else [own]
        if name not in own.categorical:
            seen = trained_on(met if terms["scaling"] == "pooled" else [own], str(name)).astype(
                float
            )
            mean, spread = (seen.mean(), seen.std(ddof=0)) if len(seen) else (0.0, 0.0)
            held = values.astype(float).fillna(mean)
            made[name] = held if terms["scaling"] == "none" else (held - mean) / (spread or 1.0)
            continue
        known = sorted(set(trained_on(met if aligned or common is not None else [own], str(name))))
        codes = values.map({label: code for code, label in enumerate(known)}).astype(float)
        if terms["categories"] == "codes":
            made[name] = codes.fillna(-1)
        elif len(known) < 3:
            made[name] = (codes == len(known) - 1).astype(float).where(codes.notna(), 0.5)
        else:
            for code, label in enumerate(known):
                made[f"{name}={label}"] = (codes == code).astype(float).where(values.notna(), 0.5)
    return pd.DataFrame(made)


@pytest.mark.parametrize(
    ("align", "scaling", "common"), covering(ALIGN, ("client", "pooled", "none"), COMMON), ids=str
)
@pytest.mark.parametrize("categories", ["codes", "indicators"])
def test_inputs_and_labels_are_those_by_hand(
    align: str, scaling: str, categories: str, common: Any
) -> None:
    tables = {own.name: own for own in several()}
    terms = {"scaling": scaling, "categories": categories, "common": common}
    aligned = align in ("features", "both")
    one = align in ("classes", "both")
    inputs = {
        name: by_hand([*tables.values()], own, aligned, terms) for name, own in tables.items()
    }
    if aligned:
        union = sorted({str(name) for frame in inputs.values() for name in frame})
        inputs = {
            name: frame.reindex(columns=union, fill_value=0.0) for name, frame in inputs.items()
        }
    learnt = {name: {*own.target.iloc[own.splits["train"]]} for name, own in tables.items()}
    for client in encode(several(), align=align, **terms):
        name = client.spec.name
        source = tables[client.spec.name]
        assert client.spec.features == tuple(inputs[name])
        np.testing.assert_allclose(matrix(client), inputs[name], rtol=1e-5, atol=1e-5)
        classes = sorted(set().union(*learnt.values()) if one else learnt[name])
        assert client.spec.classes == tuple(classes)
        assert client.spec.sites[0].classes == tuple(map(classes.index, sorted(learnt[name])))
        expected = [classes.index(label) if label in classes else -1 for label in source.target]
        np.testing.assert_array_equal(labels(client), expected)
        for split in SPLITS:
            rows = client.sites[name][split]
            np.testing.assert_array_equal(rows.row, 100 + source.splits[split])
            np.testing.assert_array_equal(rows.x, matrix(client)[source.splits[split]])
            assert len(rows) == client.spec.rows[split] == client.spec.sites[0].rows[split]
            assert (rows.x.dtype, rows.y.dtype) == (torch.float32, torch.int64)
        assert torch.equal(client.train.x, client.sites[name]["train"].x)


@pytest.mark.parametrize(
    "dtype", ["int64", "Int64", "Float64", "float32", "uint8", "category", "string"]
)
def test_types_of_cells_make_no_difference(dtype: str) -> None:
    values = pd.Series(np.random.default_rng(0).integers(0, 200, N))
    plain = "float64"
    coded = []
    if dtype in ("category", "string"):
        values = values.map(lambda n: "pqr"[n % 3]).mask(values > 190)
        plain = "object"
        coded = ["x"]
    assert_same(
        *(
            encode([table("a", {"x": values.astype(own)}, categorical=coded)])[0]  # type: ignore[call-overload]
            for own in (plain, dtype)
        )
    )


def test_another_spelling_of_one_known_category_is_that_category() -> None:
    # F and f were told apart in training
    sex = ColumnEncoder("sex", "categorical", None, ("F", "f", "male"))
    rows = pd.Series(["Male", " MALE", "F", "f", "F ", "mle"])
    assert sex.transform(rows, "client", "codes", "here")[0].tolist() == [2, 2, 0, 1, -1, -1]
    assert sex.unseen(rows) == (2, ["F ", "mle"])


def test_indicators_have_exact_names_that_no_column_takes() -> None:
    codes = [1000001, 1000002, 1000003, 2.5] * 5
    (client,) = encode([table("a", {"zip": codes}, categorical=["zip"])], categories="indicators")
    assert (
        client.spec.features == ("zip=2.5", "zip=1000001", "zip=1000002", "zip=1000003")
        and not client.categorical
    )
    columns = {"ward": ["x", "y", "z", "x"] * 5, "ward=y": numbers()}
    with pytest.raises(
        DataError, match=r"column 'ward': expected indicators of names .* found ..ward=y"
    ):
        encode([table("a", columns, categorical=["ward"])], categories="indicators")


def test_declared_categories_are_those_of_all_clients() -> None:
    """Whatever training rows hold; and their codes are as those of plain text."""
    declared = pd.CategoricalDtype(["A", "C", "G"])
    train, rows = (pd.Series(own, dtype=declared) for own in (["C", None, "C"], ["G", None, "A"]))
    assert categories_of(train, "categorical") == ["A", "C", "G"]
    assert categories_of(train.astype(object), "categorical") == ["C"]
    for gap in (False, True):
        column = ColumnEncoder("p1", "categorical", None, ("A", "C", "G"), gap=gap)
        made, plain = (
            column.transform(own, "client", "codes", "here") for own in (rows, rows.astype(object))
        )
        assert [own.tolist() for own in made] == [own.tolist() for own in plain]
    other = ColumnEncoder("p1", "categorical", None, ("C", "G"))
    assert other.transform(rows, "client", "codes", "here")[0].tolist() == [1, -1, -1]


# ------------------------------------------------------------------ labels


def test_the_positive_label_comes_second() -> None:
    source = table("a", {"x": numbers()}, ["no", "yes"] * (N // 2), positive="no")
    (client,) = encode([source])
    assert client.spec.classes == ("yes", "no") and client.spec.num_outputs == 1
    np.testing.assert_array_equal(labels(client), [1, 0] * (N // 2))
    with pytest.raises(DataError, match="found 'Yes'"):
        encode([replace(source, positive="Yes")])
    # where clients disagree: the larger one
    for positives, classes in (
        ([None, None, None], (0, 1)),
        ([0, None, 0], (1, 0)),
        ([0, 1, 0], (0, 1)),
    ):
        tables = [
            table(name, {"x": numbers()}, positive=p)
            for name, p in zip("abc", positives, strict=True)
        ]
        assert encode(tables, align="classes")[0].spec.classes == classes


def test_one_class_is_let_through_with_common_classes() -> None:
    a, b = encode(
        [column("a", ONE, target=[1] * N), column("b", ONE, target=[0, 2] * (N // 2))],
        align="classes",
    )
    assert a.spec.classes == b.spec.classes == (0, 1, 2)
    assert (a.spec.sites[0].classes, b.spec.sites[0].classes) == ((1,), (0, 2))


# ---------------------------------------------------------------- the pooled client, chosen columns


def test_pool_puts_all_rows_into_one_client() -> None:
    apart = encode(small_tables(), align="both", scaling="pooled")
    (pooled,) = encode(small_tables(), align="both", scaling="pooled", pool=True)
    assert torch.equal(pooled.train.x, torch.cat([client.train.x for client in apart]))
    assert torch.equal(pooled.train.y, torch.cat([client.train.y for client in apart]))
    np.testing.assert_array_equal(
        pooled.train.row, np.concatenate([client.train.row for client in apart])
    )
    spec = pooled.spec
    assert (spec.name, spec.features, spec.classes) == ("centralized", ("c", "x", "z"), (1, 2, 3))
    assert spec.rows == {"train": 36, "validation": 12, "test": 12}
    union = ("all", (0, 1, 2), True, spec.rows)
    sites = [
        (client.spec.name, client.spec.sites[0].classes, False, client.spec.rows)
        for client in apart
    ]
    assert [(site.name, site.classes, site.union, site.rows) for site in spec.sites] == [
        *sites,
        union,
    ]
    assert list(pooled.sites) == ["a", "b", "d"]
    for client in apart:
        for split in SPLITS:
            assert torch.equal(
                pooled.sites[client.spec.name][split].x, client.sites[client.spec.name][split].x
            )


def test_pool_by_concept_makes_one_client_of_each() -> None:
    concepts = {"a": "1", "b": "2", "d": "1"}
    tables = [replace(own, concept=concepts[own.name]) for own in small_tables()]
    apart = {client.spec.name: client for client in encode(tables, align="both")}
    data = FederatedData(Given(tables), align="both", pool="concept", batches=2, categories="codes")
    data.setup()
    first, second = data.clients
    assert (first.spec.name, second.spec.name) == ("centralized-1", "centralized-2")
    assert torch.equal(first.train.x, torch.cat([apart["a"].train.x, apart["d"].train.x]))
    assert torch.equal(second.train.x, apart["b"].train.x) and second.spec.concept == "2"
    assert [site.name for site in first.spec.sites] == ["a", "d", "all-1"]
    unknown = FederatedData(Given(small_tables()), align="both", pool="concept", batches=2)
    unknown.setup()
    assert [client.spec.name for client in unknown.clients] == ["centralized"]


@pytest.mark.parametrize(
    ("patterns", "left"), [(["age"], ["age"]), (["*", "!t*"], ["age", "dose", "ward"])]
)
def test_columns_are_chosen_by_pattern(patterns: list[str], left: list[str]) -> None:
    (chosen,) = choose_columns([mixed("a")], patterns)
    assert list(chosen.features) == left and set(chosen.categorical) <= set(left)
    with pytest.raises(
        ConfigError, match=r"data.columns: expected names or patterns among .*, found 'agee'.*'age'"
    ):
        choose_columns([mixed("a")], ["agee"])


@pytest.mark.parametrize(
    ("columns", "asked"),
    [(["age"], ["age"]), (["*", "!seen*"], ["age", "sex"]), (["seen.month"], ["seen"])],
    ids=str,
)
def test_new_rows_need_no_column_that_is_not_chosen(
    columns: list[str], asked: list[str], tmp_path: Path
) -> None:
    rows = {"age": [f"{n * 7 % 20}" for n in range(20)], "sex": ["m", "f"] * 10, "y": [0, 1] * 10}
    frame = pd.DataFrame({**rows, "seen": [f"2024-0{n % 7 + 1}-1{n % 9}" for n in range(20)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = FederatedData(Tables({"a": str(tmp_path / "a.csv")}, "y"), batches=2, columns=columns)
    data.setup()
    typed, _ = data.encoders["a"].read(frame[asked])
    assert data.encoders["a"].schema.used == asked and typed.shape[1] == len(data.specs[0].features)


# ------------------------------------------------------------------ what is refused, and noted


def column(name: str, values: Any, categorical: bool = False, target: Any = None) -> ClientTable:
    return table(
        name, {"c": values, "x": numbers()}, target, categorical=["c"] if categorical else []
    )


PQ = ["p", "q"] * (N // 2)
GAPS = np.full(N, np.nan)
ONE = [1, 2] * (N // 2)
TRUE = [True, False] * (N // 2)
ALIKE: tuple[dict[str, Any], ...] = (
    {"align": "features"},
    {"common": ["c"]},
    {"scaling": "pooled"},
)


@pytest.mark.parametrize(
    ("own", "other", "categorical", "kinds"),
    [
        (PQ, numbers(), False, "categorical at 'a' and numeric at 'b'"),
        (PQ, ONE, True, "categorical at 'a' and coded at 'b'"),
        (TRUE, ONE, True, "boolean at 'a' and coded at 'b'"),
    ],
)
def test_kinds_that_clash_are_refused(own: Any, other: Any, categorical: bool, kinds: str) -> None:
    tables = [column("a", own, True), column("b", other, categorical)]
    for options in ALIKE:
        with pytest.raises(FedlitError, match=f"column 'c': .* {kinds}"):
            encode(tables, **options)
    assert len(encode(tables)) == 2  # each on its own


@pytest.mark.parametrize("listed", [False, True])
def test_a_column_without_values_is_of_the_others_kind(listed: bool) -> None:
    for others, categorical, gap in ((PQ, True, -1.0), (numbers(3), False, 0.0)):
        clients = encode(
            [column("a", GAPS, listed), column("m", others, categorical)], align="features"
        )
        assert set(matrix(clients[0])[:, 0].tolist()) == {gap}
    (alone,) = encode([column("a", GAPS, listed)])
    assert set(matrix(alone)[:, 0].tolist()) == {-1.0 if listed else 0.0}


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        ([column("a", PQ, True, [1] * N)], {}, r"client 'a': expected at least two classes .* found one \(1\)"),
        ([column("a", PQ, True, ["yes", 1] * (N // 2))], {}, "target 'y': expected labels of one "
            "type.* a mixture"),
        ([column("a", ONE), column("b", ONE, target=PQ)], {"align": "classes"}, "labels of one "
            "type.* a mixture"),
        ([column("a", ONE, target=TRUE), column("b", ONE)], {"align": "both"}, "true/false .* at "
            "'a' and num"),
        ([column("a", np.append(numbers()[1:], np.inf))], {}, "expected finite numbers, .*'c'"),
        ([column("a", 1e200 * numbers())], {}, "finite float32 .* others in c;"),
        ([column("a", 1e306 * numbers())], {}, "finite float32 .* others in c;"),
        (small_tables(), {"pool": True, "align": "features"}, "expected align: both, .* found "
            "align: features"),
        ([column("all", ONE), column("b", ONE)], {}, "client 'all': this name is taken"),
        ([column("centralized", ONE), column("b", ONE)], {"pool": True, "align": "both"}, "another "
            "name than all"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings(
    "ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning"
)
def test_what_cannot_be_encoded_is_refused(
    tables: list[ClientTable], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(FedlitError, match=message):
        FederatedData(Given(tables), **options).setup()


def test_what_a_person_should_know_about_a_table_is_noted() -> None:
    source = table("a", {"x": numbers(), "e": GAPS, "c": np.ones(N)}, [0, 1] * (N // 2))
    for split in ("validation", "test"):  # test rows are not looked at before `fedlit test`
        source.target.iloc[source.splits[split][0]] = 7
    (client,) = encode([source])
    notes: list[Any] = list(client.notes)
    assert [note.kind for note in notes] == ["no value", "one value", "rare class"]
    assert [note.column for note in notes] == [
        "e",
        "c",
        "y",
    ] and "1 validation rows" in client.notes[2]
