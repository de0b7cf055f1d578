"""Alike clients."""

from __future__ import annotations

import numpy as np

from fedlit.data.shaping.deal import Deal, Hand, Whole, client_names

__all__ = ["Iid"]


class Iid(Deal):
    """Alike clients: the rows of each split, dealt at random and as evenly as can be."""

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = client_names(clients)
        dealt = {split: np.array_split(rows, len(names)) for split, rows in whole.splits.items()}
        return {name: {split: parts[place] for split, parts in dealt.items()} for place, name in enumerate(names)}
