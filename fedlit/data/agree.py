"""What clients send each other before training, and what they agree on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from fedlit.data.columns import (
    NUMBERS,
    Categories,
    ColumnEncoder,
    Scaling,
    Tail,
    input_names,
)
from fedlit.data.common import (
    Common,
    CommonColumns,
    check_common,
    find_groups,
    is_listed,
    kind_conflict,
)
from fedlit.data.moments import Moments, agreed_edges
from fedlit.data.schema.column import Kind, kind_of
from fedlit.data.statement import Statement, Statements, state
from fedlit.data.table import (
    ClientTable,
    agree_on_task,
    refuse_several_tasks,
    sent_about_targets,
    target_facts,
)
from fedlit.errors import DataError, expect
from fedlit.names import Share
from fedlit.sharing import all_here

if TYPE_CHECKING:
    from fedlit.tasks import Task

Align = Literal["none", "features", "classes", "both"]
Missing = Literal["mean", "indicator"]
Bins = Literal["own", "agreed", "none"]

_SKETCH = (
    "smallest and largest value, 255 quantiles evenly between (of up to 257 rows: all their "
    "values) and number of rows"
)
_GROUPED = "number of rows, and means of groups of at least {rows} neighbouring values, 257 at most"


@dataclass(frozen=True)
class Terms:
    """The settings that determine what clients have to agree on.

    Attributes:
        align: whether clients get a common input space (``features``: the union of columns by name,
            0 where a client has no such column, category codes from the union), a common label
            encoder (``classes``), ``both`` or ``none``.
        scaling: whether numbers are standardised by each client's own training rows (``client``),
            by the count, mean and variance that all clients who have the column tell of theirs
            (``pooled``), or stay what they are (``none``; missing ones become the client's mean).
        categories: whether a column of categories becomes one of ``codes``, or ``indicators``: a
            column of 0 and 1 for each category (``name=category``), a single one where there are
            two; 0.5 where missing. ``auto``: indicators of up to 32 categories, rare ones together;
            of more for the 31 most frequent, the others in 32 inputs by a hash of their names;
            missing ones have an input of their own where training rows have them.
        missing: whether a missing number becomes the mean (``mean``), or has an indicator beside it
            too.
        pool: whether all rows go into one client, which can have one task only.
        bins: where the bins of numbers lie, for networks that have any: at quantiles of the
            client's own training rows (``own``), at those of all clients that have the column, by a
            sketch that each tells of its numbers (``agreed``), or nowhere (``none``).
        num_bins: the largest number of bins of a column.
        facts_from: the least number of training rows that stand behind each value that a client
            sends. A category of fewer rows has no name, neither in facts nor among inputs: its rows
            are encoded as those of an unseen category (``auto``: as the others), unless other
            clients send it. Categories that a source declares say nothing about rows. Of numbers in
            fewer rows nothing is sent; a sketch has means of groups of so many rows or more.
        common: which columns clients have in common (see :func:`fedlit.data.common.find_groups`).
            These are coded alike, and ``scaling: pooled`` then pools these alone, unless ``align``
            makes all columns common.

    Raises:
        ConfigError: ``common`` says nothing that is known.
    """

    align: Align = "none"
    scaling: Scaling = "client"
    categories: Categories = "codes"
    common: Common | None = None
    pool: bool = False
    missing: Missing = "mean"
    bins: Bins = "own"
    num_bins: int = 32
    facts_from: int = 1

    def __post_init__(self) -> None:
        expect(self.num_bins >= 1, "data.num_bins", "at least 1", self.num_bins)
        expect(
            self.facts_from >= 1, "data.facts_from", "a number of rows, at least 1", self.facts_from
        )
        if self.common is not None:
            check_common(self.common)

    @property
    def features(self) -> bool:
        """Whether all columns are common to all clients."""
        return self.align in ("features", "both")

    @property
    def classes(self) -> bool:
        """Whether all clients share one list of classes."""
        return self.align in ("classes", "both")

    @property
    def alike(self) -> bool:
        """Whether some columns mean the same at several clients and are therefore encoded in the
        same way.
        """
        return self.features or self.common is not None

    @property
    def pooled(self) -> bool:
        """Whether numbers are standardised by the moments of all clients together."""
        return self.scaling == "pooled"

    @property
    def sketched(self) -> bool:
        """Whether clients send sketches of their numbers."""
        return self.bins == "agreed" and not self.pool

    def sends(self, column: str) -> bool:
        """Return whether a client sends the name and kind of a column."""
        alone = self.common is None and (self.pooled or self.sketched)
        every = self.features or isinstance(self.common, str) or alone
        return every or is_listed(self.common, column)

    def shares(self, target: Mapping[str, Any]) -> bool:
        """Return whether a client sends these facts about its target."""
        return self.pool or target["shared"] or (self.classes and "labels" in target)


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

    @cached_property
    def members(self) -> frozenset[str]:
        """The same clients, where one is looked for among many."""
        return frozenset(self.clients)

    def encoder(self, name: str, terms: Terms) -> ColumnEncoder:
        """Return the encoder that all clients with this column use."""
        kind = self.kind or NUMBERS
        gap = terms.missing == "indicator" if kind == NUMBERS else terms.categories == "auto"
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
        return agreed if agreed is not None and client in agreed.members else None

    def topics(self, column: str) -> list[str]:
        """Return the topics on which the clients that share a column send values: categories,
        moments or sketches.
        """
        agreed = self.columns[column]
        terms = self.terms
        several = len(agreed.clients) > 1
        numbers = agreed.kind == NUMBERS
        # an input's name says the category
        named = several or (terms.features and terms.categories != "codes")
        coded = bool(agreed.kind) and not numbers and terms.alike and named
        asked = {
            "categories": coded,
            "tails": coded and terms.categories == "auto",
            "moments": numbers and terms.pooled,
            "sketches": numbers and terms.sketched and several,
        }
        return [topic for topic, wanted in asked.items() if wanted]

    def with_client(self, client: str, terms: Terms, columns: Iterable[str]) -> Agreement:
        """Return the agreement for one more client, which has these columns and sends nothing.

        Its numbers are coded as the others' where ``terms`` say so. It is in the groups all of
        whose columns it has.
        """
        own = set(columns)
        groups = self.groups
        if groups is not None:
            groups = tuple(
                replace(group, clients=(client,))
                for group in groups
                if own.issuperset(group.columns)
            )
        every = groups is None or terms.features
        grouped = {column for group in groups or () for column in group.columns}
        met = {
            name: replace(of, clients=(client,))
            for name, of in self.columns.items()
            if every or name in grouped
        }
        return replace(self, terms=terms, columns=met, groups=groups, apart=())

    def state_dict(self) -> dict[str, Any]:
        """Return the agreement as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Agreement:
        """Restore an agreement from its state."""
        columns = {
            name: AgreedColumn(
                **{**own, "moments": Moments(**own["moments"]) if own["moments"] else None}
            )
            for name, own in state["columns"].items()
        }
        groups = (
            None
            if state["groups"] is None
            else tuple(CommonColumns(**own) for own in state["groups"])
        )
        return cls(
            Terms(**state["terms"]), columns, groups, tuple(state["apart"]), state["targets"]
        )

    def task_of(self, client: str, own: Mapping[str, Any]) -> Task:
        """Return a client's task, given what it may send about its target (see
        :func:`fedlit.data.table.target_facts`). A client that sent nothing takes the task of those
        that did.
        """
        if not self.terms.shares(own):
            return agree_on_task(client, {client: own})
        told = self.targets
        if client not in told:
            client = next(
                (name for name, other in told.items() if other["task"] == own["task"]), client
            )
            told = told if client in told else {client: own}
        key = told[client]["task"], told[client].get("loss"), told[client]["target"]
        if key not in self._tasks:  # one for all who share it: each looks at what all sent
            self._tasks[key] = agree_on_task(client, told, classes=self.terms.classes)
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
        table: the client's.
        terms: the settings to agree on.
        agreement: the agreement on the facts of all clients without this argument. It says which
            columns are shared, and therefore which values must be sent as well.

    Returns:
        JSON: ``columns`` (name → kind) where columns are common or scaled together; ``target``
            where classes are common
        (labels, the positive one) or a number is pooled (count, mean, variance); and with an
        agreement ``categories`` and ``moments`` (count, mean, variance) and ``sketches`` (rows,
        quantiles) by column.

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
    told = dict[str, Any]()
    names = [column for column in map(str, table.features) if terms.sends(column)]
    train = table.features[names].iloc[table.splits["train"]]
    if names:
        told["columns"] = {
            column: kind_of(train[column], column in table.categorical) for column in names
        }
    target = target_facts(table)
    if terms.shares(target):
        told["target"] = {**target, "shared": terms.pool or target["shared"]}
    return told if agreement is None else {**told, **_values(statements(table, agreement))}


def statements(table: ClientTable, agreement: Agreement) -> Statements:
    """Return what a client says about the values of the columns that it shares with others, by
    topic and column.
    """
    terms = agreement.terms
    made = dict[str, dict[str, Statement]]()
    for column in map(str, table.features):
        met = agreement.shared(table.name, column)
        if met is None or met.kind is None:
            continue
        for topic in agreement.topics(column):
            train = table.features[column].iloc[table.splits["train"]]
            made.setdefault(topic, {})[column] = state(
                topic, train, met.kind, terms.categories, terms.facts_from
            )
    return made


def _values(stated: Statements) -> dict[str, Any]:
    """Return what is sent of statements."""
    return {
        topic: {column: statement.value for column, statement in columns.items()}
        for topic, columns in stated.items()
    }


def agree(
    told: Mapping[str, Mapping[str, Any]], terms: Terms, here: Iterable[str] = ()
) -> Agreement:
    """Build the agreement from the facts of all clients. This is a pure function.

    Args:
        told: client → its :func:`facts`.
        terms: the settings, the same at all clients.
        here: names of columns that a message may say.

    Raises:
        ConfigError: what ``terms.common`` asks for cannot be found.
        DataError: columns that meet are of several kinds, or labels of several types.
    """
    told = dict(sorted(told.items()))
    kinds = {client: own.get("columns", {}) for client, own in told.items()}
    groups = None if terms.common is None else tuple(find_groups(kinds, terms.common, here))
    targets = {client: own["target"] for client, own in told.items() if "target" in own}
    if terms.pool:
        refuse_several_tasks(targets)
    names = sorted({column for own in kinds.values() for column in own})
    problems = {column: found for column in names if (found := kind_conflict(kinds, column))}
    columns = {}
    for column in names:
        if terms.features or ((terms.pooled or terms.sketched) and groups is None):
            problem = problems.get(column)
            if problem and (terms.features or terms.pooled):
                raise DataError(problem)
            clients = (
                () if problem else tuple(client for client, own in kinds.items() if column in own)
            )
        else:
            clients = tuple(
                sorted({own for g in groups or () if column in g.columns for own in g.clients})
            )
        if clients:
            columns[column] = _agree_on(column, {client: told[client] for client in clients}, terms)
    apart = problems.values() if isinstance(terms.common, str) or terms.sketched else ()
    return Agreement(
        terms, columns, groups, tuple(f"not treated as common: {own}" for own in apart), targets
    )


def _agree_on(column: str, told: Mapping[str, Mapping[str, Any]], terms: Terms) -> AgreedColumn:
    def all_of(topic: str) -> list[Any]:
        return [own[topic][column] for own in told.values() if column in own.get(topic, ())]

    categories = all_of("categories")
    tails = all_of("tails")
    moments = [Moments(*own) for own in all_of("moments")]
    return AgreedColumn(
        tuple(told),
        next((kind for kind in all_of("columns") if kind is not None), None),
        tuple(sorted({category for own in categories for category in own})) if categories else None,
        Moments.pooled([own for own in moments if own.count]),
        ("hashed" if "hashed" in tails else "other") if tails else "",
        agreed_edges(all_of("sketches"), terms.num_bins),
    )


def told(sent: Mapping[str, Mapping[str, Any]], terms: Terms) -> list[dict[str, Any]]:
    """Describe what clients sent before the first step.

    Args:
        sent: client → its :func:`facts`.
        terms: the settings, the same at all clients.

    Returns:
        For each kind: ``what`` was sent, by reason of which ``key``, of which ``columns``, and,
        where numbers were sent, ``numbers``: client → how many.
    """
    if terms.features:
        key = f"data.align: {terms.align}"
    elif terms.common is not None:
        key = f"data.common: {terms.common if isinstance(terms.common, str) else 'listed'}"
    else:
        key = "data.scaling: pooled" if terms.pooled else "data.bins: agreed"

    def of(topic: str, what: str, key: str, *, counted: bool = False) -> list[dict[str, Any]]:
        columns = sorted({column for own in sent.values() for column in own.get(topic, ())})
        numbers = (
            {client: sum(map(len, own.get(topic, {}).values())) for client, own in sent.items()}
            if counted
            else {}
        )
        entry = {"what": what, "key": key, "columns": columns}
        return [{**entry, "numbers": numbers} if counted else entry] * bool(columns)

    targets = {name: own["target"] for name, own in sent.items() if "target" in own}
    quantiles = _SKETCH if terms.facts_from == 1 else _GROUPED.format(rows=terms.facts_from)
    return [
        *of("columns", "names and kinds of columns", key),
        *of("categories", "categories", key),
        *sent_about_targets(targets, terms.align),
        *of("moments", "count, mean and variance", "data.scaling: pooled", counted=True),
        *of("sketches", quantiles, "data.bins: agreed", counted=True),
    ]


def negotiate(
    tables: Sequence[ClientTable], terms: Terms, share: Share = all_here
) -> tuple[Agreement, Mapping[str, Mapping[str, Any]], Mapping[str, Statements]]:
    """Exchange facts in two rounds and agree: first columns and labels, then the values of columns
    that several clients share.

    Args:
        tables: the tables of the clients in this process.
        terms: the settings, the same at all clients.
        share: brings the facts of all clients.

    Returns:
        The agreement, the facts of all clients, and what each client here said about values, with
        the number of rows behind it, which is not sent.

    Raises:
        ConfigError: see :func:`agree`.
        DataError: see :func:`agree`, :func:`facts`.
    """
    here = {str(column) for table in tables for column in table.features}
    first = {table.name: facts(table, terms) for table in tables}
    sent = share("columns", first)
    agreement = agree(sent, terms, here)
    if not any(agreement.topics(column) for column in agreement.columns):
        return agreement, sent, {}
    stated = {table.name: statements(table, agreement) for table in tables}
    sent = share("values", {name: {**first[name], **_values(own)} for name, own in stated.items()})
    return agree(sent, terms), sent, stated
