"""Types in plain words: what a key expects."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["SUCH", "alternatives", "classes_of", "each_of", "handed", "is_list", "is_mapping", "is_scalar", "literals",
           "words"]  # fmt: skip

SUCH = {
    "exchange.every": "step, epoch, {steps: n} or {epochs: n}",
    "exchange.rule.parts.*": "mean, none, by_name (by the names of columns and classes), or a rule's class_path",
    "baselines": "names of go-alone models such as [logistic_regression], {} for none, or nothing for the tasks' own",
}
"""Key, or a pattern of keys, → what it asks for, where its type says less."""

_ONE = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path", NoneType: "null"}
_MANY = {int: "whole numbers", float: "numbers", bool: "true or false", str: "words", Path: "paths", NoneType: "null"}
_LISTS = ("list", "Sequence", "Iterable", "tuple", "set", "frozenset", "Collection")
_MAPPINGS = ("dict", "Mapping", "MutableMapping")


def alternatives(hint: Any) -> list[Any]:
    """The types of a union, of unions inside too; of another type itself."""
    if get_origin(hint) not in (Union, UnionType):
        return [hint]
    return [one for own in get_args(hint) for one in alternatives(own)]


def _name(hint: Any) -> str:
    return getattr(get_origin(hint) or hint, "__name__", "")


def is_list(hint: Any) -> bool:
    """Whether several values are asked for."""
    return _name(hint) in _LISTS


def is_mapping(hint: Any) -> bool:
    """Whether names with values are asked for."""
    return _name(hint) in _MAPPINGS


def is_scalar(hint: Any) -> bool:
    """Whether one number, word or the like is asked for."""
    return hint in _ONE or get_origin(hint) is Literal


def each_of(hint: Any) -> Any:
    """The type of the values in a list or a mapping."""
    own = [one for one in get_args(hint) if one is not Ellipsis]
    return (own[1] if len(own) > 1 else Any) if is_mapping(hint) else own[0] if own else Any


def literals(hint: Any) -> list[str]:
    """The words that a type names, each once."""
    named = [str(value) for own in alternatives(hint) if get_origin(own) is Literal for value in get_args(own)]
    return list(dict.fromkeys(named))


def classes_of(hint: Any) -> tuple[type, ...]:
    """The classes of which a subclass is asked for: of a factory, those that it makes."""
    if _name(hint) == "Callable":
        made = get_args(hint)[1] if len(get_args(hint)) > 1 else Any
        return tuple(own for own in alternatives(made) if inspect.isclass(own) and own is not Any)
    if _is_protocol(hint):  # of something that makes: what it makes
        return classes_of(get_type_hints(hint.__call__).get("return"))
    plain = inspect.isclass(hint) and hint is not Any and hint not in _ONE and get_origin(hint) is None
    return (hint,) if plain and not is_list(hint) and not is_mapping(hint) else ()


def _is_protocol(hint: Any) -> bool:
    return bool(getattr(hint, "_is_protocol", False)) and inspect.isfunction(getattr(hint, "__call__", None))  # noqa: B004


def handed(hint: Any) -> int | list[str]:
    """What a factory hands to the class that it makes: so many arguments, or those of a name."""
    if _is_protocol(hint):
        return [name for name in inspect.signature(hint.__call__).parameters if name != "self"]
    return len(get_args(hint)[0]) if get_args(hint) else 0


def words(hint: Any, many: bool = False) -> str:
    """What a type asks for.

    Args:
        hint: the type.
        many: in the plural.

    Example:
        >>> words(Literal["step", "epoch"] | dict[str, int] | None)
        'step, epoch, names with whole numbers such as {name: 1}, or null'
        >>> words(list[str])
        'a list of words such as [a, b]'
    """
    found = alternatives(hint)
    parts = [
        part
        for own in found
        for part in _parts(own, many, alone=not any(own is not NoneType and is_scalar(own) for own in found))
    ]
    parts = list(dict.fromkeys(sorted(parts, key=lambda part: part == "null")))
    return (
        ", ".join(parts[:-1]) + (" or " if len(parts) < 3 else ", or ") + parts[-1]
        if len(parts) > 1
        else "".join(parts)
    )


def _parts(hint: Any, many: bool, alone: bool) -> list[str]:
    """The words of one alternative; a class is not named beside numbers and words, which a person means."""
    if hint in _ONE:
        return [(_MANY if many else _ONE)[hint]]
    if get_origin(hint) is Literal:
        return literals(hint)
    if is_list(hint):
        such = {str: " such as [a, b]", int: " such as [64, 64]"}.get(each_of(hint), "")
        return [f"{'lists' if many else 'a list'} of {words(each_of(hint), many=True) or 'values'}{such}"]
    if is_mapping(hint):
        each = each_of(hint)
        return [f"names with {words(each, many=True) or 'values'} such as {{name: {1 if each is int else '…'}}}"]
    kind = "classes of the kind " if many else "a class of the kind "
    return [kind + " or ".join(own.__name__ for own in classes_of(hint))] if classes_of(hint) and alone else []
