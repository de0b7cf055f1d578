"""Tuned methods: each client chooses on its own validation rows, or all by ``tune_seeds``; scenarios together."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import rankdata

from fedlit.__main__ import main
from fedlit.errors import ConfigError, RunError
from fedlit.study.choose import best_on_validation
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.job import Job, title_of
from fedlit.study.lift import Scores
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.runner import run_jobs
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study
from fedlit.study.tune import TUNED, TUNING

SMALL = {
    "data.batches": 2,
    "model.client.network.hidden": [8, 8, 8],
    "data.source.init_args.clients": ["wine", "breast_cancer"],
    "trainer.max_epochs": 2,
    "board.confusion_matrices": 0,
}
RATES = [0.01, 0.3]  # too fast for breast_cancer, and wine needs it: clients choose differently
LR, RATE = "model.optimizer.lr", "exchange.rate"


def study(folder: Path, **gl: Any) -> Study:
    content = {
        "seeds": "1:2",
        "baselines": [],
        "metrics": ["auroc"],
        "bootstrap": 10,
        "methods": {
            "local": {"config": "quickstart.yaml", "set": {**SMALL, "exchange.federated": []}},
            "gl": {"label": "Shared <core>", "config": "quickstart.yaml", "set": SMALL, **gl},
        },
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
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


# ------------------------------------------------------------------ each client chooses


def test_each_client_has_the_results_of_what_is_best_on_its_own_validation_rows(found: Comparison) -> None:
    results = found.collected.scores.set_index(["method", "seed", "client"]).sort_index()
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


def test_what_is_done_is_not_run_again(
    found: Comparison, jobs: list[Job], tuned: Study, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    done = {path: path.stat().st_mtime_ns for path in found.folder.glob("runs/*/*/DONE")}
    again = compare(tuned, out=found.folder, jobs=1, say=said.append)
    assert len(done) == 6 and said == ["6 of 6 runs are done already"] and not capfd.readouterr().out
    pd.testing.assert_frame_equal(again.collected.scores, found.collected.scores)
    lost = next(path for path in done if "@" in path.parent.parent.name)
    lost.unlink()
    assert run_jobs(jobs, 1, quiet=True) == {}
    assert [path for path, then in done.items() if path.stat().st_mtime_ns != then] == [lost]
    pd.testing.assert_frame_equal(collect(found.study, jobs).scores, found.collected.scores)


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
    assert set(own.scores["method"]) == {"local"} and own.tuned.empty
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


# ------------------------------------------------------------------ plans


def test_a_grid_that_grows_keeps_what_was_trained(tmp_path: Path, tuned: Study) -> None:
    plain, empty = (plan_jobs(own, [1], tmp_path) for own in (study(tmp_path), study(tmp_path, tune={})))
    assert plain == empty and [job.folder for job in plain] == [f"{tmp_path}/runs/{n}/seed_1" for n in ("local", "gl")]
    assert [Job.of(json.loads(json.dumps(job.request()))) for job in plain] == plain
    jobs = plan_jobs(tuned, [1], tmp_path)
    assert jobs[0] == plain[0] and [job.settings for job in jobs[1:]] == [{LR: rate} for rate in RATES]
    for key in ("digest", "folder", "name"):
        assert len({getattr(job, key) for job in (*plain, *jobs)}) == 4
    more = replace(tuned.methods["gl"], tune={LR: [0.5, *RATES]})
    grown = plan_jobs(replace(tuned, methods={**tuned.methods, "gl": more}), [1], tmp_path)
    assert grown[0] == jobs[0] and grown[2:] == jobs[1:]
    assert title_of("gl", {"exchange.federated": ["core"]}) == 'gl (exchange.federated=["core"])'


def test_a_tuned_reference_gives_baselines_and_means_the_same_rows(tmp_path: Path, tuned: Study) -> None:
    models = {"logistic_regression": None, "extra_trees": None, "trees_and_linear": None}
    whole = replace(tuned, methods={"local": replace(tuned.methods["local"], tune={LR: RATES})}, baselines=models)
    before = plan_jobs(replace(whole, methods={"local": tuned.methods["local"]}), [1], tmp_path)
    jobs = plan_jobs(whole, [1], tmp_path)
    assert [job.settings for job in jobs] == [{LR: RATES[0]}, {LR: RATES[1]}, None, None, None]
    assert [job.digest for job in jobs[2:]] == [job.digest for job in before[1:]]
    assert jobs[4].after == [jobs[3].folder, jobs[2].folder] and BEST_ALONE in whole.labels


@pytest.mark.parametrize(
    ("tune", "word"),
    [
        ({RATE: [0.5, "0.5"]}, "methods.gl.tune: expected combinations that differ"),
        ({"model.threads": [1, 2]}, "alike"),
        ({"model.optimizer.lrate": [0.5]}, "methods.gl (model.optimizer.lrate=0.5)"),
        ({"exchange.federated": [["core"], []]}, "methods.gl (exchange.federated=[])"),
        ({"data": [{"batches": 2, "source": {"class_path": "fedlit.Bundled", "init_args": {"test": 0.4}}}]},
         "data.source"),
    ],
)  # fmt: skip
def test_every_combination_is_checked_before_the_first_run(tmp_path: Path, tune: Any, word: str) -> None:
    own = study(tmp_path, tune=tune)
    for each in (own, replace(own, tune_seeds=[60])):
        with pytest.raises(ConfigError) as caught:
            compare(each, out=tmp_path / "out", quiet=True)
        assert word in str(caught.value) and not (tmp_path / "out" / "runs").exists()


# ------------------------------------------------------------------ one choice for all, and scenarios

CONTENT: dict[str, Any] = {
    "seeds": "1:2",
    "tune_seeds": 60,
    "tune": {LR: [0.001, 0.3]},
    "methods": {
        "local": {"method": "local"},
        "mine": {"method": "mine.yaml", "label": "Mine", "tune": {RATE: [0.5, 1.0]}},
        "fixed": {"method": "mine.yaml", "label": "Fixed", "set": {LR: 0.01}},
        "broken": {"method": "krum.yaml", "label": "Broken"},
    },
    "scenarios": {
        "both": {"config": "quickstart", "set": SMALL, "about": "Two tables."},
        "longer": {"config": "quickstart", "set": {**SMALL, "trainer.max_epochs": 4}, "tune": {LR: [0.01]}},
    },
    "baselines": [],
    "metrics": ["auroc", "balanced_accuracy"],
    "bootstrap": 0,
    "explain": False,
}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a study lies that was run by its command, and what that said."""
    folder = tmp_path_factory.mktemp("settled")
    (folder / "mine.yaml").write_text("exchange: {federated: [core]}\n", encoding="utf-8")
    krum = "exchange: {federated: [core], rule: {class_path: fedlit.Krum}}\n"  # of two clients it refuses to choose
    (folder / "krum.yaml").write_text(krum, encoding="utf-8")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(CONTENT, sort_keys=False), encoding="utf-8")
    with redirect_stdout(io.StringIO()) as said:
        assert main(["compare", str(folder / "tiny.yaml"), "--out", str(folder / "out"), "--jobs", "1"]) == 1
    return folder / "out", said.getvalue()


