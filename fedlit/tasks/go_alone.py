"""Go-alone models of scikit-learn: what a client reaches on its own rows, with the care that a careful user takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["CLASSIFIERS", "MOST_CATEGORIES", "REGRESSORS", "GoAlone"]

MOST_CATEGORIES = 255  # of a column in gradient boosting

Grid = Mapping[str, list[Any]]


@dataclass(frozen=True)
class GoAlone:
    """A model that a client can fit without anyone.

    Attributes:
        name: as studies call it.
        label: as people read it.
        grid: settings of which the best on validation is taken, per client and seed; the first of equals.
        build: makes the untrained model from (settings, categorical, seed, threads).
        seedless: whether it is given no seed (on the same rows it differs by nothing that matters), and fitted once.

    Example:
        >>> CLASSIFIERS["extra_trees"].make({"n_estimators": 10}, [])
        ExtraTreesClassifier(n_estimators=10, n_jobs=1, random_state=0)
    """

    name: str
    label: str
    grid: Grid
    build: Callable[[dict[str, Any], list[int], int, int], Any]
    seedless: bool = False

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


def _trees(kind: str) -> Callable[[dict[str, Any], list[int], int, int], Any]:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import ensemble

        return getattr(ensemble, f"ExtraTrees{kind}")(**settings, random_state=seed, n_jobs=threads)

    return build


def _boosting(kind: str) -> Callable[[dict[str, Any], list[int], int, int], Any]:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import ensemble

        return getattr(ensemble, f"HistGradientBoosting{kind}")(
            **settings, categorical_features=categorical or None, early_stopping=False, random_state=seed
        )

    return build


def _linear(kind: str, **fixed: Any) -> Callable[[dict[str, Any], list[int], int, int], Any]:
    def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
        from sklearn import linear_model
        from sklearn.compose import make_column_transformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        one_hot = settings.pop("categories", "codes") == "one_hot" and categorical
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        expand = [make_column_transformer((encoder, categorical), remainder="passthrough")] if one_hot else []
        model = getattr(linear_model, kind)(**settings, **fixed, random_state=seed)
        return make_pipeline(*expand, StandardScaler(), model)

    return build


_BOOSTING: Grid = {"max_iter": [100, 300], "learning_rate": [0.05], "max_leaf_nodes": [7, 31]}
_CATEGORIES = ["codes", "one_hot"]

CLASSIFIERS = {
    "extra_trees": GoAlone(
        "extra_trees",
        "Extra trees",
        {"n_estimators": [300], "min_samples_leaf": [1, 3], "max_features": ["sqrt", None]},
        _trees("Classifier"),
    ),
    "gradient_boosting": GoAlone(
        "gradient_boosting", "Gradient boosting", _BOOSTING, _boosting("Classifier"), seedless=True
    ),
    "logistic_regression": GoAlone(
        "logistic_regression",
        "Logistic regression",
        {"C": [0.01, 0.05, 0.2, 1.0, 10.0], "categories": _CATEGORIES},
        _linear("LogisticRegression", max_iter=2000),
        seedless=True,
    ),
}
REGRESSORS = {
    "extra_trees": GoAlone(
        "extra_trees",
        "Extra trees",
        {"n_estimators": [300], "min_samples_leaf": [1, 3], "max_features": [1.0, "sqrt"]},
        _trees("Regressor"),
    ),
    "gradient_boosting": GoAlone(
        "gradient_boosting", "Gradient boosting", _BOOSTING, _boosting("Regressor"), seedless=True
    ),
    "ridge": GoAlone(
        "ridge",
        "Ridge",
        {"alpha": [0.1, 1.0, 10.0, 100.0, 1000.0], "categories": _CATEGORIES},
        _linear("Ridge"),
        seedless=True,
    ),
}
