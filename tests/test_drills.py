"""The drills of ``benchmarks/drills.py`` that take a minute or a few; all of them before a release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def drills(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "drills.py"), *map(str, words)]
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.full
@pytest.mark.parametrize("words", [("kills", "--kills", "9"), ("hostile",), ("clock",)], ids=lambda words: words[0])
def test_nothing_fails(words: tuple[str, ...], tmp_path: Path) -> None:
    done = drills("--only", *words, "--folder", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "0 of " in done.stdout and "FAILED" not in done.stdout


def test_a_drill_that_is_not_there_is_named() -> None:
    done = drills("--only", "kill")
    assert done.returncode == 2 and "invalid choice: 'kill'" in done.stderr
