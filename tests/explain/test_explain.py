"""Clusters: who belongs together at the end, against what was planted, and colours that stay.
Corrections that stand out: distances against NumPy, the bound that the paper's rule has, and what
is said in words.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedlit.explain.clusters import adjusted_rand, judged, stable_numbers
from fedlit.explain.judge import COLUMNS, chances, distances, judge
from fedlit.files import read_named
from fedlit.names import Clusters
from fedlit.show.canvas import svg_text
from fedlit.show.clusters import membership_figure

SPLIT: Clusters = (("ash", "elm"), ("oak", "yew"))
OTHER: Clusters = (("ash", "oak"), ("elm", "yew"))
ONE: Clusters = (("ash", "elm", "oak", "yew"),)
ALONE: Clusters = (("ash",), ("elm",), ("oak",), ("yew",))


def frame(
    *rounds: Clusters, concepts: dict[str, str] | None = None, shift: int = 0
) -> pd.DataFrame:
    """Rows as a run writes them; numbers of clusters differ from round to round, as they may."""
    rows = [
        (
            number,
            number,
            name,
            (cluster + shift * number) % len(partition) + 1,
            (concepts or {}).get(name, ""),
        )
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
def test_judged_is_the_most_frequent_of_the_last(
    rounds: list[Clusters], last: int, expected: Clusters, shift: int
) -> None:
    own = frame(*rounds, shift=shift)
    assert judged(own, last) == expected == judged(own.sample(frac=1, random_state=0), last)


def test_adjusted_rand_at_its_ends() -> None:
    planted = {"ash": "1", "elm": "1", "oak": "2", "yew": "2"}
    assert adjusted_rand(SPLIT, planted) == 1.0 and adjusted_rand(OTHER, planted) < 0
    assert (
        adjusted_rand(ONE, planted) == 0.0
        and adjusted_rand(ONE, dict.fromkeys(planted, "1")) == 1.0
    )
    assert np.isnan(adjusted_rand(SPLIT, {}))


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=1, max_size=6))
def test_clients_of_one_cluster_have_one_colour(
    rounds: list[list[int]],
) -> None:
    rows = [
        (n, f"c{k}", cluster) for n, own in enumerate(rounds, 1) for k, cluster in enumerate(own)
    ]
    numbers = stable_numbers(pd.DataFrame(rows, columns=["round", "client", "cluster"]))
    for number, own in enumerate(rounds, 1):
        drawn = numbers[number].tolist()
        for i in range(7):
            assert (drawn[i] == -1) == (own.count(own[i]) == 1)
            assert all(
                (drawn[i] == drawn[j]) == (own[i] == own[j]) for j in range(7) if drawn[i] >= 0
            )


def test_who_took_no_part_in_a_round_has_no_colour() -> None:
    own = frame(SPLIT, SPLIT)
    numbers = stable_numbers(own[(own["round"] == 1) | (own["client"] != "yew")])
    assert numbers.isna().loc["yew", 2] and numbers.loc["oak", 2] == -1
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
    for word in ("concept 2 │ elm", "concept 10 │ ash", ">A<", ">B<", "r$und$"):
        assert word in svg, word
    assert svg.index("concept 2 │") < svg.index("concept 10 │")
    assert "│" not in svg_text(membership_figure(frame(ONE, SPLIT)), "who")


# ------------------------------------------------------------------ corrections that stand out


def marks(
    table: dict[str, list[float]], features: tuple[str, ...], part: str = "input scale"
) -> pd.DataFrame:
    rows = [
        (name, part, f, v)
        for name, own in table.items()
        for f, v in zip(features, own, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).dropna()


def test_distances_are_by_hand_over_those_who_have_a_feature() -> None:
    values = np.random.default_rng(0).normal(1, 0.3, (7, 4))
    values[1, 2] = np.nan
    values[2:, 3] = np.nan
    for k in range(7):
        others = np.delete(values, k, 0)[:, :3]
        expected = (values[k, :3] - np.nanmean(others, 0)) / np.nanstd(others, 0, ddof=1)
        assert distances(values)[k, :3] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(distances(values)[:, 3]).all()  # one other is no spread


def test_equal_corrections_are_no_distance_and_no_finding() -> None:
    judged = judge(marks({f"s{k}": [1.0, 1.0, 1.0] for k in range(8)}, ("a", "b", "c")))
    assert (
        (judged.cells["z"] == 0).all()
        and not judged.cells["marked"].any()
        and not len(judged.findings)
    )
    assert str(judged).startswith("No finding: 0 of 24 corrections")


def test_chance_is_hardly_ever_called_a_finding() -> None:
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(20):
        table = {f"s{k:02d}": list(rng.normal(1, 0.1, 7)) for k in range(24)}
        called += len(judge(marks(table, tuple("abcdefg"))).findings) > 0
    assert called == 0  # Holm's 0.1 %: one of 20 is one chance in 50, of this seed none


def test_a_correction_that_turns_round_is_found_first() -> None:
    rng = np.random.default_rng(3)
    table = {f"s{k:02d}": list(rng.normal(1, 0.05, 5)) for k in range(12)}
    table["s03"][2] = 0.1
    outputs = marks(
        {name: [-0.4 if name == "s07" else 1.0] for name in table}, ("1",), "output scale"
    )
    judged = judge(pd.concat([marks(table, ("age", "sex", "chol", "bmi", "fbs")), outputs]))
    found = judged.findings[["client", "feature"]].to_numpy().tolist()
    assert (
        found == [["s07", "1"], ["s03", "chol"]]
        and "labels flipped?" in judged.findings["words"].iloc[0]
    )


def test_two_outliers_in_one_column_do_not_hide_each_other() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(0, 0.05, (24, 6))
    values[3, 2] = -4.5
    values[9, 2] = -2.0
    alone = np.abs(distances(values))[9, 2]
    assert alone < 4  # the first outlier makes the spread of the others
    judged = judge(
        marks({f"s{k:02d}": list(values[k]) for k in range(24)}, tuple("abcdef"), "input shift")
    )
    found = judged.findings
    rest = np.delete(values[:, 2], [3, 9])
    assert found["apart"].tolist() == pytest.approx(
        [(v - rest.mean()) / rest.std(ddof=1) for v in (-4.5, -2.0)]
    )
    assert set(found["client"]) == {"s03", "s09"} and set(found["feature"]) == {"c"}


def test_chances_are_those_of_the_t_distribution() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, (8, 1))
    raw = []
    for k in range(8):
        others = np.delete(values[:, 0], k)
        t = (values[k, 0] - others.mean()) / (others.std(ddof=1) * np.sqrt(1 + 1 / 7))
        raw.append(2 * stats.t.sf(abs(t), 6))
    # Holm's, as it is defined: each times how many are not smaller, and never less than one that is
    # smaller
    adjusted = [
        max(min(1, q * sum(other >= q for other in raw)) for q in raw if q <= p) for p in raw
    ]
    assert chances(values)[0][:, 0] == pytest.approx(adjusted)


def test_a_sure_difference_of_no_size_is_no_finding() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(1, 1e-5, (12, 5))
    values[4, 2] = 1.005
    found = judge(marks({f"s{k:02d}": list(values[k]) for k in range(12)}, tuple("abcde")))
    assert found.cells["p"].min() < 1e-6 and not len(found.findings)
    values[4, 2] = 1.02
    found = judge(marks({f"s{k:02d}": list(values[k]) for k in range(12)}, tuple("abcde")))
    assert found.findings["client"].tolist() == ["s04"]


def test_names_that_are_read_back_are_text(tmp_path: Path) -> None:
    names = ["NA", "null", "None", "nan", "inf", "1", "01", "True", ""]
    table = pd.DataFrame(
        {
            "split": "test",
            "client": names,
            "metric": names,
            "value": [1.0, np.inf, np.nan, *range(6)],
        }
    )
    table.to_csv(tmp_path / "scores.csv", index=False)
    found = read_named(tmp_path / "scores.csv")
    assert found["client"].tolist() == found["metric"].tolist() == names
    np.testing.assert_array_equal(found["value"], table["value"])
