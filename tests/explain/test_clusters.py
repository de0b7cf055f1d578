"""Clusters: who belongs together at the end, against what was planted, and colours that stay."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.explain.clusters import adjusted_rand, judged, stable_numbers
from fedlit.names import Clusters
from fedlit.show.canvas import svg_text
from fedlit.show.clusters import membership_figure

SPLIT: Clusters = (("ash", "elm"), ("oak", "yew"))
OTHER: Clusters = (("ash", "oak"), ("elm", "yew"))
ONE: Clusters = (("ash", "elm", "oak", "yew"),)
ALONE: Clusters = (("ash",), ("elm",), ("oak",), ("yew",))


def frame(*rounds: Clusters, concepts: dict[str, str] | None = None, shift: int = 0) -> pd.DataFrame:
    """Rows as a run writes them; numbers of clusters differ from round to round, as they may."""
    rows = [
        (number, number, name, (cluster + shift * number) % len(partition) + 1, (concepts or {}).get(name, ""))
        for number, partition in enumerate(rounds, 1)
        for cluster, names in enumerate(partition)
        for name in names
    ]
    return pd.DataFrame(rows, columns=["round", "epoch", "client", "cluster", "concept"])


ROUNDS = [
    ([ONE, ONE, ONE, SPLIT], 5, ONE),  # the majority, though not the latest
    ([ONE] * 9 + [SPLIT, SPLIT, SPLIT, ONE, ONE], 5, SPLIT),  # the last five only
    ([SPLIT, SPLIT, OTHER, OTHER, ONE], 5, OTHER),  # of equals the latest
    ([OTHER, SPLIT, OTHER, SPLIT], 5, SPLIT),
    ([SPLIT, OTHER, ONE], 1, ONE),
    ([ALONE], 5, ALONE),
]


@pytest.mark.parametrize(("rounds", "last", "expected"), ROUNDS)
@pytest.mark.parametrize("shift", [0, 1])
def test_judged_is_the_most_frequent_of_the_last_rounds_whatever_clusters_are_called(
    rounds: list[Clusters], last: int, expected: Clusters, shift: int
) -> None:
    own = frame(*rounds, shift=shift)
    assert judged(own, last) == expected == judged(own.sample(frac=1, random_state=0), last)


def test_adjusted_rand_at_its_ends() -> None:
    planted = {"ash": "1", "elm": "1", "oak": "2", "yew": "2"}
    assert adjusted_rand(SPLIT, planted) == 1.0 and adjusted_rand(OTHER, planted) < 0
    assert adjusted_rand(ONE, planted) == 0.0 and adjusted_rand(ONE, dict.fromkeys(planted, "1")) == 1.0
    assert np.isnan(adjusted_rand(SPLIT, {}))


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=1, max_size=6))
def test_two_clients_have_one_colour_in_a_round_exactly_if_they_are_together(rounds: list[list[int]]) -> None:
    rows = [(n, f"c{k}", cluster) for n, own in enumerate(rounds, 1) for k, cluster in enumerate(own)]
    numbers = stable_numbers(pd.DataFrame(rows, columns=["round", "client", "cluster"]))
    for number, own in enumerate(rounds, 1):
        drawn = numbers[number].tolist()
        for i in range(7):
            assert (drawn[i] == -1) == (own.count(own[i]) == 1)
            assert all((drawn[i] == drawn[j]) == (own[i] == own[j]) for j in range(7) if drawn[i] >= 0)


def test_who_took_no_part_in_a_round_has_no_colour() -> None:
    own = frame(SPLIT, SPLIT)
    numbers = stable_numbers(own[(own["round"] == 1) | (own["client"] != "yew")])
    assert np.isnan(numbers.loc["yew", 2]) and numbers.loc["oak", 2] == -1
    assert membership_figure(own[(own["round"] == 1) | (own["client"] != "yew")]).axes


def test_a_client_keeps_its_colour_from_picture_to_picture() -> None:
    """Of the same run a few rounds later, and of another run."""
    first = stable_numbers(frame(ONE, SPLIT))[2]
    assert first["ash"] == first["elm"] != first["oak"] == first["yew"]
    for other in (frame(ONE, SPLIT, OTHER, SPLIT, shift=1), frame(SPLIT)):
        assert stable_numbers(other).iloc[:, -1].to_dict() == first.to_dict()


def test_the_membership_picture_names_clients_and_concepts() -> None:
    planted = {"ash": "concept 10", "elm": "concept 2", "oak": "concept 2", "yew": "concept 10"}
    svg = svg_text(membership_figure(frame(ONE, SPLIT, concepts=planted), "r$und$"), "who")
    assert svg == svg_text(membership_figure(frame(ONE, SPLIT, concepts=planted), "r$und$"), "who")
    for word in ("concept 2 │ elm", "concept 10 │ ash", ">oak<", ">yew<", ">A<", ">B<", "r$und$"):
        assert word in svg, word
    assert svg.index("concept 2 │") < svg.index("concept 10 │")
    assert "│" not in svg_text(membership_figure(frame(ONE, SPLIT)), "who")
