"""``fedlit compare`` as a person uses it: its files, its restarts, its failures."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from study.conftest import METHODS, jobs_of, stored, write_study

from fedlit.__main__ import main
from fedlit.errors import ConfigError, RunError
from fedlit.study.compare import Comparison, compare
from fedlit.study.method import Method
from fedlit.study.runner import locked
from fedlit.study.runs import bootstrap_scores, read_tested
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, StudyFile
from fedlit.tasks import Classification
from fedlit.tasks.predictions import PredictionTable

FILES = ["lift.csv", "report.html", "results.csv", "results.parquet", "tables.md", "tuned.csv"]
MODELS = {*METHODS, "trees_and_linear", "extra_trees", "logistic_regression"}
BEST = {BEST_ALONE, HINDSIGHT, BEST_FEDERATED}
CLIENTS = ("wine", "breast_cancer")


def test_what_is_written(compared: Comparison) -> None:
    assert not compared.failures and all((compared.folder / name).is_file() for name in FILES)
    results = pd.read_csv(compared.folder / "results.csv")
    assert list(results) == ["study", "method", "seed", "client", "split", "metric", "value"]
    assert set(results["method"]) == MODELS | BEST
    assert set(results["split"]) == {"validation", "test", "out_of_fold"} and set(
        results["seed"]
    ) == {1, 2}
    assert not results.duplicated(["method", "seed", "client", "split", "metric"]).any()
    pd.testing.assert_frame_equal(
        pd.read_parquet(compared.folder / "results.parquet"), results, check_dtype=False
    )
    assert not compared.collected.fixed and not list(
        compared.folder.glob("runs/*/*/version_*/checkpoints")
    )
    drawn = np.asarray(compared.plot().collections[-1].get_offsets())[:, 0].tolist()
    assert drawn == pytest.approx([100 * own.lift.mean for own in compared.answers])


def test_scores_are_those_of_the_stored_predictions(compared: Comparison) -> None:
    """Which are scikit-learn's: tasks/test_metrics.py."""
    checked = 0
    for path in sorted(compared.folder.glob("runs/*/seed_*/predictions.parquet")):
        scores: Any = pd.read_csv(path.parent / "scores.csv").set_index(
            ["client", "split", "metric"]
        )["value"]
        one_class = json.loads((path.parent / "DONE").read_text(encoding="utf-8"))["one_class"]
        by_client = PredictionTable.read(path).read_back()
        for (client, split), own in pd.read_parquet(path).groupby(["client", "split"]):
            assert split != "test" or (client in one_class) == (own["predicted"].nunique() == 1)
            found = by_client[str(client)][str(split)].scores()
            for metric in ("auroc", "auprc", "balanced_accuracy"):
                assert scores[client, split, metric] == pytest.approx(found[metric], abs=1e-6)
                checked += 1
    # two networks have no out-of-fold rows; gl has another combination
    assert checked == (3 * len(MODELS) - 2 + 2) * 2 * 2 * 3


def test_the_best_alone_is_chosen_on_validation_rows(
    compared: Comparison,
) -> None:
    results = compared.collected.scores
    chosen = compared.collected.chosen
    alone = compared.study.alone
    assert set(alone) == {"local", "own", "trees_and_linear", "extra_trees", "logistic_regression"}
    for own in chosen[chosen["best"] == BEST_ALONE].itertuples():
        part = results[(results["seed"] == own.seed) & (results["client"] == own.client)]
        columns = ["split", "metric", "value"]
        best, model = (
            part[part["method"] == name][columns].reset_index(drop=True)
            for name in (BEST_ALONE, own.method)
        )
        pd.testing.assert_frame_equal(best, model)
        values = part[part["metric"] == "auroc"].set_index(["split", "method"])["value"]
        unseen = values["out_of_fold"].reindex(
            [name for name in alone if ("out_of_fold", name) in values]
        )
        meets = ["local", unseen.idxmax()]  # the best of those that are judged out of fold
        assert values["validation"][own.method] == values["validation"][meets].max()
    table = compared.collected.values("auroc")
    lift = compared.lift.set_index(["metric", "reference", "method", "client"])["mean"]
    for client in CLIENTS:
        most = max(table[name, client].mean() for name in alone)
        assert table[HINDSIGHT, client].mean() == most
        assert lift["auroc", HINDSIGHT, "gl", client] == pytest.approx(
            table["gl", client].mean() - most
        )


def resampled(frame: pd.DataFrame) -> pd.DataFrame:
    return bootstrap_scores(read_tested(PredictionTable.of(frame)), 600)


def test_models_are_resampled_alike_in_any_order_of_rows(
    compared: Comparison,
) -> None:
    frame = stored(compared, "logistic_regression")
    first = resampled(frame)
    pd.testing.assert_frame_equal(resampled(frame.sample(frac=1.0, random_state=3)), first)
    metrics = set(Classification((0, 1)).evaluate(torch.eye(2), torch.tensor([0, 1]))) - {"classes"}
    columns: set[Any] = set(first.columns)
    assert columns == {(client, metric) for client in CLIENTS for metric in metrics}
    # the accuracy of n rows is a share, whose standard error is known
    drawn = first["breast_cancer", "accuracy"]
    rows = len(frame.query("client == 'breast_cancer' and split == 'test'"))
    assert drawn.std() == pytest.approx(
        math.sqrt(drawn.mean() * (1 - drawn.mean()) / rows), rel=0.1
    )
    # of a model that is slightly worse on the same rows, differences vary less than either does
    noise = np.random.default_rng(0).normal(0, 0.05, len(frame))
    signs = {"probability_benign": 1, "probability_malignant": -1}
    worse = frame.assign(**{name: frame[name] + sign * noise for name, sign in signs.items()})
    mine, other = (own["breast_cancer", "auroc"] for own in (first, resampled(worse)))
    assert 0 < (mine - other).std() < 0.7 * min(mine.std(), other.std())


