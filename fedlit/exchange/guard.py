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
from fedlit.exchange.rule import DOWN, Update
from fedlit.sharing import Sharing, State, all_finite

SUSPICIOUS = 4.0
FAR = 6.0
"""Robust z-scores of the logarithm of an update's relative size, from which clients are named, and
left out."""

FLOOR = math.log(1.4)
CEILING = 1.5 * math.log(1.4)
"""The least and the largest spread of these logarithms that is assumed: with the least, an update
is far from 1.4⁶ = 7.5 times the median size on, with the largest, from 21 times on. So nobody can
hide by spreading."""

STILL = math.log(30.0)
"""The logarithm of the factor by which a client may move less than the median one and still count
in the spread."""

NEVER_NEGATIVE = "running_var"
"""The end of the names of tensors in which a negative number makes all that is computed with it
NaN."""

ABSURD = math.log(100.0)
LARGER = math.log(30.0)
"""Logarithms of how much the root mean square of a client's parameters may grow since earlier
exchanges, and of how much larger than the smallest client's it may be; beyond both, a client is far
by its own history."""

REMEMBERED = 10
"""The number of exchanges in a client's history."""


@dataclass(frozen=True)
class Far:
    """The findings about K clients, as tensors; NaN and False for clients that were not examined.

    Norms are float32. A norm that is too large for this type is infinite, and therefore far.

    Attributes:
        size: (K,) float32, how many times as large as the median client's an update is; for clients
            that are ``grown``, how many times as large as in earlier exchanges their parameters, or
            their updates, are.
        suspicious: (K,) bool, whether a client is to be named; true for all that are far.
        far: (K,) bool, whether a client is to be left out.
        grown: (K,) bool, whether a client is far by its own history alone, and not by comparison
            with the others.
        level: (K,) float32, the logarithm of the root mean square of the parameters.
        change: (K,) float32, the logarithm of the norm of the change of the parameters.
    """

    size: Tensor
    suspicious: Tensor
    far: Tensor
    grown: Tensor
    level: Tensor
    change: Tensor


def norms_of(update: Update, given: State) -> tuple[list[str], Tensor]:
    """Return the names of the floating-point tensors and, as (2, T) float32, the Euclidean norms of
    each tensor's change and of the tensor itself. A tensor with impossible values, such as a
    negative variance, has an infinite norm.

    Args:
        update: the update of one client.
        given: maps each name to the tensor that the client had been given. A tensor that is missing
            here is measured against 0.
    """
    names = [name for name, value in update.state.items() if value.is_floating_point()]
    if not names:
        return [], torch.zeros(2, 0)
    values = [update.state[name].detach() for name in names]
    itself = torch.stack(torch._foreach_norm(values, 2, torch.float32))
    for place, name in enumerate(names):
        if name.endswith(NEVER_NEGATIVE) and values[place].numel():
            itself[place] = torch.where(values[place].min() < 0, math.inf, itself[place])
    moved = [place for place, name in enumerate(names) if name in given]
    changed = itself
    if moved:
        before = [
            given[names[place]].to(values[place].device, values[place].dtype) for place in moved
        ]
        difference = torch._foreach_sub([values[place] for place in moved], before)
        changed = itself.clone()
        changed[moved] = torch.stack(torch._foreach_norm(difference, 2, torch.float32))
    return names, torch.stack([changed, itself])


def relative_sizes(norms: Tensor, chosen: Tensor) -> Tensor:
    """Return (K,) the logarithm of each client's size relative to a client whose tensors all have
    the median norm.

    The median of a tensor is the lower median over the clients that have it and moved at all. So
    clients with different tensors can be compared, and clients that send back what they were given
    do not count. A tensor that only one client has does not count either, because it cannot harm
    the others.

    Args:
        norms: (K, T) the norm of each client's tensors, NaN if it has no such tensor.
        chosen: (T,) bool, which tensors count.

    Example:
        >>> relative_sizes(torch.tensor([[1.0, 2.0], [1.0, torch.nan], [8.0, 2.0]]), torch.tensor([True, True])).exp()
        tensor([1.0000, 1.0000, 3.6878])
    """
    has = ~norms.isnan() & chosen
    has &= has.sum(0) > 1
    size = torch.where(has, norms, 0.0).square().sum(1)
    moving = torch.where(has & (size > 0)[:, None], norms, torch.nan)
    usual = torch.where(has, moving.nanmedian(0).values.nan_to_num(0.0), 0.0).square().sum(1)
    return torch.where(usual > 0, 0.5 * (size.log() - usual.log()), torch.nan)


