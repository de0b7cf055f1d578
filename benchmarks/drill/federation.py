"""Small federations of the contract tests, in one process, over ranks, and as sites with a
coordinator: begun, gone on with, and compared bit by bit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "institutions")]

ENGINES = ("plain", "threads", "stacked")
EPOCHS = 4


@dataclass(frozen=True)
class Job:
    """A federation that processes train together.

    Attributes:
        transport: how its clients meet; ``early`` for one process that stops before its last epoch.
        method: one of the contract tests'; empty for sites.
        engine: in one process.
    """

    transport: str
    method: str = ""
    engine: str = "plain"

    @property
    def name(self) -> str:
        """As a row has it."""
        return f"{self.transport}: {self.method or 'global layers'}" + f", {self.engine}" * (
            self.transport == "one"
        )

    def works(self, folder: Path) -> list[tuple[Callable[[], None], dict[str, str]]]:
        """What each of its processes does, and in which environment; again, to go on."""
        from drill.forks import free_port

        if self.transport == "sites":
            return [(lambda: _sites(folder), {})]
        if self.transport in ("one", "early"):
            return [(lambda: _train(self, folder, 0), {})]
        meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [{**meet, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        return [
            ((lambda rank=rank: _train(self, folder, rank)), own) for rank, own in enumerate(ranks)
        ]

    def alone(self, folder: Path) -> list[tuple[Callable[[], None], dict[str, str]]]:
        """What the same federation does in one process, to compare with."""
        if self.transport == "sites":
            return [(lambda: _one_of_sites(folder), {})]
        return [(lambda: _train(self, folder, 0), {})]


def jobs() -> dict[str, list[Job]]:
    """Transport → federations: all methods under each engine, all that stop early in one process,
    over ranks, sites.
    """
    from contracts import ALL

    asks_all = {"centralized"}  # one client: nothing to deal to ranks
    return {
        "one": [Job("one", method, engine) for method in ALL for engine in ENGINES],
        "early": [Job("early", method) for method in ALL],
        "ranks": [Job("ranks", method) for method in ALL if method not in asks_all],
        "sites": [Job("sites")],
    }


def options_of(job: Job) -> dict[str, Any]:
    """What :func:`federations.make_run` is given."""
    import contracts
    from federations import EARLY

    from fedlit.train.callbacks import Checkpoints

    own = contracts.options_of(job.method, job.engine)
    if job.transport == "early":
        own = own | {"loop": {**own["loop"], "stop": EARLY}}
    return {**own, "epochs": EPOCHS, "checkpoints": Checkpoints(best=0, seconds=0)}


def _train(job: Job, folder: Path, rank: int) -> None:
    """Begin, or go on where the last checkpoint was written; what came of it lies beside."""
    import torch
    from federations import make_run, weights

    from fedlit.errors import ConfigError
    from fedlit.run.folders import newest_run

    run = make_run(folder, **options_of(job))
    try:
        begun = newest_run(folder, run.name)
    except ConfigError:  # killed before its first checkpoint: begun anew
        begun = None
    run.fit("last" if begun is not None else None, quiet=True)
    results = run.loop.results["validation"]
    end = {
        "weights": weights(run),
        "scores": {name: repr(own) for name, own in results.scores.items()},
        "counts": [run.exchange.rounds, run.exchange.bytes, run.exchange.not_finite],
    }
    torch.save(end, folder / f"end-{rank}.pt")


def _one_of_sites(folder: Path) -> None:
    import test_sites
    import torch

    run = test_sites.one_process(folder)
    found = {f"{name}.{key}": own for name, client in run.loop.federation.items()
             for key, own in client.state_dict().items()}  # fmt: skip
    torch.save({"weights": found}, folder / "end-0.pt")


def _sites(folder: Path) -> None:
    import test_sites
    import torch
    from sites import federate

    _, sites, errors = federate(folder, test_sites.written(folder), test_sites.SOURCES)
    if errors:
        raise next(iter(errors.values()))
    found = {f"{name}.{key}": own for name, site in sites.items()
             for key, own in site.run.loop.federation[name].state_dict().items()}  # fmt: skip
    torch.save({"weights": found}, folder / "end-0.pt")


def end_of(folder: Path) -> dict[str, Any]:
    """What all processes ended with."""
    import torch

    whole: dict[str, Any] = {"weights": {}, "scores": {}, "counts": None}
    for path in sorted(folder.glob("end-*.pt")):
        own = torch.load(path, weights_only=True)
        whole["weights"].update(own["weights"])
        whole["scores"].update(own.get("scores", {}))
        whole["counts"] = own.get("counts")
    return whole


def differing(first: dict[str, Any], second: dict[str, Any], *, stacked: bool = False) -> str:
    """What is not the same, bit by bit; empty where all is.

    Args:
        first: what one ended with.
        second: the other.
        stacked: whether clients were scored as one. Where nothing is left to train, each is scored
            by itself, and the last digit of a score may differ.
    """
    from federations import different

    if not first["weights"]:
        return "nothing was trained"
    found = [f"tensor {name}" for name in different(first["weights"], second["weights"])]
    found += ["counts"] if first["counts"] != second["counts"] else []
    scores = [own["scores"] if not stacked else {client: _rounded(text) for client, text in own["scores"].items()}
              for own in (first, second)]  # fmt: skip
    found += ["scores"] if scores[0] != scores[1] else []
    return ", ".join(found[:3])


def _rounded(scores: str) -> list[str]:
    return [f"{float(number):.5g}" for number in re.findall(r"-?\d[\d.e+-]*", scores)]


def import_all() -> None:
    """What forked processes need; none of it starts a thread."""
    import federations  # noqa: F401
    import sites  # noqa: F401
    import test_sites  # noqa: F401

    import fedlit.__main__
    import fedlit.cli.runs
    import fedlit.nn  # noqa: F401
