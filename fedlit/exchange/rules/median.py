"""Rules that treat each element by itself (Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-Robust Distributed
Learning: Towards Optimal Statistical Rates", arXiv:1803.01498).
"""

from collections.abc import Sequence

from torch import Tensor

from fedlit.exchange.rules.robust import Robust, middle


class Median(Robust):
    """Every client receives the elementwise median of what clients send: the middle value, or the mean of the two
    middle values.

    It tolerates f attackers among n clients if n > 2f.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.robust.Robust`).

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> sent = {name: Update({"w": torch.tensor([value])}) for name, value in zip("abc", (1.0, 2.0, 1e9))}
        >>> Median()(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([2.])}
    """

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the median."""
        return middle(sent)


class TrimmedMean(Robust):
    """Every client receives the elementwise mean of what clients send, without the f largest and the f smallest values.

    It tolerates f attackers among n clients if n > 2f.

    Args:
        attackers: f, as a number or as a share of the clients.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> values = dict(zip("abcd", (1.0, 2.0, 4.0, 1e9)))
        >>> sent = {name: Update({"w": torch.tensor([value])}, parameters=("w",)) for name, value in values.items()}
        >>> TrimmedMean(attackers=1)(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([3.])}
    """

    by_setting = True

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the trimmed mean."""
        trimmed = self.bears(len(sent))
        return sent.sort(0).values[trimmed : len(sent) - trimmed].mean(0)
