"""Reads, labelled position by position, from fit to scores of new files. Scores elsewhere:
test_export.py."""

import gzip
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from federations import make_run
from made_tables import fasta, reads_of
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from fedlit import BiLSTM
from fedlit.__main__ import main
from fedlit.client.client import FederatedClient
from fedlit.data.sources import Populations
from fedlit.errors import DataError
from fedlit.run.run import Run
from fedlit.score import load_run
from fedlit.score.files import read_rows
from fedlit.train.logger import BoardSettings


def of_reads(folder: Path, epochs: int) -> Run:
    client = partial(FederatedClient, network=partial(BiLSTM, hidden=6, width=4, dropout=0.1))
    run = make_run(
        folder,
        loop={"client": client, "optimizer": partial(torch.optim.Adam, lr=0.03)},
        data={"batches": None, "batch_size": 8},
        align="classes",
        exchange={"federated": ["*"]},
        board=BoardSettings(clients=1, chosen=["pop1_1"], pictures=1),
        seed=3,
        epochs=epochs,
    )
    run.data.source = Populations(
        2, 2, reads=40, length=24, reference=2000, flipped=[1, 2], errors=0.0
    )
    return run


def test_it_learns_and_predictions_are_of_positions(tmp_path: Path) -> None:
    run = of_reads(tmp_path, epochs=6)
    run.fit(quiet=True)
    scores = run.test(quiet=True).scores
    drawn = (
        EventMultiplexer()
        .AddRunsFromDirectory(str(tmp_path))
        .Reload()
        .Runs()["fedlit/version_0/pop1_1"]["images"]
    )
    assert {"val/confusion_matrix", "test/confusion_matrix"} <= set(drawn)
    # a word of five bases says which labels are flipped
    assert min(own["auroc"] for own in scores.values()) > 0.65
    told = run.predict(quiet=True)["pop1_1"]
    assert list(told) == ["row", "probability_0", "probability_1", "predicted"]
    (table, *_) = run.data.tables()
    true = "".join(table.target[row] for row in told["row"])
    right = sum(one == other for one, other in zip("".join(told["predicted"]), true, strict=True))
    assert right / len(true) == pytest.approx(scores["pop1_1"]["accuracy"])


def test_a_file_of_new_reads_is_scored_whatever_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = Populations(2, 2, reads=40, length=24, reference=2000).tables(0)[:2]
    for table in tables:
        reads = reads_of(table)
        Path(f"{table.name}.fasta").write_text(
            fasta(["r"] * len(reads), reads, table.target.tolist())
        )
    source = {"class_path": "fedlit.Reads", "init_args": {"files": "*.fasta", "length": 24}}
    own = {
        "data": {"source": source},
        "model": {"client": {"network": "fedlit.MLP"}},
        "trainer": {"max_epochs": 1},
    }
    Path("own.yaml").write_text(yaml.safe_dump(own))
    assert main(["fit", "--config", "own.yaml"]) == 0
    named = [(f"n{place}", read) for place, read in enumerate(reads_of(tables[0])[:5])]
    positions = [f"p{place:02}" for place in range(1, 25)]
    pd.DataFrame([list(read) for _, read in named], columns=positions).to_csv("a.csv", index=False)
    Path("b.fa").write_text("".join(f">{name} of today\n{read}\n" for name, read in named))
    records = "".join(f"@{name} of today\n{read}\n+\n{'#' * len(read)}\n" for name, read in named)
    Path("c.fq.gz").write_bytes(gzip.compress(records.encode()))
    Path("d.fa").write_text(">one\nACGT\n>two\nACXT\n")
    Path("e.txt").write_text(">one\nACGT\n")
    scorer = load_run("own", "pop1_1", quiet=True)

    def scored(name: str) -> pd.DataFrame:
        return scorer.predict(read_rows(tmp_path / name, scorer.encoder).frame)

    for name in ("b.fa", "c.fq.gz"):
        assert list(read_rows(tmp_path / name, scorer.encoder).frame["name"]) == [
            name for name, _ in named
        ]
        pd.testing.assert_frame_equal(scored(name), scored("a.csv"))
    for name, message in (
        ("d.fa", r"read 2: expected bases .* found 'X'"),
        ("e.txt", "expected the column .p01"),
    ):
        with pytest.raises(DataError, match=message):
            scored(name)
    Path("i.fa").write_text(">one\nACGT\n>one\nACGTACGT\n>\nACGT\n")
    asked = ["predict", "--run", "own", "--client", "pop1_1", "--data"]
    assert main([*asked, "i.fa"]) == 0
    assert list(pd.read_csv("i.scores.csv")["name"].fillna("")) == ["one", "one", ""]
    # up to the reads' ends
    assert pd.read_csv("i.scores.csv")["predicted"].str.count("[01]").sum() == 16
    assert main([*asked, "d.fa"]) != 0
