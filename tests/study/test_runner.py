"""The time that is left, from how long each method's runs took."""

from __future__ import annotations

from pathlib import Path

import pytest

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
