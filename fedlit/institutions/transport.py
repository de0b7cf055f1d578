"""A site's side: the transport of a federation whose other clients are elsewhere."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Protocol

from fedlit.errors import ConfigError, RunError, told_as
from fedlit.exchange.outcome import Outcome
from fedlit.exchange.question_terms import elements_of
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.schedule import BEGIN, round_seed
from fedlit.exchange.server import Server
from fedlit.exchange.transport import Answer, Transport
from fedlit.exchange.wire import pack, question_from, question_to, update_to
from fedlit.institutions.consent import Consent
from fedlit.institutions.facts import ADVICE, too_many_steps
from fedlit.institutions.messages import MOST, forms_of, largest, round_of
from fedlit.institutions.plain import Facts, Message
from fedlit.institutions.replies import Closed, Heard, closed, facts_of_all, heard
from fedlit.institutions.traffic import Traffic
from fedlit.meanings import Meaning, digests_of
from fedlit.privacy.ledger import Ledger
from fedlit.privacy.site import Shield
from fedlit.sharing import State, sharing_of

FAREWELL = 60.0
"""The seconds to wait for the coordinator's last reply, on which nothing depends."""

_log = logging.getLogger(__name__)

LOCAL = ("scores/", "train/loss", "checkpoint", "fine-tuned")
"""The topics that stay at the site; methods work without them."""


class Answering(Protocol):
    """The site's end of the connection to the coordinator."""

    def hear(self, seconds: float | None = None) -> bytes:
        """Wait for a message of the coordinator.

        Args:
            seconds: the longest time to wait, in seconds; for ever if None.

        Raises:
            TimeoutError: no message came.
        """

    def answer(self, content: bytes) -> bool:
        """Send a message to the coordinator; returns False if nobody waits for it."""


