"""What clients send each other before training, and what they agree on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from fedlit.data.columns import (
    NUMBERS,
    ColumnEncoder,
    Tail,
    input_names,
)
from fedlit.data.common import (
    CommonColumns,
    find_groups,
    kind_conflict,
)
from fedlit.data.moments import Moments
from fedlit.data.schema.column import Kind
from fedlit.data.statement import Statement, Statements, state
from fedlit.data.table import ClientTable
from fedlit.data.targets import agree_on_task, refuse_several_tasks, target_facts
from fedlit.data.terms import Terms
from fedlit.errors import DataError
from fedlit.names import Share
from fedlit.sharing import all_here
from fedlit.sketches import agreed_edges

if TYPE_CHECKING:
    from fedlit.tasks import Task


@dataclass(frozen=True)
class AgreedColumn:
    """A column that several clients share, and how they encode it.

    Attributes:
        clients: the clients that share it, sorted by name.
        kind: its kind at all of these clients; None if no training row has a value.
        categories: the categories of all these clients, sorted; None if each client has its own.
        moments: the moments of all these clients' numbers; None if each client has its own.
        edges: the edges of the common bins, in the column's own units; empty if each client has its
            own.
        tail: how other categories are encoded if coding is ``auto``.
    """

    clients: tuple[str, ...]
    kind: Kind | None
    categories: tuple[Any, ...] | None = None
    moments: Moments | None = None
    tail: Tail = ""
    edges: tuple[float, ...] = ()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> AgreedColumn:
        """Restore an agreed column from its plain data."""
        moments = None
        if state["moments"]:
            moments = Moments(**state["moments"])
        return cls(**{**state, "moments": moments})

    @cached_property
    def members(self) -> frozenset[str]:
        """The same clients as a set, for fast look-up."""
        return frozenset(self.clients)

    def encoder(self, name: str, terms: Terms) -> ColumnEncoder:
        """Return the encoder that all clients with this column use."""
        kind = self.kind or NUMBERS
        gap = terms.categories == "auto"
        if kind == NUMBERS:
            gap = terms.missing == "indicator"
        return ColumnEncoder(name, kind, self.moments, self.categories or (), self.tail, gap=gap)


@dataclass(frozen=True)
class Agreement:
    """What clients agreed on. With it, each client can encode its own table without the others.

    Attributes:
        terms: the settings of the agreement.
        columns: the columns that clients share, by name.
        groups: the groups of clients that share columns; None if ``terms.common`` asks for none.
        apart: descriptions of columns that have one name but are not common.
        targets: maps each client that sent anything about its target to what it sent.
    """

    terms: Terms
    columns: Mapping[str, AgreedColumn] = field(default_factory=dict)
    groups: tuple[CommonColumns, ...] | None = None
    apart: tuple[str, ...] = ()
    targets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def shared(self, client: str, column: str) -> AgreedColumn | None:
        """Return what was agreed on a client's column, or None if the client does not share it."""
        agreed = self.columns.get(column)
        if agreed is None or client not in agreed.members:
            return None
        return agreed

    def topics(self, column: str) -> list[str]:
        """Return the topics on which the clients that share a column send values: categories,
        moments or sketches.
        """
        agreed = self.columns[column]
        terms = self.terms
        is_shared = len(agreed.clients) > 1
        numbers = agreed.kind == NUMBERS
        # Names of inputs contain the category.
        named = is_shared or (terms.features and terms.categories != "codes")
        coded = bool(agreed.kind) and not numbers and terms.alike and named
        needed = {
            "categories": coded,
            "tails": coded and terms.categories == "auto",
            "moments": numbers and terms.pooled,
            "sketches": numbers and terms.sketched and is_shared,
        }
        return [topic for topic, is_needed in needed.items() if is_needed]

    def with_client(self, client: str, terms: Terms, columns: Iterable[str]) -> Agreement:
        """Return the agreement for one more client, which has these columns and sends nothing.

        Its numbers are encoded like the others' as far as ``terms`` make columns common. It joins
        each group whose columns it has completely.
        """
        client_columns = set(columns)
        groups = self.groups
        shared = {*self.columns}
        if groups is not None:
            groups = tuple(
                replace(group, clients=(client,))
                for group in groups
                if client_columns.issuperset(group.columns)
            )
            if not terms.features:
                shared = {*chain(*(group.columns for group in groups))}
        agreed_columns = {
            name: replace(agreed, clients=(client,))
            for name, agreed in self.columns.items()
            if name in shared
        }
        return replace(self, terms=terms, columns=agreed_columns, groups=groups, apart=())

    def state_dict(self) -> dict[str, Any]:
        """Return the agreement as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Agreement:
        """Restore an agreement from its state."""
        columns = {name: AgreedColumn.of(column) for name, column in state["columns"].items()}
        groups = state["groups"]
        if groups is not None:
            groups = tuple(CommonColumns(**group) for group in groups)
        terms = Terms(**state["terms"])
        return cls(terms, columns, groups, tuple(state["apart"]), state["targets"])

    def task_of(self, client: str, client_target: Mapping[str, Any]) -> Task:
        """Return a client's task, given what it may send about its target (see
        :func:`fedlit.data.targets.target_facts`). A client that sent nothing takes the task of those
        that did.
        """
        if not self.terms.shares(client_target):
            return agree_on_task(client, {client: client_target})
        targets = self.targets
        if client not in targets:
            from fedlit.tasks import task_named

            task = client_target["task"]
            same_task = [name for name, sent in targets.items() if sent["task"] == task]
            if same_task:
                peer = same_task[0]
                task_named(task).check_peer(client, client_target, peer, targets[peer])
                client = peer
            else:
                targets = {client: client_target}
        sent = targets[client]
        key = sent["task"], sent.get("loss"), sent["target"]
        # One task for all clients that share it, because agreeing reads what all of them sent.
        if key not in self._tasks:
            self._tasks[key] = agree_on_task(client, targets, classes=self.terms.classes)
        return self._tasks[key]

    @cached_property
    def _tasks(self) -> dict[tuple[Any, ...], Task]:
        return {}

    @cached_property
    def features(self) -> tuple[str, ...] | None:
        """The inputs of all clients, sorted by name; None if each client has its own inputs."""
        if not self.terms.features:
            return None
        coding = self.terms.categories
        inputs = {
            name: agreed.encoder(name, self.terms).inputs(coding)
            for name, agreed in self.columns.items()
        }
        return tuple(sorted(input_names(inputs)))


def facts(table: ClientTable, terms: Terms, agreement: Agreement | None = None) -> dict[str, Any]:
    """Return everything that leaves a client before training. It covers training rows only, and no
    more than the terms require.

    Args:
        table: the client's table.
        terms: the settings to agree on.
        agreement: the agreement on the facts of all clients without this argument. It says which
            columns are shared, and therefore which values must be sent as well.

    Returns:
        JSON: ``columns`` (name → kind) if columns are common or scaled together; ``target`` if
            classes are common (labels, the positive one) or a number is pooled (count, mean,
            variance); and with an agreement ``categories``, ``moments`` (count, mean, variance) and
            ``sketches`` (rows, quantiles) by column.

    Raises:
        DataError: labels of several types.

    Example:
        >>> import numpy as np, pandas as pd
        >>> rows = {"train": np.arange(2), "validation": np.array([2]), "test": np.array([3])}
        >>> frame = pd.DataFrame({"age": [40.0, 60.0, 80.0, 20.0], "sex": [0, 1, 1, 0]})
        >>> table = ClientTable("bern", frame, pd.Series([0, 1, 1, 0], name="ill"), rows, ("sex",))
        >>> facts(table, Terms())
        {}
        >>> terms = Terms(align="features", scaling="pooled")
        >>> first = facts(table, terms)
        >>> first
        {'columns': {'age': 'numeric', 'sex': 'coded'}}
        >>> facts(table, terms, agree({"bern": first, "thun": first}, terms))["categories"]
        {'sex': [0.0, 1.0]}
    """
    sent = dict[str, Any]()
    names = [column for column in map(str, table.features) if terms.sends(column)]
    if names:
        sent["columns"] = {column: table.kinds[column] for column in names}
    target = target_facts(table, terms.facts_from)
    if terms.shares(target):
        sent["target"] = {**target, "shared": terms.pool or target["shared"]}
    if agreement is None:
        return sent
    return {**sent, **_values(statements(table, agreement))}


def statements(table: ClientTable, agreement: Agreement) -> Statements:
    """Return a client's statements about the values of its shared columns, by topic and column."""
    terms = agreement.terms
    stated = dict[str, dict[str, Statement]]()
    for column in map(str, table.features):
        agreed = agreement.shared(table.name, column)
        if agreed is None or agreed.kind is None:
            continue
        for topic in agreement.topics(column):
            train = table.features[column].iloc[table.splits["train"]]
            stated.setdefault(topic, {})[column] = state(
                topic, train, agreed.kind, terms.categories, terms.facts_from
            )
    return stated


