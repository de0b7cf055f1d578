"""Tables: one's own CSV and Parquet files, good, bad and any."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedlit.data.examine import examine
from fedlit.data.module import FederatedData
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable
from fedlit.errors import DataError, FedlitError

ROWS = 40
GOOD = "x,z,y\n" + "".join(f"{n * 7 % ROWS},{n % 3},{n % 2}\n" for n in range(ROWS))
NUMBERED = pd.DataFrame({"x": [n * 7 % 96 for n in range(96)], "y": [0, 1] * 48})


def write(path: Path, content: str | pd.DataFrame) -> str:
    path.write_text(content if isinstance(content, str) else content.to_csv(index=False))
    return str(path)


def read(path: str | Path, target: str = "y", **arguments: object) -> ClientTable:
    (table,) = Tables(files={"north": str(path)}, target=target, **arguments).tables(seed=8)
    return table


def apart(table: ClientTable, owner: Any) -> None:
    """Nobody whom ``owner`` names is on both sides of a split."""
    found = {split: {owner[row] for row in part.tolist()} for split, part in table.splits.items()}
    assert not found["train"] & found["test"] and not found["train"] & found["validation"]


@pytest.mark.parametrize("name", ["north.csv.gz", "north.parquet"])
def test_types_are_inferred_alike_from_csv_and_parquet(name: str, tmp_path: Path) -> None:
    columns = {
        "age": [20 + n * 7 % ROWS for n in range(ROWS)],
        "ward": [n % 3 for n in range(ROWS)],
        "town": ["Bonn", "Köln"] * (ROWS // 2),
        "smoker": [True, False] * (ROWS // 2),
    }
    more = {"dose": [n / 8 for n in range(ROWS)], "empty": [None] * ROWS, "constant": [7] * ROWS}
    frame = pd.DataFrame({**columns, **more, "outcome": ["ill", "well"] * (ROWS // 2)})
    path = tmp_path / name
    frame.to_parquet(path, index=False) if path.suffix == ".parquet" else frame.to_csv(
        path, index=False
    )
    table = read(path, "outcome", types={"ward": "categorical"}, drop=["dose"])
    assert table.features.to_dict("list") == columns and table.categorical == (
        "ward",
        "town",
        "smoker",
    )
    assert table.target.tolist() == ["ill", "well"] * (ROWS // 2)
    assert {split: len(rows) for split, rows in table.splits.items()} == {
        "train": 28,
        "validation": 4,
        "test": 8,
    }
    for said in (
        "empty: left out: it has no value",
        "constant: left out: it has the single value 7",
    ):
        assert sum(note == f"north: {said}" for note in table.notes) == 1
    assert any("AUROC and AUPRC are those of 'well'" in note for note in table.notes)


def test_targets_columns_and_lists_for_each_client(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "north": write(tmp_path / "n.csv", GOOD),
        "south": write(tmp_path / "s.csv", GOOD.replace("x,z,y", "x,w,label")),
    }
    target = {"north": "y", "south": "label"}
    own = {**files, "south": {"path": files["south"], "types": {"w": "categorical"}}}
    for source in (
        Tables(own, target, drop={"north": ["z"]}),
        Tables(files, target, types={"w": "categorical"}, drop=["z"]),
    ):
        north, south = source.tables(seed=1)
        assert (list(north.features), north.categorical, north.target.name) == (["x"], (), "y")
        assert (list(south.features), south.categorical, south.target.name) == (
            ["x", "w"],
            ("w",),
            "label",
        )


def test_relative_paths(cache: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write(root / "north.csv", GOOD)
    assert len(read("north.csv", root=str(root)).features) == ROWS
    write(Path.cwd() / "north.csv", GOOD + "1,1,1\n")
    # the working directory comes first
    assert len(read("north.csv", root=str(root)).features) == ROWS + 1
    with pytest.raises(DataError, match=r"client 'north': expected a file 'south\.csv' in .*root"):
        read("south.csv", root=str(root))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"files": {}}, "files: expected a path, or a file"),
        ({"files": {"federation": "a"}}, "this name is taken"),
        ({"files": {"north": "."}}, "found a folder"),
        ({"files": {"north": "https://example.org/north.csv"}}, "north|sqlalchemy|SQL|database"),
        (
            {"files": {"north": {"path": "north.csv", "missing": {"w": [1]}}}},
            "missing: expected columns of clients .* found 'w'",
        ),
        (
            {
                "files": {
                    "north": {"path": "north.csv", "rename": {"z": "v"}, "missing": {"z": [1]}},
                    "south": "north.csv",
                }
            },
            "missing: expected columns of clients north, found 'z'",
        ),
        ({"target": {}}, "target: expected a column for client 'north'"),
        ({"target": "w"}, "expected a column 'w', the target, found x, z, y"),
        ({"drop": {"nort": []}}, "found 'nort'.*Did you mean 'north'"),
        ({"split": {"north": {"group": {"id": "id"}}}}, "split: expected stratified"),
        ({"drop": ["zz"]}, "drop: .*'zz'. Did you mean 'z'"),
        ({"read": {"missing": {"zz": [-9]}}}, "missing: .*'zz'. Did you mean 'z'"),
        ({"types": {"w": "drop"}}, "types: .* found 'w'"),
        ({"drop": ["y"]}, "drop: .*target of client 'north', found 'y'"),
        ({"drop": ["x", "z"]}, "north.*expected a column beside the target, found none"),
        (
            {"types": {"x": "drop", "z": "text"}},
            r"found none; left out: x \(dropped\), z \(free text\)",
        ),
        ({"target": "x"}, "say task: regression"),
        ({"target": "t", "task": "regression"}, "expected numbers, found 40 other cells"),
        ({"target": "below", "task": "counts"}, "below.*count"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pd.read_csv(write(tmp_path / "north.csv", GOOD))
    if arguments.get("target") in ("t", "below"):
        write(tmp_path / "north.csv", rows.assign(t=["a", "b"] * 20, below=rows["z"] - 1))
    with pytest.raises(FedlitError, match=message):
        FederatedData(
            Tables(**{"files": {"north": "north.csv"}, "target": "y", **arguments}), batches=1
        ).setup()


def test_what_is_said_of_columns_holds_for_targets_and_splits(tmp_path: Path) -> None:
    # day/month, which could be month/day
    days = [f"{n % 12 + 1:02d}/{n // 12 + 1:02d}/2024" for n in range(96)]
    rows = NUMBERED.assign(when=days)
    path = tmp_path / "north.csv"
    write(path, rows)
    table = read(path, split={"time": "when"}, types={"when": {"date": "%d/%m/%Y"}})
    assert (
        table.splits["train"].max() < table.splits["validation"].min() < table.splits["test"].min()
    )
    write(
        path,
        rows.assign(who=[[f"P{n // 3}", f" p{n // 3}", f"P{n // 3} "][n % 3] for n in range(96)]),
    )
    table = read(path, split={"group": "who"})
    apart(table, np.arange(96) // 3)
    assert table.schema is not None and table.schema.keys == ["who"] and "who" not in table.features
    write(path, rows.assign(y=[-1 if n % 8 == 0 else n % 2 for n in range(96)]))
    assert len(read(path, read={"missing": {"y": [-1]}}, unlabelled="drop").target) == 84


def test_clients_may_be_split_in_ways_of_their_own(tmp_path: Path) -> None:
    owner = np.arange(96) // 3
    files = {
        "north": write(tmp_path / "n.csv", NUMBERED.assign(id=owner)),
        "south": write(tmp_path / "s.csv", NUMBERED),
    }
    north, south = Tables(files, "y", split={"north": {"group": "id"}, "s*": "random"}).tables(
        seed=1
    )
    apart(north, owner)
    (alone,) = Tables({"south": files["south"]}, "y", split="random").tables(seed=1)
    assert all((south.splits[split] == part).all() for split, part in alone.splits.items())


def test_patterns_mean_what_they_say_written_out(tmp_path: Path) -> None:
    """A table is the same whether its settings stand under a pattern or under its client's name."""
    rows = NUMBERED.assign(
        id=np.arange(96) // 3, w=[1.0, 2.0] * 48, code=["a", "", "none"] * 32, z=[7, 8, 9, 8] * 24
    )
    names = ["north", "south", "west"]
    files = {name: write(tmp_path / f"{name}.csv", rows.assign(x=rows["x"] * 2)) for name in names}
    whole = {"north": {"code": {"": "none"}}, "west": {"code": {"a": "b"}}}
    huber = {"name": "regression", "loss": "huber"}
    short: dict[str, Any] = {
        "target": {"*th": "y", "*": "z"},
        "drop": {"n*": ["z"], "w*": ["y"], "*": []},
        "weight": {"*t*": "w"},
        "positive": {"[ns]*": 0},
        "task": {"w*": huber, "*": "classification"},
        "split": {"n*": {"group": "id"}, "*": "random"},
        "values": {"n*": whole["north"], "w*": whole["west"]},
    }
    long: dict[str, Any] = {
        "target": {"north": "y", "south": "y", "west": "z"},
        "drop": {"north": ["z"], "south": [], "west": ["y"]},
        "weight": dict.fromkeys(names, "w"),
        "positive": {"north": 0, "south": 0},
        "task": {"north": "classification", "south": "classification", "west": huber},
        "split": {"north": {"group": "id"}, "south": "random", "west": "random"},
        "values": whole,
    }
    tables = Tables(files, **short).tables(seed=3)
    for table, same in zip(tables, Tables(files, **long).tables(seed=3), strict=True):
        pd.testing.assert_frame_equal(table.features, same.features)
        pd.testing.assert_series_equal(table.target, same.target)
        assert all((table.splits[split] == rows).all() for split, rows in same.splits.items())
        assert table.notes == same.notes and table.task == same.task
        assert table.weights is not None and (table.weights == same.weights).all()
        assert table.positive == same.positive and table.schema == same.schema
    north, south, west = tables
    assert (north.positive, south.positive, west.positive) == (0, 0, None)
    assert west.target.name == "z" and north.groups is not None and south.groups is None
    assert {*north.features["code"]} == {"a", "none"} and "b" in {*west.features["code"]}


