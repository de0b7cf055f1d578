"""What a hostile or broken side says to the other: it is refused by name, and nothing else comes to
harm."""

import asyncio
import errno
import json
import sqlite3
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from federations import Killed
from sites import MemoryLine, SiteEnd

from fedlit import GrowForest, Mean, Newton, Round
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.questions import InputRange, Losses, Own
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.wire import pack, question_to, unpack
from fedlit.institutions.accepted import accepted, given_up, keep, refuse_lost
from fedlit.institutions.consent import Consent
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.extra import Lost
from fedlit.institutions.gate import Gate
from fedlit.institutions.joining import consent
from fedlit.institutions.journal import Journal
from fedlit.institutions.replies import heard
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.serving.states import first_state
from fedlit.institutions.sites_server import SitesServer
from fedlit.institutions.terms import Terms
from fedlit.institutions.traffic import Traffic
from fedlit.institutions.transport import SiteTransport
from fedlit.privacy.ledger import Ledger
from fedlit.seeding import derive_seed

SITES = ["east", "north", "south"]
FORMS: dict[str, tuple[str, tuple[int, ...]]] = {"w": ("float32", (2,))}
OFFER = {
    "tensors": FORMS,
    "parameters": 1,
    "met": ["w"],
    "named": [],
    "chosen": True,
    "whole": True,
}


TERMS = Terms("north", {}, {"federated": OFFER}, FORMS)


def test_any_change_of_terms_is_asked_about_again(tmp_path: Path) -> None:
    first = Terms("north", {"address": "a:1"}, {"columns": {"columns": {"age": "numbers"}}}, FORMS)
    assert not accepted(tmp_path, first)
    keep(tmp_path, first)
    assert accepted(tmp_path, first)
    changes: list[dict[str, Any]] = [
        {"coordinator": {"address": "b:1"}}, {"facts": {}}, {"tensors": {"w": ("float32", (3,))}}, {"rows": 5},
        {"scores": True},
    ]  # fmt: skip
    changed = [replace(first, **own) for own in changes]
    assert (
        not any(accepted(tmp_path, own) for own in changed)
        and len({own.hash for own in (first, *changed)}) == 6
    )


MASKS: dict[str, Any] = {"bits": 32, "norm": 10.0, "least": 4}
NOISE: dict[str, Any] = {"clip": 1.0, "noise": 2.0, "delta": 1e-5, "answers": 9}
BOTH = {"masked": MASKS, "client_level": NOISE}
KNOWN = {"id": "0123456789abcdef" * 2, "sites": SITES}
STRONG = replace(TERMS, federation=KNOWN, protection=("masked sums",), privacy=BOTH)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({}, ("masks", "noise")),
        ({"client_level": NOISE}, ("masks",)),
        ({"masked": MASKS}, ("noise",)),
        ({**BOTH, "client_level": {**NOISE, "noise": 1.0}}, ("noise",)),
        ({**BOTH, "client_level": {**NOISE, "answers": None}}, ("noise",)),
        ({**BOTH, "masked": {**MASKS, "norm": None}}, ("norm",)),
        ({**BOTH, "masked": {**MASKS, "least": 3}}, ("least",)),
    ],
)
def test_weaker_protection_needs_more_than_a_hash(
    now: Any, words: tuple[str, ...], tmp_path: Path
) -> None:
    site: Any = SimpleNamespace(
        settings=SimpleNamespace(folder=tmp_path, file=tmp_path / "site.yaml")
    )
    lines: list[str] = []
    consent(site, STRONG, [STRONG.hash], lines.extend)
    weak = replace(STRONG, protection=(), privacy=now)
    for without in ((), words[1:], ("peers",)):
        with pytest.raises(ConfigError, match=" ".join(f"--without {word}" for word in words)):
            consent(site, weak, [weak.hash], lines.extend, without=without)
    assert not accepted(tmp_path, weak)
    consent(site, weak, [weak.hash], lines.extend, without=words)
    assert accepted(tmp_path, weak) and "-   masked sums" in lines
    consent(site, weak, [], lines.extend)  # once
    assert accepted(tmp_path, STRONG)


