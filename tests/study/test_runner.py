"""Worker processes of a study: one that dies, a study that is killed, what is said meanwhile."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from psutil import Process

from fedlit.jobs.pool import Call, Pool
from fedlit.study.compare import compare

DIES = """\
import os
from pathlib import Path
from fedlit import FedProx

class Dies(FedProx):
    def __init__(self, *args, **kwargs):
        if Path("deadly").exists():
            Path("deadly").unlink()  # the first that sees it
            os.kill(os.getpid(), 9)
        super().__init__(*args, **kwargs)
"""
SMALL = {
    "data.source.init_args.clients": ["north", "west"],
    "trainer.max_epochs": 5,
    "exchange.federated": [],
}
STUDY = {
    "seeds": "1:2",
    "baselines": {"logistic_regression": {"C": [1.0]}},
    "bootstrap": 0,
    "methods": {
        "local": {"config": "quickstart.yaml", "set": SMALL},
        "dies": {
            "config": "quickstart.yaml",
            "alone": True,
            "set": {**SMALL, "model.client.class_path": "dies.Dies"},
        },
    },
}


COMMAND = [sys.executable, "-m", "fedlit", "compare", "tiny.yaml", "--workers", "1", "--out", "out"]


def test_a_dead_worker_takes_its_run_and_a_killed_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("dies.py").write_text(DIES, encoding="utf-8")
    Path("tiny.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False), encoding="utf-8")
    # never cut short, in this process
    whole = compare("tiny.yaml", out="whole", workers=1, quiet=True).folder
    Path("deadly").touch()
    first = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until = time.monotonic() + 500
    while not list(Path("out").glob("runs/dies/seed_2/version_0")) and time.monotonic() < until:
        time.sleep(0.02)
    workers = [Path("/proc", str(child.pid)) for child in Process(first.pid).children(True)]
    first.send_signal(signal.SIGKILL)
    told = first.communicate(timeout=60)[0].decode()
    until = time.monotonic() + 20
    while any(worker.exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(workers) > 1 and not any(
        worker.exists() for worker in workers
    )  # no orphan writes on
    assert "dies, seed 1: FAILED" in told and not Path("deadly").exists()
    done = {
        str(path.parent.relative_to("out/runs")) for path in Path("out").glob("runs/*/seed_*/DONE")
    }
    assert "dies/seed_1" not in done and {"local/seed_1", "local/seed_2"} <= done
    compare("tiny.yaml", out="out", workers=1, say=(said := list[str]()).append)
    assert f"{len(done)} of 6 runs are done already" in said
    resumed, expected = (pd.read_csv(out / "results.csv") for out in (Path("out"), whole))
    pd.testing.assert_frame_equal(resumed, expected)


WAITS = """\
import time
from pathlib import Path

def work(asked):
    assert all(Path(name).exists() for name in asked["after"]) and asked["name"] != "fails"
    time.sleep(0.2 * (asked["name"] == "slow"))
    Path(asked["name"]).touch()
"""


def test_a_call_waits_for_those_that_it_is_computed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("waits.py").write_text(WAITS, encoding="utf-8")

    def call(name: str, *after: str) -> Call:
        return Call(
            name, "waits:work", lambda: {"name": name, "after": after}, Path(f"{name}.log"), after
        )

    def broken() -> dict[str, str]:
        raise OSError("no process")

    with Pool(2) as pool:
        told = list(pool.run([call("slow"), call("quick", "slow"), call("other"), call("fails")]))
        again = list(pool.run([call("more")]))
        lost = list(
            pool.run(
                [Call(name, "waits:work", broken, tmp_path / "log") for name in ("first", "second")]
            )
        )
    assert {event.call.name: event.error for event in told if event.error is not None} == {
        "slow": "", "quick": "", "other": "", "fails": "AssertionError: "
    }  # fmt: skip
    assert sorted(str(event.error) for event in lost) == ["None"] * 2 + ["OSError: no process"] * 2
    assert (
        len(told) == 8
        and len(again) == 2
        and "AssertionError" in Path("fails.log").read_text(encoding="utf-8")
    )
