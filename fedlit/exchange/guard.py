"""The guard checks clients' updates before a rule does, so that one client's numbers cannot ruin
all others.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedlit.errors import expect
from fedlit.exchange.columns import Updates
from fedlit.exchange.far import Far, find_far, norms_of
from fedlit.exchange.rule import DOWN
from fedlit.sharing import Sharing, State
from fedlit.stacks import memory_of, positions

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


@dataclass(frozen=True)
class _Terms:
    """What is compared, on the device of the updates.

    Attributes:
        parameters: (T,) bool, which tensors are parameters.
        numbers: (T,) the number of values in each tensor.
        steps: (K,) the number of steps that each client takes in an epoch.
    """

    parameters: Tensor
    numbers: Tensor
    steps: Tensor


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
        self._past: list[tuple[Tensor, Tensor]] = []
        self._terms: dict[tuple[tuple[str, ...], torch.device], _Terms] = {}

    def _not_given(self, sharing: Sharing) -> set[str]:
        """Return parameters that some client has but was never given; they are measured against 0
        at all clients.
        """
        names: set[str] = set()
        for client, parameters in sharing.parameters.items():
            names |= set(parameters) - self.given.get(client, {}).keys()
        return names

    def judge(self, updates: Updates, sharing: Sharing, finite: Tensor) -> Far:
        """Find the clients whose update is far, over all clients of the federation in the order of
        their names. No value is read back from the device.

        Args:
            updates: the updates of all clients that take part.
            sharing: which tensors of each client are federated.
            finite: whether the update of each of them is finite, as a vector of booleans; other
                updates are not judged.
        """
        compared = set(chain.from_iterable(update.parameters for update in updates.values()))
        compared -= self._not_given(sharing)
        names, of_updates = norms_of(updates.columns, self.given, compared)
        of_updates = torch.where(finite[:, None], of_updates, torch.nan)
        clients = sorted(sharing.names)
        norms = of_updates
        if clients != list(updates):
            row_of = {client: row for row, client in enumerate(clients)}
            rows = positions(tuple(row_of[client] for client in updates), of_updates.device)
            norms = torch.full((2, len(clients), len(names)), torch.nan, device=rows.device)
            norms.index_copy_(1, rows, of_updates)
        terms = self._terms_of(names, sharing, norms.device)
        past = [(level.to(norms.device), change.to(norms.device)) for level, change in self._past]
        far = find_far(norms, terms.parameters, terms.numbers, past, terms.steps)
        self._remember(far)
        return far

    def _terms_of(self, names: Sequence[str], sharing: Sharing, device: torch.device) -> _Terms:
        """Return the facts about tensors and clients that stay the same from round to round. They
        are made once, because copying them to an accelerator waits for it.
        """
        key = (tuple(names), device)
        if key not in self._terms:
            parameters = set(chain.from_iterable(sharing.parameters.values()))
            shapes = [sharing.forms[name][1] if name in sharing.forms else () for name in names]
            steps = [float(self.steps.get(name, 1)) for name in sorted(sharing.names)]
            self._terms[key] = _Terms(
                torch.tensor([name in parameters for name in names], device=device).bool(),
                torch.tensor([math.prod(shape) for shape in shapes], device=device),
                torch.tensor(steps, device=device),
            )
        return self._terms[key]

    def verdict(self, table: Sequence[Mapping[str, float]]) -> Verdict:
        """Return the findings about clients. Those that are ``left_out`` of it must not reach the
        rule.

        Args:
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
            return replace(verdict, watched={**named, **far})
        return replace(verdict, left_out=far, watched=named)

    def note(self, received: Mapping[str, State], sent: Iterable[int] = ()) -> None:
        """Remember what clients were given, as references; tensors that a client has sent and will
        change are copied.

        Args:
            received: maps each client to what it was given.
            sent: the addresses of the memory of what clients sent, which they will change.
        """
        memories = set(sent)
        values: dict[int, Tensor] = {}  # Most clients receive the same tensors.
        for client, state in received.items():
            state_of_client = dict(self.given.get(client, {}))
            for name, value in state.items():
                if id(value) not in values:
                    values[id(value)] = value.clone() if memory_of(value) in memories else value
                if not name.startswith(DOWN):
                    state_of_client[name] = values[id(value)]
            self.given[client] = state_of_client

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
