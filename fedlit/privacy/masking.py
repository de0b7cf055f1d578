"""Sums that hide their terms: each pair of sites agrees on a mask that one adds and the other
subtracts.

This is the first half of Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving
Machine Learning" (CCS), for a fixed set of sites. Pairs agree on keys by X25519, and masks are
AES-256 in counter mode, modulo 2⁶⁴.

NOTE[DIFF]: the paper tolerates sites that leave within a round, by secret shares and a second mask
of each site. Here each site itself computes which sites are summed, as a function of (seed, round),
without the sites that state openly that their update is unfit. A site masks each (round, question)
once, so that nobody can get a second sum over other sites, and a round waits for a site that is
away.

Each sum is over at least three sites. A coordinator that conspires with all of them but one learns
the update of this one; if it conspires with some of them, it learns the sum of the rest.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray
from torch import Tensor

from fedlit.errors import ConfigError, RunError
from fedlit.exchange.rule import Rule, by_owners
from fedlit.precision import double_on_cpu
from fedlit.privacy.keys import Pairs
from fedlit.privacy.settings import LEAST
from fedlit.sharing import Sharing, State, form_of

GROUP = "sum/"
"""The prefix of what is summed beside the tensors: for each group of sites a zero, by which a wrong
sum is found, and the rows if they are weights."""

Forms = Mapping[str, tuple[str | torch.dtype, Sequence[int]]]
"""Maps names of tensors to dtype and shape."""


def dtype_of(name: object) -> torch.dtype:
    """Return the dtype of a name.

    Raises:
        RunError: there is no such dtype.

    Example:
        >>> dtype_of("float32")
        torch.float32
    """
    if isinstance(name, torch.dtype):
        return name
    dtype = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise RunError(
            f"expected the name of a dtype, found {str(name)[:40]!r}; do all sites run the same "
            "version?"
        )
    return dtype


@dataclass(frozen=True)
class Layout:
    """Which tensors are summed over which sites. All sites of a round and the coordinator have the
    same layout.

    Attributes:
        groups: maps groups of sites to the names of the tensors that exactly these have and send.
        forms: maps each tensor's name to its (dtype, shape), as :func:`fedlit.sharing.form_of`
            gives it.
        by_rows: whether values are weighted by the sites' rows; the sum of rows is then masked,
            too.
        least: the number of sites that must have a tensor.

    Raises:
        ConfigError: a tensor has fewer sites than that, or rows would be summed over different
            sites.
    """

    groups: Mapping[tuple[str, ...], list[str]]
    forms: Forms
    by_rows: bool = False
    least: int = LEAST

    def __post_init__(self) -> None:
        for sites, names in self.groups.items():
            if len(sites) < self.least:
                tensors = names[0]
                if len(names) > 1:
                    tensors += f" and {len(names) - 1} more"
                raise ConfigError(
                    f"masked sums: {tensors}: expected at least {self.least} sites that have it and take part, found "
                    f"{', '.join(sites) or 'none'}; leave it out of exchange.federated, or wait "
                    "for more sites"
                )
        if self.by_rows and len(self.groups) > 1:
            raise ConfigError(
                "masked sums: expected all sites to federate the same tensors where rows are "
                "weights, found others: a difference of two sums of rows would tell how many rows "
                "a site has; use weights: uniform"
            )

    @property
    def sites(self) -> list[str]:
        """All sites that take part."""
        return sorted(set().union(*self.groups))

    @property
    def digest(self) -> str:
        """The SHA-256 of the layout."""
        forms = {
            name: [str(dtype), list(shape)] for name, (dtype, shape) in sorted(self.forms.items())
        }
        groups = [[list(sites), sorted(names)] for sites, names in sorted(self.groups.items())]
        return hashlib.sha256(json.dumps([forms, groups, self.by_rows]).encode()).hexdigest()

    def of(self, site: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the form of what a site sends: name → (int64, shape)."""
        forms: dict[str, tuple[str, tuple[int, ...]]] = {}
        for group, (sites, names) in enumerate(sorted(self.groups.items())):
            if site in sites:
                forms[f"{GROUP}{group}"] = ("int64", (1 + self.by_rows,))
                forms |= {name: ("int64", tuple(self.forms[name][1])) for name in names}
        return forms


def digest_of(names: Iterable[str], state: State) -> str:
    """Return the SHA-256 of tensors by name, to the last bit. Names that the state does not have
    count, too.
    """
    digest = hashlib.sha256()
    for name in sorted(names):
        tensor = state.get(name)
        digest.update(json.dumps([name, None if tensor is None else form_of(tensor)]).encode())
        if tensor is not None:
            digest.update(
                tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
    return digest.hexdigest()


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
            f"{', '.join(sorted(set(sites))) or 'none'}; with two, each would know the other's part"
        )
    names_by_owners = by_owners({site: sharing.names[site] for site in sites})
    groups = {owners: sorted(names) for owners, names in names_by_owners.items()}
    forms = {name: sharing.forms[name] for name in itertools.chain.from_iterable(groups.values())}
    return Layout(groups, forms, "rows" in rule.needs, least)


