"""Computes stacked networks of plain layers by one batched operation for each layer.

``vmap`` stacks any network, and takes some fifty microseconds of Python for each operation. A small
network's operations take less than that themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlit.client.client import FederatedClient, has_hook
from fedlit.nn.native.stacked import StackedDropout
from fedlit.seeding import Draws
from fedlit.tasks.base import Task

LARGEST_NETWORK = 2**16
"""The largest number of parameters of a client whose network is computed here. The products of
larger ones take longer than the Python around them, and the kernels that ``vmap`` uses compute them
faster."""

SAME_FOR_ALL = ("forward", "objective", "loss", "training_step")
"""Methods that a client must have unchanged from FederatedClient."""

ACTIVATIONS = frozenset(
    {
        nn.ELU,
        nn.GELU,
        nn.Hardtanh,
        nn.Identity,
        nn.LeakyReLU,
        nn.ReLU,
        nn.SELU,
        nn.SiLU,
        nn.Sigmoid,
        nn.Softplus,
        nn.Tanh,
    }
)
"""Modules that compute each number by itself, and so need no stacking."""


@dataclass(frozen=True)
class StackValues:
    """What the layers of a stack compute with.

    Attributes:
        tensors: the stacked parameters and buffers, by name.
        generators: what draws for each client.
        row_weight: (clients, rows), 0 for the rows of zeros at the end of shorter batches; None if
            all batches have the same length.
    """

    tensors: dict[str, Tensor]
    generators: Draws = ()
    row_weight: Tensor | None = None


Layer = Callable[[Tensor, StackValues], Tensor]
"""Computes a layer of all clients: (clients, features, rows) → (clients, features, rows). Rows come
last because the gradient of a weight then has the layout of the weight."""


def _linear(module: nn.Linear, name: str) -> Layer:
    weight = f"{name}.weight"
    bias = f"{name}.bias"

    def without_bias(x: Tensor, stack: StackValues) -> Tensor:
        return stack.tensors[weight] @ x

    def with_bias(x: Tensor, stack: StackValues) -> Tensor:
        tensors = stack.tensors
        return torch.baddbmm(tensors[bias].unsqueeze(-1), tensors[weight], x)

    return without_bias if module.bias is None else with_bias


def _dropout(module: nn.Dropout, name: str) -> Layer:
    def layer(x: Tensor, stack: StackValues) -> Tensor:
        if module.training and 0 < module.p < 1 and stack.generators:
            # A client alone draws row by row.
            dropped: Tensor = StackedDropout.apply(x.mT, module.p, stack.generators)[0]
            return dropped.mT
        return functional.dropout(x, module.p, module.training)

    return layer


def _norm(module: nn.BatchNorm1d, name: str) -> Layer:
    def layer(x: Tensor, stack: StackValues) -> Tensor:
        mean, var, weight, bias = (
            stack.tensors[f"{name}.{key}"].view(-1)
            for key in ("running_mean", "running_var", "weight", "bias")
        )
        if module.training:
            stack.tensors[f"{name}.num_batches_tracked"].add_(1)
        # Each feature of each client is a channel.
        out = functional.batch_norm(
            x.reshape(1, -1, x.shape[-1]),
            mean,
            var,
            weight,
            bias,
            module.training,
            module.momentum or 0.0,
            module.eps,
        )
        return out.view(x.shape)

    return layer


LAYERS: Mapping[type[nn.Module], Callable[..., Layer]] = {
    nn.Linear: _linear,
    nn.Dropout: _dropout,
    nn.BatchNorm1d: _norm,
}
TENSORS: Mapping[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("weight",),
    nn.BatchNorm1d: ("running_mean", "running_var", "weight", "bias", "num_batches_tracked"),
}
"""The tensors that a layer needs. Where one is missing (it is not there, or is another layer's
too), ``vmap`` computes the stack."""


@dataclass(frozen=True)
class PlainNetwork:
    """The network and the loss of clients that share a stack, as a sequence of layers.

    Attributes:
        layers: the layers, in the order in which they are applied.
        task: whose loss it is.
        draws: whether a layer draws random numbers.
        by_rows: whether each row is computed by itself. Batches may then end in rows of zeros.
    """

    layers: Sequence[Layer]
    task: Task
    draws: bool
    by_rows: bool

    def outputs(self, x: Tensor, stack: StackValues) -> Tensor:
        """Return the outputs (clients, rows, outputs), given rows (clients, rows, features)."""
        x = x.mT
        for layer in self.layers:
            x = layer(x, stack)
        return x.mT

    def losses(self, x: Tensor, y: Tensor, stack: StackValues) -> Tensor:
        """Return the objective of each client, (clients,)."""
        outputs = self.outputs(x, stack).flatten(0, 1)
        losses = self.task.row_losses(outputs, y.flatten(0, 1))
        assert losses is not None  # of_client
        losses = losses.view(y.shape)
        weight = stack.row_weight
        class_weight = stack.tensors.get("class_weight")
        if class_weight is not None:
            of_classes = class_weight.gather(1, y)
            weight = of_classes if weight is None else weight * of_classes
        if weight is None:
            return losses.mean(1)
        return (losses * weight).sum(1) / weight.sum(1)

    @classmethod
    def of_client(cls, client: FederatedClient) -> PlainNetwork | None:
        """Return the network of a client and others like it; None if it has anything but plain
        layers or a loss that is not a mean over rows, or is large.

        Example:
            >>> from fedlit import MLP
            >>> from fedlit.spec import ClientSpec
            >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
            >>> len(PlainNetwork.of_client(FederatedClient(spec, MLP)).layers)
            7
        """
        if any(has_hook(client, method) for method in SAME_FOR_ALL):
            return None
        task = client.spec.task
        if type(task).row_losses is Task.row_losses:
            return None
        if sum(parameter.numel() for parameter in client.parameters()) > LARGEST_NETWORK:
            return None
        tensor_names = {*dict(client.named_parameters()), *dict(client.named_buffers())}
        layers = []
        draws = False
        by_rows = True
        for part in ("encoder", "core", "head"):
            for name, module in _flat(part, getattr(client, part)):
                if not _is_plain(name, module, tensor_names):
                    return None
                make = LAYERS.get(type(module))
                layers.append(_activation(module) if make is None else make(module, name))
                draws = draws or type(module) is nn.Dropout
                by_rows = by_rows and type(module) is not nn.BatchNorm1d
        return cls(layers, task, draws, by_rows)


def _flat(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return the modules that sequences consist of, by name."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    # named_children leaves out a module that comes a second time.
    for key, child in module._modules.items():
        assert child is not None
        yield from _flat(f"{name}.{key}", child)


def _is_plain(name: str, module: nn.Module, tensor_names: set[str]) -> bool:
    """Return whether a module is a plain layer, all of whose tensors are among those of ``tensor_names``."""
    kind = type(module)
    if "forward" in vars(module) or (isinstance(module, nn.BatchNorm1d) and not module.momentum):
        return False
    if kind in ACTIVATIONS:
        return not getattr(module, "inplace", False)
    tensors = [f"{name}.{key}" for key in TENSORS.get(kind, ())]
    if getattr(module, "bias", None) is not None:
        tensors.append(f"{name}.bias")
    return kind in LAYERS and tensor_names.issuperset(tensors)


def _activation(module: nn.Module) -> Layer:
    return lambda x, stack: module(x)
