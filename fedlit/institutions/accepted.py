"""The terms that a person has accepted at a site, and what other terms would give up."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import ndiff
from pathlib import Path

from fedlit.errors import ConfigError, RunError
from fedlit.files import write_text
from fedlit.institutions.plain import Message
from fedlit.institutions.terms import Terms
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
    lists = [entry.get("without", []) for entry in _kept(folder) if _is(entry, terms)]
    return tuple(sorted(set().union(*lists)))


def given_up(folder: Path, terms: Terms) -> tuple[str, ...]:
    """Return the protection that other terms had and these lack: those that were accepted last for
    the same federation, or by the same coordinator, and those under which the site took part last.
    """
    before = [_last(folder, terms).get("privacy") or {}]
    if (folder / PRIVATE / MEMORY).is_file():
        before.append(Ledger(folder / PRIVATE, terms.identity).account.get("protection", {}))
    return tuple(sorted(set().union(*(weaker(protection, terms.privacy) for protection in before))))


def differences(folder: Path, terms: Terms) -> list[str]:
    """Return, line by line, what differs from the terms that were accepted last for the same
    federation, or by the same coordinator; nothing without any.
    """
    last = _last(folder, terms)
    if not last:
        return []
    names = {term.name for term in fields(Terms)}
    before = Terms(**{key: value for key, value in last.items() if key in names}).lines()
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
    before = [federation["terms"].get("federation") or {} for federation in _kept(folder)]
    earlier = next(
        (
            federation
            for federation in reversed(before)
            if federation.get("id") and federation != terms.federation
        ),
        None,
    )
    if earlier is None:
        return []
    return [
        f"This site took part before in the federation {earlier['id']} of "
        f"{', '.join(earlier['sites'])}.",
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


def _is(entry: Message, terms: Terms) -> bool:
    return bool(entry["hash"] == terms.hash and entry["terms"] == terms.to_dict())


def _identity(entry: Message) -> str:
    return str((entry["terms"].get("federation") or {}).get("id") or f"terms {entry['hash']}")


def _last(folder: Path, terms: Terms) -> Message:
    """Return the terms that were accepted last for the same federation, or else by the same
    coordinator; or none.
    """
    entries = _kept(folder)
    fingerprint = terms.coordinator.get("fingerprint")
    same = [entry for entry in entries if _identity(entry) == terms.identity]
    same = same or [
        entry
        for entry in entries
        if entry["terms"]["coordinator"].get("fingerprint") == fingerprint
    ]
    accepted_terms: Sequence[Message] = [entry["terms"] for entry in same]
    return accepted_terms[-1] if accepted_terms else {}


def _kept(folder: Path) -> list[Message]:
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        entries: list[Message] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path}: expected what was accepted before, found no JSON; delete the file to be "
            "asked again"
        ) from error
    return entries
