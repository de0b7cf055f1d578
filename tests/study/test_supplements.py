"""Scores at thresholds and by group in a study's report: computed from stored predictions, without
another training."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

from fedlit import Method, Study
from fedlit.run.load import load
from fedlit.study.compare import Comparison, compare

SCORE: dict[str, object] = {"score.threshold": "youden", "score.subgroups": ["sex"]}


def compared(folder: Path, score: dict[str, object]) -> Comparison:
    local = Method(
        "quickstart",
        label="Local",
        set={"exchange.federated": [], "trainer.max_epochs": 1, **score},
    )
    models: dict[str, dict[str, Any] | None] = {"logistic_regression": {"C": [1.0]}}
    study = Study({"local": local}, seeds=[1, 2], baselines=models, metrics=["auroc"], bootstrap=0)
    return compare(study, out=folder, workers=1, quiet=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compared(tmp_path_factory.mktemp("study"), SCORE)


def predictions(found: Comparison, model: str, seed: int, client: str) -> pd.DataFrame:
    frame = pd.read_parquet(found.folder / "runs" / model / f"seed_{seed}" / "predictions.parquet")
    return frame[frame["client"] == client]


@pytest.mark.parametrize("model", ["local", "logistic_regression"])
def test_thresholds_are_means_over_seeds(found: Comparison, model: str) -> None:
    table = (
        pd.read_csv(found.folder / "thresholds.csv")
        .set_index(["client", "method", "at"])
        .sort_index()
    )
    own = table.loc["west", model]
    counts = []
    for seed in (1, 2):
        test = predictions(found, model, seed, "west").query("split == 'test'")
        labels = [
            name.removeprefix("probability_")
            for name in map(str, test)
            if name.startswith("probability_")
        ]
        counts.append(confusion_matrix(test["target"], test["predicted"], labels=labels))
    negatives, positives = np.mean(counts, axis=0)
    names = ["true_negatives", "false_positives", "false_negatives", "true_positives"]
    assert own.loc["0.5", names].tolist() == [*negatives, *positives]
    expected = np.mean([count[1, 1] / count[1].sum() for count in counts])
    assert own.loc["0.5", "sensitivity"] == pytest.approx(expected)
    assert own.loc["threshold", names].sum() == own.loc["0.5", names].sum()
    assert own.loc["threshold", "threshold"] != 0.5


def test_groups_are_scored_as_their_rows_alone(found: Comparison) -> None:
    table = (
        pd.read_csv(found.folder / "subgroups.csv")
        .set_index(["client", "method", "level"])
        .sort_index()
    )
    levels = table.loc["west", "local"]
    expected: dict[str, list[float]] = {level: [] for level in levels.index}
    for seed in (1, 2):
        run = load("quickstart", overrides={"seed": seed})
        (west,) = run.data.source.some(["west"], seed)
        test = predictions(found, "local", seed, "west").query("split == 'test'")
        sex = west.features["sex"].loc[test["row"]].to_numpy()
        *_, positive = [name for name in map(str, test) if name.startswith("probability_")]
        for level, scores in expected.items():
            own = test[sex == level]
            scores.append(
                roc_auc_score(own["target"] == positive.removeprefix("probability_"), own[positive])
            )
    for level, scores in expected.items():
        assert levels.loc[level, "auroc"] == pytest.approx(np.mean(scores), abs=1e-6)


def test_the_page_folds_them_and_shows_counts(found: Comparison) -> None:
    page = (found.folder / "report.html").read_text("utf-8")
    folded = page.count("<details>")
    assert folded == 2 and "true positives" in page
    assert "west: Logistic regression" in (found.folder / "tables.md").read_text("utf-8")


def test_asking_trains_nothing_again(found: Comparison) -> None:
    done = {path: path.stat().st_mtime_ns for path in found.folder.glob("runs/*/*/DONE")}
    before = pd.read_csv(found.folder / "thresholds.csv")
    again = compared(found.folder, {"score.threshold": {"sensitivity": 0.9}})
    after = pd.read_csv(found.folder / "thresholds.csv")
    assert done and {path: path.stat().st_mtime_ns for path in done} == done
    assert not before.equals(after) and not (found.folder / "subgroups.csv").exists()
    assert [own.name for own in again.supplements] == ["thresholds"]
    compared(found.folder, {})
    assert not (found.folder / "thresholds.csv").exists()
