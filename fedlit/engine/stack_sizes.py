"""The table that decides how many clients share a stack: numbers that were measured once, so that
which clients are stepped as one depends on shapes and bytes, never on a clock.
"""

from __future__ import annotations

import torch

from fedlit.client.client import FederatedClient
from fedlit.devices import runs_ahead
from fedlit.engine.layers import PlainNetwork

MAX_ROWS = 256
"""The largest number of rows in a batch for which stacking pays on a CPU. With more, the arithmetic
dominates, and threads are as fast."""

SMALLEST_STACK = 4
"""The number of clients of the same structure from which on stacking pays, if their networks have
plain layers only (:mod:`fedlit.engine.layers`)."""

SMALLEST_OF_ANY = 6
"""The same number for any other networks, which ``vmap`` stacks."""

LARGEST_STACK = 2**26
"""The most bytes of parameters that are stepped as one. Larger stacks start no fewer operations
worth the memory of their gradients."""

LARGEST_AHEAD = 2**31
"""The same number on a device that runs ahead, such as a GPU, which computes a large stack as fast
as it reads the stack's memory. This was not measured."""

SHARED_OUT = 32
"""The number of clients for each thread from which on threads step stacks of their own."""

LEAST_FOR_THREADS = 2**22
"""The product of rows and parameters of a step from which on steps run side by side on threads
(``benchmarks/threads.py``). Python's part of smaller steps is too large."""


def smallest_stack(client: FederatedClient) -> int:
    """Return the number of clients like this one from which on stacking pays."""
    plain = PlainNetwork.of_client(client) is not None
    return SMALLEST_STACK if plain else SMALLEST_OF_ANY


def parts_of_stack(size: int, clients: int, threads: int, device: torch.device) -> int:
    """Return into how many stacks clients of one structure are divided.

    Args:
        size: the bytes of the parameters of all of them.
        clients: their number.
        threads: the number of stacks that run side by side.
        device: the device of the clients.

    Example:
        >>> parts_of_stack(2**27, clients=10, threads=1, device=torch.device("cpu"))
        2
    """
    largest = LARGEST_AHEAD if runs_ahead(device) else LARGEST_STACK
    sharing_out = min(threads, clients // SHARED_OUT)
    return min(max(1, -(-size // largest), sharing_out), clients)
