"""What a rule is: from the clients' updates to what each client receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedlit.sharing import State

__all__ = ["Rule", "Update"]


@dataclass(frozen=True)
class Update:
    """What one client sends.

    Attributes:
        state: its federated tensors by name (live: a rule must not change them in place).
        rows: number of its training rows.
        published: what the client's ``publish`` returned.
        finite: on an accelerator, whether all values are finite, a boolean on the device; a rule that takes masks
            leaves out the update where it is false. None where such updates have been left out before.
    """

    state: State
    rows: int
    published: State = field(default_factory=dict)
    finite: Tensor | None = None


class Rule(ABC):
    """The mathematics of an exchange.

    A rule sees named tensors only. One that must remember something between exchanges keeps it in ``state_dict`` /
    ``load_state_dict``, which go into the checkpoint.

    Attributes:
        takes_masks: whether it minds :attr:`Update.finite`, so that an exchange on an accelerator need not wait.
    """

    takes_masks = False

    @abstractmethod
    def __call__(self, updates: Mapping[str, Update], receivers: Mapping[str, tuple[str, ...]]) -> Mapping[str, State]:
        """What each client receives.

        Args:
            updates: client → update, ordered by client name; clients whose update was not finite are left out.
            receivers: client → names of its federated tensors; all clients, those left out too.

        Returns:
            client → named tensors. A name that is missing leaves the client's tensor as it is. Clients may share
            tensors.
        """

    def state_dict(self) -> dict[str, Any]:
        """What the rule remembers: tensors, numbers, strings, lists and dictionaries of these."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        if state:
            raise TypeError(f"{type(self).__name__} saves {sorted(state)} but does not restore it; add load_state_dict")
