"""Checks what a rule returned before it is written, so that a mistake in a rule does not go unnoticed."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError, did_you_mean
from fedlit.exchange.rule import DOWN, Round, Rule
from fedlit.sharing import State, form_of


@contextmanager
def unchanged(tensors: Iterable[tuple[str, Tensor]], expected: str) -> Iterator[None]:
    """Raise an error if tensors were changed in place inside the block.

    Args:
        tensors: pairs of a name and its tensor.
        expected: the beginning of the message, which names who must leave the tensors as they are.

    Raises:
        RunError: a tensor was changed.
    """
    before = [(name, value, value._version) for name, value in tensors]
    yield
    if changed := next((name for name, value, version in before if value._version != version), ""):
        raise RunError(f"{expected}, found that {changed} was changed in place; work on a copy (tensor.clone())")


def check_received(rule: Rule, round: Round, received: Any, forms: Mapping[str, Any], *, begin: bool = False) -> None:
    """Refuse the result of a rule if clients cannot take it over.

    Args:
        rule: the rule, which the message names.
        round: the round that the rule was given.
        received: what the rule returned.
        forms: maps each name to the (dtype, shape) of the federated tensor.
        begin: whether the rule was asked what clients start from; it may then leave clients out.

    Raises:
        RunError: there are unknown or missing clients, unknown names, other shapes or dtypes, or values that are not
            finite.
    """
    problem = _problem(round, received, forms, begin=begin)
    if problem:
        advice = " Mend" if problem.endswith("?") else "; mend"
        raise RunError(f"{where_of(rule, round, begin)}: {problem}{advice} the rule")


def where_of(rule: Rule, round: Round, begin: bool) -> str:
    """Return a description of a rule and its exchange, for messages."""
    return f"exchange.rule: {type(rule).__name__}, {'before training' if begin else f'exchange {round.number + 1}'}"


def _problem(round: Round, received: Any, forms: Mapping[str, Any], *, begin: bool) -> str:
    if not isinstance(received, Mapping):
        return f"expected a mapping from clients to named tensors, found {type(received).__name__}"
    if unknown := sorted(map(str, received.keys() - round.receivers.keys())):
        hint = did_you_mean(unknown[0], round.receivers)
        return f"expected the clients {', '.join(round.receivers)}, found {unknown[0]!r}.{hint}"
    missing = sorted(round.receivers.keys() - received.keys())
    if missing and not begin:
        return f"expected an entry for each client, found none for {missing[0]!r} ({{}} if it receives nothing)"
    known = dict(forms)
    for update in round.updates.values():  # as they were sent: networks may have been converted since the plan
        known |= {name: form_of(value) for name, value in update.state.items()}
    seen: dict[tuple[int, str], Tensor] = {}
    for client, state in received.items():
        names = set(round.receivers[client])
        if not isinstance(state, Mapping):
            return f"client {client!r}: expected named tensors, found {type(state).__name__}"
        for name, value in state.items():
            if name not in names and not str(name).startswith(DOWN):
                return f"client {client!r}: expected names of its federated tensors, found {name!r}." + (
                    did_you_mean(str(name), names) or f" What goes beside them is called {DOWN}…"
                )
            if (id(value), name) in seen:  # clients share tensors
                continue
            if not isinstance(value, Tensor):
                return f"client {client!r}: {name}: expected a tensor, found {type(value).__name__}"
            if name in known and form_of(value) != (known[name][0], tuple(known[name][1])):
                (dtype, shape), found = known[name], form_of(value)
                return (
                    f"client {client!r}: {name}: expected {dtype} of shape {tuple(shape)}, found {found[0]} of "
                    f"shape {found[1]}"
                )
            seen[id(value), name] = value
    return _not_finite(round, received, list(seen.values()))


def _not_finite(round: Round, received: Mapping[str, State], distinct: list[Tensor]) -> str:
    """Describe where a value is not finite; empty if none is. Tensors that clients share are checked once."""
    # the largest magnitude is finite exactly if all values are
    numbers = [value for value in distinct if value.is_floating_point() and value.numel()]
    largest = torch._foreach_norm(numbers, float("inf")) if numbers else ()
    if not largest or bool(torch.stack([torch.isfinite(norm) for norm in largest]).all()):
        return ""
    client, name = next(
        (client, name)
        for client, state in received.items()
        for name, value in state.items()
        if not bool(torch.isfinite(value).all())
    )
    huge = [name for name, update in round.updates.items() if any(map(_is_huge, update.state.values()))]
    whose = "all updates were finite" if round.updates else "nobody sent anything"
    if huge:  # sums of such numbers are not finite: their sender is at fault rather than the rule
        whose += f", but {huge[0]!r} sent a number above {_HUGE:g}: exchange.guard: leave_out minds such numbers"
    return f"client {client!r}: {name}: expected finite numbers, found some that are not ({whose})"


_HUGE = 1e18


def _is_huge(value: Tensor) -> bool:
    return value.is_floating_point() and value.numel() > 0 and float(value.detach().abs().max()) > _HUGE
