"""Choices and lifts: scores of which less is better, from a choice on validation to the report,
numbers made by hand; verdicts; and what the others gain by a client, against federations that were
trained without it.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federations import BUNDLED
from study.conftest import jobs_of, write_study

from fedlit.answers.decide import answer_of
from fedlit.answers.shown import summary
from fedlit.answers.verdict import Verdict
from fedlit.errors import ConfigError
from fedlit.jobs.job import FitAlone, Job
from fedlit.run.load import load
from fedlit.statistics import corrected_interval, over_seeds
from fedlit.study.answers import answers
from fedlit.study.baselines import fit_baseline
from fedlit.study.basis import Basis
from fedlit.study.collect import Collected, best_in_hindsight, best_on_validation, collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.lift import (
    LEFT_OUT,
    MEAN,
    OTHERS,
    WORST,
    Scores,
    estimates,
    leave_one_out,
)
from fedlit.study.method import Method
from fedlit.study.plan import plan_jobs
from fedlit.study.report import provenance
from fedlit.study.resolve import ResolvedStudy, resolve
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, StudyFile
from fedlit.study.tables import lift_table, score_table
from fedlit.tasks import SCORES, Classification, Regression

# RMSE on validation and on test, by method, seed and client
VALUES = {
    ("local", 1, "a"): (5.0, 4.0), ("local", 1, "b"): (9.0, 10.0), ("local", 2, "a"): (5.0, 5.0),
    ("local", 2, "b"): (8.0, 9.0), ("gl", 1, "a"): (3.0, 3.0), ("gl", 1, "b"): (9.5, 10.5),
    ("gl", 2, "a"): (3.0, 3.0), ("gl", 2, "b"): (8.5, 9.0),
    ("other", 1, "a"): (4.0, 2.0), ("other", 1, "b"): (7.0, 9.0), ("other", 2, "a"): (4.0, 1.0),
    ("other", 2, "b"): (7.0, 9.0),
}  # fmt: skip


def tidy(
    values: dict[tuple[str, int, str], tuple[float, float]], metric: str = "rmse"
) -> pd.DataFrame:
    rows = [
        ("made", "", *key, split, metric, value)
        for key, both in values.items()
        for split, value in zip(("validation", "test"), both, strict=True)
    ]
    return pd.DataFrame(
        rows, columns=["study", "without", "method", "seed", "client", "split", "metric", "value"]
    )


def made() -> ResolvedStudy:
    local = Method("quickstart.yaml", label="Local")
    methods = {"local": local, "other": Method("quickstart.yaml", label="Other", alone=True)}
    methods["gl"] = Method("quickstart.yaml", label="Shared")
    file = StudyFile(methods, seeds=[1, 2], baselines={}, bootstrap=0, name="made")
    return resolve(file, None, dict.fromkeys("ab", Regression))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    study = replace(made(), metrics=["rmse"])
    chosen = [
        best_on_validation(tidy(VALUES), among, study.choose).assign(best=best, without="")
        for best, among in ((BEST_ALONE, study.alone), (BEST_FEDERATED, study.candidates))
    ]
    records = [
        {"method": name, "seed": 1, "seconds": 1.0, "versions": {"fedlit": "0"}, "finished": "2026-01-01",
         "machine": {"processor": "P", "cores": 1, "gpus": []}}
        for name in ("local", "gl", "other")
    ]  # fmt: skip
    tuned = pd.DataFrame(columns=["without", "seed", "client", "method", "best", "settings"])
    collected = Collected(
        tidy(VALUES),
        pd.concat(chosen),
        pd.DataFrame(records),
        {},
        True,
        {"a": 0.5, "b": 0.5},
        tuned,
        pd.DataFrame(),
    )
    return Comparison.of(study, [1, 2], collected, tmp_path_factory.mktemp("made"))


def test_what_is_chosen_depends_on_validation_alone() -> None:
    nan = float("nan")
    names = ["local", "never_ran", "trees", "linear"]
    known = {
        (1, "a"): (0.7, 0.8, 0.8),
        (1, "b"): (0.9, 0.8, nan),
        (2, "a"): (0.5, 0.4, 0.6),
        (2, "b"): (nan, nan, nan),
    }
    values = {
        (name, *key): (value, 1 - value)
        for key, own in known.items()
        for name, value in zip(("local", "trees", "linear"), own, strict=True)
    }
    values["local", 3, "a"] = 0.9, 0.9  # seed 3: the others are missing
    values |= {(name, 4, "c"): (0.0, 0.5) for name in ("local", "trees", "linear")}
    results = tidy(values, "auroc")
    # no validation rows
    results = results[(results["client"] != "c") | (results["split"] == "test")]
    best = {(1, "a"): "trees", (1, "b"): "local", (2, "a"): "linear"}
    for undecided, more in (("none", {}), ("first", {(2, "b"): "local", (4, "c"): "local"})):
        own = best_on_validation(results, names, dict.fromkeys("abc", "auroc"), undecided=undecided)  # type: ignore[arg-type]
        assert own.set_index(["seed", "client"])["method"].to_dict() == {**best, **more}


def test_in_hindsight_one_model_is_best_over_all_seeds() -> None:
    found = best_in_hindsight(
        tidy(VALUES), ["local", "other", "gl"], dict.fromkeys("ab", "rmse")
    ).set_index(["client", "seed"])["method"]
    assert found.to_dict() == {
        ("a", 1): "other",
        ("a", 2): "other",
        ("b", 1): "other",
        ("b", 2): "other",
    }
    lost = {key: (0.0, np.nan) if key[:2] == ("other", 1) else both for key, both in VALUES.items()}
    assert set(
        best_in_hindsight(tidy(lost), ["local", "other", "gl"], dict.fromkeys("ab", "rmse")).query(
            "client == 'a'"
        )["method"]
    ) == {"gl"}


def test_a_lift_is_by_how_much_lower(found: Comparison) -> None:
    lift = found.lift.set_index(["reference", "method", "client"])
    # a: 4 - 3 and 5 - 3; b: 10 - 10.5 and 9 - 9; mean over clients: 7 - 6.75 and 7 - 6; worst: 10 -
    # 10.5 and 9 - 9
    for client, mean in (("a", 1.5), ("b", -0.25), (MEAN, 0.625), (WORST, -0.25)):
        assert lift.loc[("local", "gl", client), "mean"] == mean, client
    # over the best alone, which is `other` for both: 2 - 3 and 1 - 3; 9 - 10.5 and 9 - 9
    assert (
        lift.loc[(BEST_ALONE, "gl", "a"), "mean"] == -1.5
        and lift.loc[(BEST_ALONE, "gl", "b"), "mean"] == -0.75
    )
    table = lift_table(found.study, found.lift, SCORES["rmse"], "local", found.clients)
    cells = list(table.loc["Shared"])
    assert [cell.partition(" ")[0] for cell in cells[:4]] == ["+1.5", "-0.25", "+0.625", "-0.25"]
    # two seeds are not enough for a verdict
    assert cells[4] == "0 / 0 / 0 / 2" and cells[0] == "+1.5 (-4.853 to +7.853)"


def test_the_worst_client_has_the_largest_error(
    found: Comparison,
) -> None:
    own = found.estimates.set_index(["method", "client"])
    assert own.loc[("local", WORST), "mean"] == 9.5 and own.loc[("local", "a"), "mean"] == 4.5
    # an interval is cut at 0 only
    assert (own["low"].dropna() >= 0).all() and own["high"].max() > 10.5
    table = score_table(found.study, found.estimates, SCORES["rmse"], found.clients)
    assert [cell.partition(" ")[0] for cell in table.loc["Other"]] == ["1.5", "9", "5.25", "9"]


def test_resamples_count_the_same_way(found: Comparison) -> None:
    drawn = {("a", "rmse"): [1.0, 5.0], ("b", "rmse"): [2.0, 3.0]}
    columns = pd.MultiIndex.from_tuples(list(drawn))
    first = pd.DataFrame(np.array(list(drawn.values())).T, columns=columns)
    scores = Scores(
        replace(found.collected, bootstrap={("gl", 1, ""): first, ("local", 1, ""): first + 1})
    )
    assert scores.resamples("gl", WORST, "rmse", (1,)).tolist() == [2.0, 5.0]
    assert scores.resamples("gl", MEAN, "rmse", (1,)).tolist() == [1.5, 4.0]


def test_what_a_study_leaves_open_comes_from_the_tasks() -> None:
    whole = StudyFile({"local": Method("a.yaml"), "gl": Method("b.yaml")}, seeds="1:2")
    alike = resolve(whole, None, {"a": Classification, "b": Classification})
    assert alike.choose == {"a": "auroc", "b": "auroc"} and alike.choices == ["auroc"]
    assert alike.metrics == ["auroc", "balanced_accuracy", "auprc"] and alike.seeds == [1, 2]
    numbers = resolve(whole, None, {"a": Regression})
    assert (numbers.choose, numbers.metrics) == ({"a": "rmse"}, ["rmse", "mae", "r2"])
    assert list(numbers.baselines) == [
        "extra_trees",
        "gradient_boosting",
        "ridge",
        "trees_and_linear",
    ]
    both = resolve(whole, None, {"a": Classification, "b": Regression})
    assert both.choose == {"a": "auroc", "b": "rmse"} and both.choices == ["auroc", "rmse"]
    assert both.metrics == [*alike.metrics, *numbers.metrics]
    named = replace(whole, choose="mae", metrics=["r2"], baselines={})
    written = resolve(named, None, {"a": Regression, "b": Regression})
    assert (written.choose, written.metrics) == ({"a": "mae", "b": "mae"}, ["r2"])
    assert written.baselines == {}
    best = replace(whole, checkpoint="best")
    with pytest.raises(ConfigError, match="checkpoint"):
        resolve(best, None, {"a": Classification, "b": Regression})
    assert resolve(best, None, {"a": Regression}).checkpoint == "best"


def test_clients_of_different_tasks_choose_by_their_own(found: Comparison) -> None:
    right = {
        key: (1 - both[0] / 10, 1 - both[1] / 20) for key, both in VALUES.items() if key[2] == "b"
    }
    results = pd.concat([tidy(VALUES).query("client == 'a'"), tidy(right, "accuracy")])
    # no model for its task
    results = results[~((results["method"] == "local") & (results["client"] == "b"))]
    choose = {"a": "rmse", "b": "accuracy"}
    chosen = best_on_validation(results, ["local", "gl", "other"], choose).set_index(
        ["seed", "client"]
    )["method"]
    assert chosen.to_dict() == {
        (1, "a"): "gl",
        (1, "b"): "other",
        (2, "a"): "gl",
        (2, "b"): "other",
    }
    assert found.clients_of(SCORES["rmse"]) == ["a", "b", MEAN, WORST]


def test_a_model_of_another_task_is_left_out_and_named(tmp_path: Path, found: Comparison) -> None:
    clients = {"data.source.init_args.clients": ["diabetes", "breast_cancer"]}
    folder = str(tmp_path / "runs" / "trees" / "seed_1")
    grid = {"classification": {"n_estimators": [5]}}
    job = Job(
        "extra_trees",
        1,
        folder,
        {},
        FitAlone(str(BUNDLED), clients, grid),
        {"breast_cancer": "auroc"},
    )
    results, details = fit_baseline(job)
    assert set(results.table.frame["client"]) == {"breast_cancer"} and details["without"] == [
        "diabetes"
    ]
    records = found.collected.records.assign(without=pd.Series([None, ["wine"], None]))
    lines = provenance(replace(found, collected=replace(found.collected, records=records)))
    assert any("Shared" in line and "task of wine" in line for line in lines)


VERDICTS = [
    ((-0.0010, -0.0010), 0.5, Verdict.FEW),  # two seeds are never enough
    ((0.03, 0.03), 0.5, Verdict.FEW),
    ((0.028, 0.030, 0.032, 0.031, 0.029), 0.5, Verdict.JOIN),  # three points on five seeds
    ((-0.028, -0.030, -0.032, -0.031, -0.029), 0.5, Verdict.ALONE),
    ((0.0010, 0.0011, 0.0009, 0.0010, 0.0012), 0.5, Verdict.SAME),  # sure, and too small to matter
    ((0.0010, 0.0011, 0.0009, 0.0010, 0.0012), 0.05, Verdict.JOIN),
    ((0.0, 0.0, 0.0), 0.5, Verdict.SAME),
    ((0.05, -0.03, 0.02), 0.5, Verdict.FEW),
]


@pytest.mark.parametrize(("values", "matters", "kind"), VERDICTS)
def test_verdicts_need_three_seeds_and_a_lift_that_matters(
    values: tuple[float, ...], matters: float, kind: Verdict
) -> None:
    lift = over_seeds(values, ratio=0.0)
    score = SCORES["auroc"]
    least = score.least_lift(matters, 0.9)
    reached: dict[str, Any] = {"reference": "Local", "alone": 0.9, "federated": 0.9 + lift.mean}
    answer = answer_of("ward", score, lift, least, methods=["GL"], rows=40, **reached)
    assert answer.verdict == kind and answer.title.startswith(kind.words)
    assert ("needs 3" in answer.reason) == (len(values) < 3)
    assert summary([answer]).startswith("Of 1 client, ") and "(ward)" in summary([answer])


def source(*clients: str) -> dict[str, Any]:
    return {"data.source": {"class_path": "four.Four", "init_args": {"clients": [*clients]}}}


FOUR = source("class", "count", "labels", "number")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Clients of all four tasks; each left out in turn."""
    alone = {"config": "tiny.yaml", "set": {**FOUR, "exchange.federated": []}}
    methods = {"local": alone, "shared": {"config": "tiny.yaml", "set": FOUR}}
    other: dict[str, Any] = {
        "baselines": [],
        "bootstrap": 0,
        **dict.fromkeys(("choose", "metrics", "paper")),
    }
    study = write_study(
        tmp_path_factory.mktemp("four"), methods=methods, leave_one_out=True, **other
    )
    return compare(str(study), out=study.parent / "out", workers=1, quiet=True)


