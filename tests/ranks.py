"""Federations over the ranks of a job: what a rank does, and how a test starts several."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from contracts import options_of
from federations import Killed, StopAfter, make_run, trained, weights
from lightning.pytorch import Callback
from sites import history

from fedlit.exchange.ranks import join
from fedlit.train.callbacks import Checkpoints

TESTS = Path(__file__).parent


def end_of(run: Any, plan: str, last: int = 0) -> dict[str, Any]:
    """All that must be the same, however many ranks there are: in it nothing but what a checkpoint
    can hold."""
    results = run.loop.results["validation"]
    return {
        "weights": weights(run),
        "scores": {name: repr(own) for name, own in results.scores.items()},
        "summary": repr(results.summary),
        "history": history(run)[-last:],
        "counts": [run.exchange.rounds, run.exchange.bytes, run.exchange.incident_counts],
        "plan": plan,
        "rows": dict(results.rows),
    }


def train(folder: Path, name: str, ckpt: Path | None = None, **more: Any) -> dict[str, Any]:
    """A federation trained in ``folder``, or further from a checkpoint; several ranks each have the
    end of theirs."""
    run = make_run(folder, **{**options_of(name, "plain"), "epochs": 3, **more})
    plan = json.dumps(run.describe().to_dict())
    run.fit(ckpt, quiet=True)
    return end_of(run, plan, 2 if ckpt else 0)


def stop(folder: Path, name: str, step: int) -> None:
    """Killed behind a step, with a checkpoint."""
    with contextlib.suppress(Killed):
        train(folder, name, callbacks=[StopAfter(step, folder / "middle.ckpt", Killed)])


class Remembers(Callback):
    """Knows its trainer, as many do."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.trainer = trainer


class InTheWay(Callback):
    """Puts a folder where the second epoch's best checkpoint is to be."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if os.environ["RANK"] == "0":
            taken = Path(trainer.default_root_dir, "checkpoints", "best-0001.ckpt", "full")
            taken.mkdir(parents=True, exist_ok=True)


def copies(folder: Path) -> None:
    """A copy of a run, then ranks that ask for different things."""
    run = trained(folder, loop={"engine": "plain"}, callbacks=[Remembers()], epochs=1)
    again = run.with_fold(0, "again")
    assert again.exchange.transport is run.exchange.transport
    again.fit(quiet=True)
    print("fitted again", flush=True)
    run.group.gather("apples" if run.group.rank else "pears", [1])


def unwritten(folder: Path) -> None:
    """A checkpoint that cannot be written."""
    two = Checkpoints(best=2, seconds=0)  # each epoch's is among the best two
    trained(folder, loop={"engine": "plain"}, callbacks=[InTheWay()], epochs=2, checkpoints=two)


def on_ranks(
    number: int, *words: str | Path, module: str = "ranks", **known: str
) -> subprocess.CompletedProcess[str]:
    """Start this module, or another one, on so many ranks, each of which knows more of its
    environment."""
    start = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(number),
    ]
    known = {**os.environ, "OMP_NUM_THREADS": "1", **known}
    known["PYTHONPATH"] = os.pathsep.join(
        [str(TESTS), str(TESTS.parent), *filter(None, [known.get("PYTHONPATH")])]
    )
    return subprocess.run(
        [*start, "-m", module, *map(str, words)],
        env=known,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )


def main() -> None:
    """``FOLDER JOB…``, where a job is ``train=NAME``, ``stop=NAME=STEP`` or
    ``resume=NAME=CHECKPOINT``; or ``FOLDER copies`` or ``FOLDER unwritten``.
    """
    torch.set_num_threads(1)
    if alone := {"copies": copies, "unwritten": unwritten}.get(sys.argv[2]):
        alone(Path(sys.argv[1]))
        return
    ranks = join()
    assert ranks is not None
    folder = Path(sys.argv[1])
    ends = dict[str, Any]()
    for number, job in enumerate(sys.argv[2:]):
        what, name, *rest = job.split("=")
        own = folder / f"{ranks.size}-ranks-{number}"
        if ranks.rank == 0:
            own.mkdir(parents=True)
        ranks.gather("folders", None)
        if what == "stop":
            stop(own, name, int(rest[0]))
        else:
            ends[job] = train(own, name, *map(Path, rest))
    torch.save(ends, folder / f"{ranks.size}-{ranks.rank}.pt")


if __name__ == "__main__":
    main()
