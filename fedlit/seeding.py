"""Random numbers as a function of (seed, names, counters). Nothing depends on what was drawn
before.

Adding or reordering clients therefore changes no other client, and a resumed run needs no saved
generator state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from fedlit.devices import runs_ahead, to_device


def derive_seed(seed: int, *keys: str | int) -> int:
    """Return a 63-bit seed for one purpose.

    Args:
        seed: the run's seed.
        keys: the purpose of the random numbers, for example a client's name and a step.

    Example:
        >>> derive_seed(8, "rows", "neota", 0) == derive_seed(8, "rows", "neota", 0)
        True
        >>> derive_seed(8, "rows", "neota", 0) == derive_seed(8, "rows", "neota", 1)
        False
    """
    text = "\x1f".join(str(part) for part in (seed, *keys))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def isolated_rng(seed: int, device: torch.device | None = None) -> Iterator[Callable[[], bool]]:
    """Seed the default generators of the CPU and of ``device`` inside the block, and restore their
    states afterwards.

    It yields a function that returns, inside the block, whether numbers were drawn from the CPU's
    generator.

    The default generators are seeded because torch's dropout does not accept a generator.
    """
    accelerator = device if device is not None and device.type != "cpu" else None
    # not torch.manual_seed, which would reseed every accelerator of the machine
    cpu = torch.default_generator.get_state()
    module = torch.get_device_module(accelerator) if accelerator is not None else None
    on_device = module.get_rng_state() if module is not None else None
    torch.default_generator.manual_seed(seed)
    if module is not None:
        module.manual_seed(seed)
    try:
        seeded = torch.default_generator.get_state()
        yield lambda: not torch.equal(torch.default_generator.get_state(), seeded)
    finally:
        torch.default_generator.set_state(cpu)
        if module is not None:
            module.set_rng_state(on_device)


class Counters:
    """Draws for clients that are stepped as one, on their device and for all of them at once. The
    numbers of a client are a function of its seed and of how many it has drawn: those of SplitMix64
    (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators").

    Args:
        seeds: one for each client.
        device: the device.

    Example:
        >>> both = Counters([1, 2], torch.device("cpu")).integers(3)
        >>> torch.equal(both[1:], Counters([2], torch.device("cpu")).integers(3))
        True
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self._seeds = to_device(torch.tensor(seeds, dtype=torch.int64), device)[:, None]
        self._drawn = 0

    def integers(self, count: int) -> Tensor:
        """Return the next integers of each client, uniform over all of int64: (clients, count)."""
        first = self._drawn + 1
        self._drawn += count
        numbers = torch.arange(first, first + count, device=self._seeds.device)
        mixed = self._seeds + numbers * _signed(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = _shifted(mixed, shift).mul_(_signed(factor))
        return _shifted(mixed, 31)

    def chosen(self, like: Tensor, share: float) -> Tensor:
        """Return 1 for a share of the numbers, at random, and 0 for the others.

        Args:
            like: (clients, …), whose shape and type the result has.
            share: the share of ones.
        """
        bits = 24
        drawn = (self.integers(like[0].numel()) >> (64 - bits)) & ((1 << bits) - 1)
        return (drawn < share * (1 << bits)).to(like.dtype).view(like.shape)

    def get_state(self) -> int:
        """Return how many numbers each client has drawn."""
        return self._drawn

    def set_state(self, drawn: int) -> None:
        """Let the next numbers be those that follow some."""
        self._drawn = drawn


def _signed(number: int) -> int:
    """Return the int64 of the same bits as an unsigned integer."""
    return number - 2**64 if number >= 2**63 else number


def _shifted(numbers: Tensor, shift: int) -> Tensor:
    """Return z xor (z >> shift), where zeros enter from the left."""
    return numbers ^ ((numbers >> shift) & ((1 << (64 - shift)) - 1))


Draws = tuple[torch.Generator, ...] | tuple[Counters]
"""What draws for clients that are stepped as one: a generator for each, or counters for all."""


def draws_of(seeds: Sequence[int], device: torch.device) -> Draws:
    """Return what draws for clients that are stepped as one.

    Args:
        seeds: one for each client.
        device: their device. On the CPU each draws as it would alone; on a GPU, that would start
            operations for every client.
    """
    if runs_ahead(device):
        return (Counters(seeds, device),)
    return tuple(torch.Generator().manual_seed(seed) for seed in seeds)


GENERATORS: ContextVar[Draws] = ContextVar("generators", default=())
"""What draws for clients that are stepped as one, in place of the default generator."""


def repeat_draws(device: torch.device | None = None) -> Callable[[], None]:
    """Remember the states of the generators of the CPU and of ``device``, and return a function
    that restores them. What follows its call draws the same numbers again (dropout drops the same
    units).

    Example:
        >>> again = repeat_draws()
        >>> first = torch.rand(2)
        >>> again()
        >>> torch.equal(torch.rand(2), first)
        True
    """
    cpu = torch.default_generator.get_state()
    generators: Sequence[torch.Generator | Counters] = GENERATORS.get()
    states: list[Any] = [generator.get_state() for generator in generators]
    module = (
        torch.get_device_module(device) if device is not None and device.type != "cpu" else None
    )
    on_device = module.get_rng_state() if module is not None else None

    def again() -> None:
        # A generator belongs to all threads: where nothing was drawn there is nothing to put back.
        if not torch.equal(torch.default_generator.get_state(), cpu):
            torch.default_generator.set_state(cpu)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        if module is not None:
            module.set_rng_state(on_device)

    return again


@torch.no_grad()
def initialise(module: nn.Module, seed: int) -> None:
    """Draw every parameter again, each as a function of the seed and the parameter's name.

    Each submodule with a ``reset_parameters`` method is reset under a seed derived from its own
    name, so parameters of equal name and shape start equal in modules that differ elsewhere (other
    input widths, other heads).

    NOTE[DIFF]: PyTorch draws the bias of a linear or convolution layer from ±1/√(input width).
    Clients whose input widths differ could then not start equal; here these biases start at zero.

    If a submodule has a method ``draw(tensor's name, part)``, its tensors with named axes
    (``axes``) are drawn slice by slice, each as a function of (seed, the tensor's name, the slice's
    name). Two clients that share some columns then start equal in these.

    A submodule with an attribute ``initialised_as`` starts equal to the submodule of that name (the
    empty name is the module itself), for example a second copy of a network.

    Args:
        module: a client; changed in place.
        seed: the run's seed.

    Example:
        >>> narrow = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3))
        >>> wide = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3))
        >>> initialise(narrow, seed=8)
        >>> initialise(wide, seed=8)
        >>> torch.equal(narrow[1].weight, wide[1].weight)
        True
    """
    for name, child in module.named_modules():
        # torch's own attention and transformer modules have the method under a private name
        reset = getattr(child, "reset_parameters", None) or getattr(
            child, "_reset_parameters", None
        )
        if not callable(reset):
            continue
        with isolated_rng(derive_seed(seed, "initial", _initial_name(module, name))):
            reset()
        if callable(draw := getattr(child, "draw", None)):
            for tensor, (axis, labels) in child.axes.items():
                for label, part in zip(labels, getattr(child, tensor).unbind(axis), strict=True):
                    with isolated_rng(
                        derive_seed(seed, "initial", _initial_name(module, name), tensor, label)
                    ):
                        draw(tensor, part)
        if isinstance(child, nn.Linear | nn.modules.conv._ConvNd) and child.bias is not None:
            child.bias.zero_()


def _initial_name(module: nn.Module, name: str) -> str:
    """Return the name by which a submodule's parameters are drawn."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        alias = getattr(module.get_submodule(".".join(parts[:depth])), "initialised_as", None)
        if alias is not None:
            return ".".join([*([alias] if alias else []), *parts[depth:]])
    return name
