"""Flower's ServerApp in a process of its own (see :mod:`fedlit.institutions.child`).

The parent's first line says where the SuperLink is, and the token.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

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
            from fedlit.institutions.flower import LOST, FlowerLine, open_grid
    except FedlitError as error:
        print(f"fedlit: error: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    given = json.loads(parent.lines.get())
    module, _, name = arguments.serve.partition(":")
    try:
        grid = open_grid(given["runtime"], given["run"], given["token"])
        getattr(import_module(module), name)(Path(arguments.folder), FlowerLine(grid, arguments.most))
    except FedlitError as error:
        print(f"fedlit: error: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    except (*LOST, KeyboardInterrupt):
        return AGAIN
    except Exception as error:
        if os.environ.get("FEDLIT_DEBUG"):
            traceback.print_exc()
        print(f"fedlit: error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
