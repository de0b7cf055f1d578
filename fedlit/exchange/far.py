"""How far each client's update is from the others': the arithmetic of the guard, which knows no client by name.

All of it is done where the tensors are, so that on an accelerator nothing is read back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlit.exchange.rule import Update
from fedlit.sharing import State

__all__ = ["REMEMBERED", "Far", "find_far", "norms_of", "relative_sizes"]

SUSPICIOUS, FAR = 4.0, 6.0
"""Robust z-scores of the logarithm of an update's relative size: from which on a client is named, and left out."""

FLOOR, CEILING = math.log(1.4), 1.5 * math.log(1.4)
"""The least and the largest spread of these logarithms that is believed: from 1.4⁶ = 7.5 times the median size on an
update is far, however alike clients are, and from 21 times on however they differ. So nobody can hide by spreading."""

STILL = math.log(30.0)
"""By how much less than the median one a client moves that says nothing of how clients differ."""

NEVER_NEGATIVE = "running_var"
"""How names of tensors end of which a negative number makes all that is computed with it NaN."""

ABSURD, LARGER = math.log(100.0), math.log(30.0)
"""By how much the root mean square of a client's parameters may grow from one exchange to the next, and how much larger
than the least of the others it then is, before its own history speaks against it."""

REMEMBERED = 10
"""Exchanges that a client's history reaches back."""


@dataclass(frozen=True)
class Far:
    """What was found, as tensors over K clients; NaN and False for those that were not looked at.

    Norms are float32: one that is too large for it is infinite, which is far.

    Attributes:
        size: (K,) float32, how many times as large as the median client's an update is; of those that are grown, how
            many times as large as before their parameters are.
        suspicious: (K,) bool, to be named; those that are far too.
        far: (K,) bool, to be left out.
        grown: (K,) bool, those of the far against whom their own history speaks, and not the others.
        level: (K,) float32, log of the root mean square of parameters.
        change: (K,) float32, log of the norm of what parameters changed by.
    """

    size: Tensor
    suspicious: Tensor
    far: Tensor
    grown: Tensor
    level: Tensor
    change: Tensor


def norms_of(update: Update, given: State) -> tuple[list[str], Tensor]:
    """Names, and (2, T) float32: Euclidean norms of what each tensor changed by, and of the tensor itself; infinite for
    numbers that cannot be.

    Args:
        update: of one client.
        given: name → what it had been given. What is missing here is measured against 0.
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
        before = [given[names[place]].to(values[place].device, values[place].dtype) for place in moved]
        difference = torch._foreach_sub([values[place] for place in moved], before)
        changed = itself.clone()
        changed[moved] = torch.stack(torch._foreach_norm(difference, 2, torch.float32))
    return names, torch.stack([changed, itself])


def relative_sizes(norms: Tensor, chosen: Tensor) -> Tensor:
    """(K,) log of each client's size over that of a client whose every tensor has the median norm.

    The median of a tensor is the lower one of those that have it and move at all, so that clients with other tensors
    can be compared, and clients that send back what they were given count for nothing. A tensor that one client alone
    has harms nobody else and does not count.

    Args:
        norms: (K, T) norm of each client's tensors, NaN where it has none.
        chosen: (T,) bool, the tensors to look at.

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
    norms: Tensor, parameters: Tensor, numbers: Tensor, past: Sequence[tuple[Tensor, Tensor]], steps: Tensor
) -> Far:
    """Find clients whose update is far from the others', or from their own earlier updates.

    Parameters are compared by what they changed by. A client that takes more steps than the median one may move as much
    further. Statistics of normalisations are squares of what parameters are made of, so the root of their ratio counts.

    Args:
        norms: (2, K, T) as :func:`norms_of` gives them; NaN where a client has no such tensor, or is not to be looked
            at.
        parameters: (T,) bool, which tensors are parameters.
        numbers: (T,) of values in each tensor.
        past: (level, change) of earlier exchanges, the newest last.
        steps: (K,) how many each client takes in an epoch.
    """
    changed, itself = norms
    there = ~changed.isnan().all(1)
    more = (steps / torch.where(there, steps, torch.nan).nanmedian()).clamp_min(1).log()
    logs = torch.stack([relative_sizes(changed, parameters) - more, 0.5 * relative_sizes(itself, ~parameters)])
    away, spread = _distances(torch.where(there, logs, torch.nan))
    score, kind = (away / spread).nan_to_num(-math.inf, posinf=math.inf).max(0)
    away, spread = away.gather(0, kind[None])[0].nan_to_num(0.0, posinf=math.inf), spread[kind, 0]
    several, pair = there.sum() > 2, there.sum() == 2
    far = (score > FAR) & several
    # as many as the others: nobody can tell who is wrong
    far &= far.sum() * 2 < there.sum()
    # a sum of squares beyond float32 is far, whatever the others send
    far |= there & torch.where(changed.isnan(), 0.0, changed).square().sum(1).isinf()
    two = pair & (away > FAR * FLOOR)  # the lower median of two is the smaller
    suspicious = (score > SUSPICIOUS) & several | (two.any() & there)
    has = ~itself.isnan() & parameters
    has &= has.sum(0) > 1
    level = torch.where(has, itself, 0.0).square().sum(1).div((has * numbers).sum(1).clamp_min(1)).sqrt().log()
    level = torch.where(there, level, torch.nan)
    change = torch.where(has, changed, 0.0).square().sum(1).sqrt().log()
    change = torch.where(there & (change > -math.inf), change, torch.nan)  # who did not move has no usual step
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
    """How far each is from the median, and the spread by which that is judged: (kinds, K) and (kinds, 1)."""
    logs = torch.where(logs == -math.inf, torch.nan, logs)  # who does not move is no measure of others
    away = logs - logs.nanmedian(1, keepdim=True).values
    counted = torch.where(away > -STILL, away.abs(), torch.nan)
    spread = 1.4826 * counted.nanmedian(1, keepdim=True).values
    return away, spread.nan_to_num(0.0).clamp(FLOOR, CEILING)


def _by_history(
    level: Tensor, change: Tensor, past: Sequence[tuple[Tensor, Tensor]], *, pair: Tensor
) -> tuple[Tensor, Tensor]:
    """Against whom its own history speaks, and the log of how much it has grown."""
    before = torch.stack([past_level for past_level, _ in past]) if past else torch.full_like(level, torch.nan)[None]
    # initial values of networks are about 1 or less
    growth = level - before.nanmedian(0).values.nan_to_num(0.0).clamp_min(0.0)
    least = level.nan_to_num(math.inf, posinf=math.inf).min()
    grown = (growth > ABSURD) & (level - least > LARGER)
    if len(past) < 3:
        return grown, growth
    jump = change - torch.stack([past_change for _, past_change in past]).nanmedian(0).values
    calm = jump.nan_to_num(-math.inf).sort().values[-2:-1].le(FAR * FLOOR / 2).all()  # the other one's
    jumped = pair & calm & (jump > FAR * FLOOR)
    return grown | jumped, torch.where(grown, growth, jump)
