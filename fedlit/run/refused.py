"""What other libraries say against a configuration, as one message of fedlit's."""

from __future__ import annotations

import re
import traceback

from fedlit.errors import ConfigError, FedlitError

__all__ = ["in_one_line", "why_not_made"]


def in_one_line(message: str) -> str:
    r"""What jsonargparse says where its reason is not found: the key and the value, as far as it names them.

    Example:
        >>> in_one_line('Parser key "seed":\n  Expected a <class \'int\'>. Got value: text')
        "seed: expected another value, found 'text' (fedlit fit --help seed says which)"
    """
    keys = re.findall(r'Parser key "([^"]+)"', message)
    values = re.findall(r"(?:Given|Got) value: (.*?)\.?\s*$", message, re.MULTILINE)
    if keys:
        found = f", found {values[-1]!r}" if values and "Namespace(" not in values[-1] else ""
        key = ".".join(dict.fromkeys(keys))
        return f"{key}: expected another value{found} (fedlit fit --help {key} says which)"
    text = re.sub(r"\bParser key\b|<class '([\w.]+)'>", r"\1", " ".join(message.split())).rstrip(".")
    return f"{text} (fedlit fit --help all lists all keys)"


def why_not_made(error: Exception) -> FedlitError:
    """Why objects could not be made of a configuration: what the class that refused says, with the key.

    jsonargparse wraps it, where a value may be of several kinds, in what each of them said.

    Example:
        >>> try:
        ...     raise ValueError("Does not validate ...") from ConfigError("IFCA: clusters: expected at least 1")
        ... except ValueError as error:
        ...     print(why_not_made(error))
        IFCA: clusters: expected at least 1
    """
    key = _key(error)
    cause: BaseException = error
    while cause.__cause__ is not None and not isinstance(cause, FedlitError):
        cause = cause.__cause__
    if isinstance(cause, FedlitError):
        known = not key or key in str(cause)
        return cause if known else type(cause)(f"{key}: {cause}")
    reason = next(iter(str(cause).splitlines()), "") or "nothing said"
    named = type(cause).__name__
    if not key:
        return ConfigError(f"expected a configuration that can be put together, found {named}: {reason}")
    return ConfigError(
        f"{key}: expected what its class accepts, found that it refuses its values: {reason} "
        f"({named}; fedlit fit --help {key} says what it may be)"
    )


def _key(error: Exception) -> str:
    """The key at which jsonargparse was; empty where it is not seen."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        made = frame.f_locals.get("component")
        if frame.f_code.co_name == "instantiate" and made is not None:
            return str(getattr(made, "dest", ""))
    return ""
