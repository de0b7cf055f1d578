"""Any classifier or regressor that speaks scikit-learn's language as a go-alone model, by its class path."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.tasks.go_alone import GoAlone, OneEach, prepared

__all__ = ["AnyModel", "is_any_model"]

_KEYS = ("class_path", "init_args", "grid", "scale", "label")
_OF_TASK = {
    "classification": "Classifier", "multi_label": "Classifier", "regression": "Regressor", "counts": "Regressor",
}  # fmt: skip


def is_any_model(found: Any) -> bool:
    """Whether what stands behind a go-alone model's name describes a class, and not a grid of settings."""
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
        >>> own = {"class_path": "sklearn.svm.SVC", "init_args": {"probability": False}, "scale": True}
        >>> AnyModel.read("my_svm", own).kind
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: baselines.my_svm: expected a classifier with predict_proba, found sklearn.svm.SVC \
without it; give probability: true in init_args, or take another class
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
        where = f"baselines.{name}"
        for key in found:
            if key not in _KEYS:
                raise ConfigError(f"{where}: expected some of {', '.join(_KEYS)}, found {key!r}." + _near(key))
        own = cls(name, found["class_path"], found.get("init_args") or {}, found.get("grid") or {},
                  found.get("scale", False), found.get("label") or name)  # fmt: skip
        kinds = {"class_path": str, "init_args": dict, "grid": dict, "scale": bool, "label": str}
        for key, kind in kinds.items():
            if not isinstance(getattr(own, key), kind):
                said = {"dict": "keys and values", "str": "text", "bool": "true or false"}[kind.__name__]
                raise ConfigError(f"{where}.{key}: expected {said}, found {found[key]!r}")
        for key, values in own.grid.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"{where}.grid.{key}: expected a list of at least one value, found {values!r}")
        return own

    @property
    def kind(self) -> str:
        """``Classifier`` or ``Regressor``.

        Raises:
            ConfigError: there is no such class, it is neither, or it cannot be made, or gives no probabilities.
        """
        from sklearn.base import is_classifier, is_regressor

        model = self._made({key: values[0] for key, values in self.grid.items() if key != "categories"})
        where = f"baselines.{self.name}"
        if is_classifier(model):
            if not hasattr(model, "predict_proba"):
                hint = "give probability: true in init_args, or " if "probability" in self._parameters() else ""
                raise ConfigError(
                    f"{where}: expected a classifier with predict_proba, found {self.class_path} without it; {hint}"
                    "take another class"
                )
            return "Classifier"
        if is_regressor(model):
            return "Regressor"
        raise ConfigError(
            f"{where}.class_path: expected a classifier or regressor as scikit-learn has them, found "
            f"{self.class_path}, which is neither"
        )

    def for_task(self, task: str) -> GoAlone | None:
        """The model for a task, by the task's name; None where the class predicts something else."""
        kind = _OF_TASK[task]
        if kind != self.kind:
            return None

        def build(settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Any:
            one_hot = settings.pop("categories", "codes") == "one_hot"
            known = self._parameters()
            given = {"random_state": seed, "n_jobs": threads}
            own = {key: value for key, value in given.items() if key in known and key not in self.init_args}
            model = prepared(self._made({**own, **settings}), categorical if one_hot else [], scale=self.scale)
            return OneEach(model, kind) if task in ("multi_label", "counts") else model

        return GoAlone(self.name, self.label, self.grid, build, seedless="random_state" not in self._parameters())

    def _class(self) -> Any:
        module, _, name = self.class_path.rpartition(".")
        where = f"baselines.{self.name}.class_path"
        try:
            found = importlib.import_module(module)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"{where}: expected the path of a class, such as sklearn.svm.SVC, found {self.class_path!r}, whose "
                f"module {module or '(none)'} cannot be imported; install it, or correct the path"
            ) from error
        own = getattr(found, name, None)
        if not inspect.isclass(own):
            classes = [key for key, value in vars(found).items() if inspect.isclass(value)]
            raise ConfigError(
                f"{where}: expected a class of {module}, found none named {name!r}." + did_you_mean(name, classes)
            )
        return own

    def _built(self, value: Any) -> Any:
        """A value of ``init_args``; another model where it has a class path of its own."""
        if not is_any_model(value):
            return value
        found = {key: own for key, own in value.items() if key in ("class_path", "init_args")}
        return AnyModel.read(self.name, found)._made({})

    def _parameters(self) -> list[str]:
        return list(inspect.signature(self._class()).parameters)

    def _made(self, settings: Mapping[str, Any]) -> Any:
        own = self._class()
        try:
            model = own(**{key: self._built(value) for key, value in self.init_args.items()})
            return model.set_params(**settings) if settings else model
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"baselines.{self.name}: expected settings of {self.class_path} ({', '.join(self._parameters())}), "
                f"found {', '.join(map(str, {**self.init_args, **settings}))}; {error}"
            ) from error


def _near(key: object) -> str:
    return did_you_mean(str(key), _KEYS)
