"""Does the suite catch a fault? Plants one after another into a copy of this checkout and runs the
tests of its room.

    python benchmarks/planted.py [NAME ...]

Prints a table; the exit status is 0 only if the tests pass without a fault and each fault makes a
test fail. A fault whose text is no longer in its file ends the script: choose another place for it.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "shared", "site", "lightning_logs", "studies"
)


FAULTS: dict[str, tuple[str, str, str, str]] = {
    "the sign of a mask": (
        "privacy/masking.py",
        "term + mask if self.name < peer else term - mask",
        "term + mask",
        "privacy/test_masking.py",
    ),
    "weights by rows": (
        "exchange/rules/mean.py",
        'float(update.rows) if self.weights == "rows" else 1.0',
        "1.0",
        "exchange/test_exchange.py",
    ),
    "resumed without the optimizer's state": (
        "train/loop.py",
        'step = content["global_step"]',
        'step, _ = content["global_step"], [o["state"].clear() for o in '
        'content["optimizer_states"]]',
        "tasks/test_four_tasks.py::test_clients_of_four_tasks_share_a_core_resume_and_predict",
    ),
    "a missing number": (
        "data/moments.py",
        "np.where(np.isnan(columns), 0.0, ",
        "np.where(np.isnan(columns), 1.0, ",
        "data/test_encoder.py",
    ),
    "the sign of a lift": (
        "study/lift.py",
        "score.gain(first[seeds], second[seeds])",
        "score.gain(second[seeds], first[seeds])",
        "study/test_lower.py",
    ),
    "the next fold": (
        "data/folds.py",
        "groups) == fold",
        "groups) == (fold + 1) % folds",
        "data/test_splitting.py",
    ),
    "predictions of other rows": (
        "run/predict.py",
        ".frame(rows.row, rows.x.numpy())",
        ".frame(rows.row, rows.x.flip(0).numpy())",
        "run/test_export.py::test_a_scorer_predicts_what_the_run_predicts_and_scores",
    ),
    "a journal that is behind": (
        "institutions/journal.py",
        "self.memory = dict(memory)",
        "self.memory = dict(self.memory)",
        "institutions/test_journal.py",
    ),
    "a guard that never fires": (
        "exchange/screening.py",
        "if guard is None or not judged:",
        "if True:",
        "exchange/test_guard.py",
    ),
    "AUROC of a class without rows": (
        "tasks/class_scores.py",
        "ranked = averaged & (support",
        "ranked = (support",
        "tasks/test_metrics.py",
    ),
    "a lost level": (
        "data/schema/column.py",
        "for rank, level in enumerate(self.order)}",
        "for rank, level in enumerate(self.order) if rank}",
        "data/schema",
    ),
    "an interval too narrow": (
        "statistics.py",
        "stdtrit(degrees, (1 + LEVEL) / 2)",
        "stdtrit(degrees, LEVEL)",
        "test_statistics.py",
    ),
}
"""Name → a file of fedlit/, text that stands in it once, what is planted there, and the tests that
should fail."""


def misplaced() -> list[str]:
    """Return a line for each fault whose text does not stand once in its file, or whose tests are
    not there.
    """
    problems = []
    for name, (file, old, _, tests) in FAULTS.items():
        if (ROOT / "fedlit" / file).read_text(encoding="utf-8").count(old) != 1:
            problems.append(
                f"{name}: expected {old!r} once in {file}; choose another place for the fault"
            )
        path, _, function = tests.partition("::")
        test = ROOT / "tests" / path
        if not test.exists() or (function and f"def {function}(" not in test.read_text("utf-8")):
            problems.append(f"{name}: expected tests/{tests}; name the test that finds the fault")
    return problems


def run(copy: Path, tests: set[str]) -> int:
    """Exit status of pytest on a copy, in a process that has imported all libraries already."""
    process = multiprocessing.get_context("forkserver").Process(target=_tested, args=(copy, tests))
    process.start()
    process.join()
    return process.exitcode or 0


def _tested(copy: Path, tests: set[str]) -> None:
    import pytest

    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)  # of the commands that tests start
    sys.path.insert(0, str(copy))
    with (
        (copy / "out.txt").open("w", encoding="utf-8") as out,
        redirect_stdout(out),
        redirect_stderr(out),
    ):
        code = pytest.main(["-x", "-q", *(f"tests/{path}" for path in tests)])
    sys.exit(int(code))


def main(names: list[str]) -> int:
    """Plant, test and print."""
    chosen = {name: FAULTS[name] for name in names or FAULTS}
    problems = [problem for problem in misplaced() if problem.partition(":")[0] in chosen]
    if problems:
        sys.exit("\n".join(problems))
    failed = False
    os.environ["OMP_NUM_THREADS"] = "1"
    libraries = ["torch", "lightning.pytorch", "torchmetrics", "pandas", "sklearn", "scipy.stats"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(libraries)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder) / "copy", ignore=LEFT_OUT))
        if run(copy, {tests for *_, tests in chosen.values()}):
            sys.exit(
                f"without a fault the tests fail:\n{(copy / 'out.txt').read_text(encoding='utf-8')}"
            )
        print("| fault | caught | seconds |\n| --- | --- | --- |")
        for name, (file, old, new, tests) in chosen.items():
            path = copy / "fedlit" / file
            began = time.monotonic()
            sound = path.read_text(encoding="utf-8")
            path.write_text(sound.replace(old, new), encoding="utf-8")
            code = run(copy, {tests})
            path.write_text(sound, encoding="utf-8")
            failed |= code != 1  # 0: all passed; another: no test ran to its end
            print(
                f"| {name} | {'yes' if code == 1 else 'NO'} | {time.monotonic() - began:.0f} |",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
