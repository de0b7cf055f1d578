"""The drills of ``benchmarks/drills.py`` that take a minute or a few; all of them before a
release. And that ``benchmarks/planted.py`` can still inject its faults."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DRILLS = BENCHMARKS / "drills.py"


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [("kills", "--kills", "9"), ("hostile",), ("invitation",), ("clock",)],
    ids=lambda words: words[0],
)
def test_nothing_fails(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, str(DRILLS), "--only", *words, "--folder", str(tmp_path)]
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=known, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "0 of " in done.stdout and "FAILED" not in done.stdout


def test_code_and_tests_of_injected_faults_are_there() -> None:
    assert runpy.run_path(str(BENCHMARKS / "planted.py"))["misplaced"]() == []
