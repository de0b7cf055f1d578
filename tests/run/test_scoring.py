"""Scores at thresholds and of subgroups, of real runs: what is chosen from which rows, written, and
carried along."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federations import BUNDLED
from sklearn.calibration import calibration_curve
from sklearn.inspection import permutation_importance
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score, roc_curve

import fedlit.score
from fedlit import yaml_text
from fedlit.__main__ import main
from fedlit.errors import ConfigError, DataError
from fedlit.run.load import load
from fedlit.run.scoring import ScoreSettings
from fedlit.run.subgroups import levels

CONFIG = """
seed: 1
data:
  source: {{class_path: fedlit.Tables, init_args: {{files: {folder}/*.csv, target: outcome}}}}
  batches: 4
  columns: ["*", "!sex"]
model: {{client: {{class_path: fedlit.FederatedClient, init_args: {{network: fedlit.MLP}}}}, threads: 1}}
exchange: {{federated: [core]}}
board: {{pictures: 0}}
trainer: {{max_epochs: 4, default_root_dir: {folder}/logs, enable_progress_bar: false}}
"""


def clinic(seed: int, count: int = 300) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": draw.normal(55, 12, count).round(), "dose": draw.normal(size=count)}
    )
    frame["sex"] = draw.choice(np.array(["f", "m", None], object), count, p=[0.6, 0.37, 0.03])
    risk = (frame["age"] - 55) / 12 + frame["dose"] + draw.normal(size=count)
    frame["outcome"] = np.where(risk > 1.2, "ill", "well")
    return frame


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, mine.yaml and a run; nobody trains on sex, which south does not even
    have."""
    folder = tmp_path_factory.mktemp("scoring")
    clinic(1).to_csv(folder / "north.csv", index=False)
    clinic(2).drop(columns="sex").to_csv(folder / "south.csv", index=False)
    (folder / "mine.yaml").write_text(CONFIG.format(folder=folder))
    assert main(["fit", "--config", str(folder / "mine.yaml")]) == 0
    return folder


@pytest.fixture
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


RUN = Path("logs/mine/version_0")


def rows_of(split: str, client: str = "north") -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """The rows of a split, whether they are positive, and the run's probability of it."""
    run = load("mine.yaml", command="describe")
    (table,) = (own for own in run.data.source.tables(1) if own.name == client)
    place = table.splits[split]  # type: ignore[index]
    probability = run.client(client).predict(table.features.iloc[place])["probability_well"]
    return (
        table.features.iloc[place],
        (table.target.iloc[place] == "well").to_numpy(),
        probability.to_numpy(),
    )


def test_validation_rows_choose_and_test_rows_are_scored(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = main(["test", "--config", "mine.yaml"])
    usual = json.loads((RUN / "test.json").read_text())
    assert (
        before
        == main(["test", "--config", "mine.yaml", "--score.threshold", "{specificity: 0.8}"])
        == 0
    )
    assert "0.5000" in capsys.readouterr().out
    found = json.loads((RUN / "test.json").read_text())
    table = pd.read_csv(RUN / "test_thresholds.csv")
    assert table["client"].tolist() == ["north", "north", "south", "south"]
    for client in ("north", "south"):
        _, positive, probability = rows_of("validation", client)
        false_rate, true_rate, _ = roc_curve(positive, probability, drop_intermediate=False)
        best = true_rate[1 - false_rate >= 0.8 - 1e-9].max()
        kept = json.loads((RUN / "thresholds.json").read_text())["clients"][client]
        assert kept["sensitivity"] == pytest.approx(best) and kept["specificity"] >= 0.8
        _, positive, probability = rows_of("test", client)
        half, chosen = found["clients"][client].pop("thresholds")
        for own, predicted in ((half, probability > 0.5), (chosen, probability >= kept["value"])):
            assert own["sensitivity"] == pytest.approx(recall_score(positive, predicted))
            assert own["specificity"] == pytest.approx(recall_score(~positive, ~predicted))
            assert own["balanced_accuracy"] == pytest.approx(
                balanced_accuracy_score(positive, predicted)
            )
            assert own["true_positives"] + own["false_negatives"] == positive.sum()
        assert chosen["threshold"] == kept["value"] and half["threshold"] == 0.5
        assert half["balanced_accuracy"] == pytest.approx(
            found["clients"][client]["balanced_accuracy"], abs=1e-6
        )
    assert found == usual  # which stay as they are


def test_predictions_and_the_export_carry_a_threshold(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", "--config", "mine.yaml", "--score.threshold", "youden"]) == 0
    value = json.loads((RUN / "thresholds.json").read_text())["clients"]["north"]["value"]
    rows = ["--data", "north.csv", "--out", "out/scores.csv"]
    assert main(["predict", "--run", str(RUN), "--client", "north", *rows]) == 0
    scores = pd.read_csv("out/scores.csv")
    expected = np.where(scores["probability_well"] >= value, "well", "ill")
    assert (scores["predicted_at_threshold"] == expected).all()
    assert (scores["predicted"] == np.where(scores["probability_well"] > 0.5, "well", "ill")).all()
    assert main(["export", "--run", str(RUN), "--client", "north", "--out", "exported"]) == 0
    exported = fedlit.score.load("exported")
    assert exported.threshold == value
    assert exported.predict(clinic(1))["predicted_at_threshold"].tolist() == expected.tolist()
    assert f"{value:.4f}" in Path("exported/model_card.md").read_text()
    assert main(["predict", "--config", "mine.yaml"]) == 0
    split = pd.read_csv(RUN / "predictions" / "test" / "north.csv")
    assert (split["predicted_at_threshold"] == expected[split["row"]]).all()
    # another checkpoint has no threshold, and says so
    capsys.readouterr()
    assert (
        main(["predict", "--run", str(RUN), "--client", "north", *rows, "--ckpt_path", "best"]) == 0
    )
    assert "no threshold" in capsys.readouterr().out
    assert "predicted_at_threshold" not in pd.read_csv("out/scores.csv")
    damaged = json.loads((RUN / "thresholds.json").read_text())
    damaged["clients"]["north"]["value"] = 7
    (RUN / "thresholds.json").write_text(json.dumps(damaged))
    with pytest.raises(DataError, match=r"thresholds\.json"):
        fedlit.score.load_run(RUN, "north", quiet=True)
    (RUN / "thresholds.json").unlink()
    assert fedlit.score.load_run(RUN, "north", quiet=True).threshold is None


def test_subgroups_are_scored_as_their_rows_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--score.subgroups", "{sex: null, age: [40, 65]}"]
    assert main(["test", "--config", "mine.yaml", *asked]) == 0
    assert "south: its table has no sex" in capsys.readouterr().out
    table = pd.read_csv(RUN / "test_subgroups.csv")
    found = table[table["client"] == "north"].set_index(["column", "level"])
    features, positive, probability = rows_of("test")
    age = pd.cut(features["age"], [-np.inf, 40, 65, np.inf], right=False)
    masks = {("sex", sex): features["sex"] == sex for sex in ("f", "m")}
    masks[("sex", "missing")] = features["sex"].isna()
    names = ["below 40", "40 to below 65", "65 and above"]
    masks |= {
        ("age", name): age == level for name, level in zip(names, age.cat.categories, strict=True)
    }
    assert found.index.tolist() == list(masks)
    undefined = 0
    for level, mask in masks.items():
        chosen = mask.to_numpy()
        own: Any = found.loc[level]
        assert own["rows"] == chosen.sum() and own["positives"] == positive[chosen].sum()
        both = 0 < positive[chosen].sum() < chosen.sum()
        undefined += not both
        auroc = roc_auc_score(positive[chosen], probability[chosen]) if both else np.nan
        assert own["auroc"] == pytest.approx(auroc, nan_ok=True)
        if both:
            assert own["sensitivity"] == pytest.approx(
                recall_score(positive[chosen], probability[chosen] > 0.5)
            )
    assert undefined  # of few rows all may be of one class
    assert set(table.loc[table["client"] == "south", "column"]) == {"age"}
    # without the key, its file does not stay beside other scores
    assert main(["test", "--config", "mine.yaml"]) == 0
    assert not (RUN / "test_subgroups.csv").exists()


def test_cuts_in_a_file_are_numbers_and_names_are_text() -> None:
    cut = yaml_text.load("score: {subgroups: {101: [40, 65], no: }}")
    assert cut == {"score": {"subgroups": {"101": [40, 65], "no": None}}}
    assert yaml_text.load("score: {subgroups: [101, no]}") == {
        "score": {"subgroups": ["101", "no"]}
    }


def test_levels_of_a_column() -> None:
    stages = levels(pd.Series([3.0, 1.0, np.nan, 10.0]), None, "stage")
    assert stages.cat.categories.tolist() == ["1", "3", "10", "missing"] and stages.tolist() == [
        "3",
        "1",
        "missing",
        "10",
    ]
    with pytest.raises(DataError, match="age: \\[40, 65\\]"):
        levels(pd.Series(np.arange(99.0)), None, "age")
    with pytest.raises(DataError, match="sex"):
        levels(pd.Series(["f", "m"]), [40], "sex")


@pytest.mark.parametrize("wrong", [["sex", 1], 5, {"age": []}, {"age": ["old"]}, {"age": 40}])
def test_subgroups_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"score\.subgroups"):
        ScoreSettings(subgroups=wrong)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"score.threshold": "yuden"}, r"score\.threshold"),
        ({"score.threshold": {"recall": 0.9}}, "sensitivity"),
        ({"score.subgroups": {"age": [65, 40]}}, r"score\.subgroups\.age"),
        ({"score.subgroups": ["sexx"]}, "'sexx'.*'sex'"),
    ],
)
def test_what_is_refused(here: Path, keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load("mine.yaml", overrides=keys, command="test").test(quiet=True)


def test_more_than_two_classes_have_no_threshold() -> None:
    run = load(str(BUNDLED), overrides={"score.threshold": "youden"})
    with pytest.raises(ConfigError, match=r"digits: 10 classes, wine: 3 classes"):
        run.describe()


def test_importance_and_calibration_are_scikit_learns(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["explain", "--run", str(RUN), "--client", "north", "--repeats", "3", "--seed", "4"]
    assert main(asked) == 0
    folder = RUN / "explain" / "north"
    names = {
        "importance.csv",
        "importance.png",
        "importance.svg",
        "calibration.csv",
        "calibration.png",
    }
    assert names | {"calibration.svg"} == {path.name for path in folder.iterdir()}
    features, positive, probability = rows_of("test")
    estimator = fedlit.score.estimator_of(load("mine.yaml", command="describe").client("north"))
    expected = permutation_importance(
        estimator,
        features[["age", "dose"]],
        positive_labels(positive),
        scoring="roc_auc",
        n_repeats=3,
        random_state=4,
    )
    found = pd.read_csv(folder / "importance.csv").set_index("column").loc[["age", "dose"]]
    np.testing.assert_allclose(found["importance"], expected.importances_mean, atol=1e-6)
    np.testing.assert_allclose(found["deviation"], expected.importances_std, atol=1e-6)
    table = pd.read_csv(folder / "calibration.csv")
    observed, predicted = calibration_curve(
        positive, probability, n_bins=len(table), strategy="quantile"
    )
    np.testing.assert_allclose(table["observed"], observed)
    np.testing.assert_allclose(table["predicted"], predicted, atol=1e-6)
    assert table["rows"].sum() == len(positive) and set(table["class"]) == {"well"}
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(asked) == 0
    assert before == {path: path.read_bytes() for path in folder.iterdir()}
    assert main([*asked, "--rows", "validation"]) == 0
    assert f"{len(rows_of('validation')[1])} validation rows" in capsys.readouterr().out
    assert main(["explain", "--run", str(RUN), "--client", "east"]) == 2
    assert main(["explain", "--run", str(RUN), "--rows", "validation"]) == 2
    assert main(["explain", "--run", str(RUN)]) == 2  # nothing is corrected here


def positive_labels(positive: np.ndarray) -> np.ndarray:
    return np.where(positive, "well", "ill")