def _values(stated: Statements) -> dict[str, Any]:
    """Return the part of statements that is sent."""
    values = dict[str, Any]()
    for topic, columns in stated.items():
        values[topic] = {column: statement.value for column, statement in columns.items()}
    return values


def agree(
    sent: Mapping[str, Mapping[str, Any]], terms: Terms, nameable: Iterable[str] = ()
) -> Agreement:
    """Build the agreement from the facts of all clients. This is a pure function.

    Args:
        sent: client → its :func:`facts`.
        terms: the settings, the same at all clients.
        nameable: further names of columns that an error message may list.

    Raises:
        ConfigError: no columns are common as ``terms.common`` demands.
        DataError: shared columns are of several kinds, or labels of several types.
    """
    sent = dict(sorted(sent.items()))
    kinds = {client: entry.get("columns", {}) for client, entry in sent.items()}
    groups = None
    if terms.common is not None:
        groups = tuple(find_groups(kinds, terms.common, nameable))
    targets = {client: entry["target"] for client, entry in sent.items() if "target" in entry}
    if terms.pool:
        refuse_several_tasks(targets)
    columns = {}
    conflicts = list[str]()
    for column in sorted({*chain(*kinds.values())}):
        conflict = kind_conflict(kinds, column)
        if conflict:
            conflicts.append(conflict)
        if terms.features or ((terms.pooled or terms.sketched) and groups is None):
            if conflict and (terms.features or terms.pooled):
                raise DataError(conflict)
            clients = [] if conflict else [name for name in kinds if column in kinds[name]]
        else:
            clients = _members(column, groups or ())
        if clients:
            columns[column] = _agree_on(column, {name: sent[name] for name in clients}, terms)
    if not (isinstance(terms.common, str) or terms.sketched):
        conflicts = []
    notes = tuple(f"not treated as common: {conflict}" for conflict in conflicts)
    return Agreement(terms, columns, groups, notes, targets)


