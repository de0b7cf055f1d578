"""Building blocks against formulas in plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fedlit.nn.blocks import (
    FeatureEmbedding,
    FrozenBatchNorm,
    SelfAttention,
    make_norm,
)


@pytest.fixture(autouse=True)
def fixed_generator() -> None:
    torch.manual_seed(0)


def attention(x: Tensor, block: SelfAttention) -> Tensor:
    """The same attention by torch's own product."""
    rows, tokens, width = x.shape
    query, key, value = (
        part.view(rows, tokens, block.heads, width // block.heads).transpose(1, 2)
        for part in (x @ block.qkv.weight.T).split(width, dim=-1)
    )
    mixed = scaled_dot_product_attention(query, key, value)
    return mixed.transpose(1, 2).reshape(rows, tokens, width) @ block.out.weight.T


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


# ------------------------------------------------------------------ embedding


def test_embedding_starts_as_linears_of_one_input_do() -> None:
    """Both draw from U(−1, 1): same range, mean 0 and variance 1/3."""
    mine, theirs = FeatureEmbedding(4, 5000), nn.Linear(1, 20_000)
    for drawn in (mine.weight, mine.bias, theirs.weight, theirs.bias):
        assert 0.999 < drawn.abs().max() <= 1
        assert abs(drawn.mean()) < 0.02
        assert abs(drawn.var() - 1 / 3) < 0.02


# ------------------------------------------------------------------ feed-forward, FC, residual, transformer block


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
