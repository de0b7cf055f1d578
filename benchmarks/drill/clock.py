"""Clocks that jump: a machine's time of day is set, forwards or back, while it trains. Bits and
ends are as without.

``time.time`` and what is made of it is shifted inside the processes. ``time.monotonic`` never jumps
on a real machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from drill.federation import Job, differing, end_of, import_all
from drill.forks import alive, ended, kill, start, told

Rows = list[tuple[str, int, int, str]]
HOUR = 3600.0
YEAR = 365.25 * 86400
JUMPS: dict[str, Callable[[int], float]] = {
    "an hour ahead": lambda call: HOUR if call > 20 else 0.0,
    "an hour back": lambda call: -HOUR if call > 20 else 0.0,
    "ten years ahead": lambda call: 10 * YEAR if call > 20 else 0.0,
    "ten years back": lambda call: -10 * YEAR if call > 20 else 0.0,
    "to and fro": lambda call: HOUR if call // 10 % 2 else -HOUR,
    "back from the start": lambda call: -10 * YEAR,
}
"""What → seconds that are added, by the number of the call."""
JOBS = (
    Job("one", "global layers", "plain"),
    Job("one", "averages, then fine-tuned", "stacked"),
    Job("ranks", "fedgmcc"),
    Job("sites"),
)


def shift(jump: Callable[[int], float]) -> None:
    """Have the time of day of this process jump."""
    real = time.time
    real_ns = time.time_ns
    calls = [0]

    def seconds() -> float:
        calls[0] += 1
        return real() + jump(calls[0])

    def nanoseconds() -> int:
        calls[0] += 1
        return real_ns() + int(jump(calls[0]) * 1e9)

    time.time, time.time_ns = seconds, nanoseconds  # type: ignore[assignment]


def clock(folder: Path, tries: int) -> Rows:
    """See the module.

    Args:
        folder: to work in.
        tries: how many of the jumps, each with four federations.
    """
    import_all()
    rows = []
    for number, job in enumerate(JOBS):
        place = folder / f"whole-{number}"
        place.mkdir(parents=True)
        begun = time.monotonic()
        _run(job.alone(place), place, None)
        seconds = time.monotonic() - begun
        wrong = []
        chosen = list(JUMPS.items())[:tries]
        for name, jump in chosen:
            own = folder / f"{number}-{name.replace(' ', '-')}"
            own.mkdir()
            found = _run(job.works(own), own, jump, 60 + 5 * seconds)
            found = found or differing(end_of(place), end_of(own), stacked=job.engine == "stacked")
            wrong += [f"{name}: {found}"] if found else []
        note = "; ".join(wrong) or f"same bits: {', '.join(name for name, _ in chosen)}"
        rows.append((f"clock, {job.name}", len(chosen), len(chosen) - len(wrong), note))
    return rows


def _run(
    works: list, place: Path, jump: Callable[[int], float] | None, patience: float = 300
) -> str:  # type: ignore[type-arg]
    def shifted(work: Callable[[], None]) -> Callable[[], None]:
        def both() -> None:
            if jump is not None:
                shift(jump)
            work()

        return both

    groups = [start(shifted(work), place / "log", **environment) for work, environment in works]
    codes = [ended(group, patience) for group in groups]
    left = any(map(alive, groups))
    for group in groups:
        kill(group)
    if None in codes or left:
        return f"had not ended after {patience:.0f} s"
    return f"exit status {codes}: {told(place / 'log')}" if any(codes) else ""
