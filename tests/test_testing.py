"""A method that breaks a contract is told which one, and which tensors show it."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import make_run
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.testing import check_method


class Numbered(FederatedClient):
    """Its loss depends on how many clients were built before it."""

    number = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mine = next(self.number) % 7

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) * (1 + self.mine)


class Forgets(FederatedClient):
    """Its loss depends on a number that is not saved."""

    steps = 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.steps += 1
        return super().training_step(batch, batch_idx) * self.steps


class Tells(FederatedClient):
    """It publishes its head."""

    def publish(self) -> dict[str, Tensor]:
        return {"mine": self.head.weight.detach().clone()}  # type: ignore[operator]


class Writes(FederatedClient):
    """It changes what it received, and says that it does not."""

    adapts = False

    @torch.no_grad()
    def on_receive(self, received: Any) -> None:
        for tensor in self.federated.values():
            tensor.mul_(1.1)


@pytest.mark.parametrize(
    ("client", "broken", "tensor"),
    [
        (Numbered, {"order"}, "core"),
        (Forgets, {"resumed"}, "core"),
        (Tells, {"private"}, "clients.ash.head.weight"),
        (Writes, {"adapts"}, "clients.ash.core"),
    ],
)
def test_a_broken_contract_is_named(
    client: type, broken: set[str], tensor: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError) as found:
        check_method(
            lambda: make_run(tmp_path, client=client, exchange={"federated": ["core"]}), epochs=2
        )
    message = str(found.value)
    assert {word for word in ("order", "resumed", "private", "adapts") if word in message} >= broken
    assert tensor in message


def test_a_class_that_says_that_it_adapts_keeps_the_contracts(tmp_path: Path) -> None:
    adapting = type("Adapts", (Writes,), {"adapts": True})
    check_method(
        lambda: make_run(tmp_path, client=adapting, exchange={"federated": ["core"]}), epochs=2
    )
