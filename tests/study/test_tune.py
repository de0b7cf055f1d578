"""Tuned methods: each client chooses on its own validation rows, or all by ``tune_seeds``; scenarios together."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import rankdata
from study.conftest import LR, METHODS, RATES, write_study

from fedlit.__main__ import main
from fedlit.errors import ConfigError, RunError
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.job import Job
from fedlit.study.lift import Scores
from fedlit.study.method import Method
from fedlit.study.parse import load_study
from fedlit.study.plan import Basis, plan_jobs
from fedlit.study.ranks import Ranks
from fedlit.study.runner import run_jobs
from fedlit.study.study import BEST_FEDERATED
from fedlit.study.tune import TUNED, TUNING
from fedlit.tasks import SCORES

RATE = "exchange.rate"


@pytest.fixture(scope="module")
def basis(compared: Comparison) -> Basis:
    return Basis(compared.study)


@pytest.fixture(scope="module")
def jobs(compared: Comparison) -> list[Job]:
    return plan_jobs(compared.study, compared.seeds, compared.folder)


# ------------------------------------------------------------------ each client chooses


def test_each_client_has_the_results_of_what_is_best_on_its_own_validation_rows(compared: Comparison) -> None:
    results = compared.collected.scores.set_index(["method", "seed", "client"]).sort_index()
    picked = (
        pd.read_csv(compared.folder / "tuned.csv").set_index(["method", "seed", "client"])["settings"].map(json.loads)
    )
    assert len(picked) == 2 * 2
    scores = {}
    for done in compared.folder.glob("runs/gl@*/seed_*/DONE"):
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
    compared: Comparison, jobs: list[Job], study_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    done = {path: path.stat().st_mtime_ns for path in compared.folder.glob("runs/*/*/DONE")}
    again = compare(str(study_file), out=compared.folder, jobs=1, say=said.append)
    assert f"{len(done)} of {len(done)} runs are done already" in said and not capfd.readouterr().out
    pd.testing.assert_frame_equal(again.collected.scores, compared.collected.scores)
    lost = next(path for path in done if "@" in path.parent.parent.name)
    lost.unlink()
    assert run_jobs(jobs, 1, quiet=True) == {}
    assert [path for path, then in done.items() if path.stat().st_mtime_ns != then] == [lost]
    pd.testing.assert_frame_equal(collect(compared.study, jobs).scores, compared.collected.scores)


def test_a_seed_of_which_a_combination_is_missing_is_left_out(compared: Comparison, jobs: list[Job]) -> None:
    one = next(job for job in jobs if job.seed == 1 and job.settings == {LR: RATES[1]})
    assert one.name == f"gl ({LR}=0.1), seed 1"
    broken = [replace(job, digest="none") if job is one else job for job in jobs]
    results = collect(compared.study, broken).scores
    assert set(results.loc[results["method"] == "gl", "seed"]) == {2}
    assert set(results.loc[results["method"] == BEST_FEDERATED, "seed"]) == {2}
    # each seed lacks another one: there is nothing to choose from
    lacking = [job for job in jobs if (job.seed, job.settings) in ((1, {LR: RATES[1]}), (2, {LR: RATES[0]}))]
    broken = [replace(job, digest="none") if job in lacking else job for job in jobs]
    own = collect(compared.study, broken)
    assert "gl" not in set(own.scores["method"]) and own.tuned.empty
    with pytest.raises(RunError, match="every combination"):
        collect(compared.study, [job for job in broken if job.method == "gl"])


def test_bootstrap_is_that_of_the_chosen(compared: Comparison, jobs: list[Job]) -> None:
    # as if seeds had the same test rows: each method has its own folder of resamples
    own = [job for job in jobs if job.seed == 1 and job.method in ("local", "gl")]
    fixed = replace(compared.study, seeds=[1], methods={name: compared.study.methods[name] for name in ("local", "gl")})
    collected = collect(fixed, own)
    assert collected.fixed and len(collected.bootstrap) == 3
    chosen = collected.tuned.set_index("client")["settings"]
    for client in ("wine", "breast_cancer"):
        own_settings = json.loads(str(chosen[client]))
        job = next(job for job in jobs if job.seed == 1 and job.settings == own_settings)
        own = pd.read_parquet(Path(job.folder) / "bootstrap.parquet")
        for method in ("gl", BEST_FEDERATED):
            drawn = Scores(collected).resamples(method, client, "auroc", (1,))
            np.testing.assert_array_equal(drawn, own[client, "auroc"])


# ------------------------------------------------------------------ plans


def plan(folder: Path, basis: Basis, **methods: dict[str, Any]) -> list[Job]:
    study = write_study(folder, methods={"local": METHODS["local"], **methods}, baselines=[])
    return plan_jobs(load_study(str(study)), [1], Path("out"), basis)


def test_a_grid_that_grows_keeps_what_was_trained(tmp_path: Path, basis: Basis) -> None:
    gl = {key: value for key, value in METHODS["gl"].items() if key != "tune"}
    plain, empty, tuned, grown = (
        plan(tmp_path, basis, gl={**gl, **more})
        for more in ({}, {"tune": {}}, {"tune": {LR: RATES}}, {"tune": {LR: [0.5, *RATES]}})
    )
    assert plain == empty and [job.folder for job in plain] == ["out/runs/local/seed_1", "out/runs/gl/seed_1"]
    assert [Job.of(json.loads(json.dumps(job.request()))) for job in plain] == plain
    assert tuned[0] == plain[0] and [job.settings for job in tuned[1:]] == [{LR: rate} for rate in RATES]
    for key in ("digest", "folder", "name"):
        assert len({getattr(job, key) for job in (*plain, *tuned)}) == 4
    assert grown[0] == tuned[0] and grown[2:] == tuned[1:]


def test_a_tuned_reference_gives_baselines_and_means_the_same_rows(compared: Comparison, basis: Basis) -> None:
    local = compared.study.methods["local"]
    whole = replace(compared.study, methods={"local": replace(local, tune={LR: RATES})})
    before = plan_jobs(replace(whole, methods={"local": local}), [1], Path("out"), basis)
    jobs = plan_jobs(whole, [1], Path("out"), Basis(whole))
    assert [job.settings for job in jobs] == [{LR: RATES[0]}, {LR: RATES[1]}, None, None, None]
    assert [job.digest for job in jobs[2:4]] == [job.digest for job in before[1:3]]
    assert jobs[4].after == [jobs[2].folder, jobs[3].folder]


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
def test_every_combination_is_checked_before_the_first_run(tmp_path: Path, basis: Basis, tune: Any, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, basis, gl={**METHODS["gl"], "tune": tune})
    assert word in str(caught.value)


# ------------------------------------------------------------------ one choice for all, and scenarios

CONTENT: dict[str, Any] = {
    "seeds": 1,
    "tune_seeds": 60,
    "tune": {LR: [0.001, 0.3]},
    "methods": {
        "local": {"method": "local"},
        "mine": {"method": "mine.yaml", "label": "Mine", "tune": {RATE: [0.5, 1.0]}},
        "broken": {"method": "krum.yaml", "label": "Broken"},
    },
    "scenarios": {
        "both": {"config": "tiny.yaml", "about": "Two tables."},
        "longer": {"config": "tiny.yaml", "set": {"trainer.max_epochs": 4}, "tune": {LR: [0.01]}},
    },
    "metrics": ["auroc", "balanced_accuracy"],
    "bootstrap": 0,
}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a study lies that was run by its command, and what that said."""
    folder = tmp_path_factory.mktemp("settled")
    (folder / "mine.yaml").write_text("exchange: {federated: [core]}\n", encoding="utf-8")
    krum = "exchange: {federated: [core], rule: {class_path: fedlit.Krum}}\n"  # of two clients it refuses to choose
    (folder / "krum.yaml").write_text(krum, encoding="utf-8")
    study = write_study(folder, **CONTENT, baselines=[], choose=None, paper=None)
    with redirect_stdout(io.StringIO()) as said:
        assert main(["compare", str(study), "--out", str(folder / "out"), "--jobs", "1"]) == 1
    return folder / "out", said.getvalue()


