"""The guard checks clients' updates before a rule does, so that one client's numbers cannot ruin all others."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.far import REMEMBERED, Far, find_far, norms_of
from fedlit.exchange.rule import DOWN, Update
from fedlit.sharing import Sharing, State, all_finite

GuardMode = Literal["leave_out", "watch"]
DONE = ("left_out", "watched")
"""What is done about a client whose update is far, or about one that is suspicious."""


@dataclass(frozen=True)
class Verdict:
    """The findings of a guard in a round.

    Attributes:
        left_out: maps each client that was left out to how many times as large as usual its update is.
        watched: the same for clients that are only named.
        grown: clients that were judged by their own history; their size is how much they have grown.
        doubt: watched clients among which one is wrong, but it cannot be decided which.
    """

    left_out: Mapping[str, float] = field(default_factory=dict)
    watched: Mapping[str, float] = field(default_factory=dict)
    doubt: Sequence[str] = ()
    grown: Sequence[str] = ()

    def to_dict(self, clients: Collection[str]) -> dict[str, Any]:
        """Return the findings about some clients, as keyword arguments of this class and as plain data."""
        return {
            key: {name: found[name] for name in found if name in clients}
            if isinstance(found, Mapping)
            else [name for name in found if name in clients]
            for key, found in vars(self).items()
        }


class Guard:
    """Compares clients' updates with each other and with their own history (see :mod:`fedlit.exchange.far`).

    It works where the rule is applied, and remembers what each client was given: an update is the difference between
    what a client sends and what it was given. Before the first exchange nothing was given, so the parameters themselves
    are compared.

    Args:
        mode: ``leave_out`` leaves a client whose update is far from the others' out of the rule, and names suspicious
            clients; ``watch`` only names clients, which protects nobody.

    Attributes:
        given: maps each client to the tensors that it received last.
        steps: maps each client to the number of optimizer steps that it takes in an epoch; a client with more steps may
            move further.

    Raises:
        ConfigError: there is no such mode.
    """

    def __init__(self, mode: GuardMode = "leave_out") -> None:
        if mode not in (modes := get_args(GuardMode)):
            raise ConfigError(f"exchange.guard: expected {', '.join(modes)}, true or false, found {mode!r}")
        self.mode: GuardMode = mode
        self.steps: Mapping[str, int] = {}
        self.given: dict[str, State] = {}
        self._unknown: set[str] = set()
        self._past: list[tuple[Tensor, Tensor]] = []

    def _not_given(self, sharing: Sharing) -> set[str]:
        """Return parameters that some client has but was never given; they are measured against 0 at all clients."""
        return {
            name
            for client, names in sharing.parameters.items()
            if not (given := self.given.get(client, {})).keys() >= set(names)
            for name in names
            if name not in given
        }

    def judge(self, updates: Mapping[str, Update], sharing: Sharing, finite: Mapping[str, Tensor]) -> Far:
        """Find the clients whose update is far, over all clients of the federation in the order of their names. No
        value is read back from the device.

        Args:
            updates: the updates of all clients that take part.
            sharing: which tensors of each client are federated.
            finite: maps each client to whether its update is finite, as a boolean tensor; other updates are not judged.
        """
        self._unknown = self._not_given(sharing)
        measured = {client: norms_of(update, self._start(update, client)) for client, update in updates.items()}
        every = sorted({name for names, _ in measured.values() for name in names})
        places = {name: place for place, name in enumerate(every)}
        rows = {client: row for row, client in enumerate(sorted(sharing.names))}
        device = next((norms.device for _, norms in measured.values()), torch.device("cpu"))
        norms = torch.full((2, len(rows), len(places)), torch.nan, device=device)
        for client, (names, measured_norms) in measured.items():
            at = torch.tensor([places[name] for name in names], dtype=torch.long, device=device)
            norms[:, rows[client]].index_copy_(1, at, torch.where(finite[client].to(device), measured_norms, torch.nan))
        parameters = {name for names in sharing.parameters.values() for name in names}
        numbers = [sharing.forms[name][1] if name in sharing.forms else () for name in places]
        found = find_far(
            norms,
            torch.tensor([name in parameters for name in places], dtype=torch.bool, device=device),
            torch.tensor([torch.Size(shape).numel() for shape in numbers], device=device),
            [(level.to(device), change.to(device)) for level, change in self._past],
            torch.tensor([float(self.steps.get(name, 1)) for name in rows], device=device),
        )
        self._remember(found)
        return found

    def act(
        self, updates: Mapping[str, Update], table: Sequence[Mapping[str, Any]]
    ) -> tuple[dict[str, Update], Verdict]:
        """Return the updates that the rule may see, and the findings about clients.

        Args:
            updates: the updates that are finite.
            table: four mappings with the findings of :meth:`judge`, as read from the device: client → size, and client
                → whether it is suspicious, far and grown.
        """
        size, *flags = table
        suspicious, is_far, is_grown = ([name for name in size if flag[name]] for flag in flags)
        far = {name: size[name] for name in is_far}
        named = {name: size[name] for name in suspicious if name not in far}
        looked_at = sum(not math.isnan(value) for value in size.values())
        verdict = Verdict(doubt=tuple(named) if 2 * len(named) >= looked_at and not far else (), grown=tuple(is_grown))
        if self.mode == "watch":
            return dict(updates), replace(verdict, watched={**named, **far})
        kept = {name: update for name, update in updates.items() if name not in far}
        return kept, replace(verdict, left_out=far, watched=named)

    def _start(self, update: Update, client: str) -> State:
        """Return the values that a client's parameters are compared with."""
        given = self.given.get(client, {})
        return {name: given[name] for name in update.parameters if name in given and name not in self._unknown}

    def note(self, received: Mapping[str, State], sent: Iterable[int] = ()) -> None:
        """Remember what clients were given, as references; tensors that a client has sent and will change are copied.

        Args:
            received: maps each client to what it was given.
            sent: the memory addresses of tensors that clients sent, which they will change.
        """
        theirs = set(sent)
        for client, state in received.items():
            state_of_client = {
                name: value.clone() if value.data_ptr() in theirs else value
                for name, value in state.items()
                if not name.startswith(DOWN)
            }
            self.given[client] = {**self.given.get(client, {}), **state_of_client}

    def _remember(self, found: Far) -> None:
        """Add the updates of clients that were not far to their histories."""
        hidden = found.far | found.level.isnan()
        new = [torch.where(hidden, torch.nan, value) for value in (found.level, found.change)]
        self._past = [*self._past, (new[0], new[1])][-REMEMBERED:]

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        return {"given": dict(self.given), "past": list(self._past)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.given = {client: dict(tensors) for client, tensors in state["given"].items()}
        self._past = [(level, change) for level, change in state["past"]]


def screen(
    updates: Mapping[str, Update], sharing: Sharing, guard: Guard | None
) -> tuple[dict[str, Update], tuple[str, ...], Verdict]:
    """Leave out updates that are not finite, and updates that the guard does not pass. All values that decide this are
    read from the device at once.

    Args:
        updates: the updates of all clients that take part.
        sharing: which tensors of each client are federated.
        guard: None for no guard.

    Returns:
        The updates that the rule may see, the clients whose update is not finite, and the findings of the guard.
    """
    if not updates:
        return {}, (), Verdict()
    finite = all_finite({name: {**update.state, **update.published} for name, update in updates.items()})
    found = None if guard is None else guard.judge(updates, sharing, finite)
    columns = [] if found is None else [found.size, found.suspicious, found.far, found.grown]
    read = torch.cat([torch.stack(list(finite.values())), *columns]).tolist()
    lost = tuple(name for name, is_finite in zip(finite, read, strict=False) if not is_finite)
    kept = {name: update for name, update in updates.items() if name not in lost}
    if guard is None or found is None:
        return kept, lost, Verdict()
    names, rest = sorted(sharing.names), iter(read[len(finite) :])
    kept, verdict = guard.act(kept, [dict(zip(names, rest, strict=False)) for _ in columns])
    return kept, lost, verdict
