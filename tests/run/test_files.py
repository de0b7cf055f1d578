"""Files of runs: two writers, damage, disks without room, folders that are read-only or gone."""

import csv
import os
import shutil
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from disks import files_of_at_most
from federations import BUNDLED, different, weights
from federations import make_run as made_run
from lightning.pytorch.callbacks import LambdaCallback

from fedlit import MLP, FedAvgM, Median
from fedlit.__main__ import main
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.files import exclusive, partial_of, read_named, write_frames
from fedlit.run.folders import check_name, say_once, to_score
from fedlit.run.run import Run
from fedlit.train import checkpoint_file
from fedlit.train.callbacks import Checkpoints

QUIET = ["--config", str(BUNDLED), "--name=quickstart", "--data.source.init_args.clients=[wine]"]
QUIET += ["--board.pictures=0", "--checkpoint.seconds=0"]


def make_run(folder: Path, **options: Any) -> Run:
    say_once.cache_clear()
    return made_run(folder, checkpoints=Checkpoints(seconds=0), **options)


def trained(folder: Path, **options: Any) -> tuple[Run, Path]:
    """A trained run, and the folder of its checkpoints."""
    run = make_run(folder, **options)
    run.fit(quiet=True)
    assert run.folder is not None
    return run, run.folder / "checkpoints"


# ---------------------------------------------------------------------- one writer


def test_a_second_writer_is_refused_and_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["/usr/bin/fedlit", "fit", "--name", "a b", *["--config", "quickstart.yaml"] * 9],
    )
    run, checkpoints = trained(tmp_path, epochs=1)
    assert run.folder is not None and not (run.folder / ".lock").exists()  # given back
    before = (checkpoints / "last.ckpt").read_bytes()
    with exclusive(run.folder / ".lock", "", ""):
        with pytest.raises(
            ConfigError,
            match=rf"found process {os.getpid()} on .*fedlit fit --name 'a b'.* …, since",
        ):
            make_run(tmp_path, epochs=2).fit("last", quiet=True)
        make_run(tmp_path, epochs=1).test(quiet=True)  # reads
        other, _ = trained(tmp_path, epochs=1)  # has a folder of its own
        assert other.folder != run.folder
    assert (checkpoints / "last.ckpt").read_bytes() == before


def test_a_lock_that_was_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text("process 4194305 on elsewhere")
    with exclusive(path, "expected nobody", "wait"):
        path.write_text("")  # not yet written by its holder
        with pytest.raises(ConfigError, match=r"expected nobody, found one; wait"):
            exclusive(path, "expected nobody", "wait").__enter__()
    assert not path.exists()


def test_what_is_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    (tmp_path / ".lock").mkdir()
    works: tuple[Any, ...] = (
        make_run(plain / "runs", epochs=1).fit,
        *(exclusive(own / ".lock", "", "").__enter__ for own in (plain, tmp_path)),
    )
    for work in works:
        with pytest.raises(
            ConfigError, match=f"{tmp_path}.*: expected a folder that can be written to, found: "
        ):
            work()


def test_training_ends_where_its_folder_is_removed(tmp_path: Path) -> None:
    def remove(trainer: Any, module: object) -> None:
        if trainer.current_epoch == 1:
            shutil.rmtree(run.folder or "")

    run = make_run(tmp_path, epochs=3, callbacks=[LambdaCallback(on_train_epoch_start=remove)])
    with pytest.raises(
        RunError, match=r"\.ckpt: expected to write there, .*nothing of this training was kept"
    ):
        run.fit(quiet=True)
    assert not list(tmp_path.rglob("*.ckpt"))


# ---------------------------------------------------------------------- damage


