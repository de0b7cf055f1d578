"""What a client can do without anyone, by its task: models of scikit-learn, and the settings that are tried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedlit.tasks import SCORES, Score

__all__ = ["CLASSIFICATION", "LABELS", "GoAlone", "TaskKind", "task_of"]


@dataclass(frozen=True)
class GoAlone:
    """A model that a client fits on its own rows.

    Attributes:
        label: as tables call it.
        grid: settings of which the best on validation is taken, per client and seed; the first of equals.
        make: an untrained model from settings (keyword arguments of scikit-learn's class), positions of the columns
            that hold category codes (−1 for missing or unseen), seed, threads, and which of these columns have more
            categories than gradient boosting takes.
        seedless: whether it is given no seed: on the same rows it then differs by nothing that matters, and is fitted
            once.
    """

    label: str
    grid: dict[str, list[Any]]
    make: Callable[[Mapping[str, Any], Sequence[int], int, int, Collection[int]], Any]
    seedless: bool = False


class TaskKind(Protocol):
    """What a study asks of a client's task."""

    @property
    def name(self) -> str:
        """As configurations call it."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """By which predictions are judged, the main one first."""

    @property
    def go_alone(self) -> Mapping[str, GoAlone]:
        """What a client with this task can do alone, by name."""


@dataclass(frozen=True)
class _Kind:
    name: str
    scores: tuple[Score, ...]
    go_alone: Mapping[str, GoAlone]


def _extra_trees(
    settings: Mapping[str, Any], categorical: Sequence[int], seed: int, threads: int, wide: Collection[int]
) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(**settings, random_state=seed, n_jobs=threads)


def _gradient_boosting(
    settings: Mapping[str, Any], categorical: Sequence[int], seed: int, threads: int, wide: Collection[int]
) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # the codes of a column that has too many categories are numbers
    known = [position for position in categorical if position not in wide] or None
    return HistGradientBoostingClassifier(
        **settings, categorical_features=known, early_stopping=False, random_state=seed
    )


def _logistic_regression(
    settings: Mapping[str, Any], categorical: Sequence[int], seed: int, threads: int, wide: Collection[int]
) -> Any:
    """``categories`` says whether they are numbers (``codes``) or a column each (``one_hot``); everything is scaled."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    settings = dict(settings)
    one_hot = settings.pop("categories", "codes") == "one_hot" and categorical
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    expand = [make_column_transformer((encoder, list(categorical)), remainder="passthrough")] if one_hot else []
    return make_pipeline(*expand, StandardScaler(), LogisticRegression(**settings, max_iter=2000, random_state=seed))


CLASSIFICATION: TaskKind = _Kind(
    "classification",
    tuple(score for score in SCORES.values() if score.percent),
    {
        "extra_trees": GoAlone(
            "Extra trees",
            {"n_estimators": [300], "min_samples_leaf": [1, 3], "max_features": ["sqrt", None]},
            _extra_trees,
        ),
        "gradient_boosting": GoAlone(
            "Gradient boosting",
            {"max_iter": [100, 300], "learning_rate": [0.05], "max_leaf_nodes": [7, 31]},
            _gradient_boosting,
            seedless=True,
        ),
        "logistic_regression": GoAlone(
            "Logistic regression",
            {"C": [0.01, 0.05, 0.2, 1.0, 10.0], "categories": ["codes", "one_hot"]},
            _logistic_regression,
            seedless=True,
        ),
    },
)
# The go-alone models of all tasks.
LABELS = {name: model.label for kind in (CLASSIFICATION,) for name, model in kind.go_alone.items()}


def task_of(client: Any) -> TaskKind:
    """The task of a client's table or description: every client classifies."""
    return CLASSIFICATION
