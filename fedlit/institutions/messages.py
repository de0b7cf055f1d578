"""Messages between the coordinator and sites: bytes that are checked before they are used, and what
all must have in common.

A site makes *requests*, one at a time. Each has a key: ``share:<topic>`` before training,
``at:<round>`` when the site begins or begins again, ``round:<number>``, ``done``; and
``round:<number>/<n>`` with its answer to question n of the rule in that round. The coordinator's
*reply* names the key that it belongs to (``to``). It is what the site asked for, or the next
question of the rule. A request can be repeated without harm, because it gets the same reply. So a
process that was killed can continue.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.wire import unpack
from fedlit.institutions.plain import Message
from fedlit.institutions.settings import FederationFile
from fedlit.sharing import Sharing, form_of

if TYPE_CHECKING:
    from fedlit.run.run import Run


MOST = 64 * 2**20
"""The largest number of bytes of a message before it is known which tensors are sent, see
:func:`largest`."""

WIRE = 2
"""The version of the wire format: it rises with each change after which two sides would
misunderstand each other."""

HEAD = 16 * 2**20
"""The largest number of bytes of a message's text."""


def read(content: bytes, most: int) -> Message:
    """Read a message that somebody else has sent.

    Args:
        content: its bytes.
        most: how many they may be.

    Raises:
        RunError: too many, or no message.

    Example:
        >>> from fedlit.exchange.wire import pack
        >>> read(pack({"key": "done"}), MOST)
        {'key': 'done'}
    """
    if len(content) > most:
        raise RunError(f"expected a message of at most {most:,} bytes, found {len(content):,}")
    size = struct.unpack(">Q", content[:8])[0] if len(content) >= 8 else -1
    if not 0 <= size <= min(HEAD, len(content) - 8):
        raise RunError(
            f"expected a message of fedlit, found {len(content):,} bytes that are not one"
        )
    return unpack(content)


def round_of(key: str) -> int | None:
    """Return the number of the round in a key, with or without a question after it; None for
    another key.

    Example:
        >>> round_of("round:3"), round_of("round:3/0"), round_of("done")
        (3, 3, None)
    """
    kind, _, rest = key.partition("/")[0].partition(":")
    return int(rest) if kind == "round" and _is_number(rest.removeprefix("-")) else None


def question_of(key: str) -> int | None:
    """Return the number of the question that a request answers; None if it answers none.

    Example:
        >>> question_of("round:3/0"), question_of("round:3")
        (0, None)
    """
    _, _, rest = key.partition("/")
    return int(rest) if _is_number(rest) else None


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 10


def topic_of(key: str) -> str | None:
    """Return the topic in a key of facts; None for another key."""
    kind, _, rest = key.partition(":")
    return rest if kind == "share" else None


