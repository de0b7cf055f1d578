"""Tuned methods: each client chooses on its own validation rows, or all by ``tune_seeds``;
scenarios together."""

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
from scipy.stats import chi2, rankdata
from study.conftest import LR, METHODS, RATES, jobs_of, write_study

from fedlit.__main__ import main
from fedlit.errors import ConfigError, RunError
from fedlit.jobs.job import Job
from fedlit.study.basis import Basis
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.lift import Scores
from fedlit.study.method import Method
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.ranks import Ranks
from fedlit.study.study import BEST_FEDERATED
from fedlit.study.tune import TUNED, TUNING, _at_ends
from fedlit.tasks import SCORES

RATE = "exchange.rate"


@pytest.fixture(scope="module")
def basis(compared: Comparison) -> Basis:
    return Basis(compared.study)


@pytest.fixture(scope="module")
def jobs(compared: Comparison, basis: Basis) -> list[Job]:
    return plan_jobs(compared.study, compared.seeds, compared.folder, basis)


# ------------------------------------------------------------------ each client chooses


def test_each_client_has_the_best_on_its_own_validation(
    compared: Comparison,
) -> None:
    results: Any = compared.collected.scores.set_index(["method", "seed", "client"]).sort_index()
    picked = pd.read_csv(compared.folder / "tuned.csv").set_index(["method", "seed", "client"])[
        "settings"
    ]
    assert len(picked) == 2 * 2
    scores = {}
    for done in compared.folder.glob("runs/gl@*/seed_*/DONE"):
        record = json.loads(done.read_text(encoding="utf-8"))
        own = pd.read_csv(done.parent / "scores.csv")
        scores[record["seed"], record["settings"][LR]] = own.set_index(
            ["client", "split", "metric"]
        )["value"].sort_index()
    assert set(scores) == {(seed, rate) for seed in (1, 2) for rate in RATES}
    chosen: Any = picked.items()
    for (method, seed, client), settings in chosen:
        values = {rate: scores[seed, rate][client, "validation", "auroc"] for rate in RATES}
        best = max(RATES, key=values.__getitem__)  # the first of equals
        assert json.loads(settings) == {LR: best}
        own = results.loc[(method, seed, client)].set_index(["split", "metric"])["value"]
        pd.testing.assert_series_equal(own.sort_index(), scores[seed, best][client])


