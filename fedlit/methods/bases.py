"""The bases of methods: clients that are pulled towards the state that they received, that have two
copies of a network, or that take no steps.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.methods.cases import PeriodInput, cases_of
from fedlit.nn.network import NetworkFactory
from fedlit.seeding import repeat_draws
from fedlit.sharing import State
from fedlit.spec import ClientSpec

CHUNK = 1024
"""Rows whose gradient is computed at a time when a model is adapted."""


class Anchored(FederatedClient):
    """Remembers the result of the last exchange, in buffers that are saved in the checkpoint and
    never sent.

    A subclass calls :meth:`anchor` in its ``__init__``, and reads :meth:`pairs` or :meth:`pulled`
    in its loss. A subclass that needs no anchor (its coefficient is 0) does not call it, and is a
    plain client bit for bit.

    Attributes:
        received: w_t, a buffer for each parameter, because it is not known before training which of
            them are federated.
    """

    adapts = False
    private: tuple[str, ...] = ("received",)
    received: nn.Module

    def anchor(self, names: Iterable[str] | None = None) -> None:
        """Create the buffers for received values.

        Args:
            names: the names of parameters; all that the client has so far if None.
        """
        parameters = dict(self.named_parameters())
        if names is not None:
            parameters = {name: parameters[name] for name in names}
        self.received = zero_buffers(parameters)

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that nothing anchors the client if nothing is federated."""
        if self.federated or not hasattr(self, "received"):
            return []
        return [
            f"{type(self).__name__} pulls federated parameters only, and none is federated; see "
            "exchange.federated"
        ]

    def on_receive(self, received: State) -> None:
        """Remember the received values. Other tensors keep their remembered values."""
        if not hasattr(self, "received"):
            return
        for name, w_t in self._federated.of(by_name(self.received)).items():
            if name in received:
                w_t.copy_(received[name])

    def pairs(self, parameters: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Map each federated name to (w, w_t).

        Args:
            parameters: w, under the names of the federated parameters: the client's own, or those
                of another copy of its network.
        """
        received = self._federated.of(by_name(self.received))
        return {name: (w, received[name]) for name, w in self._federated.of(parameters).items()}

    def pulled(self, loss: Tensor, strength: float, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return loss + strength/2 · ‖w − w_t‖² over the federated names; the loss itself if the
        strength is 0.
        """
        if not strength:
            return loss
        return pull(loss, strength, self.pairs(parameters).values())


def pull(loss: Tensor, strength: float, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return loss + strength/2 · ‖a − b‖² over the pairs (a, b); the loss itself if there are no
    pairs.
    """
    squares = [(a - b).square().sum() for a, b in pairs]
    if not squares:
        return loss
    return loss + strength / 2 * torch.stack(squares).sum()


def zero_buffers(like: Mapping[str, Tensor]) -> nn.Module:
    """Return a module whose buffers are zeros of the given shapes, under names that a module allows
    (``core/weight`` for ``core.weight``).
    """
    module = nn.Module()
    for name, value in like.items():
        module.register_buffer(name.replace(".", "/"), torch.zeros_like(value))
    return module


def by_name(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers of :func:`zero_buffers` by the names that were given."""
    return {name.replace("/", "."): value for name, value in module.named_buffers()}


class Fitted(FederatedClient):
    """A client that learns only in exchanges, from its training rows as a whole. It takes no steps,
    so that optimizer, batches and their sizes have no effect.

    A model of single labels fits the time to an event by its person-periods: it reads
    :attr:`cases`, which are rows for any other task.

    Args:
        spec: the client's description.

    Attributes:
        period_input: how the period of a case becomes inputs.
        cases: what the model is fitted to, with the description that the model needs.
    """

    automatic_optimization = False
    takes_steps = False
    weighs_rows = False
    period_input: PeriodInput = "indicators"

    def __init__(self, spec: ClientSpec) -> None:
        super().__init__(spec, None)
        self.cases = cases_of(spec, self.period_input)
        self._rows: Rows | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> None:  # type: ignore[override]
        """Do nothing."""

    def configure_optimizers(self) -> None:
        """Return None: no optimizer is needed."""

    def on_rows(self, rows: Rows) -> None:
        """Keep the training rows."""
        self._rows = rows


class TwoCopies(FederatedClient):
    """A client with a federated copy w of the network and a personal copy v, which is never sent.
    It predicts by v.

    The federated copy has the names of any client's network (``encoder``, ``core``, ``head``); the
    other is ``personal``. Both start equal and see the same dropout; each has its own statistics of
    normalisation, and its gradient is clipped by itself, as if it were alone.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.
    """

    private: tuple[str, ...] = ("personal",)

    def __init__(self, spec: ClientSpec, network: NetworkFactory, **kwargs: Any) -> None:
        super().__init__(spec, network, **kwargs)
        self.personal = self.make_network(network)
        self.personal.initialised_as = ""  # type: ignore[assignment]  # v starts equal to w
        self.no_decay = (*self.no_decay, *map(_of_personal, self.no_decay))

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that one copy would be enough if nothing is federated."""
        if self.federated:
            return []
        method = type(self).__name__
        return [f"{method} trains two copies and shares neither: nothing is federated"]

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of v."""
        outputs: Tensor = self.personal(x)
        return outputs

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of w plus what v minimises. Their gradients have no parameter in
        common.
        """
        again = repeat_draws(self.device)
        federated = self.loss(FederatedClient.forward(self, x), y)
        again()
        return federated + self.personal_objective(x, y)

    def personal_objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return what v minimises: its loss."""
        return self.loss(self(x), y)

    def clipped_apart(self) -> list[list[str]]:
        """Return the parameters of each copy separately."""
        names = [name for name, _ in self.named_parameters()]
        personal = [name for name in names if name.startswith("personal.")]
        return [[name for name in names if name not in personal], personal]


def _of_personal(pattern: str) -> str:
    """Return a pattern for the network as a pattern for its personal copy."""
    if pattern.startswith("!"):
        return f"!personal.{pattern[1:]}"
    return f"personal.{pattern}"