def find_far(
    norms: Tensor,
    parameters: Tensor,
    numbers: Tensor,
    past: Sequence[tuple[Tensor, Tensor]],
    steps: Tensor,
) -> Far:
    """Find clients whose update is far from the others', or from their own earlier updates.

    Parameters are compared by their change. A client that takes more steps than the median client
    may move further in proportion. Normalisation statistics are squares of what parameters are made
    of, so the square root of their ratio counts.

    Args:
        norms: (2, K, T) as :func:`norms_of` returns them; NaN if a client has no such tensor, or is
            not to be examined.
        parameters: (T,) bool, which tensors are parameters.
        numbers: (T,) the number of values in each tensor.
        past: (level, change) of earlier exchanges, the newest last.
        steps: (K,) the number of steps that each client takes in an epoch.
    """
    changed, itself = norms
    there = ~changed.isnan().all(1)
    more = (steps / torch.where(there, steps, torch.nan).nanmedian()).clamp_min(1).log()
    logs = torch.stack(
        [relative_sizes(changed, parameters) - more, 0.5 * relative_sizes(itself, ~parameters)]
    )
    away, spread = _distances(torch.where(there, logs, torch.nan))
    score, kind = (away / spread).nan_to_num(-math.inf, posinf=math.inf).max(0)
    away = away.gather(0, kind[None])[0].nan_to_num(0.0, posinf=math.inf)
    spread = spread[kind, 0]
    several = there.sum() > 2
    pair = there.sum() == 2
    far = (score > FAR) & several
    # as many as the others: nobody can tell who is wrong
    far &= far.sum() * 2 < there.sum()
    # a sum of squares beyond float32 is far, whatever the others send
    far |= there & torch.where(changed.isnan(), 0.0, changed).square().sum(1).isinf()
    two = pair & (away > FAR * FLOOR)  # the lower median of two is the smaller
    suspicious = (score > SUSPICIOUS) & several | (two.any() & there)
    has = ~itself.isnan() & parameters
    has &= has.sum(0) > 1
    level = (
        torch.where(has, itself, 0.0)
        .square()
        .sum(1)
        .div((has * numbers).sum(1).clamp_min(1))
        .sqrt()
        .log()
    )
    level = torch.where(there, level, torch.nan)
    change = torch.where(has, changed, 0.0).square().sum(1).sqrt().log()
    # who did not move has no usual step
    change = torch.where(there & (change > -math.inf), change, torch.nan)
    decided, growth = _by_history(level, change, past, pair=pair)
    grown = decided & ~far
    return Far(
        torch.where(grown, growth, torch.where(there, away, torch.nan)).exp(),
        # of a pair, one whose history decides clears the other
        (suspicious & ~(pair & decided.any())) | far | decided,
        far | decided,
        grown,
        level,
        change,
    )


def _distances(logs: Tensor) -> tuple[Tensor, Tensor]:
    """Return each client's distance from the median, (kinds, K), and the spread by which it is
    judged, (kinds, 1).
    """
    # who does not move is no measure of others
    logs = torch.where(logs == -math.inf, torch.nan, logs)
    away = logs - logs.nanmedian(1, keepdim=True).values
    counted = torch.where(away > -STILL, away.abs(), torch.nan)
    spread = 1.4826 * counted.nanmedian(1, keepdim=True).values
    return away, spread.nan_to_num(0.0).clamp(FLOOR, CEILING)