def test_a_client_with_classes_beside_numbers_is_noted(tmp_path: Path) -> None:
    rows = NUMBERED.assign(y=[n % 10 for n in range(96)])
    files = {name: write(tmp_path / f"{name}.csv", rows) for name in ("north", "south")}
    for task, noted in (({"north": "regression"}, ["south"]), ("counts", []), (None, [])):
        tables = Tables(files, "y", task=task).tables(seed=1)
        assert [
            own.name
            for own in tables
            if any("number is predicted at" in note for note in own.notes)
        ] == noted


def test_identifiers_are_unique_over_all_clients_of_a_table(tmp_path: Path) -> None:
    """Files have a schema each; `check` notes a column that only one of them leaves out."""
    visit = np.random.default_rng(1).permutation(48)
    case = np.random.default_rng(2).permutation(96) * 9
    rows = NUMBERED.assign(
        visit_no=[*visit, *visit[::-1]], case_no=case, site=["north"] * 48 + ["south"] * 48
    )
    path = write(tmp_path / "train.csv", rows)  # a name that no client could have
    for table in Tables(path, "y", client_column="site").tables(seed=1):
        assert (
            list(table.features) == ["x", "visit_no"]
            and table.schema
            and table.schema.keys == ["case_no"]
        )
    files = {
        "north": write(tmp_path / "n.csv", rows[:48]),
        "south": write(tmp_path / "s.csv", rows[48:66]),
    }
    found = examine(Tables(files, "y", split="random", drop=["site"]).tables(seed=1)).findings
    told = {own.column: own.sentence.rpartition("; ")[0] for own in found if own.kind == "kind"}
    assert told == dict.fromkeys(
        ("visit_no", "case_no"), "left out (identifier) at north; numeric at south"
    )


