"""How many of a round's clients must have a usable update, and the error if fewer have."""

import math
from collections.abc import Sequence

from fedlit.errors import RunError

Minimum = int | float | None
"""Clients that a round needs: a number, a share of those that take part, or more than half of them
(None)."""


def is_minimum(value: object) -> bool:
    """Return whether a value is one of :data:`Minimum`.

    Example:
        >>> [is_minimum(value) for value in (None, 2, 0.5, 0, 1.5, True, "50%")]
        [True, True, True, False, False, False, False]
    """
    if isinstance(value, float):
        return 0 < value <= 1
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)


def least(minimum: Minimum, clients: int) -> int:
    """Return how many of a round's clients must have a usable update.

    Args:
        minimum: see :data:`Minimum`.
        clients: the number of clients that take part.

    Example:
        >>> least(None, 4), least(None, 3), least(None, 2), least(0.25, 10), least(2, 10)
        (3, 2, 1, 3, 2)
    """
    if minimum is None:
        # With two clients, one is enough.
        if clients <= 2:
            return 1
        return clients // 2 + 1
    if isinstance(minimum, float):
        return max(1, math.ceil(minimum * clients - 1e-9))
    return minimum


def require(
    remaining: int, lost: Sequence[str], far: Sequence[str], minimum: int, where: str
) -> None:
    """Refuse to go on with too few clients.

    Args:
        remaining: the number of clients with a usable update.
        lost: the clients whose update is not finite.
        far: the clients that the guard left out.
        minimum: the number of clients that are needed.
        where: the exchange, for the message.

    Raises:
        RunError: fewer than the minimum remain.
    """
    if remaining >= minimum:
        return
    reasons = []
    if lost:
        reasons.append(f"not finite: {', '.join(lost)}")
    if far:
        reasons.append(f"far from the others: {', '.join(far)}")
    raise RunError(
        f"{where}: expected an update that counts from at least {minimum} clients, found it at "
        f"{remaining} ({'; '.join(reasons)}); look at the data, the units and the learning rate of "
        "those, clip gradients (model.gradient_clip_val), or set exchange.minimum to go on "
        "without them"
    )
