"""The coordinator's side of a federation across institutions: one rule, and sites that may leave
and come back.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from torch import Tensor

from fedlit.errors import FedlitError, RunError, told_as
from fedlit.exchange.named import Named
from fedlit.exchange.questions import Question, wrong_answer
from fedlit.exchange.server import BEGIN, Outcome, Server
from fedlit.exchange.wire import pack, question_to
from fedlit.institutions.extra import Lost
from fedlit.institutions.facts import most_common, odd_ones, too_long
from fedlit.institutions.journal import Journal
from fedlit.institutions.messages import (
    HEAD,
    MOST,
    check_update,
    largest,
    question_of,
    read,
    round_of,
    topic_of,
    wrong_settings,
)
from fedlit.institutions.topics import SCORES, TOPICS, are_scores, check_facts
from fedlit.privacy.coordinator import Gathering
from fedlit.privacy.settings import Privacy

_log = logging.getLogger(__name__)

POLL = 0.5
SAY = 60.0
"""The seconds after which the coordinator repeats for whom it waits."""
REST = 2**16
"""The bytes of a reply's text beside the facts in it."""
VOID = 3
"""The rounds in a row without a masked sum, or without answers that a rule can use, after which a
federation stops; and the rounds that a site may leave without its answer."""


@dataclass(frozen=True)
class Patience:
    """When a round goes on without a site.

    Attributes:
        seconds: the time that the others wait for a site that has not answered, in seconds.
        minimum: the number of sites that a round needs.
        repeat: the time in seconds after which a site that has not answered is asked where it is,
            because its message may be lost.
    """

    seconds: float
    minimum: int
    repeat: float = 60.0


@dataclass
class _Asking:
    """The questions of a rule to one site within a round, and the answers that have come.

    Attributes:
        questions: what was put to the site, as it is sent.
        asked: the same questions, as the rule asks them; None where a masked sum was asked for.
        at: the number of the next question.
        answers: the answers, by the number of the question.
    """

    questions: list[dict[str, Any]] = field(default_factory=list)
    asked: list[Question | None] = field(default_factory=list)
    at: int = 0
    answers: dict[int, Any] = field(default_factory=dict)


class _UnansweredError(FedlitError):
    """Some sites have not answered what a rule asked, and the others can go on without them."""

    def __init__(self, sites: Sequence[str]) -> None:
        super().__init__(f"expected answers of {', '.join(sites)}, found none")
        self.sites = sites


