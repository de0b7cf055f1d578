"""The guard checks clients' updates before a rule does, so that one client's numbers cannot ruin
all others.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedlit.errors import expect
from fedlit.exchange.far import Far, find_far, norms_of
from fedlit.exchange.rule import DOWN, Update
from fedlit.sharing import Sharing, State, all_finite

REMEMBERED = 10
"""The number of exchanges in a client's history."""

GuardMode = Literal["leave_out", "watch"]
DONE = ("left_out", "watched")
"""What is done about a client whose update is far, or about one that is suspicious."""


def guard_mode(setting: GuardMode | bool) -> GuardMode | None:
    """Return the mode of a guard as ``exchange.guard`` sets it; None for no guard.

    Raises:
        ConfigError: there is no such mode.

    Example:
        >>> guard_mode(True), guard_mode("watch"), guard_mode(False)
        ('leave_out', 'watch', None)
    """
    if setting is False:
        return None
    if setting is True:
        return "leave_out"
    modes = get_args(GuardMode)
    expect(setting in modes, "exchange.guard", f"{', '.join(modes)}, true or false", setting)
    return setting


@dataclass(frozen=True)
class Verdict:
    """The findings of a guard in a round.

    Attributes:
        left_out: maps each client that was left out to how many times as large as usual its update
            is.
        watched: the same for clients that are only named.
        grown: clients that were judged by their own history; their size is how much they have
            grown.
        doubt: watched clients among which one is wrong, but it cannot be decided which.
    """

    left_out: Mapping[str, float] = field(default_factory=dict)
    watched: Mapping[str, float] = field(default_factory=dict)
    doubt: Sequence[str] = ()
    grown: Sequence[str] = ()

    def to_dict(self, clients: Collection[str]) -> dict[str, Mapping[str, float] | Sequence[str]]:
        """Return the findings about some clients, as keyword arguments of this class and as plain
        data.
        """
        findings: dict[str, Mapping[str, float] | Sequence[str]] = {}
        for key, of_clients in vars(self).items():
            names = [name for name in of_clients if name in clients]
            if isinstance(of_clients, Mapping):
                findings[key] = {name: of_clients[name] for name in names}
            else:
                findings[key] = names
        return findings


