"""Flower's ServerApp: the coordinator of a folder, at the end of a line of Flower's. ``app`` is made when asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.institutions.courier import MOST
from fedlit.institutions.extra import needs_flower
from fedlit.institutions.flower_line import FlowerLine

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

__all__ = ["coordinate"]


def coordinate(grid: Grid, context: Context) -> None:
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


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    with needs_flower():
        from flwr.serverapp import ServerApp

    made = ServerApp()
    made.main()(coordinate)
    globals()["app"] = made
    return made
