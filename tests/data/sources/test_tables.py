"""Tables: one's own CSV and Parquet files, good and bad."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

ROWS = 40


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [20 + n * 7 % ROWS for n in range(ROWS)],
            "dose": [n / 8 for n in range(ROWS)],
            "ward": [n % 3 for n in range(ROWS)],
            "town": ["Bonn", "Köln"] * (ROWS // 2),
            "smoker": [True, False] * (ROWS // 2),
            "empty": [None] * ROWS,
            "constant": [7] * ROWS,
            "outcome": ["ill", "well"] * (ROWS // 2),
        }
    )


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def read(path: str | Path, target: str = "y", **arguments: object) -> ClientTable:
    (table,) = Tables(files={"north": path}, target=target, **arguments).tables(seed=8)  # type: ignore[arg-type]
    return table


GOOD = "x,z,y\n" + "".join(f"{n * 7 % ROWS},{n % 3},{n % 2}\n" for n in range(ROWS))


@pytest.mark.parametrize("name", ["north.csv.gz", "north.parquet"])
def test_types_are_inferred_alike_from_csv_and_parquet(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if path.suffix == ".parquet":
        frame().to_parquet(path, index=False)
    else:
        frame().to_csv(path, index=False, encoding="utf-8")
    table = read(path, "outcome", types={"ward": "categorical"}, drop=["dose"])
    assert list(table.features.columns) == ["age", "ward", "town", "smoker"]
    assert table.categorical == ("ward", "town", "smoker")
    assert table.features["age"].tolist() == frame()["age"].tolist()
    assert table.features["ward"].tolist() == frame()["ward"].tolist()
    assert table.features["town"].tolist() == ["Bonn", "Köln"] * (ROWS // 2)
    assert table.features["smoker"].tolist() == [True, False] * (ROWS // 2)
    assert table.target.tolist() == ["ill", "well"] * (ROWS // 2)
    assert {split: len(rows) for split, rows in table.splits.items()} == {"train": 28, "validation": 4, "test": 8}
    for said in ("empty: left out: it has no value", "constant: left out: it has the single value 7"):
        assert sum(note == f"north: {said}" for note in table.notes) == 1
    assert any("AUROC and AUPRC are those of 'well'" in note for note in table.notes)


def test_targets_columns_and_lists_for_each_client(tmp_path: Path) -> None:
    files = {
        "north": write(tmp_path / "n.csv", GOOD),
        "south": write(tmp_path / "s.csv", GOOD.replace("x,z,y", "x,w,label")),
    }
    target = {"north": "y", "south": "label"}
    own = {**files, "south": {"path": files["south"], "types": {"w": "categorical"}}}
    north, south = Tables(own, target, drop={"north": ["z"]}).tables(seed=1)  # type: ignore[arg-type]
    assert (list(north.features.columns), north.categorical, north.target.name) == (["x"], (), "y")
    assert (list(south.features.columns), south.categorical, south.target.name) == (["x", "w"], ("w",), "label")
    north, south = Tables(files, target, types={"w": "categorical"}, drop=["z"]).tables(seed=1)  # type: ignore[arg-type]
    assert (list(north.features.columns), north.categorical) == (["x"], ())
    assert (list(south.features.columns), south.categorical) == (["x", "w"], ("w",))


def test_relative_paths(cache: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write(root / "north.csv", GOOD)
    assert len(read("north.csv", root=str(root)).features) == ROWS
    write(Path.cwd() / "north.csv", GOOD + "1,1,1\n")
    assert len(read("north.csv", root=str(root)).features) == ROWS + 1  # the working directory comes first
    with pytest.raises(DataError, match=r"client 'north': expected a file 'south\.csv' in .*root"):
        read("south.csv", root=str(root))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"files": {}}, "files: expected a path, or a file"),
        ({"files": {"federation": "a"}}, "this name is taken"),
        ({"files": {"a/b": "a"}}, "client 'a/b': expected a name"),
        ({"target": {}}, "target: expected a column for client 'north'"),
        ({"drop": {"nort": []}}, "found 'nort'.*Did you mean 'north'"),
        ({"split": {"nort": {"group": "id"}}}, "found 'nort'.*Did you mean 'north'"),
        ({"split": {"north": {"group": {"id": "id"}}}}, "split: expected stratified"),
        ({"drop": ["zz"]}, "drop: .*'zz'. Did you mean 'z'"),
        ({"read": {"missing": {"zz": [-9]}}}, "read: missing: .*'zz'. Did you mean 'z'"),
        ({"types": {"w": "drop"}}, "types: .*a client, found 'w'"),
        ({"drop": ["y"]}, "drop: .*target of client 'north', found 'y'"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "north.csv", GOOD)
    with pytest.raises(ConfigError, match=message):
        Tables(**{"files": {"north": path}, "target": "y", **arguments}).tables(seed=1)  # type: ignore[arg-type]


def test_what_is_said_of_columns_holds_for_targets_and_splits(tmp_path: Path) -> None:
    days = [f"{n % 12 + 1:02d}/{n // 12 + 1:02d}/2024" for n in range(96)]  # day/month, which could be month/day
    rows = pd.DataFrame({"when": days, "x": [n * 7 % 96 for n in range(96)], "y": [n % 2 for n in range(96)]})
    path = tmp_path / "north.csv"
    rows.to_csv(path, index=False)
    table = read(path, split={"time": "when"}, types={"when": {"date": "%d/%m/%Y"}})
    assert table.splits["train"].max() < table.splits["validation"].min() < table.splits["test"].min()
    people = [[f"P{n // 3}", f" p{n // 3}", f"P{n // 3} "][n % 3] for n in range(96)]
    rows.assign(who=people).to_csv(path, index=False)
    table = read(path, split={"group": "who"})
    owner = {split: {own // 3 for own in part.tolist()} for split, part in table.splits.items()}
    assert not owner["train"] & owner["test"] and not owner["train"] & owner["validation"]
    assert table.schema is not None and table.schema.keys == ["who"] and "who" not in table.features
    rows.assign(y=[-1 if n % 8 == 0 else n % 2 for n in range(96)]).to_csv(path, index=False)
    assert len(read(path, read={"missing": {"y": [-1]}}, unlabelled="drop").target) == 84


def test_clients_may_be_split_in_ways_of_their_own(tmp_path: Path) -> None:
    rows = pd.DataFrame({"id": [n // 3 for n in range(96)], "x": [n * 7 % 96 for n in range(96)], "y": [0, 1] * 48})
    rows.to_csv(tmp_path / "north.csv", index=False)
    rows.drop(columns="id").to_csv(tmp_path / "south.csv", index=False)
    files = {name: str(tmp_path / f"{name}.csv") for name in ("north", "south")}
    north, south = Tables(files, "y", split={"north": {"group": "id"}, "s*": "random"}).tables(seed=1)
    owner = {split: set(rows["id"].iloc[part]) for split, part in north.splits.items()}
    assert not owner["train"] & owner["test"] and not owner["train"] & owner["validation"]
    (alone,) = Tables({"south": files["south"]}, "y", split="random").tables(seed=1)
    assert all((south.splits[split] == part).all() for split, part in alone.splits.items())


def test_a_client_that_predicts_classes_unasked_beside_numbers_is_noted(tmp_path: Path) -> None:
    rows = pd.DataFrame({"x": [n * 7 % 50 for n in range(96)], "visits": [n % 10 for n in range(96)]})
    files = {name: str(tmp_path / f"{name}.csv") for name in ("north", "south")}
    for path in files.values():
        rows.to_csv(path, index=False)
    for task, noted in (({"north": "regression"}, ["south"]), ("counts", []), (None, [])):
        tables = Tables(files, "visits", task=task).tables(seed=1)  # type: ignore[arg-type]
        assert [own.name for own in tables if any("number is predicted at" in note for note in own.notes)] == noted


def test_rows_that_are_doubles_among_training_rows_are_noted(tmp_path: Path) -> None:
    rows = pd.DataFrame({"x": [n * 7 % 41 / 4 for n in range(60)], "y": [0, 1] * 30})
    rows = pd.concat([rows, rows.iloc[:5]]).assign(
        part=["train"] * 40 + ["validation"] * 10 + ["test"] * 10 + ["train"] * 5
    )
    for some, doubled in ((rows, True), (rows.iloc[:60].drop_duplicates(["x", "y"]), False)):
        some.to_csv(tmp_path / "north.csv", index=False)
        notes = read(tmp_path / "north.csv", split={"column": "part"}).notes
        assert any(getattr(note, "kind", "") == "duplicate" for note in notes) == doubled


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    for name in ("north.csv", "south.csv", "about.md"):
        write(tmp_path / name, GOOD)
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "old.csv").mkdir()
    for pattern, other in ((tmp_path, {"about.md"}), (tmp_path / "*.csv", set())):
        first, second = Tables(str(pattern), "y").tables(seed=1)
        (note,) = (own for own in first.notes if "not read: " in own)
        assert not any("not read: " in own for own in second.notes)
        found = set(note.rpartition("not read: ")[2].split(", "))
        assert found == {"loop.csv", "old.csv"} | other


def test_a_target_on_another_sheet_is_looked_for_in_vain_with_the_sheets_named(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "north.xlsx") as book:
        pd.DataFrame({"note": ["about"]}).to_excel(book, sheet_name="About", index=False)
        pd.DataFrame({"x": [n * 7 % 40 / 4 for n in range(40)], "y": [0, 1] * 20}).to_excel(
            book, sheet_name="Rows", index=False
        )
    with pytest.raises(DataError, match=r"'Rows'.*sheet"):
        Tables({"north": str(tmp_path / "north.xlsx")}, "y").tables(seed=1)
    (own,) = Tables({"north": {"path": str(tmp_path / "north.xlsx"), "sheet": "Rows"}}, "y").tables(seed=1)
    assert len(own.target) == 40
