"""A client's table as a source returns it: columns, target and splits; and what is predicted of its
rows: the task.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from fedlit.errors import ConfigError, DataError, FedlitError, Told, did_you_mean, expect
from fedlit.outcomes import DEFAULT_TASK, LABELS_TASK, Outcome, outcome_type
from fedlit.show.text import in_rows, shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.schema import Schema
    from fedlit.tasks import Task

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_BLOCK = 65_536  # rows that are hashed at a time


TaskSettings = str | dict[str, Any]
"""A task's name, or ``{name: …}`` with its choices; for all clients, or by client's name or
pattern."""


@dataclass(frozen=True, eq=False)
class ClientTable:
    """The rows of one client, before any encoding.

    Attributes:
        name: the client's name.
        features: one column per feature, one row per row of the source; the index holds the row's
            number in the source file (0 is its first data row).
        target: the label of each row, in the source's own values, with the same index as
            ``features``. A frame with a column for each of several labels becomes what
            :func:`several` makes of it, and the task ``multi_label`` where none is said.
        splits: for ``"train"``, ``"validation"`` and ``"test"`` the *positions* (int64, shape
            (n_split,)) of its rows in ``features``.
        categorical: the names of the columns that hold categories; all others hold numbers.
        positive: the label that counts as positive where there are two; the larger one if None.
        concept: the concept that the labels follow, where an experiment knows it; used only for
            evaluation.
        task: what is predicted of the rows (``regression``), or ``{name: …}`` with the task's
            choices; classification if None.
        schema: how raw rows became these features, so that new rows can be read in the same way;
            None if the source returns typed columns.
        notes: notes on how the table was read and split.
        groups: (n,) which rows belong to one person or thing, and so in one split and one fold;
            None if that is not known.
        weights: (n,) float64, how much each row counts; None if all count alike.
        classes: the labels that are predicted, where its training rows have one of them only;
            otherwise empty.
        keys: identifier that is left out → a uint64 for each of its different values, ascending, by
            which clients can be compared that one process sees.
        unit: the unit beside the numbers of the target; "" if there is none.
    """

    name: str
    features: pd.DataFrame
    target: pd.Series
    splits: Mapping[Split, np.ndarray]
    categorical: tuple[str, ...] = ()
    positive: Any = None
    concept: str | None = None
    task: TaskSettings | None = None
    schema: Schema | None = None
    notes: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    classes: tuple[Any, ...] = ()
    weights: np.ndarray | None = None
    keys: Mapping[str, np.ndarray] = field(default_factory=dict)
    unit: str = ""

    def __post_init__(self) -> None:
        if self.target.ndim > 1:
            object.__setattr__(
                self,
                "target",
                several(cast("pd.DataFrame", self.target), f"client {self.name!r}, target"),
            )
        if isinstance(self.target.name, tuple) and self.task is None:
            object.__setattr__(self, "task", LABELS_TASK)

    def only(self, columns: Sequence[str]) -> ClientTable:
        """Return the table with only some of its columns. New rows then need no others."""
        kept = {*columns}
        categorical = tuple(name for name in self.categorical if name in kept)
        schema = self.schema and self.schema.only(columns)
        return replace(
            self, features=self.features[[*columns]], categorical=categorical, schema=schema
        )


def check_patterns(key: str, patterns: Iterable[str], clients: Iterable[str]) -> None:
    """Refuse names or patterns that match no client.

    Raises:
        ConfigError: naming the key.
    """
    names = list(clients)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            check_client(key, pattern, names)


def check_client(key: str, name: str, clients: Sequence[str]) -> None:
    """Refuse a name that no client has.

    Raises:
        ConfigError: naming the key.
    """
    expect(name in clients, key, f"one of the clients {shorten(clients)}", name, known=clients)


def first_match(settings: Mapping[str, Any], client: str) -> Any:
    """Return the value of the first name or pattern that matches a client, or None."""
    return next(
        (own for pattern, own in settings.items() if fnmatch.fnmatchcase(client, pattern)), None
    )


def several(labels: pd.DataFrame, where: str = "target") -> pd.Series:
    """Combine several labels a row into one target: each row becomes a tuple, and the target's name
    is the tuple of the columns' names.

    A value that is missing is None, and so is the tuple of a row that has no value at all. Whole
    numbers are integers, also where missing ones made them floats.

    Args:
        labels: one column for each label.
        where: the beginning of messages.

    Raises:
        DataError: no column, or one twice.

    Example:
        >>> import pandas as pd
        >>> target = several(pd.DataFrame({"died": [0, 1, None], "readmitted": ["no", None, None]}))
        >>> target.name, target.tolist()
        (('died', 'readmitted'), [(0, 'no'), (1, None), None])
    """
    import pandas as pd

    names = tuple(map(str, labels.columns))
    once = 0 < len(names) == len(set(names))
    advice = "name each once" if names else "name one, or several"
    expect(
        once, where, "a column for each label", Told(", ".join(names) or "none"), advice, DataError
    )
    columns = [_plain_labels(labels.iloc[:, place]) for place in range(labels.shape[1])]
    rows = [
        row if any(value is not None for value in row) else None
        for row in zip(*columns, strict=True)
    ]
    # an array would take tuples for columns
    values = np.fromiter(rows, dtype=object, count=len(rows))
    return pd.Series(values, labels.index, name=names)


def _plain_labels(column: pd.Series) -> list[Any]:
    missing = column.isna().tolist()
    values = column.tolist()
    known = [None if gone else value for value, gone in zip(values, missing, strict=True)]
    return [
        int(value) if isinstance(value, float) and value.is_integer() else value for value in known
    ]


def row_hashes(frame: pd.DataFrame) -> np.ndarray:
    """Return a uint64 for each row (n,), the same for equal rows. Numbers are compared as float64,
    everything else as text.

    Example:
        >>> import pandas as pd
        >>> first, second, third = row_hashes(pd.DataFrame({"x": [1, 1, 2], "ward": ["a", "a", "a"]}))
        >>> bool(first == second), bool(second == third)
        (True, False)
    """
    import pandas as pd

    if len(frame) > _BLOCK:  # copies of all rows may not fit
        return np.concatenate(
            [row_hashes(frame.iloc[at : at + _BLOCK]) for at in range(0, len(frame), _BLOCK)]
        )
    plain = {
        # -0 is 0
        place: own.to_numpy(np.float64) + 0.0
        if own.dtype.kind in "iuf"
        else own.astype(str).to_numpy()
        for place, (_, own) in enumerate(frame.items())
    }
    if not plain:  # refused later, by name
        return np.zeros(len(frame), np.uint64)
    return pd.util.hash_pandas_object(pd.DataFrame(plain), index=False).to_numpy()


def choose_columns(
    tables: Sequence[ClientTable], patterns: Sequence[str], *, strict: bool = True
) -> list[ClientTable]:
    """Return the tables with the columns that match the patterns, in their order.

    Args:
        tables: one per client.
        patterns: names or globs; one that starts with ``!`` takes out what an earlier one chose, or
            from all columns if it is the first.
        strict: whether each must match a column; of one client's table alone it need not.

    Raises:
        ConfigError: a pattern that matches no column of any client, or a client that is left
            without columns.
    """
    known = list(dict.fromkeys(str(name) for table in tables for name in table.features))
    for pattern in patterns if strict else ():
        met = bool(fnmatch.filter(known, pattern.removeprefix("!")))
        told = f"names or patterns among {shorten(known)}"
        expect(met, "data.columns", told, pattern, known=known)
    kept = set(known) if patterns and patterns[0].startswith("!") else set[str]()
    for pattern in patterns:
        matched = set(fnmatch.filter(known, pattern.removeprefix("!")))
        kept = kept - matched if pattern.startswith("!") else kept | matched
    chosen = []
    for table in tables:
        columns = [name for name in table.features if name in kept]
        expect(
            bool(columns),
            "data.columns",
            f"a column for client {table.name!r}",
            Told("none that is chosen"),
        )
        chosen.append(table.only(columns))
    return chosen


def leave_out(
    tables: Sequence[ClientTable], clients: Sequence[str], names: Sequence[str]
) -> list[ClientTable]:
    """Return the tables without those of some clients.

    Args:
        tables: the tables of the clients in this process.
        clients: the clients to leave out.
        names: the names of all clients, including those of other processes.

    Raises:
        ConfigError: a name that no client has, clients elsewhere, or nobody is left.
    """
    for name in clients:
        check_client("data.leave_out", name, names)
    here = not clients or len(tables) == len(names)
    advice = "drop the key, and do not start the sites to leave out"
    expect(here, "data.leave_out", "all clients here", Told("some elsewhere"), advice)
    kept = [table for table in tables if table.name not in clients]
    expect(bool(kept) or not clients, "data.leave_out", "a client that stays", Told("all left out"))
    return kept


# ---------------------------------------------------------------------- what is predicted


def class_labels(client: str, target: pd.Series, task: TaskSettings | None = None) -> pd.Series:
    """Return labels (n,) unchanged, except that whole numbers stored as floats become integers.
    Numbers of other tasks stay as they are.

    Raises:
        DataError: numbers that are no classes.
    """
    if outcome_for(task, client).one_label and target.dtype.kind == "f" and target.notna().all():
        odd = target[target % 1 != 0]
        where = f"client {client!r}, target {target.name!r}"
        advice = (
            "say task: regression to predict numbers; or name another target, or cut this one "
            "into classes first"
        )
        found = Told(f"numbers such as {in_rows(odd.index, odd, 3)}")
        expect(odd.empty, where, "class labels", found, advice, DataError)
        return target.astype(np.int64)  # the label is 1, not 1.0
    return target


def check_task(task: TaskSettings | None, clients: Iterable[str]) -> None:
    """Refuse a ``task`` that cannot be meant.

    Args:
        task: the task setting of the configuration.
        clients: whom it may name.

    Raises:
        ConfigError: an unknown task or choice, or a pattern that matches no client.
    """
    if isinstance(task, dict) and "name" not in task:
        check_patterns("task", task, clients)
        for own in task.values():
            _checked(own)
    elif task is not None:
        _checked(task)


def own_task(task: TaskSettings | None, client: str) -> dict[str, str] | None:
    """Return a client's task as ``{name: …}`` with its options, or None if the setting does not
    mention it.

    Example:
        >>> own_task({"north": "regression", "*": {"name": "classification"}}, "north")
        {'name': 'regression'}
    """
    if isinstance(task, dict) and "name" not in task:
        task = first_match(task, client)
    return None if task is None else _checked(task)


def outcome_for(task: TaskSettings | None, client: str) -> type[Outcome]:
    """Return what a client predicts.

    Args:
        task: the task setting of the configuration.
        client: the client's name.

    Raises:
        ConfigError: an unknown task or choice.
    """
    settings = own_task(task, client)
    outcome = outcome_type(DEFAULT_TASK if settings is None else settings["name"])
    assert outcome is not None  # the setting names a task, and so its class has been imported
    return outcome


def task_name(table: ClientTable) -> str:
    """Return the name of a client's task. It is looked up without torch, which knows all tasks."""
    task = table.task or DEFAULT_TASK
    if isinstance(task, dict) and "name" not in task:
        task = first_match(task, table.name) or DEFAULT_TASK
    return task if isinstance(task, str) else str(task["name"])


