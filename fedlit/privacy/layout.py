"""What is summed over whom, and what comes out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlit.errors import ConfigError, RunError
from fedlit.privacy.settings import LEAST

__all__ = ["GROUP", "Layout", "Total", "dtype_of"]

GROUP = "sum/"
"""What begins the names of what is summed beside the tensors: of each group of sites a zero, by which a sum that went
wrong is found, and the rows where they are weights."""


def dtype_of(name: Any) -> torch.dtype:
    """A dtype by its name.

    Raises:
        RunError: there is none.

    Example:
        >>> dtype_of("float32")
        torch.float32
    """
    found = name if isinstance(name, torch.dtype) else getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise RunError(f"expected the name of a dtype, found {str(name)[:40]!r}; do all sites run the same version?")
    return found


@dataclass(frozen=True)
class Layout:
    """What is summed over whom; all sites of a round and the coordinator have the same.

    Attributes:
        owners: tensor's name → sites that have it and take part.
        forms: tensor's name → (dtype, shape), as :func:`fedlit.sharing.form_of` gives it.
        by_rows: whether values are weighted by the sites' rows; the sum of rows is then masked too.
        least: sites that must have a tensor.
        groups: sites → names of the tensors that they have, sorted; made of the others.

    Raises:
        ConfigError: a tensor of fewer sites than that, or sums of rows that say how many rows one or two sites have.
    """

    owners: Mapping[str, tuple[str, ...]]
    forms: Mapping[str, tuple[Any, Sequence[int]]]
    by_rows: bool = False
    least: int = LEAST
    groups: dict[tuple[str, ...], list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, sites in sorted(self.owners.items()):
            self.groups.setdefault(tuple(sorted(sites)), []).append(name)
        for sites, names in self.groups.items():
            if len(sites) < self.least:
                raise ConfigError(
                    f"masked sums: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: expected at "
                    f"least {self.least} sites that have it and take part, found {', '.join(sites) or 'none'}; "
                    "leave it out of exchange.federated, or wait for more sites"
                )
        if self.by_rows and (two := _apart(list(self.groups))):
            raise ConfigError(
                f"masked sums: expected sums of rows of which no difference tells that of one or two sites, found that "
                f"they tell those of {' and '.join(two)}, as sites federate different tensors; use the rule's weights: "
                "uniform"
            )

    @property
    def sites(self) -> list[str]:
        """All that take part."""
        return sorted({site for own in self.groups for site in own})

    @property
    def digest(self) -> str:
        """Of all of it."""
        forms = {name: [str(self.forms[name][0]), list(self.forms[name][1])] for name in sorted(self.owners)}
        groups = [[list(sites), names] for sites, names in sorted(self.groups.items())]
        return hashlib.sha256(json.dumps([forms, groups, self.by_rows]).encode()).hexdigest()

    def of(self, site: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """What a site sends: name → (int64, shape)."""
        told: dict[str, tuple[str, tuple[int, ...]]] = {}
        for place, (sites, names) in enumerate(sorted(self.groups.items())):
            if site in sites:
                told[f"{GROUP}{place}"] = ("int64", (1 + self.by_rows,))
                told |= {name: ("int64", tuple(self.forms[name][1])) for name in names}
        return told


def _apart(groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """One or two sites whose sum is a combination of the groups' sums."""
    sites = sorted({site for own in groups for site in own})
    within = np.array([[site in own for site in sites] for own in groups], float)
    rank = np.linalg.matrix_rank(within)
    for few in (*combinations(sites, 1), *combinations(sites, 2)):
        if np.linalg.matrix_rank(within[:, [site not in few for site in sites]]) < rank:
            return few
    return ()


@dataclass(frozen=True)
class Total:
    """What comes out.

    Attributes:
        sums: name → sum over its sites, float64 or int64; weighted where the layout says so.
        weights: name → sum of its sites' weights: rows, or the number of sites.
    """

    sums: dict[str, Tensor]
    weights: dict[str, int]

    def mean(self, forms: Mapping[str, tuple[Any, Sequence[int]]]) -> dict[str, Tensor]:
        """Σ w ω / Σ w, in the tensors' types."""
        return {name: (own / self.weights[name]).to(dtype_of(forms[name][0])) for name, own in self.sums.items()}
