"""What sites send before training: the form that each topic must have."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np
import torch

from fedlit.errors import RunError
from fedlit.institutions.plain import Facts
from fedlit.meanings import INPUTS, LABELS
from fedlit.sketches import SKETCHED
from fedlit.tasks import known_task

Form = Callable[[object], bool]
"""Returns whether plain data has a form."""
ListForm = Callable[[object], TypeGuard[list[Any]]]
"""Returns whether plain data is a list of a form."""
MappingForm = Callable[[object], TypeGuard[dict[str, Any]]]
"""Returns whether plain data is a mapping of a form."""

LARGEST = 2**30
"""The largest number of bytes of all federated tensors of a site, and of all that it publishes."""
MANY = 2**20
"""The largest number of entries of a list or a mapping."""
HUGE = 2**53
"""Whole numbers are below it: all of them are numbers in float64, too."""
DEEP = 64
"""The largest number of dimensions of a tensor. The product of a million sizes would keep a process
busy for hours."""
NAMED = 2**14
"""The largest number of categories of a column, and of classes: more than a table of rows has of
diagnoses or towns."""
WIDE = 2**16
"""The largest number of columns and categories of a site together: each may become an input of
every site's network."""
SCORES = 100
"""The largest number of scores of a site, and of characters in the name of one."""
FLOAT32 = float(np.finfo(np.float32).max)


# ---------------------------------------------------------------------- forms


def whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number of something, from 0.

    Example:
        >>> [whole(value) for value in (0, 7, -1, True, 1.0, 10**400)]
        [True, True, False, False, False, False]
    """
    return type(value) is int and 0 <= value < HUGE


def _positive(value: object) -> bool:
    return whole(value) and value > 0


def _flag(value: object) -> bool:
    return type(value) is bool


def _text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _number(value: object) -> TypeGuard[int | float]:
    if type(value) is int:
        return abs(value) < HUGE
    return isinstance(value, float) and math.isfinite(value)


def _scalar(value: object) -> bool:
    return isinstance(value, str | bool) or _number(value)


def _optional(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _list_of(form: Form, least: int = 0, most: int = MANY) -> ListForm:
    """Return the form of lists whose entries have a form."""

    def fits(value: object) -> TypeGuard[list[Any]]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            return False
        return all(map(form, value))

    return fits


def _names_of(form: Form) -> MappingForm:
    """Return the form of mappings whose values have a form."""

    def fits(value: object) -> TypeGuard[dict[str, Any]]:
        if not isinstance(value, dict) or len(value) > MANY:
            return False
        return all(map(form, value.values()))

    return fits


def _fields(needed: Mapping[str, Form], others: Mapping[str, Form] | None = None) -> MappingForm:
    """Return the form of mappings that have all of the needed keys, and otherwise only some of the
    others.
    """
    forms = {**needed, **(others or {})}

    def fits(value: object) -> TypeGuard[dict[str, Any]]:
        if not isinstance(value, dict) or not needed.keys() <= value.keys() <= forms.keys():
            return False
        return all(forms[key](part) for key, part in value.items())

    return fits


def _plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


# ---------------------------------------------------------------------- topics


def _bytes_of(form: object) -> float:
    """Return the bytes of a tensor of a form, ``[dtype, sizes]``; infinite if there is no such
    tensor.
    """
    if not isinstance(form, list | tuple) or len(form) != 2 or not isinstance(form[0], str):
        return math.inf
    dtype = getattr(torch, form[0], None)
    sizes = form[1]
    if not isinstance(dtype, torch.dtype) or not isinstance(sizes, list | tuple):
        return math.inf
    if len(sizes) > DEEP or not all(map(whole, sizes)):
        return math.inf
    return dtype.itemsize * math.prod(sizes)


def _tensors(value: object) -> bool:
    if not isinstance(value, dict) or len(value) > MANY:
        return False
    return sum(map(_bytes_of, value.values())) <= LARGEST


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


def _offer(value: object) -> bool:
    return _OFFER(value) and value["parameters"] <= len(value["tensors"])


_TARGET: dict[str, Form] = {
    "labels": _list_of(_scalar, least=1, most=NAMED),
    "positive": _optional(_scalar),
    "values": _names_of(_list_of(_scalar, most=NAMED)),
    "length": _positive,
    "count": _positive,
    "mean": _number,
    "variance": lambda value: _number(value) and value >= 0,
    "loss": _text,
    "settings": _text,
}


def _target(value: object) -> bool:
    """Return whether a value is what a client says about its target, for a task that is known
    here.
    """
    if not isinstance(value, dict) or not _text(value.get("task")):
        return False
    task = known_task(value["task"])
    if task is None:
        return False
    needed: dict[str, Form] = {"task": _text, "target": _optional(_scalar), "shared": _flag}
    further: dict[str, Form] = {
        **dict.fromkeys(task.more_facts, _number),
        **dict.fromkeys(task.fact_lists, _list_of(_number, most=1 + SKETCHED)),
    }
    return _fields(needed, {**_TARGET, **further})(value) and task.plausible(value)


def _moments(value: object) -> bool:
    return _list_of(_number, least=3, most=3)(value) and whole(value[0]) and value[2] >= 0


def _sketch(value: object) -> bool:
    """Return whether a value is a number of rows and their quantiles; there are none of no rows."""
    if not _list_of(_number, least=1, most=1 + SKETCHED)(value) or not whole(value[0]):
        return False
    rows, *quantiles = value
    return bool(rows) == bool(quantiles) and all(abs(quantile) <= FLOAT32 for quantile in quantiles)


_COLUMNS: dict[str, Form] = {"columns": _names_of(_optional(_text)), "target": _target}
_VALUES: dict[str, Form] = {
    "categories": _names_of(_list_of(_scalar, most=NAMED)),
    "tails": _names_of(_text),
    "moments": _names_of(_moments),
    "sketches": _names_of(_sketch),
}
_TABLE = _fields({}, {**_COLUMNS, **_VALUES})


def _values(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is what a table says, of no more columns and categories than a network
    can have.
    """
    if not _TABLE(value):
        return False
    categories = value.get("categories", {}).values()
    return len(value.get("columns", {})) + sum(map(len, categories)) <= WIDE