def test_what_is_done_is_kept(
    compared: Comparison, study_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is done in part, or damaged: test_compare.py."""
    said: list[str] = []
    done = [*compared.folder.glob("runs/*/*/DONE")]
    again = compare(str(study_file), out=compared.folder, workers=1, say=said.append)
    assert (
        f"{len(done)} of {len(done)} runs are done already" in said and not capfd.readouterr().out
    )
    pd.testing.assert_frame_equal(again.collected.scores, compared.collected.scores)


def test_a_seed_of_which_a_combination_is_missing_is_left_out(
    compared: Comparison, jobs: list[Job]
) -> None:
    one = next(job for job in jobs if job.seed == 1 and job.settings == {LR: RATES[1]})
    assert one.name == f"gl ({LR}=0.1), seed 1"
    broken = [replace(job, made_of={}) if job is one else job for job in jobs]
    results = collect(compared.study, broken).scores
    assert set(results.loc[results["method"] == "gl", "seed"]) == {2}
    assert set(results.loc[results["method"] == BEST_FEDERATED, "seed"]) == {2}
    # each seed lacks another one: there is nothing to choose from
    lacking = [
        job
        for job in jobs
        if (job.seed, job.settings) in ((1, {LR: RATES[1]}), (2, {LR: RATES[0]}))
    ]
    broken = [replace(job, made_of={}) if job in lacking else job for job in jobs]
    own = collect(compared.study, broken)
    assert "gl" not in set(own.scores["method"]) and own.tuned.empty
    with pytest.raises(RunError, match="every combination"):
        collect(compared.study, [job for job in broken if job.method == "gl"])


def test_bootstrap_is_that_of_the_chosen(compared: Comparison, jobs: list[Job]) -> None:
    # as if seeds had the same test rows: each method has its own folder of resamples
    own = [job for job in jobs if job.seed == 1 and job.method in ("local", "gl")]
    fixed = replace(
        compared.study,
        seeds=[1],
        methods={name: compared.study.methods[name] for name in ("local", "gl")},
    )
    collected = collect(fixed, own)
    assert collected.fixed and len(collected.bootstrap) == 3
    chosen = collected.tuned.set_index("client")["settings"]
    for client in ("wine", "breast_cancer"):
        own_settings = json.loads(str(chosen[client]))
        job = next(job for job in jobs if job.seed == 1 and job.settings == own_settings)
        resampled = pd.read_parquet(Path(job.folder) / "bootstrap.parquet")
        for method in ("gl", BEST_FEDERATED):
            drawn = Scores(collected).resamples(method, client, "auroc", (1,))
            np.testing.assert_array_equal(drawn, resampled[client, "auroc"])


# ------------------------------------------------------------------ plans


def plan(folder: Path, basis: Basis, **methods: dict[str, Any]) -> list[Job]:
    study = write_study(folder, methods={"local": METHODS["local"], **methods}, baselines=[])
    return jobs_of(load_study(str(study)), [1], Path("out"), basis)


def test_a_grid_that_grows_keeps_what_was_trained(tmp_path: Path, basis: Basis) -> None:
    gl = {key: value for key, value in METHODS["gl"].items() if key != "tune"}
    changes: list[dict[str, Any]] = [
        {},
        {"tune": {}},
        {"tune": {LR: RATES}},
        {"tune": {LR: [0.5, *RATES]}},
    ]
    plain, empty, tuned, grown = (plan(tmp_path, basis, gl={**gl, **more}) for more in changes)
    assert plain == empty and [job.folder for job in plain] == [
        "out/runs/local/seed_1",
        "out/runs/gl/seed_1",
    ]
    assert [Job.of(json.loads(json.dumps(job.request()))) for job in plain] == plain
    assert tuned[0] == plain[0] and [job.settings for job in tuned[1:]] == [
        {LR: rate} for rate in RATES
    ]
    for key in ("digest", "folder", "name"):
        assert len({getattr(job, key) for job in (*plain, *tuned)}) == 4
    assert grown[0] == tuned[0] and grown[2:] == tuned[1:]


def test_a_tuned_reference_gives_baselines_the_same_rows(
    compared: Comparison, basis: Basis
) -> None:
    local = compared.study.methods["local"]
    whole = replace(compared.study, methods={"local": replace(local, tune={LR: RATES})})
    untuned = replace(whole, methods={"local": local})
    before = plan_jobs(untuned, [1], Path("out"), basis)
    jobs = plan_jobs(whole, [1], Path("out"), Basis(whole))
    assert [job.settings for job in jobs] == [{LR: RATES[0]}, {LR: RATES[1]}, None, None, None]
    assert [job.digest for job in jobs[2:4]] == [job.digest for job in before[1:3]]
    assert jobs[4].after == [jobs[2].folder, jobs[3].folder]


OTHER = {"batches": 2, "source": {"class_path": "fedlit.Bundled", "init_args": {"test": 0.4}}}
UNPLANNED: list[tuple[dict[str, Any], str]] = [
    *(({**METHODS["gl"], "tune": tune}, told) for tune, told in (
        ({RATE: [0.5, "0.5"]}, r"methods\.more\.tune: expected combinations that differ"),
        ({"model.threads": [1, 2]}, "alike"), ({"model.optimizer.lrate": [0.5]}, r"methods\.more \(.*lrate=0\.5\)"),
        ({"exchange.federated": [["core"], []]}, r"methods\.more \(exchange\.federated=\[\]\)"),
        ({"data": [OTHER]}, "data.source"))),
    # what cannot be mixed
    ({"of": "bets"}, r"methods\.more\.of"),
    ({"of": "own"}, r"methods\.more\.of"),
    ({"of": "local"}, r"methods\.more\.of"),
    ({"of": "best", "parts": ["tree"]}, r"methods\.more\.parts"),
    ({"of": "best", "parts": ["trees", "linear"], "weights": {"federated": 1}}, r"methods\.more\.weights"),
    ({"of": "best", "alone": True}, r"methods\.more: .*federated"),
    ({"config": "tiny.yaml", "alone": True}, r"methods\.more: expected nothing that clients share"),
    ({"of": "best", "parts": ["trees", "linear"]}, r"methods\.more: .*trees.*linear"),
    ({"of": "best", "weights": {"trees": 1, "federated": 0}}, r"methods\.more: .*trees"),
    ({"of": "best", "set": {"folds": 4}}, "methods.more.set"),
    ({"of": "best", "config": "tiny.yaml"}, "both"),
    ({}, "neither"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "told"), UNPLANNED)
def test_what_cannot_be_planned_is_refused(
    tmp_path: Path, basis: Basis, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(tmp_path, basis, best=METHODS["best"], own=METHODS["own"], more=more)


# ---------------------------------------------------------------- one choice for all, and scenarios

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
    # of two clients it refuses to choose
    krum = "exchange: {federated: [core], rule: {class_path: fedlit.Krum}}\n"
    (folder / "krum.yaml").write_text(krum, encoding="utf-8")
    study = write_study(folder, **CONTENT, baselines=[], choose=None, paper=None)
    with redirect_stdout(io.StringIO()) as said:
        assert main(["compare", str(study), "--out", str(folder / "out"), "--workers", "1"]) == 1
    return folder / "out", said.getvalue()


def test_the_best_on_tune_seeds_is_trained_with_the_others(
    command: tuple[Path, str],
) -> None:
    out = command[0] / "both"
    settled = pd.read_csv(out / TUNED)
    assert settled.groupby("method").size().to_dict() == {"local": 2, "mine": 4, "broken": 2}
    for name in ("local", "mine"):
        own = settled[settled["method"] == name]
        assert (
            own["chosen"].sum() == 1
            and own.loc[own["chosen"], "value"].item() == own["value"].max()
        )
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
    # a method whose trials all fail does not end the others
    assert settled.set_index("method").loc["broken", "value"].isna().all()
    assert set(pd.read_csv(out / "results.csv")["method"]) >= {"local", "mine"}
    assert "broken: no combination of settings came to its end" in command[1]
    # the other scenario has a grid of its own, and one value is no choice
    longer = pd.read_csv(command[0] / "longer" / TUNED)
    assert set(longer["method"]) == {"mine"} and {
        json.loads(own)[LR] for own in longer["settings"]
    } == {0.01}


def test_a_best_value_at_the_end_of_its_grid_is_said(command: tuple[Path, str]) -> None:
    """Where there are three or more."""
    said = [line for line in command[1].splitlines() if "the end of what was tried" in line]
    assert said == []
    tried = [{LR: lr, RATE: rate} for lr in (0.1, 0.2, 0.3) for rate in (0.5, 1.0)]
    assert [_at_ends({LR: lr, RATE: 1.0}, tried) for lr in (0.1, 0.2, 0.3)] == [
        {LR: 0.1},
        {},
        {LR: 0.3},
    ]


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


def ranks_of(values: pd.DataFrame) -> Ranks:
    """Of one scenario's scores: seeds × (method, client)."""
    methods, clients = ([*own] for own in values.columns.levels)  # type: ignore[attr-defined]
    collected = SimpleNamespace(values=lambda metric: values, clients_of=lambda metric: clients)
    study = SimpleNamespace(
        methods=dict.fromkeys(methods, Method("quickstart")), labels={own: own for own in methods}
    )
    found: Any = SimpleNamespace(scores=[SCORES["auroc"]], collected=collected, study=study)
    return Ranks({"one": found})


def test_ranks_and_friedmans_p_are_those_by_hand() -> None:
    columns = pd.MultiIndex.from_product(
        [["a", "b", "c", "d"], ["v", "w", "x", "y", "z"]], names=["method", "client"]
    )
    values = pd.DataFrame(
        np.random.default_rng(1).random((3, 20)), index=[1, 2, 3], columns=columns
    )
    values.loc[2, "b"] = np.nan  # it failed
    values.loc[3, (slice(None), "y")] = np.nan  # what nobody has, such as an AUROC of one class
    found = ranks_of(values)
    assert found.values["b"].isna().all() and found.values[["a", "c", "d"]].notna().all(axis=None)
    assert found.values.loc[("one", "y"), "c"] == values.loc[[1, 2], ("c", "y")].mean()
    ranks = rankdata(-found.values[["a", "c", "d"]].to_numpy(), axis=1)
    mean = dict(zip("acd", ranks.mean(0), strict=True))
    assert found.table["rank"].to_dict() == pytest.approx(mean) and [*found.table.index] == sorted(
        mean, key=mean.__getitem__
    )
    # Friedman 1937: n = 5 clients, k = 3 methods
    statistic = 12 / (5 * 3 * 4) * (ranks.sum(0) ** 2).sum() - 3 * 5 * 4
    assert found.p == pytest.approx(chi2.sf(statistic, 2))
    # where all clients rank alike there is no doubt; two methods are too few for the test
    alike = pd.DataFrame(
        [[0.9] * 5 + [0.8] * 5],
        columns=pd.MultiIndex.from_product([["a", "b"], range(5)], names=columns.names),
    )
    two = ranks_of(alike)
    assert two.table.to_numpy().tolist() == [[1.0] * 3, [2.0] * 3] and np.isnan(two.p)
