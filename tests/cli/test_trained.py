"""``fedlit predict``, ``export`` and ``add-client`` of a trained run: what is typed, what is
printed, what is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from elsewhere import light, mistakes

from fedlit.__main__ import main
from fedlit.data.sources import Tables
from fedlit.errors import DataError
from fedlit.run.folders import find_run
from fedlit.score import load_run

NETWORK = {
    "class_path": "fedlit.FederatedClient",
    "init_args": {"network": {"class_path": "fedlit.MLP"}},
}
MORE = {
    "seed": 1, "model": {"client": NETWORK}, "exchange": {"federated": ["core"]},
    "trainer": {"max_epochs": 1, "enable_progress_bar": False},
}  # fmt: skip


def write(name: str, files: dict[str, str], target: Any, more: Any = (), **settings: Any) -> None:
    own = {
        "class_path": "fedlit.Tables",
        "init_args": {"files": files, "target": target, **settings},
    }
    Path(name).write_text(yaml.safe_dump({"data": {"source": own}, **dict(more)}, sort_keys=False))


COLUMNS = {"north.csv": ["age", "bmi", "smoker"], "south.csv": ["age", "creatinine"]}
"""File → columns, beside an outcome."""


def table(name: str) -> pd.DataFrame:
    """One of the tables, made from its place among them."""
    rng = np.random.default_rng(list(COLUMNS).index(name))
    frame = pd.DataFrame(rng.normal(size=(80, len(COLUMNS[name]))), columns=COLUMNS[name])
    frame["outcome"] = np.where(frame["age"] + rng.normal(size=80) > 0, "ill", "well")
    if "smoker" in frame:
        frame["smoker"] = np.where(frame["smoker"] > 0, "yes", None)  # type: ignore[call-overload]
    return frame


def named(rows: str) -> pd.DataFrame:
    """A table; that of the south has a patient's key."""
    frame = table(rows)
    return (
        frame.assign(patient_id=[f"P{9 * row}x" for row in frame.index])
        if rows == "south.csv"
        else frame
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        tasks = {"south": "regression"}
        targets = {"north": "outcome", "south": "creatinine"}
        write("mine.yaml", {"north": "north.csv", "south": "south.csv"}, targets, MORE, task=tasks)
        for name, clients in {
            "west": ["west"],
            "again": ["north"],
            "two": ["west", "east"],
        }.items():
            write(f"{name}.yaml", dict.fromkeys(clients, "west.csv"), "outcome")
        write("taget.yaml", {"west": "west.csv"}, "outcome", taget="outcome")
        for name, rows in (
            ("north.csv", "north.csv"),
            ("south.csv", "south.csv"),
            ("west.csv", "north.csv"),
        ):
            named(rows).to_csv(here / name, index=False)
        assert (
            main(["fit", "--config", "mine.yaml"])
            == main(["predict", "--config", "mine.yaml"])
            == 0
        )
        table("north.csv").drop(columns="outcome").assign(id=range(80), visit="a").to_csv(
            "new.csv", index=False
        )
        (here / "north.csv").unlink()
    return here


@pytest.fixture
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


ASK = ["predict", "--run", "mine", "--client", "north", "--data", "new.csv"]


def test_scores_are_the_runs_own_though_tables_are_gone(here: Path) -> None:
    run = find_run("mine")
    for named, client in (
        ("mine", "north"),
        ("mine.yaml", "north"),
        ("lightning_logs/mine", "south"),
        (run, "south"),
    ):
        expected = pd.read_csv(run / "predictions" / "test" / f"{client}.csv")
        rows = table(f"{client}.csv").loc[expected["row"]]
        found = load_run(named, client, quiet=True).predict(rows).reset_index(drop=True)
        pd.testing.assert_frame_equal(
            found, expected.drop(columns="row"), rtol=1e-6, check_dtype=False
        )


@pytest.mark.parametrize("key", ["patient_id", "row"])
def test_scores_begin_with_the_key_or_else_the_row(here: Path, key: str) -> None:
    rows = named("south.csv")
    rows.drop(columns=[] if key == "patient_id" else "patient_id").to_csv("later.csv", index=False)
    asked = [
        "predict",
        "--run",
        "mine",
        "--client",
        "south",
        "--data",
        "later.csv",
        "--out",
        "later.scores.csv",
    ]
    assert main(asked) == 0
    scores = pd.read_csv("later.scores.csv")
    expected = rows["patient_id"] if key == "patient_id" else range(len(rows))
    assert scores.columns[0] == key and scores[key].tolist() == list(expected)
    assert scores.columns.isin(["patient_id", "row"]).sum() == 1


def test_a_file_is_scored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = load_run("mine", "north", quiet=True).predict(table("north.csv"))
    assert main([*ASK, "--out", "deep/scores.parquet", "--keys", "id", "visit"]) == 0
    told = capsys.readouterr().out
    assert "Scored 80 rows of new.csv as client north" in told
    assert "cells without a value: smoker" in told and told.endswith("Wrote deep/scores.parquet\n")
    found = pd.read_parquet("deep/scores.parquet")
    assert found["id"].tolist() == list(map(str, range(80))) and found.columns[1] == "visit"
    np.testing.assert_array_equal(found["probability_ill"], expected["probability_ill"])


def test_a_key_that_does_not_belong_into_a_run_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = here / find_run("mine") / "config.yaml"
    text = config.read_text()
    config.write_text(f"{text}\nexchnge: {{}}\n")
    assert main(["test", "--config", "mine.yaml"]) == 2
    assert "config.yaml: exchnge: expected a key" in capsys.readouterr().err
    config.write_text(text)


def test_without_a_name_scores_lie_beside_the_rows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in ("Wrote", "Replaced"):
        assert main([*ASK, "--ckpt_path", "best"]) == 0
        captured = capsys.readouterr()
        assert (
            f"{word} new.scores.csv" in captured.out and "does not use: id, visit" in captured.out
        )
        assert "Using lightning_logs/mine/version_0/checkpoints/best-" in captured.err
    assert pd.read_csv("new.scores.csv").columns[0] == "row"
    folder = here / "with_scores"
    folder.mkdir()
    table("north.csv").assign(outcome=["ill", "well"] * 40).to_csv(folder / "north.csv")
    Path("new.scores.csv").rename(folder / "new.scores.csv")
    # read as a client, they are named for what they are
    with pytest.raises(DataError, match=r"new\.scores\.csv.*redictions that fedlit wrote"):
        Tables(str(folder / "*.csv"), "outcome").tables(seed=1)
    assert main(["init", str(folder), "--target", "outcome", "--out", "odd.yaml"]) == 2
    assert "predictions that fedlit wrote" in capsys.readouterr().err


def test_most_mistakes_are_named_before_torch_is_imported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.fasta").write_text(">r1\nACGT\n")
    early = mistakes("predict")
    deeper = mistakes("predict_deeper") + mistakes("export") + mistakes("add_client")
    told = light([words for words, _ in early], here)
    for words, _ in deeper:
        told.append((main(words), "", capsys.readouterr().err))
    for (_, names), (status, _, message) in zip(early + deeper, told, strict=True):
        assert status == 2 and all(name in message for name in names), message
        assert "Traceback" not in message and message.count("fedlit: error: ") == 1


def test_a_client_is_exported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedlit.score import load

    assert main(["export", "--run", "mine", "--client", "north"]) == 0
    told = capsys.readouterr()
    assert "Checked: on 1,000 random rows, for its tables are not here" in told.out
    assert (
        "Wrote lightning_logs/mine/version_0/export/north (" in told.out
        and "checkpoints/last.ckpt" in told.err
    )
    found = load("lightning_logs/mine/version_0/export/north").predict(pd.read_csv("new.csv"))
    expected = load_run("mine", "north", quiet=True).predict(pd.read_csv("new.csv"))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, atol=1e-6)
    assert main(["export", "--run", "mine", "--client", "south", "--out", "far/south"]) == 0
    assert "on 16 test rows of the client" in capsys.readouterr().out  # whose table is there


def test_a_client_joins_and_predicts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [
        "--data.leave_out",
        "[east]",
        "--baselines",
        "logistic_regression",
        "--trainer.max_epochs",
        "2",
        "--seed=5",
    ]
    assert main(["add-client", "--run", "mine", "--config", "two.yaml", *more]) == 0
    captured = capsys.readouterr()
    assert "nothing is exchanged" in captured.err and "Training Local, seed 5" in captured.err
    assert (
        "west: Not enough data" in captured.out
        and "numbers of the run as they are: core." in captured.out
    )
    run = "lightning_logs/mine+west/version_0"
    assert pd.read_csv(f"{run}/alone/lift.csv")["method"].nunique() == 2
    assert f"Next: fedlit predict --run {run} --client west" in captured.out
    asked = [
        "predict",
        "--run",
        "mine+west",
        "--client",
        "west",
        "--data",
        "west.csv",
        "--out",
        "scores.csv",
    ]
    assert main(asked) == 0 and len(pd.read_csv("scores.csv")) == len(pd.read_csv("west.csv"))
    assert main(["test", "--config", f"{run}/config.yaml"]) == 0
