"""iFedAvg: what it predicts by hand, what moves how fast, and that an output which is turned round is learnt so."""

from functools import partial

import pytest
import torch

from fedlit import MLP, IFedAvg
from fedlit.data.loader import Batch
from fedlit.spec import ClientSpec


def build(classes: tuple[int, ...] = (0, 1, 2), **options: object) -> IFedAvg:
    spec = ClientSpec("ash", ("a", "b", "c"), classes, {}, (), (5,) * len(classes))
    return IFedAvg(spec, partial(MLP, hidden=[4]), **options)  # type: ignore[arg-type]


def test_its_learning_rate_is_a_multiple_and_decay_never_pulls_it_to_zero() -> None:
    client = build(lr_factor=5.0)
    client.optimizer_factory = partial(torch.optim.SGD, lr=0.1, weight_decay=0.5)
    client.scheduler_factory = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.1)
    configured = client.configure_optimizers()
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    before = {name: value.clone() for name, value in client.named_parameters()}
    loss = client.training_step(Batch(torch.randn(8, 3), torch.arange(8) % 3), 0)
    loss.backward()
    for value in client.parameters():
        value.grad.zero_()  # type: ignore[union-attr]
    optimizer.step()
    after = dict(client.named_parameters())
    assert torch.equal(after["affine_in.weight"], before["affine_in.weight"])
    assert torch.allclose(after["head.weight"], 0.95 * before["head.weight"])
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.05])


def test_corrections_are_what_inputs_and_outputs_go_through() -> None:
    """From the identity; a client whose labels are flipped, and whose network stays, turns its output round."""
    torch.manual_seed(8)
    client, x = build((0, 1), outputs="both", lr_factor=10.0), torch.randn(200, 3)
    network = lambda x: client.head(client.core(client.encoder(x)))  # noqa: E731
    assert torch.equal(client(x), network(x))
    parts = {name: own for name, own in client.named_parameters() if name.startswith("affine")}
    y = (network(x)[:, 0] < network(x)[:, 0].median()).long()
    optimizer = torch.optim.SGD(parts.values(), lr=1.0)
    for _ in range(300):
        optimizer.zero_grad()
        client.training_step(Batch(x, y), 0).backward()
        optimizer.step()
    own = {name: value.detach() for name, value in parts.items()}
    corrected = network(own["affine_in.weight"] * (x + own["affine_in.bias"]))  # Section 2.1
    torch.testing.assert_close(client(x), own["affine_out.weight"] * (corrected + own["affine_out.bias"]))
    found = client.corrections
    assert found["output scale"]["1"] < 0 and list(found["input scale"]) == ["a", "b", "c"]
    assert list(found["input shift"].values()) == own["affine_in.bias"].tolist()
