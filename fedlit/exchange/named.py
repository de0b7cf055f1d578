"""Counts and reports which clients' updates were left out of exchanges or watched."""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedlit.errors import LeftOutError
from fedlit.exchange.guard import DONE, Verdict

_log = logging.getLogger(__name__)

Found = Mapping[str, Mapping[str, int]]
"""Maps each client to the number of ``exchanges`` that it took part in, and of those in which it
was ``left_out``, ``watched``, ``not_finite`` or ``unfit``."""

OUT = ("left_out", "not_finite")
"""The findings that keep a client from taking part as the others do; a client that is only watched
takes part."""

OFTEN = 0.5
"""The share of its exchanges from which on a client is reported, at the end, as left out too
often."""

_SAID = {
    "left_out": "was left out: {why}",
    "watched": "is watched, and takes part: {why}",
}
_ADVICE = "look at its data, its units and its learning rate"


class Incidents:
    """Counts and logs the clients whose updates were not finite, or that the guard named."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def take(
        self,
        verdict: Verdict,
        number: int,
        clients: Iterable[str],
        lost: Sequence[str] = (),
        void: Sequence[str] = (),
    ) -> dict[str, float]:
        """Count and log the findings of one exchange.

        Args:
            verdict: the findings of the guard.
            number: the number of exchanges before this one.
            clients: the clients that took part.
            lost: the clients whose update was not finite.
            void: the clients without whose update there was no masked sum.

        Returns:
            The values to log, by ``<client>/<tag>``.
        """
        exchange = f"exchange {number + 1}"
        records = dict[str, float]()
        before = self.before(lost)
        for client in clients:
            self._counts[client]["exchanges"] += 1
        for client in lost:
            records[f"{client}/exchange/not_finite"] = float(self._count(client, "not_finite"))
            _log.warning(
                f"{exchange}: client {client!r} was left out, its state is not finite; it received "
                f"the aggregate{before}"
            )
        for client in void:
            records[f"{client}/exchange/unfit"] = float(self._count(client, "unfit"))
        if void:
            _log.warning(
                f"{exchange}: there is no sum, because {', '.join(void)} called its update unfit; "
                "every client goes back to what it received last, and the next exchange counts"
            )
        for done in DONE:
            for client, size in getattr(verdict, done).items():
                count = self._count(client, done)
                records[f"{client}/exchange/{done}"] = float(count)
                records[f"{client}/exchange/size"] = size
                if count in _MARKS:
                    sentence = _SAID[done].format(why=_why(size, grown=client in verdict.grown))
                    if count > 1:
                        sentence += f" ({count} times so far)"
                    if client in verdict.doubt:
                        sentence += "; nobody can tell whether it or others are wrong"
                    _log.warning(f"{exchange}: client {client!r} {sentence}; {_ADVICE}")
        return records

    def before(self, lost: Iterable[str] = ()) -> str:
        """Return the clients that the guard named earlier and that may have caused an error, as the
        end of a message.

        Args:
            lost: clients that the message is about.
        """
        named = {name for name, counts in self._counts.items() if counts["watched"]}
        guilty = named.difference(lost)
        if not guilty:
            return ""
        return f"; before that the guard named {', '.join(map(repr, sorted(guilty)))}"

    def counts(self) -> dict[str, dict[str, int]]:
        """Map each client to how often it was left out, watched or not finite; omit clients without
        a finding.
        """
        return counts_in({"named": self._counts})

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Return the state that a resumed run needs."""
        return {name: dict(counts) for name, counts in self._counts.items()}

    def load_state_dict(self, state: Found) -> None:
        """Restore a state that ``state_dict`` returned."""
        self._counts = defaultdict(
            Counter, {client: Counter(counts) for client, counts in state.items()}
        )

    def _count(self, client: str, done: str) -> int:
        self._counts[client][done] += 1
        return self._counts[client][done]


_MARKS = tuple(10**power for power in range(12))
"""The counts at which a repeated finding is logged, because exchanges at every step would fill the
terminal."""


def _why(size: float, *, grown: bool = False) -> str:
    if not math.isfinite(size):
        return "its update has numbers that cannot be (beyond float32, or a negative variance)"
    if grown:
        return f"it has grown {_times(size)} since earlier exchanges, and no other one has"
    return f"its update is {_times(size)} as large as that of the client in the middle"


def _times(size: float) -> str:
    if size < 1000:
        return f"{size:,.1f} times"
    return f"{size:.1e} times"


def counts_in(state: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the counts of clients that were left out or watched, from a checkpoint; empty without
    an exchange.
    """
    keys = ("exchanges", *DONE, "not_finite", "unfit")
    findings = {}
    for name, counts in sorted(state.get("named", {}).items()):
        if counts.keys() != {"exchanges"}:
            findings[name] = {key: counts[key] for key in keys if key in counts}
    return findings


def too_often(found: Found) -> list[str]:
    """Return the clients that were left out of half or more of the exchanges that they took part
    in.

    Example:
        >>> too_often({"north": {"exchanges": 4, "left_out": 2}, "south": {"exchanges": 4, "watched": 4}})
        ['north']
    """
    names = []
    for name, counts in found.items():
        times = sum(counts.get(finding, 0) for finding in OUT)
        if times and times >= OFTEN * counts.get("exchanges", times):
            names.append(name)
    return sorted(names)


def check_left_out(found: Found) -> None:
    """Raise an error if a client was left out too often, so that the command's exit status shows
    it.

    Raises:
        LeftOutError: a client was left out of half or more of its exchanges.
    """
    if out := too_often(found):
        raise LeftOutError(
            f"training came to its end, and {' and '.join(out)} was left out of half or more of "
            "its exchanges: it learns from the others, and they learn next to nothing from it. "
            "Look at its data, units and learning rate, and train anew"
        )


def words(found: Found) -> list[str]:
    """Return one line for each client that was left out or watched, the worst first.

    Example:
        >>> words({"north": {"exchanges": 4, "left_out": 3, "watched": 1}})
        ["north: left out of 3 of its 4 exchanges (its updates were far from the others'), watched
        in 1"]
    """
    lines: list[tuple[int, str]] = []
    gone = {
        "left_out": "its updates were far from the others'",
        "not_finite": "not finite",
        "unfit": "there was no sum",
    }
    for name, counts in sorted(found.items()):
        of = f"of its {counts.get('exchanges', 0)} exchanges"
        parts = [
            f"left out of {counts[key]} {of} ({why})"
            for key, why in gone.items()
            if counts.get(key)
        ]
        if counts.get("watched"):
            parts.append(f"watched in {counts['watched']}")
        lines.append((-sum(counts.get(key, 0) for key in gone), f"{name}: {', '.join(parts)}"))
    return [line for _, line in sorted(lines)]
