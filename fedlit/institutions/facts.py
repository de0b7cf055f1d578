"""What sites send before training: who says too much, and who disagrees with the others."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median_low

import numpy as np

from fedlit.data.agree import agree
from fedlit.data.moments import Moments
from fedlit.data.terms import Terms
from fedlit.errors import FedlitError, RunError, told_as
from fedlit.institutions.plain import Facts, FactsOfTopics

# ---------------------------------------------------------------------- who says too much


def too_long(topic: str, facts: Facts, most: int) -> dict[str, str]:
    """Return the clients whose facts are longer than an equal share, if all facts together do not
    fit into one message. Each site receives the facts of all, so that a single site could otherwise
    fill the message that all others read.

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
        client: f"{topic}: expected facts of at most {share:,} bytes, because those of all sites "
        f"are sent in one message, found {size:,}; leave columns out, or share fewer of them"
        for client, size in sizes.items()
        if size > share
    }


# ---------------------------------------------------------------------- who disagrees


ADVICE = {
    "meaning": "give all tables the same columns in the same order, with the same categories, and "
    "the same classes, set data.align: both, or federate the core alone",
    "federated": "federate only parts of equal shape (for Global Layers: core), give the clients a "
    "common space with data.align: both, or share tensors by name (exchange.by_name)",
    "columns": "give all tables columns and labels of the same kinds",
    "values": "give all tables columns and labels of the same kinds",
    "steps": "set a larger data.batch_size, or data.batches, with which all sites take equally many",
}

_STEPS = 100_000
_TIMES_STEPS = 1_000


def odd_ones(
    topic: str,
    facts: Facts,
    meet: Callable[[Facts], object] = lambda facts: None,
) -> dict[str, str]:
    """Return the clients whose facts do not fit those of most others. Of two equally large groups
    nobody can tell which is wrong: both are returned.

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
    elif topic == "steps":
        problems = too_many_steps(facts, median_low(fact["steps"] for fact in facts.values()))
    else:
        problems = {}
    return {client: f"{topic}: {problem}; {ADVICE[topic]}" for client, problem in problems.items()}


def too_many_steps(facts: Facts, usual: int) -> dict[str, str]:
    """Return the clients that say they take so many steps in an epoch that the others, who wait for
    them, would never end it.

    Args:
        facts: maps each client to its facts of ``steps``.
        usual: the number of steps to compare with.

    Returns:
        Maps each of these clients to what is the matter.

    Example:
        >>> too_many_steps({"a": {"steps": 40}, "b": {"steps": 2**50}}, 40)
        {'b': 'expected at most 100,000 steps in an epoch, found 1,125,899,906,842,624'}
    """
    most = max(_STEPS, _TIMES_STEPS * usual)
    return {
        client: f"expected at most {most:,} steps in an epoch, found {fact['steps']:,}"
        for client, fact in facts.items()
        if fact["steps"] > most
    }


def _outvoted(votes: FactsOfTopics) -> dict[str, str]:
    """Return the clients that have another value of a key than most of those that have the key."""
    by_key: dict[str, dict[str, str]] = {}
    for client, vote in votes.items():
        for key, value in vote.items():
            by_key.setdefault(key, {})[client] = json.dumps(value)
    problems: dict[str, str] = {}
    for key, ballots in by_key.items():
        usual = most_common(ballots)
        for client, ballot in ballots.items():
            if ballot == usual or client in problems:
                continue
            whose = (
                "most sites"
                if usual is not None
                else next(o for o, its_ballot in ballots.items() if its_ballot != ballot)
            )
            expected = usual if usual is not None else ballots[whose]
            message = (
                f"expected {json.loads(expected)!r:.80}, as at {whose}, found "
                f"{json.loads(ballot)!r:.80}"
            )
            problems[client] = f"{key}: {message}"
    return problems


def agreed(facts: Facts, terms: Terms) -> None:
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
    numbers = {
        client: Moments(target["count"], target["mean"], target["variance"])
        for client, target in agreement.targets.items()
        if target["shared"] and {"count", "mean", "variance"} <= target.keys()
    }
    _check_numbers("the target", numbers)
    for column, shared in agreement.columns.items():
        parts = {client: facts[client].get("moments", {}).get(column) for client in shared.clients}
        _check_numbers(column, {client: Moments(*part) for client, part in parts.items() if part})


def _check_numbers(what: str, parts: Mapping[str, Moments]) -> None:
    """Refuse moments with which the numbers of a client could not be standardised.

    Args:
        what: what the numbers are.
        parts: maps each client to the moments of its numbers.

    Raises:
        RunError: there are such; the message names the client whose numbers they are.
    """
    counted = {client: part for client, part in parts.items() if part.count}
    pooled = Moments.pooled(list(counted.values()))
    for client, part in counted.items():
        if pooled is not None and not _standardised(part, pooled):
            raise RunError(
                f"{what}: expected moments with which the numbers of {client!r} are finite float32 "
                "when standardised, found others"
            )


def _standardised(part: Moments, whole: Moments) -> bool:
    """Return whether all numbers of a part are finite float32 when standardised with the moments of
    the whole. None is further from the part's mean than its standard deviation times the root of
    its count.
    """
    furthest = math.sqrt(part.variance) * math.sqrt(part.count)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = np.array([part.mean - furthest, part.mean + furthest])
        return bool(np.isfinite(whole.standardise(ends).astype(np.float32)).all())


def most_common(ballots: Mapping[str, str]) -> str | None:
    """Return the value that most have; None if two values are equally common.

    Example:
        >>> most_common({"a": "x", "b": "x", "c": "y"}), most_common({"a": "x", "b": "y"})
        ('x', None)
    """
    first, *runners_up = Counter(ballots.values()).most_common(2)
    return None if runners_up and runners_up[0][1] == first[1] else first[0]


def _unfit(facts: Facts, meet: Callable[[Facts], object]) -> dict[str, str]:
    """Return the clients without which the others can agree; all clients if no single one is at
    fault.
    """
    problem = _problem(facts, meet)
    if not problem:
        return {}
    outliers = []
    for client in facts:
        rest = {peer: fact for peer, fact in facts.items() if peer != client}
        if len(rest) > 1 and not _problem(rest, meet):
            outliers.append(client)
    return dict.fromkeys(outliers or facts, problem)


def _problem(facts: Facts, meet: Callable[[Facts], object]) -> str:
    try:
        with told_as(
            lambda error: RunError(
                f"expected facts that fit together, found {type(error).__name__}"
            )
        ):
            meet(facts)
    except FedlitError as error:
        return str(error)
    return ""
