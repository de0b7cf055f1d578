"""Operating thresholds of a run's clients: chosen on validation rows, scored, and kept for
predictions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from fedlit.errors import ConfigError, DataError
from fedlit.files import write_text
from fedlit.score.scorer import no_threshold
from fedlit.tasks import Task
from fedlit.tasks.operating import ThresholdRule, choose_threshold, rule_text, scores_at
from fedlit.tasks.predictions import Predictions
from fedlit.train.supplement import Record, Supplement

THRESHOLDS = "thresholds.json"
"""In the folder of a run."""
AT_HALF = "0.5"
AT_THRESHOLD = "threshold"
_SHOWN = (
    "threshold", "sensitivity", "specificity", "ppv", "npv", "balanced_accuracy",
    "true_positives", "false_positives", "true_negatives", "false_negatives",
)  # fmt: skip


class Threshold(TypedDict, total=False):
    """A client's threshold as plain data: its value (None if there is none), its rule, the number of
    validation rows that chose it, and what it reaches on them. A client for whose state none was
    chosen has the value None alone.
    """

    value: float | None
    rule: str
    rows: int
    sensitivity: float
    specificity: float


Chosen = Mapping[str, Threshold]
"""Client → its threshold."""


def check_two_classes(tasks: Mapping[str, Task]) -> None:
    """Refuse a threshold where a client's task has none.

    Args:
        tasks: maps each client to its task.

    Raises:
        ConfigError: naming the clients that predict something else than one of two classes.
    """
    wrong = {}
    for client, task in tasks.items():
        if not task.outcome.one_label:
            wrong[client] = task.name
        elif len(task.classes) > 2:
            wrong[client] = f"{len(task.classes)} classes"
    if wrong:
        instead = ", ".join(f"{client}: {task_words}" for client, task_words in wrong.items())
        raise ConfigError(
            f"score.threshold: expected clients that predict one of two classes, found {instead}; "
            "leave it out, or leave these clients out (data.leave_out)"
        )


def choose(rule: ThresholdRule, validation: Mapping[str, Predictions]) -> dict[str, Threshold]:
    """Return the threshold of each client, chosen on its validation rows."""
    chosen: dict[str, Threshold] = {}
    for client, rows in validation.items():
        labelled = rows.known
        positive = rows.y.numpy()[labelled] == 1
        value = None
        reached = {"sensitivity": math.nan, "specificity": math.nan}
        if len(rows.task.classes) == 2:
            probability = rows.predictions[:, 1].numpy()[labelled]
            value = choose_threshold(positive, probability, rule, rows.known_weight)
            if value is not None:
                reached = scores_at(positive, probability >= value, rows.known_weight)
        chosen[client] = {
            "value": value,
            "rule": rule_text(rule),
            "rows": len(positive),
            "sensitivity": reached["sensitivity"],
            "specificity": reached["specificity"],
        }
    return chosen


def at_thresholds(rows: Predictions, value: float | None) -> dict[str, np.ndarray]:
    """Return which rows are predicted as positive (n,): at 0.5 as ``predicted`` says, and at the
    threshold if there is one.
    """
    predictions = rows.predictions.numpy()
    decisions = {AT_HALF: predictions.argmax(1) == 1}
    if value is not None:
        decisions[AT_THRESHOLD] = predictions[:, 1] >= value
    return decisions


def with_threshold(frame: pd.DataFrame, rows: Predictions, value: float | None) -> pd.DataFrame:
    """Return predictions with the column ``predicted_at_threshold`` if there is a threshold."""
    if value is None:
        return frame
    labels = np.array(rows.task.classes, dtype=object)
    reached = at_thresholds(rows, value)[AT_THRESHOLD]
    return frame.assign(**{f"predicted_at_{AT_THRESHOLD}": labels[reached.astype(int)]})


def records_of(chosen: Chosen, scored: Mapping[str, Predictions]) -> list[Record]:
    """Return the scores of each client at 0.5 and at its threshold. A row does not count if no
    training row has its label.
    """
    records: list[Record] = []
    for client, rows in scored.items():
        value = chosen[client]["value"]
        labelled = rows.known
        positive = rows.y.numpy()[labelled] == 1
        for at, predicted in at_thresholds(rows, value).items():
            threshold = 0.5 if at == AT_HALF else value
            record = {"client": client, "at": at, "threshold": threshold}
            records.append(
                {**record, **scores_at(positive, predicted[labelled], rows.known_weight)}
            )
    return records


def supplement_of(rule: ThresholdRule, chosen: Chosen, records: list[Record]) -> Supplement:
    """Return the table of all clients' scores at thresholds."""
    none = [client for client, choice in chosen.items() if choice["value"] is None]
    notes = [f"{client}: {no_threshold(chosen[client]['rows'])}" for client in none]
    title = f"At 0.5, and at the threshold that validation rows chose ({rule_text(rule)}):"
    return Supplement("thresholds", title, records, _SHOWN, tuple(notes))


MIXTURE = "the mixture"
"""The one state of a mixture."""


def state_of(checkpoint: Path, epochs: int) -> str:
    """Return the state of the clients to which thresholds belong."""
    return f"{checkpoint.name} after epoch {epochs}"


def keep(folder: Path, state: str, chosen: Chosen) -> None:
    """Write the thresholds to a run's folder.

    Args:
        folder: the folder of the run.
        state: the state of the clients that they belong to.
        chosen: the thresholds.
    """
    clients = {}
    for client, choice in chosen.items():
        clients[client] = {key: _finite(value) for key, value in choice.items()}
    write_text(
        json.dumps({"state": state, "clients": clients}, indent=2) + "\n", folder / THRESHOLDS
    )


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def kept(
    folder: Path | None, state: str, clients: Iterable[str], rule: ThresholdRule | None
) -> dict[str, Threshold]:
    """Return the thresholds of clients, as facts about their scorers.

    Args:
        folder: the folder of the run.
        state: the state of the clients.
        clients: the names of the clients.
        rule: the rule, if the run's configuration has one.

    Returns:
        Client → its threshold; ``value`` is None if none was chosen for this state. Empty if nobody
        has asked for one.

    Raises:
        DataError: the file is not as it was written.
    """
    if folder is not None and (path := folder / THRESHOLDS).is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            chosen = {
                client: _read(choice)
                for client, choice in content["clients"].items()
                if client in clients
            }
            if content["state"] == state:
                return chosen
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}: expected thresholds as fedlit test writes them, found others; run fedlit "
                "test again"
            ) from error
    elif rule is None:
        return {}
    return {client: {"value": None} for client in clients}


def _read(content: Mapping[str, Any]) -> Threshold:
    threshold: Threshold = {
        "value": content["value"],
        "rule": str(content["rule"]),
        "rows": int(content["rows"]),
        "sensitivity": content["sensitivity"],
        "specificity": content["specificity"],
    }
    if content["value"] is not None:
        threshold["value"] = float(content["value"])
        threshold["sensitivity"] = float(content["sensitivity"])
        threshold["specificity"] = float(content["specificity"])
        if not 0 <= float(content["value"]) <= 1:
            raise ValueError("expected a threshold from 0 to 1")
    return threshold
