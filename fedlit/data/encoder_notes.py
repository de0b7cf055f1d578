"""Notes on columns without information, and on a target, which an encoder finds in a table."""

from __future__ import annotations

import pandas as pd
from torch import Tensor

from fedlit.data.note import Note, client_note
from fedlit.data.table import ClientTable
from fedlit.tasks import Task


def column_notes(table: ClientTable) -> list[Note]:
    """Return notes on columns that carry no information."""
    rows = table.splits["train"]
    empty = list[str]()
    constant = list[str]()
    for column, kind in table.kinds.items():
        if kind is None:
            empty.append(column)
        elif column in table.numbers:
            if table.numbers[column].is_constant:
                constant.append(column)
        elif _is_constant(table.features[column].iloc[rows]):
            constant.append(column)
    kinds = (
        (empty, "no value", "no value in training rows, so without effect"),
        (constant, "one value", "the same value in all training rows"),
    )
    return [
        client_note(
            table.name, kind, f"{text}: {', '.join(names)}", columns=names, fix={"drop": names}
        )
        for names, kind, text in kinds
        if names
    ]


def _is_constant(values: pd.Series) -> bool:
    """Return whether all cells (n,) are equal; the first rows rule out most columns."""
    few = values.iloc[:1000]
    return few.nunique(dropna=False) < 2 and values.nunique(dropna=False) < 2


def target_notes(table: ClientTable, task: Task, train: Tensor, validation: Tensor) -> list[Note]:
    """Return notes on a table's target; ``train`` and ``validation`` hold the encoded target of
    these rows.
    """
    rows = len(table.splits["train"])
    notes = list[Note]()
    if task.label_counts:
        counted = [(label, have, labelled) for label, (have, labelled) in task.label_counts.items()]
        if same := [
            label for label, have, labelled in counted if labelled and have in (0, labelled)
        ]:
            text = f"the same in all training rows, so nothing is learnt of: {', '.join(same)}"
            notes.append(client_note(table.name, "one class", text, columns=same))
        gaps = {label: rows - labelled for label, _, labelled in counted if 0 < labelled < rows}
        if gaps:
            gaps_text = ", ".join(f"{label} ({count:,})" for label, count in gaps.items())
            text = f"not known of some training rows, which count nowhere for it: {gaps_text}"
            notes.append(client_note(table.name, "unlabelled", text, columns=list(gaps)))
        return notes
    target = [table.target_title]
    for text in task.remarks(train):
        notes.append(client_note(table.name, "few rows", text, columns=target))
    classes = sum(class_rows > 0 for class_rows in task.class_rows)
    if classes > 20 and classes > rows / 4 and not task.outcome.sequence:
        text = f"{classes} classes in {rows} training rows; is {target[0]!r} the target?"
        notes.append(client_note(table.name, "many classes", text, columns=target))
    if not task.classes and table.training_target.nunique() == 1:
        text = f"{target[0]!r} is the same in all training rows: there is nothing to learn"
        notes.append(client_note(table.name, "one value", text, columns=target))
    if unseen := int(task.unseen(validation).sum()):
        unit = task.outcome.unit
        rows_text = "validation rows" if unit == "row" else f"{unit}s of validation rows"
        text = f"{unseen:,} {rows_text} have a label that no training row has; they count as wrong"
        notes.append(client_note(table.name, "rare class", text, columns=target))
    return notes
