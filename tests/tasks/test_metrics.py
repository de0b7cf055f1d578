"""Metrics against scikit-learn and NumPy, by the convention that fedlit.tasks.classification
states."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    roc_auc_score,
)
from torch.nn import functional
from torchmetrics.functional.classification import binary_auroc

from fedlit.tasks import Classification
from fedlit.tasks.class_scores import auroc_one_versus_one, restrict
from fedlit.tasks.metrics import Site, SiteBatch, SiteMetrics, summarise

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)


def oracle(probabilities: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """The convention in scikit-learn's words."""
    classes = probabilities.shape[1]
    predicted = probabilities.argmax(1)
    known = target >= 0
    present = [c for c in range(classes) if (target == c).any()]
    ranked = [
        c
        for c in ([1] if classes == 2 else range(classes))
        if 0 < (target == c).sum() < len(target)
    ]

    def over_classes(score):  # type: ignore[no-untyped-def]
        return (
            np.mean([score(target == c, probabilities[:, c]) for c in ranked])
            if ranked
            else math.nan
        )

    def f1(average):  # type: ignore[no-untyped-def]
        if not present or (average is None and 1 not in present):
            return math.nan
        found = f1_score(target, predicted, labels=present, average=average, zero_division=0)
        return found if average is not None else found[present.index(1)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of predictions of absent classes
        return {
            "auroc": over_classes(roc_auc_score),
            "auprc": over_classes(average_precision_score),
            "balanced_accuracy": balanced_accuracy_score(target[known], predicted[known])
            if present
            else math.nan,
            "accuracy": accuracy_score(target, predicted),
            "f1": f1(None if classes == 2 else "macro"),
            "weighted_f1": f1("weighted"),
            "classes": len(ranked),
        }


def draw(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that know something of the target, which has all classes."""
    generator = np.random.default_rng(seed)
    target = np.concatenate([np.arange(classes), generator.integers(0, classes, rows - classes)])
    logits = generator.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[target]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return probabilities.astype(np.float32), target


def confusion(probabilities: np.ndarray, target: np.ndarray) -> np.ndarray:
    width = probabilities.shape[1]
    labels = np.where(target < 0, width, target)
    found: np.ndarray = confusion_matrix(labels, probabilities.argmax(1), labels=range(width + 1))[
        :, :width
    ]
    return found


@st.composite
def splits(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Few rows, coarse probabilities (ties), any labels, unseen ones and single classes too."""
    rows = draw(st.integers(1, 12))
    classes = draw(st.integers(2, 5))
    counts = draw(arrays(np.int64, (rows, classes), elements=st.integers(0, 3)))
    counts[counts.sum(1) == 0] = 1
    target = draw(arrays(np.int64, rows, elements=st.integers(-1, classes - 1)))
    return (counts / counts.sum(1, keepdims=True)).astype(np.float32), target


@PROPERTY
@given(splits())
def test_any_split_equals_scikit_learn(split: tuple[np.ndarray, np.ndarray]) -> None:
    task = Classification(tuple(range(split[0].shape[1])))
    own = (torch.from_numpy(split[0]), torch.from_numpy(split[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = {name: value.item() for name, value in task.evaluate(*own).items()}
    assert scores == pytest.approx(oracle(*split), abs=1e-6, nan_ok=True)
    np.testing.assert_array_equal(task.confusion(*own).numpy(), confusion(*split))


def collected(
    site: Site, probabilities: np.ndarray, target: np.ndarray, losses: np.ndarray, cuts: list[int]
) -> SiteMetrics:
    """Feed batches as a loop does: the loss is the mean over the batch's rows with a known
    label."""
    metrics = SiteMetrics(site)
    for rows in filter(len, np.split(np.arange(len(target)), cuts)):
        known = rows[target[rows] >= 0]
        loss = torch.tensor(losses[known].mean() if len(known) else math.nan, dtype=torch.float)
        metrics.update(torch.from_numpy(probabilities[rows]), torch.from_numpy(target[rows]), loss)
    return metrics


def test_scores_are_those_of_all_batches_however_they_came() -> None:
    metrics = SiteMetrics(Site("a", (0, 1), {}))
    right = SiteBatch(torch.eye(2), torch.tensor([0, 1]), torch.tensor(0.0))
    wrong = SiteBatch(torch.eye(2), torch.tensor([1, 0]), torch.tensor(1.0))
    metrics.update(*right)
    assert metrics.compute()["accuracy"] == 1
    metrics.collected.add(wrong)
    assert metrics.compute()["accuracy"] == 0.5 and metrics.compute()["loss"] == 0.5
    metrics.reset()
    metrics.update(*wrong)
    assert metrics.compute()["accuracy"] == 0


@PROPERTY
@given(st.lists(st.integers(0, 40), max_size=5), st.integers(0, 1000))
def test_batches_change_nothing_and_own_classes_alone_count(cuts: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    probabilities, target = draw(40, 4, seed)
    target[generator.integers(0, 40, 5)] = -1
    losses = generator.exponential(size=40)
    site = Site("a", (0, 2, 3), {})
    metrics = collected(site, probabilities, target, losses, [])
    whole = metrics.compute()
    parts = collected(site, probabilities, target, losses, sorted(cuts)).compute()
    # restricted to the site's classes: cross-entropy of what remains, over the rows that have one
    # of these labels
    mine = probabilities[:, list(site.classes)].astype(np.float64)
    mine /= mine.sum(1, keepdims=True)
    position = np.array(
        [site.classes.index(label) if label in site.classes else -1 for label in target]
    )
    known = position >= 0
    expected = pytest.approx(-np.log(mine[known, position[known]]).mean(), rel=1e-5)
    assert whole.pop("loss").item() == expected and parts["loss"].item() == expected
    assert all(torch.equal(parts[name], value) for name, value in whole.items())
    assert {name: value.item() for name, value in whole.items()} == pytest.approx(
        oracle(mine, position), abs=1e-6
    )
    np.testing.assert_array_equal(metrics.confusion().numpy(), confusion(mine, position))


NAN = math.nan
INF = math.inf


SUMMARIES: list[tuple[dict[str, dict[str, float]], dict[str, dict[str, object]]]] = [
    # of a loss the worst is the largest; of a score see the example of summarise
    ({"a": {"loss": 0.5}, "b": {"loss": 2.0}}, {"mean": {"loss": 1.25}, "worst": {"loss": 2.0}}),
    (
        {"a": {"loss": INF}, "b": {"loss": 0.3}},
        {"mean": {"loss": INF}, "worst_client": {"loss": "a"}},
    ),
    # predictions that are not finite have no accuracy: no mean is to look better without them
    (
        {"a": {"accuracy": 0.9}, "b": {"accuracy": NAN}},
        {"mean": {"accuracy": NAN}, "worst_client": {"accuracy": "b"}},
    ),
]


@pytest.mark.parametrize(("scores", "expected"), SUMMARIES)
def test_summary_over_sites(
    scores: dict[str, dict[str, float]], expected: dict[str, dict[str, object]]
) -> None:
    found: Mapping[str, object] = summarise(scores, [Site(name, (0, 1), {}) for name in scores])
    for key, values in expected.items():
        assert (
            found[key] == pytest.approx(values, nan_ok=True)
            if key != "worst_client"
            else found[key] == values
        )


@pytest.mark.parametrize("rounded", [False, True])
def test_auroc_has_the_bits_of_torchmetrics(rounded: bool) -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        probabilities = torch.from_numpy(rng.random(3 + 40 * seed, np.float32))
        y = torch.from_numpy(np.append([0, 1], rng.integers(0, 2, 1 + 40 * seed)))
        one = (20 * probabilities).round() / 20 if rounded else probabilities  # with ties
        found = Classification((0, 1)).evaluate(torch.stack([1 - one, one], 1), y)["auroc"]
        assert torch.equal(found, binary_auroc(one, y))


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_one_versus_one_of_tied_rows_has_scikit_learns_bits(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for rows in range(classes, 60):
        probabilities = rng.multinomial(8, np.ones(classes) / classes, rows) / 8
        target = np.append(np.arange(classes), rng.integers(0, classes, rows - classes))
        scores = probabilities[:, 1] if classes == 2 else probabilities
        expected = roc_auc_score(target, scores, multi_class="ovo")
        found = auroc_one_versus_one(torch.from_numpy(probabilities), torch.from_numpy(target))
        assert found == expected


@pytest.mark.parametrize("absent", [-9, 2])
def test_one_versus_one_is_scikit_learns_of_present_classes(absent: int) -> None:
    probabilities, target = draw(300, 4, seed=5)
    target = np.where(target == absent, -1, target)  # its rows have an unseen label
    known = target >= 0
    there = [label for label in range(4) if label != absent]
    mine = probabilities[known][:, there].astype(float)
    expected = roc_auc_score(
        target[known], mine / mine.sum(1, keepdims=True), multi_class="ovo", labels=there
    )
    found = auroc_one_versus_one(torch.from_numpy(probabilities), torch.from_numpy(target))
    assert found == expected
    assert math.isnan(auroc_one_versus_one(torch.ones(3, 2) / 2, torch.zeros(3, dtype=torch.long)))


def test_rows_whose_classes_have_no_probability_are_scored() -> None:
    """All of it is on a class that the scored rows do not have, as networks that diverge may put
    it."""
    rows = torch.eye(4)[[0, 1, 2, 3]]
    y = torch.tensor([0, 1, 2, 0])
    assert Classification((0, 1, 2, 3)).evaluate_once(rows, y)["auroc_ovo"] == 1.0
    assert restrict(rows, [0, 1])[3].tolist() == [0.5, 0.5]


def test_loss_is_the_weighted_cross_entropy_of_one_output_too() -> None:
    logits = torch.randn(9, 1)
    y = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 1])
    task = Classification(("no", "yes"), (30, 10))
    both = torch.cat([torch.zeros_like(logits), logits], 1)
    for weight in (None, task.balance()):
        torch.testing.assert_close(
            task.loss(logits, y, weight), functional.cross_entropy(both, y, weight)
        )
