"""The command line as a person uses it: in a process of its own where that matters, else through
``main``."""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pytest
from elsewhere import light, mistakes

from fedlit.__main__ import main
from fedlit.data.sources import Heart, Hospitals, HumanActivity, VehicleSensors
from fedlit.errors import ConfigError
from fedlit.run.config import find_config, known_configs

FAST = [
    "--config",
    "quickstart.yaml",
    "--trainer.max_epochs",
    "2",
    "--model.threads",
    "1",
    "--data.batches",
    "4",
]
FAST += ["--board.pictures", "0"]  # pictures take longer than these trainings
RUN = Path("lightning_logs/quickstart/version_0")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of quickstart, and what was printed of it."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as told:
        patch.chdir(folder)
        assert main(["fit", *FAST]) == 0
    (folder / "told").write_text(told.getvalue())
    return folder


@pytest.fixture
def trained(once: Path, here: Path) -> Path:
    """A copy of it, which a test may change."""
    shutil.copytree(once, here, dirs_exist_ok=True)
    return here


def error_of(capsys: pytest.CaptureFixture[str], *args: str, status: int = 2) -> str:
    assert main(list(args)) == status
    captured = capsys.readouterr()
    before, found, message = captured.err.partition("fedlit: error: ")
    assert found and "Traceback" not in captured.err and before.count("\n") <= 4
    assert message.count("\n") <= 12  # one message, not a page of usage
    return message


def test_light_commands_import_neither_torch_nor_pandas(tmp_path: Path) -> None:
    commands: tuple[list[str], ...] = (
        [],
        ["--version"],
        ["site"],
        ["data"],
        ["data", "show", "Heart"],
        ["methods"],
    )
    told = light(commands, tmp_path, "pandas", "sklearn", "matplotlib")
    assert (
        all(status == 0 for status, _, _ in told)
        and "fedlit fit quickstart" in told[0][1].split("Your tables:")[0]
    )


def test_fit_test_predict_validate_from_anywhere(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = (trained / "told").read_text()
    assert (
        out.index("Exchange every epoch")
        < out.index("validation:")
        < out.index(" test --config quickstart.yaml")
    )
    run = trained / RUN
    assert (run / "config.yaml").is_file() and not (run / "test.csv").exists()

    assert main(["test", "--config", "quickstart.yaml"]) == 0
    captured = capsys.readouterr()
    assert f"Using {RUN / 'checkpoints' / 'last.ckpt'}\n" in captured.err
    table = pd.read_csv(run / "test.csv", index_col="client")
    plain = json.loads((run / "test.json").read_text())
    assert list(table.index) == ["north", "south", "west"]
    assert plain["mean"]["auroc"] == pytest.approx(table["auroc"].mean())
    assert plain["worst"]["auroc"] == pytest.approx(table["auroc"].min())
    assert plain["worst_client"]["auroc"] == table["auroc"].idxmin()
    assert f"{table['auroc']['west']:.4f}" in captured.out

    assert main(["validate", "--config", "quickstart.yaml", "--ckpt_path", "best"]) == 0
    assert (run / "validation.csv").is_file()

    assert main(["predict", "--config", "quickstart.yaml", "--format", "parquet"]) == 0
    predictions = pd.read_parquet(run / "predictions" / "test" / "west.parquet")
    assert list(predictions) == ["row", "probability_no", "probability_yes", "predicted"]
    assert len(predictions) == table.loc["west", "rows"] == predictions["row"].nunique()
    probabilities = predictions.filter(like="probability_")
    assert probabilities.sum(axis=1).to_numpy() == pytest.approx(1)
    assert (
        predictions["predicted"]
        == probabilities.idxmax(axis=1).astype(str).str.removeprefix("probability_")
    ).all()
    truth = Hospitals().frame("west")["readmitted"].loc[predictions["row"]].to_numpy()
    assert (predictions["predicted"] == truth).mean() == pytest.approx(
        table.loc["west", "accuracy"]
    )


def test_runs_are_numbered_and_scored_with_their_own_seed(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *FAST, "--seed", "9"]) == 0
    assert main(["test", "--config", "quickstart.yaml"]) == 0
    other = trained / RUN.with_name("version_1")
    # the newest run has seed 9: its split, not the file's, says which rows are test rows
    assert (other / "test.csv").is_file() and not (trained / RUN / "test.csv").exists()
    capsys.readouterr()
    asked = [
        "test",
        "--config",
        "quickstart.yaml",
        "--ckpt_path",
        f"{RUN}/checkpoints/last.ckpt",
        "--seed",
        "9",
    ]
    assert "expected seed 9, found 8" in error_of(capsys, *asked)
    assert main(["fit", *FAST, "--trainer.enable_checkpointing", "false"]) == 0
    assert "Next:" not in capsys.readouterr().out.split("version_2")[1]
    # it is not passed over
    assert "version_2" in error_of(capsys, "test", "--config", "quickstart.yaml")
    assert main(asked[:-2]) == 0


