"""Reads, labelled position by position, from fit to scores elsewhere."""

from __future__ import annotations

import gzip
import re
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from federations import different, weights
from made_tables import fasta, reads_of
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from fedlit.__main__ import main
from fedlit.client.client import FederatedClient
from fedlit.data.module import FederatedData
from fedlit.data.sources import Populations
from fedlit.errors import DataError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import FedGMCC, Mean
from fedlit.nn import BiLSTM
from fedlit.run.run import Run
from fedlit.score import load_run
from fedlit.score.files import read_rows
from fedlit.train.callbacks import Checkpoints
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop

SMALL: dict[str, Any] = {"populations": 2, "clients": 2, "reads": 40, "length": 24, "reference": 2000, "flipped": [2]}
LSTM = partial(BiLSTM, hidden=6, width=4, dropout=0.1)


def make_run(folder: Path, epochs: int, rule: Any = None, source: Any = None, network: Any = LSTM, **data: Any) -> Run:
    client = partial(FederatedClient, network=network)
    loop = FederatedLoop(client, seed=3, optimizer=partial(torch.optim.Adam, lr=0.03), threads=1)
    source = source or Populations(**SMALL)
    rows = FederatedData(source, seed=3, align="classes", **{"batch_size": 8, **data})
    exchange = Exchange(federated=["*"], rule=rule or FedGMCC(2, 2, grid=2, inputs="range", outputs="probabilities"))
    return Run(
        loop, rows, exchange, root=folder, checkpoints=Checkpoints(best=0), max_epochs=epochs,
        board=BoardSettings(pictures=0),
    )  # fmt: skip


def test_it_learns_and_predictions_are_of_positions(tmp_path: Path) -> None:
    run = make_run(tmp_path, 6, Mean(), Populations(**{**SMALL, "flipped": [1, 2], "errors": 0.0}))
    run.board = BoardSettings(clients=1, chosen=["pop1_1"], pictures=1)
    run.fit(quiet=True)
    scores = run.test(quiet=True).scores
    drawn = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload().Runs()["fedlit/version_0/pop1_1"]["images"]
    assert {"val/confusion_matrix", "test/confusion_matrix"} <= set(drawn)
    assert min(own["auroc"] for own in scores.values()) > 0.65  # a word of five bases says which labels are flipped
    told = run.predict(quiet=True)["pop1_1"]
    assert list(told) == ["row", "probability_0", "probability_1", "predicted"]
    (table, *_) = run.data.tables()
    true = "".join(table.target[row] for row in told["row"])
    right = sum(one == other for one, other in zip("".join(told["predicted"]), true, strict=True))
    assert right / len(true) == pytest.approx(scores["pop1_1"]["accuracy"])


def test_a_file_of_new_reads_is_scored_whatever_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Populations(**SMALL).tables(0)[:2]
    files = {table.name: str(tmp_path / f"{table.name}.fasta") for table in tables}
    for table in tables:
        names = [f"r{row}" for row in range(len(table.target))]
        Path(files[table.name]).write_text(fasta(names, reads_of(table), table.target.tolist()))
    source = {"class_path": "fedlit.Reads", "init_args": {"files": files, "length": 24}}
    own = {"data": {"source": source}, "model": {"client": {"network": "fedlit.MLP"}}, "trainer": {"max_epochs": 1}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", "own.yaml"]) == 0
    reads = reads_of(tables[0])[:5]
    (tmp_path / "a.csv").write_text("read\n" + "\n".join(reads) + "\n")
    (tmp_path / "b.fasta").write_text("".join(f">n{place} of today\n{read}\n" for place, read in enumerate(reads)))
    records = "".join(f"@n{place} of today\n{read}\n+\n{'#' * len(read)}\n" for place, read in enumerate(reads))
    (tmp_path / "c.fq.gz").write_bytes(gzip.compress(records.encode()))
    (tmp_path / "d.fa").write_text("")
    (tmp_path / "e.fastq").write_text(records[:-9])
    (tmp_path / "f.fa").write_text(">one\nACGT\n>two\nACXT\n")
    (tmp_path / "g.txt").write_text(">one\nACGT\n")
    own = load_run("own", "pop1_1", quiet=True)

    def scored(name: str) -> pd.DataFrame:
        return own.predict(read_rows(tmp_path / name, own.encoder).frame)

    for name in ("b.fasta", "c.fq.gz"):
        assert list(read_rows(tmp_path / name, own.encoder).frame["name"]) == ["n0", "n1", "n2", "n3", "n4"]
        pd.testing.assert_frame_equal(scored(name), scored("a.csv"))
    for name, message in {
        "d.fa": "expected reads, found an empty file",
        "e.fastq": "e.fastq: expected FASTA or FASTQ",
        "f.fa": r"read 2: expected bases \(A, C, G, T, N\), found 'X'",
        "g.txt": "expected a column read",
    }.items():
        with pytest.raises(DataError, match=message):
            scored(name)
    (tmp_path / "i.fa").write_text(">one\nACGT\n>one\nACGTACGT\n>\nACGT\n")
    asked = ["predict", "--run", "own", "--client", "pop1_1", "--data"]
    assert main([*asked, str(tmp_path / "i.fa")]) == 0
    assert list(pd.read_csv(tmp_path / "i.scores.csv")["name"].fillna("")) == ["one", "one", ""]
    told = " ".join(capsys.readouterr().out.split())
    counts = re.search(r"Predicted labels: (.*) \(positions\)", told)
    assert counts and sum(map(int, re.findall(r" (\d+)(?:,|$)", counts[1]))) == 16  # up to the reads' ends
    assert main([*asked, str(tmp_path / "f.fa")]) != 0


def test_resumed_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", 2)
    scores = whole.fit(quiet=True).scores
    make_run(tmp_path / "part", 1).fit(quiet=True)
    resumed = make_run(tmp_path / "part", 2)
    assert resumed.fit("last", quiet=True).scores == scores
    assert different(weights(whole), weights(resumed)) == []
