"""Many sites scored in one pass: bit-for-bit what each site's rows give alone, and what torchmetrics
gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    multiclass_auroc,
)

from fedlit.tasks import Classification, Counts, MultiLabel, Regression, SequenceLabelling, Task
from fedlit.tasks.base import Scorer
from fedlit.tasks.many import score_sites
from fedlit.tasks.metrics import Site, SiteMetrics
from fedlit.tasks.segments import Segments

Batches = list[tuple[Tensor, ...]]

TASKS: dict[str, Callable[[int], Task]] = {
    "two classes": lambda client: Classification(("no", "yes")),
    "five classes": lambda client: Classification(tuple("abcde")),
    "classes of other clients": lambda client: Classification(tuple("abcdef")),
    "labels": lambda client: MultiLabel(("a", "b", "c")),
    "numbers": lambda client: Regression("squared", 100.0 + client, 1.0 + client),
    "counts": lambda client: Counts(3.0 + client, "visits"),
    "sequences": lambda client: SequenceLabelling(("a", "b", "c"), 7),
}


def predicted(kind: str, task: Task, rows: int, rng: np.random.Generator) -> Tensor:
    """Predictions without and with ties, all equal, or not finite."""
    outputs = rng.normal(size=(rows, task.outputs)).astype(np.float32)
    style = rng.choice(["free", "ties", "constant", "not finite"], p=[0.5, 0.3, 0.1, 0.1])
    if style == "ties":
        outputs = outputs.round()
    elif style == "constant":
        outputs[:] = outputs[0]
    elif style == "not finite":
        outputs[0] = math.nan
    return task.predict(torch.from_numpy(outputs))


def target_of(kind: str, task: Task, rows: int, rng: np.random.Generator) -> Tensor:
    """A target, which may be the same for all rows, or unknown."""
    if kind == "sequences":
        return torch.from_numpy(rng.choice([-100, -1, 0, 1, 2], (rows, 7)))
    if kind == "labels":
        y = rng.integers(0, 2, (rows, 3)).astype(np.float32)
        y[:, 1:][rng.random((rows, 2)) < 0.3] = math.nan
        return torch.from_numpy(y)
    if not task.classes:
        drawn = rng.poisson(3, rows) if kind == "counts" else rng.normal(size=rows)
        return torch.from_numpy((drawn * rng.integers(0, 3)).astype(np.float32))
    lowest = rng.integers(-1, 2)
    return torch.from_numpy(
        rng.integers(lowest, rng.integers(lowest + 1, len(task.classes) + 1), rows)
    )


def federation(kind: str, seed: int) -> dict[str, SiteMetrics]:
    """Up to seven sites of 1 to 300 rows, in batches; the rows of some have weights."""
    rng = np.random.default_rng(seed)
    sites = {}
    for client in range(int(rng.integers(1, 8))):
        task = TASKS[kind](client)
        rows = int(rng.choice([1, 2, 3, 10, 10, 10, 17, 40, 300]))
        classes = np.arange(len(task.classes))
        if kind == "classes of other clients":
            classes = np.sort(rng.choice(6, rng.integers(1, 4), replace=False))
        metrics = SiteMetrics(Site(f"site{client}", tuple(classes.tolist()), {}), task)
        predictions = predicted(kind, task, rows, rng)
        y = target_of(kind, task, rows, rng)
        weight = torch.from_numpy(rng.random(rows).astype(np.float32))
        weighs = task.weighs_rows and kind != "sequences" and rng.random() < 0.1
        for part in np.split(np.arange(rows), sorted(rng.integers(1, rows + 1, 2))):
            if len(part):
                loss = torch.tensor(rng.exponential(), dtype=torch.float32)
                weights = [weight[part]] if weighs else []
                metrics.update(predictions[part], y[part], loss, *weights)
        sites[f"site{client}"] = metrics
    return sites


def bits(values: Mapping[str, float | Tensor]) -> dict[str, str]:
    """Scores in a form in which NaN equals NaN."""
    return {name: float(value).hex() for name, value in values.items()}


@pytest.mark.parametrize("kind", TASKS)
def test_one_pass_has_the_bits_of_each_site_alone(kind: str) -> None:
    for seed in range(50):
        sites = federation(kind, seed)
        together = score_sites(sites)
        assert list(together) == list(sites)
        for name, metrics in sites.items():
            alone = metrics.compute()
            assert list(together[name].values) == list(alone)
            assert bits(together[name].values) == bits(alone)
            assert together[name].unseen == metrics.unseen()
            assert together[name].absent == metrics.absent()


def test_one_pass_has_the_bits_of_torchmetrics() -> None:
    """Of 50 federations of two classes, half of them with ties; sites of a single class have no
    area."""
    task = Classification((0, 1))
    for seed in range(50):
        rng = np.random.default_rng(seed)
        sites = {}
        of_torchmetrics = {}
        for number in range(8):
            rows = int(rng.choice([2, 5, 10, 10, 40, 400, 3000 if number == 0 else 7]))
            logits = rng.normal(size=(rows, 1)).astype(np.float32)
            predictions = task.predict(torch.from_numpy(logits.round() if seed % 2 else logits))
            y = torch.from_numpy(rng.integers(0, 2, rows))
            name = f"site{number}"
            sites[name] = SiteMetrics(Site(name, (0, 1), {}), task)
            sites[name].update(predictions, y, torch.tensor(0.0))
            score = (predictions / predictions.sum(1, keepdim=True))[:, 1]
            areas = [math.nan, math.nan]
            if 0 < y.sum() < rows:
                areas = [float(binary_auroc(score, y)), float(binary_average_precision(score, y))]
            of_torchmetrics[name] = bits(dict(zip(("auroc", "auprc"), areas, strict=True)))
        for name, scores in score_sites(sites).items():
            areas_here = {key: scores.values[key] for key in ("auroc", "auprc")}
            assert bits(areas_here) == of_torchmetrics[name]


def test_classes_of_many_sites_are_averaged_as_torchmetrics_does() -> None:
    task = Classification(tuple("abc"))
    rng = np.random.default_rng(0)
    sites = {}
    expected = {}
    for number in range(40):
        rows = int(rng.integers(9, 60))
        y = torch.from_numpy(np.append([0, 1, 2], rng.integers(0, 3, rows - 3)))
        predictions = task.predict(torch.from_numpy(rng.normal(size=(rows, 3)).astype(np.float32)))
        name = f"site{number}"
        sites[name] = SiteMetrics(Site(name, (0, 1, 2), {}), task)
        sites[name].update(predictions, y, torch.tensor(0.0))
        expected[name] = float(multiclass_auroc(predictions, y, num_classes=3))
    for name, scores in score_sites(sites).items():
        assert scores.values["auroc"] == pytest.approx(expected[name], abs=1e-6)


class Half(Classification):
    """A task with scores of its own."""

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        score = super()._scorer(predictions, y)
        return lambda counts: {**score(counts), "accuracy": torch.tensor(0.5)}


class Own(SiteMetrics):
    """Metrics with a score of their own."""

    def compute(self) -> dict[str, Tensor]:
        return {**super().compute(), "rows": torch.tensor(2.0)}


def test_what_is_overridden_counts() -> None:
    """A task with a scorer, and metrics with a score, that one pass over all sites does not
    know."""
    sites: dict[str, SiteMetrics] = {}
    for name in ("a", "b"):
        site = Site(name, (0, 1), {})
        sites |= {name: SiteMetrics(site, Half((0, 1))), f"own {name}": Own(site)}
    for metrics in sites.values():
        metrics.update(torch.eye(2), torch.tensor([0, 1]), torch.tensor(0.0))
    scores = score_sites(sites)
    assert [scores[name].values["accuracy"] for name in ("a", "own a", "b")] == [0.5, 1.0, 0.5]
    assert scores["own b"].values["rows"] == 2.0 and "rows" not in scores["b"].values


@pytest.mark.parametrize("lengths", [[3], [1, 0, 4], [2, 2, 2], [20000, 5, 20000]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_segments_have_the_bits_of_their_rows_alone(lengths: list[int], dtype: torch.dtype) -> None:
    values = torch.rand(sum(lengths), dtype=dtype)
    segments = Segments(lengths)
    parts = values.split(lengths)
    assert torch.equal(segments.sum(values), torch.stack([part.sum() for part in parts]))
    backwards = torch.stack([part.flip(0).sum() for part in parts])
    assert torch.equal(segments.sum_backwards(values), backwards)
    means = torch.stack([part.mean() for part in parts])
    assert torch.equal(segments.mean(values).nan_to_num(-1), means.nan_to_num(-1))
    whole = (values * 10).long()
    assert torch.equal(
        torch.from_numpy(segments.cumsum(whole.numpy())),
        torch.cat([part.cumsum(0) for part in whole.split(lengths)]),
    )