def test_clients_that_differ_in_case_alone_are_one(tmp_path: Path) -> None:
    sites = ["North", " north", "NORTH", "North"] * 12 + ["south"] * 48
    path = write(tmp_path / "all.csv", NUMBERED.assign(site=sites))
    tables = Tables(path, "y", client_column="site").tables(seed=1)
    assert {table.name: len(table.features) for table in tables} == {"North": 48, "south": 48}
    assert any("'NORTH'" in note for note in tables[0].notes)


def test_rows_that_are_doubles_are_noted(tmp_path: Path) -> None:
    rows = NUMBERED.assign(part=["train"] * 70 + ["validation"] * 10 + ["test"] * 16)
    among = rows.iloc[:5]
    across = rows.iloc[:3].assign(part="test")
    for more, said in (
        (among, "5 of 101"),
        (across, "3 in validation or test with a twin in training"),
        (None, ""),
    ):
        table = read(
            write(tmp_path / "north.csv", pd.concat([rows, more])), split={"column": "part"}
        )
        notes = [note for note in table.notes if getattr(note, "kind", "") == "duplicate"]
        assert said in notes[0] if said else not notes


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    for name in ("north.csv", "south.csv", "about.md"):
        write(tmp_path / name, GOOD)
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "old.csv").mkdir()
    for pattern, other in ((tmp_path, {"about.md"}), (tmp_path / "*.csv", set())):
        first, second = Tables(str(pattern), "y").tables(seed=1)
        (note,) = (own for own in first.notes if "not read: " in own)
        assert not any("not read: " in own for own in second.notes)
        assert set(note.rpartition("not read: ")[2].split(", ")) == {"loop.csv", "old.csv"} | other


