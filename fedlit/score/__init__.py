"""Scoring new rows with one client: of a run, or of a folder that was exported from it. Imports no Lightning."""

from fedlit.lazy import lazy_names

# load_run builds networks from a configuration, for which it stands above this room: it is only handed on
__getattr__, __dir__ = lazy_names(
    __name__,
    {"Scorer": "fedlit.score.scorer", "load": "fedlit.score.folder", "load_run": "fedlit.run.trained"},
)
