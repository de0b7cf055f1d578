"""Scoring new rows with one client: of a run, or of a folder that was exported from it. Imports no Lightning."""

from fedlit.lazy import lazy_names

# load_run and export build networks from a configuration, and stand above this room: they are only handed on
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "export": "fedlit.composite.export",
        "Scorer": "fedlit.score.scorer",
        "load": "fedlit.score.folder",
        "load_run": "fedlit.composite.served",
    },
)
