"""A federation in a folder: configuration, plan, checkpoints, predictions. It imports nothing by
itself, because light commands search for configurations here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"run": ["Run"], "load": ["load"], "plan": ["Plan"]}
)