def test_the_configuration_of_a_run_means_that_run(trained: Path) -> None:
    assert main(["fit", *FAST, "--seed", "9"]) == 0
    first = trained / RUN
    second = trained / RUN.with_name("version_1")
    for command, scores in (("validate", "validation.csv"), ("test", "test.csv")):
        assert main([command, "--config", f"{RUN}/config.yaml"]) == 0
        assert (first / scores).is_file() and not (second / scores).exists()
    assert (
        main(
            [
                "fit",
                "--config",
                f"{RUN}/config.yaml",
                "--ckpt_path",
                "last",
                "--trainer.max_epochs",
                "3",
            ]
        )
        == 0
    )
    assert {path.name for path in RUN.parent.iterdir()} == {"version_0", "version_1"}
    resumed = [
        folder
        for folder in (first, second)
        if "max_epochs: 3" in (folder / "config.yaml").read_text()
    ]
    assert resumed == [first]
    assert main(["validate", "--config", f"{RUN}/config.yaml", "--name", "quickstart"]) == 0
    assert (second / "validation.csv").is_file()


def test_configs_are_found_here_in_configs_or_in_the_package(here: Path) -> None:
    shipped = find_config("quickstart.yaml")
    assert shipped.parent.name == "configs" and "quickstart.yaml" in known_configs()
    (here / "configs").mkdir()
    (here / "configs" / "quickstart.yaml").write_text("seed: 1\n")
    assert find_config("quickstart") == (here / "configs" / "quickstart.yaml").resolve()
    (here / "quickstart.yaml").write_text("seed: 2\n")
    assert find_config("quickstart.yaml") == (here / "quickstart.yaml").resolve()
    with pytest.raises(
        ConfigError, match=r"expected a YAML file, found none in .*Did you mean 'covertype_gl'"
    ):
        find_config("covertype_lg.yaml")


