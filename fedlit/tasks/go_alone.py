"""Local baselines: models that a client fits to its rows alone, from scikit-learn or with the same
interface.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pydoc import locate
from typing import Literal, TypeGuard

from fedlit.errors import ConfigError, did_you_mean, expect, must_be_known
from fedlit.outcomes import Outcome
from fedlit.tasks.fitting import Estimator, FitEach, FitPeriods, ScikitModel
from fedlit.types import State

MOST_CATEGORIES = 255
"""Gradient boosting accepts a column with as many categories as categorical."""
TREES_AND_LINEAR = "trees_and_linear"
"""The mean of the predictions of two other models, with equal weights. The names of these two, which
depend on the task, are among :data:`TREES` and :data:`LINEAR`."""
TREES = ("extra_trees",)
LINEAR = ("logistic_regression", "ridge", "poisson_regression")

Settings = Mapping[str, object]
"""Keyword arguments of a model's class."""
Grid = Mapping[str, Sequence[object]]
"""The values to try for each keyword argument."""
_KEY_TYPES: Mapping[str, type] = {
    "class_path": str,
    "init_args": dict,
    "grid": dict,
    "scale": bool,
    "label": str,
}


def is_any_model(settings: object) -> TypeGuard[State]:
    """Return whether the settings of a local baseline describe a class, and not only a grid of
    settings.
    """
    return isinstance(settings, Mapping) and "class_path" in settings


