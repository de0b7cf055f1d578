"""What a coordinator remembers, what a site is asked to agree to, and what messages are believed."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fedlit.errors import ConfigError, RunError
from fedlit.exchange.server import BEGIN
from fedlit.institutions.consent import Consent, Terms, accepted, keep
from fedlit.institutions.journal import Journal
from fedlit.store import Store

SITES = ["east", "north", "south"]


def closed(journal: Journal, took: list[str]) -> None:
    number = float(journal.number)
    replies = {
        site: {"received": {"w": torch.tensor([number])}, "lost": [], "records": {}, "bytes": 0} for site in SITES
    }
    journal.close(took, replies, {"momentum": torch.tensor([number])})


def test_a_journal_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SITES, BEGIN)
    journal.tell("columns", {site: {site: {"columns": {"age": "numbers"}}} for site in SITES})
    for took in (SITES, SITES, ["east", "north"], ["east", "north"], SITES):
        closed(journal, took)
    again = Journal(tmp_path, SITES, BEGIN)
    assert (again.number, again.told, again.took) == (journal.number, journal.told, journal.took)
    assert again.number == 4 and torch.equal(again.memory["momentum"], torch.tensor([3.0]))
    # south was away in rounds 1 and 2: behind 0 it goes on with 3, from what came of 2
    assert [again.after(number, "south") for number in (BEGIN, 0, 1, 2, 3)] == [0, 3, 3, 3, 4]
    assert torch.equal(again.read(2, "south")["received"]["w"], torch.tensor([2.0]))
    with pytest.raises(ConfigError, match="deleted"):
        again.read(1, "south")  # of what it missed the newest alone is kept


def test_replies_go_once_nobody_can_need_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SITES, 0)
    for _ in range(6):
        closed(journal, SITES)
    for site in SITES:
        journal.saved(site, 4)
    assert Store(tmp_path / "journal.db", "").numbers("east") == [4, 5]
    journal.saved("east", 10**6)  # says more than can be: the newest stays
    assert journal.read(5, "east")["received"]["w"] == 5.0


def test_a_site_that_is_taken_off_voids_the_open_round(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SITES, 0)
    for topic in ("columns", "settings"):
        journal.tell(topic, {site: {site: {"age": 1}} for site in SITES})
    closed(journal, SITES)
    again = Journal(tmp_path, ["east", "south"], 0)
    assert again.number == 2 and again.took == {0: SITES, 1: []}
    assert sorted(again.told["columns"]) == SITES and sorted(again.told["settings"]) == ["east", "south"]
    assert again.read(1, "south")["received"] == {} and again.after(0, "south") == 2
    assert Journal(tmp_path, ["east", "south"], 0).number == 2  # once


def test_a_damaged_journal_or_reply_is_refused_by_name(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SITES, 0)
    journal.tell("columns", {site: {site: {}} for site in SITES})
    closed(journal, SITES)
    path = tmp_path / "journal.db"
    whole = path.read_bytes()

    def look() -> str:
        known = Journal(tmp_path, SITES, 0)
        return str((known.number, known.told, known.took, known.memory, known.read(0, "east")))

    before = look()
    for place in range(0, len(whole), 89):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with suppress(ConfigError):
            assert look() == before  # a byte that means nothing
    for content in (b"", whole[:-30], whole[: len(whole) // 2], b"x" * len(whole)):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"journal\.db.*put it back"):
            Journal(tmp_path, SITES, 0)


ROUNDS = """
import os, signal, sys, time, torch
from pathlib import Path
from fedlit.institutions.journal import Journal
sites = ["east", "north", "south"]
for tries in range(6):
    reading, writing = os.pipe()
    child = os.fork()  # imports nothing again
    if child == 0:
        journal = Journal(Path(sys.argv[1]), sites, 0)
        while True:
            number = journal.number
            state = {"w": torch.full((20_000,), float(number))}
            journal.close(sites, {site: {"received": state} for site in sites}, {"momentum": state["w"]})
            os.write(writing, b"%d " % number)
    text = os.read(reading, 1)
    time.sleep(0.013 * tries)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(writing)
    said = int((text + os.read(reading, 10_000)).split()[-1])
    journal = Journal(Path(sys.argv[1]), sites, 0)
    assert journal.number in (said + 1, said + 2)  # what was said to be closed is
    last = journal.number - 1
    states = [journal.memory["momentum"], *(journal.read(last, site)["received"]["w"] for site in sites)]
    assert all(bool((state == last).all()) for state in states)
"""


def test_a_killed_coordinator_finds_all_of_a_round_or_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ROUNDS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Journal(tmp_path, SITES, 0).number >= 6


def test_any_change_of_terms_is_asked_about_again(tmp_path: Path) -> None:
    terms = Terms("north", {"address": "a:1"}, {"columns": {"columns": {"age": "numbers"}}}, {"w": ("float32", (2,))})
    assert not accepted(tmp_path, terms)
    keep(tmp_path, terms)
    assert accepted(tmp_path, terms)
    changed = [
        Terms("north", {"address": "b:1"}, terms.facts, terms.tensors),
        Terms("north", terms.coordinator, {}, terms.tensors),
        Terms("north", terms.coordinator, terms.facts, {"w": ("float32", (3,))}),
        Terms("north", terms.coordinator, terms.facts, terms.tensors, rows=5),
        Terms("north", terms.coordinator, terms.facts, terms.tensors, scores=True),
    ]
    assert not any(accepted(tmp_path, own) for own in changed)
    assert len({own.hash for own in (terms, *changed)}) == 6


def test_nothing_is_told_that_was_not_agreed_to() -> None:
    facts = {"columns": {"age": "numbers"}, "categories": {"town": ["Aachen", "Bonn"]}}
    consent = Consent(Terms("north", {}, {"values": facts}, {"w": ("float32", (2,))}))
    consent.check("values", {"categories": {"town": ["Aachen", "Bonn"]}})  # a part of it
    for more in ({"categories": {"town": ["Aachen", "Celle"]}}, {"moments": {"age": [1, 2, 3]}}):
        with pytest.raises(RunError, match="nothing of it was sent"):
            consent.check("values", more)
    with pytest.raises(RunError, match="nothing of it was sent"):
        consent.check("rows", {"train": 5})
    consent.check_update({"w": ("float32", (2,))}, {})
    with pytest.raises(RunError, match="head"):
        consent.check_update({"head": ("float32", (2,))}, {})
