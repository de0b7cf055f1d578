"""What leaves a client before training is JSON, small, and no more than is needed; with it each
encodes alone."""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from contracts import covering
from federations import Made, make_run
from made_tables import Given, N, assert_same, encode, mixed, numbers, small_tables, table

import fedlit.data.sources.tables as tables_module
from fedlit.client.build import ClientOverride
from fedlit.data.agree import Agreement, agree, facts, negotiate
from fedlit.data.encoder import TableEncoder
from fedlit.data.loader import Steps
from fedlit.data.module import FederatedData
from fedlit.data.shaping.mutations import Mutation
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable
from fedlit.data.terms import Terms
from fedlit.errors import ConfigError

ALIGN = ("none", "features", "classes", "both")
CODING = (("client", "indicators"), ("pooled", "codes"), ("none", "auto"))  # scaling, categories


def made() -> list[ClientTable]:
    """Columns that two have, with gaps, with other categories, without any value, and true/false
    with a gap."""
    ill = np.array([True, None, False, True] * 5, dtype=object)
    return [
        mixed("b", seed=1, bmi=np.full(N, np.nan)),
        mixed("a", seed=2, bmi=numbers(9)),
        table(
            "c",
            {"age": numbers(3), "town": ["Ulm", "Bonn"] * 10, "ill": ill},
            [2, 1] * 10,
            categorical=["town", "ill"],
        ),
        table("d", {"ill": [True, False] * 10, "age": numbers(4)}, categorical=["ill"], positive=0),
    ]


def over_the_wire(tables: Sequence[ClientTable], terms: Terms) -> tuple[dict[str, Any], Agreement]:
    """All facts, each told by a client that sees its own table alone, as they come out of JSON."""
    told: dict[str, Any] = {}
    agreement = None
    for _ in range(2):
        sent = {
            own.name: json.dumps(facts(own, terms, agreement), allow_nan=False) for own in tables
        }
        told = {name: json.loads(text) for name, text in sent.items()}
        assert told == {own.name: facts(own, terms, agreement) for own in tables}
        agreement = agree(told, terms)
    assert agreement is not None
    return told, agreement


@pytest.mark.parametrize(
    ("align", "common"),
    covering(
        ALIGN, [None, "all", "groups", ["town"], {"people": ["age"], "place": ["town", "age"]}]
    ),
    ids=str,
)
def test_each_encodes_alone_as_all_together(align: Any, common: Any) -> None:
    for scaling, categories in CODING:
        alone(made(), Terms(align, scaling, categories, common))  # type: ignore[arg-type]


def alone(tables: Sequence[ClientTable], terms: Terms) -> None:
    told, agreement = over_the_wire(tables, terms)
    assert (agreement, told) == negotiate(tables, terms)[:2] and agreement == agree(
        dict(reversed(told.items())), terms
    )
    whole = {client.spec.name: client for client in encode(tables, **vars(terms))}
    for own in tables:
        theirs = TableEncoder(own.name, agree(told, terms)).fit(own).encode(own)
        assert_same(theirs, whole[own.name])
        assert theirs.fingerprint() == whole[own.name].fingerprint()
    assert len(json.dumps(asdict(agreement))) < 10_000


# ------------------------------------------------------------------ what is told, and what is not


def floats(told: Any) -> list[float]:
    """All numbers in JSON."""
    if isinstance(told, dict | list):
        return [
            number
            for own in (told.values() if isinstance(told, dict) else told)
            for number in floats(own)
        ]
    return [told] if isinstance(told, int | float) and not isinstance(told, bool) else []


