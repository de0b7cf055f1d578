"""All private names of Lightning that fedlit uses, each with its reason and a test in
``tests/train/test_loop.py``.
"""

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.core.optimizer import (
    _configure_optimizers,
    _configure_schedulers_automatic_opt,
)
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch.optim import Optimizer


def count_aligned_step(trainer: Trainer) -> None:
    """Advance ``trainer.global_step`` by one.

    Under manual optimization Lightning counts each optimizer's step, which would be K per aligned
    step (https://github.com/Lightning-AI/pytorch-lightning/issues/17958). The engines step the bare
    optimizers, which it does not see; this counts the aligned step once, so that ``max_steps`` and
    ``every_n_train_steps`` mean aligned steps.
    """
    progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    progress.increment_ready()
    progress.increment_completed()


def parse_optimizers(configured: Any) -> tuple[list[Optimizer], list[LRSchedulerConfig]]:
    """Return two lists, of optimizers and of schedules, from what a module's
    ``configure_optimizers`` returned in any form that Lightning allows.
    """
    if configured is None:
        return [], []
    optimizers, schedulers, monitor = _configure_optimizers(configured)
    return optimizers, _configure_schedulers_automatic_opt(schedulers, monitor)
