"""What leaves a client before training is JSON, small, and no more than is needed; with it each encodes alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts import covering
from made_tables import Given, N, assert_same, encode, mixed, numbers, small_tables, table

from fedlit.data.agree import Agreement, Terms, agree, facts, negotiate
from fedlit.data.encoder import TableEncoder
from fedlit.data.files import RemoteFile
from fedlit.data.loader import Steps
from fedlit.data.module import FederatedData
from fedlit.data.shaping.mutations import Mutation
from fedlit.data.sources import Heart
from fedlit.data.table import ClientTable
from fedlit.data.target import agree_on_task
from fedlit.errors import ConfigError

ALIGN = ("none", "features", "classes", "both")
CODING = (("client", "indicators"), ("pooled", "codes"), ("none", "auto"))  # scaling, categories


def made() -> list[ClientTable]:
    """Columns that two have, with gaps, with other categories, without any value, and true/false with a gap."""
    ill = np.array([True, None, False, True] * 5, dtype=object)
    return [
        mixed("b", seed=1, bmi=np.full(N, np.nan)),
        mixed("a", seed=2, bmi=numbers(9)),
        table(
            "c", {"age": numbers(3), "town": ["Ulm", "Bonn"] * 10, "ill": ill}, [2, 1] * 10, categorical=["town", "ill"]
        ),
        table("d", {"ill": [True, False] * 10, "age": numbers(4)}, categorical=["ill"], positive=0),
    ]


def over_the_wire(tables: Sequence[ClientTable], terms: Terms) -> tuple[dict[str, Any], Agreement]:
    """All facts, each told by a client that sees its own table alone, as they come out of JSON."""
    told: dict[str, Any] = {}
    agreement = None
    for _ in range(2):
        sent = {own.name: json.dumps(facts(own, terms, agreement), allow_nan=False) for own in tables}
        told = {name: json.loads(text) for name, text in sent.items()}
        assert told == {own.name: facts(own, terms, agreement) for own in tables}
        agreement = agree(told, terms)
    assert agreement is not None
    return told, agreement


@pytest.mark.parametrize(
    ("align", "common"),
    covering(ALIGN, [None, "all", "groups", ["town"], {"people": ["age"], "place": ["town", "age"]}]),
    ids=str,
)
def test_each_encodes_alone_as_all_together(align: Any, common: Any) -> None:
    for scaling, categories in CODING:
        alone(made(), Terms(align, scaling, categories, common))  # type: ignore[arg-type]


def alone(tables: Sequence[ClientTable], terms: Terms) -> None:
    told, agreement = over_the_wire(tables, terms)
    assert agreement == negotiate(tables, terms) and agreement == agree(dict(reversed(told.items())), terms)
    whole = {client.spec.name: client for client in encode(tables, **vars(terms))}
    for own in tables:
        theirs = TableEncoder(own.name, agree(told, terms)).fit(own).encode(own)
        assert_same(theirs, whole[own.name])
        assert theirs.fingerprint() == whole[own.name].fingerprint()
    assert len(json.dumps(asdict(agreement))) < 10_000


def test_hearts_clients_encode_alone(real_file: Callable[[RemoteFile], Path]) -> None:
    clients = ["cleveland", "hungarian", "faisalabad", "sa"]
    for file in Heart.known_files():
        if Path(file.path).stem in clients:
            real_file(file)
    tables = Heart(clients=clients).tables(0)
    common = {"people": ["age", "sex"], "heart": ["chol"]}
    for terms in (Terms("both", "pooled", "indicators"), Terms("none", "pooled", "codes", common)):
        alone(tables, terms)
        told, _ = over_the_wire(tables, terms)
        assert max(len(json.dumps(own)) for own in told.values()) < 2_500


# ------------------------------------------------------------------ what is told, and what is not


def floats(told: Any) -> list[float]:
    """All numbers in JSON."""
    if isinstance(told, dict | list):
        return [number for own in (told.values() if isinstance(told, dict) else told) for number in floats(own)]
    return [told] if isinstance(told, int | float) and not isinstance(told, bool) else []


def test_nothing_is_told_where_nothing_is_common() -> None:
    for scaling in ("client", "none"):
        told, _ = over_the_wire(made(), Terms(scaling=scaling))
        assert told == {"a": {}, "b": {}, "c": {}, "d": {}}


def test_names_and_kinds_alone_are_told_of_columns_that_nobody_else_has() -> None:
    told, _ = over_the_wire(small_tables(), Terms("features"))
    assert told["a"] == {
        "columns": {"c": "categorical", "z": "numeric"},
        "categories": {"c": ["p", "s"]},
    }
    assert floats(told) == []  # no number of anybody
    lone = [table("a", {"town": ["Bonn", "Ulm"] * 10}, categorical=["town"]), table("b", {"x": numbers()})]
    assert over_the_wire(lone, Terms("features"))[0]["a"] == {"columns": {"town": "categorical"}}
    # an input's name says the category, and all clients have all inputs
    told, _ = over_the_wire(lone, Terms("features", "client", "indicators"))
    assert told["a"]["categories"] == {"town": ["Bonn", "Ulm"]}


def test_labels_are_told_where_classes_are_common_and_never_how_many() -> None:
    told, _ = over_the_wire(small_tables(), Terms("classes"))
    expected = {"task": "classification", "target": "y", "labels": [1, 3], "positive": None, "shared": False}
    assert told["a"] == {"target": expected}
    targets = agree(told, Terms("classes")).targets
    assert {agree_on_task(name, targets, classes=True).classes for name in targets} == {(1, 2, 3)}


def test_moments_are_told_where_scaling_is_pooled() -> None:
    told, agreement = over_the_wire(small_tables(), Terms(scaling="pooled"))
    assert set(told["b"]) == {"columns", "moments"} and len(floats(told["b"])) == 3
    moments = agreement.columns["x"].moments
    assert moments is not None and moments.count == 24
    listed, _ = over_the_wire(small_tables(), Terms(scaling="pooled", common=["x"]))
    assert listed["a"] == {} and listed["b"]["columns"] == {"x": "numeric"} and len(listed["d"]["moments"]["x"]) == 3


def test_only_training_rows_are_told_of() -> None:
    source, changed = mixed("a"), mixed("a")
    rest = np.concatenate([changed.splits["validation"], changed.splits["test"]])
    for place, value in enumerate([1e9, np.nan, "Zürich", 99]):
        changed.features.iloc[rest, place] = value
    changed.target.iloc[rest] = 7
    terms = Terms("both", "pooled", "indicators")
    assert over_the_wire([source, mixed("b", 3)], terms) == over_the_wire([changed, mixed("b", 3)], terms)


# ------------------------------------------------------------------ true and false are not 1 and 0


def test_true_and_one_are_not_the_same_category() -> None:
    tables = [
        table("a", {"ill": [True, False] * 10, "x": numbers()}, categorical=["ill"]),
        table("b", {"ill": [1, 0] * 10, "x": numbers()}, categorical=["ill"]),
    ]
    for terms in ({"align": "both"}, {"common": ["ill"]}, {"scaling": "pooled"}):
        with pytest.raises(ConfigError, match=r"column 'ill': .* boolean at 'a' and coded at 'b'.*0 and 1"):
            encode(tables, **terms)
    assert [line.split()[0] for line in negotiate(tables, Terms(common="all")).apart] == ["ill"]
    gap = table("b", {"ill": np.array([None, True, False, True] * 5, dtype=object)}, categorical=["ill"])
    assert encode([tables[0], gap], align="features")[1].train.x.unique().tolist() in ([-1, 0, 1], [0, 1])


# ------------------------------------------------------------------ some clients are elsewhere


class Meeting:
    """Parties that hold some clients each and exchange text."""

    def __init__(self, parties: int) -> None:
        self.barrier, self.told = threading.Barrier(parties, timeout=60), dict[tuple[str, str], str]()

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        for client, told in own.items():
            self.told[topic, client] = json.dumps(told)
        self.barrier.wait()
        return {client: json.loads(text) for (about, client), text in sorted(self.told.items()) if about == topic}


def apart(tables: Sequence[ClientTable], **settings: Any) -> tuple[list[FederatedData], list[BaseException]]:
    meeting, parties, failed = Meeting(len(tables)), [], list[BaseException]()
    for own in tables:
        party = FederatedData(Given([own]), **settings)
        party.share = meeting.share
        parties.append(party)

    def work(party: FederatedData) -> None:
        try:
            party.setup()
        except BaseException as error:
            failed.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=work, args=[party]) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return parties, [error for error in failed if not isinstance(error, threading.BrokenBarrierError)]


STEPS: Steps = {"a": 7, "*": [1, 4]}


@pytest.mark.parametrize(
    "settings",
    [
        {"batches": 3},
        {"batch_size": 4, "align": "both", "scaling": "pooled", "categories": "indicators", "steps": STEPS},
        {"batch_size": 5, "common": "groups", "scaling": "pooled", "columns": ["*", "!dose"]},
        {"batches": 2, "mutations": [Mutation("scale"), Mutation("scale")]},
    ],
    ids=str,
)
def test_clients_that_are_elsewhere_change_nothing(settings: dict[str, Any]) -> None:
    whole = FederatedData(Given(made()), **settings)
    whole.setup()
    parties, failed = apart(made(), **settings)
    assert not failed
    planted = []
    for party in parties:
        (client,) = party.clients
        assert_same(client, next(own for own in whole.clients if own.spec.name == client.spec.name))
        assert party.names == whole.names == ["a", "b", "c", "d"]
        assert (party.aligned_steps, party.rows_per_epoch) == (whole.aligned_steps, whole.rows_per_epoch)
        assert (party.told_before, party.groups) == (whole.told_before, whole.groups)
        planted += party.planted
    assert sorted(map(str, planted)) == sorted(map(str, whole.planted))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pool": True, "align": "both"}, "pool: true .* needs all clients here, found .* elsewhere"),
        ({"batches": 2, "steps": {"z*": 1}}, r"data.steps: expected one of the clients a, b, c, d"),
        ({"mutations": [Mutation("shift", client="a", feature="age")]}, "shift: expected the tables of all clients"),
        ({"common": ["agee"]}, "expected the name of a column, found 'agee'.*Did you mean 'age'"),
    ],
    ids=str,
)
def test_what_needs_all_clients_is_refused_or_knows_their_names(settings: dict[str, Any], message: str) -> None:
    _, failed = apart(made(), **settings)
    assert failed and all(isinstance(error, ConfigError) for error in failed)
    assert any(re.search(message, str(error)) for error in failed)


def test_two_clients_of_one_name_are_refused_wherever_they_are() -> None:
    first, second = small_tables()[:2]
    _, failed = apart([first, replace(second, name="B")])
    assert failed and "client 'b': 2 clients have this name" in str(failed[0])
