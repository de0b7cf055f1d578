"""Stacks: tensors of several clients that are slices of one tensor, with the client as its first
dimension.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from fedlit.devices import to_device

_Value = TypeVar("_Value")

LONG = 2**15
"""The number of values from which on a tensor counts as long. torch divides the sum of a long
tensor among threads, so that it is not that of a row of a stack, bit for bit; and for a long
tensor, the cost of starting an operation does not matter."""

_registered: tuple[list[int], list[weakref.ref[Tensor]]] = ([], [])
"""The stacks that were divided by :func:`parts_of`: their addresses, in order, and the stacks."""
_registering = threading.Lock()


def parts_of(stack: Tensor) -> list[Tensor]:
    """Return the slices of a stack, each in a storage of its own that lies in the stack's memory.
    What saves, pickles or copies a slice with all of its storage writes the slice alone, and no
    other client's values.

    Args:
        stack: the clients' tensors, contiguous and without a gradient. The slices are recognised as
            its parts (:func:`starts_of`) as long as it is referred to.

    Shape:
        - stack: (K, ...)
        - output: K tensors, (...)

    Example:
        >>> stack = torch.zeros(3, 2)
        >>> part = parts_of(stack)[1]
        >>> _ = part.add_(1.0)
        >>> stack.tolist(), part.untyped_storage().nbytes(), stack.untyped_storage().nbytes()
        ([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], 8, 24)
    """
    rows = stack.unbind()
    if not stack.data_ptr():
        return list(rows)  # They hold nothing, or are on the device "meta".
    _register(stack)
    storage = stack.untyped_storage()
    size = rows[0].nbytes
    begin = stack.data_ptr() - storage.data_ptr()
    parts = []
    for position, row in enumerate(rows):
        start = begin + position * size
        part = torch.empty(0, dtype=stack.dtype, device=stack.device)
        parts.append(part.set_(storage[start : start + size], 0, row.shape, row.stride()))
    return parts


def _register(stack: Tensor) -> None:
    """Remember a stack, and forget those that are gone, whose memory may be another one's now."""
    global _registered
    with _registering:
        live = {stack.data_ptr(): weakref.ref(stack)}
        for address, reference in zip(*_registered, strict=True):
            if reference() is not None:
                live.setdefault(address, reference)
        addresses = sorted(live)
        _registered = (addresses, [live[address] for address in addresses])


def _stack_at(tensor: Tensor) -> Tensor | None:
    """Return the registered stack in whose memory a tensor lies, if there is one."""
    addresses, references = _registered
    address = tensor.data_ptr()
    position = bisect_right(addresses, address) - 1
    if position < 0:
        return None
    stack = references[position]()
    if stack is None or address >= addresses[position] + stack.nbytes:
        return None
    return stack


def memory_of(tensor: Tensor) -> int:
    """Return the address of the memory that a tensor shares with others: that of its stack, or
    of its storage.

    Example:
        >>> rows = torch.zeros(3, 2)
        >>> memory_of(rows[1]) == memory_of(rows[2]) == rows.data_ptr()
        True
    """
    return _memory(tensor).data_ptr()


def _memory(tensor: Tensor) -> torch.UntypedStorage:
    """Return the storage of a tensor's stack, or its own."""
    stack = _stack_at(tensor)
    if stack is None:
        return tensor.untyped_storage()
    return stack.untyped_storage()


def starts_of(tensors: Sequence[Tensor]) -> list[int]:
    """Divide tensors into runs that are consecutive slices of one tensor, so that one operation
    reads or writes all of a run.

    Tensors are recognised by where they lie in memory, and not by how they were made: whoever
    replaces a tensor's memory thereby takes it out of the stack.

    Args:
        tensors: one tensor of each client, in the order in which they shall lie.

    Returns:
        The positions at which runs begin; empty if tensors are of several types or shapes, are not
        contiguous, or hold nothing.

    Example:
        >>> rows = list(torch.arange(6.0).view(3, 2))
        >>> starts_of(rows), starts_of(rows[::2])
        ([0], [0, 1])
    """
    if not tensors or not _of_one_form(tensors):
        return []
    addresses = [tensor.data_ptr() for tensor in tensors]
    if not all(addresses):
        return []  # Tensors without memory, as on the device "meta".
    size = tensors[0].nbytes
    starts: list[int] = []
    follows = -1  # the address at which the run goes on
    end = -1  # the end of its storage; neighbours in memory may be of two storages
    for position, address in enumerate(addresses):
        if address != follows or address + size > end:
            starts.append(position)
            storage = _memory(tensors[position])
            end = storage.data_ptr() + storage.nbytes()
        follows = address + size
    return starts


def _of_one_form(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]
    if first.layout is not torch.strided or not first.numel():
        return False
    if any(tensor.dtype != first.dtype or tensor.shape != first.shape for tensor in tensors):
        return False
    return all(tensor.is_contiguous() for tensor in tensors)


