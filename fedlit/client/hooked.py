"""The module that clients are: a torch module with those hooks and attributes of a LightningModule
that a federation serves. It does not need Lightning, so that a trained client predicts without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Training(Protocol):
    """The Trainer, as far as a client asks it."""

    @property
    def current_epoch(self) -> int:
        """The number of the epoch, from 0."""

    @property
    def global_step(self) -> int:
        """The number of aligned steps that are done."""


class HookedModule(nn.Module):
    """A torch module whose hooks the federation calls at the same points, and with the same
    arguments, as Lightning calls those of a LightningModule.

    A class may also inherit from LightningModule, after this one, for what else it offers.

    Attributes:
        automatic_optimization: whether the federation steps the optimizer after ``training_step``.

    Example:
        >>> module = HookedModule()
        >>> module.current_epoch, module.device
        (0, device(type='cpu'))
    """

    automatic_optimization = True

    def __init__(self) -> None:
        super().__init__()
        self._trainer: Training | None = None
        self._device = torch.empty(0).device

    # ------------------------------------------------------------------ where training is

    @property
    def trainer(self) -> Any:
        """Lightning's Trainer of the federation.

        Raises:
            RuntimeError: the client is in no training.
        """
        if self._trainer is None:
            raise RuntimeError(f"{type(self).__name__} is not attached to a Trainer")
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Training | None) -> None:
        self._trainer = trainer

    @property
    def current_epoch(self) -> int:
        """The number of the epoch, from 0; 0 outside a training."""
        return 0 if self._trainer is None else self._trainer.current_epoch

    @property
    def global_step(self) -> int:
        """The number of aligned steps that are done; 0 outside a training."""
        return 0 if self._trainer is None else self._trainer.global_step

    @property
    def device(self) -> torch.device:
        """The device of its tensors, also if it has none."""
        return self._device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._device = fn(torch.empty(0, device=self._device)).device
        module: Self = super()._apply(fn, recurse)
        return module

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the Trainer, which a copy or a pickled client does not take
        along.
        """
        return {**self.__dict__, "_trainer": None}

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients, in a ``training_step`` that steps its optimizers itself."""
        loss.backward(*args, **kwargs)

    # ------------------------------------------------------------------ hooks

    def setup(self, stage: str) -> None:
        """Called when the client is built for ``fit``, ``validate``, ``test`` or ``predict``."""

    def teardown(self, stage: str) -> None:
        """Called at the end of ``fit``, ``validate`` or ``test``."""

    def on_fit_start(self) -> None:
        """Called at the very beginning of a training."""

    def on_fit_end(self) -> None:
        """Called at the very end of a training."""

    def on_train_start(self) -> None:
        """Called before the first epoch, when the state of a resumed training is restored."""

    def on_train_end(self) -> None:
        """Called after the last epoch."""

    def on_train_epoch_start(self) -> None:
        """Called before each epoch."""

    def on_train_epoch_end(self) -> None:
        """Called after each epoch."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Called before each step of the client."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Called after each step of the client; ``outputs`` is None."""

    def on_validation_epoch_start(self) -> None:
        """Called before validation rows are scored."""

    def on_validation_epoch_end(self) -> None:
        """Called after validation rows were scored."""

    def on_test_epoch_start(self) -> None:
        """Called before test rows are scored."""

    def on_test_epoch_end(self) -> None:
        """Called after test rows were scored."""

    def on_after_backward(self) -> None:
        """Called when gradients were computed, before they are clipped."""

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Called before an optimizer steps."""

    def on_before_zero_grad(self, optimizer: Optimizer) -> None:
        """Called before gradients are set to zero, after an optimizer's step."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called with the client's entry of a checkpoint, to add to it."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called with what :meth:`on_save_checkpoint` was given."""


def call_hook(client: nn.Module, hook: str, *args: object) -> None:
    """Call a hook if the client's class overrides it (the empty ones cost time at each step)."""
    if overrides(client, hook):
        getattr(client, hook)(*args)


def overrides(client: nn.Module, hook: str) -> bool:
    """Return whether a client's class overrides a hook."""
    return getattr(type(client), hook) is not getattr(HookedModule, hook)


def of_lightning(kind: type, name: str) -> bool:
    """Return whether a class has a method as it inherits it from Lightning, or has none of this
    name.
    """
    method = getattr(kind, name, None)
    module = getattr(method, "__module__", "")
    return method is None or module.partition(".")[0] in ("lightning", "pytorch_lightning")
