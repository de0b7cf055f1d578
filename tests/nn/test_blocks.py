"""Building blocks against formulas in plain torch."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fedlit.nn.blocks import (
    FC,
    FeatureEmbedding,
    FrozenBatchNorm,
    GatedFeedForward,
    Residual,
    SelfAttention,
    TransformerBlock,
    make_norm,
)


@pytest.fixture(autouse=True)
def fixed_generator() -> None:
    torch.manual_seed(0)


def selu(x: Tensor) -> Tensor:
    """Klambauer et al. 2017, Eq. 2, with the constants of its Eq. 14."""
    return 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (x.exp() - 1))


def normalised(x: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    """Batch normalisation over axis 1 by the batch's own moments (biased variance)."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
    shape = [1, -1] + [1] * (x.dim() - 2)
    return (x - mean) / (variance + norm.eps).sqrt() * norm.weight.view(shape) + norm.bias.view(shape)


def attention(x: Tensor, block: SelfAttention) -> Tensor:
    """The same attention by torch's own product."""
    rows, tokens, width = x.shape
    query, key, value = (
        part.view(rows, tokens, block.heads, width // block.heads).transpose(1, 2)
        for part in (x @ block.qkv.weight.T).split(width, dim=-1)
    )
    mixed = scaled_dot_product_attention(query, key, value)
    return mixed.transpose(1, 2).reshape(rows, tokens, width) @ block.out.weight.T


def feed_forward(x: Tensor, block: GatedFeedForward) -> Tensor:
    n = normalised(x, block.norm)
    hidden = selu(block.w1(n))
    return block.w2(hidden if block.w3 is None else hidden * (n @ block.w3.weight.T))


def randomised(module: nn.Module) -> nn.Module:
    """Scales and shifts of norms start at 1 and 0, which would hide a mistake."""
    for child in module.modules():
        if isinstance(child, nn.BatchNorm1d):
            nn.init.uniform_(child.weight, 0.5, 2)
            nn.init.normal_(child.bias)
    return module


# ------------------------------------------------------------------ attention


@pytest.mark.parametrize(
    ("rows", "tokens", "width", "heads"), [(7, 11, 16, 8), (3, 5, 12, 3), (4, 1, 8, 1), (1, 6, 4, 4)]
)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_attention_equals_scaled_dot_product_attention(
    rows: int, tokens: int, width: int, heads: int, dtype: torch.dtype, atol: float
) -> None:
    block = SelfAttention(width, heads).to(dtype)
    x = torch.randn(rows, tokens, width, dtype=dtype)
    direction = torch.randn(rows, tokens, width, dtype=dtype) / (rows * tokens)
    results = []
    for forward in (block, lambda x: attention(x, block)):
        leaf = x.clone().requires_grad_()
        output = forward(leaf)
        gradients = torch.autograd.grad((output * direction).sum(), [leaf, *block.parameters()])
        results.append([output, *gradients])
    for mine, expected in zip(*results, strict=True):
        assert mine.shape == expected.shape
        torch.testing.assert_close(mine, expected, rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=atol)


def test_attention_large_scores_do_not_overflow() -> None:
    block = SelfAttention(8, 2)
    x = 100 * torch.randn(3, 4, 8)
    torch.testing.assert_close(block(x), attention(x, block), rtol=1e-4, atol=1e-3)


def test_attention_has_no_biases() -> None:
    assert {name: tuple(p.shape) for name, p in SelfAttention(16, 8).named_parameters()} == {
        "qkv.weight": (48, 16),
        "out.weight": (16, 16),
    }


@pytest.mark.parametrize("build", [lambda: SelfAttention(16, 5), lambda: TransformerBlock(3, 16, 5)])
def test_heads_that_do_not_divide_the_width_are_refused(build: type) -> None:
    text = "expected a width that 5 heads divide, found 16; choose another width or number of heads"
    with pytest.raises(ValueError, match=re.escape(text)):
        build()


# ------------------------------------------------------------------ embedding


def test_embedding_equals_one_linear_per_feature() -> None:
    embedding = FeatureEmbedding(5, 16)
    linears = [nn.Linear(1, 16) for _ in range(5)]
    with torch.no_grad():
        for feature, linear in enumerate(linears):
            linear.weight.copy_(embedding.weight[feature].unsqueeze(1))
            linear.bias.copy_(embedding.bias[feature])
    x = torch.randn(9, 5)
    expected = torch.stack([linear(x[:, [feature]]) for feature, linear in enumerate(linears)], 1)
    torch.testing.assert_close(embedding(x), expected, rtol=0, atol=1e-6)


def test_embedding_starts_as_linears_of_one_input_do() -> None:
    """Both draw from U(−1, 1): same range, mean 0 and variance 1/3."""
    mine, theirs = FeatureEmbedding(4, 5000), nn.Linear(1, 20_000)
    for drawn in (mine.weight, mine.bias, theirs.weight, theirs.bias):
        assert 0.999 < drawn.abs().max() <= 1
        assert abs(drawn.mean()) < 0.02
        assert abs(drawn.var() - 1 / 3) < 0.02


# ------------------------------------------------------------------ feed-forward, FC, residual, transformer block


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [None, 5])
def test_feed_forward_equals_its_formula(gated: bool, bias: bool, tokens: int | None) -> None:
    block = randomised(GatedFeedForward(8, 3, channels=tokens, bias=bias, gated=gated))
    x = torch.randn(6, 8) if tokens is None else torch.randn(6, tokens, 8)
    torch.testing.assert_close(block(x), feed_forward(x, block), rtol=1e-5, atol=1e-6)
    expected = {"norm.weight", "norm.bias", "w1.weight", "w2.weight"}
    expected |= {"w1.bias", "w2.bias"} if bias else set()
    expected |= {"w3.weight"} if gated else set()
    assert {name for name, _ in block.named_parameters()} == expected


