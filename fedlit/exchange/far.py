"""How far a client's update is from those of the others, and from its own earlier ones."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlit.exchange.columns import Column, Columns
from fedlit.sharing import State
from fedlit.stacks import flat_rows, row_norms

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


def norms_of(
    columns: Columns, given: Mapping[str, State], compared: Collection[str]
) -> tuple[list[str], Tensor]:
    """Return the names of the clients' floating-point tensors, and their Euclidean norms. A tensor
    with impossible values, such as a negative variance, has an infinite norm.

    Args:
        columns: the tensors of K clients.
        given: maps each client to the tensors that it was given last.
        compared: the names of the tensors that are compared with what was given. Others, and what
            was not given, are measured against 0.

    Returns:
        The names of T tensors, sorted, and (2, K, T) float32: the norms of their changes since they
        were given, and of the tensors themselves; NaN for a tensor that a client does not have.
    """
    names = []
    for name, parts in sorted(columns.by_name.items()):
        if parts[0].floating:
            names.append(name)
    norms = torch.full((2, len(names), len(columns.clients)), torch.nan, device=columns.device)
    for index, name in enumerate(names):
        for column in columns.by_name[name]:
            before: list[Tensor | None] = [None]
            if name in compared:
                clients = [columns.clients[row] for row in column.rows]
                before = [given.get(client, {}).get(name) for client in clients]
            for kind, of_column in enumerate(_norms_of_column(column, before)):
                column.into(norms[kind, index], of_column)
    # Sums over a row have the same bits only if its numbers lie side by side.
    return names, norms.transpose(1, 2).contiguous()


def _norms_of_column(column: Column, before: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    """Return the norms of a column's changes, and of its tensors."""
    values = column.values
    wide = torch.promote_types(values.dtype, torch.float32)
    itself = row_norms(values, wide).float()
    if column.name.endswith(NEVER_NEGATIVE) and values.numel():
        itself = torch.where(flat_rows(values).amin(1) < 0, math.inf, itself)
    if all(value is None for value in before):
        return itself, itself
    nothing = torch.zeros_like(values[0])
    start = column.beside([nothing if value is None else value for value in before])
    return row_norms(values - start, wide).float(), itself


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
    longer = (steps / torch.where(there, steps, torch.nan).nanmedian()).clamp_min(1).log()
    logs = torch.stack(
        [relative_sizes(changed, parameters) - longer, 0.5 * relative_sizes(itself, ~parameters)]
    )
    away, spread = _distances(torch.where(there, logs, torch.nan))
    score, kind = (away / spread).nan_to_num(-math.inf, posinf=math.inf).max(0)
    away = away.gather(0, kind[None])[0].nan_to_num(0.0, posinf=math.inf)
    spread = spread[kind, 0]
    group = there.sum() > 2
    pair = there.sum() == 2
    far = (score > FAR) & group
    # If as many are far as are not, nobody can tell who is wrong.
    far &= far.sum() * 2 < there.sum()
    # A sum of squares beyond float32 is far, whatever the others send.
    far |= there & torch.where(changed.isnan(), 0.0, changed).square().sum(1).isinf()
    # With two clients, the lower median is the smaller one.
    two = pair & (away > FAR * FLOOR)
    suspicious = (score > SUSPICIOUS) & group | (two.any() & there)
    level, change = _levels(changed, itself, parameters, numbers)
    decided, growth = _by_history(level, change, past, pair=pair)
    grown = decided & ~far
    return Far(
        torch.where(grown, growth, torch.where(there, away, torch.nan)).exp(),
        # If the history of one of two clients decides, the other one is cleared.
        (suspicious & ~(pair & decided.any())) | far | decided,
        far | decided,
        grown,
        level,
        change,
    )


def _levels(
    changed: Tensor, itself: Tensor, parameters: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the logarithms of each client's root mean square and of the norm of its change, over
    the parameters that it shares with others. NaN for clients that were not examined.
    """
    there = ~changed.isnan().all(1)
    has = ~itself.isnan() & parameters
    has &= has.sum(0) > 1
    squares = torch.where(has, itself, 0.0).square().sum(1)
    level = squares.div((has * numbers).sum(1).clamp_min(1)).sqrt().log()
    level = torch.where(there, level, torch.nan)
    change = torch.where(has, changed, 0.0).square().sum(1).sqrt().log()
    # A client that did not move has no usual step.
    change = torch.where(there & (change > -math.inf), change, torch.nan)
    return level, change


def _distances(logs: Tensor) -> tuple[Tensor, Tensor]:
    """Return each client's distance from the median, (kinds, K), and the spread by which it is
    judged, (kinds, 1).
    """
    # A client that does not move is no measure of the others.
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
    before = torch.full_like(level, torch.nan)[None]
    if past:
        before = torch.stack([past_level for past_level, _ in past])
    # Initial values of networks are about 1 or less.
    growth = level - before.nanmedian(0).values.nan_to_num(0.0).clamp_min(0.0)
    least = level.nan_to_num(math.inf, posinf=math.inf).min()
    grown = (growth > ABSURD) & (level - least > LARGER)
    if len(past) < 3:
        return grown, growth
    jump = change - torch.stack([past_change for _, past_change in past]).nanmedian(0).values
    # Of two clients, the jump of the other one is small.
    calm = jump.nan_to_num(-math.inf).sort().values[-2:-1].le(FAR * FLOOR / 2).all()
    jumped = pair & calm & (jump > FAR * FLOOR)
    return grown | jumped, torch.where(grown, growth, jump)
