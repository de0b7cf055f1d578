"""Clients that differ in how frequent labels are."""

from __future__ import annotations

import numpy as np

from fedlit.data.shaping.deal import Deal, Hand, Whole, at_least_one, check_enough, client_names, hands, places_by_label
from fedlit.errors import ConfigError, DataError
from fedlit.seeding import derive_seed

__all__ = ["Dirichlet"]

_DRAWS = 1000


class Dirichlet(Deal):
    """Clients that differ in how frequent labels are: each class is dealt in proportions drawn from a symmetric
    Dirichlet distribution, the same ones in every split (Hsu et al. 2019, arXiv:1909.06335).

    NOTE[DIFF]: there a client draws its classes' proportions; here, as in most code since (Yurochkin et al. 2019,
    arXiv:1905.12022), a class draws its clients', so that all rows are dealt.

    Args:
        alpha: α, the distribution's parameter, above 0: each client has few classes where it is small; all are alike
            where it is large.
        least: training rows that each client has at least (and one of every other split): proportions are drawn anew
            until it has.
    """

    def __init__(self, alpha: float = 0.5, least: int = 20) -> None:
        if not (np.isfinite(alpha) and alpha > 0):
            raise ConfigError(f"partition: deal: alpha: expected a number above 0, found {alpha}")
        self.alpha, self.least = alpha, at_least_one(least)

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = client_names(clients)
        check_enough(whole, len(names), self.least)
        labels, places = places_by_label(whole, seed)
        draws = [np.random.default_rng(derive_seed(seed, "dirichlet", str(label))) for label in labels]
        for _ in range(_DRAWS):
            proportions = np.stack([rng.dirichlet(np.full(len(names), self.alpha)) for rng in draws])
            bounds = proportions.cumsum(axis=1)[:, :-1]
            owner = {
                split: (position[:, None] >= bounds[label]).sum(axis=1) for split, (label, position) in places.items()
            }
            if all(
                np.bincount(owner[split], minlength=len(names)).min() >= (self.least if split == "train" else 1)
                for split in owner
            ):
                return hands(whole, names, owner)
        raise DataError(
            f"partition: deal: expected proportions that leave each of {len(names)} clients {self.least} training rows "
            f"and one of every other split, found none in {_DRAWS} draws; take a larger alpha than {self.alpha:g}, "
            "fewer clients, or fewer least rows"
        )
