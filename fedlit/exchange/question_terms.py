"""What a rule declares of each kind of question: a site shows it in its terms, and answers nothing
beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod

import torch

from fedlit.errors import RunError
from fedlit.exchange.questions import QUESTIONS, Losses, Own, Question
from fedlit.seeding import derive_seed
from fedlit.sharing import State, form_of

OTHERS = "others"
"""The size that is the number of the other sites."""


def kind_of(question: Question) -> str:
    """Return the kind of a question: its topic, or the name of its class in messages.

    Example:
        >>> kind_of(Own("curvature")), kind_of(Losses([{}]))
        ('curvature', 'losses')
    """
    if isinstance(question, Own):
        return question.topic
    return next(name for name, kind in QUESTIONS.items() if type(question) is kind)


def tensors_of(question: Question) -> State:
    """Return the tensors of a question, by name. Of the states of :class:`Losses`, it is their
    number that counts.
    """
    if isinstance(question, Own):
        return question.tensors
    if isinstance(question, Losses):
        return {"models": torch.zeros(len(question.states))}
    return {}


@dataclass(frozen=True)
class QuestionTerms:
    """The bounds of one kind of question.

    Attributes:
        forms: maps each tensor that may come with it, or a pattern of names, to its type and its
            largest shape. A size is a number, :data:`OTHERS`, or another name, which has one value
            in all tensors of a question. If None, any tensors may come with it.
        times: how often it may be asked in a round; None for any number.
        about: the beginning of the names of tensors that say, up to a colon, what a question is
            about; ``times`` then counts for each. If empty, all questions of the kind count
            together.
        elements: how many values it may have; None for any number.
        values: the values that tensors must have, by name.
        seeds: maps tensors that are seeds to their purpose: they must be derived from the seed of
            the round.

    Example:
        >>> terms = QuestionTerms({"at.*": ("float32", (1,))}, times=50)
        >>> terms.check(Own("slope", {"at.age": torch.ones(1)}))
        >>> str(terms)
        'at most 50 in a round, at.* float32 [1]'
    """

    forms: Mapping[str, tuple[str, tuple[int | str, ...]]] | None = None
    times: int | None = None
    about: str = ""
    elements: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    seeds: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the bounds in words."""
        parts = []
        if self.times is not None:
            parts.append(f"at most {self.times:,} in a round")
            if self.about:
                parts[-1] += f" for each {self.about.rstrip('.')}"
        if self.elements is not None:
            parts.append(f"at most {self.elements:,} values each")
        for name, (dtype, shape) in (self.forms or {}).items():
            part = f"{name} {dtype}"
            if shape:
                part += f" [{', '.join(map(str, shape))}]"
            if name in self.values:
                part += f" = {self.values[name]:g}"
            parts.append(part)
        if self.forms is None:
            parts.append("with any tensors")
        return ", ".join(parts)

    def check(self, question: Question, others: int | None = None, seed: int | None = None) -> None:
        """Refuse a question beyond these bounds.

        Args:
            question: a question of this kind.
            others: the number of the other sites; None if it is not known.
            seed: the seed of the round; None if it is not known.

        Raises:
            RunError: it is beyond them; the message names its kind, what was expected, and what was
                found.
        """
        kind = kind_of(question)
        tensors = tensors_of(question)
        if self.forms is not None:
            self._check_forms(kind, tensors, others)
        values = elements_of(question)
        if self.elements is not None and values > self.elements:
            raise _refused(kind, f"at most {self.elements:,} values", f"{values:,}")
        fixed = dict(self.values)
        if seed is not None:
            fixed |= {name: derive_seed(seed, purpose) for name, purpose in self.seeds.items()}
        for name, value in fixed.items():
            actual: float | str = "none"
            if name in tensors and tensors[name].numel() == 1:
                actual = tensors[name].item()
            if actual != value:
                raise _refused(kind, f"{name}: {value}", str(actual))

    def _check_forms(self, kind: str, tensors: State, others: int | None) -> None:
        sizes: dict[str, int] = {}
        for name, tensor in tensors.items():
            dtype, shape = form_of(tensor)
            form = self._form(name)
            if form is None:
                raise _refused(kind, f"{name}: no such tensor", f"{dtype} {list(shape)}")
            if form[0] != dtype or not _fits(shape, form[1], sizes, others):
                expected = f"{name}: at most {form[0]} {list(form[1])}"
                raise _refused(kind, expected, f"{dtype} {list(shape)}")

    def counted_as(self, question: Question) -> str:
        """Return the name under which a question counts."""
        kind = kind_of(question)
        if not self.about:
            return kind
        names = [name for name in tensors_of(question) if name.startswith(self.about)]
        return " ".join([kind, *sorted({name.partition(": ")[0] for name in names})])

    def _form(self, name: str) -> tuple[str, tuple[int | str, ...]] | None:
        forms = self.forms or {}
        matching = (form for pattern, form in forms.items() if fnmatchcase(name, pattern))
        return forms.get(name) or next(matching, None)


def elements_of(question: Question) -> int:
    """Return the number of values in a question."""
    return sum(prod(tensor.shape) for tensor in tensors_of(question).values())


def _fits(
    shape: tuple[int, ...], wanted: tuple[int | str, ...], sizes: dict[str, int], others: int | None
) -> bool:
    """Return whether a shape is allowed; sizes that have a name are noted."""
    if len(shape) != len(wanted):
        return False
    for size, most in zip(shape, wanted, strict=True):
        if most == OTHERS:
            most = size if others is None else others
        if isinstance(most, str) and sizes.setdefault(most, size) != size:
            return False
        if isinstance(most, int) and size > most:
            return False
    return True


def _refused(kind: str, expected: str, found: str) -> RunError:
    return RunError(
        f"{kind}: expected a question within the bounds that were agreed to ({expected}), found "
        f"{found} from the coordinator; nothing was answered"
    )