def _by_history(
    level: Tensor, change: Tensor, past: Sequence[tuple[Tensor, Tensor]], *, pair: Tensor
) -> tuple[Tensor, Tensor]:
    """Return which clients stand out against their own history, and the logarithm of how much they
    have grown.
    """
    before = (
        torch.stack([past_level for past_level, _ in past])
        if past
        else torch.full_like(level, torch.nan)[None]
    )
    # initial values of networks are about 1 or less
    growth = level - before.nanmedian(0).values.nan_to_num(0.0).clamp_min(0.0)
    least = level.nan_to_num(math.inf, posinf=math.inf).min()
    grown = (growth > ABSURD) & (level - least > LARGER)
    if len(past) < 3:
        return grown, growth
    jump = change - torch.stack([past_change for _, past_change in past]).nanmedian(0).values
    # the other one's
    calm = jump.nan_to_num(-math.inf).sort().values[-2:-1].le(FAR * FLOOR / 2).all()
    jumped = pair & calm & (jump > FAR * FLOOR)
    return grown | jumped, torch.where(grown, growth, jump)


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

    def to_dict(self, clients: Collection[str]) -> dict[str, Any]:
        """Return the findings about some clients, as keyword arguments of this class and as plain
        data.
        """
        return {
            key: {name: found[name] for name in found if name in clients}
            if isinstance(found, Mapping)
            else [name for name in found if name in clients]
            for key, found in vars(self).items()
        }


class Guard:
    """Compares clients' updates with each other and with their own history (see
    :mod:`fedlit.exchange.guard`).

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
        self.steps: Mapping[str, int] = {} if steps is None else steps
        self.given: dict[str, State] = {}
        self._unknown: set[str] = set()
        self._past: list[tuple[Tensor, Tensor]] = []

    def _not_given(self, sharing: Sharing) -> set[str]:
        """Return parameters that some client has but was never given; they are measured against 0
        at all clients.
        """
        return {
            name
            for client, names in sharing.parameters.items()
            if not (given := self.given.get(client, {})).keys() >= set(names)
            for name in names
            if name not in given
        }

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
        every = sorted({name for names, _ in measured.values() for name in names})
        places = {name: place for place, name in enumerate(every)}
        rows = {client: row for row, client in enumerate(sorted(sharing.names))}
        device = next((norms.device for _, norms in measured.values()), torch.device("cpu"))
        norms = torch.full((2, len(rows), len(places)), torch.nan, device=device)
        for client, (names, measured_norms) in measured.items():
            at = torch.tensor([places[name] for name in names], dtype=torch.long, device=device)
            norms[:, rows[client]].index_copy_(
                1, at, torch.where(finite[client].to(device), measured_norms, torch.nan)
            )
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
            table: four mappings with the findings of :meth:`judge`, as read from the device: client
                → size, and client → whether it is suspicious, far and grown.
        """
        size, *flags = table
        suspicious, is_far, is_grown = ([name for name in size if flag[name]] for flag in flags)
        far = {name: size[name] for name in is_far}
        named = {name: size[name] for name in suspicious if name not in far}
        looked_at = sum(not math.isnan(value) for value in size.values())
        verdict = Verdict(
            doubt=tuple(named) if 2 * len(named) >= looked_at and not far else (),
            grown=tuple(is_grown),
        )
        if self.mode == "watch":
            return dict(updates), replace(verdict, watched={**named, **far})
        kept = {name: update for name, update in updates.items() if name not in far}
        return kept, replace(verdict, left_out=far, watched=named)

    def _start(self, update: Update, client: str) -> State:
        """Return the values that a client's parameters are compared with."""
        given = self.given.get(client, {})
        return {
            name: given[name]
            for name in update.parameters
            if name in given and name not in self._unknown
        }

    def note(self, received: Mapping[str, State], sent: Iterable[int] = ()) -> None:
        """Remember what clients were given, as references; tensors that a client has sent and will
        change are copied.

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
    found = None if guard is None else guard.judge(updates, sharing, finite)
    columns = [] if found is None else [found.size, found.suspicious, found.far, found.grown]
    read = torch.cat([torch.stack(list(finite.values())), *columns]).tolist()
    lost = tuple(name for name, is_finite in zip(finite, read, strict=False) if not is_finite)
    kept = {name: update for name, update in updates.items() if name not in lost}
    if guard is None or found is None:
        return kept, lost, Verdict()
    names = sorted(sharing.names)
    rest = iter(read[len(finite) :])
    kept, verdict = guard.act(kept, [dict(zip(names, rest, strict=False)) for _ in columns])
    return kept, lost, verdict
