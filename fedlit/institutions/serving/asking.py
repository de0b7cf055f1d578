"""The state in which a rule asks sites within a round, and the questions and answers of that
round.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fedlit.errors import FedlitError, RunError
from fedlit.exchange.questions import Question, wrong_answer
from fedlit.exchange.wire import question_to
from fedlit.institutions.plain import Message
from fedlit.institutions.serving.hub import Hub
from fedlit.institutions.serving.requests import Kind, Request
from fedlit.institutions.serving.serving import Serving
from fedlit.institutions.serving.state import Handle, State


class UnansweredError(FedlitError):
    """Some sites have not answered what a rule asked, and the others can go on without them."""

    def __init__(self, sites: Sequence[str]) -> None:
        super().__init__(f"expected answers of {', '.join(sites)}, found none")
        self.sites = sites


@dataclass
class _Dialogue:
    """The questions to one site within a round, and the answers that have come.

    Attributes:
        messages: the questions as they are sent.
        questions: the same questions as the rule asks them; None where a masked sum was asked for.
        next: the number of the next question to send.
        answers: the answers, by the number of the question.
    """

    messages: list[Message] = field(default_factory=list)
    questions: list[Question | None] = field(default_factory=list)
    next: int = 0
    answers: dict[int, object] = field(default_factory=dict)


class Asking(Serving):
    """A round is being closed, and its rule asks the sites. Every site has sent its update, and
    gets the next question as the reply to that, or to its last answer.

    Args:
        hub: what all states share.
        outside: the state that the coordinator was in, and returns to.
    """

    def __init__(self, hub: Hub, outside: State) -> None:
        super().__init__(hub)
        self._outside = outside
        self._dialogues: dict[str, _Dialogue] = {}

    @property
    def name(self) -> str:
        """See the base class."""
        return f"round {self.hub.journal.number + 1}, a question of the rule"

    @property
    def accepts(self) -> Mapping[Kind, Handle]:
        """All that the state outside accepts; updates and answers of the open round belong to a
        dialogue.
        """
        return {
            **self._outside.accepts,
            Kind.UPDATE: self.begin_again,
            Kind.ANSWER: self.take_answer,
        }

    def check(self, request: Request) -> None:
        """See the base class. New facts are refused: the round, whose updates are here, was planned
        without them.
        """
        super().check(request)
        if request.kind is Kind.FACTS and request.topic not in self.hub.journal.told:
            raise self.unexpected(request)

    @property
    def any_asked(self) -> bool:
        """Whether the rule has asked anything."""
        return bool(self._dialogues)

    def advance(self) -> State:
        """Return this state: the round ends when the rule has asked all that it wants to."""
        return self

    # ------------------------------------------------------------------ what is asked

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Put questions of the rule to sites, and wait for their answers."""
        messages = {site: {"ask": question_to(question)} for site, question in questions.items()}
        return self._put_all(messages, questions)

    def ask_for_sums(self, questions: Mapping[str, Message]) -> dict[str, Any]:
        """Ask sites for their parts of a masked sum, and wait for them."""
        return self._put_all(
            {site: {"masked": dict(question)} for site, question in questions.items()}
        )

    def _put_all(
        self,
        messages: Mapping[str, Message],
        questions: Mapping[str, Question] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Ask sites, and wait until all have answered.

        Args:
            messages: maps each site to what is sent to it.
            questions: maps each site to the question of the rule, where it is one.

        Raises:
            UnansweredError: patience is over, and the others can go on without the sites that have
                not answered.
        """
        numbers = {}
        for site, message in messages.items():
            dialogue = self._dialogues.setdefault(site, _Dialogue())
            dialogue.messages.append(dict(message))
            dialogue.questions.append(questions.get(site))
            numbers[site] = len(dialogue.messages) - 1
            self._put(site)
        since = time.monotonic()
        while silent := [
            site for site, number in numbers.items() if number not in self._dialogues[site].answers
        ]:
            self.hub.pulse()
            waited = time.monotonic() - since
            if self.hub.waiting.may_answer_without(silent, waited):
                raise UnansweredError(silent)
            self.hub.waiting.say(self.name, silent, waited)
        return {site: self._dialogues[site].answers.pop(number) for site, number in numbers.items()}

    def _put(self, site: str) -> None:
        """Ask a site the next question, if there is one and the site waits for it."""
        dialogue = self._dialogues[site]
        if dialogue.next < len(dialogue.messages) and self.hub.desk.is_open(site):
            self.hub.desk.put(site, {"n": dialogue.next, **dialogue.messages[dialogue.next]})

    # ------------------------------------------------------------------ what sites say

    def begin_again(self, request: Request) -> None:
        """Ask a site that was started again within the round all questions again, because later
        answers may depend on earlier questions.
        """
        if request.number < self.hub.journal.number:
            self.reply_late(request)
        else:
            self._go_on(request, 0)

    def take_answer(self, request: Request) -> None:
        """Take the answer to a question, and ask the next one."""
        if request.number < self.hub.journal.number:
            self.reply_late(request)
            return
        number = request.question
        dialogue = self._dialogues.get(request.site)
        if dialogue is None:
            self._go_on(request, number + 1)
        elif number + 1 < dialogue.next:
            return  # It came twice.
        elif number >= len(dialogue.messages):
            # This coordinator has not asked that question.
            self.hub.desk.send(request.site, {"again": True}, request.key)
        else:
            answer = request.content.get("answers")
            _check_answer(dialogue.questions[number], answer)
            dialogue.answers[number] = answer
            self._go_on(request, number + 1)

    def _go_on(self, request: Request, number: int) -> None:
        """Note that a site waits for a question, and ask that question if it is known already."""
        self.hub.desk.open(request)
        if request.site in self._dialogues:
            self._dialogues[request.site].next = number
            self._put(request.site)


def _check_answer(question: Question | None, answer: object) -> None:
    """Refuse an answer that the rule cannot use.

    Args:
        question: what the rule asks; None if a masked sum was asked for.
        answer: the answer of a site.

    Raises:
        RunError: it has another form than the question asks for.
    """
    if not _is_answer(answer, masked=question is None):
        raise RunError("expected a tensor or named tensors as answer, found something else")
    if question is not None and (wrong := wrong_answer(question, answer)):
        raise RunError(f"expected {wrong} as answer, found something else")


def _is_answer(answer: object, *, masked: bool) -> bool:
    if masked:
        return isinstance(answer, dict) and _is_answer(answer.get("state"), masked=False)
    if isinstance(answer, dict):
        return all(isinstance(value, Tensor) for value in answer.values())
    return isinstance(answer, Tensor)
