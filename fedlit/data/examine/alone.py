"""What is odd in one client's table."""

from __future__ import annotations

from fedlit.data.examine.facts import is_number, labels_of, task_of
from fedlit.data.examine.kinds import KINDS
from fedlit.data.labels import MANY_CLASSES
from fedlit.data.note import Note
from fedlit.data.schema.cells import FALSE, TRUE
from fedlit.data.table import ClientTable

__all__ = ["alone", "likely_positive", "noted"]

_WORDS = """
    positive pos ill sick diseased disease case event dead died deceased malignant cancer abnormal readmitted
    default churn churned fraud spam bad failure failed relapse present
"""  # of a label that says that something is there
_NO_WORDS = """
    negative neg healthy well control alive survived benign normal good none ok absent success
"""


def alone(table: ClientTable) -> list[Note]:
    """Find what is odd in one table, except leaks (see :mod:`fedlit.data.examine.leaks`)."""
    return [*_untrainable(table), *_of_notes(table), *_task(table), *_positive(table)]


def noted(note: str) -> bool:
    """Return whether a note is one of the findings here, and need not be shown twice."""
    return isinstance(note, Note) and note.kind in KINDS


def likely_positive(labels: list[object]) -> object | None:
    """Return the label of two that means that something is present; None if the words do not tell.

    Example:
        >>> likely_positive(["ill", "well"]), likely_positive(["No", "Yes"]), likely_positive([0, 1])
        ('ill', 'Yes', None)
    """
    if len(labels) != 2 or not all(isinstance(own, str) for own in labels):
        return None
    for label, other in (labels, labels[::-1]):
        word, against = str(label).casefold().strip(), str(other).casefold().strip()
        if word in TRUE.union(_WORDS.split()) or against in FALSE.union(_NO_WORDS.split()):
            return label
    return None


def _untrainable(table: ClientTable) -> list[Note]:
    """Training rows from which nothing can be learnt."""
    target, task = table.target.iloc[table.splits["train"]], task_of(table)
    held = target.dropna()
    advice = "Say another target, or leave the client out."
    different = [set(own) for own in labels_of(target).values()] or [set(held.unique())]
    if not len(held):
        what = "no training row has a value to predict"
    elif task == "classification" and len(different[0]) < 2:
        what = f"one class: a classifier cannot be trained on it ({held.iloc[0]} in all {len(held):,} training rows)"
        advice = "Leave the client out, or give all clients the common classes: data.align: classes."
    elif task == "multi_label" and all(len(own) < 2 for own in different):
        what = f"no label has two values in its {len(held):,} training rows: a classifier cannot be trained on it"
    elif task == "counts" and different[0] == {0}:
        what = f"0 in all {len(held):,} training rows: no rate can be learnt from it"
    else:
        return []
    name = ", ".join(labels_of(table.target)) or str(table.target.name)
    return [Note(what, "untrainable", clients=(table.name,), column=name, advice=advice)]


def _of_notes(table: ClientTable) -> list[Note]:
    """Return the notes of reading that are findings."""
    return [
        Note(note.text, note.kind, clients=(table.name,), column=note.column, fix=note.fix)
        for note in table.notes
        if isinstance(note, Note) and note.kind in ("group", "missing", "date")
    ]


def _task(table: ClientTable) -> list[Note]:
    target = table.target
    if table.task is not None or getattr(target, "ndim", 1) != 1 or target.dtype.kind not in "iu":
        return []
    if (different := target.nunique()) <= MANY_CLASSES:
        return []
    what = f"{different} different whole numbers are taken for classes"
    advice = "If they are numbers (a count, a grade), predict a number."
    fix = {"task": "regression"}
    return [Note(what, "task", clients=(table.name,), column=str(target.name), fix=fix, advice=advice)]


def _positive(table: ClientTable) -> list[Note]:
    if table.positive is not None or task_of(table) != "classification" or getattr(table.target, "ndim", 1) != 1:
        return []
    labels = table.target.unique().tolist()
    likely = likely_positive(labels)
    if likely is None or is_number(table.target) or likely == max(labels):
        return []
    what = f"AUROC and AUPRC are of {max(labels)!r}, which is not the word for a case"
    advice = f"If {likely!r} is what you look for, say so."
    fix, name = {"positive": likely}, str(table.target.name)
    return [Note(what, "positive", clients=(table.name,), column=name, fix=fix, advice=advice)]
