"""The checks that need an accelerator; see ``device.sh``. A check that would begin after the limit
is said, not run.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

import fedlit
from fedlit.errors import FedlitError
from fedlit.run.run import Run


class Synchronisations(Callback):
    """Lets nothing wait for the device within epochs, from the second on."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """An error wherever the host waits."""
        if trainer.current_epoch > 0:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """What comes behind an epoch may wait."""
        if trainer.is_last_batch:
            torch.cuda.set_sync_debug_mode("default")


class Checks:
    """The checks, in the order of what they need.

    Args:
        device: ``gpu`` or ``cpu``.
        rows: whether Covertype is at hand.
    """

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self.folder = folder

    def run(self, config: str, *args: str, device: str | None = None, epochs: int = 3) -> Run:
        """A run that is not trained."""
        root = f"--trainer.default_root_dir={self.folder}"
        where = f"--trainer.accelerator={device or self.device}"
        return fedlit.load(config, where, root, f"--trainer.max_epochs={epochs}", *args)

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
        torch.backends.cuda.matmul.allow_tf32 = False
        args = ("--model.engine=plain", "--model.kernels=torch", "--trainer.limit_train_batches=5")
        runs = [self.run("quickstart", *args, device=own, epochs=1) for own in ("cpu", self.device)]
        for run in runs:
            run.fit(quiet=True)
        there, here = (run.loop.cpu().state_dict() for run in runs)
        furthest = max(
            float((there[name] - here[name]).abs().max())
            for name in there
            if there[name].is_floating_point()
        )
        _must(furthest < 1e-3, f"expected weights within 1e-3 after 5 steps, found {furthest:.1e}")
        return f"largest difference of a weight after 5 steps: {furthest:.1e}"

    def synchronisations(self) -> str:
        """No step and no exchange waits for the device."""
        if self.device == "cpu":
            return "not run: only a GPU has them"
        for extra in (("--exchange.every=step",), ("--exchange.rule.weights=rows",)):
            run = self.run(
                "heart_gl" if _have("heart_gl") else "quickstart", "--model.engine=plain", *extra
            )
            run.trainer_options["callbacks"] = [Synchronisations()]
            run.fit(quiet=True)
        return "none, exchanging every step and by rows"

    def bf16(self) -> str:
        """Mixed precision."""
        results = [
            self.run("quickstart", *own, epochs=10)
            for own in ((), ("--trainer.precision=bf16-mixed",))
        ]
        scores = [own.fit(quiet=True).summary["mean"]["auroc"] for own in results]
        _must(math.isfinite(scores[1]), "expected finite scores")
        return f"mean validation AUROC {scores[0]:.4f} in float32, {scores[1]:.4f} in bf16-mixed"

    def covertype(self) -> str:
        """Global Layers on all rows at hand, three seeds."""
        if not _have("covertype_gl"):
            return "not run: no Covertype here (fedlit data fetch covertype)"
        epochs = 105 if self.device == "gpu" else 1
        seeds = [101, 102, 103] if self.device == "gpu" else [101]
        runs = [self.run("covertype_gl", f"--seed={seed}", epochs=epochs) for seed in seeds]
        for run in runs:
            run.fit(quiet=True)
        results = [run.test(quiet=True) for run in runs]
        rows = sum(sum(client.spec.rows.values()) for client in runs[0].data.clients)
        names = sorted(results[0].scores)
        means = {
            name: sum(own.scores[name]["auroc"] for own in results) / len(results) for name in names
        }
        told = ", ".join(f"{name} {100 * value:.1f}" for name, value in means.items())
        return f"{rows:,} rows, {epochs} epochs, {len(seeds)} seeds: test AUROC {told}"

    def ranks(self) -> str:
        """Two ranks on one device have the scores of one process."""
        words = [
            "-m",
            "fedlit",
            "fit",
            "--config",
            "quickstart",
            f"--trainer.accelerator={self.device}",
        ]
        words += [
            "--trainer.max_epochs=2",
            "--model.engine=plain",
            f"--trainer.default_root_dir={self.folder / 'ranks'}",
        ]
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
        done = subprocess.run([sys.executable, *torchrun, *words], capture_output=True, text=True)
        _must(
            done.returncode == 0,
            f"exit status {done.returncode}: {(done.stderr or done.stdout)[-300:]}",
        )
        run = self.run("quickstart", "--model.engine=plain", epochs=2)
        run.fit(quiet=True)
        newest = max((self.folder / "ranks").rglob("last.ckpt"))
        told = [
            self.run("quickstart", "--model.engine=plain", epochs=2).test(newest, quiet=True),
            run.test(quiet=True),
        ]
        first, second = (own.summary["mean"]["auroc"] for own in told)
        _must(
            abs(first - second) < 1e-3,
            f"expected the AUROC of one process, {second:.5f}, found {first:.5f}",
        )
        return f"mean test AUROC {first:.5f}, of one process {second:.5f}"


def _must(right: bool, words: str) -> None:
    if not right:
        raise AssertionError(words)


def _have(config: str) -> bool:
    try:
        fedlit.load(config).data.source.tables(0)
    except FedlitError:
        return False
    return True


def main() -> int:
    """Run all; the exit status is 0 if none failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds")
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.device == "gpu" and not torch.cuda.is_available():
        print("expected a GPU, found none; --device cpu shows that the paths run")
        return 2
    where = torch.cuda.get_device_name() if asked.device == "gpu" else "CPU"
    print(f"{where}, torch {torch.__version__}\n")
    begun = time.monotonic()
    failed = 0
    table = []
    with tempfile.TemporaryDirectory() as place:
        checks = Checks(asked.device, Path(place))
        order: list[tuple[str, Callable[[], str]]] = [
            (own, getattr(checks, own))
            for own in ("fit", "equality", "synchronisations", "bf16", "ranks", "covertype")
        ]
        for name, check in order:
            if asked.only and name not in asked.only:
                continue
            if time.monotonic() - begun > asked.limit:
                table.append((name, "NOT RUN", 0.0, 0.0, "the limit was reached"))
                continue
            if asked.device == "gpu":
                torch.cuda.reset_peak_memory_stats()
            since = time.monotonic()
            try:
                words = check()
                verdict = "NOT RUN" if words.startswith("not run") else "fine"
            except Exception as error:
                verdict = "FAILED"
                words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                failed = failed + 1
            finally:
                if asked.device == "gpu":
                    torch.cuda.set_sync_debug_mode("default")
            peak = torch.cuda.max_memory_allocated() / 2**20 if asked.device == "gpu" else 0.0
            table.append((name, verdict, time.monotonic() - since, peak, words))
            print(
                json.dumps(
                    dict(
                        zip(("check", "verdict", "seconds", "MiB", "found"), table[-1], strict=True)
                    )
                ),
                flush=True,
            )
    print(f"\n{'check':<17}{'':<9}{'seconds':>8}{'peak MiB':>10}  found")
    for name, verdict, seconds, peak, words in table:
        print(f"{name:<17}{verdict:<9}{seconds:>8.0f}{peak:>10.0f}  {words}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
