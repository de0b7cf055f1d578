"""The terms that a person has accepted at a site, and what other terms would give up."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import ndiff
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, RunError
from fedlit.files import write_text
from fedlit.institutions.consent import Terms
from fedlit.privacy.ledger import MEMORY, MEND, Ledger
from fedlit.privacy.settings import weaker

FILE = "accepted.json"
PRIVATE = "privacy"
"""The folder, in a site's, of its ledger, its key for masks and what it received."""


def accepted(folder: Path, terms: Terms) -> bool:
    """Return whether exactly these terms were accepted before, in the site's folder, with all that
    they give up.
    """
    return any(_is(entry, terms) for entry in _kept(folder)) and not set(
        given_up(folder, terms)
    ) - set(without(folder, terms))


def without(folder: Path, terms: Terms) -> tuple[str, ...]:
    """Return the protection that a person gave up by accepting these terms."""
    words = [entry.get("without", []) for entry in _kept(folder) if _is(entry, terms)]
    return tuple(sorted(set().union(*words)))


def given_up(folder: Path, terms: Terms) -> tuple[str, ...]:
    """Return the protection that other terms had and these lack: those that were accepted last for
    the same federation, or by the same coordinator, and those under which the site took part last.
    """
    before = [_last(folder, terms).get("privacy") or {}]
    if (folder / PRIVATE / MEMORY).is_file():
        before.append(Ledger(folder / PRIVATE, terms.identity).account.get("protection", {}))
    return tuple(sorted(set().union(*(weaker(own, terms.privacy) for own in before))))


def differences(folder: Path, terms: Terms) -> list[str]:
    """Return, line by line, what differs from the terms that were accepted last for the same
    federation, or by the same coordinator; nothing without any.
    """
    last = _last(folder, terms)
    if not last:
        return []
    known = {own.name for own in fields(Terms)}
    before = Terms(**{key: value for key, value in last.items() if key in known}).lines()
    changed = [
        line.rstrip() for line in ndiff(before, terms.lines()) if line.startswith(("- ", "+ "))
    ]
    title = "What differs from the terms that were accepted last (- before, + now):"
    return [title, *(changed or ["  values that are in terms.json alone"]), ""]


def refuse_lost(folder: Path, terms: Terms) -> None:
    """Refuse to take part in a federation that was accepted before, if the ledger of what was sent
    is gone.

    Raises:
        RunError: it is gone.
    """
    path = folder / PRIVATE / MEMORY
    if not path.is_file() and any(_identity(entry) == terms.identity for entry in _kept(folder)):
        raise RunError(
            f"{path}: expected the record of what this site has sent to the federation that "
            f"{folder / FILE} says it accepted, found that it is gone; {MEND}"
        )


def at_stake(folder: Path, terms: Terms) -> list[str]:
    """Return what the user should know if a folder joins under another identity, or with other
    sites, than before.
    """
    before = [own["terms"].get("federation") or {} for own in _kept(folder)]
    other = next(
        (own for own in reversed(before) if own.get("id") and own != terms.federation), None
    )
    if other is None:
        return []
    return [
        f"This site took part before in the federation {other['id']} of "
        f"{', '.join(other['sites'])}.",
        "What it sent there is known. The difference between two sums over different sites is the "
        "update of one site,",
        "and the mean of several noisy answers has less noise than each: whoever has both learns "
        "more than was agreed.",
        "Accept only if you know why the federation changed. epsilon goes on being counted from "
        "where it was.",
        "",
    ]


def keep(folder: Path, terms: Terms, gave_up: Iterable[str] = ()) -> None:
    """Record that terms were accepted, when, and without which protection."""
    at = time.strftime("%Y-%m-%d %H:%M:%S%z")
    entry = {"hash": terms.hash, "at": at, "without": sorted(gave_up), "terms": terms.to_dict()}
    write_text(json.dumps([*_kept(folder), entry], indent=1), folder / FILE)


def _is(entry: Mapping[str, Any], terms: Terms) -> bool:
    return bool(entry["hash"] == terms.hash and entry["terms"] == terms.to_dict())


def _identity(entry: Mapping[str, Any]) -> str:
    return str((entry["terms"].get("federation") or {}).get("id") or f"terms {entry['hash']}")


def _last(folder: Path, terms: Terms) -> Mapping[str, Any]:
    """Return the terms that were accepted last for the same federation, or else by the same
    coordinator; or none.
    """
    kept = _kept(folder)
    mine = terms.coordinator.get("fingerprint")
    same = [own for own in kept if _identity(own) == terms.identity]
    same = same or [own for own in kept if own["terms"]["coordinator"].get("fingerprint") == mine]
    found: Sequence[Mapping[str, Any]] = [own["terms"] for own in same]
    return found[-1] if found else {}


def _kept(folder: Path) -> list[dict[str, Any]]:
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path}: expected what was accepted before, found no JSON; delete the file to be "
            "asked again"
        ) from error
    return found
