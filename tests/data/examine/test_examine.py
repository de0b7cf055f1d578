"""What is planted in made tables is found, and little else; honest tables raise no alarm."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.examine import Page, examine
from fedlit.data.examine.binned import Pools, answers_of, bins_of, unexplained_by
from fedlit.data.files import RemoteFile
from fedlit.data.findings import Finding, Findings
from fedlit.data.sources import Heart, Tables
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError

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


def choice(*values: Any) -> Callable[[pd.DataFrame, np.random.Generator], Any]:
    return lambda frame, draw: draw.choice(values, len(frame))


def whole(low: int, high: int) -> Callable[[pd.DataFrame, np.random.Generator], Any]:
    return lambda frame, draw: draw.integers(low, high, len(frame))


def looked(folder: Path, target: Any, tables: dict[str, pd.DataFrame], **options: Any) -> Page:
    """The page of tables that are written to files."""
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    source = Tables({name: str(folder / f"{name}.csv") for name in tables}, target, **options)
    return examine(source.tables(seed=8), source)


def odd(page: Page) -> list[Finding]:
    """The findings that ask something."""
    quiet = ("left out", "read", "few rows", "not looked for", "tail")
    return [own for own in page.findings if own.kind not in quiet]


def found(page: Page) -> list[tuple[str, str, str]]:
    """Kind, clients and column of what was found."""
    return [(own.kind, " ".join(own.clients), own.column) for own in odd(page)]


def fixes(page: Page) -> dict[str, Any]:
    """Of what was found: column → the settings of the tables that would settle it."""
    return {
        own.column: own.fix["data"]["source"]["init_args"] if own.fix else {} for own in odd(page)
    }


# ---------------------------------------------------------------------- honest tables


def test_a_time_is_asked_about_beside_an_event_alone(tmp_path: Path) -> None:
    def times(draw: np.random.Generator) -> Any:
        return draw.integers(1, 3000, N)

    frame = made(1, rtime=lambda own, draw: times(draw), time=lambda own, draw: times(draw))
    assert [
        own.column for own in odd(looked(tmp_path, "outcome", {"a": frame, "b": made(2)}))
    ] == []
    event = {name: own.rename(columns={"outcome": "death"}) for name, own in {"a": frame}.items()}
    event["b"] = made(2).rename(columns={"outcome": "death"})
    asked = [own.column for own in odd(looked(tmp_path, "death", event)) if own.kind == "time"]
    assert asked == ["rtime", "time"]


def test_the_real_hearts_raise_one_alarm_which_is_true(
    real_file: Callable[[RemoteFile], Path],
) -> None:
    for file in Heart.known_files:
        real_file(file)
    clients = ["cleveland", "hungarian", "switzerland", "va", "sa", "faisalabad"]
    (alarm,) = odd(examine(Heart(clients=clients).tables(seed=8)))
    # the days of follow-up of a patient who died end with the death that is to be predicted
    assert (alarm.clients, alarm.column) == (("faisalabad",), "time")


HONEST: dict[str, Callable[[np.random.Generator], dict[str, pd.DataFrame]]] = {
    "nothing": lambda draw: {"north": made(1), "south": made(2), "west": made(3)},
    "a good column is no leak": lambda draw: {
        # AUROC 0.96
        "north": made(1, good=lambda own, draw: own["outcome"] + draw.normal(0, 0.4, len(own)))
    },
    "alike names of other things; two names at one client": lambda draw: {
        "north": made(1, radius_mean=draw.normal(size=N), x1=draw.normal(size=N), site_a=draw.normal(size=N)),
        "south": made(2, radius_max=draw.normal(size=N), x2=draw.normal(size=N), site_b=draw.normal(size=N)),
        "both": made(3, bmi_mean=draw.normal(27, 4, N)),
    },
    "other people are no other unit": lambda draw: {"a": made(1, age=whole(20, 40)), "b": made(2, age=whole(60, 90))},
    "other categories are no other spelling": lambda draw: {
        "north": made(1, town=choice("Bern", "Basel"), blood=choice("A", "AB", "W", "X")),
        "south": made(2, town=choice("Genf", "Zug"), blood=choice("B", "O", "Y", "Z")),
    },
    "rows of few values are no people": lambda draw: {
        name: pd.DataFrame({own: draw.permutation(N) % 2 for own in ("a", "b", "c", "outcome")}) for name in "xy"
    },
}  # fmt: skip


@pytest.mark.parametrize("what", HONEST)
def test_what_is_not_odd_is_not_found(tmp_path: Path, what: str) -> None:
    page = looked(tmp_path, "outcome", HONEST[what](np.random.default_rng(7)))
    assert [own for own in found(page) if own[0] not in ("", "twins")] == []
    assert len(page.findings) == 0 or what != "nothing"


# ---------------------------------------------------------------------- leaks


LEAKS: dict[str, Callable[[pd.DataFrame, np.random.Generator], Any]] = {
    "a noisy double": lambda own, draw: own["outcome"] * 10 + draw.normal(0, 1, len(own)),
    "a code of it": lambda own, draw: np.where(own["outcome"] == 1, "X1", "Z9"),
    "a gap where it is 1": lambda own, draw: np.where(
        own["outcome"] == 1, np.nan, draw.normal(size=len(own)).round(3)
    ),
    "in the middle": lambda own, draw: np.where(
        own["outcome"] == 1, draw.uniform(4, 6, len(own)), draw.choice([-1, 1], len(own)) * 50 + 5
    ).round(3),
    "huge numbers": lambda own, draw: np.where(own["outcome"] == 1, 1e300, -1e300),
}


@pytest.mark.parametrize("planted", LEAKS)
def test_a_column_that_tells_the_target_is_found(tmp_path: Path, planted: str) -> None:
    page = looked(tmp_path, "outcome", {"north": made(1, told=LEAKS[planted])})
    assert found(page) == [("leak", "north", "told")]
    assert fixes(page) == {"told": {"drop": ["told"]}} and len(page.findings.blocks) == 1


def test_leaks_of_a_number(tmp_path: Path) -> None:
    honest = made(1).drop(columns="outcome")
    cost = np.exp(np.random.default_rng(5).normal(8, 1, N)).round(2)
    north = honest.assign(cost=cost, in_francs=(cost * 0.94 + 3).round(2))
    south = honest.assign(cost=cost + 1, above=np.where(cost > np.median(cost), 1, 0))
    page = looked(tmp_path, "cost", {"north": north, "south": south}, task="regression")
    # these are the same people
    assert found(page) == [("leak", "north", "in_francs"), ("rows", "north south", "")]


def test_leaks_are_looked_for_in_training_rows_only(tmp_path: Path) -> None:
    """A column that tells the target of test rows alone is none of training's business."""
    frame = made(1)
    frame["part"] = np.where(
        np.arange(N) < 120, "train", np.where(np.arange(N) < 150, "validation", "test")
    )
    frame["odd"] = np.where(np.arange(N) < 120, np.arange(N) % 7, frame["outcome"] * 100)
    page = looked(tmp_path, "outcome", {"n": frame}, split={"column": "part"})
    assert "leak" not in [kind for kind, *_ in found(page)]


