"""Values that are mapped to others before types are found: what becomes of cells, and where the
mapping holds."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlit.data.schema.recode import recode
from fedlit.data.schema.schema import Schema
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, FedlitError
from fedlit.mixture.export import export_scorer
from fedlit.run.joining import prepare
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.score import load as load_folder
from fedlit.train import checkpoint_file
from fedlit.yaml_text import load as load_yaml

VALUES: dict[str, Any] = {
    "sex": {1: "M", 2: "F"},
    "smoker": {"": "no"},
    "outcome": {"1": "yes", "": "no"},
}
SETTINGS = """
seed: 1
data:
  batches: 3
  source: {class_path: fedlit.Tables, init_args: {files: {FILES}, target: outcome}}
model: {client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}, threads: 1}
exchange: {federated: [core]}
board: {pictures: 0}
trainer: {max_epochs: 2, enable_progress_bar: false}
"""


def coded(seed: int, rows: int = 90) -> pd.DataFrame:
    """Rows as a hospital's codebook has them: codes for words, and blanks for no."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.normal(60, 9, rows).round(2),
        "sex": rng.choice([1, 2], rows),
        "smoker": rng.choice(["yes", ""], rows),
        "outcome": rng.choice(["1", ""], rows),
    })  # fmt: skip


def in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows, written out by hand."""
    return frame.assign(
        sex=frame["sex"].map({1: "M", 2: "F"}),
        smoker=frame["smoker"].replace("", "no"),
        outcome=frame["outcome"].map({"1": "yes", "": "no"}),
    )


def read(frame: pd.DataFrame, folder: Path, **arguments: Any) -> ClientTable:
    frame.to_csv(folder / "north.csv", index=False)
    (table,) = Tables({"north": str(folder / "north.csv")}, "outcome", **arguments).tables(seed=1)
    return table


def trained(folder: Path, tables: dict[str, pd.DataFrame], more: str = "") -> Run:
    """A trained run of tables, with further lines of a configuration."""
    folder.mkdir()
    for client, frame in tables.items():
        frame.to_csv(folder / f"{client}.csv", index=False)
    files = ", ".join(f"{client}: {folder / client}.csv" for client in tables)
    (folder / "mine.yaml").write_text(SETTINGS.replace("FILES", files))
    (folder / "more.yaml").write_text(more or "{}")
    run = load(str(folder / "mine.yaml"), "--config", str(folder / "more.yaml"))
    run.fit(quiet=True)
    return run


def test_mapped_rows_train_and_predict_as_rows_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {name: coded(seed) for seed, name in enumerate(["north", "south"])}
    # as YAML has it: 1 and no without quotes
    values = (
        'data: {source: {init_args: {values: {sex: {1: M, 2: F}, smoker: {"": no}, outcome: '
        '{1: yes, "": no}}}}}'
    )
    mapped = trained(tmp_path / "mapped", tables, values)
    words = trained(tmp_path / "words", {name: in_words(frame) for name, frame in tables.items()})
    first, second = (
        checkpoint_file.load(Path(run.folder or "", "checkpoints", "last.ckpt"))["state_dict"]
        for run in (mapped, words)
    )
    assert first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
    tomorrow = coded(7).drop(columns="outcome")
    expected = words.client("north").predict(in_words(coded(7)).drop(columns="outcome"))
    scorer = mapped.client("north")
    pd.testing.assert_frame_equal(scorer.predict(tomorrow), expected)
    folder = export_scorer(scorer, tmp_path / "exported").folder
    pd.testing.assert_frame_equal(load_folder(folder).predict(tomorrow), expected, atol=1e-6)
    coded(8).to_csv("east.csv", index=False)
    settings = {"files": {"east": "east.csv"}, "target": "outcome", "values": VALUES}
    source = {"class_path": "fedlit.Tables", "init_args": settings}
    joining = prepare(mapped.folder or "", {"data": {"source": source}})
    expected = in_words(coded(8))
    assert joining.table.target.tolist() == expected.pop("outcome").tolist()
    assert joining.table.features["sex"].tolist() == expected["sex"].tolist()


@pytest.mark.parametrize("name", ["north.csv", "north.parquet"])
def test_codes_are_met_as_text_number_or_true(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"sex": [1.0, 2.0, None] * 30, "flag": [True, False, True] * 30, "outcome": [0, 1, 0] * 30}
    )
    path = tmp_path / name
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    values = load_yaml(
        '{sex: {1: M, 2: F, "": none}, flag: {true: on duty, false: 12}}', "data.source.values"
    )
    (table,) = Tables({"north": str(path)}, "outcome", values=values).tables(seed=1)
    assert table.features["sex"].tolist() == ["M", "F", "none"] * 30
    assert table.features["flag"].tolist() == ["on duty", "12", "on duty"] * 30


def test_values_become_numbers_gaps_and_ordered_levels(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"n": ["one", "9", "3"] * 30, "g": ["a", "b", "?x"] * 30, "outcome": [0, 1, 1] * 30}
    )
    table = read(
        frame,
        tmp_path,
        values={"n": {"one": 1, "9": None}, "g": {"?x": "c"}},
        types={"g": ["a", "b", "c"]},
    )
    assert table.features["n"].fillna(-1).tolist() == [1, -1, 3] * 30
    assert table.features["g"].tolist() == [0, 1, 2] * 30


def test_values_by_client_in_one_file_are_not_mapped_twice(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"site": ["a", "b"] * 60, "sex": [1, 2, 2, 1] * 30, "outcome": [0, 1, 1, 1, 0, 0] * 20}
    )
    rows.to_csv(tmp_path / "all.csv", index=False)
    values = {"a": {"sex": {1: 2, 2: 1}}, "*": {"sex": {1: 3}}}
    source = Tables(str(tmp_path / "all.csv"), "outcome", client_column="site", values=values)
    for table, column in zip(source.tables(seed=1), ([2.0, 1.0], [2.0, 3.0]), strict=True):
        assert table.features["sex"].tolist() == column * 30
        assert table.schema is not None
        raw = rows.loc[rows["site"] == table.name].astype(str)
        again, _ = Schema.of(table.schema.to_dict()).apply(raw, "here")
        pd.testing.assert_frame_equal(again, table.features)


def test_values_without_a_place_and_without_cells_are_noted(tmp_path: Path) -> None:
    frame = coded(0).assign(sex=[1, 2, 3] * 30)
    notes = read(
        frame, tmp_path, values={"sex": {1: "M", 2: "F", 9: None}, "outcome": {"": 0}}
    ).notes
    kept: list[Any] = [note for note in notes if getattr(note, "kind", "") == "recoded"]
    assert [note.column for note in kept] == ["sex", "sex"]
    assert "'3' (30)" in kept[0] and "'9'" in kept[1]
    words = in_words(coded(0))
    # nothing is to be mapped
    assert not [note for note in read(words, tmp_path, values=VALUES).notes if "'1'" in note]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sexx": {1: "M"}}, "Did you mean 'sex'"),
        ({"nort": {"sex": {1: "M"}}}, "Did you mean 'north'"),
        ({"sex": ["M"]}, "values: sex"),
        ({"sex": {}}, "values: sex"),
        ({"sex": {1: [2]}}, "values: sex"),
        ({"north": {"sex": {1: "M"}}, "sex": {1: "M"}}, "values"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(
    values: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(FedlitError, match=message) as caught:
        read(coded(0), tmp_path, values=values)
    assert isinstance(caught.value, ConfigError)


@given(
    st.lists(
        st.sampled_from(["1", " 1", "1.0", "2", "01", "", "a", "A ", "x"]), min_size=1, max_size=20
    )
)
def test_recoding_agrees_with_a_loop_over_cells(cells: list[str]) -> None:
    mapping: dict[str, str | None] = {"1": "one", "a": "letter", "": "blank", "2": None}

    def by_hand(cell: str) -> str | None:
        text = cell.strip()
        return mapping["1"] if text in ("1", "1.0") else mapping.get(text.lower(), text)

    made = recode(pd.Series(cells, dtype=object), mapping).values
    assert [None if pd.isna(value) else value for value in made] == [
        by_hand(cell) for cell in cells
    ]


@pytest.mark.parametrize("word", ["none", "None", "NA", "null", "n/a", "-", "?", "nan", "unknown"])
def test_a_declared_level_is_never_missing(word: str, tmp_path: Path) -> None:
    frame = coded(0).assign(severity=[word, "mild", "severe"] * 30, outcome=["ill", word] * 45)
    types = load_yaml(f'{{severity: ["{word}", mild, severe]}}', "data.source.types")
    table = read(
        frame, tmp_path, types=types, positive=word, read={"missing": {"severity": [word, -9]}}
    )
    assert table.features["severity"].tolist() == [0.0, 1.0, 2.0] * 30
    assert table.target.tolist() == ["ill", word] * 45 and table.positive == word
    assert not any(
        note.kind in ("gaps", "no label") for note in table.notes if hasattr(note, "kind")
    )
    assert table.schema is not None
    again, _ = table.schema.apply(frame[["age", "sex", "smoker", "severity"]].tail(3), "new rows")
    assert again["severity"].tolist() == [0.0, 1.0, 2.0]
    mapped = read(
        frame, tmp_path, values={"severity": {"mild": word}, "outcome": {"ill": word, word: "well"}}
    )
    assert mapped.target.tolist() == [word, "well"] * 45
    assert mapped.features["severity"].tolist() == [word, word, "severe"] * 30


@pytest.mark.parametrize("positive", ["yes", "YES", "1_yes"])
def test_a_positive_label_is_mapped_as_its_cells_are(positive: str, tmp_path: Path) -> None:
    frame = coded(0).assign(outcome=["no", "yes"] * 45)
    mapped = {"outcome": {"no": "0_no", "yes": "1_yes"}}
    assert read(frame, tmp_path, values=mapped, positive=positive).positive == "1_yes"


def test_a_positive_label_that_a_swap_leaves_keeps_its_name(tmp_path: Path) -> None:
    frame = coded(0).assign(outcome=["no", "yes"] * 45)
    swapped = {"outcome": {"no": "yes", "yes": "no"}}
    table = read(frame, tmp_path, values=swapped, positive="yes")
    assert table.positive == "yes" and table.target.tolist() == ["yes", "no"] * 45
    unnamed = read(frame, tmp_path, values={"outcome": {"none": "no"}})
    assert unnamed.positive is None
