"""What a coordinator says to a site, in the form that each message must have; nothing else reaches
the site's run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.guard import DONE, Verdict
from fedlit.exchange.rule import DOWN
from fedlit.institutions.messages import check_state, read
from fedlit.institutions.plain import Facts, Message
from fedlit.institutions.topics import HUGE, check_facts, whole
from fedlit.sharing import State

LATEST = 10**9
"""Rounds have smaller numbers."""


@dataclass(frozen=True)
class Heard:
    """A message of the coordinator: a reply, a question, or the wish to hear a request again.

    Attributes:
        to: the key of the request that it belongs to.
        reply: the reply; None for another message.
        again: whether the request shall be said again.
        number: the number of the question.
        question: the question under its kind, ``ask`` or ``masked``; empty for another message.
    """

    to: str
    reply: Message | None = None
    again: bool = False
    number: int = 0
    question: Message = field(default_factory=dict)


def heard(content: bytes, most: int) -> Heard:
    """Read a message of the coordinator.

    Args:
        content: its bytes.
        most: the largest number of bytes.

    Raises:
        RunError: the coordinator refuses this site, or the message is none that a coordinator
            sends.

    Example:
        >>> from fedlit.exchange.wire import pack
        >>> heard(pack({"to": "round:3", "reply": {"next": 4}}), 2**20).reply
        {'next': 4}
    """
    message = read(content, most)
    if "failed" in message:
        raise RunError(f"the coordinator says: {str(message['failed'])[:2000]}")
    if not isinstance(message.get("to"), str):
        raise RunError(
            "expected a reply of a coordinator, found something else; do both run one version?"
        )
    to = message["to"]
    reply = message.get("reply")
    if isinstance(reply, dict):
        return Heard(to, reply=reply)
    if message.get("again") is True:
        return Heard(to, again=True)
    question = {
        kind: message[kind] for kind in ("ask", "masked") if isinstance(message.get(kind), dict)
    }
    if len(question) == 1 and whole(message.get("n")):
        return Heard(to, number=message["n"], question=question)
    if message.keys() == {"to"}:  # a wish to hear the newest request again, whichever it is
        return Heard(to)
    raise RunError(
        "expected a reply or a numbered question of the coordinator, found another; refused"
    )


@dataclass(frozen=True)
class Closed:
    """The reply to a site in a closed round.

    Attributes:
        next: the next round in which the site takes part.
        received: the named tensors that the site receives; they are finite and have the forms of
            the plan.
        lost: whether the site's own update was not finite, or it sat out.
        records: values to log, by key.
        bytes: the bytes that travelled.
        verdict: the findings of the guard about this site.
        void: the sites that called their update unfit, because of which there is no sum; nothing is
            received then.
    """

    next: int
    received: State
    lost: tuple[str, ...] = ()
    records: Mapping[str, float] = field(default_factory=dict)
    bytes: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    void: tuple[str, ...] = ()


def closed(
    reply: Message,
    site: str,
    number: int,
    forms: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    beside: bool,
) -> Closed:
    """Check the reply to a site in a closed round.

    Args:
        reply: the reply.
        site: the name of the site.
        number: the least number of the next round.
        forms: maps the name of each federated tensor of the site to its (dtype, shape).
        beside: whether the rule may send other tensors, whose names begin with
            :data:`~fedlit.exchange.rule.DOWN`.

    Raises:
        RunError: a part of the reply has another form; the message names it.
    """
    after = reply.get("next", -1)
    received = reply.get("received", {})
    lost = reply.get("lost", [])
    records = reply.get("records", {})
    weight = reply.get("bytes", 0)
    void = reply.get("void", [])
    valid = {
        "next": whole(after) and max(number, 0) <= after < LATEST,
        "lost": isinstance(lost, list)
        and all(isinstance(name, str) and name == site for name in lost),
        "records": isinstance(records, dict) and all(map(_is_number, records.values())),
        "bytes": whole(weight),
        "received": isinstance(received, dict),
        "void": isinstance(void, list)
        and all(isinstance(name, str) for name in void)
        and not (void and received),
    }
    if wrong := [part for part, fit in valid.items() if not fit]:
        raise RunError(
            f"expected the reply to {site} behind round {number} from the coordinator, found one "
            f"with another {wrong[0]} ({reply.get(wrong[0])!r:.40}); refused"
        )
    _check_received(received, forms, beside=beside)
    verdict = _verdict(reply.get("verdict"), site)
    return Closed(int(after), received, tuple(lost), records, weight, verdict, tuple(void))


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < HUGE)


def _check_received(
    received: Message, forms: Mapping[str, tuple[str, tuple[int, ...]]], *, beside: bool
) -> None:
    beside_names = {name for name in received if beside and name.startswith(DOWN)}
    check_state(
        {name: value for name, value in received.items() if name not in beside_names},
        forms,
        "received",
    )
    for name, value in received.items():
        if not isinstance(value, Tensor) or not bool(torch.isfinite(value).all()):
            raise RunError(
                f"received: {name}: expected finite values from the coordinator, found others; "
                "refused"
            )


def _verdict(found: object, site: str) -> Verdict:
    """Return what the coordinator's guard found about this site."""
    if not isinstance(found, dict):
        return Verdict()
    sizes: dict[str, dict[str, float]] = {}
    for done in DONE:
        named = found.get(done)
        size = named.get(site) if isinstance(named, dict) else None
        sizes[done] = {site: float(size)} if size is not None and _is_number(size) else {}
    grown = [site] if any(sizes.values()) and _names(found.get("grown"), site) else []
    doubt = [site] if sizes["watched"] and _names(found.get("doubt"), site) else []
    return Verdict(**sizes, doubt=doubt, grown=grown)


def _names(found: object, site: str) -> bool:
    return isinstance(found, list) and any(isinstance(name, str) and name == site for name in found)


def facts_of_all(reply: Message, topic: str, site: str, sent: object) -> Facts:
    """Check the facts of all sites, among which must be those that this site has sent.

    Args:
        reply: the reply.
        topic: what the facts are about.
        site: the name of the site.
        sent: what it has sent, as plain data.

    Raises:
        RunError: facts that no site sends, or others of this site.
    """
    facts = reply.get("facts")
    if not isinstance(facts, dict):
        raise RunError(
            f"expected what all said of {topic} from the coordinator, found something else; refused"
        )
    if facts.get(site) != sent:
        raise RunError(
            f"expected the coordinator to repeat what {site} said of {topic}, found something else"
        )
    check_facts(topic, facts)
    return facts
