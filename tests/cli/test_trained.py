"""``fedlit predict``, ``export`` and ``add-client`` of a trained run: what is typed, what is printed, what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from elsewhere import light
from pages import table

from fedlit.__main__ import main
from fedlit.score import load_run

CONFIG = """seed: 1
data: {source: {class_path: fedlit.Tables, init_args: {files: {north: north.csv, south: south.csv}, target: outcome}}}
model: {client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}}
exchange: {federated: [core]}
trainer: {max_epochs: 1, enable_progress_bar: false}
"""
WEST = "data: {source: {class_path: fedlit.Tables, init_args: {files: {west: west.csv}, target: outcome}}}\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        (here / "mine.yaml").write_text(CONFIG)
        Path("west.yaml").write_text(WEST)
        Path("again.yaml").write_text(WEST.replace("west:", "north:"))
        Path("two.yaml").write_text(WEST.replace("{west: west.csv}", "{west: west.csv, east: west.csv}"))
        for name, rows in (("north.csv", "north.csv"), ("south.csv", "south.csv"), ("west.csv", "north.csv")):
            table(rows).to_csv(here / name, index=False)
        assert main(["fit", "--config", "mine.yaml"]) == 0
        table("north.csv").drop(columns="outcome").assign(id=range(80), visit="a").to_csv("new.csv", index=False)
        (here / "north.csv").unlink()
    return here


@pytest.fixture
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


ASK = ["predict", "--run", "mine", "--client", "north", "--data", "new.csv"]


def test_a_file_is_scored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = load_run("mine", "north", quiet=True).predict(table("north.csv"))
    assert main([*ASK, "--out", "deep/scores.parquet", "--keys", "id", "visit"]) == 0
    told = capsys.readouterr().out
    assert "Scored 80 rows of new.csv as client north" in told and "Predicted outcome: " in told
    assert "cells without a value: smoker" in told and told.endswith("Wrote deep/scores.parquet\n")
    found = pd.read_parquet("deep/scores.parquet")
    assert found["id"].tolist() == list(map(str, range(80))) and found.columns[1] == "visit"
    np.testing.assert_array_equal(found["probability_ill"], expected["probability_ill"])
    counts = expected["predicted"].value_counts()
    assert f"Predicted outcome: {counts.index[0]} {counts.iloc[0]}" in told


def test_without_a_name_scores_lie_beside_the_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("Wrote", "Replaced"):
        assert main([*ASK, "--ckpt_path", "best"]) == 0
        captured = capsys.readouterr()
        assert f"{word} new.scores.csv" in captured.out and "does not use: id, visit" in captured.out
        assert "Using lightning_logs/mine/version_0/checkpoints/best-" in captured.err
    assert pd.read_csv("new.scores.csv").columns[0] == "row"


MISTAKES = """
--client north --data new.csv | --run
--run mien --client north --data new.csv | --run: | 'mine'
--run mine --client north --data nw.csv | --data: | nw.csv
--run mine --client north --data mine.yaml | --data: | mine.yaml
--run mine --client north --data new.csv --out x.xls | --out:
--run mine --client north --data new.csv --out new.csv | --out:
--run mine --client north --data new.csv --ckpt_path x.ckpt | --ckpt_path: | x.ckpt
--run mine --config mine.yaml --client north --data new.csv | --config
--run mine --cleint north --data new.csv | '--client'
"""
DEEPER = """
--run mine --client north --data new.fasta | --data: | new.fasta
--run mine --client nroth --data new.csv | --client: | 'north'
--run mine --client south --data new.csv | 'creatinine'
--run mine --client north --data new.csv --keys ids | keys: | 'id'
"""


def test_mistakes_are_said_before_torch_is_imported_as_far_as_they_can(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.fasta").write_text(">r1\nACGT\n")
    rows = [line.split(" | ") for line in f"{MISTAKES}{DEEPER}".strip().splitlines() if line]
    asked, early = [["predict", *words.split()] for words, *_ in rows], MISTAKES.strip().count("\n") + 1
    told = light(asked[:early], here)
    for words in asked[early:]:
        told.append((main(words), "", capsys.readouterr().err))
    for (_, *names), (status, _, message) in zip(rows, told, strict=True):
        assert status == 2 and all(name in message for name in names), message


def test_a_client_is_exported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedlit.score import load

    assert main(["export", "--run", "mine", "--client", "north"]) == 0
    told = capsys.readouterr()
    assert "Checked: on 1,000 random rows, for its tables are not here" in told.out
    assert "Wrote lightning_logs/mine/version_0/export/north (" in told.out and "checkpoints/last.ckpt" in told.err
    found = load("lightning_logs/mine/version_0/export/north").predict(pd.read_csv("new.csv"))
    expected = load_run("mine", "north", quiet=True).predict(pd.read_csv("new.csv"))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, atol=1e-6)
    assert main(["export", "--run", "mine", "--client", "south", "--out", "far/south"]) == 0
    assert "on 16 test rows of the client" in capsys.readouterr().out  # whose table is there
    for words, found in (("--client noth", "'north'"), ("--client north --out .", "--out:"), ("", "--client")):
        assert main(["export", "--run", "mine", *words.split()]) == 2
        assert found in capsys.readouterr().err


def test_a_client_joins_and_predicts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--client", "west", "--baselines", "logistic_regression", "--trainer.max_epochs", "2", "--seed=5"]
    assert main(["add-client", "--run", "mine", "--config", "two.yaml", *more]) == 0
    captured = capsys.readouterr()
    assert "nothing is exchanged" in captured.err and "Training Local, seed 5" in captured.err
    assert "west: Not enough data" in captured.out and "numbers of the run as they are: core." in captured.out
    run = "lightning_logs/mine+west/version_0"
    assert pd.read_csv(f"{run}/alone/lift.csv")["method"].nunique() == 2
    assert f"Next: fedlit predict --run {run} --client west" in captured.out
    asked = ["predict", "--run", "mine+west", "--client", "west", "--data", "west.csv", "--out", "scores.csv"]
    assert main(asked) == 0 and len(pd.read_csv("scores.csv")) == len(pd.read_csv("west.csv"))
    assert main(["test", "--config", f"{run}/config.yaml"]) == 0


JOINING = """
--run mine | --config
--run mine --config again.yaml | 'north'
--run mine --config two.yaml | west, east | --client
--run mine --config west.yaml --ckpt_path first | --ckpt_path | 'first'
--run mine --config west.yaml --trainer.max_epoch 3 | '--trainer.max_epochs'
--run mine --config west.yaml --baselines lasso | baselines: | lasso
--run mine --config west.yaml --federated | north.csv
"""


def test_mistakes_of_joining_are_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, *names in (line.split(" | ") for line in JOINING.strip().splitlines()):
        assert main(["add-client", *words.split()]) == 2
        told = capsys.readouterr().err
        assert "Traceback" not in told and told.count("fedlit: error: ") == 1
        assert all(name in told for name in names), told
