"""TabM: an ensemble of networks that share most weights, over embeddings of numbers and
categories.
"""

from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Tensor, nn

from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.nn.native.stacked import Masked
from fedlit.nn.native.stacks import Dimensions, StackInfo, stack_first
from fedlit.nn.network import Network, name_axes
from fedlit.seeding import GENERATORS

FURTHEST = 3.0
"""Widths of the outermost bin by which a number may lie beyond it."""


class PiecewiseLinear(nn.Module):
    """An embedding of each number: its position in the bins of its column, multiplied by weights of
    this column (Gorishniy, Rubachev and Babenko 2022, Eq. 1).

    A bin is 1 for numbers above it, 0 for numbers below it, and linear between its edges; the first
    and the last bin continue linearly beyond them.

    NOTE[DIFF]: they end three widths outside, so that an outlier cannot become arbitrarily large.

    Shape:
        - input: (rows, columns), float32
        - output: (rows, columns, width), float32

    Args:
        inputs: the columns. A column without edges has the bins that a standard normal variable
            would have.
        bins: the largest number of bins of a column.
        width: the width of an embedding.

    Example:
        >>> age = PiecewiseLinear([Input("age", "age", edges=(0.0, 1.0, 3.0))], bins=2, width=4)
        >>> age.encode(torch.tensor([[0.5], [2.0], [4.0]])).squeeze(1)
        tensor([[0.5000, 0.0000],
                [1.0000, 0.5000],
                [1.0000, 1.5000]])
    """

    slope: Tensor
    shift: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, inputs: Sequence[Input], bins: int, width: int) -> None:
        super().__init__()
        bins_by_column = [_bins(column, bins) for column in inputs]
        # Bins are not saved, because checkpoints hold the edges; nor averaged, because clients'
        # bins differ.
        slopes, shifts, lows, highs = zip(*bins_by_column, strict=True)
        self.register_buffer("slope", torch.stack(slopes), persistent=False)
        self.register_buffer("shift", torch.stack(shifts), persistent=False)
        self.register_buffer("low", torch.stack(lows), persistent=False)
        self.register_buffer("high", torch.stack(highs), persistent=False)
        self.weight = nn.Parameter(torch.empty(len(inputs), bins, width))
        self.offset = nn.Parameter(torch.empty(len(inputs), width))
        names = [column.name for column in inputs]
        name_axes(self, {"weight": (0, names), "offset": (0, names)})
        self.reset_parameters()

    def draw(self, tensor: str, part: Tensor) -> None:
        """Draw the values of one column: weights from N(0, 1 / bins), and offsets of 0."""
        if tensor == "offset":
            part.zero_()
        else:
            part.normal_(std=len(part) ** -0.5)

    def reset_parameters(self) -> None:
        """Draw all parameters; see :meth:`draw`."""
        self.draw("offset", self.offset.data)
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)

    def encode(self, x: Tensor) -> Tensor:
        """Map (rows, columns) to (rows, columns, bins): the position of each number in the bins of
        its column.
        """
        return torch.addcmul(self.shift, x.unsqueeze(-1), self.slope).clamp(self.low, self.high)

    def forward(self, x: Tensor) -> Tensor:
        """Embed each column separately."""
        positions = self.encode(x).transpose(0, 1)
        return torch.baddbmm(self.offset.unsqueeze(1), positions, self.weight).transpose(0, 1)


