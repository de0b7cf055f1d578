"""Finds where the host would wait for a device: on the CPU, every value that is read is an error."""

from typing import Any

import torch
from lightning.pytorch import Callback
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READING = frozenset(
    {"item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "__array__"}
)
"""Methods of a tensor that copy its values to the host."""

WAITING = frozenset(
    {
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.is_nonzero.default,
        torch.ops.aten.nonzero.default,
        torch.ops.aten.masked_select.default,
        torch.ops.aten.equal.default,
        torch.ops.aten._unique2.default,
    }
)
"""Operations whose result has a size, or is a number, that depends on values."""


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in READING and _is_data(args[0]):
            raise AssertionError(f"{func.__name__} waits for the device")
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_mask = func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put_)
        masks = args[1] if by_mask else ()
        if any(mask is not None and mask.dtype == torch.bool for mask in masks):
            raise AssertionError(f"{func} with a mask waits for the device")
        if func in WAITING and _is_data(args[0]):
            raise AssertionError(f"{func} waits for the device")
        return func(*args, **(kwargs or {}))


def _is_data(tensor: Tensor) -> bool:
    """Whether it may be on a device. States of generators are bytes, and the order in which clients
    are drawn is whole numbers; both are on the CPU in any case.
    """
    return tensor.is_floating_point() or tensor.dtype == torch.bool


class Unread(Callback):
    """Refuses to read a value in all steps but the last of each epoch, and in their exchanges.

    It is the last callback, so that an exchange comes before its end.
    """

    steps = 0

    def __init__(self) -> None:
        self.modes: list[Any] = []

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        # What is made once, such as positions on a device, is made in the first epoch.
        if trainer.current_epoch and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self.modes = [_Functions(), _Operations()]
            for mode in self.modes:
                mode.__enter__()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.steps += len(self.modes) // 2
        self.end()

    def on_exception(self, *_: Any) -> None:
        self.end()

    def end(self) -> None:
        while self.modes:
            self.modes.pop().__exit__(None, None, None)