def outcome_at(table: ClientTable) -> type[Outcome]:
    """Return what is predicted of the rows of a client's table."""
    return outcome_type(task_name(table)) or outcome_for(table.task, table.name)


def has_classes(table: ClientTable) -> bool:
    """Return whether a client's target is one of several classes."""
    return outcome_at(table).one_label


def has_sequences(table: ClientTable) -> bool:
    """Return whether a client's target is a label for each position of a row, as with reads."""
    return outcome_at(table).sequence


def without_classes(table: ClientTable) -> str:
    """Describe a target that is not one of several classes."""
    outcome = outcome_at(table)
    if isinstance(table.target.name, tuple):
        what = "several columns" if outcome.number else "several labels"
        what = f"{what} a row"
    else:
        what = "a label for each position" if outcome.sequence else "a number to predict"
    return f"{what} (task: {task_name(table)})"


def _checked(task: TaskSettings) -> dict[str, str]:
    from fedlit.tasks import TASKS, task_of_settings

    own = {"name": task} if isinstance(task, str) else dict(task) if isinstance(task, dict) else {}
    name = str(own.get("name", ""))
    found = task_of_settings(name)
    if found is None:  # the hint takes its time, and each of many clients asks
        known = (
            f"one of {', '.join(TASKS)}, the path of a task's class, or {{name: one of them, …}}"
        )
        expect(False, "task", known, task, did_you_mean(name, TASKS).strip())
    assert found is not None
    own["name"] = found.name
    choices = found.choices
    for key, value in own.items():
        takes = (
            "; ".join(f"{key}: {' or '.join(values)}" for key, values in choices.items())
            or "no choices"
        )
        expect(
            key == "name" or value in choices.get(key, ()),
            f"task: {name}",
            takes,
            Told(f"{key}: {value}"),
        )
    return own


