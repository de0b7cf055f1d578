"""``fedlit add-client``: what is typed, what is printed, what is wrong."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from pages import table

from fedlit.__main__ import main

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
        Path("mine.yaml").write_text(CONFIG)
        Path("west.yaml").write_text(WEST)
        Path("again.yaml").write_text(WEST.replace("west:", "north:"))
        Path("two.yaml").write_text(WEST.replace("{west: west.csv}", "{west: west.csv, east: west.csv}"))
        for name, rows in (("north.csv", "north.csv"), ("south.csv", "south.csv"), ("west.csv", "north.csv")):
            table(rows).to_csv(here / name, index=False)
        assert main(["fit", "--config", "mine.yaml"]) == 0
        for name in ("north.csv", "south.csv"):
            Path(name).unlink()  # a newcomer needs none of the run's tables
    return here


@pytest.fixture
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


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


MISTAKES = """
--run mine | --config
--run mine --config again.yaml | 'north'
--run mine --config two.yaml | west, east | --client
--run mine --config west.yaml --ckpt_path first | --ckpt_path | 'first'
--run mine --config west.yaml --trainer.max_epoch 3 | '--trainer.max_epochs'
--run mine --config west.yaml --baselines lasso | baselines: | lasso
--run mine --config west.yaml --federated | north.csv
"""


def test_mistakes_are_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, *names in (line.split(" | ") for line in MISTAKES.strip().splitlines()):
        assert main(["add-client", *words.split()]) == 2
        told = capsys.readouterr().err
        assert "Traceback" not in told and told.count("fedlit: error: ") == 1
        assert all(name in told for name in names), told
