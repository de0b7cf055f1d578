"""Trees from sums: those of several parties are those of all rows in one place; what is told and
what is not."""

from collections.abc import Callable
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlit.errors import DataError, RunError
from fedlit.trees.draws import Growth
from fedlit.trees.grow import asking, finished, grow, sided
from fedlit.trees.nodes import THRESHOLD, Grown, find_leaves, keys_of, root_keys, uniform
from fedlit.trees.party import SCALE, Party

LACKS = ((1,), (), (0, 2))
Tables = list[tuple[NDArray[np.float32], NDArray]]


def grown_by(
    tables: Tables, classes: int, trees: int, seed: int = 8, lacks: Any = (), **options: Any
) -> Grown:
    minimum = options.pop("minimum", 1)
    lacking = lacks or [()] * len(tables)
    columns = tables[0][0].shape[1]
    keys = root_keys(seed, trees)
    way = Growth(classes, columns, minimum=minimum, **{"tried": columns, **options})
    parties = [Party(x, y, way, own) for (x, y), own in zip(tables, lacking, strict=True)]
    return grow(asking(parties), [party.start(keys) for party in parties], keys, way)


def same(first: Grown, second: Grown) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("feature", "threshold", "child", "totals")
    )


def pooled(tables: Tables) -> Tables:
    return [(np.concatenate([x for x, _ in tables]), np.concatenate([y for _, y in tables]))]


@pytest.fixture(scope="module")
def made() -> Tables:
    rng = np.random.default_rng(0)
    tables = []
    for rows in (60, 9, 200):
        x = rng.normal(size=(rows, 4)).astype(np.float32).round(1)
        tables.append(
            (
                x,
                np.clip(
                    (x[:, 0] + x[:, 1] + rng.normal(size=rows) > 0) + (x[:, 2] > 1), 0, 2
                ).astype(int),
            )
        )
    return tables


@pytest.mark.parametrize("classes", [3, 5, 0], ids=["classes", "two that nobody has", "numbers"])
@pytest.mark.parametrize("minimum", [1, 5])
def test_the_sum_of_answers_is_enough_where_all_have_one_form(
    made: Tables, classes: int, minimum: int
) -> None:
    tables = [(x, y if classes else (y + x[:, 1]).astype(np.float32)) for x, y in made]
    keys = root_keys(8, 5)
    way = Growth(classes, 4, 4, minimum=minimum, summed=True)
    parties = [Party(x, y, way, lacks) for (x, y), lacks in zip(tables, LACKS, strict=True)]
    forms: dict[str, set[Any]] = {}

    def ask(topic: str, told: Any, shapes: Any) -> list[Any]:
        answers = [getattr(party, topic)(told[0]) for party in parties]
        forms.setdefault(topic, set()).update(
            (own["left"].dtype, own["left"].shape[:3]) for own in answers
        )
        assert {own["left"].shape for own in answers} == {shapes[0]["left"]}
        return [{"left": np.sum([own["left"] for own in answers], 0)}]

    starts = [party.start(keys) for party in parties]
    start = {
        "totals": np.sum([own["totals"] for own in starts], 0),
        "low": np.min([own["low"] for own in starts], 0),
        "high": np.max([own["high"] for own in starts], 0),
    }
    grown = grow(ask, [start], keys, way)
    # the same at all parties and levels
    assert len(grown.feature) > 20 and len(forms["counts"]) == 1
    assert same(grown, grown_by(tables, classes, 5, lacks=LACKS, minimum=minimum))


