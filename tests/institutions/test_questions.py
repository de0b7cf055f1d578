"""Questions to a site: it counts and bounds them, also through restarts."""

import errno
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Killed
from site_messages import FORMS, OFFER, curvature, questions, reply
from sites import MemoryLine, SiteEnd

from fedlit import GrowForest, Newton
from fedlit.errors import RunError
from fedlit.exchange.questions import Own
from fedlit.exchange.rule import Update
from fedlit.exchange.wire import pack, question_to
from fedlit.institutions.consent import Consent
from fedlit.institutions.terms import Terms
from fedlit.institutions.traffic import Traffic
from fedlit.institutions.transport import SiteTransport
from fedlit.privacy.ledger import Ledger

NEWTON = Newton("all", 3.0)


ASKED = Terms("north", {}, {"federated": OFFER}, FORMS, questions=NEWTON.facts.questions)


class Answered:
    """A shield that answers whatever it is asked under masks, as it does what it has answered
    before."""

    def answer(self, number: int, asked: Any, answer: Any) -> dict[str, Any]:
        return {"state": {}}

    def unfit(self, number: int, update: Update) -> str:
        return ""

    def flags(self, number: int, *, fit: bool) -> dict[str, str]:
        return {}

    def send(self, number: int, update: Update) -> Update:
        return update


def asked(folder: Path, answered: list[Any], *questions: Any, shield: bool = False) -> None:
    """Ask a site that has just been started."""
    line = MemoryLine(["north"])
    for own in ({"to": ""}, *questions):
        line.questions["north"].put(pack(own))
    line.questions["north"].put(None)  # then it is killed
    ledger = Ledger(folder / "privacy", ASKED.identity)
    traffic = Traffic(folder / "traffic.jsonl")
    site = SiteTransport("north", SiteEnd(line, "north"), NEWTON, Consent(ASKED), traffic, ledger)
    site._forms = FORMS
    stand_in: Any = Answered()
    site.shield = stand_in if shield else None

    def answer(name: str, question: Any) -> Any:
        answered.append(question)
        return {"value 1": torch.zeros(1)}

    server: Any = None
    with line.turn:
        site.exchange(server, 0, {"north": Update({"w": torch.ones(2)})}, answer, measure=True)


def test_a_site_counts_questions_through_restarts(tmp_path: Path) -> None:
    answered: list[Any] = []
    with pytest.raises(RunError, match=r"curvature.*\[1\].*\[2\]"):
        asked(tmp_path, answered, {"to": "round:0", "n": 0, "ask": curvature(2)})
    assert not answered
    asked(tmp_path, answered, *questions(0, 30), {**reply(), "to": "round:0/29"})
    # the first 30 are no others
    asked(tmp_path, answered, *questions(0, 50), {**reply(), "to": "round:0/49"})
    with pytest.raises(RunError, match="curvature: expected at most 50 questions in a round"):
        asked(tmp_path, answered, *questions(0, 51))
    assert len(answered) == 30 + 50 + 50


