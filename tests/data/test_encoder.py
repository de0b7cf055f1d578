"""What was learnt from training rows can be kept, sent, and used for rows of another day, or by a
client that joins."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made_tables import Given, N, assert_same, mixed, numbers, table

from fedlit.data.agree import Agreement, negotiate
from fedlit.data.encoder import TableEncoder, encode_tables
from fedlit.data.module import FederatedData
from fedlit.data.newcomer import newcomer
from fedlit.data.table import ClientTable, Split, describe_numbers
from fedlit.data.terms import Terms
from fedlit.errors import ConfigError, DataError
from fedlit.spec import ClientSpec

ILL = [True, False] * (N // 2)


def fitted(own: ClientTable | None = None, **terms: Any) -> tuple[TableEncoder, ClientTable]:
    own = own or table(
        "a", {**mixed("a").features, "ill": ILL}, categorical=("town", "ward", "ill")
    )
    agreement, *_ = negotiate([own, mixed("b", seed=3)], Terms(**terms))
    return TableEncoder("a", agreement).fit(own), own


@pytest.mark.parametrize("align", ["none", "both"])
@pytest.mark.parametrize("scaling", ["client", "pooled", "none"])
@pytest.mark.parametrize("categories", ["codes", "indicators"])
@pytest.mark.parametrize(("common", "bins"), [(None, "own"), ("groups", "agreed")])
def test_an_encoder_is_its_state(
    align: Any, scaling: Any, categories: Any, common: Any, bins: Any
) -> None:
    encoder, own = fitted(
        align=align, scaling=scaling, categories=categories, common=common, bins=bins
    )
    spec = encoder.encode(own).spec
    assert any(each.edges for each in spec.inputs)
    assert ClientSpec.from_state(json.loads(json.dumps(spec.state_dict()))) == spec
    state = encoder.state_dict()
    file = io.BytesIO()
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
    np.testing.assert_array_equal(
        encoder.transform(some[reversed(some.columns)].assign(new=1)), x[[3, 5]]
    )
    np.testing.assert_array_equal(encoder.transform(some.iloc[:0]), x[:0])
    gaps = encoder.transform(pd.DataFrame({column: [None] for column in own.features}))
    assert gaps.tolist() == [[0, 0, -1, -1, -1]]
    unknown = some.assign(town="Ulm", ward=99)
    assert encoder.transform(unknown)[:, 2:4].tolist() == [[-1, -1], [-1, -1]]


def test_whole_numbers_beside_gaps_stay_their_categories() -> None:
    codes = ["1", "2", "x", "10"] * 5
    encoder, _ = fitted(table("a", {"zip": codes}, categorical=["zip"]))
    assert encoder.transform(pd.DataFrame({"zip": [10.0, np.nan, 1.0]}))[:, 0].tolist() == [
        1,
        -1,
        0,
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"age": "old"},
            "column 'age': expected numbers, found text such as 'old'; write the values",
        ),
        ({"age": True}, "column 'age': expected numbers, found true/false such as"),
        ({"ward": "first"}, "column 'ward': expected numbers, found text such as 'first'"),
        ({"ill": 1}, "column 'ill': expected true/false, found numbers such as"),
        ({"age": np.inf}, "finite float32 .* others in age;"),
        ({"town": None}, "expected the column 'town', found none of this name; add it.*Did you"),
    ],
    ids=str,
)
def test_rows_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    encoder, own = fitted()
    rows = (
        own.features.rename(columns={"town": "Town"})
        if "town" in change
        else own.features.assign(**change)
    )
    with pytest.raises(DataError, match=f"client 'a'.*{message}"):
        encoder.transform(rows)


def test_labels_of_another_day() -> None:
    encoder, _ = fitted(table("a", {"x": numbers()}, ["no", "yes"] * 10, positive="no"))
    assert encoder.target(pd.Series(["no", "perhaps", None, "yes"])).tolist() == [1, -1, -1, 0]
    with pytest.raises(
        DataError, match=r"client 'a', target 'y': expected text as labels, found 0; .*'yes', 'no'"
    ):
        encoder.target(pd.Series([0, 1]))


@pytest.mark.parametrize(
    "settings",
    [{}, {"align": "both", "scaling": "pooled"}, {"align": "both", "pool": True}],
    ids=str,
)
def test_a_run_encodes_by_what_a_trained_run_learnt(settings: dict[str, Any]) -> None:
    tables = [mixed("a"), mixed("b", seed=3)]
    trained = FederatedData(Given(tables), batches=2, **settings)
    trained.setup()
    changed = [mixed("a"), mixed("b", seed=3)]
    for own in changed:
        # another file, in which the test rows are what they were
        own.features.iloc[own.splits["train"], 0] *= 3
    states = json.loads(json.dumps(trained.encoder_states()))
    scored = FederatedData(Given(changed), batches=2, **settings)
    scored.use_encoders(states)
    scored.setup()
    for before, after in zip(trained.sites("test"), scored.sites("test"), strict=True):
        assert torch.equal(before[2].x, after[2].x)
    assert (
        scored.specs[0].features == trained.specs[0].features and scored.encoder_states() == states
    )
    stranger = FederatedData(Given([mixed("z"), mixed("a")]), batches=2, **settings)
    stranger.use_encoders(states)
    with pytest.raises(
        ConfigError, match="the trained run: expected one of the clients a, b, found 'z'"
    ):
        stranger.setup()


# ------------------------------------------------------------------ a client that comes later


def join(
    later: ClientTable, terms: Terms, run: list[ClientTable]
) -> tuple[TableEncoder, ClientTable]:
    """A client that joins a run of others, by what the run has saved."""
    agreement, *_ = negotiate(run, terms)
    encoders = {own.name: TableEncoder(own.name, agreement).fit(own).state_dict() for own in run}
    return newcomer(later, terms, Agreement.of(agreement.state_dict()), encoders)


@pytest.mark.parametrize("categories", ["codes", "indicators", "auto"])
@pytest.mark.parametrize("scaling", ["client", "pooled"])
def test_the_same_rows_under_another_name_are_encoded_alike(categories: Any, scaling: Any) -> None:
    """The oracle is a client of the run itself: a newcomer with its rows must get its tensors, bit
    by bit."""
    terms = Terms(align="both", scaling=scaling, categories=categories)
    run = [mixed("bern", 1), mixed("chur", 2)]
    agreement, *_ = negotiate(run, terms)
    expected = TableEncoder("bern", agreement).fit(run[0])
    encoder, own = join(replace(run[0], name="thun"), terms, run)
    assert encoder.features == expected.features and own.notes == run[0].notes
    np.testing.assert_array_equal(
        encoder.transform(own.features), expected.transform(run[0].features)
    )
    assert encoder.task.classes == expected.task.classes and encoder.seen == expected.seen


def test_unknown_columns_are_left_out_and_categories_counted() -> None:
    terms = Terms(align="both", categories="indicators")
    towns = ["Bonn", "Ulm"] * 10
    run = [table("bern", {"age": numbers(), "town": towns}, categorical=["town"])]
    later = table("thun", {"town": ["Köln", "Ulm"] * 10, "bmi": numbers()}, categorical=["town"])
    encoder, own = join(later, terms, run)
    assert encoder.features == ("age", "town") and list(own.features) == ["town"]
    made = encoder.transform(own.features)
    assert (
        (made[:, 0] == 0).all()
        and made[::2, 1].tolist() == [0.5] * 10
        and made[1::2, 1].tolist() == [1.0] * 10
    )
    count = int((own.features["town"].iloc[own.splits["train"]] == "Köln").sum())
    assert any("not common to clients of the run (bern): bmi" in note for note in own.notes)
    assert any("has no column for inputs of the run: age" in note for note in own.notes)
    assert any(
        f"town: {count} training rows have a category" in note and "Köln" in note
        for note in own.notes
    )


RUN = table("bern", {"age": numbers(), "sex": ["m", "f"] * 10}, categorical=["sex"])


@pytest.mark.parametrize(
    ("columns", "target", "error", "message"),
    [
        ({"age": numbers()}, [0, 7] * 10, DataError, r"found 7; rename them"),
        ({"age": ["a", "b"] * 10}, None, DataError, "'age': expected numeric.*found categorical"),
        # no codes of the run's categories
        ({"sex": [1, 2] * 10}, None, DataError, "'sex': expected categorical"),
        (
            {"bmi": numbers()},
            None,
            ConfigError,
            "expected a column that clients of the run have.*age",
        ),
    ],
)
def test_what_does_not_fit_the_run_is_refused(
    columns: dict[str, Any], target: Any, error: type[Exception], message: str
) -> None:
    later = table(
        "thun",
        columns,
        target,
        categorical=[name for name in columns if name == "sex" or target is None],
    )
    for categories in ("codes", "indicators", "auto"):
        with pytest.raises(error, match=message):
            join(
                later, Terms(align="both", categories=categories), [RUN, replace(RUN, name="chur")]
            )


def test_without_alignment_it_is_on_its_own() -> None:
    own = mixed("thun", 3)
    terms = Terms()
    encoder, same = join(own, terms, [mixed("bern", 1)])
    alone = TableEncoder("thun", negotiate([own], terms)[0]).fit(own)
    assert same.notes == own.notes
    np.testing.assert_array_equal(encoder.transform(own.features), alone.transform(own.features))


def test_it_is_in_the_groups_of_whose_columns_it_has_all() -> None:
    terms = Terms(common="groups", scaling="pooled")
    run = [
        table("bern", {"age": numbers(1), "bmi": numbers(2)}),
        table("chur", {"age": numbers(3), "bmi": numbers(4)}),
        table("genf", {"age": numbers(5), "dose": numbers(6)}),
    ]
    agreement, *_ = negotiate(run, terms)
    encoder, _ = join(table("thun", {"age": numbers(7), "dose": numbers(8)}), terms, run)
    assert encoder.common == {
        group.name: ["age"] for group in agreement.groups or () if group.columns == ("age",)
    }
    assert (
        encoder.columns["age"].moments
        == TableEncoder("bern", agreement).fit(run[0]).columns["age"].moments
    )
    assert (
        encoder.columns["dose"].moments
        != TableEncoder("genf", agreement).fit(run[2]).columns["dose"].moments
    )


def test_a_column_without_agreed_codes_is_left_out() -> None:
    run = [
        table("bern", {"age": numbers(1), "town": ["Bonn", "Ulm"] * 10}, categorical=["town"]),
        table("chur", {"age": numbers(2)}),
    ]
    later = table("thun", {"age": numbers(3), "town": ["Ulm", "Aalen"] * 10}, categorical=["town"])
    encoder, own = join(later, Terms(align="both"), run)
    assert list(own.features) == ["age"] and encoder.features == ("age", "town")
    assert any("not common to clients of the run (bern, chur): town" in note for note in own.notes)


def test_of_one_class_alone_it_has_the_runs_classes() -> None:
    encoder, _ = join(table("thun", {"age": numbers(3)}, [1] * 20), Terms(align="both"), [RUN])
    assert (encoder.task.classes, encoder.seen) == ((0, 1), (1,))


def alone(values: pd.Series, rows: np.ndarray) -> tuple[Any, np.ndarray, tuple[float, ...]]:
    """Encode one column in plain pandas and NumPy: its moments, its inputs, the edges of its bins."""
    cells = values.astype(np.float64).to_numpy()
    known = cells[rows][~np.isnan(cells[rows])]
    if not len(known):
        return None, np.zeros(len(cells), np.float32), (0.0,)
    mean = known.sum() / len(known)
    distances = known - mean
    variance = ((distances**2).sum() - distances.sum() ** 2 / len(known)) / len(known)
    epsilon = np.finfo(np.float64).eps
    is_constant = variance <= len(known) * epsilon * variance + (len(known) * mean * epsilon) ** 2
    scale = 1.0 if is_constant else np.sqrt(variance)
    x = np.where(np.isnan(cells), 0.0, (cells - mean) / scale).astype(np.float32)
    quantiles = np.quantile(x[rows], np.linspace(0, 1, 33)).astype(np.float32)
    return [len(known), mean, variance], x, tuple(np.unique(quantiles).tolist())


@pytest.mark.parametrize("cells", [2**22, 2_000])
@pytest.mark.parametrize("bins", ["own", "none"])
@pytest.mark.parametrize("scaling", ["client", "none"])
def test_clients_are_encoded_together_as_alone(
    scaling: Any, bins: Any, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of any size, some with another column, with gaps, or with numbers of another type."""
    monkeypatch.setattr("fedlit.data.grouped.MOST_CELLS", cells)
    generator = np.random.default_rng(4)
    tables = list[ClientTable]()
    for client in range(12):
        rows = int(generator.integers(6, 60))
        frame = pd.DataFrame(generator.normal(3, 1e3, (rows, 5)), columns=[*"abcde"])
        frame.loc[generator.random(rows) < client / 12, "b"] = np.nan
        frame["town"] = generator.choice(["Bonn", "Ulm"], rows)
        if client % 3 == 0:
            frame["whole"] = generator.integers(0, 9, rows)
        if client % 4 == 0:
            frame["c"] = frame["c"].astype(np.float32)
        target = pd.Series(generator.choice(["x", "y", "z"][: 2 + client % 2], rows), name="y")
        order = generator.permutation(rows)
        splits: dict[Split, np.ndarray] = {
            "train": order[2:],
            "validation": order[:1],
            "test": order[1:2],
        }
        tables.append(ClientTable(f"c{client:02}", frame, target, splits, ("town",)))
    agreement = Agreement(Terms(scaling=scaling, bins=bins, missing="indicator"))
    encoders = [TableEncoder(own.name, agreement).fit(own) for own in map(replace, tables)]
    describe_numbers(tables)
    together = [TableEncoder(own.name, agreement).fit(own) for own in tables]
    clients = encode_tables(together, tables)
    for encoder, other, own, encoded in zip(encoders, together, tables, clients, strict=True):
        assert_same(encoded, encoder.encode(own))
        assert other.state_dict() == encoder.state_dict()


