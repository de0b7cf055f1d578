"""The command line under torchrun: one run, one message, whatever happens to a rank or what it is
asked for."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from federations import TINY, different, make_run
from ranks import on_ranks

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.exchange import ranks as exchange_ranks
from fedlit.exchange.place import Place
from fedlit.exchange.transport import Transport
from fedlit.run.alike import check_alike
from fedlit.train.manifest import read_checkpoint

EPOCHS = 5


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    text = TINY.format(epochs=EPOCHS).replace("fedlit.FederatedClient", "falling.Falls")
    path.write_text(
        text.replace("threads: 1", "threads: 1\n  engine: plain") + "checkpoint: {seconds: 0}\n"
    )
    return path


def fedlit_on(
    number: int, config: Path, command: str, *more: str, **environment: str
) -> tuple[int, list[str], str]:
    """Exit status, what fedlit said, and what it printed."""
    words = [
        command,
        "--config",
        str(config),
        "--trainer.default_root_dir",
        str(config.parent / "runs"),
        *more,
    ]
    ended = on_ranks(number, *words, module="fedlit", **environment)
    # torchrun adds its own words
    return ended.returncode, re.findall(r"^fedlit: .*$", ended.stderr, re.M), ended.stdout


def whole(config: Path) -> dict[str, torch.Tensor]:
    """What one process makes of it, undisturbed."""
    run = fedlit.load(str(config), f"--trainer.default_root_dir={config.parent / 'whole'}")
    run.fit(quiet=True)
    return {key: value.clone() for key, value in run.loop.state_dict().items()}


def end(config: Path) -> dict[str, torch.Tensor]:
    path = config.parent / "runs" / "tiny" / "version_0" / "checkpoints" / "last.ckpt"
    saved = read_checkpoint(path, resumable=True)
    assert saved["epoch"] == EPOCHS - 1
    return dict(saved["state_dict"])


@pytest.mark.parametrize("client", ["wine", pytest.param("breast_cancer", marks=pytest.mark.full)])
def test_a_killed_rank_ends_all_and_one_process_goes_on(config: Path, client: str) -> None:
    began = time.monotonic()
    status, said, _ = fedlit_on(2, config, "fit", FALLS=f"SIGKILL {client} 10")
    assert status != 0 and time.monotonic() - began < 300
    assert len(said) == 1 and "--ckpt_path last" in said[0]
    runs = f"--trainer.default_root_dir={config.parent / 'runs'}"
    fedlit.load(str(config), runs).fit("last", quiet=True)
    assert different(whole(config), end(config)) == []


def test_a_killed_command_goes_on_to_the_same_bits(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(config.read_text().replace("[8, 8]", "[8, 8], dropout: 0.2"))
    words = ["fit", "--config", config.name, "--trainer.default_root_dir", "runs"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "FALLS": "SIGKILL wine 10"}
    killed = subprocess.run(
        [sys.executable, "-m", "fedlit", *words], cwd=config.parent, env={**os.environ, **path}
    )
    assert killed.returncode == -signal.SIGKILL
    monkeypatch.chdir(config.parent)
    assert main([*words, "--ckpt_path", "last"]) == 0
    assert different(whole(config), end(config)) == []


@pytest.mark.full
def test_another_number_of_ranks_goes_on_with_a_run(
    tmp_path: Path,
) -> None:
    for size, job in ((3, "one"), (2, "three")):
        folder = tmp_path / job
        folder.mkdir()
        if size == 3:
            ranks.stop(folder, "cfl", 6)
            checkpoint = folder / "middle.ckpt"
        else:
            assert on_ranks(3, folder, "stop=cfl=6").returncode == 0
            checkpoint = folder / "3-ranks-0" / "middle.ckpt"
        assert on_ranks(size, folder, f"resume=cfl={checkpoint}").returncode == 0
        ends = [torch.load(folder / f"{size}-{rank}.pt", weights_only=True) for rank in range(size)]
        found = {
            key: value
            for one in ends
            for own in one.values()
            for key, value in own["weights"].items()
        }
        assert different(ranks.train(tmp_path / f"whole {job}", "cfl")["weights"], found) == []


@pytest.mark.full
def test_a_terminated_rank_ends_all_and_two_ranks_go_on(config: Path) -> None:
    early = f"--trainer.default_root_dir={config.parent / 'early'}"
    status, said, _ = fedlit_on(2, config, "fit", early, FALLS="SIGTERM breast_cancer 1")
    assert status != 0 and len(said) == 1 and "terminated (SIGTERM" in said[0]
    status, said, _ = fedlit_on(2, config, "fit", FALLS="SIGTERM breast_cancer 10")
    assert (
        status != 0
        and len(said) == 1
        and "terminated (SIGTERM" in said[0]
        and "--ckpt_path last" in said[0]
    )
    assert fedlit_on(2, config, "fit", "--ckpt_path", "last")[:2] == (0, [])
    assert different(whole(config), end(config)) == []


@pytest.mark.full
def test_what_is_wrong_at_one_rank_is_said_once(config: Path) -> None:
    status, said, _ = fedlit_on(2, config, "fit", FALLS="error wine 10")
    assert status != 0 and said == [
        "fedlit: error: client 'wine', step 11: ValueError: a broken row"
    ]
    status, said, _ = fedlit_on(3, config, "fit")
    assert (
        status != 0
        and len(said) == 1
        and "at least as many clients as ranks, found 2 clients on 3" in said[0]
    )


@pytest.mark.full
def test_scores_and_predictions_of_all_clients_stand_in_one_run(config: Path) -> None:
    assert fedlit_on(2, config, "fit")[0] == 0
    folder = config.parent / "runs" / "tiny" / "version_0"
    best = [path.name for path in folder.glob("checkpoints/best-*.ckpt")]
    assert len(best) == 1
    _, _, table = fedlit_on(2, config, "test")
    two = (folder / "test.csv").read_text()
    assert all(client in table for client in ("breast_cancer", "wine", "mean", "worst"))
    fedlit_on(2, config, "predict")
    files = {path.name: path.read_text() for path in folder.glob("predictions/test/*.csv")}
    run = fedlit.load(
        str(config), f"--trainer.default_root_dir={config.parent / 'runs'}", command="test"
    )
    run.test(quiet=True)
    run.predict(quiet=True)
    assert (folder / "test.csv").read_text() == two
    assert {path.name: path.read_text() for path in folder.glob("predictions/test/*.csv")} == files
    assert run.client("wine") and run.test("best", quiet=True)
    alone = fedlit.load(str(config), f"--trainer.default_root_dir={config.parent / 'whole'}")
    alone.fit(quiet=True)
    assert [path.name for path in alone.folder.glob("checkpoints/best-*.ckpt")] == best


# -------------------------------------------------------- ranks that are asked for different things


def said_by(how: str, folder: Path) -> tuple[int, str, str]:
    ended = on_ranks(2, folder, how)
    return ended.returncode, ended.stderr, ended.stdout


@pytest.mark.full
def test_a_run_is_copied_and_ranks_at_odd_points_are_refused(
    tmp_path: Path,
) -> None:
    status, said, printed = said_by("copies", tmp_path)
    assert status != 0 and printed.count("fitted again") == 2
    assert "found rank 0 at 'pears', rank 1 at 'apples'" in said


@pytest.mark.full
def test_an_unwritable_checkpoint_ends_all_ranks(
    tmp_path: Path,
) -> None:
    status, said, _ = said_by("unwritten", tmp_path)
    assert status != 0 and "best-0001.ckpt: expected to write there" in said
    assert next(tmp_path.rglob("last.ckpt")).is_file()


class OfTwo(Transport):
    """The first of two ranks, whose other one is asked for something else."""

    size = 2

    def gather(self, topic: str, value: Any) -> list[Any]:
        return [value, value | {"command": '"test"'}]


def test_ranks_that_are_asked_for_different_things_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, transport=OfTwo())
    check_alike(run, "test")
    with pytest.raises(
        ConfigError, match=r'found command: "fit" at rank 0, "test" at rank 1; start all with one'
    ):
        check_alike(run, "fit")
    with pytest.raises(ConfigError, match=r"trainer.max_time: each rank has a clock of its own"):
        make_run(tmp_path, transport=OfTwo(), max_time="00:01:00:00")


@pytest.mark.parametrize("away", [0, 1])
def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(
    away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(exchange_ranks, "_MEETING", timedelta(seconds=0.3))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(ConfigError, match=rf"expected 2 ranks to meet at 127.0.0.1, port {port}"):
        exchange_ranks.Ranks(Place(1 - away, 2, 1 - away, "127.0.0.1", port))
    assert time.monotonic() - began < 20