def _bins(column: Input, bins: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return slope, shift, low and high of each bin, (bins,) each. A number's position in a bin is
    ``shift + slope · number``, limited to low and high; it is 0 in bins that the column does not
    have.
    """
    numbers: Sequence[float] | None = column.edges
    if not numbers:
        normal = NormalDist()
        numbers = [normal.inv_cdf((edge + 0.5) / (bins + 1)) for edge in range(bins + 1)]
    edges = torch.tensor(numbers, dtype=torch.float32).unique()  # sorted
    if len(edges) > bins + 1:
        raise ConfigError(
            f"input {column.name!r}: expected at most {bins} bins, found {len(edges) - 1}; set "
            "num_bins of model.client.network to data.num_bins"
        )
    if len(edges) == 1:  # All training rows have the same number.
        edges = torch.cat([edges, edges + 1])
    width = edges.diff()
    number = len(edges) - 1
    slope, shift, low, high = (torch.zeros(bins) for _ in range(4))
    slope[:number] = 1 / width
    shift[:number] = -edges[:-1] / width
    low[0] = -FURTHEST
    high[:number] = 1
    high[number - 1] = 1 + FURTHEST
    return slope, shift, low, high


class Values(nn.Module):
    """An embedding of each value of each categorical column, and one more per column for missing
    and unseen values.

    Shape:
        - input: (rows, columns) of codes, −1 where missing, float32
        - output: (rows, columns, width), float32

    Args:
        inputs: the columns.
        width: the width of an embedding; it is the same for all columns, so that a column fits at
            clients that have other values of it.

    Example:
        >>> Values([Input("soil", "soil", ("clay", "sand"))], width=4).axes
        {'weight': (0, ('soil=', 'soil=clay', 'soil=sand'))}
    """

    first: Tensor
    last: Tensor

    def __init__(self, inputs: Sequence[Input], width: int) -> None:
        super().__init__()
        sizes = torch.tensor([1 + len(column.values) for column in inputs])
        # The row of each column's code 0, and its last code.
        self.register_buffer("first", sizes.cumsum(0) - sizes + 1, persistent=False)
        self.register_buffer("last", sizes - 2, persistent=False)
        self.weight = nn.Parameter(torch.empty(int(sizes.sum()), width))
        names: list[str] = []
        for column in inputs:
            names += [f"{column.name}={value}" for value in ("", *column.values)]
        name_axes(self, {"weight": (0, names)})
        self.reset_parameters()

    def draw(self, tensor: str, part: Tensor) -> None:
        """Draw from N(0, 0.3²)."""
        part.normal_(std=0.3)

    def reset_parameters(self) -> None:
        """Draw all parameters; see :meth:`draw`."""
        nn.init.normal_(self.weight, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Look up the embedding of each code."""
        codes = x.long()
        codes = torch.where(codes > self.last, -1, codes)
        return nn.functional.embedding(self.first + codes, self.weight)


class ByteDropout(nn.Module):
    """Dropout with a random byte for each number, on the CPU. PyTorch draws 32 random bits or more,
    which takes up to a quarter of an ensemble's step. On other devices, it is PyTorch's dropout.

    Shape:
        - input and output: any, float

    Args:
        p: the probability with which a number is set to zero in training, rounded to 1/256.

    Example:
        >>> x = torch.ones(64, 64)
        >>> drop = ByteDropout(0.25)
        >>> drop(x).unique()
        tensor([0.0000, 1.3333])
        >>> torch.equal(drop.eval()(x), x)
        True
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"expected a probability in [0, 1), found {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Set some numbers to zero, and scale the others so that their mean stays the same."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        dropped = min(max(round(256 * self.p), 1), 255)
        out: Tensor = _Drop.apply(x, dropped, (None,))[0]
        return out


class _Drop(Masked):
    """Dropout in which each generator (None: the default one) draws for an equal part of the
    numbers.
    """

    @staticmethod
    def forward(
        x: Tensor, dropped: int, generators: Sequence[torch.Generator | None]
    ) -> tuple[Tensor, Tensor]:
        """Return what remains of x, and by how much each number was multiplied."""
        count = x.numel() // len(generators)
        integers = torch.empty(len(generators), -(-count // 8), dtype=torch.int64)
        for client_integers, generator in zip(integers, generators, strict=True):
            # Integers of the whole range make every byte uniform.
            client_integers.random_(-(2**63), None, generator=generator)
        bytes_ = integers.view(torch.uint8)[:, :count].reshape(x.shape)
        mask = (bytes_ >= dropped).to(x.dtype).mul_(256 / (256 - dropped))
        return x * mask, mask

    @staticmethod
    def vmap(
        info: StackInfo, in_dims: Dimensions, x: Tensor, dropped: int, generators: object
    ) -> tuple[tuple[Tensor, Tensor], Dimensions]:
        """Apply dropout with the stack as the first dimension. Each network of the stack draws as
        it would alone.
        """
        stacked = stack_first(info.batch_size, x, in_dims[0])
        return _Drop.apply(stacked, dropped, GENERATORS.get()), (0, 0)


class Columns(nn.Module):
    """Maps columns to the core's input: embeddings, and the ensemble's first layer, whose weights
    belong to columns.

    Shape:
        - input: (rows, features), float32
        - output: (rows, members, width), float32

    Args:
        inputs: the columns.
        members: the number of networks in the ensemble.
        width: the width of the output.
        embedding: the number of values that represent a column.
        bins: the largest number of bins of a column of numbers.
        dropout: the probability with which an output is set to zero in training.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        members: int,
        width: int,
        embedding: int,
        bins: int,
        dropout: float,
    ) -> None:
        super().__init__()
        columns = range(len(inputs))
        self._numbers = tuple(column for column in columns if not inputs[column].values)
        self._categories = tuple(column for column in columns if inputs[column].values)
        numbers = [inputs[column] for column in self._numbers]
        categories = [inputs[column] for column in self._categories]
        self.numbers = PiecewiseLinear(numbers, bins, embedding) if numbers else None
        self.categories = Values(categories, embedding) if categories else None
        # The ending keeps a column of categories at one client from being averaged with a column
        # of numbers of the same name at another.
        names = [column.name for column in numbers]
        names += [f"{column.name}=" for column in categories]
        self.first = ColumnLayer(names, members, embedding, width)
        self.dropout = ByteDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Embed the columns and mix them."""
        parts = []
        if self.numbers is not None:
            parts.append(self.numbers(_columns(x, self._numbers)))
        if self.categories is not None:
            parts.append(self.categories(_columns(x, self._categories)))
        embedded = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
        out: Tensor = self.dropout(self.first(embedded).relu())
        return out


def _columns(x: Tensor, positions: Sequence[int]) -> Tensor:
    """Return the columns of (rows, features) at these positions."""
    if len(positions) == x.shape[1]:
        return x
    first = positions[0]
    end = positions[-1] + 1
    if end - first == len(positions):  # A slice needs no copy.
        return x[:, first:end]
    return x[:, list(positions)]


class ColumnLayer(nn.Module):
    """The first layer: like a :class:`Layer`, but with weights by column.

    The input is multiplied by √(outputs / inputs), and weights are drawn as if there were as many
    inputs as outputs. So a column's weights start equal at all clients that have it, however many
    other columns they have, and outputs are as large as those of the paper's layer.

    Shape:
        - input: (rows, columns, embedding), float32
        - output: (rows, members, width), float32
    """

    def __init__(self, names: Sequence[str], members: int, embedding: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(names), embedding, width))
        self.input_scale = nn.Parameter(torch.empty(members, len(names), embedding))
        self.scale = nn.Parameter(torch.empty(members, width))
        self.bias = nn.Parameter(torch.empty(members, width))
        self.gain = (width / (len(names) * embedding)) ** 0.5
        name_axes(self, {"weight": (0, names), "input_scale": (1, names)})
        self.reset_parameters()

    def draw(self, tensor: str, part: Tensor) -> None:
        """Draw the values of one column: weights from U(±1/√outputs), and input scales of −1 or
        1.
        """
        if tensor == "weight":
            bound = part.shape[-1] ** -0.5
            part.uniform_(-bound, bound)
        else:
            part.bernoulli_(0.5).mul_(2).sub_(1)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters (see :meth:`draw`). All members start with the same bias, which is
        drawn first, so that it does not depend on the number of columns.
        """
        _one_bias(self.bias)
        self.draw("weight", self.weight)
        self.draw("input_scale", self.input_scale)
        self.scale.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (x · input scale) W · scale + bias. Everything except W is separate for each
        member.
        """
        members = len(self.scale)
        scaled = (x * self.gain).unsqueeze(1) * self.input_scale
        h = scaled.flatten(2).flatten(0, 1) @ self.weight.flatten(0, 1)
        return torch.addcmul(self.bias, h.unflatten(0, (-1, members)), self.scale)


class Layer(nn.Module):
    """A linear layer of an ensemble with ReLU and dropout. The members share the weights and have
    separate scales and biases (Gorishniy, Kotelnikov and Babenko 2025, Section 3.3; Wen, Tran and
    Ba 2020, Eq. 5).

    Shape:
        - input and output: (rows, members, width), float32
    """

    def __init__(self, members: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))
        self.input_scale = nn.Parameter(torch.empty(members, width))
        self.scale = nn.Parameter(torch.empty(members, width))
        self.bias = nn.Parameter(torch.empty(members, width))
        self.dropout = ByteDropout(dropout)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights from U(±1/√width), and set scales to 1. All members start with the same
        bias.
        """
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        self.input_scale.fill_(1)
        self.scale.fill_(1)
        _one_bias(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the ReLU of (x · input scale) Wᵀ · scale + bias, with dropout. Everything except W
        is separate for each member.
        """
        h = nn.functional.linear(x * self.input_scale, self.weight)
        out: Tensor = self.dropout(torch.addcmul(self.bias, h, self.scale).relu())
        return out


def _one_bias(bias: Tensor) -> None:
    """Draw a bias from U(±1/√width), the same for all members (members, width)."""
    width = bias.shape[1]
    bound = width**-0.5
    bias.copy_(torch.empty(width).uniform_(-bound, bound))


class Heads(nn.Module):
    """A separate output layer for each member.

    Shape:
        - input: (rows, members, width), float32
        - output: (rows, members, outputs), float32
    """

    def __init__(self, members: int, width: int, labels: Sequence[str]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, width, len(labels)))
        self.bias = nn.Parameter(torch.empty(members, len(labels)))
        name_axes(self, {"weight": (2, labels), "bias": (1, labels)})
        self.reset_parameters()

    def draw(self, tensor: str, part: Tensor) -> None:
        """Draw the values of one output: weights from U(±1/√width), and biases of 0."""
        bound = self.weight.shape[1] ** -0.5
        if tensor == "bias":
            part.zero_()
        else:
            part.uniform_(-bound, bound)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters; see :meth:`draw`."""
        self.draw("weight", self.weight)
        self.draw("bias", self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of each member."""
        return torch.baddbmm(self.bias.unsqueeze(1), x.transpose(0, 1), self.weight).transpose(0, 1)


class TabM(Network):
    """TabM with piecewise-linear embeddings (Gorishniy, Kotelnikov and Babenko 2025): k networks
    that share the weights of their layers. Numbers are embedded by bins, categories by value.

    The encoder has the embeddings and the first layer, the core all further layers, and the head an
    output layer for each of the k networks. So the core has one shape whatever the columns are, and
    everything that belongs to a column, a value or a class has its name (``axes``). The k networks
    have separate ``*.scale``, ``encoder.first.bias`` and ``core.*.bias`` after the weights, and
    separate ``*.input_scale`` before them.

    Parameters other than weights have no weight decay.

    Args:
        num_features: the number of the client's columns.
        num_outputs: the number of the client's outputs.
        k: the number of networks.
        width: the width of the layers.
        layers: the number of layers of each network, without the output layer; at least one.
        dropout: the probability with which a hidden unit is set to zero in training.
        embedding: the number of values that represent a column.
        num_bins: the largest number of bins of a column of numbers: ``data.num_bins``, the same at
            all clients.

    Example:
        >>> TabM(13, 3)(torch.zeros(2, 13)).shape
        torch.Size([2, 8, 3])
    """

    no_decay = ("*.scale", "*.input_scale", "*.bias", "*.offset", "encoder.categories")
    reads_codes = False  # Each value of a category has an embedding under its own name.

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        k: int = 8,
        width: int = 192,
        layers: int = 2,
        dropout: float = 0.1,
        embedding: int = 12,
        num_bins: int = 32,
    ) -> None:
        if min(k, width, layers, embedding, num_bins) < 1:
            raise ValueError("expected k, width, layers, embedding and num_bins of at least 1")
        self._encoding = (k, width, embedding, num_bins, dropout)
        inputs = [Input(str(column), str(column)) for column in range(num_features)]
        encoder = Columns(inputs, *self._encoding)
        core = [Layer(k, width, dropout) for _ in range(layers - 1)]
        head = Heads(k, width, [str(output) for output in range(num_outputs)])
        super().__init__(encoder, nn.Sequential(*core), head)

    def meet(self, inputs: Sequence[Input], labels: Sequence[str]) -> None:
        """Embed each column according to its kind: numbers by their bins, categories by their
        values.
        """
        members, width, *_ = self._encoding
        self.encoder = Columns(inputs, *self._encoding)
        self.head = Heads(members, width, labels)
