"""What is planted in made tables is found, and little else; honest tables raise no alarm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.examine import Page, examine
from fedlit.data.files import RemoteFile
from fedlit.data.note import Note
from fedlit.data.sources import Bundled, Covertype, Heart, Tables
from fedlit.show.shown import Grid

N = 240


def made(seed: int, rows: int = N, **more: Any) -> pd.DataFrame:
    """A client's honest table: the outcome follows age with much noise."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": draw.integers(20, 90, rows),
            "bmi": draw.normal(27, 4, rows).round(1),
            "pressure": draw.normal(130, 15, rows).round(),
            "ward": draw.choice(["surgery", "intensive", "general"], rows),
        }
    )
    frame["outcome"] = (frame["age"] + draw.normal(0, 25, rows) > 55).astype(int)
    for name, value in more.items():
        frame[name] = value(frame, draw) if callable(value) else value
    return frame


def looked(
    folder: Path, target: Any = "outcome", options: dict[str, Any] | None = None, **tables: pd.DataFrame
) -> Page:
    """The page of tables that are written to files."""
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    source = Tables({name: str(folder / f"{name}.csv") for name in tables}, target, **(options or {}))
    return examine(source.tables(seed=8), source)


def of(page: Page, kind: str) -> list[Note]:
    return [own for own in page.findings if own.kind == kind]


def only(page: Page, kind: str) -> Note:
    """The one finding of a page, which is of this kind."""
    assert [own.kind for own in page.findings] == [kind]
    return page.findings[0]


# ---------------------------------------------------------------------- honest tables


def test_honest_tables_raise_no_alarm(tmp_path: Path) -> None:
    page = looked(tmp_path, north=made(1), south=made(2), west=made(3))
    assert page.findings == () and page.change == {}
    assert "Nothing odd was found." in str(page)


def test_bundled_tables_raise_no_alarm() -> None:
    page = examine(Bundled().tables(seed=8))
    assert page.findings == ()
    assert "No column stands at two clients." in str(page)


def test_heart_files_raise_no_alarm(real_file: Callable[[RemoteFile], Path]) -> None:
    for file in Heart.files():
        if "framingham" not in file.path:
            real_file(file)
    clients = ["cleveland", "hungarian", "switzerland", "va", "sa", "faisalabad"]
    page = examine(Heart(clients=clients).tables(seed=8))
    assert [(own.kind, own.column) for own in page.findings] == []


def test_covertype_as_published_is_honest(real_file: Callable[[RemoteFile], Path]) -> None:
    real_file(Covertype.files()[0])
    assert [own.kind for own in examine(Covertype().tables(seed=8)).findings] == []


# ---------------------------------------------------------------------- leaks


LEAKS: dict[str, Callable[[pd.DataFrame, np.random.Generator], Any]] = {
    "a noisy double": lambda own, draw: own["outcome"] * 10 + draw.normal(0, 1, len(own)),
    "a code of it": lambda own, draw: np.where(own["outcome"] == 1, "X1", "Z9"),
    "the other way round": lambda own, draw: 1 - own["outcome"],
    "a gap where it is 1": lambda own, draw: np.where(own["outcome"] == 1, np.nan, draw.normal(size=len(own)).round(3)),
    "in the middle": lambda own, draw: np.where(
        own["outcome"] == 1, draw.uniform(4, 6, len(own)), draw.choice([-1, 1], len(own)) * 50 + 5
    ).round(3),
    "many codes, each of one class": lambda own, draw: np.where(
        own["outcome"] == 1, draw.choice(["a", "b", "c"], len(own)), draw.choice(["d", "e", "f"], len(own))
    ),
}


@pytest.mark.parametrize("planted", list(LEAKS))
def test_a_column_that_tells_the_target_is_found(tmp_path: Path, planted: str) -> None:
    found = only(looked(tmp_path, north=made(1, told=LEAKS[planted])), "leak")
    assert (found.clients, found.column) == (("north",), "told")
    assert found.to_dict()["fix"] == {"north": {"drop": ["told"]}}


def test_a_good_column_is_no_leak(tmp_path: Path) -> None:
    told = lambda own, draw: own["outcome"] + draw.normal(0, 0.4, len(own))  # noqa: E731  # AUROC 0.96
    assert looked(tmp_path, north=made(1, told=told)).findings == ()