def small_sites(
    tell: Callable[[pd.DataFrame, np.random.Generator], Any], rows: int = 30
) -> pd.DataFrame:
    """One table of eight sites, too small for a look at each alone."""
    return pd.concat([made(seed, rows, told=tell, site=f"s{seed}") for seed in range(8)])


@pytest.mark.parametrize("in_one_file", [True, False])
def test_leaks_are_found_in_rows_of_small_sites_together(tmp_path: Path, in_one_file: bool) -> None:
    rows = small_sites(LEAKS["a code of it"])
    if in_one_file:
        page = looked(tmp_path, "outcome", {"sites": rows}, client_column="site")
    else:
        sites = {str(name): own.drop(columns="site") for name, own in rows.groupby("site")}
        page = looked(tmp_path, "outcome", sites)
    (leak,) = page.findings.blocks
    assert (leak.column, len(leak.clients)) == ("told", 8)
    assert fixes(page)["told"] == {"drop": ["told"]}


def test_an_identifier_of_small_sites_is_found_over_all_rows(tmp_path: Path) -> None:
    """Of twelve rows, all may differ by chance; of those of eight sites, they do not."""
    codes = [f"K{n * 7919 % 9973}" for n in range(96)]
    sites = {
        f"s{n}": made(n, 12, code=codes[12 * n : 12 * n + 12], town=choice("Bern", "Basel"))
        for n in range(8)
    }
    page = looked(tmp_path, "outcome", sites, split="random")
    (note,) = (own for own in page.findings if own.kind == "identifier")
    assert (note.column, len(note.clients)) == ("code", 8)
    assert note.fix == {"data": {"source": {"init_args": {"types": {"code": "identifier"}}}}}


