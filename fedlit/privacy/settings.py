"""The privacy settings of a configuration."""

import math
from dataclasses import dataclass

from fedlit.errors import expect
from fedlit.types import State

LEAST = 3
"""The least number of sites behind each sum: of two, each would know the other's part."""


@dataclass(frozen=True)
class Masked:
    """Sites send their updates under masks that cancel in the sum, so that the coordinator learns
    only the sum.

    Args:
        bits: binary digits behind the point of the whole numbers that are summed.
        norm: a site sends nothing where its update, the difference to what it received last, is
            longer than this (L2, all federated tensors together). None for no bound: nobody but the
            site can look.
        least: sites that must stand behind each sum; at least three. The more, the more must
            conspire to learn one's part.

    Raises:
        ConfigError: values out of range.

    Example:
        >>> Masked(norm=10.0)
        Masked(bits=32, norm=10.0, least=3)
    """

    bits: int = 32
    norm: float | None = None
    least: int = LEAST

    def __post_init__(self) -> None:
        why = f"at least {LEAST} sites: with two, each would know the other's part"
        expect(self.least >= LEAST, "least", why, self.least)
        expect(8 <= self.bits <= 52, "bits", "8 to 52 binary digits; 32 fits most", self.bits)
        valid = self.norm is None or 0 < self.norm < math.inf
        expect(valid, "norm", "a number above 0, or null for no bound", self.norm)


@dataclass(frozen=True)
class ClientLevel:
    """Client-level differential privacy at the site: each update is clipped, and noise is added
    before it leaves.

    Args:
        clip: the length (L2, all federated tensors together) to which a longer update, the
            difference from what was received last, is shortened.
        noise: the standard deviation of the noise in each coordinate, in units of ``clip``.
        delta: the δ at which ε is reported.
        answers: the largest number of noised answers that a site gives, whoever asks. With the
            number of planned rounds, ε is a bound that the site enforces itself. None for no limit.

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> ClientLevel(clip=1.0, noise=2.0).delta
        1e-05
    """

    clip: float
    noise: float
    delta: float = 1e-5
    answers: int | None = None

    def __post_init__(self) -> None:
        expect(0 < self.clip < math.inf, "clip", "a number above 0", self.clip)
        why = "a number above 0; without noise nothing is private"
        expect(0 < self.noise < math.inf, "noise", why, self.noise)
        valid = self.answers is None or self.answers >= 1
        expect(valid, "answers", "at least 1, or null for no end", self.answers)
        why = "a number in (0, 1), far below one over the number of sites"
        expect(0 < self.delta < 1, "delta", why, self.delta)


@dataclass(frozen=True)
class Privacy:
    """How sites are protected from each other and from the coordinator; by default they are not.

    Args:
        masked: settings of masked sums, with which only sums are seen; None for no masks.
        client_level: settings of clipping and noise at the site; None for no noise. With both, each
            site adds all of its noise, and the sum is masked.
    """

    masked: Masked | None = None
    client_level: ClientLevel | None = None

    @property
    def on(self) -> bool:
        """Whether there is any protection."""
        return self.masked is not None or self.client_level is not None


WITHOUT = ("masks", "noise", "norm", "least")
"""The words for protection that a person can give up."""


def weaker(before: State, now: State) -> tuple[str, ...]:
    """Return the protection that settings had and others lack, in words of :data:`WITHOUT`.

    Args:
        before: settings of :class:`Privacy` as plain data; empty for none.
        now: the settings that would follow.

    Example:
        >>> weaker({"masked": {"least": 4, "norm": 10.0}}, {"masked": {"least": 3, "norm": None}})
        ('norm', 'least')
        >>> weaker({"masked": {"least": 4, "norm": 10.0}}, {})
        ('masks',)
    """
    masks: State = before.get("masked") or {}
    still: State = now.get("masked") or {}
    level: State = before.get("client_level") or {}
    then: State = now.get("client_level") or {}
    both = bool(masks) and bool(still)
    gone = {
        "masks": bool(masks) and not still,
        "noise": bool(level) and (not then or _noisier(level, then)),
        "norm": both and _bound(still["norm"]) > _bound(masks["norm"]),
        "least": both and still["least"] < masks["least"],
    }
    return tuple(protection for protection in WITHOUT if gone[protection])


def _noisier(before: State, now: State) -> bool:
    """Return whether some noise promised more than other noise does."""
    less = now["noise"] < before["noise"]
    return (
        less or now["delta"] > before["delta"] or _bound(now["answers"]) > _bound(before["answers"])
    )


def _bound(value: float | None) -> float:
    return math.inf if value is None else value
