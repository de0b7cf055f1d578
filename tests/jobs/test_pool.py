"""Worker processes: what a forked one computes, and which calls run at the same time."""

import io
import json
import os
import pty
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fedlit.jobs.bar import JobsBar
from fedlit.jobs.job import FitAlone, Job
from fedlit.jobs.pool import Call, Pool
from fedlit.jobs.processes import WorkerProcess, Workshop

DRAWS = """\
import json
import os
from pathlib import Path

import torch

from fedlit.run.load import load

def work(asked):
    drawn = torch.rand(3).tolist()
    run = load("quickstart", "--trainer.max_epochs=1", f"--trainer.default_root_dir={asked['root']}")
    run.fit(quiet=True)
    weights = {
        f"{client} {name}": tensor.double().sum().item().hex()
        for client, module in run.loop.federation.clients.items()
        for name, tensor in module.state_dict().items()
    }
    computed = [drawn, weights, torch.get_num_threads(), os.environ.get("OPENBLAS_NUM_THREADS")]
    Path(asked["out"]).write_text(json.dumps(computed))
    Path(asked["out"] + ".parent").write_text(str(os.getppid()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_a_forked_process_computes_the_bits_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("draws.py").write_text(DRAWS, encoding="utf-8")
    forking = Workshop(2, ["fedlit.run.load"])
    starting = Workshop(2)
    starting.forks = False
    for name, workshop in (("first", forking), ("second", forking), ("new", starting)):
        worker = WorkerProcess(workshop)
        asked = {"root": str(tmp_path / "runs" / name), "out": name}
        log = tmp_path / f"{name}.log"
        assert worker.call("draws:work", asked, log) == "", log.read_text(encoding="utf-8")
        worker.stop()
    forking.stop()
    first, second, new = (
        json.loads(Path(name).read_text(encoding="utf-8")) for name in ("first", "second", "new")
    )
    assert first[1:] == second[1:] == new[1:] and len(new[1]) > 10 and new[2] == 2
    assert len({tuple(drawn) for drawn, *_ in (first, second, new)}) == 3  # nobody seeded these
    parents = [Path(f"{name}.parent").read_text() for name in ("first", "second", "new")]
    assert parents[0] == parents[1] != parents[2]


STEPS = """\
import time
from pathlib import Path

def work(asked):
    if asked["until"]:
        end = time.monotonic() + 60
        while not Path(asked["until"]).exists():
            assert time.monotonic() < end
            time.sleep(0.01)
    Path(asked["name"]).touch()
"""


def test_a_waiting_call_holds_up_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two workers ends only when the last call has: the one that waits must not take
    the second worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("steps.py").write_text(STEPS, encoding="utf-8")

    def call(name: str, until: str = "", after: tuple[str, ...] = ()) -> Call:
        request = {"name": name, "until": until}
        return Call(name, "steps:work", lambda: request, Path(f"{name}.log"), after)

    with Pool(2) as pool:
        calls = [call("slow", until="other"), call("waits", after=("slow",)), call("other")]
        events = list(pool.run(calls))
    errors = {event.call.name: event.error for event in events if event.error is not None}
    assert errors == {"slow": "", "waits": "", "other": ""}


def _reported(monkeypatch: pytest.MonkeyPatch, stream: io.TextIOBase) -> list[str]:
    """What is printed by ``say`` while a divided job and another one end."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    divided = Job("trees", 1, "a", {}, FitAlone("c", {}, {}, clients=["north", "west"]))
    alone = Job("linear", 1, "b", {}, FitAlone("c", {}, {}, clients=["north"]))
    lines = list[str]()
    with JobsBar(lines.append) as bar:
        bar.begin([divided, alone], [divided, alone])
        bar.began(divided)
        bar.best = "\x1b[31mbest so far AUROC 81.23"
        bar.prepared(divided)
        bar.prepared(divided)
        bar.ended(divided, False, 3.0)
        bar.began(alone)
        bar.ended(alone, False, 1.0)
    return lines


def test_a_pipe_gets_lines_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    lines = _reported(monkeypatch, stream)
    assert stream.getvalue() == ""
    assert re.fullmatch(r"\[1/2, \d\d:\d\d left\] trees, seed 1: 3 s", lines[0])
    assert lines[1:] == ["[2/2] linear, seed 1: 1 s"]


def _everything(controller: int) -> bytes:
    """Return what is written to a terminal until it is closed, which Linux reports as an error."""
    parts = []
    with suppress(OSError):
        while part := os.read(controller, 1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_a_terminal_gets_one_bar_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, end = pty.openpty()
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(_everything, controller)
        with os.fdopen(end, "w", encoding="utf-8") as stream:
            assert _reported(monkeypatch, stream) == []
        written = reading.result().decode()
    os.close(controller)
    assert "?[31m" in written  # what comes from elsewhere colours nothing
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    frames = [line for line in re.split(r"[\r\n]+", plain) if "/2" in line]
    assert frames and all(len(line) <= 60 for line in frames)
    assert "best so far" in frames[-1] and "2/2" in frames[-1] and frames[-1].endswith("0:00:00")
