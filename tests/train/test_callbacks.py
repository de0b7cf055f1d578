"""What a run shows and writes besides its scores: event files read back with TensorBoard's own
reader, the progress bar, and who belongs together.
"""

import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import CLUSTERED, StopAfter, alike, trained
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from fedlit.files import read_named
from fedlit.run.resolved import Resolved
from fedlit.tasks import Classification
from fedlit.train.callbacks import Progress
from fedlit.train.logger import HPARAMS, BoardSettings


def read(folder: Path) -> EventMultiplexer:
    board = EventMultiplexer(
        size_guidance={"scalars": 0, "images": 0, "tensors": 0}
    ).AddRunsFromDirectory(str(folder))
    return board.Reload()


def series(board: EventMultiplexer, run: str, tag: str) -> dict[int, float]:
    # files of one second are read in the order of their names, of which the tenth comes before the
    # second
    return {
        event.step: event.value
        for event in sorted(board.Scalars(run, tag), key=lambda event: event.step)
    }


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("board")
    settings = {"data.batches": 4, "name": "made"}
    board = BoardSettings()
    run = trained(
        folder,
        epochs=3,
        exchange={"federated": ["core"]},
        config=Resolved(settings),
        board=board,
    )
    return run, read(folder)


RUN = "fedlit/version_0"


def test_each_client_and_the_federation_have_a_run_with_tags(shown: Any) -> None:
    _run, board = shown
    runs = board.Runs()
    clients = ["ash", "birch", "cedar"]
    assert set(runs) == {f"{RUN}/{name}" for name in [*clients, "federation", HPARAMS]}
    tags = [
        {*runs[f"{RUN}/{name}"]["scalars"], *runs[f"{RUN}/{name}"]["images"]} for name in clients
    ]
    assert tags[0] == tags[1] == tags[2]
    metrics = {
        score.name for score in Classification.scores if not (score.test_only or score.context)
    }
    pictures = {"val/confusion_matrix"}
    assert (
        tags[0]
        == {f"val/{metric}" for metric in metrics}
        | {"train/loss", "train/lr", "train/drift"}
        | pictures
    )
    federation = {*runs[f"{RUN}/federation"]["scalars"], *runs[f"{RUN}/federation"]["tensors"]}
    shared = {
        "val/auroc",
        "val/worst/auroc",
        "train/loss",
        "train/drift",
        "plan/text_summary",
        "exchange/rounds",
    }
    assert shared <= federation and not any(tag.endswith("/classes") for tag in federation)


def test_values_and_steps(shown: Any) -> None:
    run, board = shown
    auroc = {
        name: series(board, f"{RUN}/{name}", "val/auroc") for name in ("ash", "birch", "cedar")
    }
    # aligned steps at the end of each epoch
    assert all(list(values) == [4, 8, 12] for values in auroc.values())
    for name, values in auroc.items():
        assert values[12] == pytest.approx(run.loop.results["validation"].scores[name]["auroc"])
    federation = f"{RUN}/federation"
    for step, mean in series(board, federation, "val/auroc").items():
        assert mean == pytest.approx(np.mean([values[step] for values in auroc.values()]))
        assert series(board, federation, "val/worst/auroc")[step] == pytest.approx(
            min(v[step] for v in auroc.values())
        )
    drift = {name: series(board, f"{RUN}/{name}", "train/drift") for name in auroc}
    assert all(value > 0 for values in drift.values() for value in values.values())
    mean = float(np.mean([values[12] for values in drift.values()]))
    assert series(board, federation, "train/drift")[12] == pytest.approx(mean)


def test_a_resumed_run_continues_the_same_curves(tmp_path: Path) -> None:
    trained(tmp_path, epochs=2)
    trained(tmp_path, "last", epochs=4)
    board = read(tmp_path)
    means, best = (
        series(board, f"{RUN}/federation", f"val/{tag}") for tag in ("auroc", "best/auroc")
    )
    assert list(best.values()) == pytest.approx(np.maximum.accumulate(list(means.values())))
    assert list(series(board, f"{RUN}/ash", "val/loss")) == [4, 8, 12, 16]
    assert len(board.Runs()) == 4


def test_of_many_clients_only_the_worst_and_the_chosen_have_runs(tmp_path: Path) -> None:
    run = alike(
        tmp_path,
        exchange={"federated": ["core"]},
        board=BoardSettings(clients=3, chosen=["site5"], pictures=0),
    )
    results = run.fit(quiet=True)
    board = read(tmp_path)
    shown = {Path(name).name for name in board.Runs()} - {"federation"}
    assert "site5" in shown and len(shown) <= 3 + 1 < 7
    assert set(results.summary["worst_client"].values()) & shown
    federation = f"{RUN}/federation"
    values = [scores["auroc"] for scores in results.scores.values()]
    for percent in (10, 50, 90):
        assert series(board, federation, f"val/auroc/p{percent}")[12] == pytest.approx(
            np.percentile(values, percent)
        )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [140, 50])
def test_one_bar_over_all_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal := Terminal())
        patch.setattr(sys, "stdout", piped := io.StringIO())
        run = trained(tmp_path, exchange={"federated": ["core"]}, callbacks=[Progress()])
    assert run.trainer is not None and piped.getvalue() == ""
    written = terminal.getvalue()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    frames = [line for line in re.split(r"[\r\n]+", plain) if "/3" in line]
    assert frames and all(len(line) <= columns for line in frames)
    auroc = 100 * float(run.trainer.callback_metrics["val/auroc"])
    assert f"AUROC {auroc:.2f}" in frames[-1] and "3/3" in frames[-1]
    assert frames[-1].endswith("0:00:00")
    if columns == 140:
        best = 100 * max(series(read(tmp_path), f"{RUN}/federation", "val/best/auroc").values())
        assert f"best so far {best:.2f}" in frames[-1] and "round 3" in frames[-1]


def test_a_pipe_gets_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", piped := io.StringIO())
        trained(tmp_path, exchange={"federated": ["core"]}, callbacks=[Progress()])
    assert piped.getvalue() == ""


# ------------------------------------------------------------------ clusters


def test_clusters_are_written_and_resumed_runs_write_the_same(
    tmp_path: Path,
) -> None:
    whole = trained(tmp_path / "whole", board=BoardSettings(), **CLUSTERED["fedgmcc"])
    stop = StopAfter(10, Path("checkpoints", "last.ckpt"))
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "part", callbacks=[stop], **CLUSTERED["fedgmcc"])
    resumed = trained(tmp_path / "part", "last", **CLUSTERED["fedgmcc"])
    assert whole.folder is not None and resumed.folder is not None
    for name in ("clusters.csv", "pairs.csv"):
        assert (resumed.folder / name).read_text() == (whole.folder / name).read_text()
    found, pairs = (read_named(whole.folder / f"{name}.csv") for name in ("clusters", "pairs"))
    assert len(found) == len(pairs) == 3 * whole.exchange.rounds
    board = read(tmp_path / "whole")
    federation = f"{RUN}/federation"
    assert "clusters/membership" in board.Runs()[federation]["images"]
    shown = {
        tag: [*series(board, federation, f"exchange/{tag}").values()]
        for tag in ("clusters", "percentile")
    }
    assert shown["clusters"] == [float(n) for n in found.groupby("round")["cluster"].nunique()]
    assert shown["percentile"][0] == 50 and len(set(shown["percentile"])) > 1
