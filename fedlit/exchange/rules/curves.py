"""Curves with one bend between networks, along which two networks are compared (Lucchetti,
Decouchant, Fernandes, Chen and Völp 2022, arXiv:2204.11017).
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from fedlit.exchange.function import FederatedFunction
from fedlit.sharing import State


def bent(first: Tensor, bend: Tensor, last: Tensor, u: float) -> Tensor:
    """Return a point of a polygonal chain with one bend: ``first`` at u = 0, ``bend`` at 1/2,
    ``last`` at 1 (Eq. 3).

    Example:
        >>> [float(bent(torch.tensor(0.0), torch.tensor(4.0), torch.tensor(2.0), u)) for u in (0, 0.25, 0.5, 1)]
        [0.0, 2.0, 4.0, 2.0]
    """
    if u < 0.5:
        return 2 * (u * bend + (0.5 - u) * first)
    return 2 * ((u - 0.5) * last + (1 - u) * bend)


def mean_of_curve(first: Tensor, bend: Tensor, last: Tensor) -> Tensor:
    """Return E_u of :func:`bent` for u uniform in [0, 1], the summand of Eq. 6: (first + 2 bend +
    last) / 4.
    """
    return (first + 2 * bend + last) / 4


class Curves:
    """Curves with one bend between pairs of functions, computed all at once.

    Args:
        part: the function.
        first: the parameters of each pair at u = 0, by name: (pairs, …).
        last: the parameters of each pair at u = 1.
        x: the inputs, the same for all pairs, (samples, *shape).
        probabilities: whether the function's outputs are logits whose probabilities are compared.

    Attributes:
        bend: the parameters at u = 1/2, which start halfway.
    """

    def __init__(
        self,
        part: FederatedFunction,
        first: State,
        last: State,
        x: Tensor,
        probabilities: bool = False,
    ) -> None:
        self.part = part
        self.first = dict(first)
        self.last = dict(last)
        self.probabilities = probabilities
        self.x = x.expand(len(next(iter(first.values()))), *x.shape)
        # NOTE[DIFF]: Algorithm 1 starts at the sum of the two, which lies outside of them
        self.bend = {name: (first[name] + last[name]) / 2 for name in part.parameters}
        with torch.no_grad():
            self.target = self.outputs(self.last)

    def at(self, u: float, bend: State) -> dict[str, Tensor]:
        """Return the points of the curves at ``u``."""
        return {
            name: bent(self.first[name], bend_of_one, self.last[name], u)
            for name, bend_of_one in bend.items()
        }

    def outputs(self, parameters: State) -> Tensor:
        """Return the outputs of each pair's function for its inputs, (pairs, samples, …)."""
        raw = self.part.stacked(parameters, self.x)
        if self.probabilities:
            return self.part.bounded(raw)
        return raw

    def losses(self, parameters: State) -> Tensor:
        """Return L = E‖f(x, w_l) − f(x, w)‖² of each pair over its inputs, (pairs,) (Eq. 5)."""
        return (self.outputs(parameters) - self.target).square().flatten(2).sum(2).mean(1)

    def train(self, u: Iterable[float], lr: float, grid: int) -> tuple[Tensor, Tensor]:
        """Take gradient steps of the bends on L(u), one at each ``u`` in turn. If the mean of L
        along a curve becomes larger than along the straight line, or is not finite, the bend stays
        halfway (NOTE[DIFF]: the paper has no such precaution).

        Args:
            u: the points of the curves at which the steps are taken.
            lr: the learning rate.
            grid: the number of points at which L is computed.

        Returns:
            L along the straight lines and along the curves, (grid, pairs) each.
        """
        straight = self.bend
        for point in u:
            bend = {name: value.detach().requires_grad_() for name, value in self.bend.items()}
            with torch.enable_grad():
                loss = self.losses(self.at(point, bend)).sum()
                gradients = torch.autograd.grad(
                    loss, list(bend.values()), materialize_grads=True, allow_unused=True
                )
            self.bend = {
                name: value.detach() - lr * gradient
                for (name, value), gradient in zip(bend.items(), gradients, strict=True)
            }
        on_line = self.along(grid, straight)
        on_curve = self.along(grid, self.bend)
        # A mean that is not a number makes this false.
        better = on_curve.mean(0) <= on_line.mean(0)
        self.bend = {
            name: torch.where(better.view(-1, *[1] * (value.dim() - 1)), value, straight[name])
            for name, value in self.bend.items()
        }
        return on_line, torch.where(better, on_curve, on_line)

    @torch.no_grad()
    def along(self, grid: int, bend: State) -> Tensor:
        """Return L at the midpoints of ``grid`` equal intervals of [0, 1], (grid, pairs)."""
        return torch.stack(
            [self.losses(self.at((step + 0.5) / grid, bend)) for step in range(grid)]
        )

    def slopes(self, grid: int) -> Tensor:
        """Return ∂L/∂u of each pair at the midpoints of ``grid`` equal intervals of [0, 1], (grid,
        pairs). If ``grid`` is even, none of these points is the bend, where the derivative does not
        exist.
        """
        slopes = []
        for step in range(grid):
            u = (step + 0.5) / grid
            with torch.enable_grad():
                parameters = {
                    name: value.requires_grad_() for name, value in self.at(u, self.bend).items()
                }
                gradients = torch.autograd.grad(
                    self.losses(parameters).sum(),
                    list(parameters.values()),
                    materialize_grads=True,
                    allow_unused=True,
                )
            # ∂L/∂u is the gradient at the point times the curve's direction there.
            terms = []
            for name, gradient in zip(parameters, gradients, strict=True):
                terms.append((gradient * self._half_direction(name, u)).flatten(1).sum(1))
            slopes.append(2 * torch.stack(terms).sum(0))
        return torch.stack(slopes)

    def _half_direction(self, name: str, u: float) -> Tensor:
        """Return half of the curves' direction at ``u``, which is constant before the bend and
        behind it.
        """
        if u < 0.5:
            return self.bend[name] - self.first[name]
        return self.last[name] - self.bend[name]
