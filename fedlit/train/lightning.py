"""All private names of Lightning that fedlit uses, each with its reason and a test in
``tests/train/test_loop.py``.
"""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.core.optimizer import (
    _configure_optimizers,
    _configure_schedulers_automatic_opt,
)
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import nn
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


class Modes:
    """Remembers which modules are in training mode, in the place of Lightning's own class, which
    looks up each module by name and thereby takes as long as the scores of a thousand small clients.
    """

    def __init__(self) -> None:
        self._modes: list[tuple[nn.Module, bool]] = []

    @classmethod
    def install(cls, trainer: Trainer) -> None:
        """Let a Trainer's evaluations use this class."""
        validation_of_fit = trainer.fit_loop.epoch_loop.val_loop
        for loop in (validation_of_fit, trainer.validate_loop, trainer.test_loop):
            loop._module_mode = cls()  # type: ignore[assignment]

    def capture(self, module: nn.Module) -> None:
        """Remember the modes of a module and all in it."""
        self._modes = [(part, part.training) for part in _parts_of(module)]

    def restore(self, module: nn.Module) -> None:
        """Set the modes that were remembered."""
        for part, training in self._modes:
            if part.training != training:
                vars(part)["training"] = training
        self._modes = []


def switch_to_evaluation(module: nn.Module) -> None:
    """Do what ``module.eval()`` does, without a call for each module in it. A class with its own
    ``train`` is called.
    """
    parts = [module]
    while parts:
        part = parts.pop()
        if type(part).train is not nn.Module.train:
            part.train(False)
            continue
        # A module's own way to set an attribute takes microseconds.
        vars(part)["training"] = False
        parts += _children_of(part)


def _parts_of(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all in it; one that is in several places comes several times."""
    parts = [module]
    while parts:
        part = parts.pop()
        yield part
        parts += _children_of(part)


def _children_of(module: nn.Module) -> list[nn.Module]:
    """Return the modules in a module, also those without modules, which count as false."""
    return [child for child in module._modules.values() if child is not None]