class Line(Protocol):
    """The connection to the sites. A request may arrive twice, or late. The line resends a reply
    that is lost.

    All methods raise :class:`~fedlit.institutions.extra.Lost` if the line is gone.
    """

    def sites(self) -> frozenset[str]:
        """Return the sites that are there now, by the names that their keys were registered
        with.
        """

    def reply(self, site: str, content: bytes) -> None:
        """Send a reply to a site, which answers with its next request. A new reply replaces one
        that is on its way.

        Args:
            site: the site, which may be away.
            content: the reply.
        """

    def requests(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """Return the requests that have come.

        Args:
            timeout: the time to wait for the first request, in seconds.

        Returns:
            (site, request) in the order in which they came. A request that is longer than allowed,
            or not one of fedlit, is replaced by its error.
        """


class SitesServer:
    """Applies the rule to what sites send, and replies to each request under its key.

    A request for the open round waits until the round is closed, or until the rule asks something.
    A request for something closed gets the reply in the journal.

    Args:
        server: applies the rule.
        line: the connection to the sites.
        journal: what was sent and replied before.
        settings: the coordinator's own settings: key → value; every site must have the same.
        patience: when a round goes on without a site.
        report: called with this server, to report how far the federation is.
        privacy: what protects sites.
        rounds: the number of rounds, if it is known; otherwise 0.
        meet: raises an error if clients cannot agree on what they send of their columns, by client.

    Attributes:
        refused: maps each site to why its last message was refused.
        scores: maps each site to the scores that it last sent, if it agreed to send any.
        bytes: the bytes of all messages, both ways, since the coordinator was started.
        named: counts the clients that the guard named, since the coordinator was started.
    """

    def __init__(
        self,
        server: Server,
        line: Line,
        journal: Journal,
        settings: Mapping[str, Any],
        patience: Patience,
        report: Callable[[SitesServer], None] = lambda server: None,
        privacy: Privacy | None = None,
        rounds: int = 0,
        meet: Callable[[Mapping[str, Any]], object] = lambda facts: None,
    ) -> None:
        self.server = server
        self.line = line
        self.journal = journal
        self.settings = settings
        self.patience = patience
        self._report = report
        self.privacy = privacy or Privacy()
        self.rounds = rounds
        self._meet = meet
        self.sites: Sequence[str] = journal.sites
        self.waiting: dict[str, dict[str, Any]] = {}
        self._open: dict[str, str] = {}  # site → key of its request that has no reply yet
        self.away: set[str] = set()
        self.done: set[str] = set(journal.done)
        self.refused: dict[str, str] = {}
        self.scores: dict[str, Any] = {}
        self.bytes = 0
        self.named = Named()
        self._since = time.monotonic()
        self._sent = dict.fromkeys(self.sites, self._since)
        self._asking: dict[str, _Asking] | None = None
        self._begun = self._since
        self._counted = 0
        self._told_of: set[tuple[int, str]] = set()
        self._said_at = self._since
        self._unanswered = Counter[str]()
        self._unused = 0
        self.most = MOST
        if journal.begun:
            for topic, said in journal.told.items():
                server.tell(topic, said)
            if journal.memory:  # nothing is remembered before the first round
                server.recall(journal.memory)
            self._bound()

    @property
    def left_out(self) -> frozenset[str]:
        """The sites without which training began: the others have agreed on facts, or begun,
        without them.
        """
        agreed = [*self.journal.told.values()]
        if began := self.journal.took.get(BEGIN):
            agreed.append(dict.fromkeys(began))
        return frozenset(site for site in self.sites if not all(site in sites for sites in agreed))

    @property
    def members(self) -> list[str]:
        """The sites that take part, or may come back to do so."""
        left_out = self.left_out
        return [site for site in self.sites if site not in left_out]

    def run(self) -> None:
        """Serve until all sites are done.

        Raises:
            FedlitError: the federation cannot continue; all sites are informed.
            Lost: the line is gone; a new server, with a new line, continues where this one was.
        """
        try:
            for site in self.sites:
                self._send(site, {})
            while not self._over():
                for site, content in self.line.requests(POLL):
                    self._take(site, content)
                self._advance()
                self._repeat()
                self._report(self)
            for site in self.sites:
                self._send(site, {"reply": {}}, "done")
            self.line.requests(POLL)
        except Lost:
            raise
        except FedlitError as error:
            self._fail(str(error))
            raise
        except Exception as error:
            self._fail("the coordinator failed; look at its messages, and let it start again")
            raise RunError(f"the coordinator failed: {type(error).__name__}: {error}") from error

    def _repeat(self) -> None:
        """Ask sites that have been silent for long where they are."""
        now = time.monotonic()
        for site in self.sites:
            if (
                site not in self._open
                and site not in self.done
                and now - self._sent[site] > self.patience.repeat
            ):
                self._send(site, {})

    def _fail(self, reason: str) -> None:
        for site in self.sites:
            self._send(site, {"failed": reason})
        self.line.requests(POLL)

    def _over(self) -> bool:
        here = self.line.sites()
        left = [site for site in self.members if site not in self.done]
        late = time.monotonic() - self._since > self.patience.seconds
        ended = bool(self.done) or 0 < self.rounds <= self.journal.number
        return not left or (
            ended and late and not self.waiting and not any(site in here for site in left)
        )

    def _send(self, site: str, message: Mapping[str, Any], key: str = "") -> None:
        """Reply to the request of this key. An empty key asks the site to repeat its request."""
        content = pack({**message, "to": key})
        self._sent[site] = time.monotonic()
        self.bytes += len(content)
        self.line.reply(site, content)

    # ------------------------------------------------------------------ what sites say

    def _take(self, site: str, content: bytes | RunError) -> None:
        if isinstance(content, RunError):
            self._refuse(site, str(content))
            return
        self.bytes += len(content)
        try:
            with told_as(_odd):
                message = self._checked(site, content)
        except FedlitError as error:
            self._refuse(site, str(error))
            return
        self.away.discard(site)
        self.refused.pop(site, None)
        if "scores" in message:
            self.scores[site] = message["scores"]
        key = message["key"]
        if round_of(key) is not None and isinstance(message.get("saved"), int):
            self.journal.saved(site, message["saved"])
        if key == "done":
            if site not in self.done:  # one that says so again and again keeps nobody waiting
                self._since = time.monotonic()
            self.done.add(site)
            self.journal.ended(site)
            self.waiting.pop(site, None)
            self._send(site, {"reply": {}}, key)
            return
        try:
            # this machine's fault, not that of the message
            with told_as(_odd, passing=(OSError, Lost)):
                self._serve(site, key, message)
        except FedlitError as error:
            self._refuse(site, str(error))

    def _serve(self, site: str, key: str, message: dict[str, Any]) -> None:
        """Reply to a request, or keep it until its reply is known.

        Raises:
            FedlitError: the request cannot be replied to; its sender is told why.
        """
        number = round_of(key)
        asked = question_of(key)
        if key.startswith("at:"):
            self._stand(site, key)
        elif (topic := topic_of(key)) is not None and topic in self.journal.told:
            self._again(site, topic, message)
        elif number is not None and number < self.journal.number:
            self._late(site, key, number)
        elif number is not None and self._asking is not None:
            self._go_on(site, key, message)
        elif asked is not None:  # a coordinator that was started again has forgotten what it asked
            self._send(site, {"again": True}, key)
        else:
            if not self.waiting:
                self._since = time.monotonic()
            self.waiting[site] = message
            self._open[site] = key

    def _checked(self, site: str, content: bytes) -> dict[str, Any]:
        message = read(content, self.most)
        if message.get("site") != site:
            raise RunError(f"the key of {site} was used for a message of {message.get('site')!r}")
        if site in self.left_out:
            raise RunError(
                "training began without it; it can take part if all let the federation begin anew"
            )
        if self._unanswered[site] >= VOID:
            raise RunError(
                f"{VOID} rounds were lost because it did not answer the rule; the others go on "
                "without it until the coordinator is started again"
            )
        key = message.get("key")
        if not isinstance(key, str) or not (
            key == "done"
            or key.startswith("at:")
            or topic_of(key) is not None
            or round_of(key) is not None
        ):
            raise RunError(
                f"expected a key of this protocol, found {key!r}; do both sides run the same "
                "version?"
            )
        if (topic := topic_of(key)) is not None:
            if topic not in TOPICS or (topic not in self.journal.told and self.journal.took):
                raise RunError(
                    f"expected facts that are sent before training, found {topic!r}; do all sites "
                    "run the same version?"
                )
            facts = message.get("facts")
            if not isinstance(facts, dict) or set(facts) != {site}:
                raise RunError(f"expected facts of {site}, found others")
            check_facts(topic, facts)
            if topic == "settings" and (wrong := wrong_settings(self.settings, facts[site])):
                raise RunError(
                    f"settings differ: {wrong}; give all sites the coordinator's federation.yaml"
                )
        if not are_scores(message.get("scores"), site):
            raise RunError(
                f"expected scores of {site} by name, at most {SCORES} of them, found something else"
            )
        number = round_of(key)
        if number is not None and (
            "federated" not in self.journal.told or number > self.journal.number
        ):
            raise RunError(
                f"it is at round {number + 1}, the others at {self.journal.number + 1} or before "
                "training; do all have the same federation.yaml, and the folders that they began "
                "with?"
            )
        if key == "done" and not self.journal.took:
            raise RunError(
                "it says that training is over before the first round; is trainer.max_epochs 0 "
                "there?"
            )
        if number is not None and question_of(key) is None:
            manifest = self.journal.told.get("manifest", {}).get(site, {}).get(site, {})
            check_update(
                message, site, self.server.sharing, manifest, masked=self.privacy.masked is not None
            )
        return message

    def _refuse(self, site: str, reason: str) -> None:
        """Refuse a message and tell its sender why; the other sites go on."""
        reason = f"site {site}: {reason}"
        if self.refused.get(site) != reason:
            _log.warning("%s; refused", reason)
        if site not in self.left_out or site not in self.refused:  # why it was left out says more
            self.refused[site] = reason
        self.waiting.pop(site, None)
        self._open.pop(site, None)
        self._send(site, {"failed": reason})

    def _again(self, site: str, topic: str, message: Mapping[str, Any]) -> None:
        """Reply to facts that a site has sent before, because it was started again."""
        told = self.journal.told[topic]
        if message["facts"] != {site: told[site][site]}:
            wrong = wrong_settings(told[site][site], message["facts"][site])
            raise RunError(
                f"{topic}: expected the same facts as before the restart, found something else "
                f"({wrong}); give it the same table and settings, or let all begin anew"
            )
        self._send(site, {"reply": {"facts": _merged(told)}}, message["key"])

    def _stand(self, site: str, key: str) -> None:
        """Reply to a site that begins, or begins again, with the round in which it may take
        part.
        """
        digits = key.removeprefix("at:")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise RunError(f"expected the number of a round, found {digits!r}")
        number = int(digits)
        if number > max(self.journal.number, 0):
            raise RunError(
                f"it is at round {number + 1}, the coordinator at {self.journal.number + 1}: the "
                "folder of the coordinator is of another federation, or was restored from a "
                "backup; begin anew at all sites"
            )
        after = self.journal.after(number - 1, site)
        reply: dict[str, Any] = {"next": after}
        if after > number:
            reply["received"] = self.journal.read(after - 1, site)["received"]
            _log.info("%s restarts at round %d; it missed %d", site, after + 1, after - number)
        self._send(site, {"reply": reply}, key)

    def _late(self, site: str, key: str, number: int) -> None:
        """Reply to a request for a closed round: the reply of that round, or the newest if the site
        was not in it.
        """
        after = self.journal.after(number, site)
        last = number if after == max(number + 1, 0) else after - 1
        if (
            number >= 0
            and site not in self.journal.took[number]
            and (number, site) not in self._told_of
        ):
            self._told_of.add((number, site))
            _log.warning(
                "%s: its update of round %d came too late and is not used; it goes on with round %d",
                site,
                number + 1,
                after + 1,
            )
        self._send(site, {"reply": {**self.journal.read(last, site), "next": after}}, key)

    # ----------------------------------------------------------- what is done when all have said it

    def _advance(self) -> None:
        keys = {site: message["key"] for site, message in self.waiting.items()}
        if not keys:
            return
        missing = [site for site in self.members if site not in self.done and site not in keys]
        usual = most_common(keys) or next(iter(keys.values()))
        before = self.journal.number == BEGIN or topic_of(usual) is not None
        if missing and not (
            self._begins_without(missing) if before else self._goes_on_without(missing)
        ):
            return
        if not self._same(keys):
            return
        if (topic := topic_of(usual)) is not None:
            self._share(topic)
        else:
            self._round()

    def _begins_without(self, missing: Sequence[str]) -> bool:
        """Return whether training may begin without sites. It waits for those that have never come.
        A site that was refused, or has come and says no more, is waited for as long as one in a
        round, unless protection needs all.
        """
        waited = time.monotonic() - self._since
        come = self.refused.keys() | self.journal.told.get("settings", {}).keys()
        enough = len(self.waiting) >= self.patience.minimum and not self.privacy.on
        if waited < self.patience.seconds or not enough or not come.issuperset(missing):
            self._say_waiting("before training", missing, waited)
            return False
        for site in missing:
            _log.warning("before training: the others begin without %s (%s)", site, self._why(site))
        self._leave_out(missing)
        return True

    def _leave_out(self, sites: Sequence[str]) -> None:
        """Begin training without sites, as if they had never said anything."""
        self.away.update(sites)
        self.journal.leave_out(sites)
        for topic, said in self.journal.told.items():
            self.server.tell(topic, said)

    def _goes_on_without(self, missing: Sequence[str]) -> bool:
        """Return whether the open round may be closed without sites. Those that are known to be
        away are not waited for again.
        """
        waited = time.monotonic() - self._since
        where = f"round {self.journal.number + 1}"
        new = [site for site in missing if site not in self.away]
        if len(self.waiting) < self.patience.minimum:
            self._say_waiting(where, missing, waited)
            return False
        if new and waited < self.patience.seconds:
            return False
        if new:
            self.away.update(new)
            _log.warning(
                "%s: %s stayed away for %.0f seconds; the others go on",
                where,
                ", ".join(new),
                waited,
            )
        return True

    def _say_waiting(self, where: str, missing: Sequence[str], waited: float) -> None:
        """Say for whom the others wait, and why, as soon as patience is over and then every
        minute.
        """
        now = time.monotonic()
        if waited < self.patience.seconds or (
            set(missing) <= self.away and now - self._said_at < SAY
        ):
            return
        self.away.update(missing)
        self._said_at = now
        reasons = ", ".join(f"{site} ({self._why(site)})" for site in missing)
        _log.warning(
            "%s: %d of at least %d sites have answered for %.0f seconds; waiting for %s",
            where, len(self.waiting), self.patience.minimum, waited, reasons,
        )  # fmt: skip

    def _why(self, site: str) -> str:
        """Return why there is no answer of a site."""
        silent = "it has not answered" if site in self.line.sites() else "it is not there"
        return self.refused.get(site, silent)

    def _same(self, keys: Mapping[str, str]) -> bool:
        """Return whether all sites are at the same point; refuse those that are elsewhere than
        most.
        """
        if len(set(keys.values())) == 1:
            return True
        usual = most_common(keys)
        for site, key in keys.items():
            if key != usual:
                others = ", ".join(sorted({own for own in keys.values() if own != key}))
                self._refuse(
                    site,
                    f"expected all sites at the same point, found it at {key} and others at "
                    f"{others}; do all have the same federation.yaml?",
                )
        return False

    def _share(self, topic: str) -> None:
        said = {site: message["facts"] for site, message in sorted(self.waiting.items())}
        facts = _merged(said)
        if odd := too_long(topic, facts, HEAD - REST) or odd_ones(topic, facts, self._meet):
            for site, why in odd.items():
                self._refuse(site, why)
            return
        if topic == "settings":
            _log.info("%s are here, and have the same settings", ", ".join(said))
        self.server.tell(topic, said)
        self.journal.tell(topic, said)
        self._bound()
        self._reply_all({site: {"facts": facts} for site in said})

    def _bound(self) -> None:
        """Bound the bytes of a message, once it is known which tensors travel."""
        if self.server.sharing.forms:
            self.most = largest(self.server.sharing.forms)

    def _round(self) -> None:
        number = self.journal.number
        present = dict(sorted(self.waiting.items()))
        before = self.journal.memory or self.server.memory()
        self._asking = {}
        try:
            outcome, took = self._aggregate(number, present)
            self._unused = 0
        except FedlitError as error:
            outcome, took = self._without_answers(error, present, before)
        finally:
            self._asking = None
        records = {key: float(value) for key, value in outcome.records.items()}
        replies = {site: self._reply(site, outcome, records) for site in self.members}
        self.journal.close(took, replies, self.server.memory(), outcome.void)
        if outcome.void:
            self._check_void()
        for name in outcome.lost:
            why = "it sits out" if present[name].get("unfit") else "its update was not finite"
            _log.warning("round %d: %s is left out: %s", number + 1, name, why)
        self.named.take(outcome.verdict, number, took, void=outcome.void)
        if number >= 0:
            seconds = time.monotonic() - self._begun
            away = [site for site in self.members if site not in took]
            _log.info(
                "round %d: %s%s; %.1f s, %s bytes",
                number + 1,
                ", ".join(took),
                f" (without {', '.join(away)})" if away else "",
                seconds,
                f"{self.bytes - self._counted:,}",
            )
        self._begun = time.monotonic()
        self._counted = self.bytes
        after = {site: {**replies[site], "next": self.journal.after(number, site)} for site in took}
        self._reply_all(after)

    def _aggregate(
        self, number: int, present: Mapping[str, Mapping[str, Any]]
    ) -> tuple[Outcome, list[str]]:
        """Run a round, and return its outcome and the sites that took part."""
        sent = {
            name: own for message in present.values() for name, own in message["updates"].items()
        }
        unfit = tuple(site for site, message in present.items() if message.get("unfit"))
        if self.privacy.masked is None:
            outcome = self.server.round(
                number, self.server.updates_of(sent), self._ask, measure=True
            )
            return replace(outcome, lost=tuple(sorted({*outcome.lost, *unfit}))), list(present)
        if unfit:
            return Outcome({}, void=unfit), list(present)
        flags = {site: (True, own["flags"]) for site, own in present.items() if "flags" in own}
        gathering = Gathering(
            self.privacy.masked,
            self.server.rule,
            self.server.sharing,
            number,
            flags,
            self._put_masked,
        )
        ask = gathering.asking(self._ask)
        outcome = self.server.round(number, gathering.gather(), ask, measure=False, guarded=False)
        return outcome, list(present)

    def _without_answers(
        self,
        error: FedlitError,
        present: Mapping[str, Mapping[str, Any]],
        before: Mapping[str, Any],
    ) -> tuple[Outcome, list[str]]:
        """Close a round in which the rule got no answers that it can use: nobody receives anything,
        and the next round counts. What clients start from cannot be left open: that is asked again,
        of the others.

        Args:
            error: why the round has no result.
            present: maps the sites that took part to their messages.
            before: the state of the rule and the guard before the round.

        Raises:
            FedlitError: the error has another reason, or there were several such rounds in a row.
        """
        missing = list(error.sites) if isinstance(error, _UnansweredError) else []
        others = {site: message for site, message in present.items() if site not in missing}
        begin = self.journal.number == BEGIN
        self._unused += 1
        if not missing and (begin or not self._asking or self.privacy.on or self._unused >= VOID):
            raise error
        self._unanswered.update(missing)
        for site in missing:  # if it is there after all, it is asked where it is
            self._open.pop(site, None)
        self.server.recall(before)
        if begin:
            _log.warning(
                "before training: the others begin without %s, which did not answer",
                ", ".join(missing),
            )
            self._leave_out(missing)
            return self._aggregate(BEGIN, others)
        self.away.update(missing)
        _log.warning(
            "round %d has no result, and the next one counts: %s", self.journal.number + 1, error
        )
        return Outcome({}), list(others)

    def _check_void(self) -> None:
        """Stop after several rounds without a sum, once the last one is in the journal.

        Raises:
            RunError: there were too many in a row.
        """
        rounds = self.journal.void_in_a_row()
        names = sorted({site for number in rounds for site in self.journal.void[number]})
        if BEGIN in rounds or len(rounds) >= VOID:
            raise RunError(
                f"masked sums: expected every site to have a fit update at least once in {VOID} "
                f"rounds, found none summed in the last {len(rounds)} because of "
                f"{', '.join(names)}, whose log says why. Mend it, and start all again from their "
                "checkpoints; or take it off the list of sites, which are new terms that a person "
                "at each of the others accepts"
            )

    def _reply(self, site: str, outcome: Outcome, records: Mapping[str, float]) -> dict[str, Any]:
        """Return the reply to a site, without what was measured of other sites."""
        others = tuple(f"{own}/" for own in self.sites if own != site)
        own = {key: value for key, value in records.items() if not key.startswith(others)}
        received = {
            key: value.detach().cpu().clone()
            for key, value in outcome.received.get(site, {}).items()
        }
        lost = [name for name in outcome.lost if name == site]
        verdict = outcome.verdict.to_dict([site])
        reply = {
            "received": received,
            "lost": lost,
            "records": own,
            "bytes": outcome.bytes,
            "verdict": verdict,
        }
        return {**reply, "void": list(outcome.void)}

    def _reply_all(self, replies: Mapping[str, Mapping[str, Any]]) -> None:
        self.waiting = {}
        self._since = time.monotonic()
        for site, reply in replies.items():
            self._send(site, {"reply": reply}, self._open.pop(site, ""))

    # -------------------------------------------------------------- what a rule asks within a round

    def _ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        return self._put_all(
            {site: {"ask": question_to(own)} for site, own in questions.items()}, questions
        )

    def _put_masked(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return self._put_all({site: {"masked": dict(own)} for site, own in questions.items()})

    def _put_all(
        self,
        questions: Mapping[str, Mapping[str, Any]],
        asked: Mapping[str, Question] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Ask sites, and wait until all have answered.

        Args:
            questions: maps each site to what is sent to it.
            asked: maps each site to the question of the rule, where it is one.
        """
        assert self._asking is not None
        numbers = {}
        for site, question in questions.items():
            own = self._asking.setdefault(site, _Asking())
            own.questions.append(dict(question))
            own.asked.append(asked.get(site))
            numbers[site] = len(own.questions) - 1
            self._put(site)
        since = time.monotonic()
        while left := [site for site, n in numbers.items() if n not in self._asking[site].answers]:
            for site, content in self.line.requests(POLL):
                self._take(site, content)
            self._repeat()
            waited = time.monotonic() - since
            enough = (
                len(self.waiting.keys() - set(left)) >= self.patience.minimum
                and not self.privacy.on
            )
            if waited > self.patience.seconds and enough:
                raise _UnansweredError(left)
            self._say_waiting(
                f"round {self.journal.number + 1}, a question of the rule", left, waited
            )
            self._report(self)
        return {site: self._asking[site].answers.pop(n) for site, n in numbers.items()}

    def _put(self, site: str) -> None:
        """Ask a site the next question, if there is one and the site waits for it."""
        assert self._asking is not None
        own = self._asking[site]
        if own.at < len(own.questions) and site in self._open:
            self._send(site, {"n": own.at, **own.questions[own.at]}, self._open.pop(site))

    def _go_on(self, site: str, key: str, message: Mapping[str, Any]) -> None:
        """Take the answer to a question. A site that was started again within a round has answered
        none yet. It is asked all questions again, because later answers may depend on earlier
        questions.
        """
        assert self._asking is not None
        own = self._asking.get(site, _Asking())
        asked = question_of(key)
        if asked is not None and asked + 1 < own.at:
            return  # it came twice
        if asked is not None and asked >= len(own.questions) and site in self._asking:
            # an answer to what this coordinator has not asked
            self._send(site, {"again": True}, key)
            return
        if asked is not None and asked < len(own.questions):
            _check_answer(own.asked[asked], message.get("answers"))
            own.answers[asked] = message["answers"]
        own.at = 0 if asked is None else asked + 1
        self._open[site] = key
        if site in self._asking:
            self._put(site)


def _check_answer(question: Question | None, answer: Any) -> None:
    """Refuse an answer that the rule cannot use.

    Args:
        question: what the rule asks; None if a masked sum was asked for.
        answer: of a site.

    Raises:
        RunError: it has another form than the question asks for.
    """
    if not _is_answer(answer, masked=question is None):
        raise RunError("expected a tensor or named tensors as answer, found something else")
    if question is not None and (wrong := wrong_answer(question, answer)):
        raise RunError(f"expected {wrong} as answer, found something else")


def _odd(error: Exception) -> RunError:
    """Turn an error that a message which nobody would send caused into a refusal."""
    return RunError(
        f"expected a message of a site, found one that cannot be one ({type(error).__name__})"
    )


def _is_answer(answer: Any, *, masked: bool) -> bool:
    if masked:
        return isinstance(answer, dict) and _is_answer(answer.get("state"), masked=False)
    named = isinstance(answer, dict) and all(isinstance(own, Tensor) for own in answer.values())
    return isinstance(answer, Tensor) or named


def _merged(said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return dict(sorted((client, told) for own in said.values() for client, told in own.items()))