def target_facts(table: ClientTable) -> dict[str, Any]:
    """Return everything that a client may send about its target before training, as plain data.
    ``shared`` says whether it is sent whatever ``align`` is.

    Raises:
        DataError: a target that the task cannot predict.
    """
    from fedlit.tasks import task_named

    settings = own_task(table.task, table.name) or {"name": DEFAULT_TASK}
    target: pd.Series = table.target.iloc[table.splits["train"]]
    try:
        facts = task_named(settings["name"]).facts(target, settings, table.positive)
    except FedlitError as error:
        raise type(error)(f"client {table.name!r}, {error}") from error
    if table.classes:
        facts["labels"] = list(table.classes)
    return {**facts, "shared": settings.get("targets") == "pooled"}


def agree_on_task(
    client: str, facts: Mapping[str, Mapping[str, Any]], *, classes: bool = False
) -> Task:
    """Return a client's task, given what all clients send about their targets.

    Args:
        client: its name.
        facts: what each client sends, as :func:`target_facts` returns it. Facts of other clients
            count only if they are shared.
        classes: whether classifiers have their classes in common.

    Raises:
        DataError: nothing can be learnt of the target.
    """
    from fedlit.tasks import task_named

    own = facts[client]
    alike = {name: other for name, other in facts.items() if other["task"] == own["task"]}
    met = {
        name: other
        for name, other in alike.items()
        if other["shared"] or (classes and "labels" in other)
    }
    return task_named(own["task"]).agree(client, met if client in met else {client: own})


