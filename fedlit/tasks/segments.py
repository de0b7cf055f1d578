"""Sums over the rows of each of many clients, bit-for-bit those of one client's rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

_LONGEST = 2**14
"""The largest number of rows of clients that are summed side by side. PyTorch may divide a longer
sum among threads if it is computed alone, which gives other bits."""


class Segments:
    """Consecutive rows that belong to clients: the first ``lengths[0]`` rows to the first client,
    and so on.

    A sum of floats depends on the order of its terms, and PyTorch chooses this order by their
    number. So clients with equally many rows are summed together, as the rows of a matrix, and the
    bits are those of each client's own sum.

    Args:
        lengths: the number of rows of each client.

    Example:
        >>> Segments([2, 0, 3]).sum(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
        tensor([ 3.,  0., 12.])
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths: list[int] = list(lengths)
        self._single = len(self.lengths) == 1

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def rows(self) -> int:
        """The number of rows of all clients."""
        return sum(self.lengths)

    @cached_property
    def sizes(self) -> Tensor:
        """The number of rows of each client, (clients,) int64."""
        return torch.tensor(self.lengths, dtype=torch.long)

    @cached_property
    def starts(self) -> Tensor:
        """The position of each client's first row, (clients,) int64."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def client(self) -> Tensor:
        """The position of the client that each row belongs to, (rows,) int64."""
        return torch.repeat_interleave(torch.arange(len(self)), self.sizes, output_size=self.rows)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of each client's values.

        Shape:
            - values: (rows, ...)
            - output: (clients, ...)
        """
        return self._each(values, lambda block: block.sum(1))

    def sum_backwards(self, values: Tensor) -> Tensor:
        """Return the sum of each client's values from the last to the first; shapes as for
        ``sum``.
        """
        return self._each(values, lambda block: block.flip(1).sum(1))

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of each client's values, NaN without rows; shapes as for ``sum``."""
        return self._each(values, lambda block: block.mean(1))

    def varies(self, values: Tensor) -> Tensor:
        """Return whether a client's values differ, (clients,) bool. Each client has a row."""
        return self._each(values, lambda block: block.amin(1)) < self._each(
            values, lambda block: block.amax(1)
        )

    def _each(self, values: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what ``reduce`` returns for blocks (clients, rows of each) of the values."""
        if self._single:
            return reduce(values[None])
        results = None
        for clients, rows in self._blocks:
            block = reduce(values[rows])
            if results is None:
                results = block.new_zeros((len(self), *block.shape[1:]))
            results[clients] = block
        assert results is not None, "there is a client"
        return results

    @cached_property
    def _blocks(self) -> list[tuple[Tensor, Tensor]]:
        """The clients (k,) of each length, and their rows (k, length)."""
        blocks = []
        for length in sorted(set(self.lengths)):
            clients = (self.sizes == length).nonzero()[:, 0]
            for part in clients.split(len(clients) if length <= _LONGEST else 1):
                blocks.append((part, self.starts[part, None] + torch.arange(length)))
        return blocks

    def cumsum(self, values: np.ndarray) -> np.ndarray:
        """Return the cumulative sum of each client's values, (rows,). Of several clients, only
        that of whole numbers is exact.
        """
        total: np.ndarray = values.cumsum()
        if self._single:
            return total
        before = np.append(0, total)[self.starts.numpy()]
        of_clients: np.ndarray = total - before.repeat(self.lengths)
        return of_clients

    def spread(self, values: Tensor) -> Tensor:
        """Repeat each client's value, (clients,), for its rows: (rows,)."""
        if self._single:
            return values.expand(self.rows)
        return values[self.client]

    @cached_property
    def ends(self) -> Tensor:
        """The position of each client's last row, (clients,) int64; each client has a row."""
        return self.starts + self.sizes - 1

    def shares(self, values: np.ndarray) -> np.ndarray:
        """Return each value, (rows,), divided by that of the client's last row."""
        if self._single:
            return quotients(values, values[-1:])
        return quotients(values, values[self.ends.numpy()].repeat(self.lengths))

    def before(self, values: np.ndarray) -> np.ndarray:
        """Return the value of the row before, (rows,); 0 for a client's first row."""
        shifted = np.zeros_like(values)
        shifted[1:] = values[:-1]
        if not self._single:
            shifted[self.starts.numpy()] = 0
        return shifted

    def chosen(self, rows: Tensor) -> Segments:
        """Return the segments of some of the rows, given by their positions."""
        if self._single:
            return Segments([len(rows)])
        counts = torch.bincount(self.client[rows.cpu()], minlength=len(self))
        return Segments(counts.tolist())


def quotients(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Return quotients as PyTorch computes them, those of whole numbers in float32; NaN or infinite
    where the denominator is 0.

    Example:
        >>> quotients(np.array([1, 1]), np.array([2, 4])).tolist()
        [0.5, 0.25]
    """
    if numerators.dtype.kind == "i":
        numerators = numerators.astype(np.float32)
        denominators = denominators.astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_values: np.ndarray = numerators / denominators
    return of_values