EVERY = [{}, {"exact": True}, {"tried": 2, "thresholds": 1}, {"thresholds": 4}, {"classes": 0}]


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_trees_of_several_parties_are_those_of_all_rows(
    made: Tables, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(1)
    options = {"classes": 3, **options, "trees": 5}
    tables = (
        made
        if options["classes"]
        else [(x, (x[:, 0] + rng.normal(size=len(x))).astype(np.float32)) for x, _ in made]
    )
    together = grown_by(tables, **options)
    assert same(together, grown_by(pooled(tables), **options))
    assert same(together, grown_by(tables[::-1], **options))
    assert not same(together, grown_by(tables, seed=9, **options))
    [(x, y)] = pooled(tables)
    leaves = find_leaves(x, together.feature, together.threshold, together.child, np.arange(5))
    if options["classes"]:
        for tree in range(5):  # every leaf holds the sums of the rows that end there
            counted = np.zeros_like(together.totals)
            np.add.at(counted, (leaves[:, tree], y), 1)
            assert np.array_equal(
                counted[np.unique(leaves[:, tree])], together.totals[np.unique(leaves[:, tree])]
            )
        return
    _, values = finished(together, root_keys(8, 5), Growth(0, 4, 4), x, y, (), alone=False)
    for leaf in np.unique(leaves[:, 1])[::9]:
        assert values[leaf, 0] == pytest.approx(y[leaves[:, 1] == leaf].mean(), abs=1 / SCALE)
    assert len(np.unique(leaves[:, 0])) > 100


def test_leaves_hold_the_m_estimate_of_their_classes(made: Tables) -> None:
    tree = grown_by(made, 3, 4)
    way = Growth(3, 4, 4)
    [(x, y)] = pooled(made)
    prior = np.bincount(y, minlength=3) + 0.25  # of four trees, and one row of each class
    for alone in (False, True):
        mine, values = finished(tree, root_keys(8, 4), way, x, y, (), alone=alone, smoothing=2.0)
        leaves = find_leaves(x, mine.feature, mine.threshold, mine.child, np.arange(4))
        for leaf in np.unique(leaves[:, 1])[::9]:
            inside = np.bincount(y[leaves[:, 1] == leaf], minlength=3)
            expected = (inside + 2 * prior / prior.sum()) / (inside.sum() + 2)
            assert values[leaf] == pytest.approx(expected, abs=1e-6) and values[leaf].min() > 0


PAIRS = [list(pair) for pair in combinations(range(4), 2)]


class Heard:
    """Parties that write down what they tell."""

    def __init__(self, parties: list[Party]) -> None:
        self.parties = parties
        self.told = list[NDArray]()
        self.totals = list[NDArray]()

    def __call__(self, topic: str, messages: Any, shapes: Any) -> Any:
        answers = asking(self.parties)(topic, messages, shapes)
        self.told += [own["left"] for own in answers if own]
        pairs = zip(self.parties, answers, strict=True)
        self.totals += [party.totals.T[party._reported] for party, own in pairs if own]
        return answers


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_a_minimum_of_5_tells_no_count_of_1_to_4(made: Tables, numbers: bool) -> None:
    tables = [(x, (x[:, 0] - x[:, 3]).astype(np.float32) if numbers else y) for x, y in made]
    classes = 0 if numbers else 3
    way = Growth(classes, 4, 4, thresholds=4, minimum=5)
    parties = [Party(x, y, way) for x, y in tables]
    heard = Heard(parties)
    keys = root_keys(8, 10)
    starts = [party.start(keys) for party in parties]
    tree = grow(heard, starts, keys, way)
    counts = [own["totals"][:, :1] if numbers else own["totals"] for own in starts]
    for left, total in zip(heard.told, heard.totals, strict=True):
        own, all_ = (left[:1], total[:1]) if numbers else (left, total)
        # and what follows from two answers
        counts += [own.ravel(), (all_[:, None, None] - own.astype(int)).ravel()]
        counts += [np.abs(np.diff(own[:, :, pair].astype(int), axis=2)).ravel() for pair in PAIRS]
    every = np.concatenate([own.ravel() for own in counts])
    assert not ((every > 0) & (every < 5)).any() and (every >= 5).sum() > 100
    assert any(((own["totals"] > 0) & (own["totals"] < 5)).any() for own in starts) is False
    # the client goes on by itself, until its rows are of one class
    x, y = tables[2]
    mine, values = finished(tree, keys, Growth(classes, 4, 4), x, y, (), alone=True)
    leaves = find_leaves(x, mine.feature, mine.threshold, mine.child, np.arange(10))
    assert len(mine.feature) > len(tree.feature)
    predicted = values[leaves].mean(1)
    if numbers:
        assert np.abs(predicted[:, 0] - y).max() < 1e-3
    else:
        assert (predicted.argmax(1) == y).mean() > 0.99


def test_rows_without_a_column_go_to_the_side_that_was_drawn(made: Tables) -> None:
    tables = [(np.where(np.arange(4) == 1, 0, x).astype(np.float32) if place == 2 else x, y)
              for place, (x, y) in enumerate(made)]  # fmt: skip
    tree = grown_by(tables, 3, 6, lacks=[(), (), (1,)])
    keys = keys_of(tree, root_keys(8, 6))
    counted = np.zeros_like(tree.totals)
    for (x, y), lacks in zip(tables, [(), (), (1,)], strict=True):
        mine = sided(tree, keys, lacks)
        leaves = find_leaves(x, mine.feature, mine.threshold, mine.child, np.arange(6))
        np.add.at(counted, (leaves, y[:, None]), 1)
    assert (tree.feature == 1).any() and np.array_equal(
        counted[tree.leaves], tree.totals[tree.leaves]
    )
    used = tree.feature == 1
    assert set(np.sign(sided(tree, keys, (1,)).threshold[used])) == {-1.0, 1.0}


def test_numbers_that_are_not_standardised_are_refused() -> None:
    with pytest.raises(DataError, match="expected a standardised target"):
        Party(np.zeros((2, 1), np.float32), np.array([1e9, -1e9], np.float32), Growth(0, 1, 1))


GOLDEN: list[tuple[dict[str, Any], str]] = [
    ({}, "aa5909b1e2cb78b6"),
    ({"minimum": 5}, "779932384b60a67f"),
    ({"tried": 1, "thresholds": 1, "minimum": 5}, "71da6a5702e95927"),
    ({"thresholds": 4}, "2aef25f1088d36c3"),
    ({"exact": True}, "e339822752294984"),
]


def test_trees_are_those_of_earlier_versions() -> None:
    """The digests were taken when the rule drew the thresholds and sent them."""
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, (400, 3)).astype(np.float32)
    tables = [(part, (part.sum(1) > 2).astype(np.int64)) for part in np.array_split(x, 3)]
    for options, expected in GOLDEN:
        tree = grown_by(tables, 2, 5, **options)
        content = b"".join(
            getattr(tree, name).tobytes() for name in ("feature", "threshold", "child", "totals")
        )
        assert sha256(content).hexdigest()[:16] == expected, options


