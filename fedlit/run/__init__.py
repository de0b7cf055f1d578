"""One federation in one folder: configuration, plan, checkpoints, predictions. Imports nothing by itself: light
commands look for configurations here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"run": ["Run"], "load": ["load"], "plan": ["Plan"]}
)
