"""What sites send before training: the form that each topic must have, and which sites disagree with the others."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fedlit.data.agree import Terms, agree
from fedlit.data.moments import Moments
from fedlit.errors import FedlitError, RunError, told_as
from fedlit.meanings import INPUTS, LABELS
from fedlit.tasks import TASKS

Form = Callable[[Any], bool]
"""Returns whether plain data has a form."""

LARGEST = 2**30
"""The largest number of bytes of all federated tensors of a site, and of all that it publishes."""
MANY = 2**20
"""The largest number of entries of a list or a mapping."""
HUGE = 2**53
"""Whole numbers are below it: all of them are numbers in float64, too."""
DEEP = 64
"""The largest number of dimensions of a tensor. The product of a million sizes would keep a process busy for hours."""


# ---------------------------------------------------------------------- forms


def whole(value: Any) -> bool:
    """Return whether a value is a whole number of something, from 0.

    Example:
        >>> [whole(value) for value in (0, 7, -1, True, 1.0, 10**400)]
        [True, True, False, False, False, False]
    """
    return type(value) is int and 0 <= value < HUGE


def _positive(value: Any) -> bool:
    return whole(value) and value > 0


def _flag(value: Any) -> bool:
    return type(value) is bool


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < HUGE
    return isinstance(value, float) and math.isfinite(value)


def _scalar(value: Any) -> bool:
    return isinstance(value, str | bool) or _number(value)


def _optional(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _list_of(form: Form, least: int = 0) -> Form:
    return lambda value: isinstance(value, list) and least <= len(value) <= MANY and all(map(form, value))


def _names_of(form: Form) -> Form:
    """Return the form of mappings whose values have a form."""
    return lambda value: isinstance(value, dict) and len(value) <= MANY and all(map(form, value.values()))


def _fields(needed: Mapping[str, Form], others: Mapping[str, Form] | None = None) -> Form:
    """Return the form of mappings that have all of the needed keys, and otherwise only some of the others."""
    forms = {**needed, **(others or {})}

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or not needed.keys() <= value.keys() <= forms.keys():
            return False
        return all(forms[key](part) for key, part in value.items())

    return fits


def _plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


# ---------------------------------------------------------------------- topics


def _bytes_of(form: Any) -> float:
    """Return the bytes of a tensor of a form, ``[dtype, sizes]``; infinite if there is no such tensor."""
    if not isinstance(form, list | tuple) or len(form) != 2 or not isinstance(form[0], str):
        return math.inf
    dtype, sizes = getattr(torch, form[0], None), form[1]
    listed = isinstance(sizes, list | tuple) and len(sizes) <= DEEP
    fits = isinstance(dtype, torch.dtype) and listed and all(map(whole, sizes))
    return dtype.itemsize * math.prod(sizes) if fits else math.inf  # type: ignore[union-attr]


def _tensors(value: Any) -> bool:
    return _names_of(lambda form: True)(value) and sum(map(_bytes_of, value.values())) <= LARGEST


_OFFER = _fields(
    {
        "tensors": _tensors,
        "parameters": whole,
        "met": _list_of(_text),
        "named": _list_of(_text),
        "chosen": _flag,
        "whole": _flag,
    }
)


def _offer(value: Any) -> bool:
    return _OFFER(value) and value["parameters"] <= len(value["tensors"])


_TARGET: dict[str, Form] = {
    "labels": _list_of(_scalar, least=1),
    "positive": _optional(_scalar),
    "values": _names_of(_list_of(_scalar)),
    "length": _positive,
    "count": _positive,
    "mean": _number,
    "variance": lambda value: _number(value) and value >= 0,
    "loss": _text,
}
_COLUMNS = {
    "columns": _names_of(_optional(_text)),
    "target": _fields({"task": TASKS.__contains__, "target": _optional(_scalar), "shared": _flag}, _TARGET),
}
_VALUES = {
    "categories": _names_of(_list_of(_scalar)),
    "tails": _names_of(_text),
    "moments": _names_of(lambda value: _list_of(_number, least=3)(value) and len(value) == 3 and value[2] >= 0),
    "sketches": _names_of(lambda value: _list_of(_number, least=1)(value) and value[0] >= 0),
}

TOPICS: dict[str, tuple[Form, str]] = {
    "settings": (_names_of(_plain), "settings by key"),
    "clients": (_fields({}), "the name of a client alone"),
    "columns": (_fields({}, _COLUMNS), "columns with their kinds, and what is known of the target"),
    "values": (_fields({}, {**_COLUMNS, **_VALUES}), "columns, categories, moments and quantiles"),
    "steps": (_fields({"steps": _positive, "rows": whole}), "numbers of steps and rows"),
    "federated": (_offer, f"tensors with dtype and sizes, of at most {LARGEST:,} bytes together"),
    "model": (lambda value: _list_of(_positive, least=2)(value) and len(value) == 2, "numbers of inputs and outputs"),
    "manifest": (_fields({"published": _tensors}), f"tensors of at most {LARGEST:,} bytes together"),
    "meaning": (_names_of(_fields({}, {INPUTS: _text, LABELS: _text})), "digests of inputs and labels"),
    "privacy": (_names_of(_text), "a public key with its signature"),
}
"""Topic → the form of what a site sends of it, and that in words."""


def check_facts(topic: str, facts: Mapping[str, Any]) -> None:
    """Refuse facts that have another form than their topic's.

    Args:
        topic: what the facts are about.
        facts: maps each client to its facts.

    Raises:
        RunError: a client's facts have another form; the message names it.

    Example:
        >>> check_facts("steps", {"north": {"steps": 3, "rows": 96}})
        >>> check_facts("steps", {"north": {"steps": "3", "rows": 96}})
        Traceback (most recent call last):
        ...
        fedlit.errors.RunError: steps: expected numbers of steps and rows from 'north', found something else; do all ...
    """
    form, words = TOPICS[topic]
    for client, fact in facts.items():
        if not form(fact):
            raise RunError(
                f"{topic}: expected {words} from {client!r:.60}, found something else; do all sites run the same "
                "version?"
            )


_SCORES = _optional(_names_of(_names_of(lambda value: value is None or isinstance(value, float) or whole(value))))


def are_scores(value: Any) -> bool:
    """Return whether a value is scores of a site: client → name → number.

    Example:
        >>> are_scores({"north": {"auroc": 0.8}}), are_scores({"north": [0.8]})
        (True, False)
    """
    return _SCORES(value)


# ---------------------------------------------------------------------- who says too much


def too_long(topic: str, facts: Mapping[str, Any], most: int) -> dict[str, str]:
    """Return the clients whose facts are longer than an equal share, if all facts together do not fit into one message.
    Each site receives the facts of all, so that a single site could otherwise fill the message that all others read.

    Args:
        topic: what the facts are about.
        facts: maps each client to its facts.
        most: the largest number of bytes of all facts as JSON.

    Returns:
        Maps each of these clients to what is the matter, and what to do.

    Example:
        >>> facts = {"a": {}, "b": {"columns": {"age": "numeric"}}}
        >>> list(too_long("columns", facts, 40)), list(too_long("columns", facts, 100))
        (['b'], [])
    """
    sizes = {client: len(json.dumps({client: fact})) for client, fact in facts.items()}
    if sum(sizes.values()) <= most:
        return {}
    share = most // len(sizes)
    return {
        client: f"{topic}: expected facts of at most {share:,} bytes, because those of all sites are sent in one "
        f"message, found {size:,}; leave columns out, or share fewer of them"
        for client, size in sizes.items()
        if size > share
    }


# ---------------------------------------------------------------------- who disagrees


_ADVICE = {
    "meaning": "give all tables the same columns in the same order, with the same categories, and the same classes, "
    "set data.align: both, or federate the core alone",
    "federated": "federate only parts of equal shape (for Global Layers: core), give the clients a common space with "
    "data.align: both, or share what is named alike (exchange.by_name)",
    "columns": "give all tables columns and labels of the same kinds",
    "values": "give all tables columns and labels of the same kinds",
}


def odd_ones(
    topic: str, facts: Mapping[str, Any], meet: Callable[[Mapping[str, Any]], object] = lambda facts: None
) -> dict[str, str]:
    """Return the clients whose facts do not fit those of most others. Of two equally large groups nobody can tell which
    is wrong: both are returned.

    Args:
        topic: what the facts are about.
        facts: maps each client to its facts, which have the form of their topic.
        meet: raises an error for facts of ``columns`` or ``values`` on which clients cannot agree.

    Returns:
        Maps each of these clients to what is the matter, and what to do.

    Example:
        >>> digests = {"a": "6f", "b": "6f", "c": "70"}
        >>> facts = {client: {"head": {"labels": digest}} for client, digest in digests.items()}
        >>> odd_ones("meaning", facts)["c"].partition("; ")[0]
        "meaning: head: expected {'labels': '6f'}, as at most sites, found {'labels': '70'}"
    """
    if topic == "meaning":
        problems = _outvoted(facts)
    elif topic == "federated":
        problems = _outvoted({client: fact["tensors"] for client, fact in facts.items()})
    elif topic in ("columns", "values"):
        problems = _unfit(facts, meet)
    else:
        problems = {}
    return {client: f"{topic}: {problem}; {_ADVICE[topic]}" for client, problem in problems.items()}


def _outvoted(votes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the clients that have another value of a key than most of those that have the key."""
    by_key: dict[str, dict[str, str]] = {}
    for client, own in votes.items():
        for key, value in own.items():
            by_key.setdefault(key, {})[client] = json.dumps(value)
    problems: dict[str, str] = {}
    for key, ballots in by_key.items():
        usual = most_common(ballots)
        for client, ballot in ballots.items():
            if ballot == usual or client in problems:
                continue
            whose = "most sites" if usual is not None else next(o for o, other in ballots.items() if other != ballot)
            expected = usual if usual is not None else ballots[whose]
            shown = f"expected {json.loads(expected)!r:.80}, as at {whose}, found {json.loads(ballot)!r:.80}"
            problems[client] = f"{key}: {shown}"
    return problems


