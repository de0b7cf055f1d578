"""Marks: distances against NumPy, the bound that the paper's rule has, and what is said in words."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlit.explain.judge import COLUMNS, chances, distances, judge
from fedlit.files import read_named


def frame(table: dict[str, list[float]], features: tuple[str, ...], part: str = "input scale") -> pd.DataFrame:
    rows = [(name, part, f, v) for name, own in table.items() for f, v in zip(features, own, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).dropna()


def test_distances_are_by_hand_over_those_who_have_a_feature() -> None:
    values = np.random.default_rng(0).normal(1, 0.3, (7, 4))
    values[1, 2], values[2:, 3] = np.nan, np.nan
    for k in range(7):
        others = np.delete(values, k, 0)[:, :3]
        expected = (values[k, :3] - np.nanmean(others, 0)) / np.nanstd(others, 0, ddof=1)
        assert distances(values)[k, :3] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(distances(values)[:, 3]).all()  # one other is no spread


def test_equal_corrections_are_no_distance_and_no_finding() -> None:
    judged = judge(frame({f"s{k}": [1.0, 1.0, 1.0] for k in range(8)}, ("a", "b", "c")))
    assert (judged.cells["z"] == 0).all() and not judged.cells["marked"].any() and not len(judged.findings)
    assert str(judged).startswith("No finding: 0 of 24 corrections")


def test_chance_is_hardly_ever_called_a_finding() -> None:
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(20):
        table = {f"s{k:02d}": list(rng.normal(1, 0.1, 7)) for k in range(24)}
        called += len(judge(frame(table, tuple("abcdefg"))).findings) > 0
    assert called == 0  # Holm's 0.1 %: one of 20 is one chance in 50, of this seed none


def test_a_correction_that_turns_round_is_found_first() -> None:
    rng = np.random.default_rng(3)
    table = {f"s{k:02d}": list(rng.normal(1, 0.05, 5)) for k in range(12)}
    table["s03"][2] = 0.1
    outputs = frame({name: [-0.4 if name == "s07" else 1.0] for name in table}, ("1",), "output scale")
    judged = judge(pd.concat([frame(table, ("age", "sex", "chol", "bmi", "fbs")), outputs]))
    found = judged.findings[["client", "feature"]].to_numpy().tolist()
    assert found == [["s07", "1"], ["s03", "chol"]] and "labels flipped?" in judged.findings["words"].iloc[0]


def test_two_outliers_in_one_column_do_not_hide_each_other() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(0, 0.05, (24, 6))
    values[3, 2], values[9, 2] = -4.5, -2.0
    alone = np.abs(distances(values))[9, 2]
    assert alone < 4  # the first outlier makes the spread of the others
    judged = judge(frame({f"s{k:02d}": list(values[k]) for k in range(24)}, tuple("abcdef"), "input shift"))
    found = judged.findings
    rest = np.delete(values[:, 2], [3, 9])
    assert found["apart"].tolist() == pytest.approx([(v - rest.mean()) / rest.std(ddof=1) for v in (-4.5, -2.0)])
    assert set(found["client"]) == {"s03", "s09"} and set(found["feature"]) == {"c"}


def test_chances_are_those_of_the_t_distribution() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, (8, 1))
    raw = []
    for k in range(8):
        others = np.delete(values[:, 0], k)
        t = (values[k, 0] - others.mean()) / (others.std(ddof=1) * np.sqrt(1 + 1 / 7))
        raw.append(2 * stats.t.sf(abs(t), 6))
    # Holm's, as it is defined: each times how many are not smaller, and never less than one that is smaller
    adjusted = [max(min(1, q * sum(other >= q for other in raw)) for q in raw if q <= p) for p in raw]
    assert chances(values)[0][:, 0] == pytest.approx(adjusted)


def test_a_sure_difference_of_no_size_is_no_finding() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(1, 1e-5, (12, 5))
    values[4, 2] = 1.005
    found = judge(frame({f"s{k:02d}": list(values[k]) for k in range(12)}, tuple("abcde")))
    assert found.cells["p"].min() < 1e-6 and not len(found.findings)
    values[4, 2] = 1.02
    found = judge(frame({f"s{k:02d}": list(values[k]) for k in range(12)}, tuple("abcde")))
    assert found.findings["client"].tolist() == ["s04"]


def test_names_that_are_read_back_are_text(tmp_path: Path) -> None:
    names = ["NA", "null", "None", "nan", "inf", "1", "01", "True", ""]
    table = pd.DataFrame({"split": "test", "client": names, "metric": names, "value": [1.0, np.inf, np.nan, *range(6)]})
    table.to_csv(tmp_path / "scores.csv", index=False)
    found = read_named(tmp_path / "scores.csv")
    assert found["client"].tolist() == found["metric"].tolist() == names
    np.testing.assert_array_equal(found["value"], table["value"])