def test_a_wrong_configuration_gets_one_message_and_status_2(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, names in mistakes("fit"):
        message = error_of(capsys, *words)
        assert all(name in message for name in names), message
    assert not list(here.glob("lightning_logs/*/version_*")), "a refused run leaves no folder"


def test_a_failed_run_has_status_1_and_no_traceback(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = error_of(
        capsys, "fit", *FAST, "--model.optimizer", "SGD", "--model.optimizer.lr", "-1"
    )
    assert "model.optimizer: " in message and "Invalid learning rate" in message
    message = error_of(capsys, "fit", *FAST, "--model.optimizer.lr", "1e30", status=1)
    assert "north, south, west" in message


def test_a_place_that_may_not_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(run: str) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", f"{run}/findings.csv")

    monkeypatch.setattr("fedlit.cli.trained.find_run", refused)
    message = error_of(capsys, "explain", "--run", "mine")
    assert message.startswith(
        "mine/findings.csv: expected access to it, found: Permission denied; change"
    )


def test_a_refused_resume_changes_nothing(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = trained / RUN / "config.yaml"
    before = config.read_text()
    (best,) = (trained / RUN / "checkpoints").glob("best-*.ckpt")
    assert "weights only" in error_of(capsys, "fit", *FAST, "--ckpt_path", str(best))
    for key, value in (
        ("seed", "7"),
        ("model.client.network.hidden", "[32, 32]"),
        ("model.optimizer.lr", "1"),
    ):
        message = error_of(capsys, "fit", *FAST, "--ckpt_path", "last", f"--{key}", value)
        assert key.split(".")[-1] in message and config.read_text() == before
    # the very same command line, and more epochs
    assert main(["fit", *FAST, "--ckpt_path", "last"]) == 0
    assert "Nothing is left to train" in capsys.readouterr().out
    assert config.read_text() == before
    assert main(["fit", *FAST, "--ckpt_path", "last", "--trainer.max_epochs", "3"]) == 0
    assert config.with_name("config_0_until_step_8.yaml").read_text() == before
    assert "max_epochs: 3" in config.read_text()


def test_a_run_is_found_by_the_name_and_root_of_its_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        find_config("quickstart.yaml")
        .read_text()
        .replace("trainer:\n", "trainer:\n  default_root_dir: runs\n")
    )
    for folder in ("one", "two"):
        (here / folder).mkdir()
        (here / folder / "own.yaml").write_text(f"name: mine\n{text}")
    assert (
        main(
            [
                "fit",
                "--config",
                "one/own.yaml",
                *FAST[2:],
                "--seed",
                "5",
                "--data.source.later",
                "89",
            ]
        )
        == 0
    )
    assert main(["test", "--config", "one/own.yaml"]) == 0
    rows = pd.read_csv(here / "runs/mine/version_0/test.csv", index_col="client")["rows"]
    assert rows["west"] == 89  # the run's own rows, not the file's
    message = error_of(capsys, "test", "--config", "two/own.yaml")
    assert "one/own.yaml" in message and "--name, or --ckpt_path" in message


# Imports once for both; who starts tests in the background has them ignore interrupts, and children
# inherit that.
INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import fedlit.cli.runs, fedlit.run.load
from fedlit.__main__ import main

for number in range(2):
    child = os.fork()
    if not child:
        os.dup2(os.open(f"said_{number}", os.O_CREAT | os.O_WRONLY), 2)
        sys.exit(main())
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_interrupted_by_a_person_or_a_scheduler(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "fit", *FAST, "--trainer.max_epochs", "10000"]
    runs = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert runs.stdout is not None
    # among what the runs print
    numbers = (int(line) for line in runs.stdout if re.fullmatch(r"-?\d+\n", line))
    expected = ((signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 1, "terminated (SIGTERM)"))
    try:
        for number, (sign, status, text) in enumerate(expected):
            child = next(numbers)
            checkpoint = (
                tmp_path / f"lightning_logs/quickstart/version_{number}/checkpoints/last.ckpt"
            )
            for _ in range(600):
                if checkpoint.exists():
                    break
                time.sleep(0.1)
            os.kill(child, sign)
            found = next(numbers)
            err = (tmp_path / f"said_{number}").read_text(encoding="utf-8")
            assert found == status, err
            assert text in err and "--ckpt_path last" in err and "Traceback" not in err
        assert runs.wait(timeout=60) == 0
    finally:
        if runs.poll() is None:
            os.killpg(runs.pid, signal.SIGKILL)
        runs.communicate()


TERMINATED = """
import os, signal
from fedlit.cli.interrupted import heed, ignore_termination
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
heed()
if {erred}:
    ignore_termination()
os.kill(os.getpid(), signal.SIGTERM)
print("fedlit: error: its own", file=__import__("sys").stderr)
"""


@pytest.mark.parametrize(
    ("erred", "text"), [(False, "terminated (SIGTERM)"), (True, "error: its own")]
)
def test_a_rank_outside_training_says_why_it_ends(erred: bool, text: str) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    command = [sys.executable, "-c", TERMINATED.format(erred=erred)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **place}, check=False
    )
    assert len(ended.stderr.splitlines()) == 1 and text in ended.stderr


def test_a_client_whose_validation_rows_have_one_class(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that is monitored is defined then; the run goes on all the same."""
    rows = pd.DataFrame({"x": [n * 7 % 40 for n in range(40)], "y": ["no"] * 37 + ["yes"] * 3})
    rows.to_csv(here / "rare.csv", index=False)
    args = [
        "--data.source",
        "fedlit.Tables",
        "--data.source.files",
        "{rare: rare.csv}",
        "--data.source.target",
        "y",
    ]
    args += ["--data.source.split", "random"]
    assert main(["fit", *FAST, *args, "--exchange.federated", "[]"]) == 0
    assert "–" in capsys.readouterr().out


def test_fetch_without_network_tries_every_file_and_fails(cache: Path) -> None:
    # a proxy that refuses every connection: nothing leaves this machine
    proxies = {
        key: "http://127.0.0.1:9"
        for name in ("http_proxy", "https_proxy")
        for key in (name, name.upper())
    }
    known = {**os.environ, **proxies, "NO_PROXY": "", "no_proxy": ""}
    command = [sys.executable, "-m", "fedlit", "data", "fetch", "heart"]
    done = subprocess.run(command, capture_output=True, text=True, env=known, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    for file in Heart.known_files:
        assert (f"{file.url} could not be fetched" if file.url else f"{file.path} (") in done.stderr
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_list_and_fetch_say_where_a_file_was_found(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDLIT_DATA", str(tmp_path / "mine"))
    path = tmp_path / "mine" / "covertype" / "covtype.data.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    assert main(["data"]) == 0
    assert f"covertype/covtype.data.gz  {path}" in capsys.readouterr().out
    assert main(["data", "fetch", "covertype"]) == 0
    assert capsys.readouterr().out == f"covertype/covtype.data.gz: {path}\n"


def test_a_file_that_is_to_be_had_by_hand_says_where(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDLIT_DATA", str(cache))
    for source in (HumanActivity, VehicleSensors):
        (file,) = source.known_files
        for arguments in ([], ["show", source.name], ["fetch", source.name]):
            assert main(["data", *arguments]) == 0  # it was never to be fetched
            assert str(file.page) in "".join(capsys.readouterr())
