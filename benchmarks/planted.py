"""Does the suite catch a fault? Plants one after another into a copy of this checkout and runs the tests of its room.

    python benchmarks/planted.py [NAME ...]

Prints a table; the exit status is 0 only if the tests pass without a fault and each fault makes a test fail. A fault
whose text is no longer in its file ends the script: choose another place for it.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "shared", "site", "lightning_logs", "studies")


@dataclass(frozen=True)
class Fault:
    """Text of a file, what stands there instead, and the tests that should fail."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = {
    "the sign of a mask": Fault(
        "fedlit/privacy/masking.py",
        "words + mask if self.name < peer else words - mask",
        "words + mask",
        ("tests/privacy/test_masking.py",),
    ),
    "weights by rows": Fault(
        "fedlit/exchange/rules/mean.py",
        'float(update.rows) if self.weights == "rows" else 1.0',
        "1.0",
        ("tests/exchange/rules/test_mean.py",),
    ),
    "resumed without the optimizer's state": Fault(
        "fedlit/train/loop.py",
        '        self.federation.step = checkpoint["global_step"]\n',
        '        self.federation.step = checkpoint["global_step"]\n'
        '        for own in checkpoint.get("optimizer_states", []):\n'
        '            own["state"] = {}\n',
        ("tests/tasks/test_four_tasks.py::test_clients_of_four_tasks_share_a_core_resume_and_predict",),
    ),
    "a missing number": Fault(
        "fedlit/data/columns.py",
        "np.where(np.isnan(values), 0.0, self.moments",
        "np.where(np.isnan(values), 1.0, self.moments",
        ("tests/data/test_encoder.py", "tests/data/test_columns.py"),
    ),
    "the sign of a lift": Fault(
        "fedlit/study/lift.py",
        "score.gain(first[seeds], second[seeds])",
        "score.gain(second[seeds], first[seeds])",
        ("tests/study/test_lower.py",),
    ),
    "the next fold": Fault(
        "fedlit/data/folds.py",
        "table.name, groups) == fold",
        "table.name, groups) == (fold + 1) % folds",
        ("tests/data/test_folds.py",),
    ),
    "predictions of another client": Fault(
        "fedlit/run/predictions.py",
        "zip(sites, per_site, strict=True)",
        "zip(sites, per_site[::-1], strict=True)",
        ("tests/tasks/test_four_tasks.py::test_clients_of_four_tasks_share_a_core_resume_and_predict",),
    ),
    "a journal that is behind": Fault(
        "fedlit/institutions/journal.py",
        "max(number + 1, 0), dict(memory)",
        "max(number + 1, 0), self.memory",
        ("tests/institutions/test_journal.py",),
    ),
    "a guard that never fires": Fault(
        "fedlit/exchange/guard.py",
        "found = None if guard is None else guard.judge(updates, sharing, finite)",
        "found = None",
        ("tests/exchange/test_guard.py",),
    ),
    "AUROC of a class without rows": Fault(
        "fedlit/tasks/classification.py",
        "if 0 < support[c] < rows]",
        "if support[c] < rows]",
        ("tests/tasks/test_metrics.py",),
    ),
    "a lost level": Fault(
        "fedlit/data/schema/column.py",
        "for place, text in enumerate(self.order)}",
        "for place, text in enumerate(self.order) if place}",
        ("tests/data/schema",),
    ),
    "an interval too narrow": Fault(
        "fedlit/statistics.py",
        "stdtrit(degrees, (1 + level) / 2)",
        "stdtrit(degrees, level)",
        ("tests/test_statistics.py",),
    ),
}


def run(copy: Path, tests: tuple[str, ...]) -> int:
    """Exit status of pytest on a copy, in a process that has imported all libraries already."""
    process = multiprocessing.get_context("forkserver").Process(target=_tested, args=(copy, tests))
    process.start()
    process.join()
    return process.exitcode or 0


def _tested(copy: Path, tests: tuple[str, ...]) -> None:
    import pytest

    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)  # of the commands that tests start
    sys.path.insert(0, str(copy))
    with (copy / "out.txt").open("w", encoding="utf-8") as out, redirect_stdout(out), redirect_stderr(out):
        code = pytest.main(["-x", "-q", *tests])
    sys.exit(int(code))


def main(names: list[str]) -> int:
    """Plant, test and print."""
    chosen = {name: FAULTS[name] for name in names or FAULTS}
    sources = {name: (ROOT / fault.file).read_text(encoding="utf-8") for name, fault in chosen.items()}
    for name, fault in chosen.items():
        if sources[name].count(fault.old) != 1:
            sys.exit(f"{name}: expected {fault.old!r} once in {fault.file}; choose another place for the fault")
    failed = False
    os.environ["OMP_NUM_THREADS"] = "1"
    libraries = ["torch", "lightning.pytorch", "torchmetrics", "pandas", "sklearn", "scipy.stats"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(libraries)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder) / "copy", ignore=LEFT_OUT))
        every = tuple(dict.fromkeys(path for fault in chosen.values() for path in fault.tests))
        if run(copy, every):
            sys.exit(f"without a fault the tests fail:\n{(copy / 'out.txt').read_text(encoding='utf-8')}")
        print("| fault | caught | seconds |\n| --- | --- | --- |")
        for name, fault in chosen.items():
            path, began = copy / fault.file, time.monotonic()
            path.write_text(sources[name].replace(fault.old, fault.new), encoding="utf-8")
            code = run(copy, fault.tests)
            path.write_text(sources[name], encoding="utf-8")
            failed |= code != 1  # 0: all passed; another: no test ran to its end
            print(f"| {name} | {'yes' if code == 1 else 'NO'} | {time.monotonic() - began:.0f} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