def agreed(facts: Mapping[str, Any], terms: Terms) -> None:
    """Agree on columns and targets as each site does.

    Args:
        facts: client → what it sends of its columns, or of their values.
        terms: the settings, the same at all sites.

    Raises:
        FedlitError: clients cannot agree.
    """
    agreement = agree(facts, terms)
    for client, target in agreement.targets.items():
        agreement.task_of(client, target)
    for column, shared in agreement.columns.items():
        parts = {client: facts[client].get("moments", {}).get(column) for client in shared.clients}
        for client, part in parts.items():
            if part and shared.moments is not None and not _standardised(Moments(*part), shared.moments):
                raise RunError(
                    f"{column}: expected moments with which the numbers of {client!r} are finite float32 when "
                    "standardised, found others"
                )


def _standardised(part: Moments, whole: Moments) -> bool:
    """Return whether all numbers of a part are finite float32 when standardised with the moments of the whole. None is
    further from the part's mean than its standard deviation times the root of its count.
    """
    furthest = math.sqrt(part.variance) * math.sqrt(part.count)
    ends = np.array([part.mean - furthest, part.mean + furthest])
    with np.errstate(over="ignore"):
        return bool(np.isfinite(whole.standardise(ends).astype(np.float32)).all())


def most_common(ballots: Mapping[str, str]) -> str | None:
    """Return the value that most have; None if two values are equally common.

    Example:
        >>> most_common({"a": "x", "b": "x", "c": "y"}), most_common({"a": "x", "b": "y"})
        ('x', None)
    """
    first, *others = Counter(ballots.values()).most_common(2)
    return None if others and others[0][1] == first[1] else first[0]


def _unfit(facts: Mapping[str, Any], meet: Callable[[Mapping[str, Any]], object]) -> dict[str, str]:
    """Return the clients without which the others can agree; all clients if no single one is at fault."""
    problem = _problem(facts, meet)
    if not problem:
        return {}
    odd = []
    for client in facts:
        rest = {other: fact for other, fact in facts.items() if other != client}
        if len(rest) > 1 and not _problem(rest, meet):
            odd.append(client)
    return dict.fromkeys(odd or facts, problem)


def _problem(facts: Mapping[str, Any], meet: Callable[[Mapping[str, Any]], object]) -> str:
    try:
        with told_as(lambda error: RunError(f"expected facts that fit together, found {type(error).__name__}")):
            meet(facts)
    except FedlitError as error:
        return str(error)
    return ""
