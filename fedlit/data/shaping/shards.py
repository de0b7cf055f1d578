"""Clients that have few classes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fedlit.data.shaping.deal import Deal, Hand, Whole, check_enough, client_names, hands, places_by_label
from fedlit.errors import ConfigError
from fedlit.seeding import derive_seed

__all__ = ["Shards"]


class Shards(Deal):
    """Clients that have few classes: training rows are sorted by label and cut into shards of one size, of which each
    client gets some at random (McMahan et al. 2017, arXiv:1602.05629); the rows of other splits go where the like
    training rows go.

    Args:
        each: shards per client, at least 1.
    """

    def __init__(self, each: int = 2) -> None:
        if each < 1:
            raise ConfigError(f"partition: deal: each: expected at least 1 shard per client, found {each}")
        self.each = each

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = client_names(clients)
        check_enough(whole, len(names), self.each)
        places = {split: label + position for split, (label, position) in places_by_label(whole, seed)[1].items()}
        shards = np.array_split(np.sort(places["train"]), len(names) * self.each)
        # halfway between the last row of a shard and the first of the next
        bounds = [(before[-1] + after[0]) / 2 for before, after in pairwise(shards)]
        rng = np.random.default_rng(derive_seed(seed, "shards"))
        shard_owner = rng.permutation(np.repeat(np.arange(len(names)), self.each))
        owner = {split: shard_owner[np.searchsorted(bounds, place)] for split, place in places.items()}
        return hands(whole, names, owner)
