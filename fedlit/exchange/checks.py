"""Checks of a rule: that it leaves updates as they are, and that clients can take over what it
returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from fedlit.errors import RunError, did_you_mean
from fedlit.exchange.columns import Updates
from fedlit.exchange.rule import DOWN, Round, Rule
from fedlit.sharing import State, form_of

_HUGE = 1e18
"""The magnitude from which on sums of such numbers may not be finite: their sender is at fault
rather than the rule."""


@contextmanager
def unchanged(
    tensors: Iterable[tuple[str | tuple[str, str], Tensor]], expected: str
) -> Iterator[None]:
    """Raise an error if tensors were changed in place inside the block.

    Args:
        tensors: pairs of a name, or of a name and its client, and the tensor.
        expected: the beginning of the message, which names who must leave the tensors as they are.

    Raises:
        RunError: a tensor was changed.
    """
    before = [(name, value, value._version) for name, value in tensors]
    yield
    for name, value, version in before:
        if value._version != version:
            if isinstance(name, tuple):
                name = " of ".join(name)
            raise RunError(
                f"{expected}, found that {name} was changed in place; work on a copy "
                "(tensor.clone())"
            )


def where_of(rule: Rule, round: Round, begin: bool) -> str:
    """Return a description of a rule and its exchange, for messages."""
    moment = "before training" if begin else f"exchange {round.number + 1}"
    return f"exchange.rule: {type(rule).__name__}, {moment}"


Form = tuple[str, tuple[int, ...]]
"""The dtype of a tensor, by name, and its shape."""


def check_received(
    rule: Rule,
    round: Round,
    received: Mapping[str, State],
    forms: Mapping[str, Form],
    *,
    begin: bool = False,
    read: bool = True,
) -> None:
    """Refuse the result of a rule if clients cannot take it over.

    Args:
        rule: the rule, which the message names.
        round: the round that the rule was given.
        received: what the rule returned.
        forms: maps each name to the (dtype, shape) of the federated tensor.
        begin: whether the rule was asked what clients start from; it may then leave clients out.
        read: whether values are checked, which reads from their device; otherwise names, shapes and
            dtypes only.

    Raises:
        RunError: there are unknown or missing clients, unknown names, other shapes or dtypes, or
            values that are not finite.
    """
    problem = _wrong_clients(round, received, begin=begin)
    distinct: dict[tuple[int, str], Tensor] = {}
    if not problem:
        planned = dict(forms)
        # Networks may have been converted since the plan, so the forms of the updates count.
        for column in Updates.of(round.updates).columns:
            planned[column.name] = form_of(column.tensors[0])
        accepted: set[tuple[object, ...]] = set()
        for client, state in received.items():
            names = round.receivers[client]
            if isinstance(state, dict):
                # Most clients receive the same tensors under the same names.
                key = (names, *state, *map(id, state.values()))
                if key in accepted:
                    continue
                accepted.add(key)
            problem = _wrong_state(client, state, names, planned, distinct)
            if problem:
                break
    if read and not problem:
        problem = _not_finite(round, received, list(distinct.values()))
    if problem:
        advice = " Mend" if problem.endswith("?") else "; mend"
        raise RunError(f"{where_of(rule, round, begin)}: {problem}{advice} the rule")


def _wrong_clients(round: Round, received: object, *, begin: bool) -> str:
    """Describe a result that is not for the clients of the round; empty if it is."""
    if not isinstance(received, Mapping):
        return f"expected a mapping from clients to named tensors, found {type(received).__name__}"
    unknown = sorted(map(str, received.keys() - round.receivers.keys()))
    if unknown:
        hint = did_you_mean(unknown[0], round.receivers)
        return f"expected the clients {', '.join(round.receivers)}, found {unknown[0]!r}.{hint}"
    missing = sorted(round.receivers.keys() - received.keys())
    if missing and not begin:
        return (
            f"expected an entry for each client, found none for {missing[0]!r} ({{}} if it "
            "receives nothing)"
        )
    return ""


def _wrong_state(
    client: str,
    state: object,
    names: Iterable[str],
    planned: Mapping[str, Form],
    distinct: dict[tuple[int, str], Tensor],
) -> str:
    """Describe what is wrong with the tensors for a client; empty if nothing is.

    Args:
        client: the client.
        state: what the rule returned for it.
        names: the names of its federated tensors.
        planned: maps names to their (dtype, shape).
        distinct: the tensors that were checked, because clients may share them; new ones are added.
    """
    names = set(names)
    if not isinstance(state, Mapping):
        return f"client {client!r}: expected named tensors, found {type(state).__name__}"
    for name, value in state.items():
        if name not in names and not str(name).startswith(DOWN):
            hint = did_you_mean(str(name), names) or f" What goes beside them is called {DOWN}…"
            return (
                f"client {client!r}: expected names of its federated tensors, found {name!r}.{hint}"
            )
        if (id(value), name) in distinct:
            continue
        if not isinstance(value, Tensor):
            return f"client {client!r}: {name}: expected a tensor, found {type(value).__name__}"
        if name in planned:
            dtype, shape = planned[name]
            form = form_of(value)
            if form != (dtype, tuple(shape)):
                return (
                    f"client {client!r}: {name}: expected {dtype} of shape {tuple(shape)}, found "
                    f"{form[0]} of shape {form[1]}"
                )
        distinct[id(value), name] = value
    return ""


def _not_finite(round: Round, received: Mapping[str, State], distinct: list[Tensor]) -> str:
    """Describe where a value is not finite; empty if none is."""
    numbers = [value for value in distinct if value.is_floating_point() and value.numel()]
    if not numbers:
        return ""
    # The largest magnitude is finite exactly if all values are.
    largest = torch._foreach_norm(numbers, float("inf"))
    if bool(torch.stack([torch.isfinite(norm) for norm in largest]).all()):
        return ""
    for client, state in received.items():
        for name, value in state.items():
            if not bool(torch.isfinite(value).all()):
                return (
                    f"client {client!r}: {name}: expected finite numbers, found some that are not "
                    f"({_cause(round)})"
                )
    return ""


def _cause(round: Round) -> str:
    """Describe whether the updates of a round explain that its result is not finite."""
    if not round.updates:
        return "nobody sent anything"
    for name, update in round.updates.items():
        if any(map(_is_huge, update.state.values())):
            return (
                f"all updates were finite, but {name!r} sent a number above {_HUGE:g}: "
                "exchange.guard: leave_out minds such numbers"
            )
    return "all updates were finite"


def _is_huge(value: Tensor) -> bool:
    return (
        value.is_floating_point()
        and value.numel() > 0
        and float(value.detach().abs().max()) > _HUGE
    )