def test_what_only_tells_sites_apart_is_no_leak(tmp_path: Path) -> None:
    """Outcomes differ between sites, and a column names the site: within a site it says nothing."""
    rows = small_sites(lambda own, draw: 0.0, rows=60)
    site = rows["site"].str[1:].astype(int)
    rows["told"] = site * 100 + np.random.default_rng(3).normal(size=len(rows)).round(3)
    rows["outcome"] = (
        np.random.default_rng(4).random(len(rows)) < np.where(site < 4, 0.02, 0.98)
    ).astype(int)
    page = looked(tmp_path, "outcome", {"sites": rows}, client_column="site")
    assert page.findings.blocks == ()


@pytest.mark.parametrize("classes", [True, False])
def test_pools_leave_unexplained_what_each_leaves_alone(classes: bool) -> None:
    draw = np.random.default_rng(4)
    sizes = (40, 95, 61)
    frame = made(5, sum(sizes))[["bmi", "pressure", "ward"]]
    frame.loc[draw.random(len(frame)) < 0.1, ["bmi", "ward"]] = np.nan
    target = pd.Series(draw.choice(["b", "a", "rare"], len(frame), p=[0.6, 0.37, 0.03]))
    if not classes:
        target = frame["pressure"].fillna(0) + draw.normal(0, 9, len(frame)).round()
    pools = Pools.of([[range(size)] for size in sizes])
    answers = answers_of(target, classes, pools)
    together = unexplained_by(bins_of(frame, ["ward"], pools), answers, pools)
    for pool, scores in enumerate(together):
        chosen = pools.of_row == pool
        rows = frame[chosen].reset_index(drop=True)
        labels = target[chosen].reset_index(drop=True)
        wanted = pd.DataFrame({"rank": labels.rank(pct=True)})
        if classes:
            wanted = pd.get_dummies(labels, dtype=float)
            wanted = wanted.loc[:, wanted.sum() >= 8]
        for name, score in zip(frame, scores, strict=True):
            bins = rows[name].fillna("gap") if name == "ward" else bins_alone(rows[name])
            within = (wanted - wanted.groupby(bins).transform("mean")) ** 2
            freedom = len(rows) - bins.nunique()
            assert np.isclose(score, within.to_numpy().sum() / freedom), (pool, name)


