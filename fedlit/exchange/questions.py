"""The questions that a rule may ask clients, and the forms of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import Tensor

from fedlit.sharing import State, form_of


def bytes_of(state: State) -> int:
    """Return the bytes of a state in a message.

    Example:
        >>> bytes_of({"w": torch.zeros(2, 3)})
        24
    """
    return sum(value.nbytes for value in state.values())


@dataclass(frozen=True)
class Losses:
    """Asks for the mean loss over the client's training rows, (len(states),) float32, with the
    federated tensors of each state in place of the client's.
    """

    states: Sequence[State]


@dataclass(frozen=True)
class InputRange:
    """Asks for the least and largest values of the federated part's inputs over training rows: (2,
    *shape) float32.
    """


@dataclass(frozen=True)
class AnswerForm:
    """The form of one tensor of an answer.

    Attributes:
        dtypes: the types that it may have.
        shape: its sizes; None for one that only the client knows.
    """

    dtypes: tuple[str, ...]
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        """Return the form in words."""
        sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
        return f"{' or '.join(self.dtypes)} of shape ({sizes})"

    def fits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor of a type and a shape has this form."""
        if dtype not in self.dtypes or len(shape) != len(self.shape):
            return False
        return all(
            expected is None or size == expected
            for size, expected in zip(shape, self.shape, strict=True)
        )


@dataclass(frozen=True)
class Own:
    """A question for clients of one class, answered by the named tensors of ``client.answer(topic,
    tensors, rows)``.

    Attributes:
        topic: what the question is about.
        tensors: the tensors that come with it, by name.
        answers: the forms of all tensors of its answer, by name. They are not sent: who asks knows
            them. If None, any tensors are believed.

    Example:
        >>> question = Own("slope", answers={"slope": AnswerForm(("float64",), (2, None))})
        >>> wrong_answer(question, {"slope": torch.zeros(2, 5).double()})
        ''
        >>> wrong_answer(question, {"slope": torch.zeros(3, 5).double()})
        'slope: float64 of shape (2, any)'
    """

    topic: str
    tensors: State = field(default_factory=dict)
    answers: Mapping[str, AnswerForm] | None = field(default=None, compare=False)


Question = Losses | InputRange | Own
QUESTIONS: dict[str, type[Any]] = {"losses": Losses, "input_range": InputRange, "own": Own}
"""Maps the name of each question in messages to its class."""


def wrong_answer(question: Question, answer: Any) -> str:
    """Return the form that an answer should have, in words, if it has another one; otherwise an
    empty text. Answers to :class:`Own` are finite, and have the forms that the question expects.

    Example:
        >>> wrong_answer(Losses([{}, {}]), torch.zeros(2)), wrong_answer(Losses([{}, {}]), torch.zeros(3))
        ('', 'float32 of shape (2,)')
    """
    if isinstance(question, Losses):
        shape = (len(question.states),)
        if _is_float32(answer) and answer.shape == shape:
            return ""
        return f"float32 of shape {shape}"
    if isinstance(question, InputRange):
        if _is_float32(answer) and answer.shape[:1] == (2,):
            return ""
        return "float32 of shape (2, …)"
    named = isinstance(answer, dict) and all(isinstance(value, Tensor) for value in answer.values())
    if not named or not all(bool(value.isfinite().all()) for value in answer.values()):
        return "finite named tensors"
    if question.answers is None:
        return ""
    return wrong_forms({name: form_of(value) for name, value in answer.items()}, question.answers)


def _is_float32(answer: object) -> TypeGuard[Tensor]:
    return isinstance(answer, Tensor) and answer.dtype == torch.float32


def wrong_forms(
    forms: Mapping[str, tuple[str, tuple[int, ...]]], expected: Mapping[str, AnswerForm]
) -> str:
    """Return what an answer should have, in words, if it has other tensors than expected; otherwise
    an empty text.

    Args:
        forms: maps the name of each tensor of the answer to its (dtype, shape).
        expected: the forms that all of them should have, by name.
    """
    if forms.keys() != expected.keys():
        return f"tensors named {', '.join(expected) or 'nothing'}"
    wrong = (name for name, form in expected.items() if not form.fits(*forms[name]))
    return next((f"{name}: {expected[name]}" for name in wrong), "")
