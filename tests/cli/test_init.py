"""``fedlit init``: the configuration that it writes says what was found, and trains as it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from elsewhere import light, mistakes

from fedlit.__main__ import main
from fedlit.data.files import RemoteFile
from fedlit.data.note import Note
from fedlit.data.sources import Heart, Tables
from fedlit.errors import ConfigError
from fedlit.run.config import read_yaml
from fedlit.run.keys import check_keys


@pytest.fixture(autouse=True)
def sites(here: Path) -> None:
    (here / "sites").mkdir()


def site(name: str, seed: int, rows: int = 120, **columns: Any) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": draw.integers(20, 90, rows), "bmi": draw.normal(27, 4, rows).round(1)}
    )
    for column, value in columns.items():
        frame[column] = value(frame, draw)
    frame.to_csv(Path("sites", name), index=False)
    return frame


def ill(frame: pd.DataFrame, draw: np.random.Generator) -> Any:
    return np.where(frame["age"] + draw.normal(0, 20, len(frame)) > 55, "yes", "no")


def settings(file: str = "sites.yaml") -> dict[str, Any]:
    content = read_yaml(Path(file))
    check_keys(content, f"{file}: ")
    assert content["data"]["source"]["class_path"] == "fedlit.Tables"
    own: dict[str, Any] = content["data"]["source"]["init_args"]
    return own


def test_what_it_writes_trains_and_scores(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other columns, classes, tasks, ways of writing and missing labels; by the commands that it
    names."""
    site("north.csv", 1, outcome=ill, code=lambda own, draw: own["outcome"].str.upper() + "!")
    site("west.csv", 2, stage=lambda own, draw: draw.choice(["I", "II", "III"], len(own)))
    west = pd.read_csv("sites/west.csv").rename(columns={"stage": "class"})
    west.loc[:6, "class"] = None
    west["town"] = ["Москва", "Казань", "Пермь", "Тула"] * (len(west) // 4)
    west.to_csv("sites/west.csv", index=False, sep=";", decimal=",", encoding="cp1251")
    site(
        "south.csv",
        3,
        target=lambda own, draw: (own["bmi"] * 3 + draw.normal(0, 1, len(own))).round(2),
    )
    draw = np.random.default_rng(4)
    rows = np.column_stack([draw.normal(size=(90, 3)).round(3), draw.integers(0, 2, 90)])
    pd.DataFrame(rows).to_csv("sites/bare.csv", index=False, header=False)
    targets = [
        "--target",
        "outcome",
        "--target",
        "west=class",
        "--target",
        "south=target",
        "--target",
        "bare=c4",
    ]
    assert main(["init", "sites", *targets]) == 0
    said = capsys.readouterr().out
    own = settings()
    assert own == {
        "files": {
            "bare": {"path": "sites/bare.csv", "names": ["c1", "c2", "c3", "c4"]},
            "north": "sites/north.csv",
            "south": "sites/south.csv",
            "west": {"path": "sites/west.csv", "encoding": "cp1251", "sep": ";"},
        },
        "target": {"bare": "c4", "north": "outcome", "south": "target", "west": "class"},
        "task": {"south": "regression"},
        "positive": {"north": "yes"},
        "unlabelled": "drop",
        "validation": 0.2,
    }
    text = Path("sites.yaml").read_text()
    told = (
        "first line is numbers",
        "west: is not UTF-8 and is read as cp1251, ",
        "west: rows without",
        "south: target is",
    )
    assert all(part in said and part in text for part in told)
    assert max(map(len, [*said.splitlines(), *text.splitlines()])) <= 80
    for line in (
        "fedlit fit --config sites.yaml",
        "fedlit test --config sites.yaml --ckpt_path best",
    ):
        assert f"#   {line}\n" in text
    assert main(["fit", "--config", "sites.yaml", "--trainer.max_epochs", "1"]) == 0
    assert main(["test", "--config", "sites.yaml", "--ckpt_path", "best"]) == 0
    scores = pd.read_csv("lightning_logs/sites/version_0/test.csv")
    assert {"bare", "north", "south", "west"} <= set(scores.iloc[:, 0])


def test_real_files_are_understood(here: Path, real_file: Callable[[RemoteFile], Path]) -> None:
    """Their own descriptions say what is predicted; all seven are read as one federation."""
    files = {
        file.path.partition("/")[2].partition(".")[0]: real_file(file) for file in Heart.known_files
    }
    for client, path in files.items():
        Path("sites", client + path.suffix).symlink_to(path)
    others = {"faisalabad": "DEATH_EVENT", "framingham": "TenYearCHD", "sa": "chd"}
    targets = ["c14", *(f"{client}={column}" for client, column in others.items())]
    told = [word for own in targets for word in ("--target", own)]
    assert main(["init", "sites", "--out", "mine.yaml", *told]) == 0
    own = settings("mine.yaml")
    uci = dict.fromkeys(("cleveland", "hungarian", "switzerland", "va"), "c14")
    assert own["target"] == uci | others
    assert "task" not in own and "unlabelled" not in own
    tables = {table.name: table for table in Tables(**own).tables(seed=1)}
    assert {name: len(table.features) for name, table in tables.items()} == {
        "cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200, "sa": 462, "faisalabad": 299,
        "framingham": 4240,
    }  # fmt: skip


def test_one_file_a_pattern_and_nothing_overwritten(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site("north.csv", 1, outcome=ill)
    site("south.csv", 2, outcome=ill)
    Path("north.yaml").write_text("mine")
    target = ["--target", "outcome"]
    assert main(["init", "sites/north.csv", *target]) == 2
    assert Path("north.yaml").read_text() == "mine" and "--force" in capsys.readouterr().err
    assert main(["init", "sites/north.csv", *target, "--force"]) == 0
    assert settings("north.yaml")["files"] == {"north": "sites/north.csv"}
    assert main(["init", "sites/*th.csv", *target]) == 0
    assert set(settings("mine.yaml")["files"]) == {"north", "south"}


def test_mistakes_are_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site("north.csv", 1, outcome=ill)
    site("other.csv", 2, zz=lambda own, draw: draw.normal(size=len(own)), one=lambda own, draw: 1)
    site(
        "year.csv",
        1,
        species=lambda own, draw: "Adelie",
        year=lambda own, draw: draw.integers(2007, 2010, len(own)),
    )
    schools([30, 30]).to_csv("schools.csv", index=False)
    schools([30]).to_csv("one.csv", index=False)
    for words, names in mistakes("init"):
        assert main(words) == 2, words
        told = " ".join(capsys.readouterr().err.split())
        assert all(name in told for name in names), told
    assert not list(here.glob("*.yaml"))


def test_neither_it_nor_check_needs_torch(here: Path) -> None:
    """Of classes; and to look at a number's file is not to train on it."""
    site("north.csv", 1, outcome=ill)
    site("south.csv", 3, target=lambda own, draw: draw.normal(size=len(own)))
    targets = ["--target", "outcome", "--target", "south=target"]
    one = ["init", "sites/north.csv", "--target", "outcome"]
    commands = (["init", "sites", *targets], one, ["check", "--config", "north.yaml"])
    assert [status for status, _, _ in light(commands, here)] == [0, 0, 0]


def test_a_site_with_few_rows_predicts_what_the_others_predict(here: Path) -> None:
    """At a school with five pupils a score has few values: it is no class there, for it is a number
    elsewhere."""
    for name, scores in (
        ("big", range(20, 60)),
        ("small", (28, 33, 38, 14, 39)),
        ("yes_no", (0, 1, 1, 0, 1, 0)),
    ):
        rows = "\n".join(
            f"{number % 7},{number % 5},{score}" for number, score in enumerate(scores)
        )
        Path("sites", f"{name}.csv").write_text(f"iq,ses,score\n{rows}\n")
    assert main(["init", "sites", "--target", "score"]) == 0
    assert settings()["task"] == {"big": "regression", "small": "regression"}


def test_numbers_beside_words_for_a_missing_value_are_numbers(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = [f"{n}.5" if n % 9 else "." for n in range(60)]
    pd.DataFrame({"x": np.arange(60) % 7, "days": [*days[:-1], "unknown"]}).to_csv(
        here / "sites.csv", index=False
    )
    assert main(["init", "sites.csv", "--target", "days"]) == 0
    assert (settings()["task"], settings()["unlabelled"]) == ({"sites": "regression"}, "drop")
    assert (
        main(["check", "sites.yaml"]) == 0
        and "8 of 60 rows have no label in days" in capsys.readouterr().out
    )


def schools(sizes: list[int]) -> pd.DataFrame:
    """Pupils of several schools: few whole scores at each, a column that is the school's own, and
    row numbers."""
    draw = np.random.default_rng(0)
    parts = [
        pd.DataFrame(
            {
                "pupilNR": draw.permutation(10_000)[:rows] + 10_000 * place,
                "school": f"s{place}",
                "size": 100 + 7 * place,
                "iq": draw.normal(100, 15, rows).round(1),
                "score": draw.integers(30, 38, rows) + place % 4,
            }
        )
        for place, rows in enumerate(sizes)
    ]
    return pd.concat(parts, ignore_index=True)


def test_one_table_of_many_small_sites(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One table has one schema and one task; what is constant at a site and differs between sites
    is kept; tiny sites are left out with a note; how a number is written is found column by column,
    and nothing is written of the whole file; and what init writes trains with 20 rows a site.
    """
    schools([20] * 14 + [7, 3]).to_csv("schools.csv", index=False, sep=";", decimal=",")
    assert main(["init", "schools.csv", "--target", "score", "--client-column", "school"]) == 0
    own = settings("schools.yaml")
    assert own["client_column"] == "school" and own["least_rows"] == 20
    # which the forest grown together needs
    assert own["task"] == {"name": "regression", "targets": "pooled"}
    assert "(targets: pooled)" in Path("schools.yaml").read_text()
    assert main(["fit", "schools.yaml", "--method", "forest", "--exchange.rule.trees", "5"]) == 0
    tables = Tables(**own).tables(seed=1)
    assert len(tables) == 14 and not any(table.categorical for table in tables)
    assert all(list(table.features.select_dtypes("number")) == ["size", "iq"] for table in tables)
    assert all(
        table.features["size"].nunique() == 1 and table.schema == tables[0].schema
        for table in tables
    )
    notes = [
        note
        for table in tables
        for note in table.notes
        if isinstance(note, Note) and not note.column
    ]
    kinds = sorted(note.kind for note in notes)
    assert kinds == [*["few rows"] * 14, "small clients"]
    capsys.readouterr()
    assert main(["check", "schools.yaml"]) == 0
    assert len(capsys.readouterr().out.splitlines()) < 35
    assert main(["fit", "schools.yaml", "--trainer.max_epochs", "1"]) == 0
    with pytest.raises(ConfigError, match="least_rows"):
        Tables(**own | {"least_rows": 31}).tables(seed=0)


def test_the_example_is_trained_by_the_printed_commands(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command prints the next one; new rows are no client."""
    assert main(["init", "--example"]) == 0
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("  fedlit ")
    ]
    files = {path.name for path in here.glob("*.csv")}
    assert files == {"north.csv", "south.csv", "west.csv", "tomorrow.csv"}
    assert main(line.split()[1:]) == 0
    assert settings("mine.yaml")["split"] == {"column": "part"}
    assert main(["fit", "--config", "mine.yaml", "--trainer.max_epochs", "1"]) == 0
    run = "lightning_logs/mine/version_0"
    assert main(["predict", "--run", run, "--client", "north", "--data", "tomorrow.csv"]) == 0
    assert len(pd.read_csv("tomorrow.scores.csv")) == len(pd.read_csv("tomorrow.csv"))


def test_the_example_overwrites_no_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "west.csv").write_text("mine")
    assert main(["init", "--example"]) == 2
    assert "west.csv" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in here.glob("*.csv")] == [("west.csv", "mine")]


def test_a_column_of_parts_is_found(here: Path) -> None:
    """It splits the rows, and is no feature; batches fit its training rows. Two parts of three are
    a column like any other.
    """
    site(
        "north.csv",
        1,
        outcome=ill,
        fold=lambda own, draw: ["Train", "val", "test", "test", "test", "test"] * 20,
    )
    site("south.csv", 2, outcome=ill, fold=lambda own, draw: ["train", "test"] * 60)
    assert main(["init", "sites", "--target", "outcome"]) == 0
    own = settings()
    assert own["split"] == {"north": {"column": "fold"}}
    north, south = Tables(**own).tables(seed=1)
    assert [len(north.splits[split]) for split in ("train", "validation", "test")] == [20, 20, 80]
    assert "fold" not in north.features and "fold" in south.features
    assert read_yaml(Path("sites.yaml"))["data"]["batches"] == 2