def test_what_is_best_on_average_on_tune_seeds_is_trained_with_the_others(command: tuple[Path, str]) -> None:
    out = command[0] / "both"
    settled = pd.read_csv(out / TUNED)
    assert settled.groupby("method").size().to_dict() == {"local": 2, "mine": 4, "broken": 2}
    for name in ("local", "mine"):
        own = settled[settled["method"] == name]
        assert own["chosen"].sum() == 1 and own.loc[own["chosen"], "value"].item() == own["value"].max()
        chosen = json.loads(own.loc[own["chosen"], "settings"].item())
        config = next((out / "runs" / name / "seed_1").glob("version_0/config.yaml"))
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
    assert set(pd.read_csv(command[0] / "both" / "results.csv")["method"]) >= {"local", "mine"}
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
    assert (
        "local" in ranks.index
        and "Not ranked, for they lack a client's score, or that of a seed: Broken." in command[1]
    )


def test_a_method_that_lacks_a_seed_is_not_ranked() -> None:
    columns = pd.MultiIndex.from_product([["a", "b", "c"], ["x", "y"]], names=["method", "client"])
    values = pd.DataFrame(np.random.default_rng(1).random((3, 6)), index=[1, 2, 3], columns=columns)
    values.loc[2, "b"] = np.nan  # it failed
    values.loc[3, (slice(None), "y")] = np.nan  # what nobody has, such as an AUROC of one class
    collected = SimpleNamespace(values=lambda metric: values, clients_of=lambda metric: ["x", "y"])
    study = SimpleNamespace(methods=dict.fromkeys("abc", Method("quickstart")), labels={name: name for name in "abc"})
    own = SimpleNamespace(scores=[SCORES["auroc"]], collected=collected, study=study)
    found = Ranks({"one": own}).values  # type: ignore[dict-item]
    assert found["b"].isna().all() and found[["a", "c"]].notna().all(axis=None)
    assert found.loc[("one", "y"), "c"] == values.loc[[1, 2], ("c", "y")].mean()