def _members(column: str, groups: Iterable[CommonColumns]) -> list[str]:
    """Return the clients that share a column in some group, sorted."""
    return sorted({*chain(*(group.clients for group in groups if column in group.columns))})


def _agree_on(column: str, sent: Mapping[str, Mapping[str, Any]], terms: Terms) -> AgreedColumn:
    """Unite what clients sent about a column that they share.

    Args:
        column: the column.
        sent: client → its :func:`facts`, for the clients that share it; those that know its kind
            agree on it.
        terms: the settings, the same at all clients.
    """

    def all_of(topic: str) -> list[Any]:
        return [entry[topic][column] for entry in sent.values() if column in entry.get(topic, ())]

    kinds = [kind for kind in all_of("columns") if kind is not None]
    categories = all_of("categories")
    tails = all_of("tails")
    moments = [Moments(*numbers) for numbers in all_of("moments")]
    tail: Tail = ""
    if tails:
        tail = "hashed" if "hashed" in tails else "other"
    union = tuple(sorted({*chain(*categories)})) if categories else None
    return AgreedColumn(
        clients=tuple(sent),
        kind=next(iter(kinds), None),
        categories=union,
        moments=Moments.pooled([part for part in moments if part.count]),
        tail=tail,
        edges=agreed_edges(all_of("sketches"), terms.num_bins),
    )


def negotiate(
    tables: Sequence[ClientTable], terms: Terms, share: Share = all_here
) -> tuple[Agreement, Mapping[str, Mapping[str, Any]], Mapping[str, Statements]]:
    """Exchange facts in two rounds and agree: first columns and labels, then the values of columns
    that several clients share.

    Args:
        tables: the tables of the clients in this process.
        terms: the settings, the same at all clients.
        share: exchanges the facts of this process for those of all clients.

    Returns:
        The agreement, the facts of all clients, and the statements of each client in this process
        with their numbers of rows, which are not sent.

    Raises:
        ConfigError: see :func:`agree`.
        DataError: see :func:`agree`, :func:`facts`.
    """
    column_names = set(map(str, chain(*(table.features for table in tables))))
    first = {table.name: facts(table, terms) for table in tables}
    sent = share("columns", first)
    agreement = agree(sent, terms, column_names)
    if not any(agreement.topics(column) for column in agreement.columns):
        return agreement, sent, {}
    stated = {table.name: statements(table, agreement) for table in tables}
    values = {name: {**first[name], **_values(topics)} for name, topics in stated.items()}
    sent = share("values", values)
    return agree(sent, terms), sent, stated