def test_leaks_of_a_number(tmp_path: Path) -> None:
    honest = made(1).drop(columns="outcome")
    cost = np.exp(np.random.default_rng(5).normal(8, 1, N)).round(2)
    page = looked(
        tmp_path, "cost", {"task": "regression"},
        north=honest.assign(cost=cost, in_francs=(cost * 0.94 + 3).round(2)),
        south=honest.assign(cost=cost + 1, above=np.where(cost > np.median(cost), 1, 0)),
    )  # fmt: skip
    assert [(own.kind, own.clients, own.column) for own in page.findings] == [
        ("leak", ("north",), "in_francs"),
        ("rows", ("north", "south"), ""),  # these are the same people, and it is said
    ]


def test_leaks_are_looked_for_in_training_rows_only(tmp_path: Path) -> None:
    """A column that tells the target of test rows alone is none of training's business."""
    frame = made(1)
    frame["part"] = np.where(np.arange(N) < 120, "train", np.where(np.arange(N) < 150, "validation", "test"))
    frame["odd"] = np.where(np.arange(N) < 120, np.arange(N) % 7, frame["outcome"] * 100)
    assert of(looked(tmp_path, options={"split": {"column": "part"}}, north=frame), "leak") == []


def test_many_columns_take_bounded_time() -> None:
    from time import perf_counter

    from fedlit.data.table import ClientTable

    draw = np.random.default_rng(1)
    rows, columns = 400, 500
    target = pd.Series(draw.integers(0, 2, rows), name="y")
    features = pd.DataFrame(draw.normal(size=(rows, columns)), columns=[f"g{n}" for n in range(columns)])
    features["g17"] = target + draw.normal(0, 0.01, rows)
    parts = np.split(draw.permutation(rows), [300, 350])
    splits = dict(zip(("train", "validation", "test"), parts, strict=True))
    start = perf_counter()
    page = examine([ClientTable(name, features + shift, target, splits) for name, shift in (("a", 0), ("b", 1))])
    assert perf_counter() - start < 15
    assert [(own.kind, own.clients, own.column) for own in page.findings] == [
        ("leak", ("a",), "g17"), ("leak", ("b",), "g17")
    ]  # fmt: skip


# ---------------------------------------------------------------------- one client


def test_numbers_that_may_mean_missing(tmp_path: Path) -> None:
    weight = lambda own, draw: np.where(draw.random(len(own)) < 0.1, -999, draw.normal(70, 9, len(own)).round())  # noqa: E731
    page = looked(tmp_path, north=made(1, weight=weight))
    found = only(page, "missing")
    assert found.column == "weight" and found.to_dict()["fix"] == {"north": {"missing": {"weight": [-999]}}}
    assert str(page).count("-999 (") == 1  # said once, not by a note too


def test_a_group_a_date_a_task_and_the_wrong_class(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    days = [int(f"{day:%Y%m%d}") for day in pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 300, N), "D")]
    page = looked(
        tmp_path, {"north": "outcome", "south": "stay"}, {"split": None},
        north=made(1, seen=days, patient_id=draw.integers(0, 80, N), outcome=draw.choice(["ill", "well"], N)),
        south=made(2, stay=draw.integers(0, 20, N)),
    )  # fmt: skip
    changes = {own.kind: own.to_dict()["fix"] for own in page.findings}
    assert changes == {
        "group": {"north": {"split": {"group": "patient_id"}}},
        "task": {"south": {"task": "regression"}},
        "date": {"north": {"types": {"seen": {"date": "%Y%m%d"}}}},
        "positive": {"north": {"positive": "ill"}},
    }
    settings = page.change["data"]["source"]["init_args"]
    assert settings["task"] == {"south": "regression"} and settings["positive"] == {"north": "ill"}
    assert "split" not in settings  # south has no such column


# ---------------------------------------------------------------------- between clients


@pytest.mark.parametrize("name", ["Age", "AGE_YEARS", "age (years)", "age_at"])
def test_one_thing_under_two_names(tmp_path: Path, name: str) -> None:
    found = only(looked(tmp_path, north=made(1), south=made(2).rename(columns={"age": name}), west=made(3)), "name")
    assert (found.column, found.to_dict()["fix"]) == ("age", {"south": {"rename": {name: "age"}}})


def test_names_that_are_spelt_alike_are_asked_about(tmp_path: Path) -> None:
    found = only(looked(tmp_path, north=made(1), south=made(2).rename(columns={"pressure": "presure"})), "name")
    assert "'pressure'" in found.text and "'presure'" in found.text and not found.fix


