"""Several labels against one at a time, labels that are missing or constant, and what is refused as
yes or no."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import Given, encode
from sklearn.metrics import accuracy_score, f1_score
from torch.nn import functional

from fedlit.data.shaping.partition import Dirichlet, Partition
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.errors import ConfigError, DataError
from fedlit.tasks import Classification, MultiLabel
from fedlit.tasks.metrics import Site, SiteMetrics

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)
NAMES = ("died", "readmitted", "infected")


def drawn(seed: int, rows: int, missing: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities with ties, and labels; of each row at least one is known."""
    rng = np.random.default_rng(seed)
    y = (rng.random((rows, 3)) < [0.5, 0.3, 0.1]).astype(np.float32)
    probabilities = np.round(np.clip(rng.normal(0.3 + 0.3 * y, 0.25), 0, 1), 1).astype(np.float32)
    y[:, 1:][rng.random((rows, 2)) < missing] = math.nan
    return torch.from_numpy(probabilities), torch.from_numpy(y)


@PROPERTY
@given(st.integers(0, 9999), st.integers(2, 60), st.sampled_from([0.0, 0.4]))
def test_scores_are_means_over_labels_with_both_values(
    seed: int, rows: int, missing: float
) -> None:
    own, true = drawn(seed, rows, missing)
    found = MultiLabel(NAMES).evaluate(own, true)
    known = ~true.isnan()
    predicted = own > 0.5
    kept = [c for c in range(3) if len(true[known[:, c], c].unique()) == 2]
    pairs = [(own[known[:, c], c], true[known[:, c], c].long()) for c in kept]
    each = [Classification((0, 1)).evaluate(torch.stack([1 - p, p], 1), y) for p, y in pairs]
    expected: dict[str, float] = {"labels": len(kept)}
    for name in ("auroc", "auprc", "balanced_accuracy"):
        expected[name] = float(np.mean([one[name] for one in each])) if each else math.nan
    if true.nan_to_num(0).sum() + predicted[known].sum() > 0:
        expected["micro_f1"] = f1_score(true[known], predicted[known])
    if not missing:
        expected["exact_match"] = accuracy_score(true, predicted)
    assert {name: float(found[name]) for name in expected} == pytest.approx(
        expected, rel=1e-5, abs=1e-6, nan_ok=True
    )


def test_the_loss_is_the_mean_over_known_labels_in_any_batches() -> None:
    rng = np.random.default_rng(0)
    task = MultiLabel(NAMES)
    outputs = torch.from_numpy(rng.normal(size=(30, 3)).astype(np.float32))
    (_, y) = drawn(0, 30, 0.5)
    full = drawn(0, 30)[1]
    expected = functional.binary_cross_entropy_with_logits(outputs, full)
    torch.testing.assert_close(task.loss(outputs, full), expected)
    torch.testing.assert_close(task.bounded(outputs), outputs.sigmoid())  # each label by itself
    pairs = [(o[t == t], t[t == t]) for o, t in zip(outputs, y, strict=True)]
    by_row = [functional.binary_cross_entropy_with_logits(*pair) for pair in pairs]
    torch.testing.assert_close(task.loss(outputs, y), torch.stack(by_row).mean())
    metrics = SiteMetrics(Site("a", (0, 1, 2), {}), task)
    for part in (slice(0, 7), slice(7, 30)):
        metrics.update(task.predict(outputs[part]), y[part], task.loss(outputs[part], y[part]))
    torch.testing.assert_close(metrics.compute()["loss"], torch.stack(by_row).mean())
    outputs.requires_grad_()
    task.loss(outputs, y).backward()
    grad = outputs.grad
    assert grad is not None and bool((grad[y.isnan()] == 0).all() and grad.isfinite().all())


def test_balanced_weights_count_both_values_of_a_label_alike() -> None:
    y = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, math.nan], [0.0, 0.0]])
    task = MultiLabel(("a", "b")).fit(y)
    assert (task.class_rows, task.known_rows) == ((1, 0), (4, 3))
    outputs = torch.zeros(4, 2)
    outputs[0, 0] = 2.0
    cost = functional.binary_cross_entropy_with_logits(outputs[:, 0], y[:, 0], reduction="none")
    first = (
        cost * torch.tensor([2.0, 2 / 3, 2 / 3, 2 / 3]) * torch.tensor([0.5, 0.5, 1.0, 0.5])
    ).sum() / 4
    torch.testing.assert_close(
        task.loss(outputs, y, task.balance()), first + 3 * 0.5 * math.log(2) / 4
    )


# ------------------------------------------------------------------ values


def table(
    name: str, labels: dict[str, list[Any]], task: TaskSettings | None = None, rows: int = 30
) -> ClientTable:
    x = pd.DataFrame({"a": np.arange(float(rows)), "b": np.arange(float(rows))[::-1]})
    frame = pd.DataFrame({label: (values * rows)[:rows] for label, values in labels.items()})
    ends = [int(0.6 * rows), int(0.8 * rows)]
    parts = dict(zip(("train", "validation", "test"), np.split(np.arange(rows), ends), strict=True))
    return ClientTable(name, x, frame, parts, task=task)  # type: ignore[arg-type]


