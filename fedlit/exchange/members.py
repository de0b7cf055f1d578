"""The clients of a federation, as its exchange, scoring and personal parts see them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.module import FederatedData
from fedlit.spec import ClientSpec
from fedlit.tasks.scores import Score


class Members(Protocol):
    """The interface of ``fedlit.train.clients.Clients`` that an exchange, scoring and
    personal parts use.

    Attributes:
        seed: the run's seed.
        names: the names of all clients, also in other processes.
        data: the rows of the clients.
        scores_of: maps each client, of any process, to its scores, the main one first.
        step: the number of aligned steps that are done.
        scope_of_scoring: makes the context in which a client is scored.
        device: the device of the clients.
        clients: the clients of this process, by name.
        cohort: the names of all clients that take part in the coming round; None for all.
        last_step: the number of aligned steps with which the federation is planned to end; None if
            it is not known.
        tuning: whether the clients are being fine-tuned after the federation.
    """

    seed: int
    names: tuple[str, ...]
    data: FederatedData
    scores_of: Mapping[str, tuple[Score, ...]]
    step: int
    scope_of_scoring: Callable[[], AbstractContextManager[None]]
    device: torch.device
    cohort: frozenset[str] | None
    last_step: int | None

    @property
    def clients(self) -> Mapping[str, FederatedClient]:
        """See the class."""

    @property
    def tuning(self) -> bool:
        """See the class."""

    @property
    def active(self) -> Mapping[str, FederatedClient]:
        """The clients here that take part in this round."""

    @property
    def steps(self) -> Mapping[str, int]:
        """Maps each client that reported it to the largest number of optimizer steps that it takes
        in an epoch.
        """

    def end_exchange(self) -> None:
        """Called after an epoch's last step and its exchange, before validation and checkpoint."""

    def fresh(self, spec: ClientSpec, seed: int | None = None) -> FederatedClient:
        """Return a client as it was before training, or as it would be with another seed."""

    def rows(self, client: str) -> Rows:
        """Return a client's training rows."""

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give each client's facts to all processes."""

    def record(self, values: Mapping[str, Tensor | float]) -> None:
        """Log scalars at the end of this epoch."""
