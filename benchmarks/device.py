"""The checks that need an accelerator; see ``device.sh``. A check that would begin after the limit is
reported as not run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

import fedlit
from fedlit.errors import FedlitError
from fedlit.exchange import exchange
from fedlit.run.run import Run

PRECISIONS = {
    "float32": (),
    "TF32": ("--model.tf32=true",),
    "bfloat16": ("--trainer.precision=bf16-mixed",),
}
QUIET = ("--trainer.logger=false", "--checkpoint.best=0", "--checkpoint.every=1000000")
"""Options without which writing files would be measured, too."""

SGD = (
    "--model.optimizer.class_path=torch.optim.SGD",
    "--model.optimizer.init_args={lr: 0.01, momentum: 0.9}",
)
SMALL = {"class_path": "fedlit.MLP", "init_args": {"hidden": [64, 64]}}
CLIENT = {"class_path": "fedlit.FederatedClient", "init_args": {"network": SMALL}}
COLUMNS = ("check", "verdict", "seconds", "MiB", "result")


class Pace(Callback):
    """Measures whole epochs, validation and exchange among them, and ends the training in time.
    Neither the first epoch nor the last one counts: one warms up, the other writes the checkpoint.

    Args:
        seconds: how long to measure, from the end of the first epoch on.
        device: ``gpu`` or ``cpu``.
    """

    def __init__(self, seconds: float, device: str) -> None:
        self.seconds = seconds
        self.device = device
        self.starts: list[float] = []

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Wait for the device, and note the time."""
        self.note()
        if self.starts[-1] - self.starts[min(1, len(self.starts) - 1)] > self.seconds:
            trainer.should_stop = True

    def note(self) -> None:
        """Note the time at which all that was begun is done."""
        if self.device == "gpu":
            torch.cuda.synchronize()
        self.starts.append(time.perf_counter())

    @property
    def summary(self) -> str:
        """The least, the median and the largest time of an epoch."""
        pairs = zip(self.starts[1:], self.starts[2:], strict=False)
        epochs = [after - before for before, after in pairs]
        least = min(epochs)
        median = statistics.median(epochs)
        return f"{least:.3f} / {median:.3f} / {max(epochs):.3f} s, {len(epochs)} times"


class Synchronisations(Callback):
    """Makes it an error to wait for a GPU in steps and their exchanges, from the second epoch on. The
    last step of an epoch is left out: its exchange reads who was left out.
    """

    steps = 0

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """An error wherever the host waits."""
        last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if trainer.current_epoch > 0 and not last:
            self.steps += 1
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, *_: Any) -> None:
        """This callback is the last one, so the exchange is over. What follows may wait."""
        torch.cuda.set_sync_debug_mode("default")


