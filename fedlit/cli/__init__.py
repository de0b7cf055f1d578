"""The command line: all exit codes, and what is printed."""

from fedlit.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"load": "fedlit.run.load"})