class SiteTransport(Transport):
    """Sends what the plan lists and receives the result, by requests that can be repeated.

    Args:
        site: the name of the site and of its only client.
        line: the connection to the coordinator.
        rule: the aggregation rule.
        consent: the accepted terms; nothing else leaves.
        traffic: the record of messages.
        ledger: the site's account with this federation.
        scores: returns the site's newest scores; None if the site sends none.
        local: the topics that stay at the site in addition to :data:`LOCAL`.
        seed: the run's seed, from which seeds in questions must be derived; None if it is not
            known.

    Attributes:
        shield: protects the client's updates and answers; None without privacy settings.
        saved: the number of exchanges before the newest checkpoint, behind which the site never goes
            back.
    """

    everybody_here = False

    def __init__(
        self,
        site: str,
        line: Answering,
        rule: Rule,
        consent: Consent,
        traffic: Traffic,
        ledger: Ledger,
        scores: Callable[[], object] | None = None,
        local: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        self.site = site
        self.line = line
        self.rule = rule
        self.consent = consent
        self.traffic = traffic
        self.ledger = ledger
        self._seed = seed
        self._others: int | None = None
        self._facts: dict[str, Message] = {}
        self._asked: dict[int, str] = {}
        self.shield: Shield | None = None
        self.saved = -1
        self._scores = scores
        self._local = (*LOCAL, *local)
        self._next: int | None = None
        self._newest: State = {}
        self._forms: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._most = MOST

    # ------------------------------------------------------------------ saying and hearing

    def _say(
        self,
        key: str,
        message: Message,
        answer: Answer | None = None,
        seconds: float | None = None,
    ) -> Message:
        """Send a request, and answer the rule's questions until the coordinator has replied.

        Raises:
            RunError: the coordinator asks for more answers than were agreed to; each stays in
                memory until the reply.
        """
        answers = dict[int, object]()
        most = self._most_answers(key)
        request = {**message, "saved": self.saved}
        incoming = self._request(key, request, _names(message), seconds)
        while incoming.reply is None:
            number = incoming.number
            if incoming.again:  # a coordinator that was started again has forgotten what it asked
                incoming = self._request(key, request)
                continue
            if answer is None or not incoming.question:
                raise RunError(
                    "expected a reply of the coordinator, found a question or nothing; refused"
                )
            names = None
            if number not in answers:  # once, and with the same bytes again where that was lost
                if most is not None and len(answers) >= most:
                    raise RunError(
                        f"{key}: expected at most {most:,} questions, as agreed to, found one more "
                        "from the coordinator; nothing was answered"
                    )
                # a disk that is full is no fault of the question
                with told_as(_odd, passing=OSError):
                    answers[number], kinds = self._found(
                        int(round_of(key) or 0), incoming.question, answer
                    )
                names = {"question": number, **kinds}
            incoming = self._request(f"{key}/{number}", {"answers": answers[number]}, names)
        return incoming.reply

    def _most_answers(self, key: str) -> int | None:
        """Return how many questions may come before the reply to a request; None for any number.
        Before training the coordinator asks them all again without a site that does not answer.
        """
        most = self.consent.terms.most_questions
        if most is None or round_of(key) != BEGIN:
            return most
        return most * (1 + (self._others or 0))

    def _request(
        self, key: str, message: Message, names: object = None, seconds: float | None = None
    ) -> Heard:
        """Repeat a request until a reply to it comes.

        Args:
            key: the key of the request.
            message: the content of the request.
            names: what is recorded about it; None if the same message was recorded before.
            seconds: the time to wait for the reply, in seconds; for ever if None.
        """
        content = pack({**message, "key": key, "site": self.site})
        if names is not None:
            self.traffic.note(key, content, names)
        sent = self.line.answer(content)
        while True:
            incoming = heard(self.line.hear(seconds if sent else None), self._most)
            if incoming.to == key:
                return incoming
            sent = self.line.answer(content)

    def _found(
        self, number: int, question: Message, answer: Answer
    ) -> tuple[object, dict[str, object]]:
        """Return an answer, and what is recorded about it."""
        if "masked" in question:
            if self.shield is None:
                raise RunError(
                    "the coordinator asks for a part of a masked sum, expected no such question: "
                    "refused"
                )
            masked_answer = self.shield.answer(
                number, question["masked"], lambda put: self._single(number, put, answer)
            )
            if "question" not in question["masked"]:
                self.consent.check_update(forms_of(masked_answer.get("state", {})), {}, masked=True)
            return masked_answer, {
                "masked": sorted(masked_answer.get("state", {})) or sorted(masked_answer)
            }
        put = question_from(question["ask"])
        if self.shield is not None:
            self.shield.refuse_single(put)
        return self._single(number, put, answer), {"kind": question["ask"]["question"]}

    def _single(self, number: int, asked: Question, answer: Answer) -> State:
        """Answer a question from the site's rows if it is within its bounds, and count it before.
        The same question counts once in a round, wherever it comes: a round begins again without a
        site that lied.
        """
        seed = None if self._seed is None else round_seed(self._seed, number)
        terms = self.consent.check_question(asked, self._others, seed)
        # behind other questions it is another one: an answer may depend on them
        form = hashlib.sha256(
            self._asked.get(number, "").encode() + pack(question_to(asked))
        ).hexdigest()
        self._asked = {number: form}
        if terms.times is not None:
            most = elements_of(asked) if terms.elements is None else terms.elements
            kind = terms.counted_as(asked)
            self.ledger.charge(
                number, 0, kind, form, elements_of(asked), times=terms.times, most=most
            )
        state: State = answer(self.site, asked)
        return state

    def _shielded(
        self, number: int, updates: Mapping[str, Update]
    ) -> tuple[dict[str, Update], dict[str, object]]:
        """Return the protected updates, and whether the site calls its own update fit."""
        if self.shield is None:
            return dict(updates), {}
        if self.saved > 0:
            self.shield.forget(self.saved)
        sent = {}
        for name, update in updates.items():
            why = self.shield.unfit(number, update)
            flags = {"unfit": bool(why), "flags": self.shield.flags(number, fit=not why)}
            if why:
                _log.warning("round %d: nothing is sent: %s", number + 1, why)
                return {}, flags  # why is for this site alone
            sent[name] = self.shield.send(number, update)
            return sent, flags
        return sent, {}

    # ------------------------------------------------------------------ a transport

    def share(self, topic: str, own: Facts) -> Message:
        """Send facts that were agreed to; facts that the coordinator does not need stay here."""
        if topic.startswith(self._local):
            return dict(own)
        if set(own) != {self.site}:
            raise ConfigError(
                f"expected one client at this site, of its name {self.site}, found "
                f"{', '.join(sorted(own)) or 'none'}; name the client like the site"
            )
        by_client = told_of(topic, own)
        self.consent.check(topic, by_client[self.site])
        sent = json.loads(json.dumps(by_client[self.site]))
        facts = facts_of_all(
            self._say(f"share:{topic}", {"facts": by_client}), topic, self.site, sent
        )
        self._facts[topic] = facts
        if topic == "federated":
            self._forms = dict(sharing_of({self.site: sent}).forms)
            self._most = largest(sharing_of(facts).forms)
            # of sites that the coordinator invents, none counts if this site has accepted a list of
            # them
            self._others = len(self.consent.terms.federation.get("sites") or facts) - 1
        if topic != "steps":
            return facts
        self._check_steps(facts)
        return {**told_of(topic, facts), **own}

    def _check_steps(self, facts: Facts) -> None:
        """Refuse an epoch that would never end: the sites wait for the one with the most steps.

        Raises:
            RunError: a site takes too many steps; the message names it, whoever invented them.
        """
        for name, problem in too_many_steps(facts, facts[self.site]["steps"]).items():
            raise RunError(f"steps: {name}: {problem}; refused. {ADVICE['steps'].capitalize()}")

    def digest_of_facts(self) -> str:
        """Return the SHA-256 of what the coordinator told of all sites before training."""
        return hashlib.sha256(json.dumps(self._facts, sort_keys=True).encode()).hexdigest()

    def disguise(self, meaning: Meaning) -> Meaning:
        """Return digests of names of inputs and labels, which need not leave the site."""
        return digests_of(meaning, str(self.consent.terms.federation.get("id", "")))

    def takes_part(self, number: int) -> bool:
        """Return whether the site takes part in a round; False if the others went on without it."""
        if self._next is None:
            self._go_on(number, self._say(f"at:{number}", {}))
        return number >= (self._next or 0)

    def _go_on(self, number: int, reply: Message) -> Closed:
        """Check the outcome of a round, and take it over."""
        outcome = closed(reply, self.site, number, self._forms, beside=bool(self.rule.sends))
        if outcome.received:
            self.ledger.receive(outcome.next - 1, outcome.received, once=self.shield is not None)
        self._newest = outcome.received
        self._next = outcome.next
        return outcome

    def exchange(
        self,
        server: Server,
        number: int,
        updates: Mapping[str, Update],
        answer: Answer,
        *,
        measure: bool,
    ) -> Outcome:
        """Run one round. If the others went on without this site, return the newest outcome."""
        if self._next is not None and 0 <= number < self._next:
            received = self._newest if number == self._next - 1 else {}
            if self.shield is not None:
                self.shield.receive(number, received)
            return Outcome({self.site: received} if received else {})
        names = list(chain.from_iterable(update.state for update in updates.values()))
        updates, unfit = self._shielded(number, updates)
        sent = {name: update_to(update, self.rule.needs) for name, update in updates.items()}
        for update in sent.values():
            self.consent.check_update(forms_of(update["state"]), forms_of(update["published"]))
        scores = {"scores": self._scores()} if self._scores is not None and number >= 0 else {}
        reply = self._say(f"round:{number}", {"updates": sent, **unfit, **scores}, answer)
        outcome = self._go_on(number + 1, reply)
        self._check_void(number, outcome, unfit=bool(unfit.get("unfit")))
        received = outcome.received
        if self.shield is not None and outcome.next == max(number + 1, 0):
            self.shield.receive(number, received)
        if self.shield is not None and outcome.void:
            before = self.shield.before(number)
            received = {name: before[name] for name in names}
        if outcome.next > number + 1 and number >= 0:
            _log.warning(
                "the others continued without this site: it continues with round %d, from the "
                "newest state",
                outcome.next + 1,
            )
            return Outcome({}, (), outcome.records)
        received_here = {self.site: received} if received else {}
        return Outcome(
            received_here,
            outcome.lost,
            outcome.records,
            outcome.bytes,
            verdict=outcome.verdict,
            void=outcome.void,
        )

    def _check_void(self, number: int, outcome: Closed, *, unfit: bool) -> None:
        """Refuse a round without a sum where there are no masks, and a sum that lacks this site.

        Raises:
            RunError: the coordinator has said so.
        """
        masked = self.shield is not None and self.shield.privacy.masked is not None
        answered = self.shield is not None and self.shield.answered(number)
        if outcome.void and not masked:
            raise RunError(
                f"round {number + 1}: expected a result from the coordinator, found none; refused"
            )
        if masked and unfit and not outcome.void and not answered:
            raise RunError(
                f"round {number + 1}: expected no sum, because this site called its update unfit, "
                "found one from the coordinator; refused"
            )

    def end(self, scores: object = None) -> None:
        """Tell the coordinator that training is over."""
        with suppress(TimeoutError):  # it may have heard that and left
            content = {} if scores is None else {"scores": scores}
            self._say("done", content, seconds=FAREWELL)


def _odd(error: Exception) -> RunError:
    """Turn an error that a malformed question caused into a refusal."""
    return RunError(
        "expected a question that can be answered from the coordinator, found one at which this "
        f"site failed ({type(error).__name__}: {error}); nothing was answered"
    )


def told_of(topic: str, own: Facts) -> Facts:
    """Return the part of facts that leaves the site. Steps are sent without numbers of rows."""
    if topic == "steps":
        return {name: {"steps": facts["steps"], "rows": 0} for name, facts in own.items()}
    return dict(own)


def _names(message: Message) -> object:
    """Return what is recorded about a message: its tensors with their sizes, or the facts
    themselves.
    """
    if "updates" in message:
        sizes: dict[str, object] = {}
        for update in message["updates"].values():
            for part in ("state", "published"):
                forms = forms_of(update[part])
                sizes[part] = {name: list(form[1]) for name, form in forms.items()}
        if "scores" in message:
            sizes["scores"] = message["scores"]
        return sizes
    return {key: value for key, value in message.items() if key in ("facts", "scores")}
