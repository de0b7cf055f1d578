"""One of four sites lies, or the coordinator does: it is refused by name, and the others train."""

import sys
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sites import MemoryLine, federate

from fedlit import Mean
from fedlit.data.terms import Terms
from fedlit.exchange.wire import pack, unpack
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.facts import agreed
from fedlit.institutions.journal import Journal
from fedlit.institutions.messages import HEAD, MOST, read
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.serving.states import first_state
from fedlit.institutions.sites_server import SitesServer
from fedlit.institutions.topics import NAMED, check_facts
from fedlit.privacy.settings import Masked, Privacy
from fedlit.sketches import SKETCHED, sketch

SITES = ["east", "north", "south", "west"]
OFFER = {
    "tensors": {"w": ["float32", [2]]},
    "parameters": 1,
    "met": ["w"],
    "named": [],
    "chosen": True,
    "whole": False,
}


@pytest.fixture(scope="module")
def liars() -> Any:
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    from drill import liars  # type: ignore[import-not-found]

    return liars


@pytest.mark.parametrize("way", ["from", "to"])
def test_lies_end_no_federation_and_no_process(way: str, liars: Any, tmp_path: Path) -> None:
    passed, note = liars.lies_of(tmp_path, 60, way, ["ifca"])
    assert passed == 60, note
    assert "0 refused" not in note.split(", ")


def before_training(
    folder: Path, **options: Any
) -> tuple[SitesServer, MemoryLine, Callable[..., None]]:
    """A coordinator with no patience, and a function by which sites tell it facts of a topic."""
    line = MemoryLine(SITES)
    journal = Journal(folder, SITES, 0)
    minimum = options.pop("minimum", 3)
    hub = SitesServer(
        CoordinatorServer(Mean()), line, journal, {}, Patience(0.0, minimum), **options
    )

    def tell(topic: str, facts: Any, **others: Any) -> None:
        for site in SITES:
            if site not in hub.journal.left_out:
                message = {
                    "key": f"share:{topic}",
                    "site": site,
                    "facts": {site: others.get(site, facts)},
                }
                hub.take(site, pack(message))
        hub.advance()
        hub.advance()

    return hub, line, tell


def offer(dtype: Any = "float32", shape: Any = (2,)) -> dict[str, Any]:
    return {**OFFER, "tensors": {"w": [dtype, shape]}}


LIES: list[Any] = [
    ("federated", OFFER, offer(dtype=7)),
    ("federated", OFFER, offer(shape=[[2]])),
    ("federated", OFFER, offer(shape=[-1])),
    ("federated", OFFER, offer(shape=[2**30, 2**30])),
    ("federated", OFFER, offer(dtype="no_such")),
    ("federated", OFFER, offer(shape=[2**52] * 500_000)),
    ("values", {}, {"tails": {"x" * (HEAD - 1000): "other"}}),
    ("federated", OFFER, {**OFFER, "parameters": 10**400}),
    ("federated", OFFER, offer(shape=[3])),
    ("federated", OFFER, offer(dtype="float64")),
    ("meaning", {"w": {"labels": "6f"}}, {"w": {"labels": "70"}}),
    ("steps", {"steps": 3, "rows": 0}, {"steps": float("nan"), "rows": 0}),
    ("steps", {"steps": 3, "rows": 0}, {"steps": 2**53 - 1, "rows": 0}),
    ("steps", {"steps": 3_000, "rows": 0}, {"steps": 3_000_001, "rows": 0}),
]


@pytest.mark.parametrize(("topic", "facts", "lie"), LIES)
@pytest.mark.parametrize("liar", SITES)
def test_the_odd_one_is_named_and_the_others_begin(
    topic: str, facts: Any, lie: Any, liar: str, tmp_path: Path
) -> None:
    hub, line, tell = before_training(tmp_path)
    tell("settings", {})
    tell(topic, facts, **{liar: lie})
    assert hub.journal.left_out == {liar} == set(hub.desk.refused)
    for site in SITES:
        reply = read(line.last[site], MOST)
        assert ("failed" in reply) == (site == liar)
        assert site == liar or set(reply["reply"]["facts"]) == set(SITES) - {liar}
    again = Journal(tmp_path, SITES, 0)
    assert SitesServer(
        CoordinatorServer(Mean()), line, again, {}, Patience(0.0, 3)
    ).journal.left_out == {liar}
    # it comes too late
    hub.take(liar, pack({"key": "share:settings", "site": liar, "facts": {liar: {}}}))
    assert "failed" in unpack(line.last[liar])


