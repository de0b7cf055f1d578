"""Files of runs: two writers, damage, disks without room, folders that are read-only or gone."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import different, weights
from federations import make_run as made_run
from lightning.pytorch.callbacks import LambdaCallback

from fedlit.__main__ import main
from fedlit.cli.runs import _curves
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.rules.momentum import FedAvgM
from fedlit.files import partial_of, write_text
from fedlit.locks import Lock, exclusive
from fedlit.nn import MLP
from fedlit.run.folders import _told, check_name, to_score
from fedlit.run.run import Run
from fedlit.train.callbacks import Checkpoints
from fedlit.train.callbacks.kept import best_of
from fedlit.train.whole import spared

QUIET = ["--config", "quickstart.yaml", "--data.source.init_args.clients=[wine]", "--board.curves=false"]
QUIET += ["--board.confusion_matrices=0", "--checkpoint.seconds=0"]


def make_run(folder: Path, **options: Any) -> Run:
    return made_run(folder, checkpoints=Checkpoints(seconds=0), **options)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    for at in range(place, place + 128):  # longer than what fills up between two records
        content[at] ^= 4
    path.write_bytes(content)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What a full disk does, for files of this process, without a disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ---------------------------------------------------------------------- one writer


def test_a_second_writer_is_refused_by_process_and_machine(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    assert run.folder is not None and not (run.folder / ".lock").exists()  # given back
    last = run.folder / "checkpoints" / "last.ckpt"
    before = last.read_bytes()
    with exclusive(run.folder / ".lock", "", ""):
        found = rf"expected no other process that writes there, found process {os.getpid()} on this machine \("
        with pytest.raises(ConfigError, match=found):
            make_run(tmp_path, epochs=2).fit("last", quiet=True)
        make_run(tmp_path, epochs=1).test(quiet=True)  # reads
        other = make_run(tmp_path, epochs=1)
        other.fit(quiet=True)  # has a folder of its own
        assert other.folder is not None and other.folder != run.folder
    assert last.read_bytes() == before


def test_a_lock_that_was_left_is_taken_over_here_and_named_where_it_is_another_machines(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    left = {"pid": 2**22 + 1, "host": socket.gethostname(), "began": "2026-01-01 00:00:00"}
    path.write_text(json.dumps(left))
    with exclusive(path, "expected nobody", "wait") as lock:
        assert lock.held and json.loads(path.read_text())["pid"] == os.getpid()
    path.write_text(json.dumps(left | {"host": "elsewhere"}))
    found = rf"expected nobody, found process {left['pid']} on elsewhere, since 2026.*; wait; if .* remove {path}"
    with pytest.raises(ConfigError, match=found):
        Lock(path, "expected nobody", "wait").acquire()
    path.write_text("{")  # cut short
    with exclusive(path, "expected nobody", "wait"):
        shutil.rmtree(tmp_path)
    assert not path.exists()


_IN_A_CONTAINER = """
import os, pathlib, signal, socket, sys
from fedlit.locks import Lock
socket.gethostname = lambda: "0a1b2c"
Lock(pathlib.Path(sys.argv[1]), "", "").acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lock_of_a_container_that_was_killed_is_taken_over_on_its_machine_and_file_system(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    killed = subprocess.Popen([sys.executable, "-c", _IN_A_CONTAINER, str(path)])
    assert killed.wait(60) == -signal.SIGKILL
    left = json.loads(path.read_text())
    assert left["host"] == "0a1b2c" != socket.gethostname()
    with exclusive(path, "expected nobody", "wait") as lock:
        assert lock.held
    for other in ({"boot": "another start"}, {"device": left["device"] + 1}):
        path.write_text(json.dumps(left | other))
        with pytest.raises(ConfigError, match=rf"found process {killed.pid} on 0a1b2c, .* remove {path}"):
            Lock(path, "expected nobody", "wait").acquire()


def test_a_refusal_quotes_the_command_that_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".lock"
    for more, told in (
        (["--config", "quickstart.yaml", "--name", "a b"], "fedlit fit --config quickstart.yaml --name 'a b', since"),
        (["--config", "quickstart.yaml"] * 9, " …, since"),
    ):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/fedlit", "fit", *more])
        with exclusive(path, "", ""), pytest.raises(ConfigError) as refused:
            Lock(path, "expected nobody", "wait").acquire()
        assert told in str(refused.value) and len(str(refused.value)) < 300


def test_what_is_in_the_way_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(ConfigError, match=rf"found: {tmp_path}/.lock is in the way, a folder .*; move .lock away, or"):
        Lock(tmp_path / ".lock", "expected nobody", "wait").acquire()
    plain = tmp_path / "plain"
    plain.write_text("")
    for work in (partial(make_run(plain / "runs", epochs=1).fit, quiet=True), partial(_lock_in, plain)):
        with pytest.raises(ConfigError, match=rf"found: {plain} is in the way, a file where a folder is needed"):
            work()
    with spared(plain / "a" / "b.txt", "it"):
        write_text("", plain / "a" / "b.txt")
    told = " ".join(capsys.readouterr().err.split())
    assert f"found: {plain} is in the way, a file where a folder is needed; training goes on, without it" in told
    assert "move plain away, and start again" in told and "make room" not in told


def test_curves_that_could_not_be_written_are_not_offered(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    assert run.folder is not None and f"Curves: tensorboard --logdir {run.folder}" in _curves(run)
    for events in run.folder.rglob("events.out.tfevents.*"):
        os.truncate(events, 0)
    assert _curves(run) == []


def _lock_in(plain: Path) -> None:
    Lock(plain / ".lock", "expected nobody", "wait").acquire()


def test_a_lock_whose_folder_was_removed_is_held_again_unless_another_has_it(tmp_path: Path) -> None:
    path = tmp_path / "run" / ".lock"
    path.parent.mkdir()
    with exclusive(path, "expected nobody", "wait") as lock:
        assert not lock.renew()
        shutil.rmtree(path.parent)
        assert not lock.held and lock.renew() and lock.held
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        with (
            exclusive(path, "expected nobody", "wait"),
            pytest.raises(RunError, match="was removed while this process"),
        ):
            lock.renew()


# ---------------------------------------------------------------------- damage


def test_a_damaged_checkpoint_is_refused_by_name_and_last_goes_on_from_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, epochs=3)
    run.fit(quiet=True)
    assert run.folder is not None
    checkpoints = run.folder / "checkpoints"
    last, best = checkpoints / "last.ckpt", next(checkpoints.glob("best-*.ckpt"))
    assert torch.load(checkpoints / "previous.ckpt", weights_only=True)["epoch"] == 1
    for path in (best, last):
        flip(path, path.stat().st_size // 2)
        with pytest.raises(ConfigError, match=rf"{path}: expected a file that fedlit wrote, found .*checksum"):
            make_run(tmp_path, epochs=3).test(path, quiet=True)
    partial = checkpoints / f".last.ckpt.{socket.gethostname()}-1.partial"
    partial.write_bytes(b"of a process that was killed")
    capsys.readouterr()
    again = make_run(tmp_path, epochs=3)
    again.fit("last", quiet=True)
    assert "checksum" in (told := capsys.readouterr().err) and f"The one before it is used: {checkpoints}" in told
    assert different(weights(run), weights(again)) == []
    assert not partial.exists() and (checkpoints / "damaged.ckpt").is_file()
    for path in (last, checkpoints / "previous.ckpt"):
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"last.ckpt: .*cut short.* The one before it, previous.ckpt, is damaged too"):
        make_run(tmp_path, epochs=4).fit("last", quiet=True)


def test_a_best_checkpoint_that_the_last_one_names_outlives_it(tmp_path: Path) -> None:
    """Killed at any moment, what the last checkpoint names is there, and what it does not name is written again."""
    run = make_run(tmp_path, epochs=4)
    run.fit(quiet=True)
    assert run.folder is not None
    checkpoints = run.folder / "checkpoints"
    (best,) = checkpoints.glob("best-*.ckpt")
    expected = weights(run)
    early = make_run(tmp_path, epochs=2)
    early.fit(quiet=True)
    assert early.folder is not None
    later = early.folder / "checkpoints" / best.name  # as if killed between the best one of an epoch and its last one
    shutil.copy(best, later)
    stale = early.folder / "checkpoints" / "best-0000.ckpt"
    named = [path.name for path in early.folder.glob("checkpoints/best-*") if path != later]
    again = make_run(tmp_path, epochs=4)
    again.fit("last", quiet=True)
    assert different(expected, weights(again)) == []
    found = {path.name for path in early.folder.glob("checkpoints/best-*")}
    assert best.name in found and found <= {best.name, *named} and len(found) == 1, (found, stale)


# ---------------------------------------------------------------------- no room


@pytest.mark.parametrize(
    "share", [0.05, pytest.param(0.5, marks=pytest.mark.full), pytest.param(0.9, marks=pytest.mark.full)]
)
def test_where_nothing_can_be_kept_training_ends_with_one_message(share: float, tmp_path: Path) -> None:
    run = make_run(tmp_path / "whole", epochs=1)
    run.fit(quiet=True)
    assert run.folder is not None
    size = (run.folder / "checkpoints" / "last.ckpt").stat().st_size
    with (
        files_of_at_most(int(share * size)),
        pytest.raises((RunError, ConfigError), match=rf"^{tmp_path}.*File too large; nothing of this .* be kept"),
    ):
        make_run(tmp_path / "full", epochs=1).fit(quiet=True)
    assert not list(tmp_path.rglob("*.partial")) and not list((tmp_path / "full").rglob("*.ckpt"))


def test_a_disk_that_fills_up_costs_neither_the_scores_nor_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *QUIET, "--trainer.max_epochs=1"]) == 0
    last = tmp_path / "lightning_logs/quickstart/version_0/checkpoints/last.ckpt"
    capsys.readouterr()
    with files_of_at_most(last.stat().st_size // 2):
        assert main(["fit", *QUIET, "--trainer.max_epochs=2", "--ckpt_path=last"]) == 1
    out, err = capsys.readouterr()
    assert "validation:" in out and f"fedlit: error: {last}: expected to write there, found: File too large" in err
    assert torch.load(last, weights_only=True)["epoch"] == 0
    assert main(["fit", *QUIET, "--trainer.max_epochs=2", "--ckpt_path=last"]) == 0  # there is room again


def test_a_best_checkpoint_that_could_not_be_written_leaves_the_one_before_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link to a device that is always full takes the place of what the best checkpoint is written to."""
    run = make_run(tmp_path, epochs=1, name="first")
    run.fit(quiet=True)
    assert run.folder is not None
    checkpoints = run.folder / "checkpoints"
    (good,) = checkpoints.glob("best-*.ckpt")
    before = good.read_bytes()

    def fill(*_: object) -> None:
        for epoch in range(1, 5):
            partial_of(checkpoints / f"best-{epoch:04d}.ckpt").symlink_to("/dev/full")

    again = make_run(tmp_path, epochs=5, name="first", callbacks=[LambdaCallback(on_train_start=fill)])
    again.fit("last", quiet=True)
    told = capsys.readouterr().err
    assert "No space left on device; training goes on, those that were kept before stay" in " ".join(told.split())
    assert again.lost is not None and "a better state than those that are kept is lost" in again.lost
    assert [*checkpoints.glob("best-*.ckpt")] == [good] and good.read_bytes() == before
    last = torch.load(checkpoints / "last.ckpt", weights_only=True)
    assert last["epoch"] == 4 and best_of(last) == {good.name}
    assert {own["best_model_path"] for own in last["callbacks"].values() if "best_model_path" in own} == {str(good)}
    expected = make_run(tmp_path, epochs=1, name="first").test(good, quiet=True).scores
    assert make_run(tmp_path, epochs=5, name="first").test("best", quiet=True).scores == expected
    more = make_run(tmp_path, epochs=12, name="first")  # there is room again
    more.fit("last", quiet=True)
    (better,) = checkpoints.glob("best-*.ckpt")
    assert more.lost is None and better != good


def test_the_best_checkpoint_is_the_one_that_the_last_one_knows_and_another_one_beside_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, epochs=2)
    run.fit(quiet=True)
    assert run.folder is not None
    (best,) = run.folder.glob("checkpoints/best-*.ckpt")
    capsys.readouterr()
    assert to_score(tmp_path, run.name, "best", run.folder, "test")[0] == best and capsys.readouterr().err == ""
    later = best.with_name("best-0007.ckpt")
    shutil.copy(best, later)
    assert to_score(tmp_path, run.name, "best", run.folder, "test")[0] == best
    told = " ".join(capsys.readouterr().err.split())
    assert f"takes {best.name} for the best, which is used; give --ckpt_path {later} for the later one" in told
    _told.clear()
    best.unlink()
    assert to_score(tmp_path, run.name, "best", run.folder, "test")[0] == later
    assert f"takes {best.name} for the best, which is gone; {later.name} is used" in capsys.readouterr().err
    later.unlink()
    with pytest.raises(ConfigError, match=r"best-\*.ckpt in .*, found none: .* give --ckpt_path last"):
        to_score(tmp_path, run.name, "best", run.folder, "test")


def test_what_cannot_be_written_anew_stays_as_it_was_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions, scores and an export, with room for none, and predictions with room for one of two clients."""
    monkeypatch.chdir(tmp_path)
    quiet = [arg.replace("[wine]", "[digits,wine]") for arg in QUIET]
    assert main(["fit", *quiet, "--trainer.max_epochs=1"]) == 0
    run = tmp_path / "lightning_logs/quickstart/version_0"
    predict, test, out = ["predict", *quiet], ["test", *quiet], ["--out", "given", "--run", str(run), "--client=wine"]
    for command in (predict, test, ["export", *out]):
        assert main(command) == 0
    files = [*run.glob("predictions/test/*"), *run.glob("test.*"), *(tmp_path / "given").iterdir()]
    for file in files:
        if file.name != "scorer.json":  # by which an export is known
            file.write_bytes(b"what was there before")
    before = {file: file.read_bytes() for file in files}
    wine = run / "predictions/test/wine.csv"
    assert wine in before and len(list(wine.parent.iterdir())) == 2
    capsys.readouterr()
    for size, command, place in (
        (100, predict, wine.with_name("digits.csv")),
        (5000, predict, wine.with_name("digits.csv")),
        (100, [*predict, "--format=parquet"], wine.with_name("digits.parquet")),
        (100, ["export", *out], Path("given")),
    ):
        with files_of_at_most(size):
            assert main(command) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert f"fedlit: error: {place}: expected to write there, found: File too large; make room" in told
    with files_of_at_most(100):
        assert main(test) == 0
    assert f"{run / 'test.csv'}: expected to write there, found: File too large; the scores" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in files} == before
    assert {*tmp_path.glob("*")} == {tmp_path / "lightning_logs", tmp_path / "given"}
    assert not list(tmp_path.rglob("*.partial")) and {*wine.parent.iterdir()} <= {*before}


