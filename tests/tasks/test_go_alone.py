"""A class that a study names as a local baseline: the tasks that it is for, and what becomes of it there."""

import numpy as np
import pytest

from fedlit.tasks import Classification, Counts, MultiLabel, Regression, SequenceLabelling
from fedlit.tasks.go_alone import GoAlone

X = np.arange(12.0)[:, None]
KINDS: dict[str, tuple[str | None, np.ndarray]] = {
    Classification.name: ("Classifier", np.arange(12) % 3),
    MultiLabel.name: ("Classifier", np.column_stack([np.arange(12) % 2, np.arange(12) > 5]).astype(float)),
    Regression.name: ("Regressor", np.arange(12) * 0.5),
    Counts.name: ("Regressor", np.append(np.arange(11.0) ** 2, np.nan)),  # unknown in one row
    SequenceLabelling.name: (None, np.zeros(12)),
}


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_a_class_serves_the_tasks_of_its_kind(kind: str, task: str) -> None:
    models = [
        GoAlone.read("own", {"class_path": f"sklearn.{path}{kind}"}).for_task(task)
        for path in ("tree.DecisionTree", "neighbors.KNeighbors")
    ]
    expected, y = KINDS[task]
    if kind != expected:
        assert models == [None, None]
        return
    tree, neighbours = models
    assert tree is not None and neighbours is not None
    assert (tree.seedless, neighbours.seedless) == (False, True)  # it draws among equal splits
    fitted = tree.make({}, []).fit(X, y)
    # a tree tells all rows apart; of columns each has one of its own
    found = fitted.predict_proba(X) if task == MultiLabel.name else fitted.predict(X)
    np.testing.assert_array_equal(np.reshape(found, y.shape)[:-1], y[:-1])
