"""Networks that put out several predictions a row: the loss is the members' mean, and so is what is predicted."""

import math
from typing import Any, Literal

import pandas as pd
import pytest
import torch

from fedlit import TabM
from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.exchange.questions import Answerer, Losses
from fedlit.spec import ClientSpec
from fedlit.tasks import Classification, Regression, Task

N = 12


TARGETS: dict[str, tuple[type[Task], list[float]]] = {
    "number": (Regression, [float(place) for place in range(N)]),
    **{
        name: (Classification, [float(place % classes) if place < 9 else 0.0 for place in range(N)])
        for name, classes in (("two", 2), ("three", 3))
    },
}


@pytest.mark.parametrize("weights", ["none", "balanced"])
@pytest.mark.parametrize("name", TARGETS)
def test_members_are_averaged(name: str, weights: Literal["none", "balanced"]) -> None:
    torch.manual_seed(8)
    kind, values = TARGETS[name]
    target = pd.Series(values, name="y")
    agreed = kind.agree("a", {"a": kind.facts(target, {})})
    y = agreed.encode(target)
    own = agreed.fit(y)
    client = FederatedClient(
        ClientSpec("a", ("x", "z"), own.classes, {}, (), own.class_rows, task=own),
        lambda features, outputs: TabM(features, outputs, k=3, width=5, embedding=2, num_bins=4),
        weights,
    )
    with torch.no_grad():
        for own_weights in client.parameters():  # members that differ
            own_weights.normal_()
    x = torch.randn(N, 2)
    outputs = client.eval()(x)
    assert outputs.shape == (N, 3, own.outputs)
    losses = torch.stack([client.loss(outputs[:, member], y) for member in range(3)])
    torch.testing.assert_close(client.loss(outputs, y), losses.mean())
    predicted = torch.stack([own.predict(outputs[:, member]) for member in range(3)]).mean(0)
    torch.testing.assert_close(client.predict(outputs), predicted)
    assert not torch.allclose(predicted, own.predict(outputs.mean(1))) or name == "number"
    made, loss = client.evaluate(Batch(x, y))
    torch.testing.assert_close(made, predicted)
    torch.testing.assert_close(loss, own.loss(own.of_members(outputs), y))  # of the mean prediction
    answer: Any = Answerer(client, [], Rows(x, y, torch.arange(N).numpy()))(Losses([{}]))
    torch.testing.assert_close(answer, client.loss(outputs, y).reshape(1))
    if own.classes:  # a label that nobody knows
        unknown = client.evaluate(Batch(x, torch.full_like(y, -1)))
        assert math.isnan(unknown[1])
