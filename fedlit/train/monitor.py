"""The scores that may be monitored: by a stop, by checkpoints, and by callbacks that wait for
one.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.tasks import SCORES
from fedlit.tasks.scores import LOSS, Score, by_name

ScoresOf = Mapping[str, tuple[Score, ...]]


def score_of(monitor: str, scores_of: ScoresOf) -> Score | None:
    """Return the score that a monitored name ends with; None if no client has it.

    Args:
        monitor: the name, such as ``val/auroc``.
        scores_of: maps each client to its scores, the main one first.

    Example:
        >>> score_of("val/worst/auroc", {"north": (Score("auroc", "AUROC"), LOSS)}).label
        'AUROC'
    """
    return by_name(all_scores(scores_of)).get(monitor.rpartition("/")[2])


def all_scores(scores_of: ScoresOf) -> Iterator[Score]:
    """Yield the scores of all clients, one client after the other; those that are the same object
    come once.
    """
    distinct = {id(scores): scores for scores in scores_of.values()}
    for scores in distinct.values():
        yield from scores


def check_monitor(key: str, monitor: str, scores_of: ScoresOf, others: bool = False) -> None:
    """Refuse, before the first step, a score that will not be logged.

    Args:
        key: the configuration key, for the message.
        monitor: the score: a mean over clients (``val/auroc``), the worst client's
            (``val/worst/auroc``) or one client's (``wine/val/auroc``). Names that are logged in
            training (``train/loss``) are not known beforehand, so they are accepted.
        scores_of: maps each client to its scores, the main one first.
        others: whether the user's callbacks may log further scores, of any name.

    Raises:
        ConfigError: no client has the score.
    """
    scores = [
        name
        for name, score in by_name(all_scores(scores_of)).items()
        if not score.test_only and not score.context
    ]
    prefixes = ["val", "val/worst", *(f"{client}/val" for client in scores_of)]
    prefix, _, name = monitor.rpartition("/")
    first, *inner = prefix.split("/")
    in_training = first in ("train", "exchange") or (first in scores_of and "val" not in inner)
    strange = (
        others
        and name not in SCORES
        and "val" not in prefix.split("/")
        and not did_you_mean(name, scores)
    )
    if (
        (prefix in prefixes and name in scores)
        or strange
        or (in_training and name not in set(scores) - {LOSS.name})
    ):
        return
    same_score = [f"{start}/{name}" for start in prefixes] if name in scores else []
    expected = [f"{start}/{score}" for start, score in product(prefixes, scores)]
    hint = did_you_mean(monitor, same_score or expected)
    means = ", ".join(f"val/{score}" for score in scores)
    raise ConfigError(
        f"{key}: expected a score of these clients' tasks ({means}; of the worst client "
        f"val/worst/{scores[0]}, of one {prefixes[-1]}/{scores[0]}), found {monitor}.{hint}"
    )


def check_monitors(callbacks: Iterable[Any], scores_of: ScoresOf) -> bool:
    """Refuse callbacks that wait for a score that is never logged. Return whether one may log
    further scores itself.

    Raises:
        ConfigError: see :func:`check_monitor`.
    """
    members = list(callbacks)
    foreign = any(
        type(callback).__module__.partition(".")[0] not in ("fedlit", "lightning")
        for callback in members
    )
    for callback in members:
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str) and getattr(callback, "strict", True):
            check_monitor(
                f"trainer.callbacks: {type(callback).__name__}", monitor, scores_of, foreign
            )
    return foreign
