"""Client classes of one's own, and what a configuration may give them; several predictions a row."""

import math
import sys
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
import torch

import fedlit
from fedlit import MLP, TabM
from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.errors import ConfigError
from fedlit.exchange.questions import Answerer, Losses
from fedlit.spec import ClientSpec
from fedlit.tasks import Classification, Regression, Task

OWN = """
import fedlit

class Named(fedlit.FederatedClient):
    def __init__(self, spec, network, rank=4, **kwargs):
        super().__init__(spec, network, **kwargs)
        self.rank = rank

class Hidden(fedlit.FederatedClient):
    def __init__(self, spec, **kwargs):
        super().__init__(spec, **{**kwargs, "class_weights": "none"})
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_clients.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_clients", raising=False)
    return "own_clients"


def test_a_client_that_names_the_network_gets_a_class(module: str) -> None:
    args = ("--model.client.rank=3", "--model.client.network=fedlit.MLP", "--model.client.network.hidden=[7,5]")
    run = fedlit.load("quickstart.yaml", f"--model.client={module}.Named", *args)
    run.describe()
    client = next(iter(run.loop.federation.clients.values()))
    assert client.rank == 3 and client.core.state_dict().keys() == MLP(4, 2, hidden=[7, 5]).core.state_dict().keys()


@pytest.mark.parametrize(("name", "given"), [("Named", "mu"), ("Hidden", "rank")])
def test_a_setting_that_nobody_takes_is_refused_with_its_key(name: str, given: str, module: str) -> None:
    with pytest.raises(ConfigError, match=rf"--model\.client\.{given}: expected .*found '{given}'"):
        fedlit.load("quickstart.yaml", f"--model.client={module}.{name}", f"--model.client.{given}=3")


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
