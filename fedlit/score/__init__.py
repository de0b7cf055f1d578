"""Scores new rows with one client of a run, or of a folder that was exported from a run. Does not
import Lightning.
"""

import importlib
from typing import Any

# load_run and export build networks from a configuration, and stand above this room: they are only
# handed on
_HOMES = {
    "export": "fedlit.mixture.export",
    "Scorer": "fedlit.score.scorer",
    "estimator_of": "fedlit.score.estimator",
    "load": "fedlit.score.folder",
    "load_run": "fedlit.mixture.opened",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
