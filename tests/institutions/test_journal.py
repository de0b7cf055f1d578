"""What a coordinator remembers of its rounds, and what it keeps for sites that were away."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fedlit.errors import ConfigError
from fedlit.exchange.schedule import BEGIN
from fedlit.institutions.journal import Journal
from fedlit.store import Store

SITES = ["east", "north", "south"]


def closed(journal: Journal, took: list[str]) -> None:
    number = float(journal.number)
    replies = {
        site: {"received": {"w": torch.tensor([number])}, "lost": [], "records": {}, "bytes": 0}
        for site in SITES
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
