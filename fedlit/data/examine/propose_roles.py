"""Proposes a configuration for a task that names the columns of its target by their roles, such as a
time and an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlit.data.examine.propose import Proposal, expect_client, federate, look, read_beginning
from fedlit.data.label_cells import asked_of_codes
from fedlit.data.reading import Raw
from fedlit.data.sources.places import Place
from fedlit.data.targets import outcome_for
from fedlit.errors import ConfigError, Told, expect
from fedlit.outcomes import OUTCOMES, Outcome
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Roles:
    """A task, and the columns that it names.

    Attributes:
        task: the name of the task.
        columns: role → client → column; of all other clients under None.
        settings: further settings of the task.
    """

    task: str
    columns: Mapping[str, Mapping[str | None, str]]
    settings: Mapping[str, Any]

    @property
    def outcome(self) -> type[Outcome]:
        """What is predicted.

        Raises:
            ConfigError: no such task names columns, or a role lacks its column.
        """
        names = [name for name, outcome in OUTCOMES.items() if outcome.roles]
        advice = "a target of other tasks is named with --target alone"
        expect(self.task in names, "--task", f"one of {', '.join(names)}", self.task, advice)
        outcome = OUTCOMES[self.task]
        for role, is_needed in outcome.roles.items():
            is_there = bool(self.columns.get(role)) or not is_needed
            expect(is_there, f"--{role}", f"the column of the {role}", Told("none"))
        return outcome

    @classmethod
    def of_tasks(cls, tasks: Mapping[str, Mapping[str, Any] | None]) -> Roles:
        """Return the roles of the tasks of clients.

        Raises:
            ConfigError: a client has none, or two differ in more than the names of columns.
        """
        columns = dict[str, dict[str | None, str]]()
        shared = list[dict[str, Any]]()
        for client, written in tasks.items():
            if written is None:
                raise ConfigError(f"task: expected one for client {client!r}, found none")
            settings = dict(written)
            for role in outcome_for({**settings}, client).roles:
                if role in settings:
                    columns.setdefault(role, {})[client] = settings.pop(role)
            shared.append(settings)
            expect(
                settings == shared[0], f"task of {client!r}", f"{shared[0]}, as of others", settings
            )
        return cls(shared[0].pop("name"), columns, shared[0])

    def of(self, client: str) -> dict[str, str]:
        """Return the column of each role that a client has."""
        columns = dict[str, str]()
        for role, by_client in self.columns.items():
            column = by_client.get(client, by_client.get(None))
            if column is not None:
                columns[role] = column
        return columns


def propose_roles(
    data_files: Sequence[Place], roles: Roles, client_column: str | None = None
) -> Proposal:
    """Look at files and propose a configuration.

    Args:
        data_files: a file for each client.
        roles: the task and its columns.
        client_column: the column of one file that names the client of each row.

    Raises:
        DataError: a file cannot be read.
        ConfigError: the task has no such roles, or a column that is not there.
    """
    outcome = roles.outcome
    proposal = Proposal({"files": {}})
    clients = [data_file.client for data_file in data_files]
    for role, column_of in roles.columns.items():
        for client in column_of:
            expect_client(f"--{role}", client, clients)
    for data_file in data_files:
        raw = read_beginning(proposal, data_file, whole=client_column is not None)
        _name(proposal, raw, data_file.client, roles, outcome)
        look(proposal, data_file.client, raw, tuple(roles.of(data_file.client).values()))
    settings = proposal.settings
    proposed = list(settings["task"].values())
    if all(task == proposed[0] for task in proposed):
        settings["task"] = proposed[0]
    if client_column is not None:
        targets = tuple(roles.of(clients[0]).values())
        federate(proposal, clients[0], raw, client_column, targets)
        if "values" in settings:
            settings["values"] = settings["values"][clients[0]]
    return proposal


def _name(proposal: Proposal, raw: Raw, client: str, roles: Roles, outcome: type[Outcome]) -> None:
    """Add a client's task to the proposal, and what its labels become."""
    columns = roles.of(client)
    names_there = list(map(str, raw.frame))
    for role, column in columns.items():
        expected = f"the column of the {role}, one of {shorten(names_there, 20)}"
        advice = f"for one client alone, write --{role} CLIENT=COLUMN"
        expect(
            column in names_there,
            f"{raw.head}: --{role}",
            expected,
            column,
            advice,
            known=names_there,
        )
    text = ", ".join(f"{role} is {column}" for role, column in columns.items())
    task = {"name": roles.task, **columns, **roles.settings}
    proposal.note(client, f"{roles.task}: {text}", task=task)
    names = list(columns.values())
    for position in outcome.label_cells:
        _code(proposal, client, raw.frame[names[position]])
    gaps = int(raw.frame[names].isna().any(axis=1).sum())
    if gaps:
        proposal.settings["unlabelled"] = "drop"
        proposal.note(client, f"rows without one of {', '.join(names)} are left out")


def _code(proposal: Proposal, client: str, raw: pd.Series) -> None:
    """Propose what the words of a column of yes and no become; ask if they do not say it."""
    from fedlit.data.labels import likely_positive, plain_target

    labels = plain_target(client, raw).unique().tolist()
    positive = likely_positive(labels)
    if positive is None:
        for question in asked_of_codes(str(raw.name), labels):
            proposal.note(client, f"{raw.name}: {question} (values)")
        return
    codes = {str(label): int(label == positive) for label in labels}
    text = f"{positive} in {raw.name} is the event"
    proposal.note(client, text, values={str(raw.name): codes})
