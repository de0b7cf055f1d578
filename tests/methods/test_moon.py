"""MOON: its term by hand, what it compares with, what it leaves alone; and that it is FedAvg without the term."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import SmallNet

from fedlit import MLP, MOON
from fedlit.client.client import FederatedClient
from fedlit.methods.anchored import by_name
from fedlit.spec import ClientSpec

SPEC = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())


def test_the_term_by_hand() -> None:
    """Eq. 3, row by row."""
    client = MOON(SPEC, MLP, temperature=0.3)
    drawn = np.random.default_rng(0).normal(size=(3, 4, 3))
    z, received, previous = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    near, far = (np.exp((z * other).sum(1) / 0.3) for other in (received, previous))
    assert float(client.contrast(*map(torch.tensor, drawn))) == pytest.approx(-np.log(near / (near + far)).mean())


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