@pytest.mark.parametrize("cells", [2**22, 1])
def test_columns_are_encoded_together_as_alone(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of any size, gaps in any number of rows, whole numbers and columns of one value."""
    monkeypatch.setattr("fedlit.data.columns.MOST_CELLS", cells)
    generator = np.random.default_rng(4)
    for rows in (9, 51, 333):
        frame = pd.DataFrame(generator.normal(3, 1e3, (rows, 12)), index=np.arange(rows) * 2)
        frame.columns = [f"x{position}" for position in range(12)]
        for position in range(6):
            frame.iloc[: position * rows // 9, position] = np.nan
        frame["empty"] = np.nan
        frame["whole"] = generator.integers(-5, 5, rows)
        frame["single"] = frame["x0"].astype(np.float32)
        frame["flat"] = 0.1
        target = pd.Series(["a", "b", "c"] * (rows // 3), frame.index, name="y")
        order = generator.permutation(rows)
        splits: dict[Split, np.ndarray] = {
            "train": order[2:],
            "validation": order[:1],
            "test": order[1:2],
        }
        client = ClientTable("north", frame, target, splits)
        encoder = TableEncoder("north").fit(client)
        encoded = encoder.encode(client)
        x = encoder.transform(frame)
        assert x[order[2:]].tobytes() == encoded.train.x.numpy().tobytes()
        for position, name in enumerate(frame):
            moments, column, edges = alone(frame[name], order[2:])
            assert encoder.state_dict()["columns"][name].get("moments") == moments
            assert x[:, position].tobytes() == column.tobytes()
            assert encoded.spec.inputs[position].edges == edges
        notes = "; ".join(map(str, encoded.notes))
        assert "without effect: empty" in notes and "all training rows: flat" in notes
