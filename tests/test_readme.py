"""The README's commands and examples run as they stand there, in its order, in an empty folder.

A block behind ``<!-- not run: reason -->`` is shown only. A block that begins with ``# file: NAME`` is written to
that file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a user brings: two tables of their own, which share neither columns nor classes."""
    folder = tmp_path_factory.mktemp("readme")
    rng = np.random.default_rng(0)
    for name, columns in (("north", ["age", "bmi", "smoker"]), ("south", ["age", "creatinine"])):
        frame = pd.DataFrame(rng.normal(size=(80, len(columns))), columns=columns)
        frame["outcome"] = np.where(frame["age"] + rng.normal(size=80) > 0, "ill", "well")
        if "smoker" in frame:
            frame["smoker"] = np.where(frame["smoker"] > 0, "yes", None)
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_the_readme_has_what_it_promises() -> None:
    files = [re.match(r"# file: (\S+)\n", block["text"]) for block in BLOCKS]
    assert [match.group(1) for match in files if match] == ["mine.yaml", "mine_study.yaml", "mymethod.py"]
    method = next(block["text"] for block in BLOCKS if block["text"].startswith("# file: mymethod.py"))
    assert len(method.splitlines()) <= 40
    assert sum(block["reason"] is None for block in BLOCKS) >= 6


def test_every_block_runs(folder: Path) -> None:
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    for block in BLOCKS:
        file = re.match(r"# file: (\S+)\n", block["text"])
        if block["reason"]:
            continue
        if file:
            (folder / file.group(1)).write_text(block["text"], encoding="utf-8")
            continue
        if block["language"] == "python":
            command: list[str] = [sys.executable, "-W", "default", "-c", block["text"]]
        else:
            assert block["language"] == "bash"
            # `make fit` is for a checkout: there it would install; here its last line is run
            text = block["text"].replace("make fit", "fedlit fit --config quickstart.yaml --trainer.max_epochs 2")
            command = ["bash", "-euc", text]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{block['text']}\n{done.stderr}"
    runs = folder / "lightning_logs"
    assert {path.name for path in runs.iterdir()} == {"quickstart", "mine", "studies", "proximal"}
    assert (runs / "mine" / "version_0" / "test.csv").is_file()
    lift = pd.read_csv(runs / "studies" / "mine_study" / "lift.csv")
    assert set(lift["method"]) == {"shared", "often", "best_federated"}
    config = (runs / "proximal" / "version_0" / "config.yaml").read_text(encoding="utf-8")
    assert "class_path: mymethod.Proximal" in config and "mu: 0.1" in config


def test_make_fit_and_make_test_are_the_makefiles_targets() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for target in ("fit", "test"):
        done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True)
        assert ("fedlit fit --config quickstart.yaml" if target == "fit" else "pytest") in done.stdout


def test_the_readme_links_to_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)]+)\)", text):
        assert (ROOT / target).exists(), target
