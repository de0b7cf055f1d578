"""What jsonargparse refuses, as one sentence: key, what was expected, what was found, what may have been meant.

The full key, its file and the value come from what the user gave, the reason from jsonargparse's own message.
"""

from __future__ import annotations

import re
import traceback
from argparse import ArgumentError
from collections.abc import Mapping
from copy import deepcopy
from itertools import takewhile
from pathlib import Path
from typing import Any

import fedlit
from fedlit.errors import ConfigError, FedlitError, did_you_mean
from fedlit.run.config import shown
from fedlit.run.layers import Given, Layer, find_class, given_in, parameters_of

__all__ = ["in_one_line", "misfit", "why_not_made"]

_WORDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "NoneType": "null",
    "dict": "a mapping", "list": "a list such as [a, b]", "Sequence": "a list such as [a, b]", "Path": "a path",
}  # fmt: skip


def misfit(content: Mapping[str, Any], hints: Mapping[str, Any], file: Path) -> str | None:
    """Return why the values in a file do not fit the types of their keys; None if they do.

    Args:
        content: what the file says.
        hints: key → type.
        file: where it stands.
    """
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    for key, hint in hints.items():
        parser.add_argument(f"--{key}", type=hint)
    try:
        parser.parse_object(deepcopy(dict(content)))
    except ArgumentError as error:
        return in_one_line(error, given_in([Layer(content, f"{shown(file)}: ")]))
    return None


def in_one_line(error: Exception, given: Given) -> str:
    r"""Why a configuration is refused, as one sentence.

    Args:
        error: jsonargparse's, or what the module of a user's class raises.
        given: what the user gave.

    Example:
        >>> error = ArgumentError(None, 'Parser key "seed":\n  Expected a <class \'int\'>. Got value: eight')
        >>> in_one_line(error, {"seed": ("eight", "--seed")})
        "--seed: expected a whole number, found 'eight'."
    """
    if not isinstance(error, ArgumentError):
        return _failed_import(error, given)
    message = str(error)
    inner = _innermost(message)
    key = _full(".".join(dict.fromkeys(re.findall(r'Parser key "([^"]+)"', message))), given)
    if option := re.search(r"Option '([^']+)' is not accepted", inner):
        taken = parameters_of(given.get(key, ("",))[0]) or _taken(inner)
        hint = did_you_mean(option[1].partition(".")[0], taken)
        such = f" ({', '.join(taken)})" if taken else ""
        where = _shown(_full(f"{key}.{option[1]}", given), given)
        return f"{where}: expected what its class takes{such}, found {option[1]!r}.{hint}"
    if needed := re.search(r"arguments are required: (.*)", inner):
        return f"{_shown(key, given)}: expected {needed[1]}, which its class needs, found nothing"
    values = re.findall(r"G(?:ot|iven) value: (.*?)(?:\. Got value.*)?\.?$", inner, re.MULTILINE)
    value = min((own for own in values if "Namespace(" not in own), key=len, default=str(given.get(key, ("",))[0]))
    words = _expected(inner)
    *most, last = words or ["another value"]
    expected = f"{', '.join(most)} or {last}" if most else last
    return f"{_shown(key, given)}: expected {expected}, found {value!r}.{_hint(value, words)}"


def _innermost(message: str) -> str:
    """What is said about the innermost key, without the alternatives around it."""
    lines = [line for line in message.rpartition('Parser key "')[2].splitlines()[1:] if line.strip()]
    deep = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    return "\n".join(takewhile(lambda line: line.startswith(" " * deep), lines)) or message


