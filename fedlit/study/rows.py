"""Which rows a study has: the clients' tables, their tasks, and what was found in them."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.data.examine.ledger import answerable_findings
from fedlit.data.findings import Findings
from fedlit.data.module import FederatedData
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable, choose_columns, leave_out
from fedlit.data.targets import task_for
from fedlit.outcomes import DEFAULT_TASK
from fedlit.run.config import shown
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.run.scoring import ScoreSettings
from fedlit.tasks import Task, task_named

LEAVE_OUT = "data.leave_out"
ROWS = ("data.source", LEAVE_OUT)
"""The beginnings of keys that say whose rows there are."""


class Rows:
    """The rows of a configuration, which are read once.

    Args:
        config: the configuration file.
        overrides: maps each changed key to its value.

    Raises:
        ConfigError: the configuration is not valid.
    """

    def __init__(self, config: str, overrides: Mapping[str, Any]) -> None:
        self._config = config
        self._overrides = overrides

    @cached_property
    def tables(self) -> list[ClientTable]:
        """The tables on which all methods are trained, as they are dealt with seed 0."""
        tables = self._data.source.tables(0)
        return leave_out(tables, self._data.leave_out or (), [table.name for table in tables])

    @cached_property
    def findings(self) -> Findings:
        """The findings about the tables."""
        data = self._data
        tables = choose_columns(self.tables, data.columns) if data.columns else self.tables
        return answerable_findings(tables, data.source, data.known)

    @property
    def open_questions(self) -> Iterator[str]:
        """A sentence on what has to be decided about the tables; none if nothing has to be."""
        return self.findings.open_questions(shlex.quote(shown(Path(self._config))))

    @cached_property
    def _run(self) -> Run:
        return load(self._config, overrides=self._overrides)

    @property
    def _data(self) -> FederatedData:
        return self._run.data

    @property
    def score(self) -> ScoreSettings:
        """What the reference's configuration asks for beside the scores."""
        return self._run.score

    @property
    def source(self) -> Source:
        """The source of the tables."""
        return self._data.source

    @cached_property
    def tasks(self) -> dict[str, type[Task]]:
        """Maps each client to its task."""
        return tasks_of(self.tables)

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes with any value, label, split, weight or group, because a result must not
        outlive the data that it was computed from.
        """
        digest = hashlib.blake2b(digest_size=8)
        for table in self.tables:
            columns = (table.name, list(table.features), table.categorical, table.positive)
            digest.update(repr(columns).encode())
            for columns_of_rows in (table.features, table.target):
                digest.update(pd.util.hash_pandas_object(columns_of_rows).to_numpy().tobytes())
            for split, rows in sorted(table.splits.items()):
                digest.update(split.encode() + rows.tobytes())
            # Their columns are no features, and the configuration has only their names. Tables
            # without weights and groups keep the hash that earlier studies recorded.
            for label, values in (("weights", table.weights), ("groups", table.groups)):
                if values is not None:
                    digest.update(label.encode())
                    digest.update(
                        pd.util.hash_pandas_object(pd.Series(values)).to_numpy().tobytes()
                    )
        return digest.hexdigest()


def tasks_of(tables: Sequence[ClientTable]) -> dict[str, type[Task]]:
    """Map each client to its task."""
    names = {
        table.name: task_for(table.task, table.name) or {"name": DEFAULT_TASK} for table in tables
    }
    return {client: task_named(settings["name"]) for client, settings in names.items()}


def differing_rows(keys: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """Return the keys by which a configuration has other rows than a reference."""
    names = dict.fromkeys((*keys, LEAVE_OUT))
    return [
        name for name in names if name.startswith(ROWS) and keys.get(name) != reference.get(name)
    ]
