"""What to write into a configuration about what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedlit.data.note import Note

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source
    from fedlit.data.sources.tables import Tables

__all__ = ["suggested"]

_OF_FILES = ("rename", "missing", "types")


def suggested(findings: Sequence[Note], clients: Sequence[str], source: Source | None) -> dict[str, Any]:
    """The keys of a configuration that the findings would change, whole: what is there already is in them too.

    Args:
        findings: of these clients.
        clients: all of them.
        source: where the tables come from; of another than :class:`fedlit.Tables` columns can only be left out.

    Returns:
        As a configuration has it: to be given as a second file after the first, or written in place of its keys.
    """
    from fedlit.data.sources.tables import Tables

    changes = _together(findings)
    if not changes:
        return {}
    if not isinstance(source, Tables):
        names = dict.fromkeys(name for own in changes.values() for name in own.get("drop", ()))
        return {"data": {"columns": [f"!{name}" for name in names]}} if names else {}
    settings = _settings(changes, clients, source)
    return {"data": {"source": {"class_path": "fedlit.Tables", "init_args": settings}}} if settings else {}


def _together(findings: Sequence[Note]) -> dict[str, dict[str, Any]]:
    """Client → what is to be changed there."""
    made: dict[str, dict[str, Any]] = {}
    for finding in findings:
        for client in finding.at if finding.fix else ():
            own = made.setdefault(client, {})
            for key, value in finding.fix.items():
                if isinstance(value, list):
                    own[key] = list(dict.fromkeys([*own.get(key, []), *value]))
                else:
                    own[key] = {**own.get(key, {}), **value} if isinstance(value, dict) else value
    for own in made.values():
        _after_renaming(own)
    return made


def _after_renaming(own: dict[str, Any]) -> None:
    """Other keys name columns as they are called then; of what is dropped nothing else is said."""
    names = own.get("rename", {})
    for key in ("types", "missing"):
        if key in own:
            own[key] = {
                names.get(name, name): value for name, value in own[key].items() if name not in own.get("drop", ())
            }
    if "drop" in own:
        own["drop"] = [names.get(name, name) for name in own["drop"]]


def _settings(changes: Mapping[str, Mapping[str, Any]], clients: Sequence[str], source: Tables) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if files := _files(changes, clients, source):
        made |= files
    drops = {client: own["drop"] for client, own in changes.items() if "drop" in own}
    if drops:
        made["drop"] = _dropped(drops, source.drop)
    for key, said in (("positive", source.positive), ("task", source.task)):
        own = {client: change[key] for client, change in changes.items() if key in change}
        if own and (said is None or isinstance(said, dict)):
            made[key] = {**(said or {}), **own}
    groups = {own["split"]["group"] for own in changes.values() if "split" in own}
    if len(groups) == 1 and source.split is None and all("split" in changes.get(client, {}) for client in clients):
        made["split"] = {"group": groups.pop()}
    return made


def _dropped(drops: Mapping[str, list[str]], said: list[str] | dict[str, list[str]] | None) -> Any:
    if isinstance(said, dict) or said is None:
        known = dict(said or {})
        return {
            client: list(dict.fromkeys([*known.get(client, []), *drops.get(client, [])]))
            for client in {**known, **drops}
        }
    return list(dict.fromkeys([*said, *(name for own in drops.values() for name in own)]))


def _files(changes: Mapping[str, Mapping[str, Any]], clients: Sequence[str], source: Tables) -> dict[str, Any]:
    """``files``, each with what is said of its columns; of one file for all clients ``types`` and ``read``."""
    from fedlit.data.sources.places import places_of

    wanted = {
        client: {key: own[key] for key in _OF_FILES if own.get(key)}
        for client, own in changes.items()
        if any(own.get(key) for key in _OF_FILES)
    }
    if not wanted:
        return {}
    common = _as_dict(source.read.get("missing"))
    if source.client_column is not None:
        types = {name: said for own in wanted.values() for name, said in own.get("types", {}).items()}
        words = {name: said for own in wanted.values() for name, said in own.get("missing", {}).items()}
        made: dict[str, Any] = {"types": {**source.types, **types}} if types else {}
        return {**made, **({"read": {**source.read, "missing": {**common, **words}}} if words else {})}
    if isinstance(source.given, Mapping):
        entries: dict[str, Any] = dict(source.given)
    else:
        entries = {place.client: place.path for place in places_of(source.given, source.read, source.root)}
    for client in [client for client in clients if client in wanted]:
        given = entries[client]
        own: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"path": str(given)}
        change = wanted[client]
        if "missing" in change:
            known = _as_dict(own.get("missing")) or common
            own["missing"] = {**known, **change["missing"]}
        for key in ("rename", "types"):
            if key in change:
                own[key] = {**(own.get(key) or {}), **change[key]}
        entries[client] = own
    return {"files": {client: given if isinstance(given, Mapping) else str(given) for client, given in entries.items()}}


def _as_dict(missing: Any) -> dict[str, Any]:
    return dict(missing) if isinstance(missing, Mapping) else {"*": list(missing)} if missing else {}
