"""Flower's ServerApp: the coordinator of a folder, at the end of a line of Flower's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlit.institutions.courier import MOST
from fedlit.institutions.flower_line import FlowerLine

__all__ = ["app"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Coordinate until the federation has finished.

    Args:
        grid: Flower's.
        context: whose ``run_config`` names the coordinator's ``folder``, the ``most`` bytes of an answer, and the
            ``serve`` function, a module and a name divided by a colon.
    """
    settings = context.run_config
    module, _, name = str(settings.get("serve", "fedlit.institutions.coordinator:serve")).partition(":")
    serve = getattr(import_module(module), name)
    serve(Path(str(settings["folder"])), FlowerLine(grid, int(settings.get("most", MOST))))
