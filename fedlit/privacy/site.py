"""The site's side of privacy: what it sends instead of its update."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.questions import Own, Question
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.schedule import BEGIN
from fedlit.exchange.wire import question_from
from fedlit.precision import double_on_cpu
from fedlit.privacy.client_level import clipped, difference, epsilon, length, noised
from fedlit.privacy.keys import UNKNOWN_PEERS, Pairs, accepted, advert, mask_key
from fedlit.privacy.ledger import MASK_KEY, Ledger, Over
from fedlit.privacy.masking import Layout, Masker, digest_of, layout_of
from fedlit.privacy.received import Received
from fedlit.privacy.settings import Privacy
from fedlit.sharing import Sharing, State, form_of

FARTHEST = 10.0
"""The standard deviations of noise for which whole numbers leave room: no draw is farther."""


class MaskedAnswer(TypedDict):
    """What a site sends when it is asked for its part of a sum.

    Attributes:
        state: masked tensors, by name.
        forms: maps each name to [dtype, shape]; only in the answer to a rule's question.
    """

    state: dict[str, Tensor]
    forms: NotRequired[dict[str, list[object]]]


class Shield:
    """Protects what a site's client sends to the coordinator.

    Args:
        site: Name of the site and its only client.
        privacy: The protection, which is the same at all sites.
        rule: The federation's aggregation rule.
        ledger: the site's account with this federation, to whose identity keys and masks are bound.
            Beside it lie the key for masks and what was received.
        cohort: (exchanges before a round) → the sites that take part in it, as the run's seed draws
            them.
        registered: the site's registered key, which signs its key for masks; needed for masks
            alone.
        peers: site → fingerprint of its registered key, known from elsewhere; may be empty.

    Attributes:
        notes: Messages for the person at the site.
    """

    def __init__(
        self,
        site: str,
        privacy: Privacy,
        rule: Rule,
        ledger: Ledger,
        cohort: Callable[[int], Iterable[str]],
        registered: EllipticCurvePrivateKey | None = None,
        peers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.site = site
        self.privacy = privacy
        self.rule = rule
        self.ledger = ledger
        self.federation = ledger.federation
        self._cohort = cohort
        self._registered = registered
        self._peers = peers
        self._key = mask_key(ledger.folder / MASK_KEY) if privacy.masked else None
        self._held: tuple[int, Update] | None = None
        self._fit: tuple[int, bool] | None = None
        self._told: dict[tuple[int, int, str, str], State] = {}
        self.notes: list[str] = []

    # ------------------------------------------------------------------ before training

    def offer(self) -> dict[str, str]:
        """Return the public key for masks as plain data; empty without masks."""
        if self._key is None or self._registered is None:
            return {}
        return advert(self.site, self.federation, self._key, self._registered)

    def meet(
        self,
        offers: Mapping[str, Mapping[str, str]],
        sharing: Sharing,
        start: State,
        facts: Callable[[], str] = str,
    ) -> None:
        """Take the offers of all sites.

        Args:
            offers: site → its :meth:`offer`.
            sharing: what of each site's client is federated.
            start: values of this site's federated tensors as they are drawn by the seed, which all
                know.
            facts: returns a digest of what was told of all sites before training. Masks cancel
                among sites that were told the same.

        Raises:
            RunError: keys that are not what they should be.
        """
        self._sharing = sharing
        self._received = Received(self.ledger.folder, self.federation, start)
        self._facts = facts
        if self.privacy.masked and self._key is not None:
            self._pairs = Pairs(
                self.site,
                self._key,
                accepted(self.federation, offers, self._peers),
                self.federation,
            )
            self._masker = Masker(self._pairs, self.privacy.masked.bits)
            if not self._peers:
                self.notes.append(UNKNOWN_PEERS)

    # ------------------------------------------------------------------ rounds

    def unfit(self, number: int, update: Update) -> str:
        """Return why the site should send nothing in this round; empty if it may. Under masks
        nobody else can check. The reason is for the site alone: others only learn that it sits out.

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
        return self._beyond(number, update)

    def _beyond(self, number: int, update: Update) -> str:
        """Return why the update cannot be summed in whole numbers; empty if it can."""
        if self.privacy.masked is None or not self.rule.facts.by_mean:
            return ""
        layout = layout_of(self._sharing, sorted(self._cohort(number)), self.rule, self._least)
        state = dict(update.state)
        if (level := self.privacy.client_level) is not None and number != BEGIN:
            before = self._received.before(number)
            shortened = clipped(difference(state, before), level.clip)
            margin = FARTHEST * level.noise * level.clip
            state = {
                name: ((double_on_cpu(before[name]) + change).abs() + margin).to(state[name].dtype)
                for name, change in shortened.items()
            }
        try:
            self._masker.check(layout, state, update.rows)
        except RunError as error:
            return str(error)
        return ""

    def before(self, number: int) -> dict[str, Tensor]:
        """Return what the client received last before an exchange, or else what it started from."""
        return self._received.before(number)

    def answered(self, number: int) -> bool:
        """Return whether the site has sent something under masks in a round."""
        return any(
            (entry["federation"], entry["kind"], entry["round"])
            == (self.federation, "masked", number)
            for entry in self.ledger.entries
        )

    def flags(self, number: int, *, fit: bool) -> dict[str, str]:
        """Return the proofs by which the other sites know whether this one called its update fit;
        none without masks.

        Args:
            number: the number of exchanges before the round.
            fit: whether :meth:`unfit` found no reason.
        """
        self._fit = number, fit
        return self._pairs.flags(number, fit) if self.privacy.masked else {}

    def send(self, number: int, update: Update) -> Update:
        """Return what is sent instead of an update: a noised one, if noise is wanted; an empty one,
        if sums are masked, because the coordinator then asks for it (see :meth:`answer`).

        Args:
            number: exchanges before it.
            update: the client's, which is fit (:meth:`unfit`).

        Raises:
            RunError: tensors that cannot be protected, or no answers left.
        """
        if self.privacy.masked is None:
            return self._noised(number, update)
        self._held = number, update
        return replace(update, state={}, rows=0, published={})

    def _noised(self, number: int, update: Update) -> Update:
        """Return an update with noise, if noise is wanted. It is drawn, and counted, once a
        round.
        """
        level = self.privacy.client_level
        if level is None:
            return update
        before = self._received.before(number)
        base = {name: tensor for name, tensor in before.items() if name in update.state}

        def draw() -> State:
            if level.answers is not None and len(self._noises) >= level.answers:
                raise RunError(
                    f"exchange {number + 1}: expected at most {level.answers} noised answers of "
                    "this site (privacy.client_level.answers), found all of them given; nothing "
                    "was sent. More would cost more than the ε that was agreed"
                )
            return noised(update.state, base, level)

        # before training there is nothing to learn, and all know what clients start from
        state = (
            base
            if number == BEGIN
            else self.ledger.once("noised", number, None, draw, noise=level.noise)
        )
        return replace(update, state={name: state[name] for name in update.state})

    def answer(
        self,
        number: int,
        request: Mapping[str, Any],
        answer: Callable[[Question], State] | None = None,
    ) -> MaskedAnswer:
        """Answer the coordinator's question within a round. If it is asked again, the answer is the
        same.

        Args:
            number: the number of the round.
            request: ``flags``, the flags of the round's sites, which state whether their updates are
                fit; ``n`` and ``question`` if a rule asks.
            answer: answers a rule's question from the rows of this site.

        Returns:
            ``state``: masked tensors (and ``forms``, of an answer).

        Raises:
            RunError: the site must not answer the question.
        """
        position = request.get("n")
        numbered = type(position) is int and position >= 0
        if numbered != ("question" in request) or numbered != ("n" in request):
            raise RunError(
                f"masked sums, round {number + 1}: expected a question for a sum, found "
                f"{sorted(request)}"
            )
        cohort = sorted(self._cohort(number))
        sites = self._pairs.fit(number, request.get("flags"), cohort)
        if self._fit != (number, True) or sites != cohort:
            out = [site for site in cohort if site not in sites] or [self.site]
            raise RunError(
                f"masked sums, round {number + 1}: expected a sum over {', '.join(cohort)}, found "
                f"one without {', '.join(out)}, whose update is unfit; nothing was sent"
            )
        if position is not None:
            return self._answered(
                number, sites, position, question_from(request["question"]), answer
            )
        if self._held is None or self._held[0] != number:
            raise RunError(
                f"masked sums, round {number + 1}: expected to be asked for an update of the round "
                "it is in"
            )
        layout = layout_of(self._sharing, sites, self.rule, self._least)
        update = self._noised(*self._held)
        received = self._received.told(number)
        rows = update.rows if layout.by_rows else 0
        since = self._received.since(number)
        return {
            "state": self._masked(
                number, None, layout, update.state, rows, received, since, self._facts()
            )
        }

    def _masked(
        self,
        number: int,
        question: int | None,
        layout: Layout,
        state: State,
        rows: int,
        received: State,
        since: Mapping[str, int],
        common: str,
    ) -> dict[str, Tensor]:
        """Return words under masks, which are made once. All questions of a rule must be over the
        same sites.
        """
        context: list[object] = [digest_of(received, received), sorted(since.items()), common]
        over: Over = {"sites": layout.sites, "layout": layout.digest, "received": context}
        shared = {site: list(names) for site, names in self._sharing.names.items()}
        for entry in self.ledger.entries:
            if (entry["federation"], entry["kind"]) != (self.federation, "masked"):
                continue
            if any(entry["shared"].get(site, names) != names for site, names in shared.items()):
                raise RunError(
                    "masked sums: expected each site to federate what it did before, found other "
                    "tensors"
                )
            earlier = entry["over"]
            if earlier is None or None in (question, entry["question"]):
                continue
            if earlier["sites"] != layout.sites:
                raise RunError(
                    f"masked sums, round {number + 1}: expected answers of "
                    f"{', '.join(earlier['sites'])}, as before, found "
                    f"{', '.join(layout.sites)}; the difference would be the answer of one site"
                )

        def mask() -> State:
            return self._masker.mask(number, layout, state, rows, question, received, since, common)

        return self.ledger.once("masked", number, question, mask, over, shared=shared)

    @property
    def _least(self) -> int:
        return self.privacy.masked.least if self.privacy.masked else 0

    def refuse_single(self, question: Question) -> None:
        """Refuse a question to this site alone if its answers may be revealed as sums only.

        Raises:
            RunError: it is such a question; nothing was revealed.
        """
        if (
            self.privacy.masked
            and isinstance(question, Own)
            and question.topic in self.rule.facts.adds_answers
        ):
            raise RunError(
                f"masked sums: expected to be asked for {question.topic} together with the other "
                "sites, found a question to this site alone; nothing was told"
            )

    def _answered(
        self,
        number: int,
        sites: list[str],
        position: int,
        question: Question,
        answer: Callable[[Question], State] | None,
    ) -> MaskedAnswer:
        if (
            not isinstance(question, Own)
            or question.topic not in self.rule.facts.adds_answers
            or answer is None
        ):
            name = type(self.rule).__name__
            raise RunError(
                f"masked sums, round {number + 1}: expected no question of {name}, found one"
            )
        asked_tensors = {
            f"{question.topic}/{name}": value for name, value in question.tensors.items()
        }
        key = number, position, question.topic, digest_of(asked_tensors, asked_tensors)
        if key not in self._told:  # a question is answered once, which some answers rely on
            self._told = {
                answered: state for answered, state in self._told.items() if answered[0] == number
            }
            self._told[key] = answer(question)
        answered_state = self._told[key]
        # an answer may depend on earlier questions: they decide which rows are in which node of a
        # tree
        answered_so_far = list(self._told)
        before = hashlib.sha256(
            json.dumps([answered_so_far[: answered_so_far.index(key) + 1], self._facts()]).encode()
        ).hexdigest()
        forms = {name: form_of(value) for name, value in answered_state.items()}
        groups = {tuple(sites): sorted(forms)} if forms else {}
        layout = Layout(groups, forms, least=self._least)
        return {
            "state": self._masked(
                number, position, layout, answered_state, 0, asked_tensors, {}, before
            ),
            "forms": {name: [dtype, list(shape)] for name, (dtype, shape) in forms.items()},
        }

    def receive(self, number: int, received: State) -> None:
        """Record the result of a round, before the client uses it."""
        self._received.put(number, received)

    def forget(self, number: int) -> None:
        """Forget what came before an exchange: the site has a checkpoint and will not go back."""
        self._received.forget(number)
        self.ledger.forget(number)

    @property
    def _noises(self) -> list[float]:
        return [entry["noise"] for entry in self.ledger.entries if entry["kind"] == "noised"]

    @property
    def epsilon(self) -> float | None:
        """ε at the settings' δ for all answers that this folder ever gave; None without noise."""
        level = self.privacy.client_level
        return None if level is None else epsilon(self._noises, level.delta)
