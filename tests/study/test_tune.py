"""A tuned method: each client's settings are those that are best on its own validation rows."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlit.errors import ConfigError, RunError
from fedlit.study.choose import best_on_validation
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.job import Job, title_of
from fedlit.study.lift import Scores
from fedlit.study.method import Method
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.runner import run_jobs
from fedlit.study.search import search
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study

SMALL = {
    "data.batches": 2,
    "model.client.network.hidden": [8, 8, 8],
    "data.source.init_args.clients": ["wine", "breast_cancer"],
    "trainer.max_epochs": 2,
    "board.confusion_matrices": 0,
}
RATES = [0.01, 0.3]  # too fast for breast_cancer, and wine needs it: clients choose differently
LR = "model.optimizer.lr"


def content(**gl: Any) -> dict[str, Any]:
    return {
        "seeds": "1:2",
        "baselines": [],
        "metrics": ["auroc"],
        "bootstrap": 10,
        "methods": {
            "local": {"config": "quickstart.yaml", "set": {**SMALL, "exchange.federated": []}},
            "gl": {"label": "Shared <core>", "config": "quickstart.yaml", "set": SMALL, **gl},
        },
    }


def study(folder: Path, **gl: Any) -> Study:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(content(**gl), sort_keys=False), encoding="utf-8")
    return load_study(str(folder / "tiny.yaml"))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study(tmp_path_factory.mktemp("tuned"), tune={LR: RATES})


@pytest.fixture(scope="module")
def found(tuned: Study, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(tuned, out=tmp_path_factory.mktemp("found"), jobs=1, quiet=True)


@pytest.fixture(scope="module")
def jobs(found: Comparison) -> list[Job]:
    return plan_jobs(found.study, found.seeds, found.folder)


def test_each_client_has_the_results_of_what_is_best_on_its_own_validation_rows(found: Comparison) -> None:
    results = found.collected.results.set_index(["method", "seed", "client"]).sort_index()
    picked = pd.read_csv(found.folder / "tuned.csv").set_index(["method", "seed", "client"])["settings"].map(json.loads)
    assert len(picked) == 2 * 2 and picked.map(str).nunique() == 2
    scores = {}
    for done in found.folder.glob("runs/gl@*/seed_*/DONE"):
        record = json.loads(done.read_text(encoding="utf-8"))
        scores[record["seed"], record["settings"][LR]] = pd.read_csv(done.parent / "scores.csv")
    assert set(scores) == {(seed, rate) for seed in (1, 2) for rate in RATES}
    for seed in (1, 2):
        for client in ("wine", "breast_cancer"):
            values = {}
            for rate in RATES:
                own = scores[seed, rate].query("client == @client and split == 'validation' and metric == 'auroc'")
                values[rate] = own["value"].item()
            best = max(RATES, key=lambda rate: values[rate])  # the first of equals
            assert picked["gl", seed, client] == {LR: best}
            expected = scores[seed, best].query("client == @client").set_index(["split", "metric"])["value"]
            own = results.loc[("gl", seed, client)].set_index(["split", "metric"])["value"]
            pd.testing.assert_series_equal(own.sort_index(), expected.sort_index())


def test_combinations_are_no_methods(found: Comparison) -> None:
    assert set(found.collected.scores["method"]) == {"local", "gl", BEST_FEDERATED}
    assert not found.collected.scores.duplicated(["method", "seed", "client", "split", "metric"]).any()
    assert set(found.lift["method"]) == {"gl", BEST_FEDERATED}
    picked = found.collected.tuned["settings"].map(lambda text: json.loads(text)[LR]).value_counts()
    line = f"({LR}={picked.index[0]}): {picked.iloc[0]}x"
    tables = (found.folder / "tables.md").read_text(encoding="utf-8")
    assert f"- Shared <core> {line}\n" in tables and "federation of its own" in tables and "gl@" not in tables
    report = (found.folder / "report.html").read_text(encoding="utf-8")
    assert f"<li>Shared &lt;core&gt; {line}</li>" in report and "6 of 6 runs" in report and "gl@" not in report
    assert "s for each of 2 combinations" in report and "s for each of 2 combinations" in tables


@pytest.mark.full
def test_what_is_done_is_not_run_again(
    found: Comparison, jobs: list[Job], tuned: Study, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    done = {path: path.stat().st_mtime_ns for path in found.folder.glob("runs/*/*/DONE")}
    again = compare(tuned, out=found.folder, jobs=1, say=said.append)
    assert len(done) == 6 and said == ["6 of 6 runs are done already"] and not capfd.readouterr().out
    pd.testing.assert_frame_equal(again.collected.results, found.collected.results)
    lost = next(path for path in done if "@" in path.parent.parent.name)
    lost.unlink()
    assert run_jobs(jobs, 1, quiet=True) == {}
    assert [path for path, then in done.items() if path.stat().st_mtime_ns != then] == [lost]
    pd.testing.assert_frame_equal(collect(found.study, jobs).results, found.collected.results)


def test_a_seed_of_which_a_combination_is_missing_is_left_out(found: Comparison, jobs: list[Job]) -> None:
    one = next(job for job in jobs if job.seed == 1 and job.settings == {LR: RATES[1]})
    assert one.name == f"gl ({LR}=0.3), seed 1"
    broken = [replace(job, digest="none") if job is one else job for job in jobs]
    results = collect(found.study, broken).scores
    assert set(results.loc[results["method"] == "gl", "seed"]) == {2}
    assert set(results.loc[results["method"] == BEST_FEDERATED, "seed"]) == {2}
    assert set(results.loc[results["method"] == "local", "seed"]) == {1, 2}
    # each seed lacks another one: there is nothing to choose from
    lacking = [job for job in jobs if (job.seed, job.settings) in ((1, {LR: RATES[1]}), (2, {LR: RATES[0]}))]
    broken = [replace(job, digest="none") if job in lacking else job for job in jobs]
    own = collect(found.study, broken)
    assert set(own.results["method"]) == {"local"} and own.tuned.empty
    with pytest.raises(RunError, match="every combination"):
        collect(found.study, [job for job in broken if job.method == "gl"])


def test_bootstrap_is_that_of_the_chosen(found: Comparison, jobs: list[Job]) -> None:
    # as if seeds had the same test rows: each method has its own folder of resamples
    fixed = replace(found.study, seeds=[1])
    collected = collect(fixed, [job for job in jobs if job.seed == 1])
    assert collected.fixed and len(collected.bootstrap) == 3
    chosen = collected.tuned.set_index("client")["settings"]
    for client in ("wine", "breast_cancer"):
        own_settings = json.loads(str(chosen[client]))
        job = next(job for job in jobs if job.seed == 1 and job.settings == own_settings)
        own = pd.read_parquet(Path(job.folder) / "bootstrap.parquet")
        for method in ("gl", BEST_FEDERATED):
            drawn = Scores(collected).resamples(method, client, "auroc", [1])
            np.testing.assert_array_equal(drawn, own[client, "auroc"])


def test_the_choice_is_made_on_validation_whatever_the_test_says() -> None:
    rows = []
    nan = float("nan")
    for client, values in {"a": [0.7, 0.8, 0.8], "b": [nan, 0.4, 0.5], "none": [nan, nan, nan]}.items():
        for variant, value in zip(("gl@1", "gl@2", "gl@3"), values, strict=True):
            rows.append((variant, 1, client, "validation", "auroc", value))
            rows.append((variant, 1, client, "validation", "accuracy", 1 - np.nan_to_num(value)))
            rows.append((variant, 1, client, "test", "auroc", 1 - np.nan_to_num(value)))
    rows += [(variant, 1, "no rows", "test", "auroc", 0.5) for variant in ("gl@1", "gl@2", "gl@3")]
    rows.append(("gl@1", 2, "a", "validation", "auroc", 0.9))  # seed 2: the others are missing
    results = pd.DataFrame(rows, columns=["method", "seed", "client", "split", "metric", "value"])
    expected = {(1, "a"): "gl@2", (1, "b"): "gl@3"}
    first = {(1, "none"): "gl@1", (1, "no rows"): "gl@1"}
    candidates = ["gl@1", "gl@2", "gl@3"]
    for turned in (results, results.assign(value=results["value"].where(results["split"] != "test", 0.0))):
        for undecided, more in (("none", {}), ("first", first)):
            own = best_on_validation(turned, candidates, "auroc", undecided=undecided)  # type: ignore[arg-type]
            assert own.set_index(["seed", "client"])["method"].to_dict() == {**expected, **more}


@pytest.mark.full
def test_a_method_without_it_is_as_before(tmp_path: Path, tuned: Study) -> None:
    plain, empty = (plan_jobs(own, [1], tmp_path) for own in (study(tmp_path), study(tmp_path, tune={})))
    assert plain == empty
    assert [Path(job.folder).relative_to(tmp_path).as_posix() for job in plain] == [
        "runs/local/seed_1", "runs/gl/seed_1"
    ]  # fmt: skip
    jobs = plan_jobs(tuned, [1], tmp_path)
    assert jobs[0] == plain[0] and [job.settings for job in jobs[1:]] == [{LR: rate} for rate in RATES]
    for field in ("digest", "folder", "name"):
        assert len({getattr(job, field) for job in (*plain, *jobs)}) == 4
    # a grid that grows keeps what was trained; names of methods are as they were, whatever is tuned
    more = replace(tuned.methods["gl"], tune={LR: [0.5, *RATES]})
    grown = plan_jobs(replace(tuned, methods={**tuned.methods, "gl": more}), [1], tmp_path)
    assert grown[0] == jobs[0] and grown[2:] == jobs[1:]
    assert set(tuned.labels) == {"local", "gl", BEST_FEDERATED} and tuned.restricted(["gl"], None).methods["gl"].tune


def test_a_tuned_reference_gives_baselines_the_same_rows(tmp_path: Path, tuned: Study) -> None:
    local = replace(tuned.methods["local"], tune={LR: RATES, "exchange.rate": [0.5, 1.0]})
    whole = replace(tuned, methods={"local": local}, baselines={"logistic_regression": None})
    before = plan_jobs(replace(whole, methods={"local": tuned.methods["local"]}), [1], tmp_path)
    jobs = plan_jobs(whole, [1], tmp_path)
    assert [job.settings for job in jobs[:4]] == [
        {LR: RATES[0], "exchange.rate": 0.5}, {LR: RATES[0], "exchange.rate": 1.0},
        {LR: RATES[1], "exchange.rate": 0.5}, {LR: RATES[1], "exchange.rate": 1.0},
    ]  # fmt: skip
    assert jobs[4].digest == before[1].digest and jobs[4].folder == before[1].folder and jobs[4].settings is None
    assert BEST_ALONE in whole.labels


def test_values_are_put_into_configurations_as_they_stand(tmp_path: Path) -> None:
    own = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    values = ["torch.optim.Adam", own]
    assert study(tmp_path, tune={"model.optimizer": values}).methods["gl"].tune == {"model.optimizer": values}
    assert len(plan_jobs(study(tmp_path, tune={"exchange.federated": [["core"], ["core.0"]]}), [1], tmp_path)) == 3
    assert title_of("gl", {"exchange.federated": ["core"]}) == 'gl (exchange.federated=["core"])'


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({LR: []}, f"methods.gl.tune.{LR}: expected a list of at least one value and none twice, found []"),
        ({LR: 0.1}, f"{LR}: expected a list"),
        ({LR: [0.1, 0.1]}, "none twice, found [0.1, 0.1]"),
        ({"trainer.max_epochs": [1, 2]}, "methods.gl.tune.trainer.max_epochs: expected a key that is not in set"),
        ({"seed": [1, 2]}, "methods.gl.tune.seed: expected a key of the configuration that leaves the rows"),
        ({"data.source.init_args.test": [0.2, 0.3]}, "leaves the rows alone"),
        ({"data.mutations": [None, []]}, "leaves the rows alone"),
        ({3: [1, 2]}, "methods.gl.tune.3: expected a key"),
        ({LR: [dt.date(2026, 1, 2)]}, "expected numbers, text, lists and such"),
        ({"model.client.init_args.network.init_args.hidden": [[4]]}, "expected a key that is not in set"),
        ([LR], "tune"),
    ],
)
def test_a_wrong_grid_is_refused(tmp_path: Path, tune: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study(tmp_path, tune=tune)
    assert message in str(caught.value) and "tiny.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({"exchange.rate": [0.5, "0.5"]}, "methods.gl.tune: expected combinations that differ"),
        ({"model.threads": [1, 2]}, "found gl (model.threads=1) and gl (model.threads=2) alike"),
        ({"model.optimizer.lrate": [0.5]}, "methods.gl (model.optimizer.lrate=0.5): "),
        ({"exchange.federated": [["core"], []]}, "methods.gl (exchange.federated=[]): expected something"),
        ({"data": [{"batches": 2, "source": {"class_path": "fedlit.Bundled", "init_args": {"test": 0.4}}}]},
         "expected the rows of local, found another data.source"),
    ],
)  # fmt: skip
def test_every_combination_is_checked_before_the_first_run(tmp_path: Path, tune: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_jobs(study(tmp_path, tune=tune), [1], tmp_path)
    assert message in str(caught.value)


def test_a_search_has_nothing_to_do_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Job] = []

    def refuse(jobs: list[Job], *_: Any, **__: Any) -> dict[str, str]:
        planned.extend(jobs)
        return {job.name: "not trained" for job in jobs}

    monkeypatch.setattr("fedlit.study.trials.run_jobs", refuse)
    text = {**content(tune={LR: RATES}), "search": {"method": "gl", "space": {"exchange.rate": {"choices": [0.5, 1]}}}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    with pytest.raises(RunError, match="expected at least one trial"):
        search(str(tmp_path / "tiny.yaml"), trials=2, jobs=1, out=tmp_path / "out", quiet=True)
    assert len(planned) == 2 and all(job.settings is None for job in planned)
    assert Method("a").combinations == [{}]