def test_alike_names_of_other_things_are_not(tmp_path: Path) -> None:
    """Radius_mean and radius_max, x1 and x2; and two names at one client are two things."""
    draw = np.random.default_rng(6)
    north = made(1, radius_mean=draw.normal(size=N), x1=draw.normal(size=N), site_a=draw.normal(size=N))
    south = made(2, radius_max=draw.normal(size=N), x2=draw.normal(size=N), site_b=draw.normal(size=N))
    both = made(3, bmi_mean=draw.normal(27, 4, N))
    assert looked(tmp_path, north=north, south=south, both=both).findings == ()


@pytest.mark.parametrize(
    ("column", "factor", "unit"),
    [("age", 365.25, "days and years"), ("age", 12, "months"), ("bmi", 1000, "1,000"), ("pressure", 1 / 2.54, "inch"),
     ("bmi", 1 / 18.016, "mmol"), ("pressure", 100_000, "times")],
)  # fmt: skip
def test_one_name_in_two_units(tmp_path: Path, column: str, factor: float, unit: str) -> None:
    south = made(2)
    south[column] = (south[column] * factor).round(2)
    found = only(looked(tmp_path, north=made(1), south=south, west=made(3)), "scale")
    assert found.column == column and unit in found.text
    assert "at south" in found.text.replace("at north and west", "")


def test_other_people_are_no_other_unit(tmp_path: Path) -> None:
    """Children and the old: quartiles are apart, and no unit explains it."""
    draw = np.random.default_rng(7)
    page = looked(tmp_path, north=made(1, age=draw.integers(20, 40, N)), south=made(2, age=draw.integers(60, 90, N)))
    assert of(page, "scale") == []


def test_one_name_of_two_kinds(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    flag = draw.integers(0, 2, N)
    page = looked(
        tmp_path,
        north=made(1, smoker=flag, grade=draw.integers(1, 4, N)),
        south=made(2, smoker=np.where(flag == 1, "yes", "no"), grade=draw.choice(["low", "mid", "high"], N)),
    )
    assert {own.column: own.to_dict()["fix"] for own in of(page, "kind")} == {
        "smoker": {"north": {"types": {"smoker": "boolean"}}},
        "grade": {"north": {"types": {"grade": "categorical"}}},
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(["M", "F"], ["male", "female"]), (["Male", "Female"], ["male", "female"]),
     (["Surgery", "Intensive"], ["surgery ", "intensiv"])],
)  # fmt: skip
def test_one_category_in_two_spellings(tmp_path: Path, ours: list[str], theirs: list[str]) -> None:
    draw = np.random.default_rng(9)
    page = looked(tmp_path, north=made(1, sex=draw.choice(ours, N)), south=made(2, sex=draw.choice(theirs, N)))
    assert only(page, "values").column == "sex"


def test_other_categories_are_no_other_spelling(tmp_path: Path) -> None:
    draw = np.random.default_rng(9)
    ours, theirs = ["Bern", "Basel", "A", "AB"], ["Genf", "Zug", "B", "O"]
    assert looked(
        tmp_path, north=made(1, town=draw.choice(ours, N)), south=made(2, town=draw.choice(theirs, N))
    ).findings == ()  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "what"),
    [([0, 1], [1, 2], "counted from"), (["yes", "no"], ["Yes", "No"], "spelling"), (["yes", "no"], [1, 0], "two ways"),
     ([0, 1], [0, 1, 2, 3], "further")],
)  # fmt: skip
def test_labels_that_look_alike(tmp_path: Path, ours: list[Any], theirs: list[Any], what: str) -> None:
    draw = np.random.default_rng(10)
    page = looked(tmp_path, north=made(1, outcome=draw.choice(ours, N)), south=made(2, outcome=draw.choice(theirs, N)))
    assert what in only(page, "labels").text


def test_labels_are_compared_where_the_target_is_one(tmp_path: Path) -> None:
    """A third client of the same labels predicts something else."""
    draw = np.random.default_rng(10)
    north, south, west = made(1), made(2, outcome=draw.integers(0, 5, N)), made(3).rename(columns={"outcome": "died"})
    page = looked(
        tmp_path, {"west": "died", "north": "outcome", "south": "outcome"}, west=west, north=north, south=south
    )
    assert only(page, "labels").clients == ("north", "south")


def test_the_same_people_at_two_clients(tmp_path: Path) -> None:
    north, south = made(1), made(2)
    south = pd.concat([south, north.iloc[:30]])[["bmi", "ward", "outcome", "age", "pressure"]]  # in another order
    found = only(looked(tmp_path, north=north, south=south), "rows")
    assert found.text.startswith("30 rows stand at north and at south")


