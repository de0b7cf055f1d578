"""Networks beside the modules of their authors, and PyTorch's own."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rtdl_num_embeddings
import tabm
import torch
from federations import different, trained, weights
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedlit import CNN, BiLSTM, TabM
from fedlit.client.build import build_client
from fedlit.client.client import FederatedClient
from fedlit.data.sources import Populations
from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.nn.tabm import ByteDropout
from fedlit.seeding import initialise
from fedlit.spec import ClientSpec
from fedlit.tasks import SequenceLabelling


def test_the_cnn_is_two_convolutions_and_a_dense_layer() -> None:
    network = CNN(25, 3, channels=(2, 4), white=8.0)
    images = 8 * torch.rand(6, 25)
    layers: list[Any] = [network.encoder[1], network.core[0], network.head]  # type: ignore[index]
    (w1, b1), (w2, b2), last = ((layer.weight, layer.bias) for layer in layers)
    maps = functional.conv2d(images.view(-1, 1, 5, 5) / 8, w1, b1, padding="same").relu()
    maps = functional.conv2d(maps, w2, b2, padding="same")[:, :, ::2, ::2].relu()
    torch.testing.assert_close(network(images), functional.linear(maps.flatten(1), *last))


LENGTH = 9
LABELS = 3
HIDDEN = 4


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


def by_hand(own: Any, x: Tensor) -> Tensor:
    """Whole reads (n, positions) → logits, with PyTorch's modules."""
    hidden = theirs(own)(own.encoder.weight[x.long() + 1])[0]
    return (hidden @ own.head[0].weight.T + own.head[0].bias).flatten(1)


def drawn(rows: int) -> Tensor:
    return torch.randint(0, 5, (rows, LENGTH), generator=torch.Generator().manual_seed(0)).float()


def test_the_bilstm_is_pytorchs_two_stacked_bidirectional_lstms() -> None:
    own = network()
    x = drawn(6)
    found = own(x)
    assert found.shape == (6, LENGTH * LABELS)
    torch.testing.assert_close(found, by_hand(own, x))
    names = [name for name, _ in own.named_parameters()]
    # vectors; layers × directions × tensors; the linear layer
    assert len(names) == 1 + 2 * 2 * 4 + 2


def test_what_is_behind_a_reads_end_changes_nothing() -> None:
    own: Any = network()
    x = drawn(4)
    lengths = torch.tensor([9, 5, 1, 7])
    short = torch.where(torch.arange(LENGTH) < lengths[:, None], x, -1.0)
    vectors = own.encoder.weight[x.long() + 1]
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(theirs(own)(packed)[0], batch_first=True)
    torch.testing.assert_close(own.core(own.encoder(short)), expected)
    own.encoder.weight.data[0] = 7.0  # as noise on federated tensors may have it
    torch.testing.assert_close(own.core(own.encoder(short)), expected)


def test_a_resumed_bilstm_has_the_bits_of_one_run(tmp_path: Path) -> None:
    reads = Populations(2, 1, reads=40, length=24, reference=2000, flipped=[1, 2], errors=0.0)
    client = partial(FederatedClient, network=partial(BiLSTM, hidden=6, width=4, dropout=0.1))
    options: dict[str, Any] = {
        "loop": {"client": client},
        "align": "classes",
        "exchange": {"federated": ["*"]},
    }
    whole, _ = (
        trained(tmp_path / str(epochs), epochs=epochs, source=reads, **options) for epochs in (2, 1)
    )
    again = trained(tmp_path / "1", "last", epochs=2, source=reads, **options)
    assert different(weights(whole), weights(again)) == []


def test_several_bilstms_at_once_are_each_alone() -> None:
    """FedGMCC stacks functions by ``vmap``, for which PyTorch's LSTM has no rule."""
    first = network()
    second = network()
    x = drawn(3)
    initialise(second, seed=2)
    x[1, 6:] = -1
    states = {
        name: torch.stack([value, second.state_dict()[name]])
        for name, value in first.state_dict().items()
    }
    states = {name: value.requires_grad_() for name, value in states.items()}
    found = vmap(lambda state, own: functional_call(first, state, (own,)), in_dims=(0, None))(
        states, x
    )
    torch.testing.assert_close(found, torch.stack([first(x), second(x)]))
    found.square().sum().backward()
    first(x).square().sum().backward()
    for name, parameter in first.named_parameters():
        gradient: Any = states[name].grad
        torch.testing.assert_close(gradient[0], parameter.grad)


def spec(inputs: tuple[Input, ...]) -> ClientSpec:
    task = SequenceLabelling(("a", "b"), len(inputs))
    return ClientSpec(
        "north", tuple(own.name for own in inputs), task.classes, {}, (), task=task, inputs=inputs
    )


def test_wrong_inputs_and_outputs_of_a_bilstm_are_refused() -> None:
    bases = ("A", "C", "G", "N", "T")
    FederatedClient(spec((Input("p1", "p1", bases), Input("p2", "p2", bases))), network=BiLSTM)
    with pytest.raises(
        ConfigError, match=r"input p2: expected the code of one of 5 symbols.*found a number"
    ):
        FederatedClient(spec((Input("p1", "p1", bases), Input("p2", "p2"))), network=BiLSTM)
    with pytest.raises(ConfigError, match=r"input p1: .*found codes of A, C"):
        FederatedClient(spec((Input("p1", "p1", ("A", "C")),)), network=BiLSTM)
    with pytest.raises(
        ValueError, match=r"at least two outputs for each of 9 positions, found 9 in total"
    ):
        BiLSTM(9, 9)
    with pytest.raises(ValueError, match=r"symbols of at least 1"):
        BiLSTM(9, 18, layers=0)


