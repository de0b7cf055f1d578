"""Metrics against scikit-learn and NumPy, by the convention that fedlit.tasks.metrics states."""

from __future__ import annotations

import math
import warnings

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
    f1_score,
    roc_auc_score,
)
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix
from torch import Tensor

from fedlit.spec import Site
from fedlit.tasks import Classification
from fedlit.tasks.classification import auroc_one_versus_one
from fedlit.tasks.metrics import (
    SiteMetrics,
    summarise,
)

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)
NAMES = ("auroc", "auprc", "balanced_accuracy", "accuracy", "f1", "weighted_f1")


def classification_metrics(probabilities: Tensor, target: Tensor) -> dict[str, Tensor]:
    return Classification(tuple(range(probabilities.shape[1]))).evaluate(probabilities, target)


def confusion_matrix(probabilities: Tensor, target: Tensor) -> Tensor:
    return Classification(tuple(range(probabilities.shape[1]))).confusion(probabilities, target)


def oracle(probabilities: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """The convention in scikit-learn's words."""
    classes = probabilities.shape[1]
    predicted, known = probabilities.argmax(1), target >= 0
    present = [c for c in range(classes) if (target == c).any()]
    ranked = [c for c in ([1] if classes == 2 else range(classes)) if 0 < (target == c).sum() < len(target)]
    nan = math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of predictions of absent classes
        return {
            "auroc": np.mean([roc_auc_score(target == c, probabilities[:, c]) for c in ranked]) if ranked else nan,
            "auprc": np.mean([average_precision_score(target == c, probabilities[:, c]) for c in ranked])
            if ranked
            else nan,
            "balanced_accuracy": balanced_accuracy_score(target[known], predicted[known]) if present else nan,
            "accuracy": accuracy_score(target, predicted),
            "f1": (
                (f1_score(target == 1, predicted == 1, zero_division=0) if (target == 1).any() else math.nan)
                if classes == 2
                else f1_score(target, predicted, labels=present, average="macro", zero_division=0)
                if present
                else nan
            ),
            "weighted_f1": f1_score(target, predicted, labels=present, average="weighted", zero_division=0)
            if present
            else nan,
            "classes": len(ranked),
        }


def scored(probabilities: np.ndarray, target: np.ndarray) -> dict[str, float]:
    scores = classification_metrics(torch.from_numpy(probabilities), torch.from_numpy(target))
    return {name: value.item() for name, value in scores.items()}


def draw(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that know something of the target, which has all classes."""
    generator = np.random.default_rng(seed)
    target = np.concatenate([np.arange(classes), generator.integers(0, classes, rows - classes)])
    logits = generator.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[target]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return probabilities.astype(np.float32), target


@st.composite
def splits(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Few rows, coarse probabilities (ties), any labels, unseen ones and single classes too."""
    rows, classes = draw(st.integers(1, 12)), draw(st.integers(2, 5))
    counts = draw(arrays(np.int64, (rows, classes), elements=st.integers(0, 3)))
    counts[counts.sum(1) == 0] = 1
    target = draw(arrays(np.int64, rows, elements=st.integers(-1, classes - 1)))
    return (counts / counts.sum(1, keepdims=True)).astype(np.float32), target


# ------------------------------------------------------------------ against scikit-learn


@PROPERTY
@given(splits())
def test_any_split_equals_scikit_learn_per_class(split: tuple[np.ndarray, np.ndarray]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = scored(*split)
    assert scores == pytest.approx(oracle(*split), abs=1e-6, nan_ok=True)


# ------------------------------------------------------------------ absent, single and unseen classes


@PROPERTY
@given(splits())
def test_confusion_matrix_equals_scikit_learn(split: tuple[np.ndarray, np.ndarray]) -> None:
    probabilities, target = split
    classes = probabilities.shape[1]
    expected = sklearn_confusion_matrix(
        np.where(target < 0, classes, target), probabilities.argmax(1), labels=range(classes + 1)
    )
    matrix = confusion_matrix(torch.from_numpy(probabilities), torch.from_numpy(target))
    assert matrix.dtype == torch.int64
    np.testing.assert_array_equal(matrix.numpy(), expected[:, :classes])
    assert expected[:, classes].sum() == 0  # nobody predicts "outside"


# ------------------------------------------------------------------ a site's classes, over batches


def collected(
    site: Site, probabilities: np.ndarray, target: np.ndarray, losses: np.ndarray, cuts: list[int]
) -> SiteMetrics:
    """Feed batches as a loop does: the loss is the mean over the batch's rows with a known label."""
    metrics = SiteMetrics(site)
    for rows in np.split(np.arange(len(target)), cuts):
        if not len(rows):
            continue
        known = rows[target[rows] >= 0]
        loss = losses[known].mean() if len(known) else math.nan
        metrics.update(
            torch.from_numpy(probabilities[rows]), torch.from_numpy(target[rows]), torch.tensor(loss, dtype=torch.float)
        )
    return metrics


@pytest.mark.parametrize("own", [(0, 1, 2, 3, 4, 5, 6), (1, 3, 6), (2, 5), (4,)])
def test_restriction_to_the_sites_classes_equals_numpy(own: tuple[int, ...]) -> None:
    probabilities, target = draw(300, 7, seed=11)
    target[::17] = -1
    metrics = collected(Site("a", own, {}), probabilities, target, np.zeros(300), [])
    mine = probabilities[:, own].astype(np.float64)
    mine /= mine.sum(1, keepdims=True)
    position = np.array([own.index(label) if label in own else -1 for label in target])
    computed = {name: value.item() for name, value in metrics.compute().items()}
    assert set(computed) == {*NAMES, "loss", "classes"}
    del computed["loss"]
    assert computed == pytest.approx(oracle(mine, position), abs=1e-6, nan_ok=True)
    expected = sklearn_confusion_matrix(
        np.where(position < 0, len(own), position), mine.argmax(1), labels=range(len(own) + 1)
    )
    np.testing.assert_array_equal(metrics.confusion().numpy(), expected[:, : len(own)])


@PROPERTY
@given(st.lists(st.integers(0, 40), max_size=5), st.integers(0, 1000))
def test_batches_make_no_difference(cuts: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    probabilities, target = draw(40, 4, seed)
    target[generator.integers(0, 40, 5)] = -1
    losses = generator.exponential(size=40)
    site = Site("a", (0, 2, 3), {})
    whole = collected(site, probabilities, target, losses, []).compute()
    parts = collected(site, probabilities, target, losses, sorted(cuts)).compute()
    # restricted to the site's classes: cross-entropy of what remains, over the rows that have one of these labels
    mine = np.isin(target, site.classes)
    kept = probabilities[mine] / probabilities[mine][:, list(site.classes)].sum(1, keepdims=True)
    expected = -np.log(kept[np.arange(mine.sum()), target[mine]]).mean()
    assert parts["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert whole["loss"].item() == pytest.approx(expected, rel=1e-5)
    for name in (*NAMES, "classes"):
        assert torch.equal(parts[name], whole[name]), name


# ------------------------------------------------------------------ over sites


def sites(*names: str) -> list[Site]:
    return [Site(name, (0, 1), {}) for name in names]


def test_summary_of_three_sites() -> None:
    scores = {
        "a": {"loss": 0.5, "auroc": 0.75},
        "b": {"loss": 2.0, "auroc": 0.5},
        "c": {"loss": 0.125, "auroc": math.nan},
    }
    assert summarise(scores, sites("a", "b", "c")) == {
        "mean": {"loss": 2.625 / 3, "auroc": 0.625},
        "worst": {"loss": 2.0, "auroc": 0.5},
        "worst_client": {"loss": "b", "auroc": "b"},
        "counted": {"loss": 3, "auroc": 2},
    }


def test_a_client_whose_loss_is_infinite_is_the_worst() -> None:
    sites = [Site("a", (0, 1), {}), Site("b", (0, 1), {})]
    summary = summarise({"a": {"loss": float("inf")}, "b": {"loss": 0.3}}, sites)
    assert summary["worst_client"]["loss"] == "a" and summary["mean"]["loss"] == float("inf")


def test_a_client_that_diverged_makes_no_mean_look_better() -> None:
    sites = [Site("a", (0, 1), {}), Site("b", (0, 1), {})]
    lost = {
        name: value.item()
        for name, value in classification_metrics(torch.full((3, 2), math.nan), torch.tensor([0, 1, 1])).items()
    }
    fine = {
        name: value.item()
        for name, value in classification_metrics(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 1, 1])).items()
    }
    summary = summarise({"a": fine, "b": lost}, sites)
    assert math.isnan(summary["mean"]["auroc"]) and summary["worst_client"]["auroc"] == "b"


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_one_versus_one_is_the_mean_over_pairs(classes: int) -> None:
    """By hand (Hand and Till 2001): A(i|j) and A(j|i) among the rows of two classes, averaged over all pairs."""
    probabilities, target = draw(300, classes, seed=5)
    pairs = []
    for i in range(classes):
        for j in range(i):
            rows = (target == i) | (target == j)
            first = roc_auc_score(target[rows] == i, probabilities[rows, i])
            second = roc_auc_score(target[rows] == j, probabilities[rows, j])
            pairs.append((first + second) / 2)
    found = auroc_one_versus_one(torch.from_numpy(probabilities), torch.from_numpy(target))
    assert found == pytest.approx(np.mean(pairs), abs=1e-6)


def test_one_versus_one_leaves_out_absent_classes_and_unseen_labels() -> None:
    probabilities, target = draw(200, 4, seed=6)
    target = np.where(target == 2, -1, target)  # class 2 is absent, its rows have an unseen label
    known = target >= 0
    mine = probabilities[known][:, [0, 1, 3]]
    mine = mine / mine.sum(1, keepdims=True)
    expected = auroc_one_versus_one(torch.from_numpy(mine), torch.from_numpy(np.array([0, 1, 9, 2])[target[known]]))
    found = auroc_one_versus_one(torch.from_numpy(probabilities), torch.from_numpy(target))
    assert found == pytest.approx(expected, abs=1e-6)
    assert math.isnan(auroc_one_versus_one(torch.ones(3, 2) / 2, torch.zeros(3, dtype=torch.long)))