def _is_model_class(value: object) -> TypeGuard[Callable[..., ScikitModel]]:
    return inspect.isclass(value)


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
        by_column: whether each column of the target gets a model of its own, see
            :class:`fedlit.tasks.fitting.FitEach`.
        period_input: how the period becomes inputs of a classifier that is fitted to person-periods,
            see :class:`fedlit.tasks.fitting.FitPeriods`: ``number`` or ``indicators``; ""
            for a model of rows.
        seedless: whether the model gets no seed and is fitted only once, because on the same rows
            it does not vary by anything that matters.
        on_request: whether it is used only if a study names it, because it is no match for the others.

    Example:
        >>> from fedlit.tasks.baselines import CLASSIFIERS
        >>> CLASSIFIERS["extra_trees"].make({"n_estimators": 10}, [])
        ExtraTreesClassifier(n_estimators=10, n_jobs=1, random_state=0)
        >>> own = {"class_path": "sklearn.svm.SVC", "init_args": {"probability": True}, "scale": True}
        >>> GoAlone.read("my_svm", own).kind
        'Classifier'
    """

    name: str
    class_path: str
    init_args: Settings = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)
    scale: bool = False
    label: str = ""
    native: bool = False
    by_column: bool = False
    period_input: Literal["", "number", "indicators"] = ""
    seedless: bool = False
    on_request: bool = False

    @classmethod
    def read(cls, name: str, settings: State) -> GoAlone:
        """Read the description of a class from a study.

        Raises:
            ConfigError: a key is unknown, or a value is of the wrong kind.
        """
        must_be_known(f"baselines.{name}", settings, _KEY_TYPES)
        for key, value in settings.items():
            kind = _KEY_TYPES[key]
            expect(isinstance(value, kind), f"baselines.{name}.{key}", f"a {kind.__name__}", value)
        for key, values in settings.get("grid", {}).items():
            is_filled = isinstance(values, list) and len(values) > 0
            expect(is_filled, f"baselines.{name}.grid.{key}", "a list of values", values)
        return cls(**{"label": name, **settings, "name": name})

    @property
    def kind(self) -> str:
        """The kind of the model: ``Classifier``, ``Regressor`` or ``Curves``.

        Raises:
            ConfigError: the class does not exist, is neither of the two, cannot be built, or
                returns no probabilities.
        """
        from sklearn.base import is_classifier, is_regressor

        model = self._made(
            {key: values[0] for key, values in self.grid.items() if key != "categories"}
        )
        if hasattr(model, "survival_at"):
            return "Curves"
        if is_regressor(model):
            return "Regressor"
        if not is_classifier(model) or not hasattr(model, "predict_proba"):
            raise ConfigError(
                f"baselines.{self.name}: expected a regressor, or a classifier with predict_proba, "
                f"as scikit-learn has them, found {self.class_path}; take another class (or "
                "probability: true in init_args of an SVC)"
            )
        return "Classifier"

    @property
    def adjustable(self) -> list[str]:
        """The settings that ``grid`` may have: the parameters of the class, and ``categories``."""
        return [*inspect.signature(self._class()).parameters, "categories"]

    def for_outcome(self, outcome: type[Outcome]) -> GoAlone | None:
        """Return the model for a task with this outcome; None if the class predicts something
        else.
        """
        seedless = "random_state" not in inspect.signature(self._class()).parameters
        if outcome.estimator == "Curves" and self.kind == "Classifier":
            return replace(self, period_input="number", seedless=seedless)
        if outcome.estimator != self.kind:
            return None
        return replace(self, by_column=outcome.one_model_each, seedless=seedless)

    def make(
        self,
        settings: Settings,
        categorical: list[int],
        seed: int = 0,
        threads: int = 1,
        wide: Collection[int] = (),
        periods: Sequence[float] = (),
    ) -> Estimator:
        """Return an untrained model.

        Args:
            settings: keyword arguments of the class, and ``categories``, see ``grid``.
            categorical: the positions of the columns that hold category codes, with −1 for a
                missing or unseen category.
            seed: the seed of the model's random numbers.
            threads: the number of threads that the model may use.
            wide: which of these columns have more categories than scikit-learn's gradient boosting
                accepts (255); there, their codes are treated as numbers.
            periods: the ends of periods, for a model of person-periods.
        """
        parameters = inspect.signature(self._class()).parameters
        arguments = dict(settings)
        one_hot: list[int] = []
        if arguments.pop("categories", "codes") == "one_hot":
            one_hot = categorical
        defaults: dict[str, object] = {"random_state": seed, "n_jobs": threads}
        if self.native:
            narrow = [column for column in categorical if column not in wide]
            defaults["categorical_features"] = narrow or None
        defaults = {
            key: value
            for key, value in defaults.items()
            if key in parameters and key not in self.init_args
        }
        model: Estimator = self._made({**defaults, **arguments})
        if one_hot or self.scale:
            model = _prepared(model, one_hot, scale=self.scale)
        if self.by_column:
            return FitEach(model)
        if self.period_input:
            return FitPeriods(model, periods, indicators=self.period_input == "indicators")
        return model

    def _class(self) -> Callable[..., ScikitModel]:
        key = f"baselines.{self.name}.class_path"
        module = self.class_path.rpartition(".")[0]
        try:
            resolved = locate(self.class_path)
        except Exception as error:  # whatever a module does when it is imported
            raise ConfigError(
                f"{key}: expected the path of a class, found {self.class_path!r}: {error}"
            ) from error
        if not _is_model_class(resolved):
            around = locate(module) if module else None
            contents = vars(around) if around else {}
            classes = [name for name, value in contents.items() if inspect.isclass(value)]
            raise ConfigError(
                f"{key}: expected the path of a class, such as sklearn.svm.SVC, found "
                f"{self.class_path!r}."
                + did_you_mean(self.class_path.rpartition(".")[2], classes, f"{module}.")
            )
        return resolved

    def _built(self, value: object) -> object:
        """Return a value of ``init_args``, built as a model if it has a class path itself."""
        if is_any_model(value):
            return GoAlone.read(self.name, value)._made({})
        return value

    def _made(self, settings: Settings) -> ScikitModel:
        model_class = self._class()
        try:
            model = model_class(
                **{key: self._built(value) for key, value in self.init_args.items()}
            )
            if settings:
                model = model.set_params(**settings)
            return model
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"baselines.{self.name}: expected settings of {self.class_path}, found "
                f"{', '.join(map(str, {**self.init_args, **settings}))}; {error}"
            ) from error


def _prepared(model: Estimator, one_hot: list[int], *, scale: bool) -> Estimator:
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps = []
    if one_hot:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        steps.append(make_column_transformer((encoder, one_hot), remainder="passthrough"))
    if scale:
        steps.append(StandardScaler())
    pipeline: Estimator = make_pipeline(*steps, model)
    return pipeline
