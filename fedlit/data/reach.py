"""Asks addresses whether they answer, all at once and for a few seconds only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

PATIENCE = 4.0
"""The longest time that addresses have to answer, in seconds."""


def unreachable(addresses: Iterable[str], seconds: float = PATIENCE) -> dict[str, str]:
    """Return the addresses that do not answer, each with the reason. Nothing is downloaded but
    their headers.

    Each address is asked by a thread of its own, because neither the look-up of a name nor a proxy
    keeps to a timeout.

    Args:
        addresses: addresses of files.
        seconds: how long they have to answer, all together.

    Example:
        >>> list(unreachable(["http://127.0.0.1:9/file"]))
        ['http://127.0.0.1:9/file']
    """
    reasons = dict.fromkeys(addresses, f"no answer within {seconds:g} seconds")
    answers: dict[str, str] = {}

    def ask(address: str) -> None:
        answers[address] = _reason(address, seconds)

    threads = [threading.Thread(target=ask, args=(address,), daemon=True) for address in reasons]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    reasons |= dict(answers)
    return {address: reason for address, reason in reasons.items() if reason}


def _reason(address: str, seconds: float) -> str:
    """Return why an address does not answer, or an empty text."""
    import requests

    try:
        with requests.get(address, stream=True, timeout=seconds) as response:
            response.raise_for_status()
    except (requests.ConnectionError, requests.Timeout) as error:
        return f"no connection ({_innermost(error)})"
    # requests raises OSError otherwise; a malformed address is a ValueError.
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _innermost(error: BaseException) -> str:
    """Return what lies below the errors that wrap it: the operating system's words."""
    while True:
        below = error.__cause__ or error.__context__
        if below is None:
            return str(error)
        error = below
