"""Reads and writes a module's tensors by name, as a whole or slice by slice.

A network's attribute ``axes`` names the slices of a tensor along one axis: the rows of an embedding
by columns or categories, the rows of an output layer by classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

from fedlit.errors import ConfigError
from fedlit.held import Held

Axes = Mapping[str, tuple[int, tuple[str, ...]]]
"""Tensor → (axis, names along it)."""


def slice_name(tensor: str, label: str) -> str:
    """Return the name of a slice.

    Example:
        >>> slice_name("head.weight", "Spruce")
        'head.weight[Spruce]'
    """
    return f"{tensor}[{label}]"


def named_axes(module: nn.Module) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the tensors in a module that name the slices along one of their axes.

    Raises:
        ConfigError: two slices of a tensor have one name, or there are more names than slices, or
            fewer.

    Example:
        >>> linear = nn.Linear(2, 3)
        >>> linear.axes = {"weight": (0, ("a", "b", "c"))}
        >>> named_axes(nn.Sequential(linear))
        {'0.weight': (0, ('a', 'b', 'c'))}
    """
    axes_of = {}
    for path, part in module.named_modules():
        axes = getattr(part, "axes", None)
        if not isinstance(axes, Mapping):
            continue
        for tensor, (axis, labels) in axes.items():
            name = f"{path}.{tensor}".removeprefix(".")
            size = getattr(part, tensor).shape[axis]
            twice = [label for label, number in Counter(labels).items() if number > 1]
            if twice or len(labels) != size:
                wrong = f"{len(labels)} names"
                if twice:
                    wrong = f"{twice[0]!r} twice"
                raise ConfigError(
                    f"{name}: expected {size} different names of slices along axis {axis}, found "
                    f"{wrong}; mend {type(part).__name__}.axes, or rename the column or class"
                )
            axes_of[name] = (axis, tuple(labels))
    return axes_of


class Live(Mapping[str, Tensor]):
    """Selects some of a module's tensors by name. Slices are views: what is written into them
    changes the module.

    Args:
        tensors: whole tensors, by name.
        names: the names of the selected tensors or slices.
        axes: the axis and the names of slices of each tensor that is cut.
        parts: where the module holds the tensors, if they are a module's.

    Attributes:
        names: the names of the selected tensors or slices.

    Example:
        >>> import torch
        >>> weight = torch.arange(6.0).view(2, 3)
        >>> live = Live({"head": weight}, ["head[a]", "head[c]"], {"head": (1, ("a", "b", "c"))})
        >>> live["head[c]"].zero_()
        tensor([0., 0.])
        >>> weight
        tensor([[0., 1., 0.],
                [3., 4., 0.]])
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor] | None = None,
        names: Sequence[str] = (),
        axes: Axes | None = None,
        parts: Held | None = None,
    ) -> None:
        self._tensors = tensors or {}
        self._parts = parts
        slices: dict[str, tuple[str, int, int]] = {}
        for tensor, (axis, labels) in (axes or {}).items():
            for position, label in enumerate(labels):
                slices[slice_name(tensor, label)] = (tensor, axis, position)
        self._slices = {name: slices[name] for name in names if name not in self._tensors}
        self.names = tuple(names)
        self._known = frozenset(names)

    def __getitem__(self, name: str) -> Tensor:
        return self.pick(self._tensors, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    @property
    def intact(self) -> bool:
        """Whether the module still holds these tensors."""
        return self._parts is None or self._parts.intact

    def pick(self, tensors: Mapping[str, Tensor], name: str) -> Tensor:
        """Return the tensor or slice with this name from other tensors of the same names and
        shapes, such as gradients.
        """
        if name not in self._slices:
            return tensors[name]
        tensor, axis, position = self._slices[name]
        return tensors[tensor].select(axis, position)

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the named tensors and slices of other tensors, as far as they exist there. Slices
        are views.
        """
        return {name: self.pick(tensors, name) for name in self if self.tensor_of(name) in tensors}

    @property
    def by_name(self) -> Mapping[str, Tensor]:
        """The selected tensors and possibly others; looked up faster than here if none is cut."""
        return self if self._slices else self._tensors

    def is_slice(self, name: str) -> bool:
        """Return whether a name is the name of a slice."""
        return name in self._slices

    def tensor_of(self, name: str) -> str:
        """Return the name of the tensor that a name belongs to."""
        if name not in self._slices:
            return name
        return self._slices[name][0]

    def tensor(self, name: str) -> Tensor:
        """Return a whole tensor."""
        return self._tensors[name]

    def size_of(self, tensor: str) -> int:
        """Return the number of names that a tensor has: its number of slices if it is cut into
        slices, otherwise one.
        """
        return next(
            (self._tensors[t].shape[axis] for t, axis, _ in self._slices.values() if t == tensor), 1
        )

    def whole(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return named values as whole tensors. If a value is a slice, its tensor is a copy of the
        module's with the slice put in.
        """
        tensors: dict[str, Tensor] = {}
        for name, value in state.items():
            if name not in self._slices:
                tensors[name] = value
                continue
            tensor, axis, position = self._slices[name]
            if tensor not in tensors:
                tensors[tensor] = self._tensors[tensor].detach().clone()
            tensors[tensor].select(axis, position).copy_(value)
        return tensors


class Detached(Mapping[str, Tensor]):
    """Tensors without their gradients, which share the memory. Each is made when it is first read,
    because most rules read all clients' tensors at once instead.

    Args:
        live: the tensors.

    Example:
        >>> import torch
        >>> weight = nn.Parameter(torch.ones(2))
        >>> Detached(Live({"weight": weight}, ["weight"]))["weight"]
        tensor([1., 1.])
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self._read: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._read:
            self._read[name] = self.live[name].detach()
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.live.names)

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, name: object) -> bool:
        return name in self.live


def live_of(module: nn.Module, tensors: Mapping[str, Tensor], names: Sequence[str]) -> Live:
    """Select the tensors of a module by name."""
    axes: Axes = {}
    if any(name not in tensors for name in names):
        axes = named_axes(module)
    return Live(tensors, names, axes, Held(module))
