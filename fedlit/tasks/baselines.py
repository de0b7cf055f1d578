"""The local baselines that ship with fedlit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedlit.tasks.go_alone import GoAlone, Grid, Settings

_CATEGORIES = {"categories": ["codes", "one_hot"]}


def _models(
    kind: str, features: list[str | float | None], linear: GoAlone, *, poisson: bool = False
) -> dict[str, GoAlone]:
    """Return trees, boosting, a linear model and the mean, by name.

    Args:
        kind: ``Classifier`` or ``Regressor``.
        features: the values of ``max_features`` of the trees.
        linear: the linear model.
        poisson: whether the other models minimise the Poisson deviance.
    """
    criterion: Settings = {}
    loss: Settings = {}
    if poisson:
        criterion = {"criterion": "poisson"}
        loss = {"loss": "poisson"}
    models = (
        GoAlone(
            "extra_trees", f"sklearn.ensemble.ExtraTrees{kind}", criterion,
            {"n_estimators": [300], "min_samples_leaf": [1, 3], "max_features": features}, label="Extra "
                "trees",
        ),
        GoAlone(
            "gradient_boosting", f"sklearn.ensemble.HistGradientBoosting{kind}", {**loss, "early_stopping": False},
            {"max_iter": [100, 300], "learning_rate": [0.05], "max_leaf_nodes": [7, 31]}, label="Gradient "
                "boosting",
            native=True, seedless=True,
        ),
        linear,
        GoAlone("mean", f"sklearn.dummy.Dummy{kind}", label="Mean of its own rows", seedless=True, on_request=True),
    )  # fmt: skip
    return {model.name: model for model in models}


def _one_each(models: Mapping[str, GoAlone]) -> dict[str, GoAlone]:
    """Return the same models with one copy for each column of the target, so that they accept any
    target.
    """
    return {name: replace(model, by_column=True) for name, model in models.items()}


def _linear(name: str, label: str, kind: str, init_args: Settings, grid: Grid) -> GoAlone:
    path = f"sklearn.linear_model.{kind}"
    return GoAlone(
        name, path, init_args, {**grid, **_CATEGORIES}, scale=True, label=label, seedless=True
    )


_LOGISTIC = _linear(
    "logistic_regression", "Logistic regression", "LogisticRegression", {"max_iter": 2000, "n_jobs": None},
    {"C": [0.01, 0.05, 0.2, 1.0, 10.0]},
)  # fmt: skip


_RIDGE = _linear("ridge", "Ridge", "Ridge", {}, {"alpha": [0.1, 1.0, 10.0, 100.0, 1000.0]})


_POISSON = _linear(
    "poisson_regression", "Poisson regression", "PoissonRegressor", {"max_iter": 2000},
    {"alpha": [0.0001, 0.01, 0.1, 1.0, 10.0]},
)  # fmt: skip


CLASSIFIERS = _models("Classifier", ["sqrt", None], _LOGISTIC)


REGRESSORS = _models("Regressor", [1.0, "sqrt"], _RIDGE)


LABELLERS = _one_each(CLASSIFIERS)


COUNTERS = _one_each(_models("Regressor", [1.0, "sqrt"], _POISSON, poisson=True))


CURVES: Mapping[str, GoAlone] = {
    "extra_trees": replace(CLASSIFIERS["extra_trees"], period_input="number"),
    "gradient_boosting": replace(CLASSIFIERS["gradient_boosting"], period_input="number"),
    "logistic_regression": replace(_LOGISTIC, period_input="indicators"),
    "mean": GoAlone(
        "mean",
        "fedlit.tasks.kaplan_meier.KaplanMeier",
        label="Kaplan–Meier of its own rows",
        seedless=True,
    ),
}
