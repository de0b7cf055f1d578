"""``fedlit check --fix``: each fix and each choice that a finding proposes loads, and settles it;
comments stay."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlit import yaml_text
from fedlit.__main__ import main
from fedlit.data.findings import CHOOSE, KINDS
from fedlit.data.merging import merged
from fedlit.data.schema.schema import Schema
from fedlit.run.load import load
from fedlit.yaml_edit import edited

N = 200
FILE = """# the file of a hospital
seed: 1  # of everything
data:
  source:
    class_path: fedlit.Tables
    init_args:
      # where the tables lie
      files:
        north: north.csv  # since 2019
        south: south.csv
      target: outcome
      # the last comment of the tables
  batches: 4  # of every client
model:
  client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}
"""
IN_ONE_FILE = """seed: 1
data:
  source:
    class_path: fedlit.Tables
    init_args: {files: all.csv, client_column: site, target: outcome}  # all sites
model:
  client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}
"""


def site(seed: int, **more: Any) -> pd.DataFrame:
    """An honest table, with further columns."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": draw.integers(20, 90, N), "bmi": draw.normal(27, 4, N).round(2)})
    frame["ward"] = draw.choice(["surgery", "general"], N)
    frame["outcome"] = draw.integers(0, 2, N)
    for name, value in more.items():
        frame[name] = value(frame, draw) if callable(value) else value
    return frame


def of_outcome(frame: pd.DataFrame, draw: np.random.Generator) -> Any:
    return np.where(frame["outcome"] == 1, "X1", "Z9")


def with_gaps(frame: pd.DataFrame, draw: np.random.Generator) -> Any:
    return np.where(np.arange(N) % 9 == 0, -999, frame["bmi"])


def labels(*names: Any) -> Callable[[pd.DataFrame, np.random.Generator], Any]:
    return lambda frame, draw: draw.choice(names, N)


def money(sign: str) -> list[str]:
    return [f"{sign}{n % 80}.50" for n in range(N)]


