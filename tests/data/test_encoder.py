"""What was learnt from training rows can be kept, sent, and used for rows of another day."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made_tables import Given, N, assert_same, mixed, numbers, table

from fedlit.data.agree import Terms, negotiate
from fedlit.data.encoder import TableEncoder
from fedlit.data.module import FederatedData
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

ILL = [True, False] * (N // 2)


def fitted(own: ClientTable | None = None, **terms: Any) -> tuple[TableEncoder, ClientTable]:
    own = own or table("a", {**mixed("a").features, "ill": ILL}, categorical=("town", "ward", "ill"))
    agreement = negotiate([own, mixed("b", seed=3)], Terms(**terms))
    return TableEncoder("a", agreement).fit(own), own


@pytest.mark.parametrize("align", ["none", "both"])
@pytest.mark.parametrize("scaling", ["client", "pooled", "none"])
@pytest.mark.parametrize("categories", ["codes", "indicators"])
@pytest.mark.parametrize("common", [None, "groups"])
def test_an_encoder_is_its_state(align: Any, scaling: Any, categories: Any, common: Any) -> None:
    encoder, own = fitted(align=align, scaling=scaling, categories=categories, common=common)
    state, file = encoder.state_dict(), io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    for copy in (json.loads(json.dumps(state)), torch.load(file, weights_only=True)):
        assert copy == state
        again = TableEncoder("a")
        again.load_state_dict(copy)
        assert again.state_dict() == state
        assert_same(again.encode(own), encoder.encode(own))


def test_rows_of_another_day() -> None:
    encoder, own = fitted()
    x = encoder.transform(own.features)
    some = own.features.iloc[[3, 5]]
    np.testing.assert_array_equal(encoder.transform(some[reversed(some.columns)].assign(new=1)), x[[3, 5]])
    np.testing.assert_array_equal(encoder.transform(some.iloc[:0]), x[:0])
    gaps = encoder.transform(pd.DataFrame({column: [None] for column in own.features}))
    assert gaps.tolist() == [[0, 0, -1, -1, -1]]
    unknown = some.assign(town="Ulm", ward=99)
    assert encoder.transform(unknown)[:, 2:4].tolist() == [[-1, -1], [-1, -1]]


def test_a_missing_number_is_the_training_mean_where_numbers_stay_what_they_are() -> None:
    encoder, own = fitted(scaling="none")
    expected = own.features["age"].iloc[own.splits["train"]].mean()
    gap = encoder.transform(own.features.head(1).assign(age=np.nan))
    assert gap[0, 0] == np.float32(expected)


def test_whole_numbers_that_a_gap_made_floats_are_the_categories_that_they_were() -> None:
    codes = ["1", "2", "x", "10"] * 5
    encoder, _ = fitted(table("a", {"zip": codes}, categorical=["zip"]))
    assert encoder.transform(pd.DataFrame({"zip": [10.0, np.nan, 1.0]}))[:, 0].tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": "old"}, "client 'a', column 'age': expected numbers, found text such as 'old'; write the values"),
        ({"age": True}, "client 'a', column 'age': expected numbers, found true/false such as"),
        ({"ward": "first"}, "client 'a', column 'ward': expected numbers, found text such as 'first'"),
        ({"ill": 1}, "client 'a', column 'ill': expected true/false, found numbers such as"),
        ({"age": np.inf}, "client 'a': column 'age' is not finite after standardisation"),
    ],
    ids=str,
)
def test_values_of_another_type_are_refused(change: dict[str, Any], message: str) -> None:
    encoder, own = fitted()
    with pytest.raises(DataError, match=re.escape(message)):
        encoder.transform(own.features.assign(**change))


def test_a_missing_column_is_named() -> None:
    encoder, own = fitted()
    message = (
        "client 'a': expected the column 'town', found none of this name; add it (empty cells are allowed). Did you"
    )
    with pytest.raises(DataError, match=re.escape(message)):
        encoder.transform(own.features.rename(columns={"town": "Town"}))


def test_labels_of_another_day() -> None:
    encoder, _ = fitted(table("a", {"x": numbers()}, ["no", "yes"] * 10, positive="no"))
    assert encoder.target(pd.Series(["no", "perhaps", None, "yes"])).tolist() == [1, -1, -1, 0]
    with pytest.raises(DataError, match=r"client 'a', target 'y': expected text as labels, found 0; .*'yes', 'no'"):
        encoder.target(pd.Series([0, 1]))


@pytest.mark.parametrize(
    "settings", [{}, {"align": "both", "scaling": "pooled"}, {"align": "both", "pool": True}], ids=str
)
def test_a_run_encodes_by_what_a_trained_run_learnt(settings: dict[str, Any]) -> None:
    tables = [mixed("a"), mixed("b", seed=3)]
    trained = FederatedData(Given(tables), batches=2, **settings)
    trained.setup()
    changed = [mixed("a"), mixed("b", seed=3)]
    for own in changed:
        own.features.iloc[own.splits["train"], 0] *= 3  # another file, in which the test rows are what they were
    states = json.loads(json.dumps(trained.encoder_states()))
    scored = FederatedData(Given(changed), batches=2, **settings)
    scored.use_encoders(states)
    scored.setup()
    for before, after in zip(trained.sites("test"), scored.sites("test"), strict=True):
        assert torch.equal(before[2].x, after[2].x)
    assert scored.specs[0].features == trained.specs[0].features and scored.encoder_states() == states
    stranger = FederatedData(Given([mixed("z"), mixed("a")]), batches=2, **settings)
    stranger.use_encoders(states)
    with pytest.raises(ConfigError, match=r"client .z.: expected one of the clients that were trained.* a, b"):
        stranger.setup()