class Checks:
    """The checks, in the order of what they need.

    Args:
        device: ``gpu`` or ``cpu``.
        folder: for all that they write.
    """

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self.is_dry = device == "cpu"

    def run(self, config: str, *args: str, device: str | None = None, epochs: int = 3) -> Run:
        """Return a run that is not trained."""
        root = f"--trainer.default_root_dir={self.folder}"
        accelerator = f"--trainer.accelerator={device or self.device}"
        return fedlit.load(config, accelerator, root, f"--trainer.max_epochs={epochs}", *args)

    def many(self, clients: int, *args: str, epochs: int = 3) -> Run:
        """Return a run of homogeneous clients with a small network, four steps a round."""
        config = str(Path(__file__).with_name("many.yaml"))
        source = f"--data.source.init_args.clients={clients}"
        client = f"--model.client={json.dumps(CLIENT)}"
        return self.run(config, source, "--data.batches=4", client, *args, epochs=epochs)

    # ------------------------------------------------------------------ what must hold

    def fit(self) -> str:
        """Quickstart, trained, scored, resumed."""
        run = self.run("quickstart")
        run.fit(quiet=True)
        first = run.test(quiet=True).summary["mean"]["auroc"]
        again = self.run("quickstart")
        again.fit(run.last_checkpoint, quiet=True)
        second = again.test(quiet=True).summary["mean"]["auroc"]
        _must(first == second, f"resumed: expected AUROC {first}, found {second}")
        return f"mean test AUROC {first:.4f}, the same when resumed"

    def equality(self) -> str:
        """A few aligned steps in float32 on both devices."""
        args = ("--model.engine=plain", "--model.kernels=torch", "--trainer.limit_train_batches=5")
        devices = ("cpu", self.device)
        runs = [self.run("quickstart", *args, device=device, epochs=1) for device in devices]
        for run in runs:
            run.fit(quiet=True)
        on_cpu, on_device = (run.loop.cpu().state_dict() for run in runs)
        furthest = 0.0
        for name, value in on_cpu.items():
            if value.is_floating_point():
                furthest = max(furthest, float((on_device[name] - value).abs().max()))
        _must(furthest < 1e-3, f"expected weights within 1e-3 after 5 steps, found {furthest:.1e}")
        return f"largest difference of a weight after 5 steps: {furthest:.1e}"

    def synchronisations(self) -> str:
        """No step waits for the device, and no exchange within an epoch."""
        step = "--exchange.every=step"
        by_rows = "{class_path: fedlit.Mean, init_args: {weights: rows}}"
        rows = ("--exchange.every={steps: 3}", f"--exchange.rule={by_rows}")
        runs = [
            self.run("quickstart", "--model.engine=plain", *SGD, step),
            self.run("quickstart", "--model.engine=plain", *SGD, *rows),
            self.many(8, step),
        ]
        if _have("heart_gl"):
            runs.append(self.run("heart_gl", step))
        steps = sum(map(self.watched, runs))
        return f"none in {steps} steps and the exchanges within epochs, {len(runs)} runs"

    def watched(self, run: Run) -> int:
        """Train with every wait as an error; return the number of steps."""
        watch: Any = Synchronisations()
        if self.is_dry:
            # On a CPU, every value that is read is an error instead (see tests/unread.py).
            sys.path.append(str(Path(__file__).parents[1] / "tests"))
            watch = import_module("unread").Unread()
        ahead(run, watch)
        _must(watch.steps > 0, "expected steps to watch, found none")
        return int(watch.steps)

    def faulty(self) -> str:
        """A client whose update is not finite is left out within an epoch, and named."""
        run = self.run("quickstart", "--exchange.every=step")
        ahead(run, Spoils())
        name = min(run.loop.federation)
        counts = run.exchange.incident_counts
        _must(set(counts) == {name}, f"expected {name} to be named alone, found {counts}")
        weights = run.loop.state_dict().values()
        finite = all(bool(value.isfinite().all()) for value in weights)
        _must(finite, "expected finite weights at the end")
        return f"named: {counts}"

    def ranks(self) -> str:
        """Two ranks on one device have the scores of one process."""
        folder = self.folder / "ranks"
        words = ["-m", "fedlit", "fit", "--config", "quickstart", "--model.engine=plain"]
        words += [f"--trainer.accelerator={self.device}", "--trainer.max_epochs=2"]
        words += [f"--trainer.default_root_dir={folder}"]
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        last_words = (done.stderr or done.stdout)[-300:]
        _must(done.returncode == 0, f"exit status {done.returncode}: {last_words}")
        one = self.run("quickstart", "--model.engine=plain", epochs=2)
        one.fit(quiet=True)
        two = self.run("quickstart", "--model.engine=plain", epochs=2)
        of_ranks = two.test(max(folder.rglob("last.ckpt")), quiet=True).summary["mean"]["auroc"]
        of_one = one.test(quiet=True).summary["mean"]["auroc"]
        _must(abs(of_ranks - of_one) < 1e-3, f"expected AUROC {of_one:.5f}, found {of_ranks:.5f}")
        return f"mean test AUROC {of_ranks:.5f}, of one process {of_one:.5f}"

    # ------------------------------------------------------------------ what is measured

    def epoch(self, precision: str) -> str:
        """An epoch of Global Layers on Covertype, validation included."""
        if not _have("covertype_gl"):
            return "not run: no Covertype here (fedlit data fetch covertype)"
        run = self.run("covertype_gl", *QUIET, *PRECISIONS[precision], epochs=1000)
        return self.measured(run, "covertype_gl, an epoch")

    def round(self, precision: str) -> str:
        """A round of many clients, validation included."""
        clients = 32 if self.is_dry else 1000
        run = self.many(clients, *QUIET, *PRECISIONS[precision], epochs=1000)
        return self.measured(run, f"{clients} clients, a round")

    def measured(self, run: Run, what: str) -> str:
        """Train for some seconds; return what an epoch takes, and the loss that it came to."""
        pace = Pace(1.0 if self.is_dry else 8.0, self.device)
        run.trainer_options["callbacks"] = [pace]
        run.fit(quiet=True)
        losses = [entry["train/loss"] for entry in run.loop.history if "train/loss" in entry]
        loss = losses[-1]
        _must(math.isfinite(loss), f"expected a finite loss, found {loss}")
        return f"{what}: {pace.summary}"


