"""The federated part of a client as a function of its parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedlit.errors import ConfigError
from fedlit.nn.blocks import FrozenBatchNorm
from fedlit.sharing import State
from fedlit.tasks.base import one_of

CHAIN = ("encoder", "core", "head")


class FederatedFunction:
    """The parts of a client (encoder, core, head) from the first to the last that has federated
    parameters, as a function of these parameters.

    It holds nothing that a client has learnt. Private parameters in between have their initial
    values, which are the same at all clients; batch normalisation uses the statistics of the
    function's inputs; dropout is off.

    Args:
        modules: maps each part's name to its module, in the order in which they are called; the
            modules are copied.
        federated: the names of the federated parameters.
        shape: of one input.
        bounded: makes probabilities of the outputs of a head, whatever comes before their last
            dimension.

    Attributes:
        parameters: the names of the federated parameters that the function depends on.
        shape: of one input.
        bounded: see above.
        activations: the number of values that its layers compute for one input.
        ends_in_head: whether its outputs are the client's logits.

    Example:
        >>> function = FederatedFunction({"core": nn.Linear(2, 1, bias=False)}, ["core.weight"], (2,))
        >>> function({"core.weight": torch.tensor([[1.0, 2.0]])}, torch.tensor([[3.0, 4.0]]))
        tensor([[11.]])
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        federated: Iterable[str],
        shape: Sequence[int],
        bounded: Callable[[Tensor], Tensor] = one_of,
    ) -> None:
        self.bounded = bounded
        self._chain = nn.ModuleDict(
            {name: copy.deepcopy(module) for name, module in modules.items()}
        )
        self._chain.eval().requires_grad_(False)
        for module in self._chain.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(
                module, FrozenBatchNorm
            ):
                # A normalisation without statistics uses those of its input.
                module.track_running_stats = False
                module.running_mean = module.running_var = module.num_batches_tracked = None
        parameter_names = {name for name, _ in self._chain.named_parameters()}
        self.parameters = tuple(name for name in federated if name in parameter_names)
        self.shape = tuple(shape)
        self.activations = self._count()
        self.ends_in_head = CHAIN[-1] in modules

    @torch.no_grad()
    def _count(self) -> int:
        sizes: list[int] = []
        leaves = [module for module in self._chain.modules() if not list(module.children())]
        hooks = [
            leaf.register_forward_hook(lambda _, __, out: sizes.append(out.numel() // 2))
            for leaf in leaves
        ]
        self({}, torch.zeros(2, *self.shape))
        for hook in hooks:
            hook.remove()
        return sum(sizes)

    def to(self, device: torch.device) -> FederatedFunction:
        """Move the function to a device and return it."""
        self._chain.to(device)
        return self

    def __call__(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs (n, …) for inputs (n, *shape). ``state`` holds ``parameters``, and may
        hold more.
        """
        for name, module in self._chain.items():
            prefix = f"{name}."
            parameters = {
                key.removeprefix(prefix): state[key]
                for key in self.parameters
                if key in state and key.startswith(prefix)
            }
            x = functional_call(module, parameters, (x,))
        return x

    def stacked(self, states: State, x: Tensor) -> Tensor:
        """Return the outputs (m, n, …) of m functions at once, for tensors (m, …) by name and
        inputs (m, n, *shape).
        """
        parameters = {name: states[name] for name in self.parameters}
        outputs: Tensor = vmap(self.__call__)(parameters, x)
        return outputs


def _span(federated: Sequence[str]) -> tuple[int, int]:
    """Return the first and the last part of the chain that have federated parameters."""
    first_parts = {key.partition(".")[0] for key in federated}
    positions = [position for position, name in enumerate(CHAIN) if name in first_parts]
    misplaced = [
        key for key in federated if key.partition(".")[0] not in CHAIN or key.endswith("]")
    ]
    if not positions or misplaced:
        raise ConfigError(
            "exchange.rule: this rule calls the federated part as a function, expected whole "
            f"tensors within encoder, core and head, found {', '.join(misplaced[:3]) or 'nothing'}; "
            "choose another rule or other patterns in exchange.federated, or set "
            "exchange.by_name: []"
        )
    return positions[0], positions[-1]


def entering(client: nn.Module, federated: Sequence[str], x: Tensor) -> Tensor:
    """Return the input of a client's federated part for an input ``x`` of its encoder."""
    for name in CHAIN[: _span(federated)[0]]:
        x = getattr(client, name)(x)
    return x


@torch.no_grad()
def function_of(
    client: nn.Module,
    inputs: int,
    federated: Sequence[str],
    bounded: Callable[[Tensor], Tensor] = one_of,
) -> FederatedFunction:
    """Return the federated part of a client as a function.

    Args:
        client: a client with an encoder, a core and a head. It must not be trained yet, because
            private parameters within the part keep the values that they have here.
        inputs: the width of its input.
        federated: the names of its federated parameters.
        bounded: see :class:`FederatedFunction`.

    Raises:
        ConfigError: there are federated parameters outside of encoder, core and head, or none
            within them.
    """
    first, last = _span(federated)
    x = entering(copy.deepcopy(client).eval(), federated, torch.zeros(2, inputs))
    chain = {name: getattr(client, name) for name in CHAIN[first : last + 1]}
    return FederatedFunction(chain, federated, x.shape[1:], bounded)
