"""A process that does what it is asked, one JSON object a line on its standard input, and answers with a line each.

It ends as soon as its input closes, in the middle of a job if need be: when the process that asked is killed, no orphan
goes on writing into folders that a restarted one writes to.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlit.exchange.place import refuse_ranks

__all__ = ["WorkerProcess", "cores", "main"]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerProcess:
    """A process of this module, started when first needed and again after a crash.

    Args:
        threads: that it may use.
    """

    def __init__(self, threads: int) -> None:
        refuse_ranks("what starts processes of its own")
        self.environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))}
        self.process: subprocess.Popen[str] | None = None

    def call(self, function: str, arguments: Mapping[str, Any], log: Path) -> str:
        """Have a function called; the error that ended it, or the empty string.

        Args:
            function: ``module:name``; it takes one mapping.
            arguments: that mapping, plain data.
            log: where what is printed goes.
        """
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fedlit.run.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
                text=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"function": function, "arguments": arguments, "log": str(log), "path": sys.path[::-1]}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        if not answer:
            status = self.process.wait()
            self.process = None
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            return f"its process ended ({how}); out of memory?" if status == -9 else f"its process ended ({how})"
        return str(json.loads(answer).get("error", ""))

    def stop(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def main() -> None:
    """Serve until the input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; who asked decides
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        print(json.dumps(_serve(lines.get())), file=answers, flush=True)


def _serve(line: str) -> dict[str, str]:
    """Do it; what is printed goes to a file, so that a crash of the process leaves a trace."""
    request = json.loads(line)
    for folder in request["path"]:
        if folder not in sys.path:
            sys.path.insert(0, folder)
    log = Path(request["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        module, name = request["function"].split(":")
        getattr(importlib.import_module(module), name)(request["arguments"])
    except BaseException as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
    return {}


if __name__ == "__main__":
    main()
