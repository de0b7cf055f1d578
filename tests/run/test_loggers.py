"""A run with a logger or a callback of Lightning can be resumed, scored and exported like any
other."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.data.sources import Hospitals
from fedlit.run.folders import find_run

FIT = [
    "--config",
    "quickstart",
    "--name",
    "logged",
    "--data.source.clients",
    "[north]",
    "--board.pictures",
    "0",
]
QUICK = ["--trainer.enable_progress_bar", "false"]
WANDB = ["WandbLogger", "--trainer.logger.offline", "true"]
MLFLOW = ["MLFlowLogger", "--trainer.logger.tracking_uri", "sqlite:///mlflow.db"]
RESUMED = ["--config", "quickstart", "--name", "logged"]


@pytest.fixture
def tomorrow(here: Path) -> Path:
    Hospitals().new_rows("north", 5).to_csv(here / "tomorrow.csv", index=False)
    return here / "tomorrow.csv"


def used(*more: str) -> None:
    """Resume, score, predict with and export the newest run, which a fit has trained for an
    epoch."""
    run = str(find_run("logged"))
    for command in (
        ["fit", *RESUMED, *more, "--ckpt_path", "last", "--trainer.max_epochs", "2"],
        ["test", *RESUMED],
        ["predict", *RESUMED],
        ["predict", "--run", run, "--client", "north", "--data", "tomorrow.csv"],
        ["export", "--run", run, "--client", "north", "--out", "exported"],
    ):
        assert main(command) == 0, command


@pytest.mark.filterwarnings("ignore")  # of their own packages
@pytest.mark.parametrize(
    ("package", "logger", "more"),
    [
        ("lightning", ["CSVLogger"], []),
        ("tensorboard", ["TensorBoardLogger"], []),
        ("wandb", WANDB, []),
        ("mlflow", MLFLOW, ["--trust", "lightning"]),
    ],
)
def test_a_run_with_a_logger_can_be_used(
    package: str,
    logger: list[str],
    more: list[str],
    tomorrow: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")
    monkeypatch.setenv("WANDB_MODE", "offline")
    flags = ["--trainer.logger", *logger, "--trainer.callbacks+", "LearningRateMonitor"]
    assert main(["fit", *FIT, *QUICK, *flags, "--trainer.max_epochs", "1"]) == 0
    used(*more)


def test_a_callback_of_ones_own_is_needed_for_training_alone(
    tomorrow: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("logged_own.py").write_text(
        "from lightning.pytorch import Callback\nclass Mine(Callback): ...\n"
    )
    own = ["--trainer.callbacks+", "logged_own.Mine"]
    assert main(["fit", *FIT, *QUICK, *own, "--trainer.max_epochs", "1"]) == 0
    assert main(["fit", *RESUMED, "--ckpt_path", "last"]) == 2
    told = capsys.readouterr().err
    assert "logged_own.Mine" in told and "--trust logged_own" in told
    used("--trust", "logged_own")
    sys.modules.pop("logged_own", None)


def test_a_copied_run_writes_nowhere_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its callbacks and loggers are Lightning's, and write below its own folder."""
    logger = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir"]
    for place in (str(here / "elsewhere"), "../elsewhere", "elsewhere"):
        assert main(["fit", *FIT, *QUICK, *logger, place, "--trainer.max_epochs", "1"]) == 0
        assert main(["fit", *RESUMED, "--ckpt_path", "last"]) == 2
        assert "--trust lightning" in capsys.readouterr().err
        assert (
            main(
                [
                    "fit",
                    *RESUMED,
                    *logger,
                    place,
                    "--ckpt_path",
                    "last",
                    "--trainer.max_epochs",
                    "2",
                ]
            )
            == 0
        )


@pytest.mark.parametrize(
    "logger",
    [
        ["CometLogger"],  # it is not installed
        ["CSVLogger", "--trainer.logger.save_dir", "/proc/none"],
        ["CSVLogger", "--trainer.logger.flush_logs_every_n_steps", "often"],
        ["CSVLogger", "--trainer.logger.folder", "logs"],
    ],
)
def test_a_logger_that_cannot_be_made_is_one_sentence(
    logger: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["fit", *FIT, *QUICK, "--trainer.logger", *logger, "--trainer.max_epochs", "1"]) == 2
    )
    told = capsys.readouterr().err.splitlines()[-1]
    assert "trainer.logger" in told and "expected" in told and "partial" not in told


@pytest.mark.parametrize(
    ("callback", "instead"),
    [
        (["StochasticWeightAveraging", "--trainer.callbacks.swa_lrs", "0.01"], "model.average"),
        (["WeightAveraging"], "model.average"),
        (["EMAWeightAveraging"], "model.average"),
        (
            ["GradientAccumulationScheduler", "--trainer.callbacks.scheduling", "{2: 2}"],
            "model.accumulate",
        ),
        (["LearningRateFinder"], "model.optimizer.lr"),
        (["BatchSizeFinder"], "data.batches"),
    ],
)
def test_a_callback_that_reaches_no_client_is_refused(
    callback: list[str], instead: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *FIT, *QUICK, "--trainer.callbacks+", *callback]) == 2
    assert callback[0] in (told := capsys.readouterr().err) and instead in told
    assert not Path("lightning_logs").exists()
