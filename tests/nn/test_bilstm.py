"""The stacked bidirectional LSTMs, against PyTorch's own."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedlit import BiLSTM
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.seeding import initialise
from fedlit.spec import ClientSpec
from fedlit.tasks import SequenceLabelling

LENGTH, LABELS, HIDDEN = 9, 3, 4


def network(**changes: object) -> BiLSTM:
    made = BiLSTM(LENGTH, LENGTH * LABELS, **{"hidden": HIDDEN, "width": 5, **changes})  # type: ignore[arg-type]
    initialise(made, seed=1)
    return made


def theirs(own: BiLSTM) -> nn.LSTM:
    """PyTorch's stacked bidirectional LSTM with the same weights."""
    lstm = nn.LSTM(5, HIDDEN, 2, batch_first=True, bidirectional=True)
    state = {}
    for name in lstm.state_dict():
        direction = "back" if name.endswith("_reverse") else "forth"
        plain = name.removesuffix("_reverse")
        layer = plain[-1]
        state[name] = own.state_dict()[f"core.{layer}.{direction}.{plain[:-1]}0"]
    lstm.load_state_dict(state)
    return lstm


def by_hand(own: BiLSTM, x: Tensor) -> Tensor:
    """Whole reads (n, positions) → logits, with PyTorch's modules."""
    hidden = theirs(own)(own.encoder.weight[x.long() + 1])[0]
    return (hidden @ own.head[0].weight.T + own.head[0].bias).flatten(1)  # type: ignore[index,union-attr]


def drawn(rows: int) -> Tensor:
    return torch.randint(0, 5, (rows, LENGTH), generator=torch.Generator().manual_seed(0)).float()


def test_it_is_pytorchs_two_stacked_bidirectional_lstms() -> None:
    own, x = network(), drawn(6)
    found = own(x)
    assert found.shape == (6, LENGTH * LABELS)
    torch.testing.assert_close(found, by_hand(own, x))
    names = [name for name, _ in own.named_parameters()]
    assert len(names) == 1 + 2 * 2 * 4 + 2  # vectors; layers × directions × tensors; the linear layer


def test_what_is_behind_a_reads_end_changes_nothing() -> None:
    own, x = network(), drawn(4)
    lengths = torch.tensor([9, 5, 1, 7])
    short = torch.where(torch.arange(LENGTH) < lengths[:, None], x, -1.0)
    vectors = own.encoder.weight[x.long() + 1]
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(theirs(own)(packed)[0], batch_first=True)
    torch.testing.assert_close(own.core(own.encoder(short)), expected)
    own.encoder.weight.data[0] = 7.0  # as noise on federated tensors may have it
    torch.testing.assert_close(own.core(own.encoder(short)), expected)


def test_several_at_once_are_each_alone() -> None:
    """FedGMCC stacks functions by ``vmap``, for which PyTorch's LSTM has no rule."""
    first, second, x = network(), network(), drawn(3)
    initialise(second, seed=2)
    x[1, 6:] = -1
    states = {name: torch.stack([value, second.state_dict()[name]]) for name, value in first.state_dict().items()}
    states = {name: value.requires_grad_() for name, value in states.items()}
    found = vmap(lambda state, own: functional_call(first, state, (own,)), in_dims=(0, None))(states, x)
    torch.testing.assert_close(found, torch.stack([first(x), second(x)]))
    found.square().sum().backward()
    first(x).square().sum().backward()
    for name, parameter in first.named_parameters():
        torch.testing.assert_close(states[name].grad[0], parameter.grad)


def spec(inputs: tuple[Input, ...]) -> ClientSpec:
    task = SequenceLabelling(("a", "b"), len(inputs))
    return ClientSpec("north", tuple(own.name for own in inputs), task.classes, {}, (), task=task, inputs=inputs)


def test_inputs_that_are_no_codes_and_outputs_that_do_not_fit_are_refused() -> None:
    bases = ("A", "C", "G", "N", "T")
    FederatedClient(spec((Input("p1", "p1", bases), Input("p2", "p2", bases))), network=BiLSTM)
    with pytest.raises(ConfigError, match=r"input p2: expected the code of one of 5 symbols.*found a number"):
        FederatedClient(spec((Input("p1", "p1", bases), Input("p2", "p2"))), network=BiLSTM)
    with pytest.raises(ConfigError, match=r"input p1: .*found codes of A, C"):
        FederatedClient(spec((Input("p1", "p1", ("A", "C")),)), network=BiLSTM)
    with pytest.raises(ValueError, match=r"two outputs or more for each of 9 positions, found 9 in all"):
        BiLSTM(9, 9)
    with pytest.raises(ValueError, match=r"at least 1 of hidden"):
        BiLSTM(9, 18, layers=0)
