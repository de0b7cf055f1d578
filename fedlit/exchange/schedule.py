"""When clients exchange, and which of them take part, as functions of the settings, the seed and
the round.
"""

import math
from collections.abc import Iterable
from typing import Literal

import torch

from fedlit.errors import did_you_mean
from fedlit.seeding import derive_seed

Every = Literal["step", "epoch"] | dict[str, int]

BEGIN = -1
"""The number of the round before training, in which a rule determines what clients start from."""


def round_seed(seed: int, number: int) -> int:
    """Return the seed of a round.

    Args:
        seed: the run's seed.
        number: the number of exchanges before the round, or :data:`BEGIN`.
    """
    if number == BEGIN:
        return derive_seed(seed, "exchange", "begin")
    return derive_seed(seed, "exchange", number)


def wrong_every(every: Every) -> str:
    """Return what is wrong with a schedule; an empty text if nothing is."""
    if every in ("step", "epoch") or (
        isinstance(every, dict)
        and len(every) == 1
        and set(every) <= {"steps", "epochs"}
        and min(every.values()) >= 1
    ):
        return ""
    hint = ""
    if isinstance(every, dict):
        units = ["steps", "epochs"]
        unknown = [str(unit) for unit in every if unit not in units]
        if unknown:
            hint = "." + did_you_mean(unknown[0], units)
    return (
        "exchange.every: expected step, epoch, {steps: n} or {epochs: n} with n of at least 1, "
        f"found {every!r}{hint}"
    )


def due(every: Every, step: int, last: bool, epoch: int) -> bool:
    """Return whether an exchange follows an aligned step.

    Args:
        every: the schedule.
        step: the number of the aligned step, from 0.
        last: whether it is the last one of its epoch.
        epoch: the number of the epoch, from 0.

    Example:
        >>> due({"steps": 5}, step=9, last=False, epoch=0)
        True
    """
    if not isinstance(every, dict):
        return every == "step" or last
    if "steps" in every:
        return (step + 1) % every["steps"] == 0
    return last and (epoch + 1) % every["epochs"] == 0


def rounds(every: Every, epochs: int, steps: int) -> int:
    """Return the number of exchanges in some epochs.

    Args:
        every: see ``exchange.every``.
        epochs: the number of epochs.
        steps: aligned steps of an epoch; with 0, a schedule by steps has no exchange.

    Example:
        >>> rounds("epoch", 10, 4), rounds({"steps": 3}, 10, 4), rounds({"epochs": 3}, 10, 4)
        (10, 13, 3)
    """
    if not isinstance(every, dict):
        return epochs if every == "epoch" else epochs * steps
    if "epochs" in every:
        return epochs // every["epochs"]
    return epochs * steps // every["steps"]


def cohort_size(participation: float, clients: int) -> int:
    """Return how many clients take part in a round; at least one.

    Example:
        >>> cohort_size(0.07, 100)  # 0.07 * 100 is 7.000000000000001
        7
    """
    return max(1, math.ceil(round(participation * clients, 9)))


def cohort(
    participation: float, clients: Iterable[str], seed: int, round: int
) -> frozenset[str] | None:
    """Draw the clients of a round from (seed, round); None if all take part.

    Example:
        >>> len({cohort(0.4, "abcdefghi", seed, 0) for seed in range(9)}) > 3
        True
    """
    if participation == 1:
        return None
    names = sorted(clients)
    generator = torch.Generator().manual_seed(derive_seed(seed, "cohort", round))
    order = torch.randperm(len(names), generator=generator).tolist()
    return frozenset(
        names[position] for position in order[: cohort_size(participation, len(names))]
    )