@pytest.mark.parametrize(
    "lie", [[1, 1e308, 1e308], [2**53 - 1, 1e150, 0], [1e308, -1e300, 0]], ids=str
)
def test_moments_that_spoil_the_numbers_of_all_are_refused(
    lie: list[float], tmp_path: Path
) -> None:
    hub, _, tell = before_training(tmp_path, meet=partial(agreed, terms=Terms("both", "pooled")))
    tell("settings", {})
    facts = {"columns": {"age": "numeric"}, "moments": {"age": [57, 58.0, 84.4]}}
    tell("values", facts, south={**facts, "moments": {"age": lie}})
    assert hub.journal.left_out == {"south"} == set(hub.desk.refused)


REGRESSION = {"task": "regression", "target": "cost", "loss": "squared", "shared": True}
HONEST = {**REGRESSION, "count": 57, "mean": 180.0, "variance": 700.0}
COUNTS = {"task": "counts", "target": "stays", "count": 57, "mean": 1.5, "shared": True}
TARGETS: list[Any] = [
    (HONEST, {**HONEST, "mean": 1e308, "variance": 1e308}),
    (HONEST, {**HONEST, "count": 2**53 - 1, "mean": 1e150, "variance": 0.0}),
    (HONEST, {**HONEST, "count": 1, "mean": 1e308, "variance": 0.0}),
    (COUNTS, {**COUNTS, "mean": 1e308}),
    (COUNTS, {**COUNTS, "mean": -1.0}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("target", "lie"), TARGETS)
def test_a_target_that_spoils_that_of_all_is_refused(target: Any, lie: Any, tmp_path: Path) -> None:
    hub, _, tell = before_training(tmp_path, meet=partial(agreed, terms=Terms()))
    tell("settings", {})
    tell("columns", {"target": target}, south={"target": lie})
    assert hub.journal.left_out == {"south"} == set(hub.desk.refused)


CODES = [f"{number}" for number in range(200_000)]
LONG: list[Any] = [
    {"categories": {"town": CODES}},
    {"categories": {f"column {number}": CODES[:10_000] for number in range(7)}},
    {"columns": dict.fromkeys(CODES, "numeric")},
    {"target": {"task": "classification", "target": "ill", "labels": CODES, "shared": True}},
    {"sketches": {"age": [57, *[1.0] * 300_000]}},
    {"sketches": {"age": [57, *[1.0] * (SKETCHED + 1)]}},
    {"sketches": {"age": [57]}},
    {"sketches": {"age": [57, -1e308, 1e308]}},
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lie", LONG, ids=range(len(LONG)))
def test_facts_that_make_the_networks_of_all_wide_are_refused(lie: Any, tmp_path: Path) -> None:
    hub, _, tell = before_training(tmp_path)
    tell("settings", {})
    tell("values", {"columns": {"age": "numeric"}}, south=lie)
    assert hub.journal.left_out == {"south"} == set(hub.desk.refused)


def test_as_much_as_a_table_can_say_is_believed() -> None:
    quantiles = sketch(np.arange(1000.0))
    labels = {"task": "classification", "target": "ill", "labels": CODES[:NAMED], "shared": True}
    facts = {
        "columns": {"age": "numeric"},
        "categories": {"town": CODES[:NAMED]},
        "sketches": {"age": quantiles},
    }
    assert len(quantiles) == SKETCHED + 1
    check_facts(
        "values", {"south": {**facts, "target": labels}, "north": {"sketches": {"age": [0]}}}
    )


def test_a_site_that_ends_again_and_again_delays_nobody(tmp_path: Path) -> None:
    hub, _, _tell = before_training(tmp_path)
    hub.journal.took[0] = SITES
    hub.state = first_state(hub)
    done = pack({"key": "done", "site": "south"})
    hub.take("south", done)
    first = hub.desk.since
    hub.take("south", done)
    assert hub.journal.done == ["south"] and hub.desk.since == first


def test_two_that_contradict_each_other_are_both_named(tmp_path: Path) -> None:
    hub, _, tell = before_training(tmp_path, minimum=2)
    tell("settings", {})
    private = {**OFFER, "tensors": {**OFFER["tensors"], "v": ["float32", [2]]}}  # type: ignore[dict-item]
    lie = {**OFFER, "tensors": {**OFFER["tensors"], "v": ["float32", [3]]}}  # type: ignore[dict-item]
    tell("federated", OFFER, north=private, south=lie)
    assert set(hub.desk.refused) == {"north", "south"}


@pytest.mark.parametrize(
    "options", [{"minimum": 4}, {"privacy": Privacy(masked=Masked())}], ids=["minimum", "masked"]
)
def test_all_wait_for_a_liar_where_none_may_be_missing(
    options: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, _, tell = before_training(tmp_path, **options)
    tell("settings", {})
    caplog.clear()
    tell("federated", OFFER, south=offer(dtype=7))
    waits = [
        record
        for record in caplog.records
        if "waiting for south (site south: federated" in record.getMessage()
    ]
    assert len(waits) == 1 and hub.journal.left_out == set() and len(hub.desk.waiting) == 3
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)  # a minute later it is said again
    caplog.clear()
    hub.advance()
    assert "waiting for south (site south: federated" in caplog.text
    monkeypatch.undo()
    tell("federated", OFFER)  # it comes to its senses
    assert hub.journal.told.keys() == {"settings", "federated"} and hub.desk.refused == {}


ANSWERS: list[Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = [
    lambda answer: {name: value.float() / 0 for name, value in answer.items()},
    lambda answer: {**answer, "more": torch.zeros(1)},
    lambda answer: {},
    lambda answer: {name: value.float() for name, value in answer.items()},
    lambda answer: {name: value[..., :1] for name, value in answer.items()},
    lambda answer: {name: value[:, :, :, None] for name, value in answer.items()},
]


@pytest.mark.parametrize(
    "lie", ANSWERS, ids=["infinite", "more", "none", "types", "nodes", "dimensions"]
)
def test_a_forest_grows_on_without_a_site_that_answers_falsely(
    lie: Any, liars: Any, tmp_path: Path
) -> None:
    """Its answer ends a round without a tree; the next one has those of the other sites, and is the
    same at all."""
    from test_sites import written  # type: ignore[import-not-found]

    changes = deepcopy(liars.FEDERATIONS["forest"])
    # no site continues the common trees by itself
    changes["exchange"]["rule"]["init_args"]["minimum"] = 1
    federation = written(tmp_path, **changes)
    line = MemoryLine(SITES)

    def meddle(way: str, site: str, content: bytes) -> list[bytes]:
        message = unpack(content)
        if (way, site, message.get("key")) != ("from", "south", "round:0/1"):
            return [content]
        return [pack({**message, "answers": lie(message["answers"])})]

    line.meddle = meddle
    sources = {site: liars.table(tmp_path, site) for site in SITES}
    result, sites, errors = federate(
        tmp_path, federation, sources, line=line, patience=2.0, minimum=3
    )
    assert set(errors) == {"south"} and "site south" in str(errors["south"])
    assert result["took"] == {"east": 3, "north": 3, "south": 0, "west": 3}
    trees = [
        sites[site].run.loop.federation[site].state["trees"] for site in ("east", "north", "west")
    ]
    assert len(trees[0]["roots"]) == 2 * 2  # two in each of two rounds
    assert all(
        torch.equal(trees[0][name], own[name]) for own in trees for name in ("feature", "threshold")
    )