def forms_of(state: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Map each name to the (dtype, shape) of its tensor."""
    return {name: form_of(value) for name, value in state.items()}


_OWN = (
    "name",
    "ckpt_path",
    "format",
    "data.source",
    "data.known",
    "data.eval_batch_size",
    "data.predict",
    "model.threads",
    "board.",
    "checkpoint.",
    "score.",
    "trainer.default_root_dir",
    "trainer.logger",
    "trainer.enable_progress_bar",
    "trainer.accelerator",
    "trainer.devices",
)
"""The keys that each site may set for itself."""


def settings_of(run: Run, federation: FederationFile) -> Message:
    """Return the settings that must be the same at all sites, as JSON: key → value. The version of
    the wire format is among them; versions of packages are not, because sites may have different
    patch versions.

    Args:
        run: a site's, or the coordinator's.
        federation: its identity, its sites and what protects them.
    """
    run_settings = {
        key: value for key, value in (run.settings or {}).items() if not key.startswith(_OWN)
    }
    whole = {**run_settings, **federation.settings, "version.wire": WIRE}
    plain: dict[str, Any] = json.loads(json.dumps(whole, default=str, sort_keys=True))
    return plain


def wrong_settings(expected: Mapping[str, Any], found: Any) -> str:
    """Return the keys in which two sets of settings differ, with both values; an empty text if they
    do not differ.

    Example:
        >>> wrong_settings({"seed": 1, "exchange.rate": 1.0}, {"seed": 1, "exchange.rate": 0.5})
        'exchange.rate: expected 1.0, found 0.5'
    """
    if not isinstance(found, Mapping) or not isinstance(expected, Mapping):
        return "" if expected == found else f"expected {expected!r:.80}, found {found!r:.80}"
    keys = [
        key for key in dict.fromkeys([*expected, *found]) if expected.get(key) != found.get(key)
    ]
    return "; ".join(
        f"{key}: expected {expected.get(key)!r:.120}, found {found.get(key)!r:.120}"
        for key in keys[:20]
    )


def bytes_of_forms(forms: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    """Return the number of bytes of tensors of these dtypes and shapes."""
    return sum(getattr(torch, dtype).itemsize * math.prod(shape) for dtype, shape in forms.values())


def largest(forms: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    """Return the largest number of bytes of a message, either way, once it is known which tensors
    are federated.

    Args:
        forms: maps the name of each federated tensor, of all sites, to its (dtype, shape).
    """
    return MOST + 16 * bytes_of_forms(forms)


def check_state(state: object, forms: Mapping[str, tuple[str, tuple[int, ...]]], what: str) -> None:
    """Check that a message holds named tensors of the plan, and nothing else.

    Args:
        state: the message.
        forms: name → (dtype, shape) of those that may come.
        what: its name, for the error.

    Raises:
        RunError: it holds something else; the error names the tensor.
    """
    if not isinstance(state, dict):
        raise RunError(f"{what}: expected named tensors, found {type(state).__name__}")
    for name, value in state.items():
        planned = forms.get(name)
        if planned is None:
            raise RunError(
                f"{what}: expected only tensors of the plan, found {name!r}, which is not in it"
            )
        if not isinstance(value, Tensor):
            raise RunError(f"{what}: {name}: expected a tensor, found {type(value).__name__}")
        dtype, shape = form_of(value)
        if shape != tuple(planned[1]) or dtype != planned[0]:
            raise RunError(
                f"{what}: {name}: expected {planned[0]} of shape {tuple(planned[1])}, as in the "
                f"plan, found {dtype} of shape {shape}"
            )


def check_update(
    message: Message, site: str, sharing: Sharing, manifest: object, *, masked: bool = False
) -> None:
    """Check that a site's update is as planned.

    Args:
        message: of the site.
        site: its name; it is its client's name, too.
        sharing: what is federated.
        manifest: what the site publishes: ``published``: name → (dtype, shape).
        masked: whether it must be empty, because the coordinator asks for masked sums.

    Raises:
        RunError: it is another client's, has tensors that were not planned, or lacks some.
    """
    updates = message.get("updates")
    flags = message.get("flags", {})
    unfit = message.get("unfit", False)
    proofs = flags.values() if isinstance(flags, dict) else [None]
    if type(unfit) is not bool or not all(
        re.fullmatch("[0-9a-f]{64}", str(proof)) for proof in proofs
    ):
        raise RunError(
            "expected a proof for each other site of whether the update is fit, found something "
            "else"
        )
    if not isinstance(updates, dict) or not set(updates) <= {site}:
        raise RunError(
            f"expected an update of {site} alone, found "
            f"{updates if updates is None else sorted(updates)}"
        )
    for name, update in updates.items():
        if not isinstance(update, dict) or set(update) != {"state", "published", "rows", "steps"}:
            raise RunError(
                "expected an update of state, published, rows and steps, found something else"
            )
        names = sharing.names.get(name, ()) if not masked else ()
        check_state(update["state"], {key: sharing.forms[key] for key in names}, "update")
        if missing := [key for key in names if key not in update["state"]]:
            raise RunError(
                f"update: expected {len(names)} federated tensors, found that {missing[0]!r} is "
                "missing"
            )
        published = manifest.get("published", {}) if isinstance(manifest, Mapping) else {}
        check_state(
            update["published"],
            {key: (form[0], tuple(form[1])) for key, form in published.items()},
            "published",
        )
        if any(
            type(update[key]) is not int or not 0 <= update[key] < 2**53
            for key in ("rows", "steps")
        ):
            raise RunError("expected the numbers of rows and steps, found something else")