def _expected(text: str) -> list[str]:
    """Return the values that would be right, in words; a library's own reason where there are none."""
    words = list[str]()
    for own in re.findall(r"Expected an? ((?:typing\.Literal\[|<class )[^\n]+?)(?:\. Got value|\n|$)", text):
        names = re.findall(r"'(?:\w+\.)*(\w+)'", own)
        literals = re.findall(r"[\w.-]+", own.partition("[")[2])
        words += literals if "Literal" in own else [_WORDS.get(name, name) for name in names]
    words += [f"a subclass of {own}" for own in re.findall(r"subclass of (?:<class ')?(\w+)", text)]
    words += ["a class that is not abstract"] if "is abstract" in text else []
    words += ["the path of a class"] if "dot import path" in text or "must include a class_path" in text else []
    words += [f"a class ({own})" for own in re.findall(r"callable class: ([Nm]o.*?)\. Got value", text)]
    return sorted(dict.fromkeys(words), key=lambda word: word == "null")


def _hint(value: str, words: list[str]) -> str:
    if found := did_you_mean(value, words):
        return found
    if lacking := sorted(getattr(find_class(value), "__abstractmethods__", ())):
        return f" It lacks {', '.join(lacking)}"
    if any("class" in word for word in words) and re.fullmatch(r"(torch\.optim\.)?[A-Z]\w*", value):
        from lightning.pytorch import callbacks, loggers
        from torch import optim

        home, _, name = value.rpartition(".")
        if home or (found := did_you_mean(name, [*callbacks.__all__, *loggers.__all__])):
            return found or did_you_mean(name, dir(optim), f"{home}.")
        if found := did_you_mean(name, dir(fedlit), "fedlit."):
            return found
    if "a list such as [a, b]" in words and re.fullmatch(r"[\w.*]+", value):
        return f" Did you mean [{value}]?"
    return ""


def _taken(text: str) -> list[str]:
    """The arguments of the class that a message names."""
    found = re.search(r"class_path[' =]+([\w.]+)", text)
    return parameters_of(found[1]) if found else []


def _full(key: str, given: Given) -> str:
    """The full key of one in which parts are missing."""
    for own in reversed(list(given)):
        parts = iter(own.split("."))
        if own.rpartition(".")[2] == key.rpartition(".")[2] and all(part in parts for part in key.split(".")):
            return own
    return key


def _shown(key: str, given: Given) -> str:
    if key in given:
        return given[key][1]
    below = (own for own in given if own.startswith(f"{key}."))
    return next((given[own][1].removesuffix(own.removeprefix(key)) for own in below), key) or "configuration"


def _failed_import(error: Exception, given: Given) -> str:
    """The module of a class that the configuration names fails."""
    frames = traceback.extract_tb(error.__traceback__)
    last = error if isinstance(error, SyntaxError) else frames[-1]
    file, line = last.filename, last.lineno
    module = Path(file or "").stem
    key = next((own for own, (value, _) in given.items() if str(value).rpartition(".")[0].endswith(module)), "")
    return (
        f"{_shown(key, given)}: expected a class, found an error in {module}: {type(error).__name__}: {error} "
        f"({module}.py, line {line})"
    )


def why_not_made(error: Exception, given: Given) -> FedlitError:
    """Why objects could not be made of a configuration: what the class that refused says, with the key.

    jsonargparse wraps it, where a value may be of several kinds, in what each of them said.

    Example:
        >>> try:
        ...     raise ValueError("Does not validate ...") from ConfigError("IFCA: clusters: expected at least 1")
        ... except ValueError as error:
        ...     print(why_not_made(error, {}))
        IFCA: clusters: expected at least 1
    """
    cause: BaseException = error
    while cause.__cause__ is not None and not isinstance(cause, FedlitError):
        cause = cause.__cause__
    codes = [frame.f_code.co_qualname for frame, _ in traceback.walk_tb(cause.__traceback__)]
    made = [name.rpartition(".")[0] for name in codes if name.endswith(("__init__", "__post_init__"))]
    keys = (own for own, (value, _) in given.items() for name in made if name in str(value) or name.lower() in own)
    key = next(keys, "")
    if isinstance(cause, FedlitError):
        return cause if not key or key in str(cause) else type(cause)(f"{key}: {cause}")
    return ConfigError(
        f"{key or 'configuration'}: expected what its class accepts, found {type(cause).__name__}: "
        f"{next(iter(str(cause).splitlines()), 'nothing said')}"
    )
