"""Flower's ServerApp in a process of its own (see :mod:`fedlit.institutions.child`).

The parent's first line says where the SuperLink is, and the token.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
from functools import partial

from fedlit.errors import FedlitError
from fedlit.institutions.child import AGAIN, Parent
from fedlit.institutions.extra import needs_flower

__all__ = ["main"]


def main(argv: list[str], parent: Parent) -> int:
    """Coordinate; the exit status is that of fedlit's commands, or :data:`~fedlit.institutions.child.AGAIN`."""
    parser = argparse.ArgumentParser(prog="fedlit.institutions.serverapp")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--serve", required=True)
    parser.add_argument("--most", type=int, required=True)
    arguments = parser.parse_args(argv)
    try:
        with needs_flower():
            from flwr.app import Context, RecordDict
            from flwr.supercore.run import Run, RunNotRunningException
            from flwr.supercore.task_identity import TaskIdentity
            from flwr.superlink.grid import HttpGrid, http_grid

            from fedlit.institutions.flower_app.server_app import app
    except FedlitError as error:
        print(f"fedlit: error: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    logging.getLogger("flwr").setLevel(logging.ERROR)
    given = json.loads(parent.lines.get())
    TaskIdentity.run_id, TaskIdentity.node_id = given["run"], 1
    TaskIdentity.task_id = 0
    # an answer is announced before its pieces are there: Flower would wait a second in each round
    http_grid.pull_objects = partial(http_grid.pull_objects, initial_backoff=0.02)  # type: ignore[attr-defined]
    grid = HttpGrid(given["runtime"], insecure=True, token=given["token"])
    grid.set_run(Run.create_empty(given["run"]))
    settings = {"folder": arguments.folder, "most": arguments.most, "serve": arguments.serve}
    try:
        app(grid, Context(given["run"], 1, {}, RecordDict(), dict(settings)))
    except FedlitError as error:
        print(f"fedlit: error: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    except (RunNotRunningException, KeyboardInterrupt):
        return AGAIN
    except Exception as error:
        if type(error).__module__.split(".")[0] in ("httpx", "httpcore"):
            return AGAIN
        if os.environ.get("FEDLIT_DEBUG"):
            traceback.print_exc()
        print(f"fedlit: error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
