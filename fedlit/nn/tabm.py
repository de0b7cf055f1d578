"""TabM: an ensemble of networks that share most weights, over embeddings of numbers and categories."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Tensor, nn

from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.nn.dropout import ByteDropout
from fedlit.nn.network import Network, name_axes

__all__ = ["TabM"]

FURTHEST = 3.0
"""Widths of the outermost bin by which a number may lie beyond it."""


class PiecewiseLinear(nn.Module):
    """An embedding of each number: its place among the bins of its column, times weights of this column
    (Gorishniy, Rubachev and Babenko 2022, Eq. 1).

    A bin is 1 for numbers above it, 0 for numbers below it, and linear between its edges; the first and the last one
    go on being linear.

    NOTE[DIFF]: they end three widths outside, so that one outlier cannot become any number.

    Shape:
        - input: (rows, columns), float32
        - output: (rows, columns, width), float32

    Args:
        inputs: the columns. One without edges has its bins where a standard normal's would be.
        bins: at most, in each.
        width: of an embedding.

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
        made = [_bins(own, bins) for own in inputs]
        # not in a checkpoint, which has the edges; and no average of clients' bins would mean anything
        for place, name in enumerate(("slope", "shift", "low", "high")):
            self.register_buffer(name, torch.stack([own[place] for own in made]), persistent=False)
        self.weight = nn.Parameter(torch.empty(len(inputs), bins, width))
        self.offset = nn.Parameter(torch.empty(len(inputs), width))
        names = [own.name for own in inputs]
        name_axes(self, {"weight": (0, names), "offset": (0, names)})
        self.reset_parameters()

    def draw(self, tensor: str, part: Tensor) -> None:
        """One column's: N(0, 1 / bins), and no offset."""
        part.zero_() if tensor == "offset" else part.normal_(std=len(part) ** -0.5)

    def reset_parameters(self) -> None:
        """See :meth:`draw`."""
        self.draw("offset", self.offset.data)
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)

    def encode(self, x: Tensor) -> Tensor:
        """(rows, columns) → (rows, columns, bins): the place of each number among the bins of its column."""
        return torch.addcmul(self.shift, x.unsqueeze(-1), self.slope).clamp(self.low, self.high)

    def forward(self, x: Tensor) -> Tensor:
        """Embed each column on its own."""
        places = self.encode(x).transpose(0, 1)
        return torch.baddbmm(self.offset.unsqueeze(1), places, self.weight).transpose(0, 1)


