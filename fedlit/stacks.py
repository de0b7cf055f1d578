"""Stacks: tensors of several clients that are slices of one tensor, with the client as its first
dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def base_of(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the tensor of which some tensors are consecutive slices, so that one operation reads
    or writes all of them.

    Tensors are recognised by where they lie in memory, and not by how they were made: whoever
    replaces a tensor's memory thereby takes it out of the stack.

    Args:
        tensors: one tensor of each client, in the order in which they shall lie.

    Returns:
        A contiguous view ``base`` of their memory with ``base[i]`` in the place of ``tensors[i]``,
        of shape (len(tensors), ...) and without a gradient; None if the tensors lie otherwise, are
        of several types or shapes, or hold nothing.

    Example:
        >>> stacked = torch.arange(6.0).view(3, 2)
        >>> rows = list(stacked)
        >>> base_of(rows).tolist()
        [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
        >>> base_of([rows[0], rows[2]]) is None
        True
    """
    if not tensors:
        return None
    first = tensors[0]
    if first.layout is not torch.strided or not first.numel():
        return None
    shape = first.shape
    dtype = first.dtype
    size = first.numel() * first.element_size()
    address = first.data_ptr()
    if not address:
        return None  # a tensor without memory, as on the device "meta"
    for tensor in tensors:
        if tensor.data_ptr() != address or not tensor.is_contiguous():
            return None
        if tensor.dtype != dtype or tensor.shape != shape:
            return None
        address += size
    storage = first.untyped_storage()
    if address > storage.data_ptr() + storage.nbytes():
        return None  # they are neighbours in memory by chance
    return first.detach().as_strided((len(tensors), *shape), (first.numel(), *first.stride()))