def _columns(value: object) -> bool:
    return _values(value) and value.keys() <= _COLUMNS.keys()


_BOUNDS = f"at most {WIDE:,} of both together, {NAMED:,} categories of a column and as many classes"

TOPICS: dict[str, tuple[Form, str]] = {
    "settings": (_names_of(_plain), "settings by key"),
    "clients": (_fields({}), "the name of a client alone"),
    "columns": (
        _columns,
        f"at most {WIDE:,} columns with their kinds, and a target of at most {NAMED:,} classes",
    ),
    "values": (
        _values,
        f"columns and categories ({_BOUNDS}), moments, and at most {SKETCHED} quantiles of a column",
    ),
    "steps": (_fields({"steps": _positive, "rows": whole}), "numbers of steps and rows"),
    "federated": (_offer, f"tensors with dtype and sizes, of at most {LARGEST:,} bytes together"),
    "model": (
        lambda value: _list_of(_positive, least=2)(value) and len(value) == 2,
        "numbers of inputs and outputs",
    ),
    "manifest": (
        _fields({"published": _tensors}),
        f"tensors of at most {LARGEST:,} bytes together",
    ),
    "meaning": (
        _names_of(_fields({}, {INPUTS: _text, LABELS: _text})),
        "digests of inputs and labels",
    ),
    "privacy": (_names_of(_text), "a public key with its signature"),
}
"""Topic → the form of what a site sends of it, and that in words."""


def check_facts(topic: str, facts: Facts) -> None:
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
        fedlit.errors.RunError: steps: expected numbers of steps and rows from 'north', found
            something else; do all ...
    """
    form, expected = TOPICS[topic]
    for client, fact in facts.items():
        if not form(fact):
            raise RunError(
                f"{topic}: expected {expected} from {client!r:.60}, found something else; do all "
                "sites run the same version?"
            )


_SCORE = _optional(lambda value: isinstance(value, float) or whole(value))


def are_scores(value: object, site: str) -> bool:
    """Return whether a value is the scores of a site, by name of the site and of the score, or None
    if it has none yet.

    Example:
        >>> are_scores({"north": {"auroc": 0.8}}, "north"), are_scores({"south": {"auroc": 0.8}}, "north")
        (True, False)
    """
    if value is None:
        return True
    if not isinstance(value, dict) or not value.keys() <= {site}:
        return False
    return all(_are_of_one(scores) for scores in value.values())


def _are_of_one(scores: object) -> bool:
    if not _names_of(_SCORE)(scores) or len(scores) > SCORES:
        return False
    return all(len(name) <= SCORES for name in scores)