def test_gate_multiplies() -> None:
    """With a gate of zeros nothing but the second layer's bias is left."""
    block = GatedFeedForward(4, 3)
    nn.init.zeros_(block.w3.weight)
    torch.testing.assert_close(block(torch.randn(5, 4)), block.w2.bias.expand(5, 4))


def test_fc_equals_its_formula() -> None:
    block = randomised(FC(7, 3))
    x = 2 + 3 * torch.randn(6, 7)
    expected = selu(normalised(x, block.norm) @ block.linear.weight.T + block.linear.bias)
    torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-6)


def test_residual_adds_its_input() -> None:
    linear, x = nn.Linear(4, 4), torch.randn(3, 4)
    assert torch.equal(Residual(linear)(x), x + linear(x))


@pytest.mark.parametrize("gated", [True, False])
def test_transformer_block_equals_its_formula(gated: bool) -> None:
    block = randomised(TransformerBlock(5, 8, 4, gated=gated))
    x = 1 + 2 * torch.randn(6, 5, 8)
    between = x + attention(normalised(x, block.norm), block.attention)
    expected = between + selu(feed_forward(between, block.feed_forward))
    torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-5)
    assert block.feed_forward.w1.weight.shape == (4, 8)  # hidden e/2
    biases = {name for name, _ in block.named_parameters() if name.endswith("bias")}
    assert biases == {"norm.bias", "feed_forward.norm.bias"}


# ------------------------------------------------------------------ norms


def test_frozen_norm_keeps_its_statistics_in_training() -> None:
    frozen = randomised(FrozenBatchNorm(4))
    around = nn.Sequential(frozen).train()
    assert around.training
    assert not frozen.training
    for shape in ((10, 4), (10, 4, 3)):
        x = 5 + 2 * torch.randn(shape)
        scale = frozen.weight.view(-1, *[1] * (len(shape) - 2))
        shift = frozen.bias.view(-1, *[1] * (len(shape) - 2))
        torch.testing.assert_close(around(x), x / (1 + frozen.eps) ** 0.5 * scale + shift)
    assert torch.equal(frozen.running_mean, torch.zeros(4))
    assert torch.equal(frozen.running_var, torch.ones(4))
    assert frozen.num_batches_tracked == 0


def test_frozen_norm_takes_a_single_row() -> None:
    """In training mode an ordinary batch norm refuses it."""
    assert FrozenBatchNorm(4).train()(torch.ones(1, 4)).shape == (1, 4)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        make_norm(4).train()(torch.ones(1, 4))


def test_frozen_norm_trains_scale_and_shift() -> None:
    frozen = FrozenBatchNorm(4).train()
    frozen(torch.randn(10, 4)).square().sum().backward()
    assert (frozen.weight.grad != 0).all()
    assert (frozen.bias.grad != 0).all()


def test_batch_norm_follows_the_batch() -> None:
    norm, x = make_norm(3), 4 + torch.randn(50, 3)
    torch.testing.assert_close(norm.train()(x), normalised(x, norm))
    torch.testing.assert_close(norm.running_mean, 0.1 * x.mean(0))
    assert not isinstance(norm, FrozenBatchNorm)
    assert isinstance(make_norm(3, "frozen"), FrozenBatchNorm)
