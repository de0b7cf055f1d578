"""What an ensemble predicts is the mean of what its members predict, and its loss is that of the mean."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.nn import MLP, TabM
from fedlit.spec import ClientSpec
from fedlit.tasks import Classification, Counts, MultiLabel, Regression, Task

TASKS: dict[str, tuple[Task, int]] = {
    "two classes": (Classification((0, 1)), 1),
    "four classes": (Classification((0, 1, 2, 3)), 4),
    "several labels": (MultiLabel(("a", "b"), (1, 1)), 2),
    "a number": (Regression(mean=3.0, scale=2.0), 1),
    "a count": (Counts(mean=3.0), 1),
}


@pytest.mark.parametrize(("task", "width"), TASKS.values(), ids=list(TASKS))
def test_outputs_of_members_become_those_of_their_mean(task: Task, width: int) -> None:
    outputs = 3 * torch.randn(50, 8, width, generator=torch.Generator().manual_seed(8))
    expected = torch.stack([task.predict(outputs[:, member]) for member in range(8)]).mean(0)
    assert torch.allclose(task.predict(task.of_members(outputs)), expected, rtol=1e-5, atol=1e-6)


def test_the_scored_loss_is_that_of_the_mean_prediction() -> None:
    spec = ClientSpec("ash", ("a", "b"), (0, 1, 2), {"train": 9}, ())
    client = FederatedClient(spec, partial(TabM, k=3, width=8))
    x, y = torch.randn(30, 2), torch.arange(30) % 3
    predicted, loss = client.eval().evaluate(Batch(x, y))
    assert float(loss.detach()) == pytest.approx(float(-predicted[torch.arange(30), y].log().mean().detach()), rel=1e-5)
    # a single network's as before
    plain = FederatedClient(spec, MLP).eval()
    logits: Tensor = plain(x)
    assert float(plain.evaluate(Batch(x, y))[1].detach()) == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, y).detach())
    )
