"""A small convolutional network in three parts, for images whose pixels are columns."""

import math

from torch import Tensor, nn

from fedlit.nn.network import Network


class _Image(nn.Module):
    def __init__(self, side: int, white: float) -> None:
        super().__init__()
        self.side = side
        self.white = white

    def forward(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], 1, self.side, self.side) / self.white


class CNN(Network):
    """Two convolutions with ReLU and a dense layer. The encoder is the first convolution, the core
    is the second one, which halves the image's sides, and the head is the dense layer.

    Args:
        num_features: the number of pixels of a square image of one channel, row by row.
        num_outputs: the width of the output.
        channels: the numbers of channels of the two convolutions.
        kernel: the side of their windows, odd.
        white: the largest value of a pixel, by which pixels are divided (with ``data.scaling:
            none``).

    Raises:
        ValueError: the pixels do not form a square.

    Example:
        >>> import torch
        >>> CNN(64, 10, white=16)(torch.zeros(2, 64)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        channels: tuple[int, int] = (8, 16),
        kernel: int = 3,
        white: float = 1.0,
    ) -> None:
        side = math.isqrt(num_features)
        if side**2 != num_features:
            raise ValueError(
                f"expected the pixels of a square image, found {num_features} features"
            )
        half = -(-side // 2)
        super().__init__(
            encoder=nn.Sequential(
                _Image(side, white),
                nn.Conv2d(1, channels[0], kernel, padding=kernel // 2),
                nn.ReLU(),
            ),
            core=nn.Sequential(
                nn.Conv2d(channels[0], channels[1], kernel, stride=2, padding=kernel // 2),
                nn.ReLU(),
                nn.Flatten(),
            ),
            head=nn.Linear(channels[1] * half**2, num_outputs),
        )