@dataclass(frozen=True)
class Total:
    """The result of a masked sum.

    Attributes:
        sums: maps each name to the sum over its sites, float64 or int64; weighted if the layout is
            by rows.
        weights: maps each name to the sum of its sites' weights: rows, or the number of sites.
    """

    sums: dict[str, Tensor]
    weights: dict[str, int]

    def mean(self, forms: Forms) -> dict[str, Tensor]:
        """Return Σ w ω / Σ w, in the tensors' types."""
        return {
            name: (total / self.weights[name]).to(dtype_of(forms[name][0]))
            for name, total in self.sums.items()
        }


Words = NDArray[np.uint64]
"""Whole numbers modulo 2⁶⁴."""


class Masker:
    """The site's side of masked sums.

    Args:
        pairs: the secrets that the site shares with each of the others.
        bits: the number of binary digits behind the point.
    """

    def __init__(self, pairs: Pairs, bits: int = 32) -> None:
        self.pairs = pairs
        self.name = pairs.name
        self.bits = bits

    def mask(
        self,
        number: int,
        layout: Layout,
        state: State,
        rows: int = 0,
        question: int | None = None,
        received: State = MappingProxyType({}),
        since: Mapping[str, int] = MappingProxyType({}),
        common: str = "",
    ) -> dict[str, Tensor]:
        """Return what is sent instead of a state. The caller sends one result for each (round,
        question); see :class:`~fedlit.privacy.ledger.Ledger`.

        Args:
            number: exchanges before this one.
            layout: what is summed over whom.
            state: this site's tensors, by name.
            rows: its weight where the layout is by rows.
            question: which of the round's questions ``state`` answers; None for an update.
            received: what all sites received from the coordinator before. Masks are bound to those
                of a sum's names: where sites got different values, their masks do not cancel. (A
                coordinator that sends a model of its making to all but one could otherwise know the
                others' terms; Pasquini et al. 2022.)
            since: maps names of ``received`` to the exchange that brought them. A site that was
                sent nothing goes on from its own state, and would be the only one whose term is new
                if the others were sent the old values again.
            common: a digest of what else all sites must have been told, for their terms to belong
                together.

        Returns:
            Maps each name to int64 words; each tensor alone is a uniform draw.

        Raises:
            RunError: values that are not finite or too large, or a tensor that is missing.
        """
        sent: dict[str, Tensor] = {}
        for owners, (group, names, term) in self._shares(layout, state, rows).items():
            of = names if question is None else sorted(received)
            bound = [digest_of(of, received), [since.get(name) for name in of], common]
            for peer in owners:
                if peer != self.name:
                    key = self.pairs.key(
                        peer, "mask", number, question, layout.sites, layout.digest, bound
                    )
                    mask = stream(key, group, len(term))
                    term = term + mask if self.name < peer else term - mask
            first = 1 + layout.by_rows
            sent[f"{GROUP}{group}"] = _tensor(term[:first], (first,))
            for name in names:
                shape = tuple(layout.forms[name][1])
                count = int(np.prod(shape, dtype=np.int64))
                sent[name] = _tensor(term[first : first + count], shape)
                first += count
        return sent

    def check(self, layout: Layout, state: State, rows: int = 0) -> None:
        """Refuse a state that whole numbers cannot hold.

        Raises:
            RunError: values that are not finite or too large, or a tensor that is missing.
        """
        self._shares(layout, state, rows)

    def _shares(
        self, layout: Layout, state: State, rows: int
    ) -> dict[tuple[str, ...], tuple[int, list[str], Words]]:
        """Map each group of sites to its number, the names of its tensors, and this site's term."""
        shares = {}
        if layout.by_rows and rows < 1:
            raise RunError(
                f"masked sums: {self.name!r}: expected the number of its rows as weight, found "
                f"{rows}"
            )
        for group, (owners, names) in enumerate(sorted(layout.groups.items())):
            if self.name not in owners:
                continue
            head = torch.tensor([0, rows] if layout.by_rows else [0])
            parts = [encoded(head, self.bits, len(owners))]
            for name in names:
                dtype, shape = layout.forms[name]
                value = state.get(name)
                if (
                    value is None
                    or tuple(value.shape) != tuple(shape)
                    or value.dtype != dtype_of(dtype)
                ):
                    received_form = "none"
                    if value is not None:
                        received_form = f"{value.dtype} of shape {tuple(value.shape)}"
                    raise RunError(
                        f"masked sums: {self.name!r}: {name}: expected {dtype} of shape "
                        f"{tuple(shape)}, as agreed, found {received_form}; all sites must send tensors of "
                        "one form"
                    )
                weight = rows if layout.by_rows and value.is_floating_point() else 1
                try:
                    parts.append(encoded(value, self.bits, len(owners), weight))
                except ValueError as error:
                    raise RunError(
                        f"masked sums: {self.name!r}: {name}: expected numbers that can be summed, "
                        f"found {error}; nothing was sent. Lower the learning rate, clip "
                        "gradients, or take fewer bits"
                    ) from error
            shares[owners] = group, names, np.concatenate(parts)
        return shares