def test_each_clients_card_shows_the_score_of_its_task(four: Comparison) -> None:
    shown = {"class": "AUROC", "count": "Poisson deviance", "labels": "AUROC", "number": "RMSE"}
    page = (four.folder / "report.html").read_text("utf-8")
    assert (
        dict(
            re.findall(
                r"<h3>(\w+)</h3>.*?<p>([\w ]+?)(?: \(lower is better\))?: lift", page, re.DOTALL
            )
        )
        == shown
    )


def test_tables_show_a_dash_for_who_has_no_such_score(four: Comparison) -> None:
    table = score_table(four.study, four.estimates, SCORES["r2"], four.clients)
    assert [cell == "–" for cell in table.loc["shared"]] == [
        own != "number" for own in four.clients
    ]
    assert four.clients_of(SCORES["r2"]) == ["number"]


def test_what_others_gain_is_that_of_runs_made_by_hand(four: Comparison, tmp_path: Path) -> None:
    """The federation without one, made from a source that does not have it."""
    scores = four.collected.scores
    tested = scores[
        (scores["method"] == "shared") & (scores["split"] == "test") & (scores["without"] == "")
    ]
    whole = tested.set_index(["metric", "client", "seed"])["value"]
    differences = []
    for seed in (1, 2):
        made = {
            **source("count", "labels", "number"),
            "seed": seed,
            "trainer.default_root_dir": str(tmp_path),
        }
        run = load(str(four.folder.parent / "tiny.yaml"), overrides=made)
        run.fit(quiet=True)
        own = run.test("last", quiet=True).scores["labels"]["auroc"]
        differences.append(whole["auroc", "labels", seed] - own)
    table: Any = pd.read_csv(four.folder / LEFT_OUT).set_index(
        ["metric", "method", "joins", "client"]
    )
    for client in ("labels", OTHERS):  # the others have scores of their own
        row = table.loc[("auroc", "shared", "class", client)]
        assert row["mean"] == pytest.approx(np.mean(differences), abs=1e-7) and row["n"] == 2
    ratio = four.collected.ratio["labels"]
    assert row[["low", "high"]].tolist() == pytest.approx(
        corrected_interval(differences, ratio), abs=1e-6
    )
    lift = four.lift.set_index(["metric", "reference", "method", "client"])["mean"]
    assert (
        table.loc[("auroc", "shared", "class", "class"), "mean"]
        == lift["auroc", "local", "shared", "class"]
    )
    assert len(list(four.folder.glob("runs/shared~*/seed_*/DONE"))) == four.collected.lacking == 8
    assert (
        set(four.collected.records["method"]) == {"local", "shared"}
        and len(four.collected.records) == 4
    )
    told = [line for own in four.answers for line in own.remarks]
    sentence = next(
        line for line in told if line.startswith("Should class join? For class itself: ")
    )
    assert f"{sentence}." in str(four) and f"{sentence}." in (four.folder / "tables.md").read_text(
        "utf-8"
    )