class Guard:
    """Compares clients' updates with each other and with their own history (see
    :mod:`fedlit.exchange.far`).

    It works where the rule is applied, and remembers what each client was given: an update is the
    difference between what a client sends and what it was given. Before the first exchange nothing
    was given, so the parameters themselves are compared.

    Args:
        mode: ``leave_out`` leaves a client whose update is far from the others' out of the rule,
            and names suspicious clients; ``watch`` only names clients, which protects nobody.
        steps: maps each client to the number of optimizer steps that it takes in an epoch; a client
            with more steps may move further.

    Attributes:
        given: maps each client to the tensors that it received last.
    """

    def __init__(
        self, mode: GuardMode = "leave_out", steps: Mapping[str, int] | None = None
    ) -> None:
        self.mode: GuardMode = mode
        self.steps: Mapping[str, int] = {}
        if steps is not None:
            self.steps = steps
        self.given: dict[str, State] = {}
        self._unknown: set[str] = set()
        self._past: list[tuple[Tensor, Tensor]] = []

    def _not_given(self, sharing: Sharing) -> set[str]:
        """Return parameters that some client has but was never given; they are measured against 0
        at all clients.
        """
        names: set[str] = set()
        for client, parameters in sharing.parameters.items():
            names |= set(parameters) - self.given.get(client, {}).keys()
        return names

    def judge(
        self, updates: Mapping[str, Update], sharing: Sharing, finite: Mapping[str, Tensor]
    ) -> Far:
        """Find the clients whose update is far, over all clients of the federation in the order of
        their names. No value is read back from the device.

        Args:
            updates: the updates of all clients that take part.
            sharing: which tensors of each client are federated.
            finite: maps each client to whether its update is finite, as a boolean tensor; other
                updates are not judged.
        """
        self._unknown = self._not_given(sharing)
        measured = {
            client: norms_of(update, self._start(update, client))
            for client, update in updates.items()
        }
        sent: set[str] = set()
        for names, _ in measured.values():
            sent.update(names)
        columns = {name: column for column, name in enumerate(sorted(sent))}
        rows = {client: row for row, client in enumerate(sorted(sharing.names))}
        device = next((norms.device for _, norms in measured.values()), torch.device("cpu"))
        norms = torch.full((2, len(rows), len(columns)), torch.nan, device=device)
        for client, (names, measured_norms) in measured.items():
            at = torch.tensor([columns[name] for name in names], dtype=torch.long, device=device)
            norms[:, rows[client]].index_copy_(
                1, at, torch.where(finite[client].to(device), measured_norms, torch.nan)
            )
        parameters: set[str] = set()
        for of_client in sharing.parameters.values():
            parameters.update(of_client)
        shapes = [sharing.forms[name][1] if name in sharing.forms else () for name in columns]
        far = find_far(
            norms,
            torch.tensor([name in parameters for name in columns], dtype=torch.bool, device=device),
            torch.tensor([torch.Size(shape).numel() for shape in shapes], device=device),
            [(level.to(device), change.to(device)) for level, change in self._past],
            torch.tensor([float(self.steps.get(name, 1)) for name in rows], device=device),
        )
        self._remember(far)
        return far

    def act(
        self, updates: Mapping[str, Update], table: Sequence[Mapping[str, float]]
    ) -> tuple[dict[str, Update], Verdict]:
        """Return the updates that the rule may see, and the findings about clients.

        Args:
            updates: the updates that are finite.
            table: four mappings with the findings of :meth:`judge`, as read from the device: client
                → size, and client → whether it is suspicious, far and grown.
        """
        size, suspicious, is_far, is_grown = table
        far = {name: size[name] for name in size if is_far[name]}
        named = {name: size[name] for name in size if suspicious[name] and name not in far}
        looked_at = sum(not math.isnan(value) for value in size.values())
        verdict = Verdict(grown=tuple(name for name in size if is_grown[name]))
        if 2 * len(named) >= looked_at and not far:
            verdict = replace(verdict, doubt=tuple(named))
        if self.mode == "watch":
            return dict(updates), replace(verdict, watched={**named, **far})
        near = {name: update for name, update in updates.items() if name not in far}
        return near, replace(verdict, left_out=far, watched=named)

    def _start(self, update: Update, client: str) -> State:
        """Return the values that a client's parameters are compared with."""
        received = self.given.get(client, {})
        names = [name for name in update.parameters if name not in self._unknown]
        return {name: received[name] for name in names if name in received}

    def note(self, received: Mapping[str, State], sent: Iterable[int] = ()) -> None:
        """Remember what clients were given, as references; tensors that a client has sent and will
        change are copied.

        Args:
            received: maps each client to what it was given.
            sent: the memory addresses of tensors that clients sent, which they will change.
        """
        addresses = set(sent)
        for client, state in received.items():
            state_of_client = {
                name: value.clone() if value.data_ptr() in addresses else value
                for name, value in state.items()
                if not name.startswith(DOWN)
            }
            self.given[client] = {**self.given.get(client, {}), **state_of_client}

    def _remember(self, far: Far) -> None:
        """Add the updates of clients that were not far to their histories."""
        hidden = far.far | far.level.isnan()
        level = torch.where(hidden, torch.nan, far.level)
        change = torch.where(hidden, torch.nan, far.change)
        self._past = [*self._past, (level, change)][-REMEMBERED:]

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
    """Leave out updates that are not finite, and updates that the guard does not pass. All values
    that decide this are read from the device at once.

    Args:
        updates: the updates of all clients that take part.
        sharing: which tensors of each client are federated.
        guard: None for no guard.

    Returns:
        The updates that the rule may see, the clients whose update is not finite, and the findings
        of the guard.
    """
    if not updates:
        return {}, (), Verdict()
    finite = all_finite(
        {name: {**update.state, **update.published} for name, update in updates.items()}
    )
    columns: list[Tensor] = []
    if guard is not None:
        far = guard.judge(updates, sharing, finite)
        columns = [far.size, far.suspicious, far.far, far.grown]
    values = torch.cat([torch.stack(list(finite.values())), *columns]).tolist()
    lost = tuple(name for name, is_finite in zip(finite, values, strict=False) if not is_finite)
    usable = {name: update for name, update in updates.items() if name not in lost}
    if guard is None:
        return usable, lost, Verdict()
    names = sorted(sharing.names)
    rest = iter(values[len(finite) :])
    table = [dict(zip(names, rest, strict=False)) for _ in columns]
    near, verdict = guard.act(usable, table)
    return near, lost, verdict
