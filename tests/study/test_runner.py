"""The time that is left, from how long each method's runs took."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedlit.data.encoding import UNION_SITE
from fedlit.study.job import Job
from fedlit.study.progress import Progress
from fedlit.study.runner import default_jobs, locked


def job(method: str, seed: int) -> Job:
    return Job(method, seed, "", "", "", [], "auroc", "last", 0, False)


def test_slow_methods_count_for_more() -> None:
    jobs = [job(method, seed) for seed in range(3) for method in ("slow", "fast")]
    progress = Progress(jobs, jobs, {}, slots=2, quiet=True)
    assert progress.time_left() is None
    progress.done(jobs[0], 100.0, failed=False)
    assert progress.time_left() == pytest.approx((2 * 100 + 3 * 100) / 2)  # nothing is known of the fast one yet
    progress.done(jobs[1], 2.0, failed=False)
    assert progress.time_left() == pytest.approx((2 * 100 + 2 * 2) / 2)
    progress.done(jobs[2], 1.0, failed=True)  # how long a failure took says nothing
    assert progress.time_left() == pytest.approx((1 * 100 + 2 * 2) / 2)
    progress.close()


def test_what_was_done_before_is_known() -> None:
    jobs = [job("slow", seed) for seed in range(4)]
    assert Progress(jobs, jobs[3:], {"slow": [10.0, 20.0, 30.0]}, slots=1, quiet=True).time_left() == pytest.approx(20)


def test_a_folder_is_locked_and_let_go(tmp_path: Path) -> None:
    with locked(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    with locked(tmp_path / "new"):
        pass
    assert 1 <= default_jobs() <= 4


def test_a_pipe_hears_what_runs_the_scores_so_far_and_the_time_left(tmp_path: Path) -> None:
    jobs = [job("gl", seed) for seed in range(3)]
    jobs.append(
        replace(jobs[0], method="a_method_of_a_very_long_name", settings={"model.optimizer.init_args.lr": 0.01})
    )
    jobs = [replace(own, folder=str(tmp_path / str(number))) for number, own in enumerate(jobs)]
    for number, own in enumerate(jobs):
        rows = [("validation", "oak", "auroc", 0.9 + number / 100), ("validation", "elm", "auroc", 0.7)]
        rows += [
            ("validation", UNION_SITE, "auroc", 0.0),
            ("validation", "oak", "f1", 0.2),
            ("test", "oak", "auroc", 0.1),
        ]
        Path(own.folder).mkdir()
        frame = pd.DataFrame(rows, columns=["split", "client", "metric", "value"])
        frame.to_csv(Path(own.folder) / "scores.csv", index=False)
    heard = io.StringIO()
    progress = Progress(jobs, jobs[1:], {"gl": [60.0]}, slots=1, quiet=False, stream=heard)
    progress.begin(jobs[1])
    progress.show()
    progress.show()  # nothing is new
    progress.done(jobs[1], 60.0, failed=False)
    progress.done(jobs[2], 2.0, failed=True)
    progress.begin(jobs[3])
    progress.show()
    lines = heard.getvalue().splitlines()
    assert lines[1:4] == [
        "  1/4 runs, 3 min left (estimate); running: gl, seed 1",
        "gl, seed 1: AUROC 80.50 (mean of 2: 80.25) (60 s)",
        "gl, seed 2: FAILED, more at the end (2 s)",
    ]
    assert lines[4].startswith("  3/4 runs, 60 s left (estimate); running: a_method_of_a_very") and lines[4].endswith(
        "…"
    )
    assert len(lines) == 5 and max(map(len, lines)) < 80
