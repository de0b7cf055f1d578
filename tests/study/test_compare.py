"""``fedlit compare`` as a person uses it: its files, its restarts, its failures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from fedlit.__main__ import main
from fedlit.errors import ConfigError, RunError
from fedlit.study.choose import best_on_validation
from fedlit.study.compare import Comparison, compare
from fedlit.study.runner import locked
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT

FILES = ["lift.csv", "report.html", "results.csv", "results.parquet", "tables.md"]


def test_what_is_written(compared: Comparison) -> None:
    assert all((compared.folder / name).is_file() for name in FILES)
    results = pd.read_csv(compared.folder / "results.csv")
    assert list(results) == ["study", "method", "seed", "client", "split", "metric", "value"]
    models = {"local", "gl", "extra_trees", "logistic_regression", BEST_ALONE, HINDSIGHT, BEST_FEDERATED}
    assert set(results["method"]) == models
    assert set(results["split"]) == {"validation", "test", "out_of_fold"} and set(results["seed"]) == {1, 2}
    assert not results.duplicated(["method", "seed", "client", "split", "metric"]).any()
    pd.testing.assert_frame_equal(pd.read_parquet(compared.folder / "results.parquet"), results, check_dtype=False)
    assert not compared.failures and not compared.collected.fixed
    assert not list(compared.folder.glob("runs/*/*/version_*/checkpoints"))
    assert compared.plot().get_lines()[1].get_xdata() == pytest.approx(
        [100 * own.lift["mean"] for own in compared.answers]
    )


def test_scores_are_those_that_scikit_learn_computes_from_the_predictions(compared: Comparison) -> None:
    values = compared.collected.results.set_index(["method", "seed", "client", "split", "metric"])["value"]
    checked = 0
    for path in sorted(compared.folder.glob("runs/*/seed_*/predictions.parquet")):
        method, seed = path.parent.parent.name, int(path.parent.name.removeprefix("seed_"))
        for (client, split), own in pd.read_parquet(path).groupby(["client", "split"]):
            columns = [name for name in own if name.startswith("probability_") and own[name].notna().all()]
            labels = [name.removeprefix("probability_") for name in columns]
            auroc, auprc = [], []
            for label in labels[1:] if len(labels) == 2 else labels:
                positive = own["target"] == label
                if 0 < positive.sum() < len(own):
                    auroc.append(roc_auc_score(positive, own[f"probability_{label}"]))
                    auprc.append(average_precision_score(positive, own[f"probability_{label}"]))
            expected = {
                "auroc": np.mean(auroc),
                "auprc": np.mean(auprc),
                "balanced_accuracy": balanced_accuracy_score(own["target"].astype(str), own["predicted"].astype(str)),
            }
            for metric, value in expected.items():
                assert values[method, seed, client, split, metric] == pytest.approx(value, abs=1e-6)
                checked += 1
    assert checked == (4 * 2 + 2) * 2 * 2 * 3  # two models are also judged out of fold


def test_best_go_alone_is_chosen_on_validation_whatever_the_test_says() -> None:
    rows = []
    for seed, client, values in ((1, "a", [0.7, 0.8, 0.8]), (1, "b", [0.9, 0.8, np.nan]), (2, "a", [0.5, 0.4, 0.6])):
        for method, value in zip(("local", "trees", "linear"), values, strict=True):
            rows.append((method, seed, client, "validation", "auroc", value))
            rows.append((method, seed, client, "test", "auroc", 1 - value))
    rows.append(("local", 3, "a", "validation", "auroc", 0.9))  # seed 3: the others are missing
    rows += [(method, 2, "b", "validation", "auroc", np.nan) for method in ("local", "trees", "linear")]  # no choice
    results = pd.DataFrame(rows, columns=["method", "seed", "client", "split", "metric", "value"])
    chosen = best_on_validation(results, ["local", "never_ran", "trees", "linear"], "auroc")
    chosen = chosen.set_index(["seed", "client"])["method"]
    assert chosen.to_dict() == {(1, "a"): "trees", (1, "b"): "local", (2, "a"): "linear"}


def test_the_best_go_alone_rows_are_those_of_the_chosen(compared: Comparison) -> None:
    results = compared.collected.scores
    chosen = compared.collected.chosen
    assert set(chosen.loc[chosen["best"] == BEST_FEDERATED, "method"]) == {"gl"}
    for own in chosen[chosen["best"] == BEST_ALONE].itertuples():
        part = results[(results["seed"] == own.seed) & (results["client"] == own.client)]
        columns = ["split", "metric", "value"]
        best, model = (
            part[part["method"] == name][columns].reset_index(drop=True) for name in (BEST_ALONE, own.method)
        )
        pd.testing.assert_frame_equal(best, model)
        validation = part[(part["split"] == "validation") & (part["metric"] == "auroc")].set_index("method")["value"]
        assert validation[own.method] == validation[["local", "extra_trees", "logistic_regression"]].max()


def test_lifts_are_paired_by_seed(compared: Comparison) -> None:
    values = compared.collected.values("auroc")
    lift = compared.lift.set_index(["metric", "reference", "method", "client"])
    for client in ("wine", "breast_cancer"):
        differences = values["gl", client] - values["local", client]
        own = lift.loc[("auroc", "local", "gl", client)]
        assert own["mean"] == pytest.approx(differences.mean(), abs=1e-15) and own["n"] == 2
        assert own["sd"] == pytest.approx(differences.std(ddof=1), abs=1e-15)
    worst = values["gl"].min(axis=1)
    estimates = compared.estimates.set_index(["metric", "method", "client"])
    assert estimates.loc[("auroc", "gl", "(worst)"), "mean"] == pytest.approx(worst.mean())


def one_metric(study_file: Path) -> str:
    """The study with a third of the pictures, which take longer than its runs."""
    return "metrics: [auroc]\n" + study_file.read_text(encoding="utf-8")


def test_a_run_that_fails_is_named_and_the_others_count(
    compared: Comparison, study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(compared.folder, tmp_path / "out")
    text = one_metric(study_file)
    text = text.replace(
        "methods:\n", "methods:\n  broken: {config: quickstart.yaml, set: {model.client.network: nowhere.Net}}\n", 1
    )
    study = tmp_path / "small.yaml"
    # refused before the first run: the configuration itself is wrong
    study.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"nowhere"):
        compare(str(study), out=tmp_path / "out", quiet=True)
    # found out in the run: more batches than rows
    text = text.replace(
        "model.client.network: nowhere.Net",
        "data.batches: 100000, data.source.init_args.clients: [wine, breast_cancer]",
    )
    study.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert main(["compare", str(study), "--out", str(tmp_path / "out"), "--seeds", "1"]) == 1
    told = capsys.readouterr().err
    assert "FAILED broken, seed 1: DataError: data.batches" in told and "Traceback" not in told
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    models = {"local", "gl", "extra_trees", "logistic_regression", BEST_ALONE, HINDSIGHT, BEST_FEDERATED}
    assert set(results["method"]) == models
    assert "broken, seed 1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    only = study.read_text(encoding="utf-8").replace("seeds: 1:2", "seeds: 1").replace("leave_one_out: true", "")
    only = only[: only.index("  local:")] + only[only.index("baselines:") :].replace("gl: {wine", "broken: {wine")
    study.write_text("reference: broken\n" + only, encoding="utf-8")
    with pytest.raises(RunError, match=r"all failed:\n.*broken, seed 1: DataError"):
        compare(str(study), out=tmp_path / "other", quiet=True, baselines=[])


def test_another_configuration_is_run_again_and_rows_must_agree(
    compared: Comparison, study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(compared.folder, out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/DONE")}
    text, gl = one_metric(study_file), 'gl: {label: "Shared <core>", config: quickstart.yaml, set: {'
    assert gl in text
    (tmp_path / "small.yaml").write_text(text.replace(gl, f"{gl}exchange.rate: 0.5, "), encoding="utf-8")
    assert main(["compare", str(tmp_path / "small.yaml"), "--out", str(out), "--seeds", "1"]) == 0
    assert "1 runs were made with another configuration or data" in capsys.readouterr().out
    changed = [path.parent for path, then in before.items() if path.stat().st_mtime_ns != then]
    assert changed == [out / "runs" / "gl" / "seed_1"]
    for change in ("data.source.init_args.test: 0.5, ", "data.source.init_args.validation: 0.5, "):
        (tmp_path / "small.yaml").write_text(text.replace(gl, gl + change), encoding="utf-8")
        with pytest.raises(ConfigError, match=r"methods.gl: expected the rows of local, found another data.source"):
            compare(str(tmp_path / "small.yaml"), out=out, quiet=True)
    (tmp_path / "small.yaml").write_text(text.replace(gl, f"{gl}exchange.federated: [], "), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"methods.gl: expected something in exchange.federated"):
        compare(str(tmp_path / "small.yaml"), out=out, quiet=True)


OWN = """\
seed: 1
data:
  source: {class_path: fedlit.Tables, init_args: {files: {north: north.csv, south: south.csv}, target: y}}
  batches: 2