def test_no_more_is_told_than_what_is_common_takes() -> None:
    for scaling in ("client", "none"):
        assert over_the_wire(made(), Terms(scaling=scaling))[0] == {
            "a": {},
            "b": {},
            "c": {},
            "d": {},
        }
    # names and kinds alone of columns that nobody else has, and no number of anybody
    told, _ = over_the_wire(small_tables(), Terms("features"))
    assert told["a"] == {
        "columns": {"c": "categorical", "z": "numeric"},
        "categories": {"c": ["p", "s"]},
    }
    assert floats(told) == []
    lone = [
        table("a", {"town": ["Bonn", "Ulm"] * 10}, categorical=["town"]),
        table("b", {"x": numbers()}),
    ]
    assert over_the_wire(lone, Terms("features"))[0]["a"] == {"columns": {"town": "categorical"}}
    # an input's name says the category, and all clients have all inputs
    told, _ = over_the_wire(lone, Terms("features", "client", "indicators"))
    assert told["a"]["categories"] == {"town": ["Bonn", "Ulm"]}
    # labels, but never how many have them
    told, _ = over_the_wire(small_tables(), Terms("classes"))
    expected = {
        "task": "classification",
        "target": "y",
        "labels": [1, 3],
        "positive": None,
        "shared": False,
    }
    assert told["a"] == {"target": expected}
    # moments where scaling is pooled, of listed columns alone
    told, agreement = over_the_wire(small_tables(), Terms(scaling="pooled"))
    assert set(told["b"]) == {"columns", "moments"} and len(floats(told["b"])) == 3
    assert agreement.columns["x"].moments is not None and agreement.columns["x"].moments.count == 24
    listed, _ = over_the_wire(small_tables(), Terms(scaling="pooled", common=["x"]))
    assert (
        listed["a"] == {}
        and listed["b"]["columns"] == {"x": "numeric"}
        and len(listed["d"]["moments"]["x"]) == 3
    )


def test_only_training_rows_are_told_of() -> None:
    source = mixed("a")
    changed = mixed("a")
    rest = np.concatenate([changed.splits["validation"], changed.splits["test"]])
    for place, value in enumerate([1e9, np.nan, "Zürich", 99]):
        changed.features.iloc[rest, place] = value  # type: ignore[call-overload]
    changed.target.iloc[rest] = 7
    terms = Terms("both", "pooled", "indicators")
    assert over_the_wire([source, mixed("b", 3)], terms) == over_the_wire(
        [changed, mixed("b", 3)], terms
    )


# ---------------------------------------------------------- some clients are elsewhere, or left out


class Meeting:
    """Parties that hold some clients each and exchange text."""

    def __init__(self, parties: Sequence[FederatedData]) -> None:
        self.barrier = threading.Barrier(len(parties), timeout=300)
        self.told = dict[tuple[str, str], str]()
        self.failed = list[BaseException]()
        for party in parties:
            party.share = self.share
        with ThreadPoolExecutor(len(parties)) as pool:
            list(pool.map(self.work, parties))

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        for client, told in own.items():
            self.told[topic, client] = json.dumps(told)
        self.barrier.wait()
        return {
            client: json.loads(text)
            for (about, client), text in sorted(self.told.items())
            if about == topic
        }

    def work(self, party: FederatedData) -> None:
        try:
            party.setup()
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            self.failed.append(error)
            self.barrier.abort()  # the others must not wait for one that failed


def alike(whole: FederatedData, parties: Sequence[FederatedData]) -> None:
    """What one process has of its clients, several have together."""
    clients = [client for party in parties for client in party.clients]
    for one, other in zip(
        whole.clients, sorted(clients, key=lambda client: client.spec.name), strict=True
    ):
        assert_same(one, other)
    for party in parties:
        assert (party.names, party.groups) == (whole.names, whole.groups)
        assert (party.aligned_steps, party.rows_per_epoch) == (
            whole.aligned_steps,
            whole.rows_per_epoch,
        )


STEPS: Steps = {"a": 7, "*": [1, 4]}


@pytest.mark.parametrize(
    "settings",
    [
        {"batches": 3},
        {
            "batch_size": 4,
            "align": "both",
            "scaling": "pooled",
            "categories": "indicators",
            "steps": STEPS,
        },
        {"batch_size": 5, "common": "groups", "scaling": "pooled", "columns": ["*", "!dose"]},
        {
            "batches": 2,
            "mutations": [Mutation("scale", "a", "age"), Mutation("missing", "c", "age")],
        },
    ],
    ids=str,
)
def test_clients_that_are_elsewhere_change_nothing(settings: dict[str, Any]) -> None:
    whole = FederatedData(Given(made()), **settings)
    whole.setup()
    parties = [FederatedData(Given([own]), **settings) for own in made()]
    assert Meeting(parties).failed == []
    alike(whole, parties)
    assert all(party.told_before == whole.told_before for party in parties)
    planted = [fault for party in parties for fault in party.planted]
    assert sorted(map(str, planted)) == sorted(map(str, whole.planted))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"pool": True, "align": "both"},
            "pool: true: expected all clients here, found some elsewhere",
        ),
        ({"batches": 2, "steps": {"z*": 1}}, r"data.steps: expected one of the clients a, b, c, d"),
        (
            {"mutations": [Mutation("shift", client="a", feature="age")]},
            "shift: expected the tables of all clients",
        ),
        ({"common": ["agee"]}, "expected a column among .*, found 'agee'.*Did you mean 'age'"),
        ({}, "client 'b': 2 clients have this name"),
    ],
    ids=str,
)
def test_what_needs_all_clients_is_refused_or_knows_their_names(
    settings: dict[str, Any], message: str
) -> None:
    tables = made() if settings else [made()[0], replace(made()[1], name="B")]
    failed = Meeting([FederatedData(Given([own]), **settings) for own in tables]).failed
    assert failed and all(isinstance(error, ConfigError) for error in failed)
    assert any(re.search(message, str(error)) for error in failed)