def test_few_values_are_no_people(tmp_path: Path) -> None:
    """Three columns of yes and no are equal for many."""
    draw = np.random.default_rng(11)
    tables = {
        name: pd.DataFrame({own: draw.integers(0, 2, N) for own in ("a", "b", "c", "outcome")}) for name in ("x", "y")
    }
    assert of(looked(tmp_path, **tables), "rows") == []


# ---------------------------------------------------------------------- the page


def test_every_client_has_its_numbers(tmp_path: Path) -> None:
    north = made(1, note=[f"patient {n} came in the morning and was well" for n in range(N)])
    north.loc[:11, "bmi"] = np.nan
    page = looked(tmp_path, north=north, south=made(2))
    own = page.clients[0]
    assert own.classes == north["outcome"].value_counts().to_dict()
    assert own.columns["bmi"].missing == 12 / N and own.missing == 12 and own.cells == 4 * N
    assert own.columns["pressure"].quantiles == tuple(north["pressure"].quantile([0.05, 0.25, 0.5, 0.75, 0.95]))
    assert own.left_out == {"note": "free text"}
    text = str(page)
    assert "3 numbers, 1 category. Left out: note (free text)" in text
    assert "12 cells in 1 column: bmi 5 %" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    page = looked(tmp_path, north=made(1, told=LEAKS["a code of it"]), south=made(2).rename(columns={"age": "Age"}))
    shown = Page(page.clients, page.findings, {}, columns=True).text(width)
    assert max(map(len, shown.split("\n"))) <= width
    assert any(isinstance(part, Grid) for part in page.parts())


def test_a_page_is_plain_data(tmp_path: Path) -> None:
    page = looked(tmp_path, north=made(1, told=LEAKS["a code of it"]))
    told = json.loads(json.dumps(page.to_dict()))
    assert told["findings"][0]["column"] == "told"
    assert told["clients"][0]["columns"]["ward"]["kind"] == "categorical"


def test_several_labels_have_names_and_balance(tmp_path: Path) -> None:
    died, back = np.repeat([1, 0], [60, 180]), np.repeat(["yes", "no", None], [90, 130, 20])
    page = looked(tmp_path, ["died", "back"], north=made(1, died=died, back=back).drop(columns="outcome"))
    text = str(page)
    assert "north: predicts died, back (multi_label): " in text and "('died'" not in text
    assert "died 1 in 60 of 240 rows (25 %); back yes in 90 of 220 rows (40.9 %), not known of 20 rows" in text
    assert of(page, "untrainable") == []


@pytest.mark.parametrize(
    ("target", "task", "what"),
    [
        ("outcome", None, "one class: a classifier cannot be trained on it"),
        (["outcome", "other"], None, "no label has two values"),
        ("outcome", "counts", "no rate can be learnt"),
    ],
)
def test_a_client_that_cannot_be_trained_is_found(tmp_path: Path, target: Any, task: str | None, what: str) -> None:
    page = looked(tmp_path, target, {"task": task}, north=made(1, outcome=0, other="no"))
    assert what in only(page, "untrainable").text and page.findings[0].kind == "untrainable"


def test_sizes_are_told_of_the_clients_that_differ_and_of_targets(tmp_path: Path) -> None:
    def wages(seed: int, age: float, pay: float) -> pd.DataFrame:
        draw = np.random.default_rng(seed)
        return pd.DataFrame(
            {"age": draw.normal(44, 8, N) * age, "wage": draw.gamma(9, 1, N) * pay, "x": draw.normal(size=N)}
        )

    tables = {"germany": wages(1, 1, 12), "usa": wages(2, 1 / 6, 0.5), "australia": wages(3, 1 / 120, 0.8)}
    page = looked(tmp_path, "wage", {"task": "regression"}, **tables)
    scales = {own.column: own for own in of(page, "scale")}
    medians = {name: frame["age"].median() for name, frame in tables.items()}
    assert all(f"{medians[name]:.2g}"[:2] in scales["age"].text and name in scales["age"].text for name in tables)
    assert "germany" in scales["wage"].text


def test_two_clients_with_one_small_file_are_said(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"age": draw.normal(50, 9, 60).round(1), "sex": draw.choice(["M", "F"], 60), "sbp": draw.integers(90, 180, 60)}
    )
    rows["outcome"] = draw.integers(0, 2, 60)
    assert [own.clients for own in of(looked(tmp_path, north=rows, south=rows), "rows")] == [("north", "south")]