def stream(key: bytes, group: int, count: int) -> Words:
    """Return ``count`` words of AES-256 in counter mode. The number of the group is the upper half
    of the first block.
    """
    cipher = Cipher(AES256(key), CTR(group.to_bytes(8, "big") + bytes(8))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), "<u8").astype(np.uint64)


def sum_of(layout: Layout, messages: Mapping[str, State], bits: int = 32) -> Total:
    """Add masked messages, whose masks cancel. This is the coordinator's side of masked sums.

    Args:
        layout: which tensors are summed over which sites.
        messages: maps each site to the result of :meth:`Masker.mask`, for all sites of the layout.
        bits: the number of binary digits behind the point.

    Raises:
        RunError: a message has another form, or masks do not cancel.
    """
    for site in layout.sites:
        message_forms = {
            name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in messages[site].items()
        }
        if differing := sorted(set(message_forms.items()) ^ set(layout.of(site).items())):
            raise RunError(
                f"masked sums: site {site!r}: expected the tensors that were agreed, found a "
                f"difference in {differing[0]}; do all sites run the same version?"
            )
    sums: dict[str, Tensor] = {}
    weights: dict[str, int] = {}
    for group, (owners, names) in enumerate(sorted(layout.groups.items())):
        parts = [f"{GROUP}{group}", *names]
        total: Words = np.zeros(sum(messages[owners[0]][name].numel() for name in parts), np.uint64)
        for site in owners:
            total = total + np.concatenate(
                [messages[site][name].reshape(-1).numpy().view(np.uint64) for name in parts]
            )
        if int(total[0]):
            raise RunError(
                f"masked sums: expected masks that cancel over {', '.join(owners)}, found that "
                "they do not: a message was changed on its way, or a site used another key, round "
                "or list of sites; nothing was written"
            )
        rows = int(total[1].view(np.int64)) if layout.by_rows else len(owners)
        first = 1 + layout.by_rows
        for name in names:
            dtype, shape = layout.forms[name]
            count = messages[owners[0]][name].numel()
            sums[name] = decoded(total[first : first + count], bits, dtype_of(dtype)).reshape(
                tuple(shape)
            )
            weights[name] = rows
            first = first + count
    return Total(sums, weights)


def _tensor(integers: Words, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(integers.view(np.int64).copy()).reshape(shape)


def largest(bits: int, sites: int) -> float:
    """Return the largest magnitude of a number (times its weight) that may be summed over a number
    of sites.

    Example:
        >>> int(largest(bits=32, sites=3))
        357913941
    """
    return float(2**62 // sites) / 2.0**bits


def tolerance(bits: int, sites: int, weight: float = 0.0, magnitude: float = 0.0) -> float:
    """Return how far a mean of encoded numbers may be from the exact one, before it is rounded to
    the tensors' type.

    Each term is rounded to a multiple of 2⁻ᵇⁱᵗˢ, which is at most half a multiple per site. Terms
    with more than 53 digits lose the rest, as in float64.

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
    """Return a tensor's values times a weight, in units of 2⁻ᵇⁱᵗˢ, rounded to the nearest whole
    number. Whole numbers are returned as they are.

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
        return whole.view(np.uint64).copy()
    scaled = double_on_cpu(values).numpy() * (float(weight) * 2.0**bits)
    if not np.isfinite(scaled).all():
        raise ValueError("a value that is not finite")
    if scaled.size and float(np.abs(scaled).max()) > most:
        raise ValueError(
            f"a value of {np.abs(scaled).max() / 2.0**bits:.4g} (with its weight), where "
            f"{largest(bits, sites):.4g} is the most that {bits} bits leave for a sum over {sites} "
            "sites"
        )
    return np.rint(scaled).astype(np.int64).view(np.uint64)


def decoded(integers: Words, bits: int, dtype: torch.dtype) -> Tensor:
    """Return the inverse of :func:`encoded` for a sum: float64 (not yet rounded to the tensors'
    type), or int64.

    Example:
        >>> decoded(encoded(torch.tensor([0.5, -1.0]), 8, 3), 8, torch.float32)
        tensor([ 0.5000, -1.0000], dtype=torch.float64)
    """
    whole = torch.from_numpy(integers.view(np.int64).copy())
    return double_on_cpu(whole) / 2.0**bits if dtype.is_floating_point else whole
