"""Where the time of a fit goes: shares of one run, measured by wrapping the parts.

    python benchmarks/overhead.py [CONFIG] [EPOCHS] [KEY=VALUE ...]

The progress bar is drawn (into a pseudo-terminal) so that its cost is in the table.
"""

from __future__ import annotations

import os
import pty
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import fedlit
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.guard import Guard
from fedlit.train.callbacks import Progress
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO
from fedlit.train.loop import FederatedLoop
from fedlit.train.scoring import Evaluations, Scoring

spent: dict[str, float] = defaultdict(float)
_running: list[str] = []


def timed(owner: type, method: str, label: str) -> None:
    """Add the time of a method to a label; time of a wrapped method inside another counts for the inner one."""
    original: Callable[..., Any] = getattr(owner, method)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        _running.append(label)
        try:
            return original(*args, **kwargs)
        finally:
            _running.pop()
            elapsed = time.perf_counter() - start
            spent[label] += elapsed
            if _running:
                spent[_running[-1]] -= elapsed

    setattr(owner, method, wrapper)


def main(config: str = "covertype_gl.yaml", epochs: str = "10", *keys: str) -> None:
    """Print the shares."""
    controller, terminal = pty.openpty()
    threading.Thread(target=lambda: [os.read(controller, 65536) for _ in iter(int, 1)], daemon=True).start()
    sys.stdout = os.fdopen(terminal, "w")
    timed(FederatedLoop, "training_step", "client steps")
    timed(Exchange, "exchange", "exchange")
    for method in ("judge", "act", "note"):
        timed(Guard, method, "guard")
    timed(Evaluations, "_evaluate", "validation: forward")
    timed(Scoring, "results", "validation: scores")
    timed(FederatedLoop, "_log", "logging")
    timed(AtomicCheckpointIO, "save_checkpoint", "checkpoints")
    for hook in ("on_train_batch_end", "on_train_start", "on_train_end"):
        timed(Progress, hook, "progress bar")
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            f"--trainer.max_epochs={epochs}",
            f"--trainer.default_root_dir={folder}",
            *(f"--{key}" for key in keys),
        ]
        run = fedlit.load(config, *arguments)
        run.trainer_options["callbacks"] = [Progress()]
        run.describe()
        start = time.perf_counter()
        run.fit(quiet=True)
        total = time.perf_counter() - start
    sys.stdout = sys.__stdout__
    print(f"{config}, {epochs} epochs: {total:.2f} s")
    for label, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {label:<20} {seconds:8.3f} s  {100 * seconds / total:6.2f} %")
    rest = total - sum(spent.values())
    print(f"  {'everything else':<20} {rest:8.3f} s  {100 * rest / total:6.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
