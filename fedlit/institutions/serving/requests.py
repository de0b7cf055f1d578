"""The requests of sites: their kinds, and the form that each must have whatever state the
coordinator is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fedlit.errors import RunError
from fedlit.institutions.messages import question_of, round_of, topic_of
from fedlit.institutions.plain import Facts, Message
from fedlit.institutions.topics import SCORES, TOPICS, are_scores, check_facts

_STANDING = "at:"
_END = "done"


class Kind(StrEnum):
    """What a site wants. The values are the words of messages."""

    FACTS = "facts"
    STANDING = "the question where it stands"
    UPDATE = "an update"
    ANSWER = "an answer to the rule"
    END = "the end of its training"


@dataclass(frozen=True)
class Request:
    """A request of a site.

    Attributes:
        site: the site.
        key: the key, to which the reply belongs.
        kind: what the site wants.
        content: the whole message.
        topic: the topic of facts; empty for other kinds.
        number: the round of an update or an answer, or the one at which a site begins; 0 for other
            kinds.
        question: the number of the question that is answered; 0 for other kinds.
    """

    site: str
    key: str
    kind: Kind
    content: Message
    topic: str = ""
    number: int = 0
    question: int = 0

    @property
    def facts(self) -> Facts:
        """The facts of the site, by client: its own is the only one."""
        facts: Facts = self.content["facts"]
        return facts


def request_of(site: str, message: Message) -> Request:
    """Return what a site wants.

    Args:
        site: the name that the sender's key was registered with.
        message: its message, which may be anything.

    Raises:
        RunError: it is signed by another site, or has a key that is not of this protocol.

    Example:
        >>> request_of("north", {"site": "north", "key": "round:3/0"}).kind
        <Kind.ANSWER: 'an answer to the rule'>
    """
    if message.get("site") != site:
        raise RunError(f"the key of {site} was used for a message of {message.get('site')!r}")
    key = message.get("key")
    if isinstance(key, str):
        if key == _END:
            return Request(site, key, Kind.END, message)
        if key.startswith(_STANDING):
            return Request(site, key, Kind.STANDING, message, number=_round_in(key))
        topic = topic_of(key)
        if topic is not None:
            return Request(site, key, Kind.FACTS, message, topic=topic)
        number = round_of(key)
        question = question_of(key)
        if number is not None and question is not None:
            return Request(site, key, Kind.ANSWER, message, number=number, question=question)
        if number is not None and "/" not in key:
            return Request(site, key, Kind.UPDATE, message, number=number)
    raise RunError(
        f"expected a key of this protocol, found {key!r}; do both sides run the same version?"
    )


def _round_in(key: str) -> int:
    digits = key.removeprefix(_STANDING)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise RunError(f"expected the number of a round, found {digits!r}")
    return int(digits)


def check_form(request: Request) -> None:
    """Refuse facts and scores that no site sends.

    Raises:
        RunError: they have another form, or are of another site.
    """
    site = request.site
    if request.kind is Kind.FACTS:
        if request.topic not in TOPICS:
            raise RunError(
                f"expected facts that are sent before training, found {request.topic!r}; do all "
                "sites run the same version?"
            )
        facts = request.content.get("facts")
        if not isinstance(facts, dict) or set(facts) != {site}:
            raise RunError(f"expected facts of {site}, found others")
        check_facts(request.topic, facts)
    if not are_scores(request.content.get("scores"), site):
        raise RunError(
            f"expected scores of {site} by name, at most {SCORES} of them, found something else"
        )