def test_a_full_disk_at_a_site_is_not_the_coordinators_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gets no more pages than its file has."""
    answered = list[Any]()
    connect = sqlite3.connect
    Ledger(tmp_path / "privacy", ASKED.identity)

    def small(*where: Any, **how: Any) -> sqlite3.Connection:
        database = connect(*where, **how)
        database.execute("PRAGMA max_page_count = 1")
        return database

    with monkeypatch.context() as full, pytest.raises(OSError, match="disk is full") as error:
        full.setattr(sqlite3, "connect", small)
        asked(tmp_path, answered, *questions(0, 30))
    assert (error.value.errno, error.value.filename) == (
        errno.ENOSPC,
        str(tmp_path / "privacy" / "memory.db"),
    )
    assert Ledger(tmp_path / "privacy", ASKED.identity).count("curvature") == len(answered) < 30
    asked(tmp_path, answered, *questions(0, 50), {**reply(), "to": "round:0/49"})


def test_a_question_behind_others_than_before_counts_again(tmp_path: Path) -> None:
    """A tree's answers depend on all that was asked before: the same bytes after a restart may be
    another question."""
    rule = GrowForest(trees=1, minimum=1, levels=3)
    terms = Terms("north", {}, {}, {}, questions=rule.facts.questions)

    def asked(*lows: float) -> None:
        line = MemoryLine(["north"])
        messages = [
            {"n": n, "ask": question_to(Own("forest/counts", {"low": torch.tensor([lows[n]])}))}
            for n in (0, 1)
        ]
        for own in (
            {"to": ""},
            {"to": "round:0", **messages[0]},
            {"to": "round:0/0", **messages[1]},
            None,
        ):
            line.questions["north"].put(None if own is None else pack(own))
        ledger = Ledger(tmp_path / "privacy", terms.identity)
        traffic = Traffic(tmp_path / "traffic.jsonl")
        site = SiteTransport("north", SiteEnd(line, "north"), rule, Consent(terms), traffic, ledger)
        server: Any = None
        answers = {"left": torch.zeros(1)}
        with line.turn, pytest.raises(Killed):
            site.exchange(
                server, 0, {"north": Update({})}, lambda name, question: answers, measure=True
            )

    asked(1.0, 2.0)
    asked(1.0, 2.0)
    assert Ledger(tmp_path / "privacy", terms.identity).count("forest/counts") == 2
    with pytest.raises(RunError, match="expected at most 3 questions in a round"):
        asked(0.0, 2.0)


def test_invented_sites_do_not_raise_the_number_of_points(tmp_path: Path) -> None:
    federation = {"id": "a" * 32, "sites": ["north", "south", "west"]}
    rule = Newton("others", 3.0)
    terms = Terms(
        "north",
        {},
        {"federated": OFFER},
        FORMS,
        questions=rule.facts.questions,
        federation=federation,
    )
    line = MemoryLine(["north"])
    offers = {"north": OFFER, **{f"invented-{number}": OFFER for number in range(50)}}
    for own in ({"to": ""}, {"to": "share:federated", "reply": {"facts": offers}}):
        line.questions["north"].put(pack(own))
    for points in (2, 3):
        to = "round:0" if points == 2 else "round:0/0"
        line.questions["north"].put(pack({"to": to, "n": points - 2, "ask": curvature(points)}))
    ledger = Ledger(tmp_path / "privacy", terms.identity)
    traffic = Traffic(tmp_path / "traffic.jsonl")
    site = SiteTransport("north", SiteEnd(line, "north"), rule, Consent(terms), traffic, ledger)
    server: Any = None
    answers = {"value 1": torch.zeros(1)}
    with line.turn, pytest.raises(RunError, match=r"curvature.*found float64 \[3\]"):
        site.share("federated", {"north": OFFER})
        site.exchange(
            server, 0, {"north": Update({})}, lambda name, question: answers, measure=True
        )
    assert ledger.count("curvature") == 1


def masked_question(number: int) -> dict[str, Any]:
    to = f"round:0/{number - 1}" if number else "round:0"
    return {"to": to, "n": number, "masked": {"n": 0, "question": curvature(1), "flags": {}}}


def test_masked_questions_under_new_numbers_are_bounded(tmp_path: Path) -> None:
    """The site would keep each answer until the round is over."""
    with pytest.raises(RunError, match="expected at most 51 questions"):
        asked(tmp_path, [], *(masked_question(n) for n in range(60)), shield=True)
    with pytest.raises(Killed):
        asked(tmp_path, [], *(masked_question(n) for n in range(51)), shield=True)


def test_an_answer_that_is_sent_again_is_noted_once(tmp_path: Path) -> None:
    again = {"to": "round:0/0", "again": True}
    (first,) = questions(0, 1)
    asked(tmp_path, [], *([first, again] * 5), first, {**reply(), "to": "round:0/0"})
    lines = [json.loads(line) for line in (tmp_path / "traffic.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == ["round:0", "round:0/0"]
