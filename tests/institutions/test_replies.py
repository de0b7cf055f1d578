"""What a broken coordinator says to a site: it is refused by name."""

import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from site_messages import FORMS, OFFER, TERMS, reply
from sites import MemoryLine, SiteEnd

from fedlit import Mean
from fedlit.errors import RunError
from fedlit.exchange.rule import Update
from fedlit.exchange.wire import pack, unpack
from fedlit.institutions.consent import Consent
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.journal import Journal
from fedlit.institutions.replies import heard
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.sites_server import SitesServer
from fedlit.institutions.terms import Terms
from fedlit.institutions.traffic import Traffic
from fedlit.institutions.transport import SiteTransport
from fedlit.privacy.ledger import Ledger


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