def refuse_several_tasks(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse clients with different tasks if their rows are pooled.

    Raises:
        ConfigError: they have different tasks.
    """
    kinds = {(own["task"], own.get("loss")): name for name, own in facts.items()}
    if len(kinds) > 1:
        found = " and ".join(
            f"{' of loss '.join(filter(None, kind))} at {name!r}" for kind, name in kinds.items()
        )
        raise ConfigError(
            f"pool: true puts all rows into one table and so needs one task, found {found}"
        )


def sent_about_targets(facts: Mapping[str, Mapping[str, Any]], align: str) -> list[dict[str, Any]]:
    """Describe what clients send each other about their targets (see
    :func:`fedlit.data.agree.told`).
    """
    labels = (
        [own for own in facts.values() if "labels" in own] if align in ("classes", "both") else []
    )
    told: list[dict[str, Any]] = []
    if labels:
        what = (
            "labels and length of sequences" if any("length" in own for own in labels) else "labels"
        )
        told.append(
            {"what": what, "key": f"data.align: {align}", "columns": [str(labels[0]["target"])]}
        )
    pooled = {name: str(own["target"]) for name, own in facts.items() if own["shared"]}
    if pooled:
        numbers = {name: list(numbers_sent(facts[name])) for name in pooled}
        longest = max(numbers.values(), key=len)
        what = (
            " and ".join([", ".join(longest[:-1]), *longest[-1:]])
            if len(longest) > 1
            else "".join(longest)
        )
        columns = sorted(set(pooled.values()))
        counts = {name: len(sent) for name, sent in numbers.items()}
        told.append(
            {"what": what, "key": "task.targets: pooled", "columns": columns, "numbers": counts}
        )
    return told


def numbers_sent(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among what a client sends about its target, by their names."""
    from fedlit.tasks import task_named

    names = ("count", "mean", "variance", *task_named(facts["task"]).more_facts)
    return {name: facts[name] for name in names if name in facts}