def test_weaker_terms_after_stronger_ones_are_asked_again(
    tmp_path: Path,
) -> None:
    """Also those that name no federation, or another one, of the same coordinator."""
    plain = replace(STRONG, privacy={})
    keep(tmp_path, plain)
    assert accepted(tmp_path, plain)
    keep(tmp_path, STRONG)
    for own in (
        plain,
        replace(plain, federation={}),
        replace(plain, federation={**KNOWN, "id": "f" * 32}),
    ):
        assert not accepted(tmp_path, own) and given_up(tmp_path, own) == ("masks", "noise")


def test_the_ledger_refuses_weaker_protection_by_itself(tmp_path: Path) -> None:
    """As where somebody has deleted what was accepted."""
    Ledger(tmp_path / "privacy", STRONG.identity).open(BOTH, SITES)
    ledger = Ledger(tmp_path / "privacy", STRONG.identity)
    assert given_up(tmp_path, replace(STRONG, privacy={"masked": MASKS})) == ("noise",)
    with pytest.raises(RunError, match="without noise"):
        ledger.open({"masked": MASKS}, SITES)
    assert ledger.account["protection"] == BOTH
    ledger.open({"masked": MASKS}, SITES, without=["noise"])
    Ledger(tmp_path / "privacy", "f" * 32).open({}, SITES)


@pytest.mark.parametrize("terms", [TERMS, STRONG])
def test_an_accepted_federation_without_its_ledger_is_refused(terms: Terms, tmp_path: Path) -> None:
    refuse_lost(tmp_path, terms)
    keep(tmp_path, terms)
    with pytest.raises(RunError, match=r"memory\.db"):
        refuse_lost(tmp_path, terms)
    Ledger(tmp_path / "privacy", terms.identity)
    refuse_lost(tmp_path, terms)


def test_nothing_is_told_or_answered_that_was_not_agreed_to() -> None:
    facts = {"columns": {"age": "numbers"}, "categories": {"town": ["Aachen", "Bonn"]}}
    questions = dict.fromkeys(("losses", "forest/counts"), QuestionTerms())
    consent = Consent(Terms("north", {}, {"values": facts}, FORMS, questions=questions))
    consent.check("values", {"categories": {"town": ["Aachen", "Bonn"]}})  # a part of it
    consent.check_update(FORMS, {})
    consent.check_question(Losses([{}]))
    consent.check_question(Own("forest/counts", {}))
    for topic, more in (
        ("values", {"categories": {"town": ["Aachen", "Celle"]}}), ("values", {"moments": {"age": [1, 2, 3]}}),
        ("rows", {"train": 5}),
    ):  # fmt: skip
        with pytest.raises(RunError, match="nothing of it was sent"):
            consent.check(topic, more)
    with pytest.raises(RunError, match="head"):
        consent.check_update({"head": ("float32", (2,))}, {})
    for question in (InputRange(), Own("forest/ranges", {}), Own("anything at all", {})):
        with pytest.raises(RunError, match="nothing was answered"):
            consent.check_question(question)
    with pytest.raises(RunError, match="nothing was answered"):
        Consent(TERMS).check_question(Losses([{}]))


def test_a_forest_is_asked_within_the_limits_that_were_agreed_to() -> None:
    rule = GrowForest(trees=5, minimum=20, summed=True)
    bounds = rule.facts.questions["forest/start"]
    said = {**bounds.values, "seed": derive_seed(7, "forest")}

    def start(**changes: Any) -> Own:
        values = {**said, **changes}.items()
        return Own("forest/start", {key: torch.from_numpy(np.array(own)) for key, own in values})

    bounds.check(start(), seed=7)
    for changes in ({"minimum": 1}, {"summed": False}, {"levels": 1000}, {"seed": 5}, {"more": 1}):
        with pytest.raises(RunError, match=rf"forest/start.*{next(iter(changes))}"):
            bounds.check(start(**changes), seed=7)
    assert "forest/ranges" not in rule.facts.questions
    thresholds = Own("forest/counts", {"thresholds": torch.zeros(4, 20_000, 25)})
    with pytest.raises(RunError, match=r"forest/counts.*thresholds"):
        rule.facts.questions["forest/counts"].check(thresholds)


