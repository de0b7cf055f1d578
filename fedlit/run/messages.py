"""What jsonargparse refuses, as one sentence: key, what was expected, what was found, what may have been meant.

jsonargparse says what each alternative of a type has against a value. The sentence takes its reasons from there and
the full key, its file and the value from what the user gave.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from itertools import takewhile
from pathlib import Path
from pydoc import ErrorDuringImport, locate
from typing import Any

import fedlit
from fedlit.errors import ConfigError, FedlitError, closest, did_you_mean
from fedlit.run.config import flatten, parse_yaml, read_yaml, shown

__all__ = ["Given", "given_in", "in_one_line", "misfit", "why_not_made", "why_refused"]

Given = Mapping[str, tuple[Any, str]]
"""Full key → its value, and the key as it is shown: with two dashes, or with its file."""

_WORDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "NoneType": "null",
    "dict": "a mapping", "list": "a list such as [a, b]", "Sequence": "a list such as [a, b]", "Path": "a path",
}  # fmt: skip

_CALLED = {
    "client": "fedlit.FederatedClient or a subclass of it (a LightningModule of another kind cannot share its parts)",
    "network": "a class that makes a fedlit.Network of inputs and outputs (docs/how-to/method.md)",
}
"""What a key takes that is called with arguments of its own: jsonargparse does not say."""


def given_in(args: Iterable[str]) -> Given:
    """The keys in arguments of the forms ``--config FILE``, ``--config=FILE`` and ``--key=value``; later ones count."""
    given: dict[str, tuple[Any, str]] = {}
    flag = ""
    for arg in args:
        name, equals, text = arg.partition("=")
        if not equals and arg.startswith("--"):
            flag = arg
        elif "--config" in (name, flag):
            given |= given_of(read_yaml(Path(text or arg)), f"{shown(Path(text or arg))}: ")
            flag = ""
        elif equals:
            key = name.removeprefix("--").removesuffix("+")
            try:
                value = parse_yaml(text, name) if text.startswith("{") else text
            except ConfigError:
                value = text
            given |= given_of({key: value}, "--")
    return given


def given_of(content: Mapping[str, Any], before: str) -> dict[str, tuple[Any, str]]:
    """The keys of a file or of one argument, shown with ``before``; ``init_args`` and ``class_path`` are left out."""
    pairs = ((re.sub(r"\.(init_args|class_path)\b", "", key), value) for key, value in flatten(content))
    return {key: (value, before + key) for key, value in pairs}


def misfit(content: Mapping[str, Any], hints: Mapping[str, Any], file: Path) -> str | None:
    """Return why the values in a file do not fit the types of their keys; None if they do.

    Args:
        content: what the file says.
        hints: key → type.
        file: where it stands.
    """
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    for key, hint in hints.items():
        parser.add_argument(f"--{key}", type=hint)
    try:
        parser.parse_object(deepcopy(dict(content)))
    except ArgumentError as error:
        return in_one_line(str(error), given_of(content, f"{shown(file)}: "))
    return None


def in_one_line(message: str, given: Given | None = None) -> str:
    r"""A refusal of jsonargparse as one sentence.

    Args:
        message: what it says.
        given: what the user gave.

    Example:
        >>> in_one_line('Parser key "seed":\n  Expected a <class \'int\'>. Got value: eight')
        "seed: expected a whole number, found 'eight'."
        >>> told = "Does not validate\n- Expected a typing.Literal['step', 'epoch']\nGiven value: epcoh"
        >>> in_one_line(f'Parser key "every":\n{told}', {"exchange.every": ("epcoh", "--exchange.every")})
        "--exchange.every: expected step or epoch, found 'epcoh'. Did you mean 'epoch'?"
    """
    given = given or {}
    key = _full(".".join(dict.fromkeys(re.findall(r'Parser key "([^"]+)"', message))), given)
    if option := re.search(r"Option '([^']+)' is not accepted", message):
        key = _full(f"{key}.{option[1]}".lstrip("."), given)
        owner = re.search(r"given class_path '([^']+)'", message)
        taken = _parameters(owner[1] if owner else given.get(key.rpartition(".")[0], ("",))[0])
        such = f" ({', '.join(taken)})" if taken else ""
        near = did_you_mean(option[1].partition(".")[0], taken)
        return f"{_shown(key, given)}: expected what its class takes{such}, found {option[1]!r}.{near}"
    if needed := re.search(r"arguments are required: (.*)", message):
        first = needed[1].partition(",")[0]
        key = key or next((own for own, (value, _) in given.items() if first in _parameters(value)), "")
        return f"{_shown(key, given)}: expected {needed[1]}, which its class needs, found nothing"
    own = _innermost(message)
    if key not in given and (named := re.search(r"Got value: (.*?)\.?$", own, re.MULTILINE)):
        key = _of_value(key, named[1], given)
    value: Any = given[key][0] if key in given else {}
    if isinstance(value, list | dict) or str(value).startswith("["):
        told = re.findall(r"G(?:ot|iven) value: (.*?)(?:\. Got value.*)?\.?$", own, re.MULTILINE)
        value = min(
            (text for text in told if "Namespace(" not in text and "NestedArg(" not in text), key=len, default=value
        )
    words = _expected(own)
    if called := _CALLED.get(key.rpartition(".")[2]) if set(words) <= {"null"} else None:
        words = [called, *words]
    *most, last = words or ["another value"]
    text = f"{', '.join(most)} or {last}" if most else last
    return f"{_shown(key, given)}: expected {text}, found {str(value)!r}.{_hint(str(value), own, words)}"


def _innermost(message: str) -> str:
    """Return what is said about the innermost key, without the alternatives around it."""
    _, _, rest = message.rpartition('Parser key "')
    lines = [line for line in rest.splitlines()[1:] if line.strip()]
    depth = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    return "\n".join(takewhile(lambda line: line.startswith(" " * depth), lines)) or message


def _expected(text: str) -> list[str]:
    """Return the values that would be right, in words."""
    words = []
    for own in re.findall(r"Expected an? ((?:typing\.Literal\[|<class )[^\n]+?)(?:\. Got value|\n|$)", text):
        literals = re.findall(r"[\w.-]+", own.partition("[")[2])
        names = re.findall(r"'(?:\w+\.)*(\w+)'", own)
        words += literals if "Literal" in own else [_WORDS.get(name, name) for name in names]
    words += [f"a subclass of {own}" for own in re.findall(r"subclass of (\w+)", text)]
    words += ["a class that can be made"] if "but is abstract" in text else []
    words += ["the path of a class"] if "dot import path" in text or "must include a class_path" in text else []
    words += [f"a class ({own})" for own in re.findall(r"callable class: ([Nm]o.*?)\. Got value", text)]
    return sorted(dict.fromkeys(words), key=lambda word: word == "null")


def _hint(value: str, text: str, words: list[str]) -> str:
    if "must include a class_path" in text:
        return " Did you mean 'class_path'?"
    module, _, name = value.rpartition(".")
    found = _located(value) if "is abstract" in text else None
    if lacks := sorted(map(str, getattr(found, "__abstractmethods__", ()))):
        meant = [f" Did you mean {own} by its {like}?" for own in lacks if (like := closest(own, vars(found)))]
        return f" It lacks {', '.join(lacks)}.{''.join(meant)}"
    if f"module '{module}' has no attribute" in text:
        return did_you_mean(name, dir(_located(module)), f"{module}.")
    near = did_you_mean(value, words)
    if "import path" in text and value[:1].isupper():
        near = did_you_mean(value, _lightnings()) or did_you_mean(value, dir(fedlit), "fedlit.")
    listed = "a list such as [a, b]" in words and re.fullmatch(r"[\w.*]+", value)
    return near or (f" Did you mean [{value}]?" if listed else "")


def _full(key: str, given: Given) -> str:
    """The full key of one in which parts are missing."""
    for own in reversed(list(given)):
        parts = iter(own.split("."))
        if own.rpartition(".")[2] == key.rpartition(".")[2] and all(part in parts for part in key.split(".")):
            return own
    return key


def _of_value(key: str, value: str, given: Given) -> str:
    """The key below one that holds a value, where the message names only the mapping around it."""
    for own, (found, _) in given.items():
        parts = iter(own.split("."))
        if str(found) == value and all(part in parts for part in key.split(".")):
            return own
    return key


def _shown(key: str, given: Given) -> str:
    below = (
        place.removesuffix(own.removeprefix(key)) for own, (_, place) in given.items() if own.startswith(f"{key}.")
    )
    return given[key][1] if key in given else (next(below, key) or "configuration")


@cache
def _lightnings() -> dict[str, Any]:
    """The loggers and callbacks of Lightning, whose module a configuration need not say."""
    from lightning.pytorch import callbacks, loggers

    return {name: getattr(home, name) for home in (callbacks, loggers) for name in home.__all__}


def _located(path: str) -> Any:
    try:
        return locate(path) if "." in path else _lightnings().get(path)
    except ErrorDuringImport:
        return None


def _parameters(path: Any) -> list[str]:
    """Return the parameters of a class; empty if there is no such class."""
    found = _located(path) if isinstance(path, str) else None
    return [name for name in inspect.signature(found).parameters if name != "kwargs"] if inspect.isclass(found) else []


def why_refused(error: Exception, given: Given) -> ConfigError:
    """Why a configuration was not even parsed: the module of a class that it names fails."""
    frames = traceback.extract_tb(error.__traceback__)
    file = error.filename if isinstance(error, SyntaxError) else frames[-1].filename if frames else None
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    module = Path(file or "").stem
    key = next((own for own, (value, _) in given.items() if str(value).rpartition(".")[0].endswith(module)), "")
    return ConfigError(
        f"{_shown(key, given)}: expected a class, found an error in {module}: {type(error).__name__}: {error} "
        f"({Path(file or '').name}, line {line})"
    )


def why_not_made(error: Exception, given: Given | None = None) -> FedlitError:
    """Why objects could not be made of a configuration: what the class that refused says, with the key.

    jsonargparse wraps it, where a value may be of several kinds, in what each of them said.

    Example:
        >>> try:
        ...     raise ValueError("Does not validate ...") from ConfigError("IFCA: clusters: expected at least 1")
        ... except ValueError as error:
        ...     print(why_not_made(error))
        IFCA: clusters: expected at least 1
    """
    cause: BaseException = error
    while cause.__cause__ is not None and not isinstance(cause, FedlitError):
        cause = cause.__cause__
    key = _made_at(cause, given or {})
    if isinstance(cause, FedlitError):
        known = not key or key in str(cause)
        return cause if known else type(cause)(f"{key}: {cause}")
    reason = next(iter(str(cause).splitlines()), "") or "nothing said"
    return ConfigError(
        f"{key or 'configuration'}: expected what its class accepts, found that it refuses its values: {reason} "
        f"({type(cause).__name__}{key and f'; fedlit fit --help {key} says what it may be'})"
    )


def _made_at(error: BaseException, given: Given) -> str:
    """The key of the class that was being made; empty where no key names it."""
    codes = [frame.f_code.co_qualname for frame, _ in traceback.walk_tb(error.__traceback__)]
    made = [name.rpartition(".")[0] for name in codes if name.endswith(("__init__", "__post_init__"))]
    keys = [key for key, (value, _) in given.items() for name in made if name in str(value) or name.lower() in key]
    return next(iter(keys), "")
