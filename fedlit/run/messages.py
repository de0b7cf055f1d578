"""Explains in one sentence why a configuration is refused: the key, the reason of jsonargparse or
of a class, the value found, and what may have been meant.
"""

from __future__ import annotations

import re
import traceback
from argparse import ArgumentError
from pydoc import ErrorDuringImport
from typing import Any

from fedlit.errors import ConfigError, FedlitError, Told, closest, described, did_you_mean
from fedlit.run.allowed import ALL, NAMES
from fedlit.run.keys import KEYS
from fedlit.run.layers import Given, find_class, parameters_of

_NOISE = re.compile(
    r"^[ -]*|Type .{,300} callable class: |\.? ?(Got|Given) value: .*|Does not validate .*|Subtypes:.*|Errors:.*"
    r"|Given value type:.*|Problem with given .*|Expected a path but .*|Parser key .*|(?<=path string): .*",
    re.MULTILINE,
)
"""What a message of jsonargparse has around the reason."""

_TERMS = {
    "int": "integer", "float": "number", "str": "text", "bool": "true or false", "dict": "mapping", "NoneType": "null",
}  # fmt: skip
"""Python's name of a type → the keys' page's."""


def why_refused(error: Exception, given: Given) -> FedlitError:
    r"""Return the error that explains why a configuration is refused.

    Args:
        error: the error of jsonargparse, of a class about its settings, or of its module during the
            import. If a value may be of several kinds, jsonargparse wraps the error of each kind.
        given: the keys and values that the user gave.

    Example:
        >>> error = ArgumentError(None, 'Parser key "seed":\n  Expected a <class \'int\'>. Got value: eight')
        >>> print(why_refused(error, {"seed": ("eight", "--seed")}))
        --seed: expected integer, found 'eight'.
        >>> try:
        ...     raise ValueError("Does not validate ...") from ConfigError("IFCA: clusters: expected at least 1")
        ... except ValueError as error:
        ...     print(why_refused(error, {}))
        IFCA: clusters: expected at least 1
    """
    report = "".join(traceback.format_exception(error))
    # the name of a file may look like a class, which must not be imported
    for key, (value, _) in given.items():
        try:
            find_class(value if str(value).partition(".")[0] in report and key not in NAMES else "")
        except ErrorDuringImport as failed:
            return _failed(key, failed.value or failed, given)
    if not isinstance(error, ArgumentError):
        while error.__cause__ is not None and not isinstance(error, FedlitError):
            error = error.__cause__  # type: ignore[assignment]
        return error if isinstance(error, FedlitError) else _failed("", error, given)
    key = ".".join(dict.fromkeys(re.findall(r'Parser key "([^"]+)"', str(error))))
    value = given.get(key, given.get(f"{key}+", [""]))[0]
    text = str(error).rpartition('Parser key "')[2].partition("\n")[2] or str(error)
    if option := re.search(r"Option '([^']+)' is not accepted", text):
        named = re.search(r"class_path[' =]+([\w.]+)", text)
        taken = parameters_of(named[1] if named else str(value)) or []
        wrong = option[1]
        some = f"one of {', '.join(taken)}" if taken else "what its class takes"
        hint = did_you_mean(wrong, taken)
        return ConfigError(
            f"{_shown(f'{key}.{wrong}'.lstrip('.'), given)}: expected {some}, found "
            f"{wrong!r}.{hint}"
        )
    reasons = list(dict.fromkeys(line for line in _NOISE.sub("", text).splitlines() if line))
    if why := [line for line in reasons if not line.startswith("Expected a")]:
        hint = "" if why[0].endswith("?") else f".{_hint(value, '')}"
        return ConfigError(
            f"{_shown(key, given)}: expected what its class accepts, found: {why[0]}{hint}"
        )
    reason = " or ".join(
        re.sub(r"Expected an? |<class '(?:\w+\.)*|'>|typing\.", "", line) for line in reasons
    )
    seen = re.findall(r"value: (?!Namespace)(.+?)(?:\. Got value.*)?$", text, re.MULTILINE)
    is_known = key in given and (not seen or str(value) in seen)
    actual = value if is_known else Told([*seen, "others"][0])
    expected = _in_yaml(reason)
    if is_known and "." in key and key in KEYS:
        kind = KEYS[key][0].replace("`", "")  # as of a mapping to integers, not only of a mapping
        if set(expected.split()) <= set(kind.split()):
            expected = kind
    return ConfigError(
        f"{_shown(key, given)}: expected {expected}, found {actual!r}.{_hint(value, reason)}"
    )


def _in_yaml(types: str) -> str:
    """Return types in the terms of YAML, which are those of the keys' page.

    Example:
        >>> _in_yaml("Literal['step', 'epoch'] or dict or NoneType")
        'step or epoch or mapping or null'
    """

    def term(found: re.Match[str]) -> str:
        if found["choices"] is not None:
            return found["choices"].replace("'", "").replace(", ", " or ")
        return _TERMS[found[0]]

    return re.sub(rf"Literal\[(?P<choices>[^\]]*)\]|\b({'|'.join(_TERMS)})\b", term, types)


def _failed(key: str, error: BaseException, given: Given) -> ConfigError:
    return ConfigError(
        f"{_shown(key, given)}: expected what its class accepts, found {described(error)}"
    )


def _hint(value: Any, told: str) -> str:
    """Return a hint at what may have been meant: a list, one of the choices, or a class."""
    if not isinstance(value, str):
        return ""
    if "list" in told.split(" or ") and re.fullmatch(r"[a-z_\d.*]+", value):
        return f" Did you mean [{value}]?"
    if not re.fullmatch(r"(\w+\.)*[A-Z]\w*", value):
        return did_you_mean(value, re.findall(r"'([\w.-]+)'", told))
    classes = {
        class_path.rpartition(".")[2]: class_path
        for class_path in sorted(ALL, key=len, reverse=True)
    }
    near = closest(name := value.rpartition(".")[2], classes) or ""
    needless = not near or value == classes[near] or (near == name and not told)
    return "" if needless else f" Did you mean {classes[near]!r}?"


def _shown(key: str, given: Given) -> str:
    """Return a key as it was given last, by itself or with other keys below it. jsonargparse leaves
    out parts of some keys.
    """
    matches = [
        given[given_key][1].removesuffix(given_key) + whole
        for given_key in given
        if (whole := _whole_key(key, given_key))
    ]
    return matches[-1] if matches else key or "configuration"


def _whole_key(key: str, given: str) -> str:
    """Return the beginning of a key that was given which has all parts of another key, in their
    order; else nothing.

    Example:
        >>> _whole_key("model.rank", "model.init_args.core.rank+"), _whole_key("model.rank", "model.ranks")
        ('model.init_args.core.rank', '')
    """
    parts_of_key = key.split(".")
    parts = given.split(".")
    if not key or parts[0].partition("+")[0] != parts_of_key[0]:
        return ""
    position = 0
    for number, part in enumerate(parts):
        last = position == len(parts_of_key) - 1
        if parts_of_key[position] != (part.partition("+")[0] if last else part):
            continue
        if last:
            return ".".join([*parts[:number], parts_of_key[-1]])
        position += 1
    return ""