def curvature(points: int, at: float = 0.0) -> dict[str, Any]:
    tensors = {
        "ridge": torch.tensor(3.0).double(),
        "prior.1: age": torch.full((points,), at).double(),
    }
    return question_to(Own("curvature", tensors))


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


def questions(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"to": f"round:0/{n - 1}" if n else "round:0", "n": n, "ask": curvature(1, n)}
        for n in range(first, last)
    ]


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


@pytest.mark.parametrize("masked", [False, True])
def test_terms_name_each_key_once_in_eighty_columns(masked: bool) -> None:
    keys = {site: f"SHA256:{site[0] * 43}" for site in ("east", "south")}
    lines = replace(TERMS, peers=keys, masked=masked).lines()
    assert all(sum(key in line for line in lines) == 1 for key in keys.values())
    assert max(map(len, lines)) <= 80 and not any("[" in line for line in lines[:8])


def test_masked_questions_under_new_numbers_are_bounded(tmp_path: Path) -> None:
    """The site would keep each answer until the round is over."""
    with pytest.raises(RunError, match="expected at most 51 questions"):
        asked(tmp_path, [], *(masked_question(n) for n in range(60)), shield=True)
    with pytest.raises(Killed):
        asked(tmp_path, [], *(masked_question(n) for n in range(51)), shield=True)


def masked_question(number: int) -> dict[str, Any]:
    to = f"round:0/{number - 1}" if number else "round:0"
    return {"to": to, "n": number, "masked": {"n": 0, "question": curvature(1), "flags": {}}}


