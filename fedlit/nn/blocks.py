"""Building blocks of the networks. Token tensors are (rows, tokens, width), float32."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

NormMode = Literal["batch", "frozen"]


class FrozenBatchNorm(nn.BatchNorm1d):
    """Batch normalisation in evaluation mode for good: statistics stay 0 and 1; only scale and
    shift are trained.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        # A fit starts in the present mode, because nothing calls train() before the first step.
        self.train(False)

    def train(self, mode: bool = True) -> FrozenBatchNorm:
        """Stay in evaluation mode, whatever ``mode`` is."""
        super().train(False)
        return self


def make_norm(size: int, mode: NormMode = "batch") -> nn.BatchNorm1d:
    """Return a normalisation over ``size`` channels (axis 1).

    Args:
        size: the number of channels.
        mode: ``"batch"``, or ``"frozen"`` as in the published Global Layers runs, which trained in
            evaluation mode.
    """
    return FrozenBatchNorm(size) if mode == "frozen" else nn.BatchNorm1d(size)


class Affine(nn.Module):
    """``w ⊙ (x + b)``: a scale and a shift for each column (Roschewitz et al. 2021, Section 2.1).

    Shape:
        - input and output: (rows, size), float32

    Args:
        size: columns.
        weight: whether there is a scale for each.
        bias: whether there is a shift for each.

    Example:
        >>> x = torch.randn(4, 3)
        >>> torch.equal(Affine(3)(x), x)
        True
    """

    def __init__(self, size: int, weight: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size)) if weight else None
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Shift, then scale."""
        if self.bias is not None:
            x = x + self.bias
        if self.weight is not None:
            x = x * self.weight
        return x


class FeatureEmbedding(nn.Module):
    """One Linear(1, width) per feature, stacked, so that every number becomes a token.

    Shape:
        - input: (rows, features), float32
        - output: (rows, features, width), float32

    Example:
        >>> FeatureEmbedding(11, 16)(torch.zeros(2, 11)).shape
        torch.Size([2, 11, 16])
    """

    def __init__(self, num_features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_features, width))
        self.bias = nn.Parameter(torch.empty(num_features, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw both from U(-1, 1), as ``nn.Linear(1, width)`` does."""
        nn.init.uniform_(self.weight, -1, 1)
        nn.init.uniform_(self.bias, -1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Embed each column separately."""
        return torch.addcmul(self.bias, x.unsqueeze(-1), self.weight)


class SelfAttention(nn.Module):
    """Multi-head self-attention over tokens, without biases (Vaswani et al. 2017, Eq. 1).

    Written with plain products and the rows innermost, (heads, tokens, tokens, rows): heads of
    Global Layers are two numbers wide, so a layout that ends in the head's width cannot be
    vectorised. Measured beside ``scaled_dot_product_attention`` in ``benchmarks/``.

    Shape:
        - input and output: (rows, tokens, width), float32

    Example:
        >>> SelfAttention(16, heads=8)(torch.zeros(2, 11, 16)).shape
        torch.Size([2, 11, 16])
    """

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(
                f"expected a width that {heads} heads divide, found {width}; choose another width "
                "or number of heads"
            )
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of each row."""
        rows, tokens, width = x.shape
        size = width // self.heads
        qkv = self.qkv.weight @ x.reshape(rows * tokens, width).t()
        qkv = qkv.view(3, self.heads, size, rows, tokens).transpose(-1, -2).contiguous()
        query, key, value = qkv
        scores = (query.unsqueeze(3) * key.unsqueeze(2)).sum(1) * size**-0.5
        attended = (scores.softmax(2).unsqueeze(1) * value.unsqueeze(2)).sum(3)
        mixed = self.out.weight @ attended.reshape(width, tokens * rows)
        out: Tensor = mixed.view(width, tokens, rows).permute(2, 1, 0)
        return out


class GatedFeedForward(nn.Module):
    """``w2(SELU(w1 n) · w3 n)`` with n the normalised input, or ``w2(SELU(w1 n))`` if it is not
    gated.

    Shape:
        - input and output: (rows, size), or (rows, tokens, size) with normalisation over the
          tokens; float32

    Args:
        size: the width of input and output.
        hidden: the width in between.
        channels: the number of channels of the normalisation: the number of tokens, or ``size`` for
            a plain vector (None).
        bias: whether w1 and w2 have a bias; w3 never has one.
        gated: whether there is a w3.
        norm: see :func:`make_norm`.
        dropout: the probability with which an input of w1 is set to zero in training.
    """

    def __init__(
        self,
        size: int,
        hidden: int,
        *,
        channels: int | None = None,
        bias: bool = True,
        gated: bool = True,
        norm: NormMode = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = make_norm(size if channels is None else channels, norm)
        self.w1 = nn.Linear(size, hidden, bias=bias)
        self.w2 = nn.Linear(hidden, size, bias=bias)
        self.w3 = nn.Linear(size, hidden, bias=False) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the output without the residual, which the caller adds."""
        n = self.norm(x)
        hidden = nn.functional.selu(self.w1(nn.functional.dropout(n, self.dropout, self.training)))
        if self.w3 is not None:
            hidden = hidden * self.w3(n)
        out: Tensor = self.w2(hidden)
        return out


class Residual(nn.Module):
    """``x + f(x)``."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the output of the inner module."""
        out: Tensor = x + self.inner(x)
        return out


class FC(nn.Sequential):
    """``Dropout(SELU(Linear(BatchNorm(x))))``, with bias.

    Shape:
        - input: (rows, inputs), output: (rows, outputs), float32
    """

    def __init__(
        self, inputs: int, outputs: int, norm: NormMode = "batch", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = make_norm(inputs, norm)
        self.linear = nn.Linear(inputs, outputs)
        self.activation = nn.SELU()
        if dropout:
            self.dropout = nn.Dropout(dropout)


class TransformerBlock(nn.Module):
    """``x + attention(norm(x))``, then ``x + SELU(feed-forward(x))``; normalisation over tokens, no
    biases.

    Shape:
        - input and output: (rows, tokens, width), float32
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        heads: int = 8,
        *,
        gated: bool = True,
        norm: NormMode = "batch",
    ) -> None:
        super().__init__()
        self.norm = make_norm(tokens, norm)
        self.attention = SelfAttention(width, heads)
        self.feed_forward = GatedFeedForward(
            width, width // 2, channels=tokens, bias=False, gated=gated, norm=norm
        )

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then feed-forward, each with its residual."""
        x = x + self.attention(self.norm(x))
        return x + nn.functional.selu(self.feed_forward(x))
