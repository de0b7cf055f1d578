"""A process that runs the jobs of a study, one JSON object a line on its standard input, and answers with a line each.

It ends as soon as its input closes, in the middle of a job if need be: when the study's own process is killed, no
orphan goes on writing into folders that a restarted study writes to.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Serve until the input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the study decides
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
    """Run a job; what it prints goes to a ``.log`` beside its folder, so that a crash of the process leaves a trace."""
    request = json.loads(line)
    for folder in request.pop("path", []):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    log = Path(request["folder"]).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        from fedlit.study.job import Job
        from fedlit.study.runs import execute

        execute(Job(**request))
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
