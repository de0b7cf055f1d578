"""Explains in one sentence why a configuration is refused: the key, the reason of jsonargparse or of a class, the value
found, and what may have been meant.
"""

from __future__ import annotations

import re
import traceback
from argparse import ArgumentError
from collections.abc import Mapping
from copy import deepcopy
from itertools import takewhile
from pathlib import Path
from pydoc import ErrorDuringImport
from typing import Any

from fedlit.errors import ConfigError, FedlitError, closest, described, did_you_mean
from fedlit.run.allowed import all_classes
from fedlit.run.config import shown
from fedlit.run.layers import Given, Layer, find_class, given_in, parameters_of

_AROUND = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Problem with given", "Expected a path but")
"""Lines of jsonargparse's that say nothing of what is wrong begin so."""


def misfit(content: Mapping[str, Any], hints: Mapping[str, Any], file: Path) -> str | None:
    """Return why the values in a file do not fit the types of their keys; None if they do.

    Args:
        content: the content of the file.
        hints: maps each key to its type.
        file: the file, for messages.
    """
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    for key, hint in hints.items():
        parser.add_argument(f"--{key}", type=hint)
    try:
        parser.parse_object(deepcopy(dict(content)))
    except ArgumentError as error:
        return str(why_refused(error, given_in([Layer(content, f"{shown(file)}: ")])))
    return None


def why_refused(error: Exception, given: Given) -> FedlitError:
    r"""Return the error that explains why a configuration is refused.

    Args:
        error: the error of jsonargparse, of a class about its settings, or of its module during the import. If a value
            may be of several kinds, jsonargparse wraps the error of each kind.
        given: the keys and values that the user gave.

    Example:
        >>> error = ArgumentError(None, 'Parser key "seed":\n  Expected a <class \'int\'>. Got value: eight')
        >>> print(why_refused(error, {"seed": ("eight", "--seed")}))
        --seed: expected int, found 'eight'.
        >>> try:
        ...     raise ValueError("Does not validate ...") from ConfigError("IFCA: clusters: expected at least 1")
        ... except ValueError as error:
        ...     print(why_refused(error, {}))
        IFCA: clusters: expected at least 1
    """
    if isinstance(error, ArgumentError):
        key = _full(".".join(dict.fromkeys(re.findall(r'Parser key "([^"]+)"', str(error)))), given)
        try:
            find_class(given.get(key, [""])[0])
        except ErrorDuringImport as failed:
            return _failed(key, failed.value or failed, given)
        return ConfigError(_in_one_line(key, str(error), given))
    cause: BaseException = error
    while cause.__cause__ is not None and not isinstance(cause, FedlitError):
        cause = cause.__cause__
    codes = [frame.f_code for frame, _ in traceback.walk_tb(cause.__traceback__)]
    file = cause.filename or "" if isinstance(cause, SyntaxError) else codes[-1].co_filename if codes else ""
    made = [code.co_qualname.rpartition(".")[0] for code in codes if code.co_name in ("__init__", "__post_init__")]
    names = [*made, Path(file).stem]
    key = next((key for key, (value, _) in given.items() for name in names if name and name in str(value)), "")
    if isinstance(cause, FedlitError):
        return cause if not key or key in str(cause) else type(cause)(f"{key}: {cause}")
    return _failed(key, cause, given)


def _failed(key: str, error: BaseException, given: Given) -> ConfigError:
    return ConfigError(f"{_shown(key, given)}: expected what its class accepts, found {described(error)}")


def _in_one_line(key: str, message: str, given: Given) -> str:
    """Return the parser's message about the innermost key: what its class says, or else which types are accepted."""
    lines = [line for line in message.rpartition('Parser key "')[2].splitlines()[1:] if line.strip()] or [message]
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
    text = "\n".join(takewhile(lambda line: line.startswith(indent), lines))
    values = re.findall(r"G(?:ot|iven) value: (?!Namespace)(.*?)(?:\. Got value.*)?$", text, re.MULTILINE)
    value = given[key][0] if key in given else ""
    value = values[0] if values and values[0] != str(value) else value
    inside = re.search(r"path string: ([\w.]+)$", text, re.MULTILINE) if isinstance(value, str) else None
    value = inside[1] if inside and inside[1] != value and inside[1] in value else value  # one of a list
    if option := re.search(r"Option '([^']+)' is not accepted", text):
        named = re.search(r"class_path[' =]+([\w.]+)", text)
        taken, wrong = parameters_of(named[1] if named else str(value)) or [], option[1]
        shown = _shown(_full(f"{key}.{wrong}", given), given)
        return f"{shown}: expected one of {', '.join(taken)}, found {wrong!r}." + did_you_mean(wrong, taken)
    plain = re.sub(r"^[ -]*(Type .* callable class: )?|\. Got value.*|(?<=string): .*", "", text, flags=re.MULTILINE)
    reasons = list(dict.fromkeys(line for line in plain.splitlines() if line and not line.startswith(_AROUND)))
    if said := [line for line in reasons if not line.startswith("Expected a")]:
        told = f"{said[0]}{f': {value}' if inside else ''}.{_hint(str(value), '')}".replace("?.", "?")
        return f"{_shown(key, given)}: expected what its class accepts, found: {told}"
    told = " or ".join(re.sub(r"Expected an? |<class '(?:\w+\.)*|'>|typing\.", "", line) for line in reasons)
    told = told.replace("NoneType", "null")
    return f"{_shown(key, given)}: expected {told}, found {value!r}.{_hint(str(value), told)}"


def _hint(value: str, told: str) -> str:
    """Return a hint at what may have been meant: one of the choices, a list, or a class with a similar name."""
    if "list" in told.split(" or ") and re.fullmatch(r"[a-z_\d.*]+", value):
        return f" Did you mean [{value}]?"
    home, _, name = value.rpartition(".")
    if not re.fullmatch(r"[A-Z]\w*", name) or home not in ("", "torch.optim"):
        return did_you_mean(value, re.findall(r"'([\w.-]+)'", told))
    classes = {path.rpartition(".")[2]: path for path in sorted(all_classes(), key=len, reverse=True)}
    near = closest(name, classes)
    return f" Did you mean {classes[near]!r}?" if near and classes[near] != value else ""


def _full(key: str, given: Given) -> str:
    """Return the full key for a key with missing parts."""
    for own in reversed(list(given)):
        parts = iter(own.split("."))
        if own.rpartition(".")[2] == key.rpartition(".")[2] and all(part in parts for part in key.split(".")):
            return own
    return key


def _shown(key: str, given: Given) -> str:
    """Return a key as it was given, by itself or by a key below it; what was typed counts first."""
    names = [own for own in given if f"{own.removesuffix('+')}.".startswith(f"{key}.")]
    if not names:
        return key or "configuration"
    own = min(names, key=lambda own: (not given[own][1].startswith("--"), own != key))
    return given[own][1].removesuffix(own.removeprefix(key))