DEALT = ("east", "north", "south", "west")


def halves(folder: Path, source: dict[str, Any], **settings: Any) -> list[FederatedData]:
    """Two processes that are dealt two of four files each."""
    for place, client in enumerate(DEALT):
        frame = pd.DataFrame(
            {
                "age": [20 + (n * 7 + place) % 40 for n in range(60)],
                f"own_{client}": [*range(5)] * 12,
            }
        )
        frame.assign(y=[(n + place) % 2 for n in range(60)]).to_csv(
            folder / f"{client}.csv", index=False
        )
    made = [
        FederatedData(Tables(str(folder), "y", **source), batches=4, seed=8, **settings)
        for _ in range(2)
    ]
    for number, half in enumerate(made):
        half.deal = lambda sizes, number=number: sorted(sizes)[2 * number : 2 * number + 2]
    return made


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ({"align": "both", "scaling": "pooled"}, 1),
        ({"align": "both", "mutations": [Mutation("scale", "north", "age")]}, 2),
        ({"columns": ["age"]}, 2),
    ],
    ids=["aligned", "a fault is planted", "chosen columns"],
)
def test_each_process_reads_its_own_and_has_what_one_process_has(
    settings: dict[str, Any], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    read = tables_module.read_table  # type: ignore[attr-defined]

    def counted(*own: Any) -> Any:
        opened.append(own[2])
        return read(*own)

    monkeypatch.setattr(tables_module, "read_table", counted)
    parties = halves(tmp_path, {}, **settings)
    assert Meeting(parties).failed == [] and sorted(opened) == sorted(DEALT * times)
    whole = FederatedData(Tables(str(tmp_path), "y"), batches=4, seed=8, **settings)
    whole.setup()
    alike(whole, parties)
    assert all(half.notes == whole.notes for half in parties)


@pytest.mark.parametrize("key", ["drop", "types"])
def test_a_column_that_nobody_has_is_refused_without_all_tables(key: str, tmp_path: Path) -> None:
    wrong = halves(tmp_path, {key: {"own_nort": "drop"} if key == "types" else ["own_nort"]})
    assert f"tables: {key}: " in (message := str(Meeting(wrong).failed[0]))
    assert "'own_nort'. Did you mean 'own_north'" in message
    assert Meeting(halves(tmp_path, {"drop": ["own_north"]})).failed == []


def test_nothing_is_left_of_a_client_that_is_left_out(
    tmp_path: Path,
) -> None:
    clients = ("ash", "birch", "cedar")
    faults = [Mutation("shift", own, "x0") for own in clients]
    whole, without = (
        FederatedData(Made(clients), batches=2, mutations=faults, leave_out=gone, seed=3)
        for gone in (None, ["ash"])
    )
    whole.setup()
    without.setup()
    others = [fault for fault in whole.planted if fault.clients != ("ash",)]
    assert others == without.planted and len(others) == 2
    assert "left out (data.leave_out): ash" in without.notes
    kept = [client.fingerprint() for client in whole.clients if client.spec.name != "ash"]
    assert kept == [client.fingerprint() for client in without.clients]
    # what is said of a client is no mistake where it is left out
    overrides = {"ash": ClientOverride(gradient_clip_val=1.0)}
    run = make_run(
        tmp_path,
        loop={"overrides": overrides},
        data={"leave_out": ["ash"], "steps": {"ash": 1, "*": 2}},
    )
    assert list(run.describe().clients) == ["birch", "cedar"]
    for gone, message in (
        (["brich"], "expected one of the clients ash.* Did you"),
        (clients, "found all"),
    ):
        with pytest.raises(ConfigError, match=f"data.leave_out: .*{message}"):
            FederatedData(Made(clients), batches=2, leave_out=list(gone)).setup()
