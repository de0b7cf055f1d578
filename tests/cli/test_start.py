"""What commands import, each in a process that has imported nothing before."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from elsewhere import without

from fedlit.__main__ import main
from fedlit.data.sources.hospitals import TARGET

TABLES = ("north.csv", "south.csv", "west.csv")
BRIEF = ("--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false")
TRAINING = ("lightning", "torchmetrics", "torch._dynamo", "tensorboard")
"""What only a training needs."""
USED = {
    "pandas": {"pandas", "pyarrow", "dateutil"},
    "jsonargparse": {"jsonargparse", "typeshed_client", "attr", "attrs", "docstring_parser"},
    "the TensorBoard logger": {"tensorboard", "google", "absl"},
    "the logistic regression that scores are compared with": {
        "sklearn", "joblib", "threadpoolctl", "cloudpickle", "narwhals", "psutil",
    },
    "the cache folder, and the lock of the run's folder": {"pooch", "platformdirs", "filelock"},
    "public names": {"lazy_loader"},
}  # fmt: skip
"""What a fit imports beyond Lightning: what for → packages."""
BEYOND = """
import contextlib, io, json, sys
import lightning.pytorch
packages = lambda: {name.partition(".")[0] for name in sys.modules}
before = packages()
from fedlit.__main__ import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(json.load(sys.stdin)) == 0
json.dump(sorted(packages() - before - sys.stdlib_module_names), sys.stdout)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, the configuration ``mine.yaml``, and a run of it."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (
            ["init", "--example"],
            ["init", *TABLES, "--target", TARGET, "--out", "mine.yaml"],
            ["fit", "--config", "mine.yaml", *BRIEF],
        ):
            assert main(words) == 0
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("init", *TABLES, "--target", TARGET, "--out", "other.yaml"),
        ("check", "--config", "mine.yaml"),
        ("methods",),
        ("methods", "show", "fedprox"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_that_builds_no_client_imports_no_lightning(
    words: Sequence[str], trained: Path
) -> None:
    ((status, _, messages),) = without(TRAINING, [words], trained)
    assert status == 0, messages


def test_a_fit_imports_no_package_without_a_reason(trained: Path) -> None:
    words = ["fit", "--config", "mine.yaml", "--name", "other", *BRIEF]
    done = subprocess.run(
        [sys.executable, "-c", BEYOND],
        cwd=trained,
        input=json.dumps(words),
        capture_output=True,
        text=True,
        check=True,
    )
    packages = {*json.loads(done.stdout)} - {"fedlit"}
    compiled = {name for name in packages if name.startswith("_")}
    assert packages - compiled <= set().union(*USED.values())
