"""Masked sums: the coordinator adds what sites send and learns the sum, and no term of it.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS), Sec. 4. What is used
of it: keys are advertised and agreed on by Diffie-Hellman (there round 0); each site adds a mask for each other site,
which that one subtracts, and a mask of its own (round 2, "double masking"); the coordinator then says whose messages
came, and gets what takes the sites' own masks away (round 4).

What differs: a site's own mask is told by the site itself, and not by shares of it that others hold. So all who have
sent must still be there when the sum is opened. If one is not, the round is repeated without it, under fresh masks. A
site opens one attempt of a round and no other one, and takes part in no further attempt of a round that it has opened.
A coordinator that pretends that somebody has left therefore gets no second sum to subtract from the first: it would
have to open both, and each site that is in both refuses one. With masks of pairs alone, the difference of two attempts
would be the single update of who is said to have left.

Each sum has at least three sites behind it. A coordinator together with all of them but one learns that one's update;
together with any it learns the sum of the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from torch import Tensor

from fedlit.errors import RunError
from fedlit.privacy.fixed import Words, decoded, encoded
from fedlit.privacy.journal import Journal
from fedlit.privacy.keys import public_of
from fedlit.privacy.layout import GROUP, Layout, Total, dtype_of
from fedlit.privacy.streams import derived, digest_of, stream
from fedlit.sharing import State

__all__ = ["Masker", "sum_of"]


class Masker:
    """A site's side.

    Args:
        name: the site.
        key: its private key for masks.
        publics: site → public key, of all, checked (see :func:`fedlit.privacy.keys.accepted`).
        federation: what masks are bound to beside round, attempt and layout.
        journal: what this site has masked and opened; the same file for the federation's whole life.
        bits: binary digits behind the point.
    """

    def __init__(
        self,
        name: str,
        key: X25519PrivateKey,
        publics: Mapping[str, bytes],
        federation: str,
        journal: Journal,
        bits: int = 32,
    ) -> None:
        self.name, self.bits, self.federation, self.journal = name, bits, federation, journal
        self._key, self._publics = key, dict(publics)
        if self._publics.get(name) != public_of(key):
            raise RunError(
                f"site {name!r}: expected the others to know its own key for masks, found another one or none; "
                "somebody has changed it on its way, or an old message was used again"
            )
        self._secrets: dict[str, bytes] = {}

    def mask(
        self,
        number: int,
        attempt: int,
        layout: Layout,
        state: State,
        rows: int = 0,
        question: int | None = None,
        received: State = MappingProxyType({}),
    ) -> dict[str, Tensor]:
        """What is sent in place of a state. Asked again, it gives the same bytes.

        Args:
            number: exchanges before this one.
            attempt: how often the round was begun before, each time with fewer sites.
            layout: what is summed over whom.
            state: this site's tensors, by name.
            rows: its weight where the layout is by rows.
            question: which of the round's questions ``state`` answers, if it is no update.
            received: what all sites have got from the coordinator before. Masks are bound to those of a sum's names:
                where sites got different values, their masks do not cancel. (A coordinator that sends a model of its
                making to all but one could else know the others' terms; Pasquini et al. 2022.)

        Returns:
            name → int64, of which each alone is a uniform draw.

        Raises:
            RunError: values that are not finite or too large, a tensor that is missing, an attempt that the site must
                not take part in.
        """
        shares = self._shares(layout, state, rows)
        bound = {
            owners: digest_of(names if question is None else received, received)
            for owners, names in layout.groups.items()
        }
        content = b"".join(own.tobytes() for own in shares.values()) + "".join(bound.values()).encode()
        digest = hashlib.sha256(content).hexdigest()
        key, over = _key_of(number, question), [*layout.sites, layout.digest]
        self._allow(_said(number, question), key, attempt, over, digest, answer=question is not None)
        label = self._info([key, attempt, over])
        sent: dict[str, Tensor] = {}
        for place, (owners, names) in enumerate(sorted(layout.groups.items())):
            if self.name not in owners:
                continue
            words = shares[owners] + stream(self._own(label), place, len(shares[owners]))
            for peer in owners:
                if peer != self.name:
                    mask = stream(self._shared(peer, label + bound[owners].encode()), place, len(words))
                    words = words + mask if self.name < peer else words - mask
            first = 1 + layout.by_rows
            sent[f"{GROUP}{place}"] = _tensor(words[:first], (first,))
            for name in names:
                shape = tuple(layout.forms[name][1])
                count = int(np.prod(shape, dtype=np.int64))
                sent[name] = _tensor(words[first : first + count], shape)
                first += count
        return sent

    def open(self, number: int, attempt: int, question: int | None = None) -> Tensor:
        """What takes this site's own mask away, 32 bytes (uint8); from now on this attempt is the round's only one.

        Raises:
            RunError: not the last attempt that this site sent a message for.
        """
        key = _key_of(number, question)
        mine = [own for own in self.journal.entries if own["key"] == self._mine and own["round"] == key]
        if not mine or mine[-1]["attempt"] != attempt:
            last = f"attempt {mine[-1]['attempt']}" if mine else "none"
            raise RunError(
                f"masked sums, {_said(number, question)}: expected to open the last attempt that {self.name!r} took "
                f"part in, {last}, found attempt {attempt}; two that are opened would tell one site's update"
            )
        if not mine[-1]["opened"]:
            self.journal.add({**mine[-1], "opened": True})
        own = self._own(self._info([key, attempt, mine[-1]["over"]]))
        return torch.tensor(list(own), dtype=torch.uint8)

    # ------------------------------------------------------------------ what is summed

    def _shares(self, layout: Layout, state: State, rows: int) -> dict[tuple[str, ...], Words]:
        shares = {}
        if layout.by_rows and rows < 1:
            raise RunError(f"masked sums: {self.name!r}: expected the number of its rows as weight, found {rows}")
        for owners, names in layout.groups.items():
            if self.name not in owners:
                continue
            head = torch.tensor([0, rows] if layout.by_rows else [0])
            parts = [encoded(head, self.bits, len(owners))]
            for name in names:
                dtype, shape = layout.forms[name]
                value = state.get(name)
                if value is None or tuple(value.shape) != tuple(shape) or value.dtype != dtype_of(dtype):
                    found = "none" if value is None else f"{value.dtype} of shape {tuple(value.shape)}"
                    raise RunError(
                        f"masked sums: {self.name!r}: {name}: expected {dtype} of shape {tuple(shape)}, as agreed, "
                        f"found {found}; all sites must send tensors of one form"
                    )
                weight = rows if layout.by_rows and value.is_floating_point() else 1
                try:
                    parts.append(encoded(value, self.bits, len(owners), weight))
                except ValueError as error:
                    raise RunError(
                        f"masked sums: {self.name!r}: {name}: expected numbers that can be summed, found {error}; "
                        "nothing was sent. Lower the learning rate, clip gradients, or take fewer bits"
                    ) from error
            shares[owners] = np.concatenate(parts)
        return shares

    # ------------------------------------------------------------------ what it may take part in

    @property
    def _mine(self) -> str:
        return self._publics[self.name].hex()

    def _allow(self, where: str, key: str, attempt: int, what: list[str], digest: str, *, answer: bool) -> None:
        """Refuse what lets the coordinator subtract two sums, or two values under one mask; write down the rest."""
        entry = {"key": self._mine, "round": key, "attempt": attempt, "over": what, "digest": digest}
        for before in self.journal.entries:
            if answer and before["answer"] and before["opened"] and before["over"][:-1] != what[:-1]:
                raise RunError(
                    f"masked sums, {where}: expected the sites whose answers were summed before, "
                    f"{', '.join(before['over'][:-1])}, found {', '.join(what[:-1])}; a question can be put twice, and "
                    "the difference would be the answer of one site. Wait for all of them, or begin anew"
                )
            if before["round"] != key:
                continue
            ours, same = before["key"] == self._mine, before["attempt"] == attempt
            if before["opened"] and before["over"] != what:
                problem = f"its sum over {', '.join(before['over'][:-1])} was opened"
            elif ours and before["opened"] and not same:
                problem = f"its attempt {before['attempt']} was opened"
            elif ours and before["attempt"] > attempt:
                problem = f"attempt {before['attempt']} was begun"
            elif ours and same and any(before[part] != entry[part] for part in ("over", "digest")):
                problem = "the same attempt was masked with other values or over other sites"
            else:
                continue
            raise RunError(
                f"masked sums, {where}: {self.name!r}: expected no attempt {attempt}, for {problem}; two sums of "
                "one round would tell one site's update. Nothing was sent. If the federation goes back to an earlier "
                "checkpoint, all sites of that round have to take part in it again; else begin anew in another folder"
            )
        known = {**entry, "answer": answer, "opened": False}
        if not any({**own, "opened": False} == known for own in self.journal.entries):
            self.journal.add(known)

    # ------------------------------------------------------------------ masks

    def _info(self, what: Sequence[Any]) -> bytes:
        return json.dumps(["fedlit masks", 1, self.federation, *what]).encode()

    def _own(self, label: bytes) -> bytes:
        return derived(self._key.private_bytes_raw(), label + b" own")

    def _shared(self, peer: str, label: bytes) -> bytes:
        if peer not in self._publics:
            raise RunError(f"masked sums: expected the key for masks of {peer!r}, found none; let all sites join again")
        if peer not in self._secrets:
            try:
                self._secrets[peer] = self._key.exchange(X25519PublicKey.from_public_bytes(self._publics[peer]))
            except ValueError as error:
                raise RunError(f"site {peer!r}: expected a public key for masks, found one that is none") from error
        low, high = sorted([self.name, peer])
        ends = f" {low} {self._publics[low].hex()} {high} {self._publics[high].hex()}"
        return derived(self._secrets[peer], label + ends.encode())


def sum_of(layout: Layout, messages: Mapping[str, State], opened: Mapping[str, Tensor], bits: int = 32) -> Total:
    """The coordinator's side: adds masked messages and takes the sites' own masks away.

    Args:
        layout: what is summed over whom.
        messages: site → what :meth:`Masker.mask` gave; of all sites of the layout.
        opened: site → what :meth:`Masker.open` gave.
        bits: binary digits behind the point.

    Raises:
        RunError: a message or an opening that is missing or of another form; masks that do not cancel.
    """
    for site in layout.sites:
        found = {
            name: (str(own.dtype).removeprefix("torch."), tuple(own.shape)) for name, own in messages[site].items()
        }
        if site not in opened or found != layout.of(site):
            odd = sorted(set(found.items()) ^ set(layout.of(site).items()))
            raise RunError(
                f"masked sums: site {site!r}: expected the tensors that were agreed and what opens them, found "
                f"{odd[0] if odd else 'nothing that opens them'}; do all sites run the same version?"
            )
    sums: dict[str, Tensor] = {}
    weights: dict[str, int] = {}
    for place, (owners, names) in enumerate(sorted(layout.groups.items())):
        parts = [f"{GROUP}{place}", *names]
        total: Words = np.zeros(sum(messages[owners[0]][name].numel() for name in parts), np.uint64)
        for site in owners:
            total = total + np.concatenate([messages[site][name].reshape(-1).numpy().view(np.uint64) for name in parts])
            total = total - stream(bytes(opened[site].tolist()), place, len(total))
        if int(total[0]):
            raise RunError(
                f"masked sums: expected masks that cancel over {', '.join(owners)}, found that they do not: a message "
                "was changed on its way, or a site used another key, round or list of sites; nothing was written"
            )
        rows = int(total[1].view(np.int64)) if layout.by_rows else len(owners)
        if rows < 1:
            raise RunError(f"masked sums: expected a positive number of rows of {', '.join(owners)}, found {rows}")
        first = 1 + layout.by_rows
        for name in names:
            dtype, shape = layout.forms[name]
            count = messages[owners[0]][name].numel()
            sums[name] = decoded(total[first : first + count], bits, dtype_of(dtype)).reshape(tuple(shape))
            weights[name], first = rows, first + count
    return Total(sums, weights)


def _key_of(number: int, question: int | None) -> str:
    return str(number) if question is None else f"{number}, question {question}"


def _said(number: int, question: int | None) -> str:
    return f"round {number + 1}" if question is None else f"round {number + 1}, question {question + 1}"


def _tensor(words: Words, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(words.view(np.int64).copy()).reshape(shape)