EDGES = ((-2.0, -0.5, 0.0, 0.25, 3.0), (-1.0, 1.5), (-0.1, 0.0, 0.1))
INPUTS = tuple(Input(f"x{place}", f"x{place}", edges=own) for place, own in enumerate(EDGES))


def embeddings_of_theirs() -> rtdl_num_embeddings.PiecewiseLinearEmbeddings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one bin
        bins = list(map(torch.tensor, EDGES))
        return rtdl_num_embeddings.PiecewiseLinearEmbeddings(bins, 5, activation=False, version="A")


def rows() -> Tensor:
    """Within the bins, at their edges, and up to three widths outside."""
    torch.manual_seed(8)
    low = torch.tensor([own[0] - 3 * (own[1] - own[0]) for own in EDGES])
    high = torch.tensor([own[-1] + 3 * (own[-1] - own[-2]) for own in EDGES])
    edges = torch.tensor([[own[place % len(own)] for own in EDGES] for place in range(5)])
    return torch.cat([low + (high - low) * torch.rand(200, 3), edges])


def test_tabms_outputs_are_those_of_the_authors_modules() -> None:
    network: Any = TabM(3, 2, k=4, width=7, layers=3, dropout=0.0, embedding=5, num_bins=4)
    network.meet(INPUTS, ["no", "yes"])
    embeddings = embeddings_of_theirs()
    encoder = network.encoder
    backbone = tabm.make_tabm_backbone(
        d_in=15, n_blocks=3, d_block=7, dropout=0.0, k=4,
        start_scaling_init="random-signs", start_scaling_init_chunks=[5] * 3,
    )  # fmt: skip
    output = tabm.LinearEnsemble(7, 2, k=4)
    with torch.no_grad():
        for value in network.parameters():
            value.copy_(torch.randn_like(value))
        embeddings.linear.weight.zero_()
        for column, edges in enumerate(EDGES):
            own = encoder.numbers.weight[column, : len(edges) - 1]
            embeddings.linear.weight[column, embeddings.impl.mask[column]] = own
        embeddings.linear.bias.copy_(encoder.numbers.offset)
        first: Any = encoder.first
        for layer, (theirs_, *_) in zip([first, *network.core], backbone.blocks, strict=True):
            theirs_.weight.copy_(layer.weight.flatten(0, 1).T if layer is first else layer.weight)
            for name, other in (("r", "input_scale"), ("s", "scale"), ("bias", "bias")):
                getattr(theirs_, name).copy_(getattr(layer, other).flatten(1))
        output.weight.copy_(network.head.weight)
        output.bias.copy_(network.head.bias)
        embedded = embeddings(rows()).flatten(1) * first.gain
        expected = output(backbone(tabm.ensemble_view(embedded, 4, training=False)))
        torch.testing.assert_close(network.eval()(rows()), expected, rtol=1e-5, atol=1e-4)


def client(
    name: str, columns: dict[str, tuple[str, ...]], classes: tuple[Any, ...]
) -> FederatedClient:
    inputs = tuple(
        Input(own, own, values, () if values else (-1.0, 0.0, 2.0))
        for own, values in columns.items()
    )
    spec = ClientSpec(name, tuple(columns), classes, {}, (), inputs=inputs)
    network = partial(TabM, k=2, width=6, embedding=3, num_bins=4)
    return build_client(lambda spec: FederatedClient(spec, network), spec, seed=8)


def test_in_tabm_equal_names_start_equal() -> None:
    first = client("a", {"age": (), "soil": ("clay", "sand"), "bmi": ()}, ("low", "mid", "high"))
    second = client("b", {"soil": ("loam", "sand"), "age": ()}, ("high", "none", "low"))
    compared = set()
    for name, part in first.named_modules():
        for tensor, (axis, labels) in getattr(part, "axes", {}).items():
            other: Any = second.get_submodule(name)
            theirs_ = other.axes[tensor][1]
            for label in set(labels) & set(theirs_):
                one = getattr(part, tensor).select(axis, labels.index(label))
                assert torch.equal(
                    one, getattr(other, tensor).select(axis, theirs_.index(label))
                ), (name, label)
                compared.add(label)
    assert compared == {"age", "soil=", "soil=sand", "low", "high"}
    theirs_ = second.state_dict()
    assert all(
        torch.equal(own, theirs_[name])
        for name, own in first.state_dict().items()
        if name.startswith("core")
    )


def test_tabms_weights_alone_decay() -> None:
    own = client("a", {"age": (), "soil": ("clay", "sand")}, ("low", "mid", "high"))
    own.optimizer_factory = lambda groups: torch.optim.AdamW(groups, weight_decay=0.5)
    decayed, free = own.configure_optimizers().param_groups
    names = {id(value): name for name, value in own.named_parameters()}
    assert decayed["weight_decay"] == 0.5 and free["weight_decay"] == 0
    assert {names[id(value)] for value in decayed["params"]} == {
        "encoder.numbers.weight", "encoder.first.weight", "core.0.weight", "head.weight"
    }  # fmt: skip
    assert len(decayed["params"]) + len(free["params"]) == len(names)


def test_dropout_by_bytes() -> None:
    torch.manual_seed(8)
    x = torch.randn(1000, 203, requires_grad=True)
    drop: nn.Module = ByteDropout(0.1)
    out = drop(x)
    kept = out != 0
    assert (
        torch.allclose(out[kept], x[kept] * 256 / 230)
        and abs(float((~kept).float().mean()) - 26 / 256) < 0.003
    )
    out.sum().backward()
    assert x.grad is not None and torch.equal(x.grad != 0, kept)
    torch.manual_seed(8)
    torch.randn(1000, 203)
    assert torch.equal(drop(x), out) and not torch.equal(drop(x), out)
