"""Planted faults: each against what it says, by NumPy; drawn by the seed; nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.shaping.mutations import Mutation, mutate
from fedlit.data.splitting import random_split
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import ConfigError


def tables(clients: int = 3, rows: int = 200) -> list[ClientTable]:
    made = []
    for number in range(clients):
        rng = np.random.default_rng(number)
        frame = pd.DataFrame(
            {"a": rng.normal(5, 2, rows), "b": rng.normal(-1, 1, rows), "town": rng.integers(0, 3, rows)}
        )
        target = pd.Series(np.where(rng.random(rows) < 0.4, "yes", "no"), name="y")
        made.append(ClientTable(f"c{number}", frame, target, random_split(rows, 0, 0.3, 0.2), ("town",), "yes"))
    return made


def changed(mutation: Mutation) -> tuple[ClientTable, ClientTable, list[ClientTable]]:
    before = tables()
    copies = [table.features.copy() for table in before]
    after, planted = mutate(before, [mutation], seed=1)
    assert [own.clients for own in planted] == [("c1",)] and str(planted[0]).startswith("c1: a fault was planted: ")
    for old, new, copy in zip(before, after, copies, strict=True):
        pd.testing.assert_frame_equal(old.features, copy)  # what was handed in is left alone
        if new.name != "c1":
            assert new.features is old.features and new.target is old.target
        assert all((new.splits[split] == old.splits[split]).all() for split in SPLITS)
        pd.testing.assert_series_equal(new.features["town"], old.features["town"])
    return before[1], after[1], before


def test_scale_and_shift() -> None:
    old, new, _ = changed(Mutation("scale", "c1", "a", by=3.28))
    np.testing.assert_allclose(new.features["a"], 3.28 * old.features["a"])
    old, new, everywhere = changed(Mutation("shift", "c1", "b", by=-1.5))
    train = np.concatenate([table.features["b"].to_numpy()[table.splits["train"]] for table in everywhere])
    np.testing.assert_allclose(new.features["b"], old.features["b"] - 1.5 * train.std())
    np.testing.assert_array_equal(new.features["a"], old.features["a"])


def test_clip_swap_flip() -> None:
    old, new, _ = changed(Mutation("clip", "c1", "a", by=0.1))
    low, high = np.quantile(old.features["a"].to_numpy()[old.splits["train"]], [0.1, 0.9])
    np.testing.assert_allclose(new.features["a"], np.clip(old.features["a"], low, high))
    old, new, _ = changed(Mutation("swap", "c1", "a", "b"))
    np.testing.assert_array_equal(new.features["a"], old.features["b"])
    np.testing.assert_array_equal(new.features["b"], old.features["a"])
    old, new, _ = changed(Mutation("flip", "c1"))
    assert ((new.target == "yes") == (old.target == "no")).all()
    pd.testing.assert_frame_equal(new.features, old.features)


def test_missing_is_tied_to_the_label() -> None:
    old, new, _ = changed(Mutation("missing", "c1", "a", by=0.75))
    lost = new.features["a"].isna()
    assert not lost[old.target == "no"].any()
    assert lost[old.target == "yes"].mean() == pytest.approx(0.75, abs=0.12)
    np.testing.assert_array_equal(new.features["a"][~lost], old.features["a"][~lost])


def test_what_is_left_open_is_drawn_by_the_seed_and_faults_meet_different_clients() -> None:
    mutations = [Mutation("scale"), Mutation("flip"), Mutation("swap", client="c2")]
    first = mutate(tables(), mutations, seed=5)[1]
    assert first == mutate(list(reversed(tables())), mutations, seed=5)[1]
    assert {own.clients for own in first} == {("c0",), ("c1",), ("c2",)}
    drawn = {str(own) for seed in range(25) for own in mutate(tables(), [Mutation("scale")], seed)[1]}
    assert len(drawn) == 6  # three clients, two columns of numbers


@pytest.mark.parametrize(
    ("mutations", "message"),
    [
        ([{"kind": "scale", "client": "c7"}], "one of the clients c0, c1, c2, found 'c7'"),
        ([{"kind": "scale", "feature": "town"}], r"a column of numbers of c\d, found 'town'; these are a, b"),
        ([{"kind": "swap", "client": "c1", "feature": "a", "other": "a"}], "a column of numbers of c1, found 'a'"),
        ([{"kind": "scale"}] * 4, "as many faults as there are clients"),
        ([{"kind": "missing", "by": 1.5}], "missing: expected by above 0 and at most 1"),
        ([{"kind": "scale", "by": 1.0}], "changes something"),
        ([{"kind": "flip", "feature": "a"}], "flip: expected no feature"),
        ([{"kind": "flip", "client": "c3"}], "flip: expected two labels at c3, found 3"),
    ],
)
def test_what_cannot_be_planted(mutations: list[dict[str, Any]], message: str) -> None:
    own = tables()
    if mutations[0].get("client") == "c3":
        own.append(replace(own[0], name="c3", target=pd.Series(np.arange(200) % 3, name="y")))
    with pytest.raises(ConfigError, match=message):
        mutate(own, [Mutation(**mutation) for mutation in mutations], seed=0)
