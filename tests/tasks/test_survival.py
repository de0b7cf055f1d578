"""Time to event: targets, discrete hazards and scores, against plain definitions written here."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from statsmodels.duration.survfunc import survdiff
from survival_figures import FIGURES, TABLES, TIMES, table

from fedlit.errors import ConfigError, DataError, RunError
from fedlit.outcomes.censored import censoring, kaplan_meier
from fedlit.outcomes.life_table import life_table
from fedlit.outcomes.log_rank import log_rank
from fedlit.outcomes.log_rank import site_terms as log_rank_terms
from fedlit.outcomes.survival import SurvivalCurve
from fedlit.show.curves import curves_figure
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
        ([(1e39, 1), (8, 0)], "days"),
        ([(30, 1, -1e39), (8, 0, 1)], "start"),
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
    with pytest.raises(DataError, match="convert"):
        Survival.agree("north", other)


def test_quantiles_of_tied_times_are_horizons() -> None:
    times = [1] * 70 + [2] * 5 + [9] * 25
    facts = Survival.facts(rows_of(*((time, 1) for time in times)), {"horizons": ["50%", "90%"]})
    assert Survival.agree("north", {"north": facts}).horizons == (1.0, 9.0)


def test_a_horizon_of_0_is_refused() -> None:
    facts = Survival.facts(rows_of(*((time, 1) for time in [0] * 9 + [4] * 3)), {})
    with pytest.raises(DataError, match="horizons"):
        Survival.agree("north", {"north": facts})


def test_fewer_events_than_facts_from_are_not_told() -> None:
    rows = [(time, int(time > 17)) for time in range(1, 21)]
    facts = Survival.facts(rows_of(*rows), {"facts_from": 5})
    assert facts["events"] == 0 and facts["event_times"] == [0]
    with pytest.raises(DataError, match="event"):
        Survival.agree("north", {"north": facts})


@pytest.mark.parametrize("settings", [{}, {"horizons": [90], "intervals": [90]}])
def test_fewer_censored_rows_than_facts_from_are_not_told(settings: dict[str, Any]) -> None:
    """What is sent of 200 rows does not depend on how many of 0 to 4 are censored."""
    sent = list[Any]()
    for censored in range(7):
        rows = [(time, int(time > censored)) for time in range(1, 201)]
        sent.append(Survival.facts(rows_of(*rows), {**settings, "facts_from": 5}))
    told = [(facts["count"], facts["events"]) for facts in sent]
    assert told == [(200, 196)] * 5 + [(200, 195), (200, 194)]
    sizes = [len(facts["event_times"]) for facts in sent]
    assert len({*sizes[:5]}) == 1
    if not settings:
        assert [facts["event_times"][0] for facts in sent] == [196] * 5 + [195, 194]
        assert min(Survival.rows_behind(facts)["event_times"] for facts in sent) >= 5
    task = Survival.agree("north", {"north": sent[3]})
    assert task.hazard < 1


def test_few_events_among_few_censored_rows_are_not_told() -> None:
    rows = [(time, int(time > 1)) for time in range(1, 8)]
    facts = Survival.facts(rows_of(*rows), {"facts_from": 5})
    assert (facts["count"], facts["events"], facts["event_times"]) == (7, 0, [0])


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


def test_one_early_censored_row_leaves_others_to_be_scored() -> None:
    draw = np.random.default_rng(11)
    entry = draw.uniform(5, 9, 100)
    y = np.stack([entry + draw.exponential(20, 100), draw.random(100) < 0.5, entry], 1)
    early = np.array([[3.0, 0.0, 1.0]])
    task = Survival(edges=EDGES, horizons=(20.0,), hazard=0.2)
    scores = []
    for rows in (y, np.concatenate([early, y])):
        target = torch.from_numpy(rows.astype(np.float32))
        fitted = task.fit(target)
        scores.append(fitted.evaluate(fitted.predict(torch.zeros(len(y), 3)), target[-100:]))
    for name in ("integrated_brier", "horizon_auroc", "uno_c"):
        assert scores[1][name].item() == pytest.approx(scores[0][name].item()), name


def test_of_weighted_rows_that_all_end_nothing_is_left() -> None:
    for seed in range(50):
        draw = np.random.default_rng(seed)
        y = np.stack([draw.integers(1, 9, 12), np.ones(12), np.full(12, -math.inf)], 1)
        y[::2, 2] = y[::2, 0] - draw.integers(1, 9, 6)
        assert kaplan_meier(y, draw.random(12)).shares[-1] == 0


def scored(
    seed: int, *, late: bool = False, rows: int = 60
) -> tuple[Survival, list[tuple[Any, ...]], pd.Series, torch.Tensor]:
    """Return a task with the censoring of some rows, those rows, others, and curves for these."""
    train = drawn(seed, 30 if late else 60, late=late)
    test = drawn(seed + 100, rows, late=late)
    task = Survival(edges=EDGES, horizons=(10.0, 20.0), hazard=0.2)
    task = task.fit(task.encode(train))
    draw = torch.Generator().manual_seed(seed)
    outputs = torch.randn(rows, 3, generator=draw, dtype=torch.float64).round(decimals=1)
    outputs[:, 1:] = outputs[:, :1]  # equal curves, and so equal risks
    return task, train.tolist(), test, task.predict(outputs)


def entered(row: tuple[Any, ...], time: float) -> bool:
    return len(row) < 3 or row[2] < time


def share(train: list[Any], time: float) -> float:
    """Return the share of rows that are observed: not censored or, of rows that enter late, at risk
    after the time among those without the event.
    """
    if len(train[0]) < 3:
        return product_limit(train, time, censored=True)
    surviving = product_limit(train, time)
    if not surviving:  # The last event counts as the rows right before it.
        before = [value for row in train for value in (row[0], row[2]) if value < time]
        return share(train, max(before))
    return sum(row[2] <= time < row[0] for row in train) / surviving


def weights_at(rows: list[Any], time: float, train: list[Any]) -> list[float]:
    weights = []
    for row in rows:
        is_known = entered(row, time) and (row[0] > time or row[1])
        weights.append(1 / share(train, min(row[0], time)) if is_known else 0.0)
    return weights


def brier(rows: list[Any], survival: Any, time: float, train: list[Any]) -> float:
    weights = weights_at(rows, time, train)
    total = 0.0
    for row, left, weight in zip(rows, survival, weights, strict=True):
        total += weight * (left - (row[0] > time)) ** 2
    return total / (sum(weights) if len(rows[0]) > 2 else len(rows))


def area(rows: list[Any], risk: Any, time: float, train: list[Any]) -> float:
    right = every = 0.0
    for case, high in zip(rows, risk, strict=True):
        if not (case[0] <= time and case[1] and entered(case, time)):
            continue
        weight = 1 / share(train, case[0])
        for control, low in zip(rows, risk, strict=True):
            if control[0] > time and entered(control, time):
                every += weight
                right += weight * ((high > low) + 0.5 * (high == low))
    return right / every


def concordance(rows: list[Any], risk: Any, before: float, train: list[Any]) -> float:
    right = every = 0.0
    for first, high in zip(rows, risk, strict=True):
        if not (first[1] and first[0] < before):
            continue
        weight = share(train, first[0]) ** -2
        for other, low in zip(rows, risk, strict=True):
            is_later = other[0] > first[0] or (other[0] == first[0] and not other[1])
            if is_later and entered(other, first[0]):
                every += weight
                right += weight * ((high > low) + 0.5 * (high == low))
    return right / every


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_scores_are_those_of_their_definitions(seed: int, late: bool) -> None:
    task, train, target, curves = scored(seed, late=late)
    scores = task.evaluate(curves, task.encode(target))
    rows = target.tolist()
    survival = curves.numpy()
    by_horizon = [brier(rows, survival[:, column], EDGES[column], train) for column in (0, 1)]
    assert scores["horizon_brier"].item() == pytest.approx(np.mean(by_horizon), rel=1e-9)
    # The trapezoid over two times, divided by its length, is their mean.
    assert scores["integrated_brier"].item() == pytest.approx(np.mean(by_horizon), rel=1e-9)
    risk = 1 - survival
    areas = [area(rows, risk[:, column], EDGES[column], train) for column in (0, 1)]
    assert scores["horizon_auroc"].item() == pytest.approx(np.mean(areas), rel=1e-9)
    expected = concordance(rows, risk[:, 1], 20.0, train)
    assert scores["uno_c"].item() == pytest.approx(expected, rel=1e-9)
    weights = weights_at(rows, 20.0, train) if late else None
    mean = np.average(risk[:, 1], weights=weights)
    difference = abs(mean - (1 - product_limit(rows, 20.0)))
    assert scores["horizon_calibration"].item() == pytest.approx(difference, rel=1e-9)


def test_counts_have_the_bits_of_repeated_rows() -> None:
    task, _, target, curves = scored(7, late=True)
    y = task.encode(target)
    score = task.scorer(curves, y)
    once = {name: value.item() for name, value in score(None).items()}
    ones = score(torch.ones(len(y), dtype=torch.int64))
    assert once == {name: value.item() for name, value in ones.items()}
    counts = torch.randint(0, 4, (len(y),), generator=torch.Generator().manual_seed(1))
    repeated = task.evaluate(curves.repeat_interleave(counts, 0), y.repeat_interleave(counts, 0))
    counted = score(counts)
    assert {n: v.item() for n, v in counted.items()} == {n: v.item() for n, v in repeated.items()}
    weighted = score(counts.double())
    for name, value in counted.items():
        assert weighted[name].item() == pytest.approx(value.item(), rel=1e-9), name


def test_many_pairs_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    task, _, target, curves = scored(8)
    y = task.encode(target)
    at_once = task.evaluate(curves, y)["uno_c"].item()
    monkeypatch.setattr("fedlit.tasks.survival_scores._BLOCK", 200)
    assert task.evaluate(curves, y)["uno_c"].item() == pytest.approx(at_once, rel=1e-12)


def test_scores_are_undefined_without_comparable_pairs() -> None:
    task = Survival(edges=EDGES, horizons=(20.0,), hazard=0.2)
    task = task.fit(task.encode(rows_of((25, 1), (45, 0), (12, 0))))
    curves = task.predict(torch.zeros(3, 3))
    scores = task.evaluate(curves, task.encode(rows_of((21, 1), (30, 0), (41, 1))))
    assert math.isnan(scores["uno_c"]) and math.isnan(scores["horizon_auroc"])
    assert scores["integrated_brier"] > 0
    short = task.fit(task.encode(rows_of((5, 1), (8, 0))))  # nobody was observed up to 10
    scores = short.evaluate(curves, task.encode(rows_of((21, 1), (30, 0), (41, 1))))
    assert math.isnan(scores["integrated_brier"]) and math.isnan(scores["horizon_brier"])


def test_times_before_anybody_has_entered_do_not_count() -> None:
    task = Survival(edges=EDGES, horizons=(20.0,), hazard=0.2)
    task = task.fit(task.encode(rows_of((45, 1), (12, 0), (14, 0))))
    curves = task.predict(torch.zeros(3, 3))
    y = task.encode(rows_of((21, 1, 12), (30, 0, 13), (15, 1, 14)))
    scores = task.evaluate(curves, y)
    assert scores["integrated_brier"] == scores["horizon_brier"]
    loss = task.outcome.row_loss(y.numpy())
    assert loss is not None
    assert loss.mean(curves.numpy()) == pytest.approx(scores["integrated_brier"].item())


def test_a_mixture_is_weighted_by_the_integrated_brier_score() -> None:
    task, _, target, curves = scored(9, late=True)
    y = task.encode(target)
    loss = task.outcome.row_loss(y.numpy())
    assert loss is not None
    mean = loss.mean(curves.numpy())
    assert mean == pytest.approx(task.evaluate(curves, y)["integrated_brier"].item(), rel=1e-9)
    step = 1e-6
    moved = curves.numpy().copy()
    moved[:, 0] += step
    change = (loss(moved) - loss(curves.numpy())) / step
    np.testing.assert_allclose(loss.slopes(curves.numpy())[:, 0], change, atol=1e-4)


def test_a_curve_has_constant_hazards_between_ends() -> None:
    outcome = Survival(edges=(1.0, 2.0), horizons=(2.0,)).outcome
    curves = np.array([[0.75, 0.25], [0.9, 0.6], [0.2, 0.1]])
    medians = outcome.medians(curves)  # type: ignore[attr-defined]
    assert medians[1] == np.inf
    for row in (0, 2):
        left = outcome.curve(curves[[row]], medians[[row]])
        assert left[0, 0] == pytest.approx(0.5)
    assert np.isnan(outcome.curve(curves, np.array([2.5]))).all()


def test_written_predictions_are_read_back() -> None:
    task, _, target, curves = scored(10, late=True)
    y = task.encode(target)
    frame = task.frame(np.arange(len(y)), y, curves)
    _, read, target_read = task.read(frame)
    torch.testing.assert_close(read, curves)
    assert torch.equal(target_read, y)


def test_scores_equal_those_of_scikit_survival_on_50_tables() -> None:
    names = ("integrated_brier", "uno_c", "horizon_auroc", "horizon_brier")
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))["figures"]
    assert len(figures) == TABLES
    for seed, expected in enumerate(figures):
        train, test, survival = table(seed)
        task = Survival(edges=TIMES, horizons=TIMES)
        task = task.fit(task.encode(rows_of(*map(tuple, train.tolist()))))
        y = task.encode(rows_of(*map(tuple, test.tolist())))
        scores = task.evaluate(torch.tensor(survival), y)
        found = [scores[name].item() for name in names]
        assert found == pytest.approx(expected, rel=1e-9), seed


def test_curves_of_other_intervals_are_read_at_common_times() -> None:
    state = {"name": "survival", "time_unit": "day"}
    fine = {**state, "edges": [1.0, 2.0, 4.0, 8.0], "horizons": [2.0, 8.0]}
    coarse = {**state, "edges": [3.0, 6.0], "horizons": [3.0]}
    united = SurvivalCurve.of(SurvivalCurve.united([fine, coarse]))
    assert united.edges == (1.0, 2.0, 4.0, 6.0) and united.horizons == (2.0,)
    united.check()
    edges = np.array([3.0, 6.0])
    constant = np.exp(-0.3 * edges)[None]  # a hazard of 0.3 a day, whatever the intervals are
    aligned = united.aligned(constant, SurvivalCurve.of(coarse))
    np.testing.assert_allclose(aligned[0], np.exp(-0.3 * np.array(united.edges)), rtol=1e-12)
    assert united.aligned(aligned, united).tolist() == aligned.tolist()
    with pytest.raises(RunError):
        SurvivalCurve.united([fine, {**coarse, "time_unit": "year"}])


def table_of(seed: int, *, late: bool = False) -> tuple[Any, Any, Any]:
    """Return a target, a group of three and a stratum of four for each row."""
    draw = np.random.default_rng(seed)
    y = Survival().encode(drawn(seed, 200, late=late)).double().numpy()
    group = draw.choice(np.array(["a", "b", "c"], object), 200)
    return y, group, draw.integers(0, 4, 200)


def test_the_log_rank_test_is_stratified_by_what_is_summed() -> None:
    y, group, stratum = table_of(1)
    terms = [log_rank_terms(y[stratum == at], group[stratum == at], "abc") for at in range(4)]
    test = log_rank({name: np.sum([term[name] for term in terms], 0) for name in terms[0]})
    expected, _ = survdiff(y[:, 0], y[:, 1], group, strata=stratum)
    assert test.statistic == pytest.approx(expected, rel=1e-9) and test.freedom == 2


def test_the_log_rank_test_knows_who_has_entered() -> None:
    y, group, _ = table_of(2, late=True)
    test = log_rank(log_rank_terms(y, group, "abcd"))  # nobody is in the last group
    # statsmodels counts a row from its entry on, which is exclusive here.
    expected, _ = survdiff(y[:, 0], y[:, 1], group, entry=y[:, 2] + 1e-9)
    assert test.statistic == pytest.approx(expected, rel=1e-9) and test.freedom == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_life_table_says_nothing_of_fewer_rows(late: bool) -> None:
    y, _, _ = table_of(3, late=late)
    times = np.arange(0, 50, 0.5)
    whole = life_table(y, times)
    few = life_table(y, times, rows=7)
    assert 3 < len(few.times) < len(whole.times)
    for number in (few.events, few.censored, few.at_risk):
        assert ((number == 0) | (number >= 7)).all()
    entered = few.at_risk + (few.events + few.censored).cumsum()
    steps = np.diff(entered)
    assert ((steps == 0) | (steps >= 7)).all()
    for at, left, share in zip(few.times, few.at_risk, few.shares, strict=True):
        assert left == ((y[:, 0] > at) & (y[:, 2] <= at)).sum()
        assert share == kaplan_meier(y).at(at)
    assert whole.events.sum() == y[:, 1].sum() and whole.at_risk[-1] == 0


@pytest.mark.parametrize("groups", [2, 14])
def test_numbers_at_risk_are_those_at_the_marks_of_the_axis(groups: int) -> None:
    """And a long legend is beside the curves, not above them."""
    draw = np.random.default_rng(groups)
    end = draw.integers(1, 2970, 300).astype(float)
    y = np.stack([end, draw.integers(0, 2, 300), np.full(300, -np.inf)], 1)
    table = life_table(y, np.arange(0, 3000, 20.0))
    figure = curves_figure({f"centre {number}": table for number in range(groups)}, "days")
    figure.canvas.draw()
    upper, lower = figure.axes
    marks = [float(mark) for mark in lower.get_xticks() if 0 <= mark < end.max()]
    written = [(text.get_position()[0], text.get_text()) for text in lower.texts]
    assert len(marks) > 4 and len(written) == groups * len(marks)
    assert set(written) == {(mark, f"{(end > mark).sum()}") for mark in marks}
    legend = upper.get_legend().get_window_extent()
    assert groups == 2 or not legend.overlaps(upper.get_window_extent())


@pytest.mark.parametrize("late", [False, True])
def test_the_true_curve_has_the_best_scores_also_with_late_entry(late: bool) -> None:
    draw = np.random.default_rng(2)
    times = np.arange(1.0, 11.0)

    def observed_rows(rows: int) -> tuple[np.ndarray, torch.Tensor]:
        x = draw.normal(size=rows)
        event = draw.exponential(10 * np.exp(-x))
        entry = draw.uniform(0, 10, rows) if late else np.full(rows, -np.inf)
        x, event, entry = (values[event > entry] for values in (x, event, entry))
        end = np.maximum(entry, 0) + draw.exponential(20, len(x))
        y = np.stack([np.minimum(event, end), event <= end, entry], 1)
        return x, torch.from_numpy(y.astype(np.float32))

    _, training = observed_rows(20_000)
    x, y = observed_rows(20_000)
    task = Survival(edges=tuple(times.tolist()), horizons=(5.0, 10.0)).fit(training)
    scores = {}
    for factor in (0.8, 1.0, 1.25):
        curves = np.exp(-0.1 * factor * np.exp(x)[:, None] * times)
        scores[factor] = task.evaluate(torch.from_numpy(curves), y)
    for name in ("integrated_brier", "horizon_brier", "horizon_calibration"):
        assert min(scores, key=lambda factor: float(scores[factor][name])) == 1.0, name
    # of all, also of those who had the event before they could enter
    everyone = np.exp(-0.1 * np.exp(draw.normal(size=100_000))[:, None] * times)
    by_time = (everyone * (1 - everyone)).mean(0)
    expected = np.trapezoid(by_time, times) / 9
    assert float(scores[1.0]["integrated_brier"]) == pytest.approx(expected, abs=0.005)
