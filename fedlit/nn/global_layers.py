"""The network of Global Layers: a feature-token transformer, then five wide layers of which the middle three are
shared.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from fedlit.nn.blocks import FC, FeatureEmbedding, GatedFeedForward, NormMode, Residual, TransformerBlock, make_norm
from fedlit.nn.network import Network

__all__ = ["GlobalLayers"]


class Encoder(nn.Module):
    """From a client's columns to the shared width: tokens, transformer blocks, and the first of the five layers."""

    def __init__(
        self,
        num_features: int,
        outputs: int,
        width: int,
        blocks: int,
        heads: int,
        input_norm: bool,
        gated: bool,
        norm: NormMode,
    ) -> None:
        super().__init__()
        self.norm = make_norm(num_features, norm) if input_norm else nn.Identity()
        self.embedding = FeatureEmbedding(num_features, width)
        self.token_norm = make_norm(num_features, norm)
        self.blocks = nn.Sequential(
            *(TransformerBlock(num_features, width, heads, gated=gated, norm=norm) for _ in range(blocks))
        )
        self.fc = FC(num_features * width, outputs, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, num_features) → (rows, outputs)."""
        tokens = self.blocks(self.token_norm(self.embedding(self.norm(x))))
        out: Tensor = self.fc(tokens.flatten(1))
        return out


class GlobalLayers(Network):
    """The network of Global Layers in its Covertype form (the defaults) or its Heart form (``global_features=8,
    input_norm=False, gated=False``).

    With z = ``global_features * width``: the encoder ends in FC(features · width → 4z); the core is gated(4z, hidden
    z), FC(4z → 2z), gated(2z, hidden z/2), which are the *global layers*; the head is FC(2z → z), a normalisation
    and Linear(z → outputs).

    Args:
        num_features: columns of the client.
        num_outputs: logits of the client.
        global_features: d_global: sets the width of the shared layers, equal on all clients.
        width: e, the width of a feature's token.
        blocks: transformer blocks.
        heads: attention heads.
        input_norm: whether raw inputs are batch-normalised first.
        gated: whether feed-forwards have the gate w3.
        norm: ``batch``, or ``frozen`` as in the published runs, which trained in evaluation mode.

    Example:
        >>> comanche = GlobalLayers(11, 6)
        >>> sum(p.numel() for p in comanche.parameters()), sum(p.numel() for p in comanche.core.parameters())
        (915954, 717640)
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        global_features: int = 11,
        width: int = 16,
        blocks: int = 6,
        heads: int = 8,
        input_norm: bool = True,
        gated: bool = True,
        norm: NormMode = "batch",
    ) -> None:
        z = global_features * width
        super().__init__(
            encoder=Encoder(num_features, 4 * z, width, blocks, heads, input_norm, gated, norm),
            core=nn.Sequential(
                OrderedDict(
                    wide=Residual(GatedFeedForward(4 * z, z, gated=gated, norm=norm)),
                    fc=FC(4 * z, 2 * z, norm),
                    narrow=Residual(GatedFeedForward(2 * z, z // 2, gated=gated, norm=norm)),
                )
            ),
            head=nn.Sequential(
                OrderedDict(fc=FC(2 * z, z, norm), norm=make_norm(z, norm), linear=nn.Linear(z, num_outputs))
            ),
        )
