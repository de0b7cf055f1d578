"""Writes the settings that settle a finding as content of a configuration, for one, some or all
clients.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.options import values_by_client
from fedlit.data.table import ClientTable, first_match

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

Content = dict[str, Any]
"""A part of a configuration: key → value."""
Settings = Mapping[str, Any]
"""Key of :class:`fedlit.Tables`, or of a file's entry → value."""
_OF_READING = frozenset(
    {"missing", "rename", "names", "sep", "encoding", "decimal", "thousands", "footer"}
)
"""Settings that stand in a file's entry in ``files``, or in ``read`` for all files."""
_OF_COLUMNS = frozenset({"drop", "missing", "types"})
"""Settings for all clients that concern only those which have the column."""
_TOUCHED = ("files", "read", "types", "convert", "drop", "values", "split", "positive", "task")
_GIVEN_SPLITS = (None, "stratified", "random")


@dataclass(frozen=True)
class Remedies:
    """Writes settings for a source, given which client has which column.

    Attributes:
        source: the source whose settings are written.
        holders: maps each column, left out or used, and each target to the clients that have it.
        clients: the names of all clients.
        dates: the raw columns that become several typed columns.
        left_out: the clients that the configuration leaves out.
    """

    source: Source | None
    holders: Mapping[str, frozenset[str]]
    clients: frozenset[str]
    dates: frozenset[str] = field(default_factory=frozenset)
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, tables: Sequence[ClientTable], source: Source | None, left_out: Sequence[str] = ()
    ) -> Remedies:
        """Return the remedies for tables of a source; of tables without one, as
        :class:`fedlit.Tables` takes them.
        """
        holders = dict[str, set[str]]()
        dates = set[str]()
        for table in tables:
            names = {str(name) for name in table.features}
            if table.schema is not None:
                dates |= {*table.schema.columns} - names - {*table.schema.left_out}
                names = {*table.schema.columns}
            target = table.target.name
            targets = target if isinstance(target, tuple) else (target,)
            for name in (*names, *map(str, targets)):
                holders.setdefault(name, set()).add(table.name)
        frozen = {name: frozenset(who) for name, who in holders.items()}
        return cls(
            source,
            frozen,
            frozenset(table.name for table in tables),
            frozenset(dates),
            tuple(left_out),
        )

    @property
    def in_one_file(self) -> bool:
        """Whether one file holds the rows of all clients, so that columns are the same at all of
        them.
        """
        return getattr(self.source, "client_column", None) is not None

    @property
    def settings(self) -> Content:
        """The content of the configuration today, as far as fixes add to it."""
        data: Content = {"leave_out": [*self.left_out]} if self.left_out else {}
        if not self._own_tables:
            return {"data": data}
        settings = {key: getattr(self.source, key, None) for key in _TOUCHED}
        ours = _in_source(
            {key: _plain(value) for key, value in settings.items() if value is not None}
        )
        return {"data": {**data, **ours["data"]}}

    def content(self, settings: Settings, clients: Collection[str], column: str) -> Content:
        """Return settings of a client as content of a configuration.

        Args:
            settings: keys of :class:`fedlit.Tables`, or of a file's entry, as they would be for a
                single client; or ``leave_out``, which means these clients.
            clients: the clients that get the settings; empty for all.
            column: the column concerned; "" for none.

        Returns:
            The content; it is empty if the source has no such settings.
        """
        if "leave_out" in settings:
            return {"data": {"leave_out": sorted(clients)}} if {*clients} < self.clients else {}
        if not self._own_tables:
            return self._other_source(settings)
        if "values" in settings and not self._can_map(clients):
            return {}  # A client's mapping would replace that of the others.
        content = Content()
        holders = self.holders.get(column, self.clients)
        everyone = not clients or self.clients <= {*clients}
        for key, value in settings.items():
            common = everyone or self.in_one_file or (key in _OF_COLUMNS and holders <= {*clients})
            if key == "drop" and isinstance(getattr(self.source, "drop", None), Mapping):
                common = False  # A client that the mapping names need not have this column.
            plain = _plain(value)
            if key in _OF_READING:
                content |= self._of_reading({key: plain}, clients, common)
            elif key == "types" and not common:
                content["files"] = self._files({key: plain}, clients)
            elif common and (key != "positive" or everyone):
                content[key] = plain
            else:
                content[key] = {
                    client: _plain(value) for client in sorted(holders & {*clients} or clients)
                }
        return _in_source(content) if content else {}

    def replaces(self, settings: Settings) -> bool:
        """Return whether settings would take the place of something that the user has written."""
        return "split" in settings and getattr(self.source, "split", None) not in _GIVEN_SPLITS

    def _can_map(self, clients: Collection[str]) -> bool:
        """Return whether values of some clients can be mapped beside those that are mapped today."""
        patterns = values_by_client(getattr(self.source, "values", None) or {})
        return all(name in patterns or not first_match(patterns, name) for name in clients)

    @property
    def _own_tables(self) -> bool:
        from fedlit.data.sources.tables import Tables

        return self.source is None or isinstance(self.source, Tables)

    def _other_source(self, settings: Settings) -> Content:
        """Return the setting that leaves columns out; every source has it."""
        if {*settings} != {"drop"}:
            return {}
        patterns = [
            f"!{glob.escape(name)}{'.*' if name in self.dates else ''}" for name in settings["drop"]
        ]
        return {"data": {"columns": patterns}}

    def _of_reading(self, option: Content, clients: Collection[str], common: bool) -> Content:
        """Return an option of reading, for all files or in the entries of some. A file's entry
        overrides the options for all files.
        """
        (key,) = option
        files = getattr(self.source, "files", None)
        entries = files if isinstance(files, Mapping) else {}
        ahead = [
            client
            for client, entry in entries.items()
            if isinstance(entry, Mapping) and key in entry
        ]
        content = Content()
        if common:
            content["read"] = option
        if common and ahead:
            content["files"] = {client: _plain(option) for client in ahead}
        if not common:
            content["files"] = self._files(option, clients)
        return content

    def _files(self, option: Content, clients: Collection[str]) -> Content:
        """Return an option in the entries of some clients' files. A folder or a pattern becomes the
        list of its files.
        """
        from fedlit.data.sources.places import places_of

        files = getattr(self.source, "files", None)
        entries = {client: _plain(option) for client in sorted(clients)}
        if not isinstance(files, str):
            return entries
        paths = {
            data_file.client: {"path": _shown(data_file.path)} for data_file in places_of(files)
        }
        return {client: {**path, **entries.get(client, {})} for client, path in paths.items()}


def _in_source(settings: Settings) -> Content:
    return {"data": {"source": {"init_args": dict(settings)}}}


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _shown(path: str) -> str:
    working_folder = Path.cwd()
    if Path(path).is_relative_to(working_folder):
        return str(Path(path).relative_to(working_folder))
    return path