# ------------------------------------------------------------------ any file

CELLS = st.one_of(
    st.none(),
    st.sampled_from(
        [
            "",
            "NA",
            "?",
            "-",
            "yes",
            "1,5",
            "1.5",
            "−3",
            "12 mg",
            "€ 5",
            "50 %",
            "2024-01-31",
            "a",
            "A ",
        ]
    ),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=True).map(str),
    st.text(max_size=12),
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_table_of_any_cells(tmp_path: Path, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True))
    frame = pd.DataFrame(
        {name: data.draw(st.lists(CELLS, min_size=24, max_size=24)) for name in names}
    )
    frame["y"] = data.draw(st.lists(st.sampled_from(["0", "1", "x", ""]), min_size=24, max_size=24))
    path = tmp_path / "any.csv"
    path.write_bytes(frame.to_csv(index=False).encode("utf-8", "surrogatepass"))
    try:
        rows = FederatedData(Tables({"north": str(path)}, "y", unlabelled="drop"), batches=1)
        rows.setup()
    except FedlitError as error:
        assert "north" in str(error)
    else:
        assert bool(rows.clients[0].train.x.isfinite().all())
        seen = rows.encoders["north"]
        again, _ = seen.read(
            rows.source.tables(0)[0].features.iloc[:0].reindex(columns=seen.schema.used)
        )
        assert len(again) == 0


def test_rows_of_one_file_are_read_as_alone(tmp_path: Path) -> None:
    """Columns that are read once for all clients hold what each client's rows hold alone."""
    generator = np.random.default_rng(2)
    rows = 240
    frame = pd.DataFrame({"site": generator.choice(["c", "a", "b"], rows)})
    frame["plain"] = generator.normal(size=rows).round(3).astype(str)
    frame["gaps"] = np.where(generator.random(rows) < 0.2, "", "7.5")
    frame["comma"] = [f"{number:.2f}".replace(".", ",") for number in generator.normal(size=rows)]
    frame["weighed"] = [f"{number:.1f} kg" for number in generator.normal(70, 9, rows)]
    frame["town"] = generator.choice(["Bonn", "Ulm", "n/a"], rows)
    frame["y"] = generator.choice(["yes", "no", ""], rows, p=[0.5, 0.4, 0.1])
    path = tmp_path / "all.csv"
    frame.to_csv(path, index=False)
    source = Tables(str(path), "y", client_column="site", unlabelled="drop")
    for table in source.tables(seed=1):
        assert table.schema is not None
        alone = frame[(frame["site"] == table.name) & (frame["y"] != "")].replace("", None)
        typed, _ = table.schema.apply(alone, "alone")
        assert table.features.index.tolist() == alone.index.tolist()
        pd.testing.assert_frame_equal(
            table.features, typed, check_exact=True, check_index_type=False
        )
