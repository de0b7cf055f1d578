"""A run's folder of version 0.1 (``version_0_1``, trained over tables that its ``make_tables.py`` wrote) is still
read: its scores, predictions and corrections are what 0.1 said they were.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedlit.__main__ import main
from fedlit.run.explanation import read_corrections
from fedlit.train.manifest import FORMAT

FOLDER = Path(__file__).parent / "version_0_1"
RUN = Path("lightning_logs", "wines", "version_0")
CONFIG = ["--config", str(RUN / "config.yaml")]
CLIENTS = ["asti", "cuneo", "torino"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run's folder, in a copy of the working directory of then."""
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return RUN


def test_its_test_split_scores_as_then(run: Path) -> None:
    expected = pd.read_csv(FOLDER / RUN / "test.csv", index_col="client")
    (run / "test.csv").unlink()
    assert main(["test", *CONFIG]) == 0
    found = pd.read_csv(run / "test.csv", index_col="client")
    assert list(found.index) == CLIENTS
    pd.testing.assert_frame_equal(found[list(expected)], expected, rtol=1e-5)


def test_its_predictions_are_those_of_then(run: Path) -> None:
    shutil.rmtree(run / "predictions")
    assert main(["predict", *CONFIG]) == 0
    for client in CLIENTS:
        path = Path("predictions", "test", f"{client}.csv")
        expected, found = pd.read_csv(FOLDER / RUN / path), pd.read_csv(run / path)
        pd.testing.assert_frame_equal(found[list(expected)], expected, rtol=1e-4)


@pytest.mark.full
def test_its_corrections_are_explained(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, epoch = read_corrections(run)
    assert epoch == 2 and sorted(values["client"].unique()) == CLIENTS
    assert main(["explain", "--run", str(run), "--client", "cuneo"]) == 0
    assert "cuneo multiplies column colour=clear by 1.01" in capsys.readouterr().out
    assert {"findings.csv", "corrections_inputs.png", "histograms_cuneo.svg"} <= {
        path.name for path in (run / "explain").iterdir()
    }


def test_its_training_goes_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *CONFIG, "--ckpt_path", "last", "--trainer.max_epochs", "3"]) == 0
    assert "continued from last.ckpt (epoch 2)" in capsys.readouterr().out
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    before, steps = saved["epoch"], {own["steps_taken"] for own in saved["fedlit"]["clients"].values()}
    assert before == 2 and saved["fedlit"]["format"] == FORMAT and steps == {0}  # behind an exchange
    assert saved["fedlit"]["encoders"].keys() == saved["fedlit"]["clients"].keys()