def _bins(own: Input, bins: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(bins,) each: a number's place in a bin is ``shift + slope · number``, between low and high; 0 in bins that the
    column does not have.
    """
    normal = NormalDist()
    given = own.edges or [normal.inv_cdf((place + 0.5) / (bins + 1)) for place in range(bins + 1)]
    edges = torch.tensor(given, dtype=torch.float32).unique()  # sorted
    if len(edges) > bins + 1:
        raise ConfigError(
            f"input {own.name!r}: expected at most {bins} bins, found {len(edges) - 1}; set num_bins of "
            "model.client.network to data.num_bins"
        )
    if len(edges) == 1:  # the same number in all training rows
        edges = torch.cat([edges, edges + 1])
    width, number = edges.diff(), len(edges) - 1
    slope, shift, low, high = (torch.zeros(bins) for _ in range(4))
    slope[:number], shift[:number] = 1 / width, -edges[:-1] / width
    low[0], high[:number] = -FURTHEST, 1
    high[number - 1] = 1 + FURTHEST
    return slope, shift, low, high


class Values(nn.Module):
    """An embedding of each value of each column of categories; one more of each column for what is missing or unseen.

    Shape:
        - input: (rows, columns) of codes, −1 where missing, float32
        - output: (rows, columns, width), float32

    Args:
        inputs: the columns.
        width: of an embedding; alike for all columns, so that columns of which clients have other values fit.

    Example:
        >>> Values([Input("soil", "soil", ("clay", "sand"))], width=4).axes
        {'weight': (0, ('soil=', 'soil=clay', 'soil=sand'))}
    """

    first: Tensor
    last: Tensor

    def __init__(self, inputs: Sequence[Input], width: int) -> None:
        super().__init__()
        sizes = torch.tensor([1 + len(own.values) for own in inputs])
        self.register_buffer("first", sizes.cumsum(0) - sizes + 1, persistent=False)  # where a column's code 0 is
        self.register_buffer("last", sizes - 2, persistent=False)  # its last code
        self.weight = nn.Parameter(torch.empty(int(sizes.sum()), width))
        name_axes(self, {"weight": (0, [f"{own.name}={value}" for own in inputs for value in ("", *own.values)])})
        self.reset_parameters()

    def draw(self, tensor: str, part: Tensor) -> None:
        """N(0, 0.3²)."""
        part.normal_(std=0.3)

    def reset_parameters(self) -> None:
        """See :meth:`draw`."""
        nn.init.normal_(self.weight, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Look each code up."""
        codes = x.long()
        return nn.functional.embedding(self.first + torch.where(codes > self.last, -1, codes), self.weight)


class Columns(nn.Module):
    """From columns to what enters the core: embeddings, and the first layer of the ensemble, whose weights belong to
    columns.

    Shape:
        - input: (rows, features), float32
        - output: (rows, members, width), float32

    Args:
        inputs: the columns.
        members: networks in the ensemble.
        width: of the output.
        embedding: numbers that a column becomes.
        bins: of a column of numbers, at most.
        dropout: probability with which an output is set to zero in training.
    """

    def __init__(
        self, inputs: Sequence[Input], members: int, width: int, embedding: int, bins: int, dropout: float
    ) -> None:
        super().__init__()
        self._numbers = tuple(place for place, own in enumerate(inputs) if not own.values)
        self._categories = tuple(place for place, own in enumerate(inputs) if own.values)
        numbers, categories = [inputs[place] for place in self._numbers], [inputs[place] for place in self._categories]
        self.numbers = PiecewiseLinear(numbers, bins, embedding) if numbers else None
        self.categories = Values(categories, embedding) if categories else None
        # a column that is numbers at one client and categories at another is not one that both have
        names = [*(own.name for own in numbers), *(f"{own.name}=" for own in categories)]
        self.first = ColumnLayer(names, members, embedding, width)
        self.dropout = ByteDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Embed the columns, and mix them."""
        parts = []
        if self.numbers is not None:
            parts.append(self.numbers(_chosen(x, self._numbers)))
        if self.categories is not None:
            parts.append(self.categories(_chosen(x, self._categories)))
        out: Tensor = self.dropout(self.first(torch.cat(parts, 1) if len(parts) > 1 else parts[0]).relu())
        return out


def _chosen(x: Tensor, places: Sequence[int]) -> Tensor:
    """The columns of (rows, features) at these places."""
    first, behind = places[0], places[-1] + 1
    if behind - first == len(places):
        return x if len(places) == x.shape[1] else x[:, first:behind]
    return x[:, list(places)]


class ColumnLayer(nn.Module):
    """The first layer: what a :class:`Layer` is, with weights by column.

    What enters is multiplied by √(outputs / inputs), and weights are drawn as if there were as many inputs as outputs:
    so a column's weights start alike at all clients that have it, however many others they have, and outputs are as
    large as the layer of the paper makes them.

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
        """One column's: weights from U(±1/√outputs), input scales of −1 or 1."""
        if tensor == "weight":
            part.uniform_(-(part.shape[-1] ** -0.5), part.shape[-1] ** -0.5)
        else:
            part.bernoulli_(0.5).mul_(2).sub_(1)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """See :meth:`draw`; members start with one bias."""
        self.draw("weight", self.weight)
        self.draw("input_scale", self.input_scale)
        self.scale.fill_(1)
        _one_bias(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(x · input scale) W · scale + bias, each member's own but for W."""
        members = len(self.scale)
        h = ((x * self.gain).unsqueeze(1) * self.input_scale).flatten(2).flatten(0, 1) @ self.weight.flatten(0, 1)
        return torch.addcmul(self.bias, h.unflatten(0, (-1, members)), self.scale)


class Layer(nn.Module):
    """A linear layer of an ensemble, whose members share the weights and have scales and biases of their own
    (Gorishniy, Kotelnikov and Babenko 2025, Section 3.3; Wen, Tran and Ba 2020, Eq. 5), with ReLU and dropout.

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
        """Weights from U(±1/√width), scales of 1; members start with one bias."""
        nn.init.uniform_(self.weight, -(self.weight.shape[1] ** -0.5), self.weight.shape[1] ** -0.5)
        self.input_scale.fill_(1)
        self.scale.fill_(1)
        _one_bias(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of (x · input scale) Wᵀ · scale + bias, each member's own but for W."""
        h = nn.functional.linear(x * self.input_scale, self.weight)
        out: Tensor = self.dropout(torch.addcmul(self.bias, h, self.scale).relu())
        return out


def _one_bias(bias: Tensor) -> None:
    """From U(±1/√width), the same for all members (members, width)."""
    bias.copy_(torch.empty(bias.shape[1]).uniform_(-(bias.shape[1] ** -0.5), bias.shape[1] ** -0.5))


class Heads(nn.Module):
    """An output layer for each member.

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
        """One output's: weights from U(±1/√width), no bias."""
        bound = self.weight.shape[1] ** -0.5
        part.zero_() if tensor == "bias" else part.uniform_(-bound, bound)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """See :meth:`draw`."""
        self.draw("weight", self.weight)
        self.draw("bias", self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Each member's outputs."""
        return torch.baddbmm(self.bias.unsqueeze(1), x.transpose(0, 1), self.weight).transpose(0, 1)


class TabM(Network):
    """TabM with piecewise-linear embeddings (Gorishniy, Kotelnikov and Babenko 2025): k networks that share the weights
    of their layers. Numbers are embedded by bins, categories by value.

    The encoder has the embeddings and the first layer, the core all further ones, the head an output layer for each of
    the k. So the core has one shape whatever the columns are; and what belongs to a column, a value or a class has its
    name (``axes``). ``*.scale`` with ``encoder.first.bias`` and ``core.*.bias`` are what the k networks have of their
    own behind the weights; ``*.input_scale`` before them.

    Parameters other than weights have no weight decay.

    Args:
        num_features: columns of the client.
        num_outputs: outputs of the client.
        k: networks.
        width: of the layers.
        layers: of each network, the output layer apart; at least one.
        dropout: probability with which a hidden unit is set to zero in training.
        embedding: numbers that a column becomes.
        num_bins: of a column of numbers, at most: ``data.num_bins``, alike at all clients.

    Example:
        >>> TabM(13, 3)(torch.zeros(2, 13)).shape
        torch.Size([2, 8, 3])
    """

    no_decay = ("*.scale", "*.input_scale", "*.bias", "*.offset", "encoder.categories")

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
        inputs = [Input(str(place), str(place)) for place in range(num_features)]
        super().__init__(
            encoder=Columns(inputs, *self._encoding),
            core=nn.Sequential(*(Layer(k, width, dropout) for _ in range(layers - 1))),
            head=Heads(k, width, [str(place) for place in range(num_outputs)]),
        )

    def meet(self, inputs: Sequence[Input], labels: Sequence[str]) -> None:
        """Embed each column as what it is: numbers by their bins, categories by their values."""
        members, width, *_ = self._encoding
        self.encoder = Columns(inputs, *self._encoding)
        self.head = Heads(members, width, labels)