def test_any_two_values_are_kept_and_missing_ones_unknown() -> None:
    labels: dict[str, list[Any]] = {
        "died": [0, 1, None],
        "back": ["Yes", "no", "no"],
        "late": [True, False, False],
        "grade": [1, 2, 2],
    }
    (client,) = encode([table("north", labels)])
    task = client.spec.task
    assert isinstance(task, MultiLabel) and task.classes == tuple(labels)
    assert (task.negatives, task.positives) == ((0, "no", False, 1), (1, "Yes", True, 2))
    expected = torch.tensor([[0.0, 1, 1, 0], [1, 0, 0, 1], [math.nan, 0, 0, 1]])
    assert torch.equal(client.train.y[:3].nan_to_num(9), expected.nan_to_num(9))
    assert client.notes == (
        "north: not known of some training rows, which count nowhere for it: died (6)",
    )
    frame = task.frame(client.train.row[:3], client.train.y[:3], expected.nan_to_num(0))
    for label, values in labels.items():
        assert frame[f"target_{label}"].tolist() == values
    assert frame["predicted_back"].tolist() == labels["back"]


def test_a_label_constant_in_training_rows_is_noted() -> None:
    (client,) = encode(
        [table("north", {"died": [0], "back": ["No"], "late": [False], "ill": [0, 1]})]
    )
    task = client.spec.task
    assert isinstance(task, MultiLabel) and task.positives == (1, "Yes", True, 1)
    assert client.notes == (
        "north: the same in all training rows, so nothing is learnt of: died, back, late",
    )


@pytest.mark.parametrize(
    ("labels", "task", "message"),
    [
        (
            {"died": [0, 1, 2], "back": [0, 1]},
            None,
            r"client 'north', target 'died': expected two values .*found 3",
        ),
        ({"died": [0, "x"], "back": [0, 1]}, None, r"'died': .*found 2, such as 0, 'x'"),
        (
            {"died": [None], "back": [0, 1]},
            None,
            r"'died': .* found none; .* leave it out of the target",
        ),
        (
            {"died": ["dead"], "back": [0, 1]},
            None,
            r"found 'dead' alone at 'north', .* write 0 and 1",
        ),
        ({"died": ["Yes", "yes "], "back": [0, 1]}, None, r"found 2, such as 'Yes', 'yes '"),
        (
            {"died": [0, None], "back": [1, None]},
            None,
            "expected a label in every row, found 15 rows without one",
        ),
        (
            {"died": [0, 1], "back": [1, 0]},
            "classification",
            "task: classification, found .*multi_label",
        ),
        (
            {"died": [0, 1] * 14 + [5, 1], "back": [0, 1]},
            None,
            "'died': expected 0 or 1, found 1 other .* 5 in row 28",
        ),
    ],
)
def test_what_is_not_yes_or_no_is_refused(
    labels: dict[str, list[Any]], task: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        encode([table("north", labels, task)])


def test_labels_of_all_clients_are_joined_where_classes_are() -> None:
    north = table("north", {"died": [0, 1], "back": [1, 0, 0]})
    south = table("south", {"back": [0, 1], "ill": [1, 0, 0]})
    first, second = encode([north, south], align="classes")
    assert first.spec.task.classes == second.spec.task.classes == ("back", "died", "ill")
    assert bool(first.train.y[:, 2].isnan().all()) and first.spec.sites[0].classes == (1, 0)
    seen = first.spec.task.at(first.spec.sites[0].classes)
    assert (
        isinstance(seen, MultiLabel)
        and seen.classes == ("died", "back")
        and seen.class_rows == (9, 6)
    )
    (pooled,) = encode([north, south], align="both", pool=True)
    assert pooled.train.y.shape == (36, 3) and pooled.spec.class_rows == (15, 9, 6)
    other = table("south", {"back": ["yes", "no"]})
    with pytest.raises(
        DataError,
        match=r"'back': expected the same two values at all clients, .*'north'; .*'south'",
    ):
        encode([north, other], align="classes")


def test_rows_are_dealt_without_their_labels() -> None:
    own = table("north", {"died": [0, 1], "back": [0, 1, None]}, rows=200)
    dealt = Partition(Given([own]), 3).tables(0)
    assert [own.task for own in dealt] == ["multi_label"] * 3 and dealt[0].target.name == (
        "died",
        "back",
    )
    with pytest.raises(ConfigError, match=r"several labels a row \(task: multi_label\); deal by"):
        Partition(Given([own]), 3, deal=Dirichlet(0.5)).tables(0)


def test_a_list_of_columns_is_several_labels(tmp_path: Any) -> None:
    rows = pd.DataFrame(
        {
            "x": [n * 7 % 60 for n in range(60)],
            "died": [0, 1] * 30,
            "back": ["no", "yes", None] * 20,
        }
    )
    rows.to_csv(tmp_path / "north.csv", index=False)
    files = {"north": str(tmp_path / "north.csv"), "south": str(tmp_path / "north.csv")}
    source = Tables(files, {"north": ["died", "back"], "south": "died"})
    north, south = source.tables(0)
    assert (north.task, north.target.name, list(north.features)) == (
        "multi_label",
        ("died", "back"),
        ["x"],
    )
    assert north.target.tolist()[:3] == [(0, "no"), (1, "yes"), (0, None)] and south.task is None
    assert source.some(["north"], 0)[0].target.tolist() == north.target.tolist()
    with pytest.raises(DataError, match="expected one column for task: classification, found"):
        Tables(files, ["died", "back"], task="classification").tables(0)
    for target, found in (
        ([], "found none"),
        (["died", "died"], "found died, died; name each once"),
    ):
        with pytest.raises(
            DataError, match=f"client 'north', target: expected a column for each label, {found}"
        ):
            Tables(files, target).tables(0)
    with pytest.raises(ConfigError, match=r"drop: .*target of client 'north', found 'back'"):
        Tables(files, ["died", "back"], drop=["back"]).tables(0)