DAYS = [20240101 + place % 28 for place in range(N)]
FLAG = np.arange(N) // 3 % 2
PEOPLE = [f"P{place * 7 % 80}" for place in range(N)]
DATES = [(f"{2000 + n}-01-31", f"{n % 28 + 1}.1.{1900 + n}")[n % 2] for n in range(N)]
SCALE = [9 if n % 9 == 0 else n % 5 + 1 for n in range(N)]
GLUCOSE = [0 if n % 9 == 0 else 90 + n % 40 for n in range(N)]
ICD = [("250.00", "250.01", "401.9", "428.0")[n % 4] for n in range(N)]
GRADES = [3 + bin(n).count("1") for n in range(N)]
SERIAL = [43831 + n * 7 % 90 for n in range(N)]
SHORTENED = [f"1.{n % 9}0E+12" for n in range(N)]
WEIGHTS = [0.5 + n % 7 for n in range(N)]
GARBLED = [("KÃ¶ln", "Bonn")[n % 2] for n in range(N)]
JSON = [f'{{"mg": {n % 9}}}' for n in range(N)]
HEAVY = np.random.default_rng(3).normal(70, 9, N).round(1)
HEAT = np.random.default_rng(4).normal(37, 0.5, N).round(1)
MASSES = {
    unit: [f"{own:.1f} {unit}" for own in HEAVY * factor]
    for unit, factor in (("kg", 1), ("lb", 2.2046))
}
WORDS = [("low", "high", "3.5", "4.5", "6", "7.5")[n % 6] for n in range(N)]
WEEKS = [f"2024-{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(N)]
CASES: dict[str, tuple[str, pd.DataFrame, pd.DataFrame]] = {
    "a leak": ("leak", site(1, told=of_outcome), site(2, told=of_outcome)),
    "a leak at one client": ("leak", site(1, told=of_outcome), site(2)),
    "several rows of a person": ("group", site(1, patient_id=PEOPLE), site(2)),
    "several rows of a person everywhere": (
        "group",
        site(1, patient_id=PEOPLE),
        site(2, patient_id=PEOPLE),
    ),
    "a code for missing": ("missing", site(1, bmi=with_gaps), site(2)),
    "a code for missing everywhere": ("missing", site(1, bmi=with_gaps), site(2, bmi=with_gaps)),
    "dates as numbers": ("date", site(1, seen=DAYS), site(2)),
    "many classes": (
        "task",
        site(1, outcome=labels(*range(12))),
        site(2, outcome=labels(*range(12))),
    ),
    "the other class": (
        "positive",
        site(1, outcome=labels("ill", "well")),
        site(2, outcome=labels("ill", "well")),
    ),
    "either class": (
        "positive",
        site(1, outcome=labels("red", "blue")),
        site(2, outcome=labels("red", "blue")),
    ),
    "two names": ("name", site(1), site(2).rename(columns={"age": "AGE_YEARS"})),
    "two names and units": (
        "name",
        site(1),
        site(2).assign(age_days=lambda own: own.pop("age") * 365),
    ),
    "two units": ("scale", site(1), site(2, bmi=lambda own, draw: own["bmi"] * 1000)),
    "two kinds": ("kind", site(1, smoker=FLAG), site(2, smoker=np.where(FLAG, "yes", "no"))),
    "numbers and words": (
        "kind",
        site(1, sex=FLAG + 1),
        site(2, sex=labels("M", "F")),
    ),
    "yes and true": (
        "labels",
        site(1, outcome=labels("yes", "no")),
        site(2, outcome=labels("True", "False")),
    ),
    "numbers and many words": (
        "kind",
        site(1, size=np.arange(N) % 40),
        site(2, size=labels("small", "middling", "large")),
    ),
    "an identifier of one": (
        "kind",
        site(1, case_no=np.arange(N) * 9),
        site(2, case_no=np.arange(N) * 7 % 15),
    ),
    "two spellings": (
        "values",
        site(1, sex=labels("M", "F")),
        site(2, sex=labels("male", "female")),
    ),
    "two kinds of labels": ("labels", site(1), site(2, outcome=labels(1, 2))),
    "labels in two languages": (
        "labels",
        site(1, outcome=labels("alive", "dead")),
        site(2, outcome=labels("lebend", "tot")),
    ),
    "levels with their codes": (
        "values",
        site(1, sex=labels("M", "F")),
        site(2, sex=labels("2_male", "1_female")),
    ),
    "either order of days": (
        "guess",
        site(1, seen=[f"0{n % 9 + 1}/0{n % 7 + 1}/2024" for n in range(N)]),
        site(2),
    ),
    "codes for missing": ("missing", site(1, need=SCALE), site(2, need=SCALE)),
    "zeros that cannot be": ("missing", site(1, glucose=GLUCOSE), site(2)),
    "codes of diseases": ("codes", site(1, dx=ICD), site(2, dx=ICD)),
    "two currencies": ("unit", site(1, cost=money("$")), site(2, cost=money("€"))),
    "two units that are written": (
        "unit",
        site(1, kilos=MASSES["kg"]),
        site(2, kilos=MASSES["lb"]),
    ),
    "pounds without a word": ("scale", site(1, kilos=HEAVY), site(2, kilos=HEAVY * 2.2046)),
    "degrees without a word": ("scale", site(1, heat=HEAT), site(2, heat=HEAT * 1.8 + 32)),
    "two units in one column": (
        "unit",
        site(1, dose=[f"{n}.5 {('kg', 'lb')[n % 2]}" for n in range(N)]),
        site(2),
    ),
    "one name for two": ("collision", site(1, seen=WEEKS, **{"seen.month": FLAG}), site(2)),
    "grades": ("task", site(1, outcome=GRADES), site(2, outcome=GRADES)),
    "a slip": ("far", site(1, bmi=lambda own, draw: [2600.5, *own["bmi"][1:]]), site(2)),
    "a word for a total": (
        "total",
        site(1, age=lambda own, draw: [*own["age"][1:], "Total"]),
        site(2),
    ),
    "days as Excel counts": ("date", site(1, admit_date=SERIAL), site(2, admit_date=SERIAL)),
    "codes that Excel cut": ("codes", site(1, code=SHORTENED), site(2)),
    "weights": ("weight", site(1, sample_weight=WEIGHTS), site(2, sample_weight=WEIGHTS)),
    "time until an event": ("time", site(1, follow_up_days=SERIAL), site(2)),
    "JSON": ("several values", site(1, dose=JSON), site(2)),
    "words beside numbers": ("text", site(1, lab=WORDS), site(2)),
    "a slip in a year": ("far", site(1, seen=["1624-01-01", *WEEKS[1:]]), site(2)),
    "garbled letters": ("garbled", site(1, town=GARBLED), site(2)),
    "one class": ("untrainable", site(1), site(2, outcome=0)),
    "the same rows": ("rows", site(1), site(1, outcome=labels(0, 1))),
    "the same rows twice": ("duplicate", site(1), pd.concat([site(2)[:100]] * 2)),
    "dates of no one format": ("formats", site(1, seen=DATES), site(2)),
}


def wrote(north: pd.DataFrame, south: pd.DataFrame, text: str) -> None:
    north.to_csv("north.csv", index=False)
    south.to_csv("south.csv", index=False)
    pd.concat([north.assign(site="north"), south.assign(site="south")]).to_csv(
        "all.csv", index=False
    )
    Path("mine.yaml").write_text(text)


def checked(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["check", "--format", "json", *args]) == 0, capsys.readouterr().err
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


def open_ones(findings: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [own for own in findings if own["kind"] == kind and not own["reason"]]


@pytest.mark.parametrize("text", [FILE, IN_ONE_FILE], ids=["files", "in one file"])
@pytest.mark.parametrize("case", CASES)
def test_each_fix_and_each_choice_loads_and_settles(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, north, south = CASES[case]
    wrote(north, south, text)
    before = checked(capsys, "--fix", "mine.yaml")
    if not open_ones(before, kind):
        assert text == IN_ONE_FILE  # in one table, clients cannot differ in columns
        return
    after = open_ones(checked(capsys, "--config", "mine.yaml"), kind)
    assert not [own for own in after if own["fix"]]
    fixed = Path("mine.yaml").read_text()
    for finding in after:
        keys = _choices(fixed, finding["sentence"])
        assert keys, f"{kind} of {finding['column']}: neither a fix nor a choice"
        for key in keys:
            Path("mine.yaml").write_text(fixed.replace(f"# {key}", key, 1))
            left = open_ones(checked(capsys, "--config", "mine.yaml"), kind)
            subject = "column" if finding["column"] else "clients"
            assert finding[subject] not in [
                own[subject] for own in left if own["column"] == finding["column"]
            ], key


def test_a_choice_converts_a_unit_for_new_rows_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the chosen line makes of pounds is what the other site writes in kilograms."""
    monkeypatch.chdir(tmp_path)
    for case in ("two units that are written", "pounds without a word", "two units in one column"):
        wrote(*CASES[case][1:], FILE)
        checked(capsys, "--fix", "mine.yaml")
        text = Path("mine.yaml").read_text()
        (choice,) = (line for line in text.splitlines() if line.startswith("# data.source.convert"))
        Path("mine.yaml").write_text(text.replace(choice, choice.removeprefix("# ")))
        source: Any = load("mine.yaml").data.source
        tables = {table.name: table for table in source.tables(1)}
        client = "north" if "one column" in case else "south"
        name = "dose" if "one column" in case else "kilos"
        raw = pd.read_csv(f"{client}.csv")
        texts = raw[name].astype(str).str.split(" ", expand=True)
        pounds: Any = texts[1] == "lb" if 1 in texts else True
        wanted: Any = texts[0].astype(float) * np.where(pounds, 0.45359237, 1)
        table = tables[client]
        assert table.schema is not None
        # as an exported client reads tomorrow's rows
        again, _ = Schema.of(table.schema.to_dict()).apply(raw, "here")
        for values in (table.features[name], again[name]):
            np.testing.assert_allclose(values, wanted, rtol=1e-9)


def _choices(text: str, sentence: str) -> list[str]:
    """The keys below a question."""
    found = list[str]()
    asks = False
    for line in text.splitlines():
        if line.startswith(CHOOSE):
            asks = sentence in line
        elif asks:
            found.append(line.removeprefix("# "))
    return found


def test_a_fix_of_each_kind_is_tried() -> None:
    """Of what asks something. What concerns no single column, a person settles in the tables."""
    in_tables = {"people", "identifier", "header", ""}
    asking = {kind for kind, severity in KINDS.items() if severity != "info"}
    assert asking - in_tables <= {kind for kind, *_ in CASES.values()}


def test_comments_and_order_of_a_file_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a second time nothing is written."""
    monkeypatch.chdir(tmp_path)
    wrote(*CASES["a leak"][1:], FILE)
    checked(capsys, "--fix", "mine.yaml")
    once = Path("mine.yaml").read_text()
    remaining = iter(once.splitlines())
    assert all(line in remaining for line in FILE.splitlines())  # in their order
    assert yaml_text.load(once)["data"]["source"]["init_args"]["drop"] == ["told"]
    checked(capsys, "--fix", "mine.yaml")
    assert Path("mine.yaml").read_text() == once


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: 1  # one\n# two\nb: {c: [x]}  # three\n", {"b": {"c": ["x", "y"], "d": {"e": "no"}}}),
        ("a:\n  - x  # one\n  # two\n  - y\nb: 2\n", {"a": ["x", "y", "z: 1"]}),
        (
            "a:\n  b: north.csv  # one\n\n# two\nc:\n",
            {"a": {"b": {"path": "north.csv"}}, "c": {"d": 1}},
        ),
        ("a: {b: {c: 1}}  # one", {"a": {"b": {"c": 1, "d": [1, 2]}, "e": "1e3"}, "f": None}),
        ("a: {\n  b: 1,  # one\n  c: 2  # two\n}\n", {"a": {"d": {"e": [3]}}}),
        ("a: [1, 2]  # one\nb: {x: 1}  # two\n", {"a": [3], "b": "none"}),
        ("a: |\n  text\n  more\n# one\nb: {}  # two\n", {"c": 1, "b": {"d": 1}}),
        ("a:\n    b:\n        c: 1  # one\n    # two\n", {"a": {"b": {"x": 1}, "y": {"z": [1]}}}),
    ],
)
def test_a_text_is_edited_around_its_comments(text: str, wanted: dict[str, Any]) -> None:
    content = (
        merged(yaml_text.load(text), wanted) if not isinstance(wanted.get("a"), list) else wanted
    )
    result = edited(text, content)
    assert {**yaml_text.load(text), **yaml_text.load(result)} == {**yaml_text.load(text), **content}
    comments = [word for word in ("# one", "# two", "# three") if word in text]
    places = [result.find(word) for word in comments]
    assert -1 not in places and places == sorted(places)


def test_several_answers_stand_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of settings that are one list or one mapping, and of columns with points in their names."""
    monkeypatch.chdir(tmp_path)
    coded = {"sex": FLAG + 1, "twin.of": FLAG + 1, "os_time": WEIGHTS, "follow_up": WEIGHTS}
    words = {"sex": labels("M", "F"), "twin.of": labels("A", "B")}
    wrote(site(1, **coded), site(2, **words), FILE)
    checked(capsys, "--fix", "mine.yaml")
    lines = Path("mine.yaml").read_text().splitlines()
    chosen = [line for line in lines if "'1': M" in line or "'1': A" in line]
    chosen += [line for line in lines if "drop" in line]
    assert len(chosen) == 4
    kept = [line.removeprefix("# ") if line in chosen else line for line in lines]
    Path("mine.yaml").write_text("\n".join(kept))
    assert not open_ones(checked(capsys, "--fix", "mine.yaml"), "kind")
    assert CHOOSE not in Path("mine.yaml").read_text()  # nothing is left to ask
    source: Any = load("mine.yaml").data.source
    assert source.values == {
        "north": {"sex": {"1": "M", "2": "F"}, "twin.of": {"1": "A", "2": "B"}}
    }
    assert {*source.drop} == {"os_time", "follow_up"}


def test_a_fix_holds_beside_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A choice adds to a list, to which a later fix adds, too."""
    monkeypatch.chdir(tmp_path)
    wrote(site(1, told=of_outcome), site(2, told=of_outcome), FILE)
    text = FILE + "data.source.drop+: [bmi]\ndata.source.drop+: [age]\n"
    Path("mine.yaml").write_text(text)
    checked(capsys, "--fix", "mine.yaml")
    source: Any = load("mine.yaml").data.source
    assert {*source.drop} == {"told", "bmi", "age"}
    with pytest.raises(yaml.YAMLError, match="twice"):  # of two values, none is taken in silence
        yaml_text.load("data.source.positive+: {a: x}\ndata.source.positive+: {a: z}\n")
