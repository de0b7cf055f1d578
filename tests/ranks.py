"""Federations over the ranks of a job: what a rank does, and how a test starts several."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from contracts import ALL, APART
from federations import Killed, StopAfter, make_run, weights
from sites import history

from fedlit.exchange.ranks import join

TESTS = Path(__file__).parent


def options(name: str, **more: Any) -> dict[str, Any]:
    """What :func:`federations.make_run` is given."""
    own = {**ALL, **APART}[name]
    return {**own, "loop": {**own.get("loop", {}), "engine": "plain"}, "epochs": 3, **more}


def end_of(run: Any, plan: str, last: int = 0) -> dict[str, Any]:
    """All that must be the same, however many ranks there are: in it nothing but what a checkpoint can hold."""
    results = run.loop.results["validation"]
    return {
        "weights": weights(run),
        "scores": {name: repr(own) for name, own in results.scores.items()},
        "summary": repr(results.summary),
        "history": history(run)[-last:],
        "counts": [run.exchange.rounds, run.exchange.bytes, run.exchange.found],
        "plan": plan,
        "rows": dict(results.rows),
    }


def train(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    """A federation trained in ``folder``; several ranks each have the end of their clients."""
    run = make_run(folder, **options(name, **more))
    plan = json.dumps(run.describe().to_dict())
    run.fit(quiet=True)
    return end_of(run, plan)


def stop(folder: Path, name: str, step: int) -> None:
    """Killed behind a step, with a checkpoint."""
    run = make_run(folder, **options(name, callbacks=[StopAfter(step, folder / "middle.ckpt", Killed)]))
    with contextlib.suppress(Killed):
        run.fit(quiet=True)


def resume(folder: Path, name: str, checkpoint: Path) -> dict[str, Any]:
    """Goes on with what :func:`stop` left."""
    run = make_run(folder, **options(name))
    plan = json.dumps(run.describe().to_dict())
    run.fit(checkpoint, quiet=True)
    return end_of(run, plan, 2)


def on_ranks(
    number: int, *words: str | Path, module: str = "", script: str = "ranks.py", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start this module, or another one, on so many ranks."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    known = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    known["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS.parent), *filter(None, [known.get("PYTHONPATH")])])
    what = ["-m", module] if module else [str(TESTS / script)]
    return subprocess.run(
        [*start, *what, *map(str, words)], env=known, capture_output=True, text=True, timeout=550, check=False
    )


def main() -> None:
    """``ranks.py FOLDER JOB…``, where a job is ``train=NAME``, ``stop=NAME=STEP`` or ``resume=NAME=CHECKPOINT``."""
    torch.set_num_threads(1)
    ranks = join()
    assert ranks is not None
    folder, ends = Path(sys.argv[1]), dict[str, Any]()
    for number, job in enumerate(sys.argv[2:]):
        what, name, *rest = job.split("=")
        own = folder / f"{ranks.size}-ranks-{number}"
        if ranks.rank == 0:
            own.mkdir(parents=True)
        ranks.gather("folders", None)
        if what == "stop":
            stop(own, name, int(rest[0]))
        else:
            ends[job] = train(own, name) if what == "train" else resume(own, name, Path(rest[0]))
    torch.save(ends, folder / f"{ranks.size}-{ranks.rank}.pt")


if __name__ == "__main__":
    main()
