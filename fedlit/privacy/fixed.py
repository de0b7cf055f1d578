"""Numbers as whole numbers modulo 2⁶⁴, so that masks cancel to the last bit."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Words", "decoded", "encoded", "largest", "tolerance"]

Words = NDArray[np.uint64]
"""Whole numbers modulo 2⁶⁴."""


def largest(bits: int, sites: int) -> float:
    """Return the largest magnitude of a number (times its weight) that may be summed over a number of sites.

    Example:
        >>> int(largest(bits=32, sites=3))
        357913941
    """
    return float(2**62 // sites) / 2.0**bits


def tolerance(bits: int, sites: int, weight: float = 0.0, magnitude: float = 0.0) -> float:
    """Return how far a mean of encoded numbers may be from the exact one, before it is rounded to the tensors' type.

    Each term is rounded to a multiple of 2⁻ᵇⁱᵗˢ, which is at most half a multiple per site. Terms with more than 53
    digits lose the rest, as in float64.

    Args:
        bits: the number of binary digits behind the point.
        sites: the number of sites that are summed.
        weight: the weight of all sites together; if 0, their number, as in a mean of equals.
        magnitude: the magnitude of the largest term, value times weight.

    Example:
        >>> tolerance(bits=32, sites=3) == 0.5 * 2**-32
        True
    """
    return sites * (0.5 * 2.0**-bits + magnitude * 2.0**-52) / (weight or sites)


def encoded(tensor: Tensor, bits: int, sites: int, weight: int = 1) -> Words:
    """Return a tensor's values times a weight, in units of 2⁻ᵇⁱᵗˢ, rounded to the nearest whole number. Whole numbers
    are returned as they are.

    Args:
        tensor: a tensor of any real type.
        bits: the number of binary digits behind the point; it does not matter for whole numbers.
        sites: the number of sites over which it will be summed.
        weight: the weight of all values; whole numbers have none.

    Returns:
        (number of values,)

    Raises:
        ValueError: a value is not finite, or too large for a sum over so many sites.

    Example:
        >>> encoded(torch.tensor([0.5, -1.0]), bits=8, sites=3).view(np.int64).tolist()
        [128, -256]
    """
    most = 2**62 // sites
    values = tensor.detach().cpu().reshape(-1)
    if not tensor.is_floating_point():
        whole = values.to(torch.int64).numpy()
        if whole.size and (int(whole.max()) > most or int(whole.min()) < -most):
            raise ValueError(f"a whole number beyond ±{most}")
        return whole.astype(np.uint64, copy=False) if whole.dtype == np.uint64 else whole.view(np.uint64).copy()
    scaled = values.double().numpy() * (float(weight) * 2.0**bits)
    if not np.isfinite(scaled).all():
        raise ValueError("a value that is not finite")
    if scaled.size and float(np.abs(scaled).max()) > most:
        raise ValueError(
            f"a value of {np.abs(scaled).max() / 2.0**bits:.4g} (with its weight), where {largest(bits, sites):.4g} is "
            f"the most that {bits} bits leave for a sum over {sites} sites"
        )
    return np.rint(scaled).astype(np.int64).view(np.uint64)


def decoded(words: Words, bits: int, dtype: torch.dtype) -> Tensor:
    """Return the inverse of :func:`encoded` for a sum: float64 (not yet rounded to the tensors' type), or int64.

    Example:
        >>> decoded(encoded(torch.tensor([0.5, -1.0]), 8, 3), 8, torch.float32)
        tensor([ 0.5000, -1.0000], dtype=torch.float64)
    """
    whole = torch.from_numpy(words.view(np.int64).copy())
    return whole.double() / 2.0**bits if dtype.is_floating_point else whole
