"""``fedlit predict --run``: rows of a file, scored by one client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import table

from fedlit.__main__ import main
from fedlit.score import load_run

CONFIG = """seed: 1
data: {source: {class_path: fedlit.Tables, init_args: {files: {north: north.csv, south: south.csv}, target: outcome}}}
model: {client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}}
exchange: {federated: [core]}
trainer: {max_epochs: 1}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        (here / "mine.yaml").write_text(CONFIG)
        for name in ("north.csv", "south.csv"):
            table(name).to_csv(here / name, index=False)
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
        assert (
            f"{word} new.scores.csv" in captured.out
            and "columns that the client does not use: id, visit" in captured.out
        )
        assert "Using lightning_logs/mine/version_0/checkpoints/best-" in captured.err
    assert pd.read_csv("new.scores.csv").columns[0] == "row"


MISTAKES = {
    "--client north --data new.csv": "--run",
    "--run mine --data new.csv": "--client",
    "--run mine --client north": "--data",
    "--run mien --client north --data new.csv": "--run: expected a run's folder, .*Did you mean 'mine'",
    "--run mine --client north --data nw.csv": "--data: expected a file nw.csv, found none",
    "--run mine --client north --data .": "--data: expected a file .*found a folder",
    "--run mine --client north --data mine.yaml": "--data: expected a file that ends in .csv, .*found mine.yaml",
    "--run mine --client north --data new.csv --out x.xls": "--out: expected a file that ends in .csv or .parquet",
    "--run mine --client north --data new.csv --out new.csv": "--out: expected another file",
    "--run mine --client north --data new.csv --ckpt_path x.ckpt": "--ckpt_path: expected last, best .*x.ckpt",
    "--run mine --config mine.yaml --client north --data new.csv": "expected --run RUN .*or --config NAME",
    "--run mine --cleint north --data new.csv": "found --cleint. Did you mean '--client'",
}


def test_mistakes_are_said_before_torch_is_imported(here: Path) -> None:
    code = (
        "import contextlib, io, re, sys\nfrom fedlit.__main__ import main\n"
        f"for args, message in {MISTAKES!r}.items():\n"
        "    told = io.StringIO()\n"
        "    with contextlib.redirect_stderr(told):\n"
        "        status = main(['predict', *args.split()])\n"
        "    assert status == 2 and re.search(message, told.getvalue(), re.S), (args, told.getvalue())\n"
        "assert not {'torch', 'lightning'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_mistakes_that_need_the_checkpoint_or_the_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.fasta").write_text(">r1\nACGT\n")
    for args, message in (
        (["--data", "new.fasta"], "--data: expected rows of a table, as client 'north' has, found reads in new.fasta"),
        (["--client", "nroth"], "--client: expected one of north, south, found 'nroth'. Did you mean 'north'?"),
        (["--client", "south"], "client 'south': expected the column 'creatinine', found none of this name"),
        (["--keys", "ids"], "keys: expected columns of the rows, found no 'ids'. Did you mean 'id'?"),
    ):
        assert main([*ASK, *args]) == 2
        assert message in capsys.readouterr().err


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
    for args, message in (
        (["--client", "noth"], "--client: expected one of north, south, found 'noth'. Did you mean 'north'?"),
        (["--client", "north", "--format", "onnx"], "--format"),
        (["--client", "north", "--out", "."], "--out: expected a new folder, or one of an earlier export"),
        ([], "--client"),
    ):
        assert main(["export", "--run", "mine", *args]) == 2
        assert message in capsys.readouterr().err
    assert main(["exprt"]) == 2
    assert "Did you mean 'export'?" in capsys.readouterr().err
