"""Local baselines: models that a client fits to its rows alone, from scikit-learn or with the same
interface.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pydoc import locate
from typing import Any

import numpy as np

from fedlit.errors import ConfigError, did_you_mean, expect, must_be_known
from fedlit.outcomes import OneEach, Outcome

MOST_CATEGORIES = 255  # of a column in gradient boosting
# the mean of what two other models predict, with equal weights
TREES_AND_LINEAR = "trees_and_linear"
# which two; by task
TREES = ("extra_trees",)
LINEAR = ("logistic_regression", "ridge", "poisson_regression")

Grid = Mapping[str, list[Any]]
_TOLD = {"class_path": str, "init_args": dict, "grid": dict, "scale": bool, "label": str}


def is_any_model(settings: Any) -> bool:
    """Return whether the settings of a local baseline describe a class, and not only a grid of
    settings.
    """
    return isinstance(settings, Mapping) and "class_path" in settings


@dataclass(frozen=True)
class GoAlone:
    """A model that a client can fit without other clients: a scikit-learn class, or one with the
    same interface.

    Attributes:
        name: the name in studies.
        class_path: the path of the class.
        init_args: the arguments of the class; a value may itself be a model, given by its class
            path.
        grid: the settings to try: for each client and seed, those with the best validation score
            are used, the first among equals. The key ``categories`` determines whether categories
            become numbers (``codes``) or one column each (``one_hot``).
        scale: whether columns are scaled to mean 0 and standard deviation 1.
        label: the name that is shown to the user.
        native: whether the model gets the positions of categorical columns.
        by_column: whether each column of the target gets a model of its own, see :class:`FitEach`.
        seedless: whether the model gets no seed and is fitted only once, because on the same rows
            it does not vary by anything that matters.
        on_request: whether it is used only if a study names it, because it is no match for the others.

    Example:
        >>> CLASSIFIERS["extra_trees"].make({"n_estimators": 10}, [])
        ExtraTreesClassifier(n_estimators=10, n_jobs=1, random_state=0)
        >>> own = {"class_path": "sklearn.svm.SVC", "init_args": {"probability": True}, "scale": True}
        >>> GoAlone.read("my_svm", own).kind
        'Classifier'
    """

    name: str
    class_path: str
    init_args: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)
    scale: bool = False
    label: str = ""
    native: bool = False
    by_column: bool = False
    seedless: bool = False
    on_request: bool = False

    @classmethod
    def read(cls, name: str, settings: Mapping[str, Any]) -> GoAlone:
        """Read the description of a class from a study.

        Raises:
            ConfigError: a key is unknown, or a value is of the wrong kind.
        """
        must_be_known(f"baselines.{name}", settings, _TOLD)
        for key, value in settings.items():
            expect(
                isinstance(value, _TOLD[key]),
                f"baselines.{name}.{key}",
                f"a {_TOLD[key].__name__}",
                value,
            )
        for key, values in settings.get("grid", {}).items():
            well = isinstance(values, list) and len(values) > 0
            expect(well, f"baselines.{name}.grid.{key}", "a list of values", values)
        return cls(**{"label": name, **settings, "name": name})

    @property
    def kind(self) -> str:
        """The kind of the model: ``Classifier`` or ``Regressor``.

        Raises:
            ConfigError: the class does not exist, is neither of the two, cannot be built, or
                returns no probabilities.
        """
        from sklearn.base import is_classifier, is_regressor

        model = self._made(
            {key: values[0] for key, values in self.grid.items() if key != "categories"}
        )
        if is_regressor(model):
            return "Regressor"
        if not is_classifier(model) or not hasattr(model, "predict_proba"):
            raise ConfigError(
                f"baselines.{self.name}: expected a regressor, or a classifier with predict_proba, "
                f"as scikit-learn has them, found {self.class_path}; take another class (or "
                "probability: true in init_args of an SVC)"
            )
        return "Classifier"

    def for_outcome(self, outcome: type[Outcome]) -> GoAlone | None:
        """Return the model for a task with this outcome; None if the class predicts something
        else.
        """
        if outcome.estimator != self.kind:
            return None
        seedless = "random_state" not in inspect.signature(self._class()).parameters
        return replace(self, by_column=outcome.one_model_each, seedless=seedless)

    def make(
        self,
        settings: Mapping[str, Any],
        categorical: list[int],
        seed: int = 0,
        threads: int = 1,
        wide: Collection[int] = (),
    ) -> Any:
        """Return an untrained model.

        Args:
            settings: keyword arguments of the class, and ``categories``, see ``grid``.
            categorical: the positions of the columns that hold category codes, with −1 for a
                missing or unseen category.
            seed: the seed of the model's random numbers.
            threads: the number of threads that the model may use.
            wide: which of these columns have more categories than scikit-learn's gradient boosting
                accepts (255); there, their codes are treated as numbers.
        """
        parameters = inspect.signature(self._class()).parameters
        arguments = dict(settings)
        one_hot = categorical if arguments.pop("categories", "codes") == "one_hot" else []
        defaults: dict[str, Any] = {"random_state": seed, "n_jobs": threads}
        if self.native:
            defaults["categorical_features"] = [
                column for column in categorical if column not in wide
            ] or None
        defaults = {
            key: value
            for key, value in defaults.items()
            if key in parameters and key not in self.init_args
        }
        model = self._made({**defaults, **arguments})
        if one_hot or self.scale:
            model = _prepared(model, one_hot, scale=self.scale)
        return FitEach(model) if self.by_column else model

    def _class(self) -> Any:
        key = f"baselines.{self.name}.class_path"
        module = self.class_path.rpartition(".")[0]
        try:
            resolved = locate(self.class_path)
        except Exception as error:  # whatever a module does when it is imported
            raise ConfigError(
                f"{key}: expected the path of a class, found {self.class_path!r}: {error}"
            ) from error
        if not inspect.isclass(resolved):
            around = locate(module) if module else None
            classes = (
                [name for name, value in vars(around).items() if inspect.isclass(value)]
                if around
                else []
            )
            raise ConfigError(
                f"{key}: expected the path of a class, such as sklearn.svm.SVC, found "
                f"{self.class_path!r}."
                + did_you_mean(self.class_path.rpartition(".")[2], classes, f"{module}.")
            )
        return resolved

    def _built(self, value: Any) -> Any:
        """Return a value of ``init_args``, built as a model if it has a class path itself."""
        return GoAlone.read(self.name, value)._made({}) if is_any_model(value) else value

    def _made(self, settings: Mapping[str, Any]) -> Any:
        model_class = self._class()
        try:
            model = model_class(
                **{key: self._built(value) for key, value in self.init_args.items()}
            )
            return model.set_params(**settings) if settings else model
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"baselines.{self.name}: expected settings of {self.class_path}, found "
                f"{', '.join(map(str, {**self.init_args, **settings}))}; {error}"
            ) from error


class FitEach(OneEach):
    """One model for each column of a target, fitted to the rows that have a value in that column.

    Scikit-learn models raise an error for a column with only one value, or none. In this case that
    value is predicted, or 0 and 1 with equal probability if there is none.

    Args:
        model: the untrained model; each column gets a copy.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([[0, 0], [1, 0], [np.nan, 0]])
        >>> FitEach(LogisticRegression()).fit(x, y).predict_proba(x).round(1)
        array([[0.4, 0. ],
               [0.6, 0. ],
               [0.7, 0. ]])
    """

    def __init__(self, model: Any) -> None:
        super().__init__([])
        self.model = model

    def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> FitEach:
        """Fit to rows.

        Args:
            x: (n, d) float.
            y: (n,) or (n, columns) float, NaN if the value is unknown.
            sample_weight: (n,) how much each row counts; None if all count alike.
        """
        self.fitted = [self._fit(x, column, sample_weight) for column in y.reshape(len(y), -1).T]
        return self

    def _fit(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Any:
        from sklearn.base import clone, is_regressor
        from sklearn.dummy import DummyClassifier, DummyRegressor

        observed = ~np.isnan(y)
        rows, target = (
            (x[observed], y[observed])
            if observed.any()
            else (x[:2], np.array([0.0, 1.0])[: len(x)])
        )
        varies = observed.any() and target.min() < target.max()
        constant = DummyRegressor if is_regressor(self.model) else DummyClassifier
        model = clone(self.model) if varies else constant()
        return (
            model.fit(rows, target)
            if weight is None
            else fit_weighted(model, rows, target, weight[observed])
        )


def fit_weighted(model: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Any:
    """Fit a model, and each step before it that takes weights of rows, to weighted rows.

    Args:
        model: an untrained model, or a pipeline.
        x: (n, d) float.
        y: (n,) or wider.
        weight: (n,) how much each row counts.

    Raises:
        ConfigError: the model does not take weights of rows.
    """
    from sklearn.utils.validation import has_fit_parameter

    steps = getattr(model, "steps", [("", model)])
    weighs = [(name, step) for name, step in steps if has_fit_parameter(step, "sample_weight")]
    *_, last = steps
    expect(last in weighs, "data.source.weight", "models that weigh rows", type(last[1]).__name__)
    return model.fit(
        x,
        y,
        **{f"{name}__sample_weight" if name else "sample_weight": weight for name, _ in weighs},
    )


def _prepared(model: Any, one_hot: list[int], *, scale: bool) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    steps = (
        [make_column_transformer((encoder, one_hot), remainder="passthrough")] if one_hot else []
    )
    return make_pipeline(*steps, *([StandardScaler()] if scale else []), model)


_CATEGORIES = {"categories": ["codes", "one_hot"]}


def _models(
    kind: str, features: list[Any], linear: GoAlone, *, poisson: bool = False
) -> dict[str, GoAlone]:
    """Return trees, boosting, a linear model and the mean, by name.

    Args:
        kind: ``Classifier`` or ``Regressor``.
        features: the values of ``max_features`` of the trees.
        linear: the linear model.
        poisson: whether the other models minimise the Poisson deviance.
    """
    criterion, loss = ({key: "poisson"} if poisson else {} for key in ("criterion", "loss"))
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


def _linear(name: str, label: str, kind: str, init_args: dict[str, Any], grid: Grid) -> GoAlone:
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
