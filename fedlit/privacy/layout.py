"""Which tensors are summed over which sites, and the result."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import ConfigError, RunError
from fedlit.exchange.rule import Rule, by_owners
from fedlit.privacy.settings import LEAST
from fedlit.sharing import Sharing, State, form_of

GROUP = "sum/"
"""The prefix of what is summed beside the tensors: for each group of sites a zero, by which a wrong sum is found, and
the rows if they are weights."""


def dtype_of(name: Any) -> torch.dtype:
    """Return the dtype of a name.

    Raises:
        RunError: there is no such dtype.

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
    """Which tensors are summed over which sites. All sites of a round and the coordinator have the same layout.

    Attributes:
        groups: maps groups of sites to the names of the tensors that exactly these have and send.
        forms: maps each tensor's name to its (dtype, shape), as :func:`fedlit.sharing.form_of` gives it.
        by_rows: whether values are weighted by the sites' rows; the sum of rows is then masked, too.
        least: the number of sites that must have a tensor.

    Raises:
        ConfigError: a tensor has fewer sites than that, or rows would be summed over different sites.
    """

    groups: Mapping[tuple[str, ...], list[str]]
    forms: Mapping[str, tuple[Any, Sequence[int]]]
    by_rows: bool = False
    least: int = LEAST

    def __post_init__(self) -> None:
        for sites, names in self.groups.items():
            if len(sites) < self.least:
                raise ConfigError(
                    f"masked sums: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: expected at "
                    f"least {self.least} sites that have it and take part, found {', '.join(sites) or 'none'}; "
                    "leave it out of exchange.federated, or wait for more sites"
                )
        if self.by_rows and len(self.groups) > 1:
            raise ConfigError(
                "masked sums: expected all sites to federate the same tensors where rows are weights, found others: a "
                "difference of two sums of rows would tell how many rows a site has; use weights: uniform"
            )

    @property
    def sites(self) -> list[str]:
        """All sites that take part."""
        return sorted({site for own in self.groups for site in own})

    @property
    def digest(self) -> str:
        """The SHA-256 of the layout."""
        forms = {name: [str(dtype), list(shape)] for name, (dtype, shape) in sorted(self.forms.items())}
        groups = [[list(sites), sorted(names)] for sites, names in sorted(self.groups.items())]
        return hashlib.sha256(json.dumps([forms, groups, self.by_rows]).encode()).hexdigest()

    def of(self, site: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the form of what a site sends: name → (int64, shape)."""
        told: dict[str, tuple[str, tuple[int, ...]]] = {}
        for place, (sites, names) in enumerate(sorted(self.groups.items())):
            if site in sites:
                told[f"{GROUP}{place}"] = ("int64", (1 + self.by_rows,))
                told |= {name: ("int64", tuple(self.forms[name][1])) for name in names}
        return told


def digest_of(names: Iterable[str], state: State) -> str:
    """Return the SHA-256 of tensors by name, to the last bit. Names that the state does not have count, too."""
    found = hashlib.sha256()
    for name in sorted(names):
        own = state.get(name)
        found.update(json.dumps([name, None if own is None else form_of(own)]).encode())
        if own is not None:
            found.update(own.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def layout_of(sharing: Sharing, sites: Sequence[str], rule: Rule, least: int = LEAST) -> Layout:
    """Return the layout of a round.

    Args:
        sharing: which tensors of each site's client are federated.
        sites: the sites that take part.
        rule: the rule, which determines whether rows are weights.
        least: the number of sites that must be behind each sum.

    Raises:
        ConfigError: a tensor has fewer of them, or there are too few of them.
    """
    if len(set(sites)) < least:
        raise ConfigError(
            f"masked sums: expected at least {least} sites whose update is fit, found "
            f"{', '.join(sorted(set(sites))) or 'none'}; of fewer, one would know the other's part"
        )
    groups = {own: sorted(names) for own, names in by_owners({site: sharing.names[site] for site in sites}).items()}
    forms = {name: sharing.forms[name] for names in groups.values() for name in names}
    return Layout(groups, forms, "rows" in rule.needs, least)


@dataclass(frozen=True)
class Total:
    """The result of a masked sum.

    Attributes:
        sums: maps each name to the sum over its sites, float64 or int64; weighted if the layout is by rows.
        weights: maps each name to the sum of its sites' weights: rows, or the number of sites.
    """

    sums: dict[str, Tensor]
    weights: dict[str, int]

    def mean(self, forms: Mapping[str, tuple[Any, Sequence[int]]]) -> dict[str, Tensor]:
        """Return Σ w ω / Σ w, in the tensors' types."""
        return {name: (own / self.weights[name]).to(dtype_of(forms[name][0])) for name, own in self.sums.items()}