def test_a_folder_that_is_removed_in_training_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def remove(trainer: object, module: object) -> None:
        if getattr(trainer, "current_epoch") == 1:  # noqa: B009
            assert run.folder is not None
            shutil.rmtree(run.folder)

    run = make_run(tmp_path, epochs=3, callbacks=[LambdaCallback(on_train_epoch_start=remove)])
    run.fit(quiet=True)
    assert run.folder is not None and "was removed while it was written to; it is made again" in capsys.readouterr().err
    assert torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 2


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name", ["../../x", "/tmp/x", "a/b", "a\\b", "", ".", "..", " x", "x\0y", "-x", "~x", "é" * 150]
)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^--name: expected a folder's name, .* found '.*'; take '[^/]+', say"):
        check_name(name, "--name")


def test_the_command_line_refuses_a_name_that_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("fit", "test", "describe"):
        assert main([command, *QUIET, "--name=../../x"]) == 2
        assert "--name: expected a folder's name, without a slash, found '../../x'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- going on with something else


def test_another_optimizer_rule_or_width_is_refused_by_name(tmp_path: Path) -> None:
    make_run(tmp_path, epochs=1).fit(quiet=True)
    sgd = partial(torch.optim.SGD, lr=0.1)
    with pytest.raises(ConfigError, match=r"client 'ash': expected .* its optimizer \(SGD\), found .*AdamW"):
        make_run(tmp_path, epochs=2, loop={"optimizer": sgd}).fit("last", quiet=True)
    adam = partial(torch.optim.Adam, lr=0.01)
    with pytest.raises(ConfigError, match=r"\(Adam\), found .*AdamW"):
        make_run(tmp_path, epochs=2, loop={"optimizer": adam}).fit("last", quiet=True)
    wide = partial(FederatedClient, network=partial(MLP, hidden=[7]))
    for command in ("fit", "test"):
        run = make_run(tmp_path, epochs=2, loop={"client": wide})
        with pytest.raises(ConfigError, match=r"client 'ash': expected a checkpoint of its network, in which .* found"):
            run.fit("last", quiet=True) if command == "fit" else run.test(quiet=True)
    rule = {"federated": ["core"], "rule": FedAvgM()}
    make_run(tmp_path / "rules", epochs=1, exchange=rule).fit(quiet=True)
    with pytest.raises(ConfigError, match=r"exchange.rule: expected a checkpoint of Mean.*, found one of FedAvgM"):
        make_run(tmp_path / "rules", epochs=2, exchange={"federated": ["core"]}).fit("last", quiet=True)