model: {client: {class_path: fedlit.FederatedClient, init_args: {network: fedlit.MLP}}}
exchange: {federated: [core]}
trainer: {max_epochs: 1}
board: {confusion_matrices: 0}
"""


@pytest.mark.full
def test_changed_data_do_not_keep_the_old_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def write(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for name in ("north", "south"):
            x = rng.normal(size=60)
            # a column of more categories than gradient boosting takes stands for a hospital's codes
            codes = [f"code{number}" for number in rng.permutation(60)]
            frame = pd.DataFrame({"x": x, "code": codes, "y": np.where(x + rng.normal(size=60) > 0, "ill", "well")})
            frame.to_csv(f"{name}.csv", index=False)

    (tmp_path / "own.yaml").write_text(OWN, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        "seeds: 1\nbootstrap: 20\nmetrics: [auroc]\n"
        "methods: {local: {config: own.yaml, set: {exchange.federated: []}}, gl: {config: own.yaml}}\n"
        "baselines: {logistic_regression: {C: [1.0]}, gradient_boosting: {max_iter: [3]}}\n",
        encoding="utf-8",
    )
    write(1)
    first = compare("mine.yaml", quiet=True, jobs=1)
    assert first.folder == tmp_path / "lightning_logs" / "studies" / "mine" and not first.failures
    assert compare("mine.yaml", quiet=True).collected.results.equals(first.collected.results)
    write(2)
    second = compare("mine.yaml", quiet=True, jobs=1)
    assert not second.failures and not second.collected.results.equals(first.collected.results)
    assert [answer.verdict for answer in second.answers] == ["not enough data"] * 2


def test_an_incomplete_record_is_no_record(compared: Comparison, study_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(compared.folder, out)
    (out / "runs" / "extra_trees" / "seed_1" / "DONE").write_text("null", encoding="utf-8")
    (out / "runs" / "extra_trees" / "seed_2" / "DONE").write_text('{"digest": "', encoding="utf-8")
    (out / "runs" / "gl" / "seed_2" / "scores.csv").write_text("split,client,metric,value\n", encoding="utf-8")
    next(out.glob("baselines/extra_trees-wine-*/predictions.parquet")).write_bytes(b"PAR1")
    found = compare(str(study_file), out=out, quiet=True)
    assert json.loads((out / "runs" / "extra_trees" / "seed_2" / "DONE").read_text())["method"] == "extra_trees"
    pd.testing.assert_frame_equal(found.collected.results, compared.collected.results)


def test_two_studies_cannot_write_to_one_folder(
    study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(tmp_path):
        assert main(["compare", str(study_file), "--out", str(tmp_path)]) == 2
    assert "expected no other study at work there" in capsys.readouterr().err
