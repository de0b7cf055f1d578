"""The site's side of privacy: what is sent in place of an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from safetensors.torch import load, save
from torch import Tensor

from fedlit.errors import ConfigError, RunError
from fedlit.exchange.aggregation import BEGIN
from fedlit.exchange.questions import Own, Question
from fedlit.exchange.rule import DOWN, Rule, Update
from fedlit.exchange.wire import question_from
from fedlit.privacy.client_level import Noised, difference, length
from fedlit.privacy.journal import Journal, write_whole
from fedlit.privacy.keys import UNKNOWN_PEERS, accepted, advert, mask_key
from fedlit.privacy.layout import Layout
from fedlit.privacy.masking import Masker
from fedlit.privacy.refusals import layout_of
from fedlit.privacy.settings import Privacy
from fedlit.privacy.streams import digest_of
from fedlit.sharing import Sharing, State, form_of

__all__ = ["Received", "Shield"]


class Received:
    """What a site has received, exchange by exchange, on disk: updates are differences to it, also after a restart.

    Args:
        folder: the site's own.
        start: what all know that the client starts from: values that are drawn by the run's seed.
    """

    def __init__(self, folder: Path, start: State) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._start = folder, {name: own.detach().cpu().clone() for name, own in start.items()}

    def _path(self, number: int) -> Path:
        return self.folder / f"received-{number}.safetensors"

    def told(self, number: int) -> dict[str, Tensor]:
        """What the coordinator had sent before an exchange; nothing before the first.

        Raises:
            RunError: it is no longer known.
        """
        if number <= 0 and not self._path(number - 1).exists():
            return {}
        if not self._path(number - 1).exists():
            raise RunError(
                f"exchange {number + 1}: expected {self._path(number - 1)}, what this site received in the exchange "
                "before, found that it is gone; go on from a later checkpoint"
            )
        return load(self._path(number - 1).read_bytes())

    def before(self, number: int) -> dict[str, Tensor]:
        """What the client last received before an exchange, name by name; else what it started from."""
        return {**self._start, **self.told(number)}

    def put(self, number: int, received: State) -> None:
        """Note what came of an exchange, before the client makes anything of it."""
        own = {name: value.detach().cpu() for name, value in received.items() if not name.startswith(DOWN)}
        known = sorted(int(path.stem.removeprefix("received-")) for path in self.folder.glob("received-*.safetensors"))
        last = [place for place in known if place < number][-1:]  # a site that stayed away has missed some
        before = load(self._path(last[0]).read_bytes()) if last else {}
        write_whole(self._path(number), save({**before, **own}))

    def forget(self, number: int) -> None:
        """Let go of what came before an exchange: the site will not go back behind it."""
        for path in self.folder.glob("received-*.safetensors"):
            if int(path.stem.removeprefix("received-")) < number - 1:
                path.unlink(missing_ok=True)


class Shield:
    """Stands between a site's client and the coordinator.

    Args:
        site: its name, and its client's.
        privacy: what is wanted; the same at all sites.
        rule: the federation's.
        folder: the site's own, for the federation's whole life: key for masks, what was masked, opened, noised and
            received.
        federation: what keys and masks are bound to, say the hash of what all have agreed to.
        registered: the site's registered key, which signs its key for masks.
        peers: site → fingerprint or registered key, known from elsewhere.

    Attributes:
        notes: what a person should know.
    """

    def __init__(
        self,
        site: str,
        privacy: Privacy,
        rule: Rule,
        folder: Path,
        federation: str,
        registered: EllipticCurvePrivateKey | None = None,
        peers: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.site, self.privacy, self.rule, self.folder, self.federation = site, privacy, rule, folder, federation
        self._registered, self._peers = registered, peers
        self._key = mask_key(folder / "mask.key") if privacy.masked else None
        self._noised = Noised(folder, privacy.client_level) if privacy.client_level else None
        self._held: tuple[int, Update] | None = None
        self._told: dict[tuple[int, int, int, str], dict[str, Any]] = {}
        self.notes: list[str] = []

    # ------------------------------------------------------------------ before training

    def offer(self) -> dict[str, Any]:
        """What is told to all, as JSON: the settings, and the key for masks."""
        told = asdict(self.privacy)
        if self._key is None:
            return {"settings": told}
        return {"settings": told, **advert(self.site, self.federation, self._key, self._registered)}

    def meet(self, offers: Mapping[str, Mapping[str, Any]], sharing: Sharing, start: State) -> None:
        """Take what all have told.

        Args:
            offers: site → its :meth:`offer`.
            sharing: what of each site's client is federated.
            start: values of this site's federated tensors as they are drawn by the seed, which all know.

        Raises:
            ConfigError: other settings elsewhere.
            RunError: keys that are not what they should be.
        """
        mine = asdict(self.privacy)
        for site, told in offers.items():
            if told.get("settings") != mine:
                raise ConfigError(
                    f"privacy: expected the same at all sites, found {mine} at {self.site} and "
                    f"{told.get('settings')} at {site}"
                )
        self._sharing, self._received = sharing, Received(self.folder, start)
        if self.privacy.masked and self._key is not None:
            publics = accepted(self.federation, offers, self._peers)
            journal = Journal(self.folder / "masked.jsonl")
            bits = self.privacy.masked.bits
            self._masker = Masker(self.site, self._key, publics, self.federation, journal, bits)
            if self._peers is None:
                self.notes.append(UNKNOWN_PEERS)

    # ------------------------------------------------------------------ rounds

    def unfit(self, number: int, update: Update) -> str:
        """Why the site should send nothing in this round; empty if it may. Under masks nobody else can look. The words
        are for the site alone: others are told that it sits out.

        Args:
            number: exchanges before it.
            update: the client's.
        """
        try:
            long = length(difference(update.state, self._received.before(number)))
        except RunError as error:
            return str(error)
        if not math.isfinite(long):
            return "its update is not finite"
        most = self.privacy.masked.norm if self.privacy.masked else None
        if most is not None and long > most:
            return f"its update is {long:.4g} long, the bound is {most:g} (privacy.masked.norm)"
        return ""

    def send(self, number: int, update: Update) -> Update:
        """What is sent in place of an update: noised, where noise is wanted; nothing but its presence, where sums are
        masked: then the coordinator asks (see :meth:`answer`).

        Args:
            number: exchanges before it.
            update: the client's, which is fit (:meth:`unfit`).

        Raises:
            RunError: tensors that cannot be protected.
        """
        if self._noised is not None:
            before = self._received.before(number)
            known = {name: own for name, own in before.items() if name in update.state}
            # before training there is nothing to learn, and all know what clients start from
            state = known if number == BEGIN else self._noised.answer(number, update.state, known)
            update = replace(update, state=state)
        if self.privacy.masked is None:
            return update
        self._held = number, update
        return replace(update, state={}, rows=0, published={})

    def answer(
        self, number: int, asked: Mapping[str, Any], answer: Callable[[Question], Any] | None = None
    ) -> dict[str, Any]:
        """Answer the coordinator's question within a round. Asked again, it gives the same.

        Args:
            number: of the round.
            asked: ``attempt``, and ``sites`` for a message, or ``open``; ``n`` and ``question`` where a rule asks.
            answer: answers a rule's question from the rows here.

        Returns:
            ``state``: masked tensors (and ``forms``, of an answer); or ``opened``: 32 bytes.

        Raises:
            RunError: a question that the site must not answer.
        """
        attempt, place = asked.get("attempt"), asked.get("n")
        numbers = [attempt] if place is None else [attempt, place]
        if not all(isinstance(own, int) and own >= 0 for own in numbers) or (place is None) != (
            "question" not in asked
        ):
            raise RunError(f"masked sums, round {number + 1}: expected a question for a sum, found {sorted(asked)}")
        assert isinstance(attempt, int)
        if asked.get("open"):
            return {"opened": self._masker.open(number, attempt, place)}
        sites = list(asked.get("sites") or ())
        if self.site not in sites or not set(sites) <= set(self._sharing.names) or len(set(sites)) < len(sites):
            raise RunError(
                f"masked sums, round {number + 1}: expected a list of the federation's sites with {self.site!r}, found "
                f"{', '.join(map(str, sites))}; nothing was sent"
            )
        if place is not None:
            return self._answered(number, attempt, sites, place, question_from(asked["question"]), answer)
        if self._held is None or self._held[0] != number:
            raise RunError(f"masked sums, round {number + 1}: expected to be asked for an update of the round it is in")
        layout = layout_of(self._sharing, sites, self.rule, self._least)
        update, received = self._held[1], self._received.told(number)
        rows = update.rows if layout.by_rows else 0
        return {"state": self._masker.mask(number, attempt, layout, update.state, rows, received=received)}

    @property
    def _least(self) -> int:
        return self.privacy.masked.least if self.privacy.masked else 0

    def refuse_single(self, question: Question) -> None:
        """Refuse a question to this site alone whose answers are to be told as sums.

        Raises:
            RunError: it is such a question; nothing was told.
        """
        if self.privacy.masked and isinstance(question, Own) and question.topic in self.rule.adds_answers:
            raise RunError(
                f"masked sums: expected to be asked for {question.topic} together with the other sites, found a "
                "question to this site alone; nothing was told"
            )

    def _answered(
        self,
        number: int,
        attempt: int,
        sites: list[str],
        place: int,
        question: Question,
        answer: Callable[[Question], Any] | None,
    ) -> dict[str, Any]:
        if not isinstance(question, Own) or question.topic not in self.rule.adds_answers or answer is None:
            raise RunError(
                f"masked sums, round {number + 1}: expected no question of {type(self.rule).__name__}, found one"
            )
        said = {f"{question.topic}/{name}": value for name, value in question.tensors.items()}
        key = number, place, attempt, digest_of(said, said)
        if key not in self._told:  # what answers may count on having been asked once
            self._told = {own: told for own, told in self._told.items() if own[0] == number}
            self._told[key] = self._masked(number, attempt, sites, place, answer(question), said)
        return self._told[key]

    def _masked(
        self, number: int, attempt: int, sites: list[str], place: int, found: State, said: State
    ) -> dict[str, Any]:
        forms = {name: form_of(value) for name, value in found.items()}
        layout = Layout(dict.fromkeys(forms, tuple(sorted(sites))), forms, least=self._least)
        return {
            "state": self._masker.mask(number, attempt, layout, found, question=place, received=said),
            "forms": {name: [dtype, list(shape)] for name, (dtype, shape) in forms.items()},
        }

    def receive(self, number: int, received: State) -> None:
        """Note what came of a round, before the client makes anything of it."""
        self._received.put(number, received)

    def forget(self, number: int) -> None:
        """The site will not go back behind an exchange: it has a checkpoint."""
        self._received.forget(number)
        if self._noised is not None:
            self._noised.forget(number)

    @property
    def epsilon(self) -> float | None:
        """ε spent so far at the settings' δ; None without noise."""
        return None if self._noised is None else self._noised.spent