def bins_alone(column: pd.Series) -> pd.Series:
    """At most 32 bins of four or more rows; a value as frequent as a bin has its own."""
    most = min(32, len(column) // 4)
    first = column.rank(method="min", na_option="bottom") - 1
    last = column.rank(method="max", na_option="bottom") - 1
    frequent = last - first >= len(column) // most
    return 2 * (first * most // len(column)) + frequent


def test_a_leak_at_one_site_is_dropped_at_all(tmp_path: Path) -> None:
    """Of a column that is common, what one site must not know is no input of the others."""
    tables = {
        "north": made(1, told=LEAKS["a code of it"]),
        "south": made(2, told=choice("X1", "Z9")),
    }
    page = looked(tmp_path, "outcome", tables)
    assert fixes(page) == {"told": {"drop": ["told"]}} and page.findings[0].clients == (
        "north",
        "south",
    )


def test_for_whom_nothing_was_looked_for_is_stated(tmp_path: Path) -> None:
    tables = {"north": made(1), "south": made(2, rows=30).rename(columns={"outcome": "died"})}
    page = looked(tmp_path, {"north": "outcome", "south": "died"}, tables)
    assert [own.clients for own in page.findings if own.kind == "not looked for"] == [("south",)]


def test_a_date_has_one_finding_and_one_fix(tmp_path: Path) -> None:
    days = pd.date_range("2021-01-01", periods=N, freq="3D").astype(str)
    tables = {own: made(seed, died=lambda own, draw: np.where(own["outcome"] == 1, days.to_numpy(), np.array(None)))
              for seed, own in enumerate(["north", "south"])}  # fmt: skip
    assert fixes(looked(tmp_path, "outcome", tables)) == {"died": {"drop": ["died"]}}


def test_what_is_known_is_settled_and_shown(tmp_path: Path) -> None:
    made(1, told=LEAKS["a code of it"]).to_csv(tmp_path / "north.csv", index=False)
    source = Tables({"north": str(tmp_path / "north.csv")}, "outcome")
    tables = source.tables(seed=8)
    page = examine(tables, source, known={"told": "set at admission"})
    assert page.findings.blocks == () and page.findings.fix == {}
    assert [own.reason for own in page.findings.known] == [
        "set at admission"
    ] and "set at admission" in str(page)
    with pytest.raises(ConfigError, match=r"data\.known"):
        examine(tables, source, known={"tlod": "set at admission"})


def test_many_columns_take_bounded_time() -> None:
    from time import process_time

    draw = np.random.default_rng(1)
    target = pd.Series(draw.integers(0, 2, 400), name="y")
    features = pd.DataFrame(draw.normal(size=(400, 500)), columns=[f"g{n}" for n in range(500)])
    features["g17"] = target + draw.normal(0, 0.01, 400)
    splits: dict[Any, Any] = dict(
        zip(
            ("train", "validation", "test"),
            np.split(draw.permutation(400), [300, 350]),
            strict=True,
        )
    )
    start = process_time()
    page = examine(
        [
            ClientTable(name, features + shift, target, splits)
            for name, shift in (("a", 0), ("b", 1))
        ]
    )
    assert process_time() - start < 15
    assert found(page) == [("leak", "a b", "g17")]


# ---------------------------------------------------------------------- one client


@pytest.mark.parametrize(
    ("target", "task"),
    [("outcome", None), (["outcome", "other"], None), ("outcome", "counts")],
)
def test_a_client_that_cannot_be_trained_is_found(
    tmp_path: Path, target: Any, task: str | None
) -> None:
    page = looked(tmp_path, target, {"north": made(1, outcome=0, other="no")}, task=task)
    assert page.findings[0].kind == "untrainable" and page.findings[0].clients == ("north",)


# ---------------------------------------------------------------------- between clients


def test_one_category_and_one_kind_in_two_ways(tmp_path: Path) -> None:
    flag = np.random.default_rng(8).integers(0, 2, N)
    north = made(
        1, smoker=flag, grade=whole(1, 4), sex=choice("M", "F"), unit=choice("Surgery", "Intensive")
    )
    south = made(
        2, smoker=np.where(flag == 1, "yes", "no"), grade=choice("low", "mid", "high"), sex=choice("M", "female"),
        unit=choice("surgery ", "INTENSIVE"),
    )  # fmt: skip
    page = looked(tmp_path, "outcome", {"north": north, "south": south})
    assert found(page) == [
        ("kind", "north south", "smoker"), ("kind", "north south", "grade"), ("values", "north "
            "south", "sex"),
        ("values", "north south", "unit"),
    ]  # fmt: skip
    assert fixes(page)["smoker"] == {"files": {"north": {"types": {"smoker": "boolean"}}}}
    # as categories of numbers and of words they had none in common
    assert fixes(page)["grade"] == {}


@pytest.mark.parametrize(
    ("column", "name", "fix"),
    [("age", "AGE_YEARS", True), ("age", "age (years)", True), ("town", "Town", False)],
)
def test_one_thing_under_two_names(tmp_path: Path, column: str, name: str, fix: bool) -> None:
    town = choice("rural", "city")
    south = made(2, town=town if fix else whole(8, 13)).rename(columns={column: name})
    tables = {"north": made(1, town=town), "south": south, "west": made(3, town=town)}
    page = looked(tmp_path, "outcome", tables)
    assert found(page) == [("name", "north west south", column)]
    assert fixes(page) == {column: {"files": {"south": {"rename": {name: column}}}} if fix else {}}


@pytest.mark.parametrize(
    ("column", "factor"),
    [("age", 365.25), ("pressure", 1 / 2.54), ("pressure", 100_000)],
)
def test_one_name_in_two_units(tmp_path: Path, column: str, factor: float) -> None:
    tables = {"north": made(1), "south": made(2), "west": made(3)}
    tables["south"][column] = (tables["south"][column] * factor).round(2)
    page = looked(tmp_path, "outcome", tables)
    (note,) = odd(page)
    assert (note.kind, note.column, note.clients[-1]) == ("scale", column, "south")
    assert all(
        f"{tables[own][column].median():,.5g} at {own}" in note.sentence for own in note.clients
    )
    (note,) = (
        own
        for own in odd(looked(tmp_path, column, tables, task="regression"))
        if own.kind == "scale"
    )  # targets
    assert note.column == column and "in units of the target can only be" in note.sentence


@pytest.mark.parametrize(
    ("ours", "theirs", "alike"),
    [
        ([0, 1], [1, 2], True), (["yes", "no"], [1, 0], True), (["a", "b"], ["A", "b"], True),
        # two labels each and none in common: other diseases, or other words
        (["AD", "HC"], ["MS", "PD"], True), (["AD", "HC", "X"], ["MS", "PD", "Y"], False),
        ([0, 1], [0, 1, 2, 3], True), ([1, 2, 5], [2, 3, 4], False),
    ],
)  # fmt: skip
def test_labels_that_look_alike(
    tmp_path: Path, ours: list[Any], theirs: list[Any], alike: bool
) -> None:
    """Of clients that predict one thing: west has north's labels, and predicts another."""
    west = made(3, outcome=choice(*ours)).rename(columns={"outcome": "died", "age": "years of age"})
    tables = {
        "west": west,
        "north": made(1, outcome=choice(*ours)),
        "south": made(2, outcome=choice(*theirs)),
    }
    targets = {"west": "died", "north": "outcome", "south": "outcome"}
    notes = [own for own in looked(tmp_path, targets, tables).findings if own.kind == "labels"]
    assert [note.clients for note in notes] == [("north", "south")] * alike


def test_the_same_people_at_two_clients(tmp_path: Path) -> None:
    north = made(1)
    south = pd.concat([made(2).iloc[30:], north.iloc[:30]])[
        ["bmi", "ward", "outcome", "age", "pressure"]
    ]
    (note,) = odd(looked(tmp_path, "outcome", {"north": north, "south": south}))
    assert (note.kind, note.clients) == ("rows", ("north", "south")) and note.sentence.startswith(
        "30 rows"
    )


def test_the_same_identifiers_at_two_clients(tmp_path: Path) -> None:
    """But not numbers that count the rows."""
    ids = [f"P{n:05d}" for n in np.random.default_rng(0).permutation(90_000)[: 2 * N]]
    north, south = (
        made(n, patient_id=own, row_id=range(N)) for n, own in ((1, ids[:N]), (2, ids[N - 9 : -9]))
    )
    (note,) = (
        own for own in odd(looked(tmp_path, "outcome", {"a": north, "b": south})) if own.kind
    )
    assert (note.kind, note.clients, note.column) == (
        "people",
        ("a", "b"),
        "patient_id",
    ) and "9 values" in note.sentence


# ---------------------------------------------------------------------- the page


def test_every_client_has_its_numbers(tmp_path: Path) -> None:
    north = made(1, note=[f"patient {n} came in the morning and was well" for n in range(N)])
    north.loc[:11, "bmi"] = np.nan
    north[constant := [f"c{place}" for place in range(9)]] = "Bern"
    page = looked(
        tmp_path, "outcome", {"north": north, "south": made(2, note=LEAKS["a code of it"])}
    )
    own = page.clients[0]
    assert own.targets["outcome"].values == north["outcome"].value_counts().to_dict()
    assert own.columns["bmi"].missing == 12 / N
    assert own.columns["pressure"].quantiles == tuple(
        north["pressure"].quantile([0, 0.25, 0.5, 0.75, 1])
    )
    assert own.left_out == {"note": "free text", **dict.fromkeys(constant, "constant")}
    text = str(page)
    assert (
        "3 numeric, 1 categorical. Left out: note (free text); c0, c1, c2, " in text
        and "Missing: bmi 5 %" in text
    )
    assert "Nothing else to review." in str(
        replace(
            page, findings=Findings(tuple(own for own in page.findings if own.kind == "left out"))
        )
    )
    assert "No problems were found." in str(replace(page, findings=Findings()))
    told = json.loads(json.dumps(page.to_dict()))
    assert (
        told["findings"][0]["column"] == "note"
        and told["clients"][0]["columns"]["ward"]["kind"] == "categorical"
    )
    for width in (40, 80):
        shown, _ = page.text(width).split("To write into")  # what is to be copied is not broken
        assert max(map(len, shown.split("\n"))) <= width


def test_several_labels_have_names_and_balance(tmp_path: Path) -> None:
    died = np.repeat([1, 0], [60, 180])
    back = np.repeat(["yes", "no", None], [90, 130, 20])
    page = looked(
        tmp_path, ["died", "back"], {"north": made(1, died=died, back=back).drop(columns="outcome")}
    )
    text = str(page)
    assert "predicts died: 0 (180 rows, 75 %), 1 (60 rows, 25 %); back: " in text
    assert "yes (90 rows, 40.9 %)" in text and "not known (20 rows)" in text


def test_a_page_of_many_clients_stays_short() -> None:
    """Each has a leak, another size and a note of its own: all are in the data, few are printed."""
    draw = np.random.default_rng(2)
    splits: dict[Any, Any] = {
        "train": np.arange(10),
        "validation": np.arange(10, 12),
        "test": np.arange(12, 15),
    }
    tables = []
    for place in range(300):
        features = pd.DataFrame(
            {"x": draw.normal(5, 1, 15) * 10 ** (place % 2 * 3), "y": draw.normal(size=15)}
        )
        target = pd.Series(draw.integers(0, 2, 15), name="outcome")
        tables.append(
            ClientTable(
                f"s{place}", features, target, splits, notes=(f"s{place}: {place} rows are odd",)
            )
        )
    page = examine(tables)
    assert len(page.text(80).splitlines()) < 50


def test_labels_that_are_dates_are_text_in_json() -> None:
    days = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"] * 20), name="day")
    splits: dict[Any, Any] = dict(
        zip(("train", "validation", "test"), np.split(np.arange(40), [30, 35]), strict=True)
    )
    page = examine([ClientTable("a", pd.DataFrame({"x": np.arange(40) / 7}), days, splits)])
    assert page.to_dict()["clients"][0]["targets"]["day"]["values"] == {
        "2024-01-01 00:00:00": 20, "2024-01-02 00:00:00": 20
    }  # fmt: skip
    json.dumps(page.to_dict())
