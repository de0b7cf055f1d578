"""The record of a job: whether it is finished, and with which other settings its folder was made."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlit.jobs.job import Job, Train
from fedlit.jobs.record import DONE, Output, execute, finished, outdated, read_record

MADE_OF = {"seed": 1, "trainer.max_epochs": 3, "exchange.federated": ("core",)}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that has been done: it wrote one file."""
    made = Job("gl", 1, str(tmp_path / "runs" / "gl" / "seed_1"), MADE_OF, Train("gl.yaml", {}))

    def work(job: Job, seconds: float | None) -> Output:
        path = Path(job.folder) / "below" / "result.csv"
        path.parent.mkdir(parents=True)
        path.write_text("a,b\n")
        return Output([path], {"whole": True})

    execute(made, work)
    return made


def test_a_finished_job_is_known_after_a_journey_as_json(job: Job) -> None:
    again = Job.of(json.loads(json.dumps(job.request())))
    record = finished(again)
    assert record is not None and record["whole"] and outdated(again) is None
    assert finished(replace(job, seed=2)) is not None  # only what it is made of counts


def test_other_settings_are_named(job: Job) -> None:
    other = replace(job, made_of={**MADE_OF, "trainer.max_epochs": 4, "exchange.rate": 0.5})
    assert finished(other) is None
    assert outdated(other) == ["trainer.max_epochs", "exchange.rate"]


def cut(folder: Path) -> None:
    (folder / "below" / "result.csv").write_text("a")


def lost(folder: Path) -> None:
    (folder / "below" / "result.csv").unlink()


def other_format(folder: Path) -> None:
    content = json.loads((folder / DONE).read_text())
    (folder / DONE).write_text(json.dumps(content | {"format": content["format"] - 1}))


def as_list(folder: Path) -> None:
    (folder / DONE).write_text("[1]")


def half(folder: Path) -> None:
    text = (folder / DONE).read_text()
    (folder / DONE).write_text(text[: len(text) // 2])


@pytest.mark.parametrize("damage", [cut, lost, other_format, as_list, half])
def test_a_damaged_result_is_not_finished(job: Job, damage: Callable[[Path], Any]) -> None:
    damage(Path(job.folder))
    assert read_record(Path(job.folder)) is None
    assert finished(job) is None and outdated(job) == []


def test_without_time_nothing_is_recorded(tmp_path: Path) -> None:
    job = Job("gl", 1, str(tmp_path / "seed_1"), MADE_OF, Train("gl.yaml", {}))
    execute(job, lambda job, seconds: None, 0.0)
    assert finished(job) is None and outdated(job) is None
