"""MOON: its term by hand, what it compares with, what it leaves alone; and that it is FedAvg without the term."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import SmallNet

from fedlit.client.client import FederatedClient
from fedlit.methods import MOON
from fedlit.methods.anchored import by_name
from fedlit.nn import MLP
from fedlit.spec import ClientSpec

SPEC = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())


def by_hand(z: np.ndarray, received: np.ndarray, previous: np.ndarray, temperature: float) -> float:
    """Eq. 3, row by row."""
    rows = []
    for own, glob, prev in zip(z, received, previous, strict=True):
        near, far = (
            np.exp(own @ other / np.linalg.norm(own) / np.linalg.norm(other) / temperature) for other in (glob, prev)
        )
        rows.append(-np.log(near / (near + far)))
    return float(np.mean(rows))


def test_the_term_by_hand() -> None:
    client = MOON(SPEC, MLP, temperature=0.3)
    rng = np.random.default_rng(0)
    z, received, previous = (rng.normal(size=(4, 3)) for _ in range(3))
    term = client.contrast(torch.tensor(z), torch.tensor(received), torch.tensor(previous))
    assert float(term) == pytest.approx(by_hand(z, received, previous, 0.3))


def test_the_loss_is_the_sum_and_the_extra_passes_leave_no_trace() -> None:
    client: Any = MOON(SPEC, SmallNet, mu=0.7).train()
    client.on_receive({})
    x, y = torch.randn(20, 2), torch.arange(20) % 2
    torch.manual_seed(0)
    plain = FederatedClient.objective(client, x, y)
    torch.manual_seed(0)
    first = client.objective(x, y)  # as received: both similarities are 1
    assert float(first.detach()) == pytest.approx(float(plain.detach()) + 0.7 * np.log(2), abs=1e-5)
    first.backward()
    with_term = [None if p.grad is None else p.grad.clone() for p in client.parameters()]
    client.zero_grad()
    torch.manual_seed(0)
    FederatedClient.objective(client, x, y).backward()
    for own, parameter in zip(with_term, client.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad, atol=1e-6, rtol=1e-4)
    batches = int(client.encoder[1].num_batches_tracked)
    running = client.core[1].running_mean.clone()
    client.representation(x, by_name(client.received))
    assert int(client.encoder[1].num_batches_tracked) == batches == 3
    assert torch.equal(client.core[1].running_mean, running)