def test_what_is_best_on_average_on_tune_seeds_is_trained_with_the_others(command: tuple[Path, str]) -> None:
    out = command[0] / "both"
    settled = pd.read_csv(out / TUNED)
    assert settled.groupby("method").size().to_dict() == {"local": 2, "mine": 4, "broken": 2}
    for name in ("local", "mine"):
        own = settled[settled["method"] == name]
        assert own["chosen"].sum() == 1 and own.loc[own["chosen"], "value"].item() == own["value"].max()
        chosen = json.loads(own.loc[own["chosen"], "settings"].item())
        for seed in (1, 2):
            config = next((out / "runs" / name / f"seed_{seed}").glob("version_0/config.yaml"))
            said = yaml.safe_load(config.read_text(encoding="utf-8"))
            assert said["model"]["optimizer"]["init_args"]["lr"] == chosen[LR]
            assert said["exchange"]["rate"] == chosen.get(RATE, 1.0)
    # an oracle of its own: each trial's file of scores
    values = []
    for done in (out / TUNING).glob("runs/mine@*/seed_60/DONE"):
        scores = pd.read_csv(done.parent / "scores.csv")
        assert set(scores["split"]) == {"validation"}, "no test row is scored"
        values.append(scores[scores["metric"] == "auroc"]["value"].mean())
    assert np.allclose(sorted(values), sorted(settled[settled["method"] == "mine"]["value"]))


def test_a_method_whose_trials_all_fail_does_not_end_the_others(command: tuple[Path, str]) -> None:
    settled = pd.read_csv(command[0] / "both" / TUNED).set_index("method")
    assert settled.loc["broken", "value"].isna().all()
    assert set(pd.read_csv(command[0] / "both" / "results.csv")["method"]) >= {"local", "mine", "fixed"}
    assert "broken: no combination of settings came to its end" in command[1]


def test_a_scenario_has_a_grid_of_its_own_and_one_value_is_no_choice(command: tuple[Path, str]) -> None:
    settled = pd.read_csv(command[0] / "longer" / TUNED)
    assert set(settled["method"]) == {"mine"} and {json.loads(own)[LR] for own in settled["settings"]} == {0.01}


def test_scenarios_are_ranked_together(command: tuple[Path, str]) -> None:
    ranks = pd.read_csv(command[0] / "ranks.csv").set_index("method")
    values = []
    for scenario in ("both", "longer"):
        results = pd.read_csv(command[0] / scenario / "results.csv")
        own = results[(results["split"] == "test") & (results["metric"] == "auroc")]
        values.append(own.groupby(["client", "method"])["value"].mean().unstack())
    wide = pd.concat(values)[list(ranks.index)]
    assert np.allclose(ranks["rank"], rankdata(-wide.to_numpy(), axis=1).mean(0))
