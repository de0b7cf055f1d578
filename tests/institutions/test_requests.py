"""What a broken site says to the coordinator: it is refused, and no other site comes to harm."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from site_messages import OFFER, SITES, said
from sites import MemoryLine

from fedlit import Mean, Round
from fedlit.errors import RunError
from fedlit.exchange.questions import InputRange
from fedlit.exchange.rule import Rule
from fedlit.exchange.wire import pack, unpack
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.extra import Lost
from fedlit.institutions.journal import Journal
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.serving.states import first_state
from fedlit.institutions.sites_server import SitesServer


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