def test_a_damaged_checkpoint_is_refused_and_last_goes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, checkpoints = trained(tmp_path, epochs=3)
    last = checkpoints / "last.ckpt"
    best = next(checkpoints.glob("best-*.ckpt"))
    assert checkpoint_file.load(checkpoints / "previous.ckpt")["epoch"] == 1
    for path in (best, last):
        content = bytearray(path.read_bytes())
        # longer than what lies between two records
        for place in range(len(content) // 2, len(content) // 2 + 128):
            content[place] ^= 4
        path.write_bytes(content)
        with pytest.raises(
            ConfigError, match=rf"{path}: expected a file that fedlit wrote, found .*checksum"
        ):
            make_run(tmp_path, epochs=3).test(path, quiet=True)
    left = checkpoints / f".last.ckpt.{socket.gethostname()}-1.partial"
    left.write_bytes(b"of a process that was killed")
    again = make_run(tmp_path, epochs=3)
    again.fit("last", quiet=True)
    assert (
        "checksum" in (told := capsys.readouterr().err)
        and f"used: {checkpoints / 'previous.ckpt'}" in told
    )
    assert different(weights(run), weights(again)) == []
    assert not left.exists() and (checkpoints / "damaged.ckpt").is_file()
    for path in (last, checkpoints / "previous.ckpt"):
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        ConfigError, match=r"last.ckpt: .*cut short.*previous.ckpt: .*cut short.* start a new run"
    ):
        make_run(tmp_path, epochs=4).fit("last", quiet=True)


def test_a_best_checkpoint_that_the_last_one_names_outlives_it(tmp_path: Path) -> None:
    """Killed at any moment, what the last checkpoint names is there, and what it does not name is
    written again."""
    run, checkpoints = trained(tmp_path, epochs=4)
    (best,) = checkpoints.glob("best-*.ckpt")
    _, early = trained(tmp_path, epochs=2)
    (named,) = early.glob("best-*.ckpt")
    # as if killed between the best one of an epoch and its last one
    shutil.copy(best, early / best.name)
    assert to_score(tmp_path, run.name, "best", early.parent, "test")[0] == named
    again = make_run(tmp_path, epochs=4)
    again.fit("last", quiet=True)
    assert different(weights(run), weights(again)) == []
    assert [path.name for path in early.glob("best-*")] == [best.name]
    (early / best.name).unlink()
    with pytest.raises(ConfigError, match=r"--ckpt_path best: .* give --ckpt_path last"):
        to_score(tmp_path, run.name, "best", early.parent, "test")


# ---------------------------------------------------------------------- no room


def test_training_that_can_keep_nothing_ends_with_one_message(tmp_path: Path) -> None:
    with (
        files_of_at_most(2000),
        pytest.raises(RunError, match=r"File too large; .*nothing of this .* kept"),
    ):
        make_run(tmp_path, epochs=1).fit(quiet=True)
    assert not list(tmp_path.rglob("*.partial")) and not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.parametrize("name", ["best-0002.ckpt", "last.ckpt"])
def test_after_an_unwritable_checkpoint_the_last_one_goes_on(name: str, tmp_path: Path) -> None:
    """A link to a device that is always full takes the place of what the checkpoint is written
    to."""

    def fill(trainer: Any, module: object) -> None:
        if trainer.current_epoch == 2:
            partial_of(Path(trainer.default_root_dir) / "checkpoints" / name).symlink_to(
                "/dev/full"
            )

    whole, _ = trained(tmp_path / "whole", epochs=4)
    run = make_run(
        tmp_path / "part", epochs=4, callbacks=[LambdaCallback(on_train_epoch_start=fill)]
    )
    with pytest.raises(
        RunError, match=rf"{name}: .*No space left on device; .*then continue with --ckpt_path last"
    ):
        run.fit(quiet=True)
    assert not list(tmp_path.rglob("*.partial"))
    again = make_run(tmp_path / "part", epochs=4)  # there is room again
    again.fit("last", quiet=True)
    assert different(weights(whole), weights(again)) == []


