"""One federation in one folder: configuration, plan, checkpoints, predictions. Imports nothing by itself: light
commands look for configurations here.
"""

from fedlit.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__, {"Run": "fedlit.run.run", "load": "fedlit.run.load", "Plan": "fedlit.run.plan"}
)