def test_an_answer_that_is_sent_again_is_noted_once(tmp_path: Path) -> None:
    again = {"to": "round:0/0", "again": True}
    (first,) = questions(0, 1)
    asked(tmp_path, [], *([first, again] * 5), first, {**reply(), "to": "round:0/0"})
    lines = [json.loads(line) for line in (tmp_path / "traffic.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == ["round:0", "round:0/0"]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_of_eight_bits_are_no_message(dtype: torch.dtype) -> None:
    """PyTorch does not say of all of them whether they are finite."""
    with pytest.raises(RunError, match="expected a message of fedlit"):
        heard(pack(reply(received={"down/anything": torch.ones(2).to(dtype)})), 2**20)


@pytest.mark.parametrize("steps", [100_000, 100_001, 2**53 - 1])
def test_an_epoch_that_never_ends_is_refused(steps: int, tmp_path: Path) -> None:
    facts = {"north": {"steps": 3, "rows": 0}, "invented": {"steps": steps, "rows": 2**50}}
    line = MemoryLine(["north"])
    for own in ({"to": ""}, {"to": "share:steps", "reply": {"facts": facts}}):
        line.questions["north"].put(pack(own))
    terms = Terms("north", {}, {"steps": {"steps": 3, "rows": 0}}, {})
    ledger = Ledger(tmp_path / "privacy", terms.identity)
    traffic = Traffic(tmp_path / "traffic.jsonl")
    site = SiteTransport("north", SiteEnd(line, "north"), Mean(), Consent(terms), traffic, ledger)
    with line.turn:
        if steps == 100_000:
            shared = site.share("steps", {"north": {"steps": 3, "rows": 96}})
            assert shared == {
                "north": {"steps": 3, "rows": 96},
                "invented": {"steps": steps, "rows": 0},
            }
            return
        with pytest.raises(RunError, match=r"invented.*data\.batches"):
            site.share("steps", {"north": {"steps": 3, "rows": 96}})


def exchanged(folder: Path, *questions: Any) -> list[dict[str, Any]]:
    """What a site says to a coordinator that asks one question after another, then nothing more."""
    line = MemoryLine(["north"])
    for own in ({"to": ""}, *questions):
        line.questions["north"].put(own if isinstance(own, bytes) else pack(own))
    line.questions["north"].put(None)
    traffic = Traffic(folder / "traffic.jsonl")
    ledger = Ledger(folder / "privacy", TERMS.identity)
    site = SiteTransport("north", SiteEnd(line, "north"), Mean(), Consent(TERMS), traffic, ledger)
    site._forms = FORMS
    server: Any = None  # not asked: the coordinator applies the rule
    with line.turn:
        site.exchange(
            server,
            0,
            {"north": Update({"w": torch.ones(2)})},
            lambda name, asked: None,
            measure=True,
        )
    return [unpack(content) for _, _, content in line.messages]


def test_a_site_hears_messages_as_long_as_the_coordinator_does(tmp_path: Path) -> None:
    forms = {"w": ("float32", (2**20,))}
    terms = Terms("north", {}, {"federated": {**OFFER, "tensors": forms}}, forms)
    line = MemoryLine(["north"])
    fact = terms.facts["federated"]
    for own in (
        {"to": ""},
        {"to": "share:federated", "reply": {"facts": {"north": fact, "south": fact}}},
    ):
        line.questions["north"].put(pack(own))
    ledger = Ledger(tmp_path / "privacy", terms.identity)
    traffic = Traffic(tmp_path / "traffic.jsonl")
    site = SiteTransport("north", SiteEnd(line, "north"), Mean(), Consent(terms), traffic, ledger)
    with line.turn:
        site.share("federated", {"north": fact})
    journal = Journal(tmp_path / "hub", ["north", "south"], 0)
    journal.tell("federated", {"north": {"north": fact}, "south": {"south": fact}})
    hub = SitesServer(CoordinatorServer(Mean()), line, journal, {}, Patience(60, 2))
    assert site._most == hub.desk.most > 4 * 2**20 * 16


def reply(**changes: Any) -> dict[str, Any]:
    own = {"received": {"w": torch.ones(2)}, "next": 1, "lost": [], "records": {}, "bytes": 0}
    return {
        "to": "round:0",
        "reply": {key: value for key, value in {**own, **changes}.items() if value != "gone"},
    }


def test_what_can_be_meant_is_believed(tmp_path: Path) -> None:
    (message,) = exchanged(tmp_path, reply())
    # the mean does not need it
    assert message["key"] == "round:0" and message["updates"]["north"]["rows"] == 0


UNBELIEVED: list[Any] = [
    *(
        b"",
        b"short",
        b"\0" * 30,
        struct.pack(">Q", 2**63) + b"x" * 20,
        struct.pack(">Q", 10) + b"{}",
    ),
    pack({"a": 1})[:-3],
    {"neither": 1},
    reply(received={"w": torch.tensor([float("nan"), 1.0])}),
    reply(received={"w": torch.ones(3)}),
    reply(received={"v": torch.ones(2)}),
    reply(received={"down/anything": torch.ones(2)}),
    reply(received=[1]),
    reply(next=-5),
    reply(next=10**30),
    reply(next="x"),
    reply(next="gone"),
    reply(bytes="many"),
    reply(bytes=10**400),
    reply(lost=5),
    reply(lost=["south"]),
    reply(records=[1]),
    reply(records={"train/drift": "x"}),
    {"to": torch.ones(2), "reply": {}},
    {"to": "round:0", "again": torch.ones(2)},
    {"to": "round:0", "ask": {"question": "losses", "states": []}},
    {"to": "round:0", "ask": {"question": "losses", "states": []}, "n": 0},
    {"to": "round:0", "ask": {"question": "no such"}, "n": 0},
    {"to": "round:0", "ask": {}, "n": 0},
    {"to": "round:0", "ask": [1], "n": 0},
    {"to": "round:0", "masked": {"attempt": 0}, "n": 0},
]


@pytest.mark.parametrize("odd", UNBELIEVED)
def test_a_site_does_not_believe_what_cannot_be_meant(odd: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        exchanged(tmp_path, odd)


def hub_at_round(
    folder: Path, rule: Rule | None = None, patience: Patience | None = None
) -> tuple[SitesServer, MemoryLine]:
    """Before the first round."""
    journal = Journal(folder, SITES, 0)
    line = MemoryLine(SITES)
    for topic, fact in {"federated": OFFER, "steps": {"steps": 3}}.items():
        journal.tell(topic, {site: {site: fact} for site in SITES})
    return SitesServer(
        CoordinatorServer(rule or Mean()), line, journal, {}, patience or Patience(60, 2)
    ), line


def said(state: Any = None, **changes: Any) -> dict[str, Any]:
    update = {"state": state or {"w": torch.ones(2)}, "published": {}, "rows": 0, "steps": 0}
    return {"key": "round:0", "site": "south", "saved": -1, "updates": {"south": update}, **changes}


REFUSED: list[Any] = [
    b"garbage",
    pack({"a": 1}),
    b"\0\0\0\0\0\0\0\x13" + b'{"__tensor__": "9"}' + pack({})[10:],
    said(key="round:7"),
    said(key="share:zzz", facts={"south": {}}),
    said(key="share:federated", facts={"south": None}),
    said(key="share:federated", facts={"south": {"tensors": 3}}),
    # equal to nothing, and not different either
    said(key="share:steps", facts={"south": {"steps": torch.ones(2)}}),
    said(key="at:-1"),
    said(key="done"),
    said(key=5),
    said(updates=None),
    said(unfit=torch.ones(2)),
    said(updates={"north": {}}),
    said(updates={"south": {"state": {"w": torch.ones(2)}}}),
    said({"w": torch.ones(2), "head.weight": torch.ones(2)}),
    said({"w": torch.ones(3)}),
    said(site="north"),
    said(scores={"north": {"auroc": 0.0}, "south": {"auroc": 1.0}}),
    said(scores={"south": {f"score {number}": 1.0 for number in range(10_000)}}),
    said(scores={"south": {"x" * 10_000: 1.0}}),
    said(scores={"south": {"auroc": "best"}}),
    said(scores=[]),
    RunError("expected an answer of at most 10 bytes, found 11"),
]


@pytest.mark.parametrize("odd", REFUSED)
def test_the_coordinator_refuses_a_site_and_awaits_the_others(odd: Any, tmp_path: Path) -> None:
    hub, line = hub_at_round(tmp_path)
    hub.take("south", odd if isinstance(odd, bytes | RunError) else pack(odd))
    assert set(line.last) == {"south"} and "site south" in unpack(line.last["south"])["failed"]
    hub.take("north", pack(said(site="north", updates={"north": said()["updates"]["south"]})))
    hub.take("south", pack(said()))  # a site that comes to its senses is heard
    assert set(hub.desk.waiting) == {"north", "south"} and hub.desk.refused == {}


@pytest.mark.parametrize(
    "error", [Lost("away"), OSError(errno.ENOSPC, "full")], ids=["line", "disk"]
)
def test_no_site_is_refused_for_what_fails_at_the_coordinator(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, line = hub_at_round(tmp_path)

    def fail(site: str, content: bytes) -> None:
        raise error

    monkeypatch.setattr(line, "reply", fail)
    with pytest.raises(type(error)):
        hub.take("south", pack({"key": "at:0", "site": "south"}))
    assert hub.desk.refused == {}


CLOSED = {"received": {}, "lost": [], "records": {}, "bytes": 0, "verdict": None}
FACTS: dict[str, Any] = {"facts": {"south": {"w": {}}}}
ACCEPTED: list[Any] = [
    ("before training", "round:0", {}, True),
    ("before training", "at:0", {}, True),
    ("before training", "share:meaning", FACTS, True),
    ("before training", "done", {}, False),
    ("round 2", "round:1", {}, True),
    ("round 2", "at:1", {}, True),
    ("round 2", "done", {}, True),
    ("round 2", "share:meaning", FACTS, False),
    ("after round 1", "round:1", {}, False),
    ("after round 1", "at:1", {}, False),
]


@pytest.mark.parametrize(("state", "key", "changes", "accepted"), ACCEPTED)
def test_each_state_takes_its_requests_and_names_others(
    state: str, key: str, changes: Any, accepted: bool, tmp_path: Path
) -> None:
    hub, line = hub_at_round(tmp_path)
    if state != "before training":
        hub.journal.close(SITES, dict.fromkeys(SITES, CLOSED), hub.server.memory())
        hub.state = first_state(hub)
    if state == "after round 1":
        for site in SITES:
            hub.take(site, pack({"key": "done", "site": site}))
        hub.advance()
    assert hub.state.name == state
    hub.take("south", pack(said(key=key, **changes)))
    assert ("south" not in hub.desk.refused) == accepted
    if not accepted:
        assert state in hub.desk.refused["south"] and key in hub.desk.refused["south"]
        assert "failed" in unpack(line.last["south"])


class Asks(Mean):
    """Asks each client of a round for the range of its inputs."""

    def __call__(self, round: Round) -> Any:
        round.ask(dict.fromkeys(round.updates, InputRange()))
        return super().__call__(round)


def test_a_site_that_comes_while_others_are_asked_is_heard(tmp_path: Path) -> None:
    hub, line = hub_at_round(tmp_path, Asks(), Patience(0, 2))
    for site in ("north", "south"):
        hub.take(site, pack(said(site=site, updates={site: said()["updates"]["south"]})))
    late = pack(said(site="east", updates={"east": said()["updates"]["south"]}))
    line.answered.put(("east", late))
    for site in ("north", "south"):
        line.answered.put(
            (site, pack({"key": "round:0/0", "site": site, "answers": torch.zeros(2, 1)}))
        )
    with line.turn:
        hub.advance()
    assert hub.journal.took == {0: ["north", "south"]}
    # it is asked where it is, rather than left to wait
    assert unpack(line.last["east"]) == {"to": ""}
    hub.take("east", late)
    assert unpack(line.last["east"])["reply"]["next"] == 1


BODIES: list[Any] = [
    ([b"12345678"], 200),
    ([b"1234", b"5678"], 200),
    ([b"12345678", b"9"], 413),
    ([b"1234", None], 408),  # the rest never comes
]


@pytest.mark.parametrize(("chunks", "status"), BODIES)
def test_the_gate_bounds_bodies_in_size_and_time(chunks: list[bytes | None], status: int) -> None:
    answered = []
    events = list(enumerate(chunks, 1))

    async def receive() -> dict[str, Any]:
        number, chunk = events.pop(0)
        if chunk is None:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}

    async def send(event: Any) -> None:
        answered.append(event.get("status"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"12345678"
        await send({"type": "http.response.start", "status": 200})

    gate = Gate(app, frozenset({"/a"}), largest=8, budget=8, seconds=0.05)
    scope = {"method": "POST", "path": "/a"}
    asyncio.run(
        gate({"type": "http", **scope, "headers": [(b"content-encoding", b"gzip")]}, receive, send)
    )
    asyncio.run(gate({"type": "http", **scope}, receive, send))
    assert [answered[0], answered[2]] == [415, status]  # what is compressed is not read
    assert gate._left == 8  # what was held is given back


def test_a_server_that_ends_answers_a_slow_body() -> None:
    answered = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    async def send(event: Any) -> None:
        answered.append(event.get("status"))

    async def end() -> None:
        scope = {"type": "http", "method": "POST", "path": "/a"}
        gate = Gate(lambda *_: asyncio.sleep(0), frozenset({"/a"}))
        request = asyncio.ensure_future(gate(scope, receive, send))
        await asyncio.sleep(0.01)
        request.cancel()
        await request

    asyncio.run(end())
    assert answered[0] == 503
