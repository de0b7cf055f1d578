"""What predictions mean. It needs NumPy only, because a client can score rows without PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from fedlit.outcomes.base import Outcome as Outcome
from fedlit.outcomes.base import RowLoss as RowLoss
from fedlit.outcomes.labels import LabelSequence, OneLabel, SeveralLabels
from fedlit.outcomes.models import OneEach as OneEach
from fedlit.outcomes.numbers import Quantity, Rate
from fedlit.outcomes.survival import SurvivalCurve
from fedlit.types import State

OUTCOMES: Mapping[str, type[Outcome]] = {
    "classification": OneLabel,
    "regression": Quantity,
    "multi_label": SeveralLabels,
    "counts": Rate,
    "sequence_labelling": LabelSequence,
    "survival": SurvivalCurve,
}
"""The outcomes of the tasks that ship with fedlit, by the names of these tasks."""

DEFAULT_TASK = "classification"
"""The task if nobody names one."""
LABELS_TASK = "multi_label"
"""The task if nobody names one, and the target is several columns."""
NUMBER_TASK = "regression"
COUNT_TASK = "counts"
"""The tasks that are proposed where numbers are found."""

SEQUENCE_TASK = "sequence_labelling"
"""The task of sources of DNA reads."""


def outcome_type(task: str) -> type[Outcome] | None:
    """Return the outcome of a task, given its name; None if no such task is known here.

    The name of a task that does not ship is the path of its class, whose module must have been
    imported: names may come from files and sites that nobody trusts, and importing a module runs
    its code.

    Example:
        >>> outcome_type("regression"), outcome_type("os.path")
        (<class 'fedlit.outcomes.numbers.Quantity'>, None)
    """
    if task in OUTCOMES:
        return OUTCOMES[task]
    outcome = getattr(imported(task), "outcome_type", None)
    if isinstance(outcome, type) and issubclass(outcome, Outcome):
        return outcome
    return None


def imported(path: str) -> object:
    """Return what stands at a path, if its module has been imported; otherwise None."""
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def outcome_of(state: State) -> Outcome:
    """Return the outcome of a task, given its state (see :func:`fedlit.tasks.task_state`).

    Raises:
        LookupError: the task is not known here.
    """
    outcome = outcome_type(str(state["name"]))
    if outcome is None:
        raise LookupError(unknown_task(str(state["name"])))
    return outcome.of(state)


def unknown_task(name: str) -> str:
    """Return what to say about a task that is not known here."""
    return (
        f"expected one of the tasks {', '.join(OUTCOMES)}, found {name[:200]!r}; if the task is a "
        "class of your own, import its module first (--trust MODULE for a command)"
    )
