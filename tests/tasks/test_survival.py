"""Time to event: targets, discrete hazards and scores, against plain definitions written here."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedlit.errors import ConfigError, DataError
from fedlit.outcomes.censored import censoring, kaplan_meier
from fedlit.tasks.survival import Survival
from fedlit.tasks.survival_target import horizons_of

EDGES = (10.0, 20.0, 40.0)


def rows_of(*rows: tuple[Any, ...]) -> pd.Series:
    names = ("days", "died", "start")[: len(rows[0])]
    return pd.Series(list(rows), name=names)


def drawn(seed: int, rows: int = 60, *, late: bool = False) -> pd.Series:
    """Return times with ties, of which about half are censored, and entries before them."""
    draw = np.random.default_rng(seed)
    times = draw.integers(1, 45, rows)
    events = draw.integers(0, 2, rows)
    cells = [times.tolist(), events.tolist()]
    if late:
        cells.append((times * draw.uniform(-1, 0.9, rows)).tolist())
    return rows_of(*zip(*cells, strict=True))


def likelihood(row: tuple[Any, ...], hazards: list[float]) -> float:
    """Return −log of the probability of a row, interval by interval."""
    time, event, *entry = row
    begin = entry[0] if entry else -math.inf
    total = 0.0
    for start, end, hazard in zip((0.0, *EDGES), EDGES, hazards, strict=False):
        middle = (start + end) / 2
        if event and start < time <= end:
            total -= math.log(hazard)
        elif begin <= middle <= time:
            total -= math.log(1 - hazard)
    return total


@pytest.mark.parametrize("late", [False, True])
def test_the_loss_is_the_likelihood_of_discrete_hazards(late: bool) -> None:
    target = drawn(1, late=late)
    task = Survival(edges=EDGES, horizons=(20.0,), hazard=0.2)
    outputs = torch.randn(len(target), 3, dtype=torch.float64)
    hazards = torch.sigmoid(outputs + math.log(0.2 / 0.8)).tolist()
    each = [likelihood(row, hazard) for row, hazard in zip(target, hazards, strict=True)]
    y = task.encode(target)
    assert task.loss(outputs, y).item() == pytest.approx(np.mean(each), rel=1e-9)
    weight = torch.rand(len(target), dtype=torch.float64)
    weighted = float((weight.numpy() * each).sum() / weight.sum())
    assert task.loss(outputs, y, rows=weight).item() == pytest.approx(weighted, rel=1e-9)
    survival = np.cumprod(1 - np.array(hazards), 1)
    np.testing.assert_allclose(task.predict(outputs), survival, rtol=1e-9)


def test_an_ensemble_predicts_the_mean_curve_of_its_members() -> None:
    task = Survival(edges=EDGES, horizons=(20.0,), hazard=0.2)
    members = torch.randn(7, 5, 3, dtype=torch.float64)
    curves = torch.stack([task.predict(members[:, member]) for member in range(5)])
    torch.testing.assert_close(task.predict(task.of_members(members)), curves.mean(0))


def test_a_target_is_time_event_and_entry_as_float32() -> None:
    y = Survival().encode(rows_of((30, 1), (8.5, False)))
    assert y.dtype == torch.float32 and y.tolist() == [[30, 1, -math.inf], [8.5, 0, -math.inf]]
    assert Survival().encode(rows_of((30, 1, 4))).tolist() == [[30, 1, 4]]


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        ([(30, 2), (8, 0)], "died"),
        ([(30, "dead"), (8, 0)], "died"),
        ([(-1, 1), (8, 0)], "days"),
        ([(math.inf, 1), (8, 0)], "days"),
        ([(30, 1, 30), (8, 0, 1)], "start"),
    ],
)
def test_cells_that_have_no_meaning_are_refused(rows: list[Any], column: str) -> None:
    with pytest.raises(DataError, match=f"target '{column}': .* 1 others of 2"):
        Survival().encode(rows_of(*rows))


@pytest.mark.parametrize(
    "settings",
    [
        {"unit": "fortnight"},
        {"horizons": ["1y"]},
        {"unit": "day", "horizons": []},
        {"unit": "day", "horizons": [0]},
        {"horizons": ["100%"]},
        {"intervals": 0},
        {"intervals": [3, 2]},
    ],
)
def test_settings_that_are_no_times_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Survival.check(settings)


def test_horizons_are_in_the_unit_of_times() -> None:
    horizons, shares = horizons_of({"unit": "month", "horizons": ["1y", 6, "2mo", "90%"]})
    assert horizons == pytest.approx([12.0, 6.0, 2.0]) and shares == [0.9]


def test_sites_agree_on_intervals_of_event_times() -> None:
    north, south = drawn(3), drawn(4)
    facts = {
        name: Survival.facts(target, {"horizons": [15, "50%"], "intervals": 4})
        for name, target in {"north": north, "south": south}.items()
    }
    task = Survival.agree("north", facts)
    assert task == Survival.agree("south", facts)
    assert 15.0 in task.edges and {*task.horizons} <= {*task.edges}
    times = [time for time, event in [*north, *south] if event]
    assert task.edges[-1] == max(times)
    other = {**facts, "south": Survival.facts(south, {"unit": "day"})}
    with pytest.raises(DataError, match="unit"):
        Survival.agree("north", other)


def test_fewer_events_than_facts_from_are_not_told() -> None:
    rows = [(time, int(time > 17)) for time in range(1, 21)]
    facts = Survival.facts(rows_of(*rows), {"facts_from": 5})
    assert facts["events"] == 0 and facts["event_times"] == [0]
    with pytest.raises(DataError, match="event"):
        Survival.agree("north", {"north": facts})


def product_limit(rows: list[tuple[Any, ...]], time: float, *, censored: bool = False) -> float:
    """Return Kaplan and Meier's estimate from its definition; of censoring, events come first."""
    left = 1.0
    for at in sorted({row[0] for row in rows if row[0] <= time}):
        risk = [row for row in rows if row[0] >= at and (len(row) < 3 or row[2] < at)]
        ends = [row for row in risk if row[0] == at and row[1] == (not censored)]
        others = [row for row in risk if censored and row[0] == at and row[1]]
        if ends:
            left *= 1 - len(ends) / (len(risk) - len(others))
    return left


@pytest.mark.parametrize("late", [False, True])
def test_the_share_left_is_the_product_over_times(late: bool) -> None:
    target = drawn(5, late=late)
    y = Survival().encode(target).numpy()
    times = np.arange(0, 50, 0.5)
    for censored, curve in ((False, kaplan_meier(y)), (True, censoring(y))):
        expected = [product_limit(target.tolist(), time, censored=censored) for time in times]
        np.testing.assert_allclose(curve.at(times), expected, atol=1e-12)