def test_what_failed_is_not_known_and_said_so(four: Comparison) -> None:
    jobs = plan_jobs(four.study, [1, 2], four.folder, Basis(four.study))
    own = collect(four.study, [job for job in jobs if job.left_out != "number"])
    assert set(own.results["without"]) == {"", "class", "count", "labels"}
    scores = Scores(own)
    table = leave_one_out(four.study, scores)
    told = answers(four.study, scores, estimates(four.study, scores), table)
    assert told[-1].client == "number" and "For the others: not known" in told[-1].remarks[-1]


def test_where_there_is_nobody_to_leave_out_it_is_refused(four: Comparison, tmp_path: Path) -> None:
    study = four.study
    one = {"data.source.init_args.clients": ["north"]}
    with pytest.raises(ConfigError, match="leave_one_out: expected a federated method"):
        only = replace(study, methods={"local": study.methods["local"]})
        plan_jobs(only, [1], tmp_path, Basis(only))
    alone = Method("quickstart", set={**one, "exchange.federated": []})
    methods = {"local": alone, "gl": Method("quickstart", set=one)}
    with pytest.raises(ConfigError, match="leave_one_out: expected three clients or more"):
        jobs_of(StudyFile(methods, [1], leave_one_out=True, baselines={}), [1], tmp_path)
