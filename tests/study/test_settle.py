"""Settings that are settled once for all clients, on seeds that are not reported; scenarios together."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import friedmanchisquare, rankdata

from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.study.across import Across, rank_table
from fedlit.study.compare import compare
from fedlit.study.method import Method
from fedlit.study.parse import load_study
from fedlit.study.settle import SETTLED, TRIALS
from fedlit.study.study import Study
from fedlit.tasks import SCORES

LR, RATE = "model.optimizer.lr", "exchange.rate"
SMALL = {
    "data.batches": 2,
    "model.client.network.hidden": [8, 8, 8],
    "data.source.init_args.clients": ["wine", "breast_cancer"],
    "trainer.max_epochs": 2,
    "board.confusion_matrices": 0,
}
CONTENT: dict[str, Any] = {
    "seeds": "1:2",
    "tune_seeds": 60,
    "tune": {LR: [0.001, 0.3]},
    "methods": {
        "local": {"method": "local"},
        "mine": {"method": "mine.yaml", "label": "Mine", "tune": {RATE: [0.5, 1.0]}},
        "fixed": {"method": "mine.yaml", "label": "Fixed", "set": {LR: 0.01}},
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


def written(folder: Path, **changes: Any) -> Path:
    (folder / "mine.yaml").write_text("exchange: {federated: [core]}\n", encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**CONTENT, **changes}, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a study lies that was run by its command."""
    folder = tmp_path_factory.mktemp("settled")
    assert main(["compare", str(written(folder)), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder / "out"


def test_what_is_best_on_average_on_those_seeds_is_trained_with_the_others(out: Path) -> None:
    settled = pd.read_csv(out / "both" / SETTLED)
    assert settled.groupby("method").size().to_dict() == {"local": 2, "mine": 4}
    for name, own in settled.groupby("method"):
        assert own["chosen"].sum() == 1 and own.loc[own["chosen"], "value"].item() == own["value"].max()
        chosen = json.loads(own.loc[own["chosen"], "settings"].item())
        for seed in (1, 2):
            config = next((out / "both" / "runs" / str(name) / f"seed_{seed}").glob("version_0/config.yaml"))
            said = yaml.safe_load(config.read_text(encoding="utf-8"))
            assert said["model"]["optimizer"]["init_args"]["lr"] == chosen[LR]
            if name == "mine":
                assert said["exchange"]["rate"] == chosen[RATE]
    # an oracle of its own: each trial's file of scores
    values = []
    for done in (out / "both" / TRIALS).glob("runs/mine@*/seed_60/DONE"):
        scores = pd.read_csv(done.parent / "scores.csv")
        assert set(scores["split"]) == {"validation"}, "no test row is scored"
        values.append(scores[scores["metric"] == "auroc"]["value"].mean())
    assert np.allclose(sorted(values), sorted(settled[settled["method"] == "mine"]["value"]))


def test_a_scenario_has_a_grid_of_its_own_and_one_value_is_no_choice(out: Path) -> None:
    settled = pd.read_csv(out / "longer" / SETTLED)
    assert set(settled["method"]) == {"mine"}
    assert {json.loads(own)[LR] for own in settled["settings"]} == {0.01}


@pytest.mark.full
def test_started_again_it_trains_nothing(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("DONE")}
    assert main(["compare", str(out.parent / "tiny.yaml"), "--out", str(out), "--jobs", "1"]) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("DONE")} == before
    assert "2 scenarios together" in capsys.readouterr().out


def test_scenarios_together(out: Path) -> None:
    across = pd.read_csv(out / "across.csv")
    assert set(zip(across["scenario"], across["method"], strict=True)) >= {("both", "mine"), ("longer", "fixed")}
    ranks = pd.read_csv(out / "ranks.csv").set_index("method")
    values = []
    for scenario in ("both", "longer"):
        results = pd.read_csv(out / scenario / "results.csv")
        own = results[(results["split"] == "test") & (results["metric"] == "auroc")]
        values.append(own.groupby(["client", "method"])["value"].mean().unstack())
    wide = pd.concat(values)[list(ranks.index)]
    expected = rankdata(-wide.to_numpy(), axis=1).mean(0)
    assert np.allclose(ranks["rank"], expected)
    assert ((ranks["low"] <= ranks["rank"]) & (ranks["rank"] <= ranks["high"])).all()
    assert "### longer" in (out / "across.md").read_text("utf-8")


def test_ranks_share_places_and_friedman_is_scipys() -> None:
    rng = np.random.default_rng(1)
    values = pd.DataFrame(rng.normal(size=(12, 4)), columns=list("abcd"))
    values["d"] = values["a"]
    found = rank_table(values, higher_is_better=False, resamples=200)
    assert np.allclose(found["rank"].sort_index(), rankdata(values.to_numpy(), axis=1).mean(0))
    assert found.loc["a", "rank"] == found.loc["d", "rank"]
    same = pd.DataFrame({"a": [1.0] * 5, "b": [0.0] * 5})
    assert rank_table(same).loc["a"].tolist() == [1.0, 1.0, 1.0]

    class Made(Across):
        @property
        def values(self) -> pd.DataFrame:  # type: ignore[override]
            return values

    assert Made({}).p == pytest.approx(friedmanchisquare(*values.to_numpy().T).pvalue)


def test_a_method_that_lacks_a_seed_is_not_ranked() -> None:
    columns = pd.MultiIndex.from_product([["a", "b", "c"], ["x", "y"]], names=["method", "client"])
    values = pd.DataFrame(np.random.default_rng(1).random((3, 6)), index=[1, 2, 3], columns=columns)
    values.loc[2, "b"] = np.nan  # it failed
    values.loc[3, (slice(None), "y")] = np.nan  # what nobody has, such as an AUROC of one class
    estimates = values.mean().rename("mean").reset_index().assign(metric="auroc")
    own = SimpleNamespace(
        estimates=estimates,
        scores=[SCORES["auroc"]],
        collected=SimpleNamespace(values=lambda metric: values),
        study=SimpleNamespace(
            methods=dict.fromkeys("abc", Method("quickstart")), labels={name: name for name in "abc"}
        ),
    )
    found = Across({"one": own}).values  # type: ignore[dict-item]
    assert found["b"].isna().all()
    assert found.loc[("one", "y"), "c"] == values.loc[[1, 2], ("c", "y")].mean()
    assert found[["a", "c"]].notna().all(axis=None)


def test_settings_are_not_settled_on_what_is_reported() -> None:
    methods = {"local": Method("quickstart")}
    with pytest.raises(ConfigError, match=r"tune_seeds: expected seeds that are not among seeds, .* found 2 in both"):
        Study(methods, seeds=[1, 2], tune_seeds=[2, 60])


def test_a_method_without_configuration_says_where_one_belongs(tmp_path: Path) -> None:
    study = load_study(str(written(tmp_path, scenarios={})))
    with pytest.raises(ConfigError, match=r"methods.local: expected config .* say it there, or at each scenario"):
        compare(study, out=tmp_path / "out", quiet=True)


def test_a_method_whose_trials_all_fail_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"scenarios": {}, "seeds": [1], "tune": {LR: [0.001, 0.01]}}
    methods = {
        "local": {"config": "quickstart", "method": "local", "set": SMALL},
        "broken": {"config": "quickstart", "method": "krum.yaml", "set": SMALL, "label": "Broken"},
    }
    path = written(tmp_path, **content, methods=methods)
    krum = "exchange: {federated: [core], rule: {class_path: fedlit.Krum}}\n"  # of two clients it refuses to choose
    (tmp_path / "krum.yaml").write_text(krum, encoding="utf-8")
    assert main(["compare", str(path), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 1
    told = capsys.readouterr()
    assert "broken: no combination of settings came to its end" in told.out
    assert "Local" in told.out and "FAILED broken" in told.err + told.out