def run_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the memory of tensors that are a run, as :func:`starts_of` finds it.

    Returns:
        A contiguous view, (len(tensors), ...), without a gradient: ``run[i]`` lies where
        ``tensors[i]`` lies.

    Example:
        >>> rows = list(torch.arange(6.0).view(3, 2))
        >>> run_of(rows[1:]).tolist()
        [[2.0, 3.0], [4.0, 5.0]]
    """
    first = tensors[0]
    shape = (len(tensors), *first.shape)
    strides = (first.numel(), *first.stride())
    stack = _stack_at(first)
    if stack is None:
        return first.detach().as_strided(shape, strides)
    offset = (first.data_ptr() - stack.untyped_storage().data_ptr()) // stack.element_size()
    return stack.detach().as_strided(shape, strides, offset)


def base_of(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the tensor of which some tensors are consecutive slices.

    Args:
        tensors: as for :func:`starts_of`.

    Returns:
        The single run that they are, of shape (len(tensors), ...); None if they are not one.

    Example:
        >>> rows = list(torch.arange(6.0).view(3, 2))
        >>> base_of(rows).tolist()
        [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
        >>> base_of([rows[0], rows[2]]) is None
        True
    """
    return run_of(tensors) if starts_of(tensors) == [0] else None


def row_norms(values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the Euclidean norm of each client's tensor, bit for bit as of each alone.

    Args:
        values: the clients' tensors.
        dtype: the type of the norms; that of the values if None.

    Shape:
        - values: (K, ...), a floating-point type
        - output: (K,)

    Example:
        >>> row_norms(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
        tensor([5., 2.])
    """
    if values[0].numel() < LONG:
        norms: Tensor = torch.linalg.vector_norm(flat_rows(values), 2, 1, dtype=dtype)
        return norms
    return torch.stack(torch._foreach_norm(list(values.unbind()), 2, dtype))


def one_after_another(rows: Sequence[Tensor]) -> Tensor:
    """Return the rows of several clients, each (n, ...), as one tensor, (K · n, ...): without a copy
    if they are slices of one already.

    Example:
        >>> one_after_another([torch.zeros(2, 3), torch.ones(2, 3)]).shape
        torch.Size([4, 3])
    """
    base = base_of(rows)
    return torch.cat(list(rows)) if base is None else base.flatten(0, 1)


def alone(value: _Value) -> _Value:
    """Return tensors and plain data with a copy of each tensor that is a part of a larger one.
    torch saves a tensor with all of the memory in which it lies, and with it other clients' values.

    Args:
        value: a tensor, or mappings, lists and tuples of tensors and anything else.

    Example:
        >>> row = torch.zeros(3, 2)[1]
        >>> alone({"w": row})["w"].untyped_storage().nbytes(), row.untyped_storage().nbytes()
        (8, 24)
    """
    copied: object = value
    if isinstance(value, Tensor):
        if value.layout is torch.strided and value.untyped_storage().nbytes() > value.nbytes:
            copied = value.clone()
    elif isinstance(value, dict):
        copied = {name: alone(item) for name, item in value.items()}
    elif type(value) in (list, tuple):
        copied = type(value)(alone(item) for item in value)  # type: ignore[call-arg, attr-defined]
    elif isinstance(value, tuple):  # a named one, such as a batch
        copied = type(value)(*map(alone, value))
    return cast("_Value", copied)


def parts_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in dictionaries, lists and tuples that are parts of larger ones, but no
    parameters, of which torch copies the part alone.

    Example:
        >>> rows = torch.zeros(3, 2)
        >>> [part.shape for part in parts_in({"all": rows, "one": [rows[1]]})]
        [torch.Size([2])]
    """
    if isinstance(value, Tensor):
        is_part = value.layout is torch.strided and value.untyped_storage().nbytes() > value.nbytes
        if is_part and not isinstance(value, nn.Parameter):
            yield value
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(parts_in, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(parts_in, value))


def flat_rows(values: Tensor) -> Tensor:
    """Return each client's tensor as a vector, (K, its number of values).

    Example:
        >>> flat_rows(torch.zeros(3, 2, 2)).shape, flat_rows(torch.zeros(3)).shape
        (torch.Size([3, 4]), torch.Size([3, 1]))
    """
    return values[:, None].flatten(1)


def rows_finite(values: Tensor) -> Tensor:
    """Return whether all values of each client's tensor are finite.

    Shape:
        - values: (K, ...), a floating-point type
        - output: (K,) bool

    Example:
        >>> rows_finite(torch.tensor([[3.0, 3e38], [0.0, torch.inf]]))
        tensor([ True, False])
    """
    # Any number times 0 is 0; infinity and NaN times 0 are NaN.
    return flat_rows(values).mul(0.0).sum(1) == 0


def add_rows(total: Tensor, values: Tensor, weights: Sequence[float]) -> None:
    """Add w_k · values[k] to a total in place, one client after another, so that the sum has the
    same bits however the tensors lie.

    Args:
        total: the sum so far, (...).
        values: the clients' tensors, (K, ...), of any floating-point type.
        weights: K numbers.

    Example:
        >>> total = torch.zeros(2)
        >>> add_rows(total, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), [1.0, 0.5])
        >>> total
        tensor([2.5000, 4.0000])
    """
    is_one_type = values.dtype == total.dtype
    if is_one_type and values.device.type == "cpu" and set(weights) == {1.0}:
        # On the CPU this adds row after row, in one operation.
        total[None].index_add_(0, positions((0,) * len(values), values.device), values)
        return
    for row, weight in zip(values.unbind(), weights, strict=True):
        total.add_(row, alpha=weight)


@lru_cache(maxsize=64)
def positions(rows: tuple[int, ...], device: torch.device) -> Tensor:
    """Return positions as a tensor on a device. It is made once, because copying numbers to an
    accelerator takes longer than computing with them.

    Example:
        >>> positions((2, 0), torch.device("cpu"))
        tensor([2, 0])
    """
    return to_device(torch.tensor(rows, dtype=torch.long), device)
