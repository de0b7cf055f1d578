"""Local baselines of scikit-learn: what a client reaches on its own rows, with the care that a careful user takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = [
    "CLASSIFIERS", "COUNTERS", "LABELLERS", "LINEAR", "MOST_CATEGORIES", "REGRESSORS", "TREES", "TREES_AND_LINEAR",
    "GoAlone", "OneEach", "prepared",
]  # fmt: skip

MOST_CATEGORIES = 255  # of a column in gradient boosting
TREES_AND_LINEAR = "trees_and_linear"  # the mean of what two other models predict, with equal weights
TREES, LINEAR = ("extra_trees",), ("logistic_regression", "ridge", "poisson_regression")  # which two; by task

Grid = Mapping[str, list[Any]]
Build = Callable[[dict[str, Any], list[int], int, int], Any]


@dataclass(frozen=True)
class GoAlone:
    """A model that a client can fit without anyone.

    Attributes:
        name: as studies call it.
        label: as people read it.
        grid: settings of which the best on validation is taken, per client and seed; the first of equals.
        build: makes the untrained model from (settings, categorical, seed, threads).
        seedless: whether it is given no seed (on the same rows it differs by nothing that matters), and fitted once.
        asked: whether a study must name it: it needs a package that fedlit does not, or is no match for the others.

    Example:
        >>> CLASSIFIERS["extra_trees"].make({"n_estimators": 10}, [])
        ExtraTreesClassifier(n_estimators=10, n_jobs=1, random_state=0)
    """

    name: str
    label: str
    grid: Grid
    build: Build
    seedless: bool = False
    asked: bool = False

    def make(
        self,
        settings: Mapping[str, Any],
        categorical: list[int],
        seed: int = 0,
        threads: int = 1,
        wide: Collection[int] = (),
    ) -> Any:
        """An untrained model of scikit-learn.

        Args:
            settings: keyword arguments of scikit-learn's class; for linear models also ``categories``: whether they
                are numbers (``codes``) or a column each (``one_hot``). Everything is scaled for these.
            categorical: positions of the columns that hold category codes, −1 for missing or unseen.
            seed: of the model's own randomness.
            threads: how many it may use.
            wide: which of these columns have more categories than scikit-learn's gradient boosting takes (255): there
                their codes are numbers.
        """
        if self.name == "gradient_boosting":
            categorical = [position for position in categorical if position not in wide]
        return self.build(dict(settings), categorical, seed, threads)


class OneEach:
    """A model for each column of a target, fitted to the rows that have a value there.

    Of a column that has one value only, or none, models of scikit-learn make an error: that value is predicted then,
    and 0 or 1 with equal probability where there is none.

    Args:
        model: untrained; each column gets a copy.
        kind: ``Classifier`` or ``Regressor``.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([[0, 0], [1, 0], [np.nan, 0]])
        >>> OneEach(LogisticRegression(), "Classifier").fit(x, y).predict_proba(x).round(1)
        array([[0.4, 0. ],
               [0.6, 0. ],
               [0.7, 0. ]])
    """

    def __init__(self, model: Any, kind: str) -> None:
        self.model, self.kind = model, kind
        self.fitted: list[Any] = []

    def fit(self, x: np.ndarray, y: np.ndarray) -> OneEach:
        """Fit to rows.

        Args:
            x: (n, d) float.
            y: (n,) or (n, columns) float, NaN where it is not known.
        """
        self.fitted = [self._fit(x, own) for own in y.reshape(len(y), -1).T]
        return self

    def _fit(self, x: np.ndarray, y: np.ndarray) -> Any:
        from sklearn import dummy
        from sklearn.base import clone

        known = ~np.isnan(y)
        rows, own = (x[known], y[known]) if known.any() else (x[:2], np.array([0.0, 1.0])[: len(x)])
        varies = known.any() and own.min() < own.max()
        model = clone(self.model) if varies else getattr(dummy, f"Dummy{self.kind}")()
        return model.fit(rows, own)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,) float, of a target of one column."""
        return np.asarray(self.fitted[0].predict(x))

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, columns) float, the probability of 1."""
        made = [model.predict_proba(x) @ (model.classes_ == 1) for model in self.fitted]
        return np.stack(made, axis=1)


def _one_each(models: Mapping[str, GoAlone], kind: str) -> dict[str, GoAlone]:
    """The same models, which take any target."""

    def around(build: Build) -> Build:
        return lambda *arguments: OneEach(build(*arguments), kind)

    return {name: replace(own, build=around(own.build)) for name, own in models.items()}


def _trees(kind: str, **fixed: Any) -> Build:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import ensemble

        return getattr(ensemble, f"ExtraTrees{kind}")(**fixed, **settings, random_state=seed, n_jobs=threads)

    return build


def _boosting(kind: str, **fixed: Any) -> Build:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import ensemble

        return getattr(ensemble, f"HistGradientBoosting{kind}")(
            **fixed, **settings, categorical_features=categorical or None, early_stopping=False, random_state=seed
        )

    return build


def prepared(model: Any, one_hot: list[int], *, scale: bool) -> Any:
    """A model behind what its columns need.

    Args:
        model: untrained.
        one_hot: positions of the columns of category codes that become a column for each category.
        scale: whether columns get mean 0 and standard deviation 1.
    """
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    steps = [make_column_transformer((encoder, one_hot), remainder="passthrough")] if one_hot else []
    return make_pipeline(*steps, *([StandardScaler()] if scale else []), model)


def _linear(kind: str, *, seeded: bool = True, **fixed: Any) -> Build:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import linear_model

        one_hot = settings.pop("categories", "codes") == "one_hot"
        model = getattr(linear_model, kind)(**settings, **fixed, **({"random_state": seed} if seeded else {}))
        return prepared(model, categorical if one_hot else [], scale=True)

    return build


def _lightgbm(kind: str, **fixed: Any) -> GoAlone:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from fedlit.tasks.boosted import boosted

        return boosted(kind, {**fixed, **settings}, categorical, seed, threads)

    grid: Grid = {"n_estimators": [300], "learning_rate": [0.1], "num_leaves": [7, 31], "min_child_samples": [5, 20]}
    return GoAlone("lightgbm", "LightGBM", grid, build, asked=True)


def _mean(kind: str) -> GoAlone:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import dummy

        return getattr(dummy, f"Dummy{kind}")(**settings)

    return GoAlone("mean", "Mean of its own rows", {}, build, seedless=True, asked=True)


_TREES: Grid = {"n_estimators": [300], "min_samples_leaf": [1, 3]}
_BOOSTING: Grid = {"max_iter": [100, 300], "learning_rate": [0.05], "max_leaf_nodes": [7, 31]}
_CATEGORIES = {"categories": ["codes", "one_hot"]}


def _models(kind: str, features: list[Any], linear: GoAlone, *, poisson: bool = False) -> dict[str, GoAlone]:
    """Trees, boosting, a linear model, LightGBM and the mean, by name.

    Args:
        kind: ``Classifier`` or ``Regressor``.
        features: ``max_features`` of the trees.
        linear: which linear model.
        poisson: whether the others minimise Poisson's deviance.
    """
    criterion, loss, objective = ({key: "poisson"} if poisson else {} for key in ("criterion", "loss", "objective"))
    models = (
        GoAlone("extra_trees", "Extra trees", {**_TREES, "max_features": features}, _trees(kind, **criterion)),
        GoAlone("gradient_boosting", "Gradient boosting", _BOOSTING, _boosting(kind, **loss), seedless=True),
        linear,
        _lightgbm(kind, **objective),
        _mean(kind),
    )
    return {model.name: model for model in models}


_LOGISTIC = GoAlone(
    "logistic_regression", "Logistic regression", {"C": [0.01, 0.05, 0.2, 1.0, 10.0], **_CATEGORIES},
    _linear("LogisticRegression", max_iter=2000), seedless=True,
)  # fmt: skip
_RIDGE = GoAlone(
    "ridge", "Ridge", {"alpha": [0.1, 1.0, 10.0, 100.0, 1000.0], **_CATEGORIES}, _linear("Ridge"), seedless=True
)
_POISSON = GoAlone(
    "poisson_regression", "Poisson regression", {"alpha": [0.0001, 0.01, 0.1, 1.0, 10.0], **_CATEGORIES},
    _linear("PoissonRegressor", seeded=False, max_iter=2000), seedless=True,
)  # fmt: skip

CLASSIFIERS = _models("Classifier", ["sqrt", None], _LOGISTIC)
REGRESSORS = _models("Regressor", [1.0, "sqrt"], _RIDGE)
LABELLERS = _one_each(CLASSIFIERS, "Classifier")
COUNTERS = _one_each(_models("Regressor", [1.0, "sqrt"], _POISSON, poisson=True), "Regressor")
