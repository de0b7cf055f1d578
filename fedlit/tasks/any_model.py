"""Any classifier or regressor that speaks scikit-learn's language as a local baseline, by its class path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pydoc import locate
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.tasks.go_alone import GoAlone, OneEach, prepared

__all__ = ["AnyModel", "is_any_model"]

_KINDS = {"class_path": str, "init_args": dict, "grid": dict, "scale": bool, "label": str}
_OF_TASK = {
    "classification": "Classifier", "multi_label": "Classifier", "regression": "Regressor", "counts": "Regressor",
}  # fmt: skip


def is_any_model(found: Any) -> bool:
    """Whether what stands behind a local baseline's name describes a class, and not a grid of settings."""
    return isinstance(found, Mapping) and "class_path" in found


@dataclass(frozen=True)
class AnyModel:
    """A class of scikit-learn, or one that behaves alike, as a study names it.

    Attributes:
        name: as the study calls it.
        class_path: of the class.
        init_args: what it is made with; a value may be a model again, by its class path.
        grid: settings of which the best is chosen per client and seed; also ``categories``: ``codes`` or ``one_hot``.
        scale: whether columns are scaled to mean 0 and standard deviation 1.
        label: as people read it.

    Example:
        >>> own = {"class_path": "sklearn.svm.SVC", "init_args": {"probability": True}, "scale": True}
        >>> AnyModel.read("my_svm", own).kind
        'Classifier'
    """

    name: str
    class_path: str
    init_args: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    scale: bool = False
    label: str = ""

    @classmethod
    def read(cls, name: str, found: Mapping[str, Any]) -> AnyModel:
        """What a study says of it.

        Raises:
            ConfigError: another key, or a value of another kind.
        """
        for key, value in found.items():
            if key not in _KINDS:
                raise ConfigError(
                    f"baselines.{name}: expected some of {', '.join(_KINDS)}, found {key!r}."
                    + did_you_mean(str(key), _KINDS)
                )
            if not isinstance(value, _KINDS[key]):
                raise ConfigError(f"baselines.{name}.{key}: expected a {_KINDS[key].__name__}, found {value!r}")
        for key, values in found.get("grid", {}).items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"baselines.{name}.grid.{key}: expected a list of values, found {values!r}")
        return cls(**{"label": name, **found, "name": name})

    @property
    def kind(self) -> str:
        """``Classifier`` or ``Regressor``.

        Raises:
            ConfigError: there is no such class, it is neither, or it cannot be made, or gives no probabilities.
        """
        from sklearn.base import is_classifier, is_regressor

        model = self._made({key: values[0] for key, values in self.grid.items() if key != "categories"})
        if is_regressor(model):
            return "Regressor"
        if not is_classifier(model) or not hasattr(model, "predict_proba"):
            raise ConfigError(
                f"baselines.{self.name}: expected a regressor, or a classifier with predict_proba, as scikit-learn has "
                f"them, found {self.class_path}; take another class (or probability: true in init_args of an SVC)"
            )
        return "Classifier"

    def for_task(self, task: str) -> GoAlone | None:
        """The model for a task, by the task's name; None where the class predicts something else."""
        kind = self.kind
        if _OF_TASK.get(task) != kind:
            return None
        known = inspect.signature(self._class()).parameters

        def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
            one_hot = settings.pop("categories", "codes") == "one_hot"
            given = {"random_state": seed, "n_jobs": threads}
            own = {key: value for key, value in given.items() if key in known and key not in self.init_args}
            model = prepared(self._made({**own, **settings}), categorical if one_hot else [], scale=self.scale)
            return OneEach(model, kind) if task in ("multi_label", "counts") else model

        return GoAlone(self.name, self.label, self.grid, build, seedless="random_state" not in known)

    def _class(self) -> Any:
        where, module = f"baselines.{self.name}.class_path", self.class_path.rpartition(".")[0]
        try:
            found = locate(self.class_path)
        except Exception as error:  # whatever a module does when it is imported
            raise ConfigError(f"{where}: expected the path of a class, found {self.class_path!r}: {error}") from error
        if not inspect.isclass(found):
            around = locate(module) if module else None
            classes = [name for name, own in vars(around).items() if inspect.isclass(own)] if around else []
            raise ConfigError(
                f"{where}: expected the path of a class, such as sklearn.svm.SVC, found {self.class_path!r}."
                + did_you_mean(self.class_path.rpartition(".")[2], classes, f"{module}.")
            )
        return found

    def _built(self, value: Any) -> Any:
        """A value of ``init_args``; another model where it has a class path of its own."""
        return AnyModel.read(self.name, value)._made({}) if is_any_model(value) else value

    def _made(self, settings: Mapping[str, Any]) -> Any:
        own = self._class()
        try:
            model = own(**{key: self._built(value) for key, value in self.init_args.items()})
            return model.set_params(**settings) if settings else model
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"baselines.{self.name}: expected settings of {self.class_path}, found "
                f"{', '.join(map(str, {**self.init_args, **settings}))}; {error}"
            ) from error
