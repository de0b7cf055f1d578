"""Fit AutoGluon to each client's rows alone, and write what it predicts of test rows as a study writes predictions.

In an environment of its own (requirements.txt): ``fit.py ROWS OUT --seconds 600``. ROWS is what write_rows.py wrote. A
client and seed that OUT has already is not fitted again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd
from autogluon.tabular import TabularPredictor

ROW, SPLIT, TARGET = "fedlit:row", "fedlit:split", "fedlit:target"
METRICS = {
    "auroc": {2: "roc_auc", 3: "roc_auc_ovr_macro"}, "accuracy": "accuracy", "balanced_accuracy": "balanced_accuracy",
    "rmse": "root_mean_squared_error", "mae": "mean_absolute_error", "r2": "r2",
}  # fmt: skip


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=600, help="for each client and seed")
    parser.add_argument("--presets", default="best_quality")
    parser.add_argument("--clients", nargs="+", help="these only")
    parser.add_argument("--seeds", nargs="+", type=int, help="these only")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument(
        "--train-alone", action="store_true", help="set validation rows aside for tuning, in place of bagging all rows"
    )
    asked = parser.parse_args()
    for folder in sorted(asked.rows.glob("seed_*"), key=lambda path: int(path.name[5:])):
        if asked.seeds and int(folder.name[5:]) not in asked.seeds:
            continue
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        place = asked.out / folder.name
        (place / "clients").mkdir(parents=True, exist_ok=True)
        for client in asked.clients or about:
            path = place / "clients" / f"{client}.parquet"
            if not path.is_file():
                begun = time.perf_counter()
                predictions = fit(folder / f"{client}.parquet", client, about[client], asked)
                predictions.to_parquet(path, index=False)
                print(f"{folder.name}, {client}: {time.perf_counter() - begun:.0f} s", flush=True)
        parts = [pd.read_parquet(path) for path in sorted((place / "clients").glob("*.parquet"))]
        pd.concat(parts, ignore_index=True).to_parquet(place / "predictions.parquet", index=False)


def fit(path: Path, client: str, about: dict, asked: argparse.Namespace) -> pd.DataFrame:
    """Predictions of one client's test rows: client, split, row, target, probabilities, predicted, task."""
    rows = pd.read_parquet(path)
    for column in about["categorical"]:
        rows[column] = rows[column].astype("string").astype("category")
    splits = {name: own.drop(columns=[ROW, SPLIT]) for name, own in rows.groupby(SPLIT)}
    classes = splits["train"][TARGET].nunique()
    metric = METRICS.get(about["score"])
    metric = metric[min(classes, 3)] if isinstance(metric, dict) else metric
    problem = "regression" if about["task"] == "regression" else "binary" if classes == 2 else "multiclass"
    known = splits["train"] if asked.train_alone else pd.concat([splits["train"], splits["validation"]])
    tuning = {"tuning_data": splits["validation"], "use_bag_holdout": True} if asked.train_alone else {}
    folder = tempfile.mkdtemp(prefix="autogluon_")
    try:
        predictor = TabularPredictor(
            TARGET, problem_type=problem, eval_metric=metric, path=f"{folder}/model", verbosity=1
        )
        predictor.fit(
            known, presets=asked.presets, time_limit=asked.seconds, num_cpus=asked.cores, dynamic_stacking=False,
            ag_args_ensemble={"fold_fitting_strategy": "sequential_local"}, **tuning,
        )  # fmt: skip
        test = splits["test"].drop(columns=TARGET)
        target = splits["test"][TARGET]
        frame = pd.DataFrame(
            {"client": client, "split": "test", "row": rows.loc[rows[SPLIT] == "test", ROW].to_numpy()}
        )
        if problem == "regression":
            frame["target"], frame["predicted"] = target.to_numpy(), predictor.predict(test).to_numpy()
        else:
            given = predictor.predict_proba(test)
            seen = set(splits["train"][TARGET])  # a label that training rows lack is no class of the study's
            given = given[[label for label in given if label in seen]]
            given = given.div(given.sum(axis=1), axis=0)
            frame["target"] = target.where(target.isin(seen)).to_numpy()
            for label in given:
                frame[f"probability_{label}"] = given[label].to_numpy("float32")
            frame["predicted"] = given.idxmax(axis=1).to_numpy()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return frame.assign(task=about["task"])


if __name__ == "__main__":
    main()
