"""What predictions rest on, whether they come true, what others gain by a client: on tables of which it is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlit.errors import ConfigError
from fedlit.run.load import load
from fedlit.statistics import corrected_interval
from fedlit.study.answer import answers
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.explained import calibration, read_tested
from fedlit.study.importance import inputs_of
from fedlit.study.lift import LEFT_OUT, OTHERS, Scores, estimates, leave_one_out, lifts
from fedlit.study.method import Method
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.study import Study
from fedlit.tasks import Classification

ROWS = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``copy`` says the label, ``kind`` (a category) half of it, ``noise`` nothing; ``few`` has too few rows."""
    place = tmp_path_factory.mktemp("explained")
    rng = np.random.default_rng(0)
    label = rng.random(ROWS) < 0.5
    kind = np.where(rng.random(ROWS) < 0.5, np.where(label, "a", "b"), rng.choice(["a", "b", "c"], ROWS))
    table = pd.DataFrame({"noise": rng.normal(size=ROWS), "copy": label + 0.0, "kind": kind})
    table.assign(outcome=np.where(label, "ill", "well")).to_csv(place / "plain.csv", index=False)
    table.assign(outcome=2 * table["copy"] + 0.1 * table["noise"]).to_csv(place / "number.csv", index=False)
    table.head(60).assign(outcome=table["kind"]).to_csv(place / "few.csv", index=False)
    source = {
        "files": {name: str(place / f"{name}.csv") for name in ("plain", "number", "few")},
        "target": "outcome",
        "task": {"number": "regression", "*": "classification"},
    }
    config = {
        "data": {
            "source": {"class_path": "fedlit.Tables", "init_args": source},
            "batches": 4,
            "categories": "indicators",
        },
        "model": {
            "client": {
                "class_path": "fedlit.FederatedClient",
                "init_args": {"network": {"class_path": "fedlit.MLP", "init_args": {"hidden": [8, 8]}}},
            },
            "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.02}},
        },
        "exchange": {"federated": ["core"]},
        "trainer": {"max_epochs": 12},
    }
    (place / "mine.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    methods = {"local": {"config": "mine.yaml", "set": {"exchange.federated": []}}, "shared": {"config": "mine.yaml"}}
    study = {"seeds": [1, 2], "methods": methods, "baselines": [], "bootstrap": 0, "leave_one_out": True}
    (place / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> Comparison:
    return compare(load_study(str(folder / "study.yaml")), out=folder / "out", jobs=1, quiet=True)


def files(found: Comparison, name: str) -> pd.DataFrame:
    return pd.read_csv(found.folder / "runs" / "shared" / "seed_1" / name)


def test_a_copy_of_the_label_is_what_it_rests_on_and_noise_is_nothing(found: Comparison) -> None:
    own = files(found, "importance.csv").set_index(["client", "column"])
    assert set(own.loc["plain"].index) == {"noise", "copy", "kind"}  # columns, not the indicators that they became
    clear = own.loc["plain"]["mean"]
    assert clear["copy"] > 0.2 and abs(clear["noise"]) < 0.05 and clear["copy"] > 4 * abs(clear["kind"])
    number = own.loc["number"]
    # RMSE gets worse, which counts as a loss; a tenth of the noise is in the number
    assert number.loc["copy", "mean"] > 0.5 > 0.2 > number.loc["noise", "mean"] > abs(number.loc["kind", "mean"])
    assert set(number["metric"]) == {"rmse"} and (own["rows"] == own["of_rows"]).all()
    results = found.collected.results.query("without == ''")
    results = results.set_index(["method", "seed", "client", "split", "metric"])["value"]
    score = results["shared", 1, "plain", "validation", "auroc"]
    assert clear.size == 3 and own.loc[("plain", "copy"), "score"] == pytest.approx(score, abs=1e-6)
    score = results["shared", 1, "number", "validation", "rmse"]
    assert own.loc[("number", "copy"), "score"] == pytest.approx(score, rel=1e-5)


def test_all_inputs_of_a_column_belong_to_it(folder: Path) -> None:
    run = load(str(folder / "mine.yaml"))
    run.describe()
    spec = next(spec for spec in run.data.specs if spec.name == "plain")
    own = inputs_of(run.data.encoders["plain"], spec.features)
    assert sorted(place for places in own.values() for place in places) == list(range(spec.num_features))
    assert len(own["kind"]) >= 3 and len(own["noise"]) == len(own["copy"]) == 1


def test_it_is_of_the_test_rows_as_scikit_learn_has_it(found: Comparison) -> None:
    predictions = pd.read_parquet(found.folder / "runs" / "shared" / "seed_1" / "predictions.parquet")
    own = predictions[(predictions["client"] == "plain") & (predictions["split"] == "test")]
    bins = files(found, "calibration.csv")
    assert bins[bins["client"] == "plain"]["rows"].sum() == len(own)
    number = bins[bins["client"] == "number"]
    assert set(number["of"]) == {"number"} and number["rows"].max() - number["rows"].min() <= 1
    truth = predictions[(predictions["client"] == "number") & (predictions["split"] == "test")]
    mean = (number["true"] * number["rows"]).sum() / number["rows"].sum()
    assert mean == pytest.approx(truth["target"].astype(float).mean(), abs=1e-6)


def test_what_others_gain_is_that_of_runs_made_by_hand(found: Comparison, folder: Path, tmp_path: Path) -> None:
    """The federation without the client ``few``, made from a source that does not have it."""
    config = yaml.safe_load((folder / "mine.yaml").read_text(encoding="utf-8"))
    source = config["data"]["source"]["init_args"]
    del source["files"]["few"]
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    scores = found.collected.scores
    whole = scores[(scores["method"] == "shared") & (scores["split"] == "test") & (scores["without"] == "")]
    whole = whole.set_index(["metric", "client", "seed"])["value"]
    differences = []
    for seed in (1, 2):
        run = load(str(tmp_path / "two.yaml"), f"--seed={seed}", f"--trainer.default_root_dir={tmp_path}",
                   "--board.curves=false", "--board.confusion_matrices=0")  # fmt: skip
        run.fit(quiet=True)
        differences.append(whole["auroc", "plain", seed] - run.test("last", quiet=True).scores["plain"]["auroc"])
    table = pd.read_csv(found.folder / LEFT_OUT).set_index(["metric", "method", "joins", "client"])
    for client in ("plain", OTHERS):  # the other has a score of its own
        row = table.loc[("auroc", "shared", "few", client)]
        assert row["mean"] == pytest.approx(np.mean(differences), abs=1e-7) and row["n"] == 2
    ratio = found.collected.ratio["plain"]
    assert row[["low", "high"]].tolist() == pytest.approx(corrected_interval(differences, ratio), abs=1e-6)
    lift = found.lift.set_index(["metric", "reference", "method", "client"])["mean"]
    assert table.loc[("auroc", "shared", "few", "few"), "mean"] == lift["auroc", "local", "shared", "few"]
    assert len(list(found.folder.glob("runs/shared~*/seed_*/DONE"))) == 6 and found.collected.lacking == 6
    assert set(found.collected.records["method"]) == {"local", "shared"} and len(found.collected.records) == 4
    sentence = next(line for line in found.answers[0].more if line.startswith("Should few join? For few itself: "))
    assert f"{sentence}." in str(found) and f"{sentence}." in (found.folder / "tables.md").read_text("utf-8")


def test_what_failed_is_not_known_and_said_so(found: Comparison) -> None:
    jobs = plan_jobs(found.study, [1, 2], found.folder)
    own = collect(found.study, [job for job in jobs if job.left_out != "few"])
    assert set(own.results["without"]) == {"", "number", "plain"}
    scores = Scores(own)
    table = leave_one_out(found.study, scores)
    (few, *_) = answers(found.study, own, estimates(found.study, scores), lifts(found.study, scores), table)
    assert few.client == "few" and "For the others: not known" in few.more[-1]


def test_where_there_is_nobody_to_leave_out_it_is_refused(found: Comparison, tmp_path: Path) -> None:
    study, one = found.study, {"data.source.init_args.clients": ["wine"]}
    with pytest.raises(ConfigError, match="leave_one_out: expected a federated method"):
        plan_jobs(replace(study, methods={"local": study.methods["local"]}), [1], tmp_path)
    alone = Method("quickstart", set={**one, "exchange.federated": []})
    methods = {"local": alone, "gl": Method("quickstart", set=one)}
    with pytest.raises(ConfigError, match="leave_one_out: expected two clients or more"):
        plan_jobs(Study(methods, [1], leave_one_out=True, baselines={}, choose="auroc"), [1], tmp_path)


def frame(rows: Any, split: str = "test") -> pd.DataFrame:
    import torch

    probability, label = (np.array(part) for part in rows)
    task = Classification(("no", "yes"))
    given = torch.tensor(np.stack([1 - probability, probability], 1), dtype=torch.float32)
    own = task.frame(np.arange(len(label)), torch.tensor(label), given)
    return own.assign(client="ward", split=split, task=task.name).astype({"target": "string", "predicted": "string"})


def test_predictions_that_come_true_lie_on_the_diagonal() -> None:
    rng = np.random.default_rng(4)
    probability = rng.random(20000)
    bins = calibration(read_tested(frame((probability, (rng.random(20000) < probability) + 0))))
    assert np.abs(bins["predicted"] - bins["true"]).max() < 0.04 and bins["rows"].sum() == 20000
    assert set(bins["label"]) == {"yes"}
