"""What clients agree on before they predict the time to an event: intervals and horizons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedlit.errors import DataError
from fedlit.outcomes.survival import DAYS
from fedlit.sketches import agreed_edges, agreed_quantile
from fedlit.tasks.base import Facts
from fedlit.tasks.survival_target import horizons_of, intervals_of

_CLOSEST = 1e-4
"""Ends of intervals that are closer than this share of the last one are one."""


class AgreedTimes(NamedTuple):
    """What clients have in common.

    Attributes:
        edges: the ends of the intervals.
        horizons: the times at which risks are shown and scored; each ends an interval.
        unit: the unit of times; "" if it is not known.
        hazard: the hazard of an interval over the rows of all these clients.
    """

    edges: tuple[float, ...]
    horizons: tuple[float, ...]
    unit: str
    hazard: float


def refuse_other_unit(client: str, facts: Facts, peer: str, facts_of_peer: Facts) -> None:
    """Refuse a client whose times are in another unit than those of a peer.

    Raises:
        DataError: the units differ; the message holds the conversion of the client's columns.
    """
    unit = json.loads(facts["settings"]).get("unit", "")
    of_peer = json.loads(facts_of_peer["settings"]).get("unit", "")
    if unit == of_peer:
        return
    advice = (
        "say what times are counted in at both (unit), and convert them if it differs (convert)"
    )
    if unit and of_peer:
        factor = float(f"{DAYS[unit] / DAYS[of_peer]:.12g}")
        time, _, *entry = facts["target"].split(", ")
        columns = {name: {"*": factor} for name in (time, *entry)}
        conversion = json.dumps({client: columns}, ensure_ascii=False)
        advice = f"convert its times, and say unit: {of_peer} for it, too: convert: {conversion}"
    raise DataError(
        f"client {client!r}, task: survival: expected times in the unit of {peer!r}, "
        f"{of_peer or 'none'}, found {unit or 'none'}; {advice}"
    )


def agreed_times(client: str, facts: Mapping[str, Facts]) -> AgreedTimes:
    """Return the intervals and horizons that clients share.

    Args:
        client: the client that asks.
        facts: maps it and its peers, whose settings are the same, to what they send.

    Raises:
        DataError: nothing is known of events, or a horizon is 0.
    """
    ordered = [facts[name] for name in sorted(facts)]
    first = facts[client]
    settings = json.loads(first["settings"])
    horizons, quantiles = horizons_of(settings)
    number, written_edges = intervals_of(settings)
    sketches = [sent["event_times"] for sent in ordered if len(sent["event_times"]) > 1]
    events = sum(sent["events"] for sent in ordered)
    if not events or (needs_times(settings) and not sketches):
        raise DataError(
            f"client {client!r}, target {first['target']!r}: expected an event in training "
            f"rows, found none that may be told in {sum(sent['count'] for sent in ordered):,} "
            "rows; name other clients, or lower data.facts_from"
        )
    for share in quantiles:
        horizons.append(_quantile(sketches, share))
    horizons = sorted({float(np.float32(horizon)) for horizon in horizons})
    if not horizons[0] > 0:
        raise DataError(
            f"client {client!r}, target {first['target']!r}: expected horizons above 0, found 0, "
            "as many events are at time 0; name times (horizons: [1y, 5y])"
        )
    edges = written_edges or agreed_edges(sketches, number)[1:] or horizons
    intervals = _with_horizons(edges, horizons)
    rows = sum(sent["count"] for sent in ordered)
    hazard = min(events / (rows * len(intervals)), 0.5)
    return AgreedTimes(intervals, tuple(horizons), settings.get("unit", ""), hazard)


def needs_times(settings: Mapping[str, Any]) -> bool:
    """Return whether horizons or intervals depend on the times of events."""
    return bool(horizons_of(settings)[1]) or not intervals_of(settings)[1]


def _quantile(sketches: Sequence[Sequence[float]], share: float) -> float:
    """Return a quantile of event times over all clients, to three digits."""
    return float(f"{agreed_quantile(sketches, share):.3g}")


def _with_horizons(edges: Sequence[float], horizons: Sequence[float]) -> tuple[float, ...]:
    """Return the ends of intervals with the horizons among them, ascending, as float32 holds them.
    An end gives way to a horizon that is next to it.

    Example:
        >>> _with_horizons([10.0, 20.0, 29.9999], [20.0, 30.0])
        (10.0, 20.0, 30.0)
    """
    least = _CLOSEST * max(*edges, *horizons)
    chosen = set(horizons)
    for edge in edges:
        end = float(np.float32(edge))
        if end > least and all(abs(end - near) > least for near in chosen):
            chosen.add(end)
    return tuple(sorted(chosen))