def test_the_thresholds_of_roots_follow_from_seed_and_range(made: Tables) -> None:
    [(x, _)] = pooled(made)
    tree = grown_by(made, 3, 20, minimum=5)
    low = np.floor(x.min(0))
    high = np.ceil(x.max(0))
    for root, column in enumerate(tree.feature[:20]):
        shares = [
            uniform(root_keys(8, 20)[[root]], THRESHOLD, 4, number)[column, 0]
            for number in range(2)
        ]
        expected = [np.float32(share * (high - low)[column] + low[column]) for share in shares]
        assert tree.threshold[root] in expected


def lie(key: str, change: Callable[[NDArray], Any]) -> Callable[[dict[str, Any]], None]:
    def told(message: dict[str, Any]) -> None:
        if key in message:
            message[key] = change(message[key])

    return told


def try_again(message: dict[str, Any]) -> None:
    if "feature" in message:
        message["feature"][:] = -1
        message["keep"][:] = [True, False]


LIES = {
    "ranges of columns": lie("low", lambda low: low + 1),
    "empty of shape": lie("empty", lambda empty: empty[:1]),
    "rows on both sides": lie("empty", np.ones_like),
    "columns and thresholds": lie("number", lambda number: number + 9),
    "to be split": try_again,
}


@pytest.mark.parametrize("words", LIES)
def test_a_party_refuses_what_its_rows_contradict(made: Tables, words: str) -> None:
    way = Growth(3, 4, 4, minimum=5)
    keys = root_keys(8, 5)
    parties = [Party(x, y, way) for x, y in made]

    def ask(topic: str, told: Any, shapes: Any) -> Any:
        for message in told:
            if message is not None:
                LIES[words](message)
        return asking(parties)(topic, told, shapes)

    with pytest.raises(RunError, match=words):
        grow(ask, [party.start(keys) for party in parties], keys, way)


def test_no_tree_has_more_levels_than_were_agreed(made: Tables) -> None:
    way = Growth(3, 4, 4, levels=3)
    keys = root_keys(8, 5)
    parties = [Party(x, y, way) for x, y in made]
    tree = grow(asking(parties), [party.start(keys) for party in parties], keys, way)
    assert 5 * (2**3 - 1) <= len(tree.feature) <= 5 * (2**4 - 1)
    parties = [Party(x, y, way) for x, y in made]
    with pytest.raises(RunError, match="at most 3 levels"):
        grow(asking(parties), [party.start(keys) for party in parties], keys, Growth(3, 4, 4))