def test_what_cannot_be_rewritten_stays_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed training, predictions, scores and an export, with room for none, or for one of two
    clients."""
    monkeypatch.chdir(tmp_path)
    quiet = [arg.replace("[wine]", "[breast_cancer,wine]") for arg in QUIET]
    assert main(["fit", *quiet, "--trainer.max_epochs=1"]) == 0
    run = tmp_path / "lightning_logs/quickstart/version_0"
    predict = ["predict", *quiet]
    test = ["test", *quiet]
    out = ["--out", "given", "--run", str(run), "--client=wine"]
    for command in (predict, test):
        assert main(command) == 0
    Path("given").mkdir()
    Path("given/scorer.json").write_text("{}")  # by which an export is known
    files = [*run.glob("predictions/test/*"), *run.glob("test.*"), *(tmp_path / "given").iterdir()]
    larger = run / "predictions/test/breast_cancer.csv"
    room = larger.stat().st_size - 1  # enough for the other client's
    for file in files[:-1]:
        file.write_bytes(b"what was there before")
    last = run / "checkpoints" / "last.ckpt"
    before = {file: file.read_bytes() for file in [*files, last]}
    more = ["fit", *quiet, "--trainer.max_epochs=2", "--ckpt_path=last"]
    for size, command, status, place in (
        (100, predict, 1, larger),
        (room, predict, 1, larger),
        (100, [*predict, "--format=parquet"], 1, larger.with_suffix(".parquet")),
        (100, ["export", *out], 1, Path("given")),
        (100, test, 0, run / "test.csv"),
        (last.stat().st_size // 2, more, 1, last),
    ):
        capsys.readouterr()
        with files_of_at_most(size):
            assert main(command) == status
        printed = capsys.readouterr()
        assert f"{place}: expected to write there, found: File too large" in " ".join(
            printed.err.split()
        )
    assert {file: file.read_bytes() for file in before} == before
    assert not list(tmp_path.rglob("*.partial")) and len(list(larger.parent.iterdir())) == 2
    assert main(more) == 0  # there is room again
    assert checkpoint_file.load(last)["epoch"] == 1


# ---------------------------------------------------------------------- names


def test_names_that_lead_elsewhere_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("../../x", "/tmp/x", "a\\b", "", "..", " x", "x\0y", "-x", "~x", "é" * 150):
        with pytest.raises(ConfigError, match="--name: expected"):
            check_name(name, "--name")
    monkeypatch.chdir(tmp_path)
    assert main(["describe", *QUIET, "--name=../../x"]) == 2 and list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------- going on with something else


def test_another_optimizer_rule_or_width_is_refused_by_name(tmp_path: Path) -> None:
    _, checkpoints = trained(tmp_path, epochs=1, exchange={"federated": ["core"]})
    wide = partial(FederatedClient, network=partial(MLP, hidden=[7, 7]))
    for options, message in (
        (
            {"loop": {"optimizer": partial(torch.optim.SGD, lr=0.1)}},
            r"client 'ash': .* its optimizer \(SGD\), .*AdamW",
        ),
        (
            {"loop": {"client": wide}},
            "client 'ash': expected a checkpoint of its network, in which",
        ),
        ({"exchange": {"rule": FedAvgM()}}, r"exchange.rule: .*FedAvgM.*found one of Mean\("),
        (
            {"exchange": {"rule": Median()}},
            r"exchange.rule: .*Median\(attackers=1\), found one of Mean\(",
        ),
    ):
        exchange = {"federated": ["core"], **options.pop("exchange", {})}
        with pytest.raises(ConfigError, match=message):
            make_run(tmp_path, epochs=2, exchange=exchange, **options).fit("last", quiet=True)
    with pytest.raises(ConfigError, match="client 'ash': expected a checkpoint of its network"):
        make_run(tmp_path, epochs=1, loop={"client": wide}).test(
            checkpoints / "last.ckpt", quiet=True
        )


def test_a_second_fit_begins_with_new_clients(tmp_path: Path) -> None:
    run, _ = trained(tmp_path, epochs=2, exchange={"federated": ["core"]})
    first = {name: value.clone() for name, value in weights(run).items()}
    run.test(quiet=True)
    run.fit(quiet=True)
    assert different(first, weights(run)) == [] and run.exchange.rounds == 2
    assert run.folder is not None and run.folder.name == "version_1"


TEXTS = [
    "=1+1",
    "+a",
    "-b",
    "@c",
    "\td",
    "\re",
    "'=f",
    "''=g",
    "'h",
    "-1",
    "+2e3",
    "1",
    "plain",
    "\x1b[2J",
    "<script>",
]


def test_a_csv_file_has_no_formula_and_is_read_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": TEXTS, "value": range(len(TEXTS))})
    write_frames({tmp_path / "a.csv": frame, tmp_path / "a.parquet": frame})
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file)][1:]
    assert {cell for cell in cells if cell[0] in "=+-@\t\r\x1b"} == {"-1", "+2e3"}
    assert read_named(tmp_path / "a.csv")["label"].tolist() == TEXTS
    assert pd.read_parquet(tmp_path / "a.parquet")["label"].tolist() == TEXTS


def test_raw_csv_has_texts_as_they_are(tmp_path: Path) -> None:
    write_frames({tmp_path / "a.csv": pd.DataFrame({"=a": ["=1+1"]})}, raw=True)
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "=a\n=1+1\n"
