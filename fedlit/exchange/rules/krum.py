"""Krum and multi-Krum (Blanchard, El Mhamdi, Guerraoui and Stainer 2017, "Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent", NeurIPS 30).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlit.exchange.rule import demand
from fedlit.exchange.rules.robust import Robust


class Krum(Robust):
    """Every client receives what one client sent: the one with the smallest sum of squared distances to its n − f − 2
    nearest neighbours.

    It tolerates f attackers among n clients if n ≥ 2f + 3. It discards what all other clients learnt, so it suits only
    clients with similar data.

    Args:
        attackers: f, as a number or as a share of the clients.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> values = dict(zip("abcde", (1.0, 2.0, 3.1, 4.5, 1e9)))
        >>> sent = {name: Update({"w": torch.tensor([value])}, parameters=("w",)) for name, value in values.items()}
        >>> Krum(attackers=1)(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([2.])}
    """

    by_setting = True

    @staticmethod
    def fewest(attackers: int) -> int:
        """Return 2f + 3."""
        return 2 * attackers + 3

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the vector with the best score."""
        return sent[self._order(sent)[:1]].squeeze(0)

    def _order(self, sent: Tensor) -> Tensor:
        """Return the positions of clients, ordered from the best score to the worst."""
        near = max(1, len(sent) - self.bears(len(sent)) - 2)
        # not by products of matrices: beside a huge vector, these cannot tell the others apart
        apart = torch.cdist(sent, sent, compute_mode="donot_use_mm_for_euclid_dist").square()
        scores = apart.sort(1).values[:, 1 : near + 1].sum(1)  # the first is its distance from itself
        return torch.nan_to_num(scores, nan=torch.inf).sort(stable=True).indices


class MultiKrum(Krum):
    """Every client receives the mean of the clients with the best scores by :class:`Krum`.

    Args:
        attackers: f, as a number or as a share of the clients.
        keep: the number of clients in the mean; n − f if None.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> values = dict(zip("abcde", (1.0, 2.0, 3.0, 4.0, 1e9)))
        >>> sent = {name: Update({"w": torch.tensor([value])}, parameters=("w",)) for name, value in values.items()}
        >>> MultiKrum(attackers=1)(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([2.5000])}
    """

    def __init__(self, attackers: int | float = 1, keep: int | None = None) -> None:
        super().__init__(attackers)
        demand(keep is None or keep >= 1, "MultiKrum: keep", "at least 1 client", keep, "leave it out for n − f")
        self.keep = keep

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the mean of the vectors with the best scores; of at most n − f, whatever ``keep`` is."""
        most = len(sent) - self.bears(len(sent))
        kept = self._order(sent)[: min(most, self.keep or most)]
        return sent[kept.sort().values].mean(0)
