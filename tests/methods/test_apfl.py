"""APFL: its ends are FedAvg and Local bit for bit; each step is the paper's, by hand."""

import torch
from torch import Tensor, nn

from fedlit.data.loader import Batch
from fedlit.methods import APFL
from fedlit.nn import Network
from fedlit.spec import ClientSpec

SPEC = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())


class Linear(Network):
    """Logistic regression, whose gradient is known."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Identity(), nn.Identity(), nn.Linear(num_features, num_outputs, bias=False))


def test_a_step_is_algorithm_1() -> None:
    client = APFL(SPEC, Linear, alpha=0.3, learn_alpha=True)
    w, v = torch.tensor([[0.5, -1.0]]), torch.tensor([[2.0, 0.25]])
    with torch.no_grad():
        client.head.weight.copy_(w)
        client.personal.head.weight.copy_(v)  # type: ignore[operator]
    x, y = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]]), torch.tensor([1, 0, 1])
    client.training_step(Batch(x, y), 0).backward()

    def gradient(parameters: Tensor) -> Tensor:
        """Of the mean cross-entropy of logistic regression, by hand: mean of (sigmoid(x·w) − y) x."""
        return ((torch.sigmoid(x @ parameters[0]) - y)[:, None] * x).mean(0, keepdim=True)

    mixture = 0.3 * v + 0.7 * w
    assert torch.allclose(client.head.weight.grad, gradient(w))  # line 5: w by its own loss
    assert torch.allclose(client.personal.head.weight.grad, 0.3 * gradient(mixture))  # type: ignore  # line 6
    assert torch.allclose(client.alpha.grad, ((v - w) * gradient(mixture)).sum())  # type: ignore  # Eq. 10
    assert torch.allclose(client(x)[:, 0], x @ mixture[0])
    with torch.no_grad():
        client.alpha.fill_(1.7)
    client.on_train_batch_end(None, None, 0)
    assert client.alpha.item() == 1.0  # it stays a share
