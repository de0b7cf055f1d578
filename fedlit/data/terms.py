"""The settings that determine what clients have to agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedlit.data.columns import Categories, Scaling
from fedlit.data.common import Common, check_common, is_listed
from fedlit.errors import expect

Align = Literal["none", "features", "classes", "both"]
Missing = Literal["mean", "indicator"]
Bins = Literal["own", "agreed", "none"]


@dataclass(frozen=True)
class Terms:
    """The settings that determine what clients have to agree on.

    Attributes:
        align: whether clients get a common input space (``features``: the union of columns by name,
            0 where a client has no such column, category codes from the union), a common label
            encoder (``classes``), ``both`` or ``none``.
        scaling: whether numbers are standardised by each client's own training rows (``client``),
            by the count, mean and variance of all clients that have the column (``pooled``), or are
            not changed (``none``; missing ones become the client's mean).
        categories: whether a column of categories becomes one of ``codes``, or ``indicators``: a
            column of 0 and 1 for each category (``name=category``), or a single one for two
            categories; missing cells are 0.5. ``auto``: an indicator for each of up to 32
            categories, with one for all rare ones; for more categories, an indicator for each of
            the 31 most frequent, and 32 inputs for the others by a hash of their names. Missing
            cells have an input of their own if training rows have any.
        missing: whether a missing number becomes the mean (``mean``), or the mean with an indicator
            beside it (``indicator``).
        pool: whether all rows go into one client, which can have one task only.
        bins: the bins of numbers, for networks that use bins: quantiles of the client's own
            training rows (``own``), quantiles over all clients that have the column, from a sketch
            that each client sends (``agreed``), or no bins (``none``).
        num_bins: the largest number of bins of a column.
        facts_from: the least number of training rows that stand behind each value that a client
            sends. A category of fewer rows is named neither in facts nor among inputs: its rows are
            encoded as those of an unseen category (``auto``: as the others), unless other clients
            send it. Categories that a source declares reveal nothing about rows. Nothing is sent
            about numbers in fewer rows; a sketch consists of means of groups of at least so many
            rows.
        common: which columns clients have in common (see :func:`fedlit.data.common.find_groups`).
            All clients encode these in the same way, and ``scaling: pooled`` then pools only these,
            unless ``align`` makes all columns common.

    Raises:
        ConfigError: ``common`` has no known value.
    """

    align: Align = "none"
    scaling: Scaling = "client"
    categories: Categories = "codes"
    common: Common | None = None
    pool: bool = False
    missing: Missing = "mean"
    bins: Bins = "own"
    num_bins: int = 32
    facts_from: int = 1

    def __post_init__(self) -> None:
        expect(self.num_bins >= 1, "data.num_bins", "at least 1", self.num_bins)
        expect(
            self.facts_from >= 1, "data.facts_from", "a number of rows, at least 1", self.facts_from
        )
        if self.common is not None:
            check_common(self.common)

    @property
    def features(self) -> bool:
        """Whether all columns are common to all clients."""
        return self.align in ("features", "both")

    @property
    def classes(self) -> bool:
        """Whether all clients share one list of classes."""
        return self.align in ("classes", "both")

    @property
    def alike(self) -> bool:
        """Whether some columns mean the same at several clients and are therefore encoded in the
        same way.
        """
        return self.features or self.common is not None

    @property
    def pooled(self) -> bool:
        """Whether numbers are standardised by the moments of all clients together."""
        return self.scaling == "pooled"

    @property
    def sketched(self) -> bool:
        """Whether clients send sketches of their numbers."""
        return self.bins == "agreed" and not self.pool

    def sends(self, column: str) -> bool:
        """Return whether a client sends the name and kind of a column."""
        alone = self.common is None and (self.pooled or self.sketched)
        every = self.features or isinstance(self.common, str) or alone
        return every or is_listed(self.common, column)

    def shares(self, target: Mapping[str, Any]) -> bool:
        """Return whether a client sends these facts about its target."""
        return self.pool or target["shared"] or (self.classes and "labels" in target)
