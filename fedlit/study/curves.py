"""Learning curves of a run, from its TensorBoard events: what was drawn while it trained, also over a resume."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

__all__ = ["read_curves", "training_seconds"]

COLUMNS = ["client", "metric", "step", "value", "time"]


def read_curves(folder: Path, clients: Iterable[str]) -> pd.DataFrame:
    """Validation scores and training loss over a run.

    Args:
        folder: the run's, with one folder of events per client.
        clients: whose.

    Returns:
        One row per client, metric and logged epoch: ``client``, ``metric`` (``val/auroc``), ``step`` (aligned steps),
        ``value``, ``time`` (seconds since the epoch of Unix). Empty where nothing was logged.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = []
    for client in clients:
        if not any((folder / client).glob("events.*")):
            continue
        events = EventAccumulator(str(folder / client), size_guidance={"scalars": 0}, purge_orphaned_data=True)
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if tag.startswith("val/") or tag == "train/loss":
                rows += [(client, tag, event.step, event.value, event.wall_time) for event in events.Scalars(tag)]
    return pd.DataFrame(rows, columns=COLUMNS)


def training_seconds(curves: pd.DataFrame) -> float | None:
    """Median time between two logged epochs, times their number: unlike the time from start to end it does not count
    an interruption. None for less than two epochs.
    """
    moments = curves.groupby("step")["time"].min().sort_index()
    gaps = moments.diff().dropna()
    return float(gaps.median() * len(moments)) if len(gaps) else None