class Spoils(Callback):
    """Makes the first client's parameters infinite before the third step of the second epoch."""

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the values."""
        if trainer.current_epoch == 1 and batch_idx == 2:
            with torch.no_grad():
                for parameter in pl_module.federation[min(pl_module.federation)].parameters():
                    parameter.fill_(math.inf)


def ahead(run: Run, callback: Callback) -> None:
    """Train with a callback, on a CPU as if Python ran ahead of it."""
    usual = exchange.runs_ahead
    run.trainer_options["callbacks"] = [callback]
    try:
        exchange.runs_ahead = lambda device: True
        run.fit(quiet=True)
    finally:
        exchange.runs_ahead = usual


def _must(right: bool, message: str) -> None:
    if not right:
        raise AssertionError(message)


def _have(config: str) -> bool:
    try:
        fedlit.load(config).data.source.tables(0)
    except FedlitError:
        return False
    return True


def named(checks: Checks) -> dict[str, Callable[[], str]]:
    """Return the checks by name, in their order."""
    order: dict[str, Callable[[], str]] = {
        name: getattr(checks, name)
        for name in ("fit", "equality", "synchronisations", "faulty", "ranks")
    }
    for kind in ("round", "epoch"):
        for precision in PRECISIONS:
            check = getattr(checks, kind)
            order[f"{kind}, {precision}"] = lambda check=check, precision=precision: check(
                precision
            )
    return order


def carry_out(check: Callable[[], str], device: str) -> dict[str, Any]:
    """Return the verdict, the seconds, the peak memory and the result of a check."""
    if device == "gpu":
        torch.cuda.reset_peak_memory_stats()
    start = time.monotonic()
    try:
        result = check()
        verdict = "NOT RUN" if result.startswith("not run") else "fine"
    except Exception as error:
        verdict = "FAILED"
        result = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    peak = 0.0
    if device == "gpu":
        torch.cuda.set_sync_debug_mode("default")
        peak = torch.cuda.max_memory_allocated() / 2**20
    seconds = round(time.monotonic() - start, 1)
    return {"verdict": verdict, "seconds": seconds, "MiB": round(peak), "result": result}


def show(rows: list[Mapping[str, Any]]) -> None:
    """Print the table."""
    cells = [COLUMNS, *([str(row[column]) for column in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(padded).rstrip())


def main() -> int:
    """Run all; the exit status is 0 if none failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds")
    parser.add_argument("--only", nargs="*", help="beginnings of names")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.device == "gpu" and not torch.cuda.is_available():
        print("expected a GPU, found none; --device cpu shows that the paths run")
        return 2
    machine = torch.cuda.get_device_name() if options.device == "gpu" else "CPU, a dry run"
    print(f"{machine}, torch {torch.__version__}\n", flush=True)
    start = time.monotonic()
    rows: list[Mapping[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, check in named(Checks(options.device, Path(folder))).items():
            if options.only and not name.startswith(tuple(options.only)):
                continue
            row: dict[str, Any] = {"verdict": "NOT RUN", "seconds": 0, "MiB": 0}
            row["result"] = "the limit was reached"
            if time.monotonic() - start <= options.limit:
                row = carry_out(check, options.device)
            rows.append({"check": name, **row})
            print(json.dumps(rows[-1]), flush=True)
    print()
    show(rows)
    return int(any(row["verdict"] == "FAILED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
