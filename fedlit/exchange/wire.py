"""Messages as bytes: JSON for plain data, safetensors for tensors. No pickle, so that reading one
runs no code.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, TypedDict

import torch
from safetensors.torch import load, save
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.questions import QUESTIONS, Question
from fedlit.exchange.rule import Need, Update
from fedlit.sharing import State

_PLACE = "__tensor__"


def pack(message: Mapping[str, object]) -> bytes:
    """Return a message as bytes: text, numbers, lists, mappings with names as keys, and tensors, in
    any nesting.

    Example:
        >>> import torch
        >>> unpack(pack({"round": 3, "states": [{"w": torch.ones(2)}]}))
        {'round': 3, 'states': [{'w': tensor([1., 1.])}]}
    """
    tensors: dict[str, Tensor] = {}
    names_of: dict[int, str] = {}

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            if id(value) not in names_of:
                names_of[id(value)] = str(len(names_of))
                tensors[names_of[id(value)]] = value.detach().cpu().contiguous().clone()
            return {_PLACE: names_of[id(value)]}
        if isinstance(value, Mapping):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        return value

    head = json.dumps(plain(message)).encode()
    return struct.pack(">Q", len(head)) + head + save(tensors)


def unpack(content: bytes, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the message that :func:`pack` packed.

    Args:
        content: the packed message.
        device: the device of the tensors.

    Raises:
        RunError: the bytes are not a message.
    """
    try:
        (length,) = struct.unpack(">Q", content[:8])
        tensors = {name: value.to(device) for name, value in load(content[8 + length :]).items()}
        content_tree: dict[str, Any] = _whole(json.loads(content[8 : 8 + length]), tensors)
        eight_bits = any(
            value.is_floating_point() and value.itemsize == 1 for value in tensors.values()
        )
        # torch cannot calculate with floating-point numbers of eight bits.
        if not isinstance(content_tree, dict) or eight_bits:
            raise ValueError
    except (Exception, RecursionError) as error:  # safetensors raises exceptions of its own.
        raise RunError(
            f"expected a message of fedlit, found {len(content)} bytes that are none "
            f"({type(error).__name__}); do all sites run the same version?"
        ) from error
    return content_tree


def _whole(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_PLACE}:
            return tensors[value[_PLACE]]
        return {key: _whole(part, tensors) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole(part, tensors) for part in value]
    return value


class UpdateMessage(TypedDict):
    """An update as a message; counts that the rule does not need are 0."""

    state: State
    published: State
    rows: int
    steps: int


def update_to(update: Update, needs: frozenset[Need]) -> UpdateMessage:
    """Return an update as a message, without the counts that the rule does not need and the names
    of parameters.
    """
    message: UpdateMessage = {
        "state": update.state,
        "published": update.published,
        "rows": 0,
        "steps": 0,
    }
    if "rows" in needs:
        message["rows"] = update.rows
    if "steps" in needs:
        message["steps"] = update.steps
    return message


_EXPECTED = "answers"
"""The field of a question that stays with whoever asks."""


def question_to(question: Question) -> dict[str, object]:
    """Return a question as a message."""
    name = next(name for name, kind in QUESTIONS.items() if type(question) is kind)
    fields = {key: value for key, value in vars(question).items() if key != _EXPECTED}
    return {"question": name, **fields}


def question_from(message: Mapping[str, Any]) -> Question:
    """Return the question in a message of :func:`question_to`.

    Raises:
        RunError: there is no such question.
    """
    fields = dict(message) if isinstance(message, Mapping) else {}
    name = fields.pop("question", None)
    try:
        if _EXPECTED in fields:
            raise TypeError
        question: Question = QUESTIONS[name](**fields)
    except (KeyError, TypeError) as error:
        raise RunError(
            f"expected a question ({', '.join(QUESTIONS)}) with its fields, found {name!r} with "
            f"{', '.join(fields) or 'none'}; update fedlit"
        ) from error
    return question