def fewer(compared: Comparison, folder: Path, **changed: Any) -> Path:
    """A copy of what is done, and a study of part of it."""
    shutil.copytree(compared.folder, folder / "out")
    methods = {name: METHODS[name] for name in ("local", "gl")}
    return write_study(folder, **{"methods": methods, "baselines": [], **changed})


def test_a_failed_run_is_named(
    compared: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"broken": {"config": "tiny.yaml", "set": {"model.client.network": "nowhere.Net"}}}
    study = fewer(compared, tmp_path, methods={"local": METHODS["local"], **broken})
    with pytest.raises(ConfigError, match=r"nowhere"):  # refused before the first run
        compare(str(study), out=tmp_path / "out", quiet=True)
    # found out in the run: more batches than rows
    broken["broken"]["set"] = {"data.batches": 100_000}
    write_study(tmp_path, methods={"local": METHODS["local"], **broken}, baselines=[])
    assert main(["compare", str(study), "--out", str(tmp_path / "out"), "--seeds", "1"]) == 1
    told = capsys.readouterr().err
    assert "FAILED broken, seed 1: DataError: data.batches" in told and "Traceback" not in told
    assert set(pd.read_csv(tmp_path / "out" / "results.csv")["method"]) == {"local"}
    assert "broken, seed 1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    write_study(tmp_path, methods=broken, reference="broken", baselines=[], paper=None)
    with pytest.raises(RunError, match=r"all failed:\n.*broken, seed 1: DataError"):
        compare(str(study), out=tmp_path / "other", quiet=True)


def test_what_has_changed_is_run_again(
    compared: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = fewer(compared, tmp_path)
    gl = METHODS["gl"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("runs/*/*/DONE")}

    def changed(**keys: object) -> None:
        write_study(
            tmp_path, methods={"local": METHODS["local"], "gl": {**gl, "set": keys}}, baselines=[]
        )

    changed(**{"exchange.rate": 0.5})
    assert main(["compare", str(study), "--out", str(tmp_path / "out"), "--seeds", "1"]) == 0
    assert "2 runs were made with another configuration or data" in capsys.readouterr().out
    again = {path.parent for path, then in before.items() if path.stat().st_mtime_ns != then}
    assert {path.name for path in again} == {"seed_1"} and {
        path.parent.name[:3] for path in again
    } == {"gl@"}
    for key, message in (
        ({"data.source.init_args.test": 0.5}, "expected the rows of local, .*data.source"),
        ({"exchange.federated": []}, "expected something in exchange.federated"),
    ):
        changed(**key)
        with pytest.raises(ConfigError, match=message):
            compare(str(study), out=tmp_path / "out", quiet=True)


def test_an_incomplete_record_is_no_record(compared: Comparison, tmp_path: Path) -> None:
    study = fewer(
        compared,
        tmp_path,
        methods={"local": METHODS["local"]},
        baselines={"extra_trees": {"n_estimators": [5], "min_samples_leaf": [1, 20]}},
    )
    out = tmp_path / "out"
    (out / "runs" / "extra_trees" / "seed_1" / "DONE").write_text("null", encoding="utf-8")
    (out / "runs" / "extra_trees" / "seed_2" / "DONE").write_text('{"digest": "', encoding="utf-8")
    (out / "runs" / "local" / "seed_2" / "scores.csv").write_text(
        "split,client,metric,value\n", encoding="utf-8"
    )
    next(out.glob("baselines/extra_trees-wine-*/predictions.parquet")).write_bytes(b"PAR1")
    found = compare(str(study), out=out, quiet=True).collected.results
    assert (
        json.loads((out / "runs" / "extra_trees" / "seed_2" / "DONE").read_text())["method"]
        == "extra_trees"
    )
    expected = compared.collected.results
    expected = expected[expected["method"].isin(["local", "extra_trees"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected)


def test_any_changed_value_changes_what_every_run_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60), "y": [0, 1] * 30})
    source = {
        "class_path": "fedlit.Tables",
        "init_args": {"files": {"a": "a.csv", "b": "b.csv"}, "target": "y"},
    }
    changes = {"data.source": source}
    local = Method("quickstart", set={**changes, "exchange.federated": []})
    methods = {"local": local, "gl": Method("quickstart", set=changes)}
    models: dict[str, dict[str, Any] | None] = {"logistic_regression": None}
    digests = []
    for value in (0.0, 0.0, 1.0):
        frame.loc[0, "x"] = value
        for name in ("a.csv", "b.csv"):
            frame.to_csv(name, index=False)
        jobs = jobs_of(StudyFile(methods, [1], baselines=models), [1], tmp_path)
        digests.append({job.method: job.digest for job in jobs})
    assert digests[0] == digests[1] and len(digests[0]) == 3
    assert not {*digests[0].values()} & {*digests[2].values()}


def test_one_folder_has_one_study(
    study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(tmp_path):
        assert main(["compare", str(study_file), "--out", str(tmp_path)]) == 2
    assert "expected no other study at work there" in capsys.readouterr().err
