"""Sums of clients' answers, which rules of exact models need."""

from collections.abc import Mapping

import numpy as np

from fedlit.exchange.questions import AnswerForm, Own
from fedlit.exchange.rule import Round
from fedlit.sharing import State
from fedlit.types import Floats


def added(
    round: Round, topic: str, tensors: State, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Floats]:
    """Ask all clients of a round the same question, and return the sum of their answers, in the
    order of their names.

    Args:
        round: the round.
        topic: the topic of the question.
        tensors: the tensors that come with it.
        shapes: maps each tensor of an answer, which is float64, to its shape.
    """
    forms = {name: AnswerForm(("float64",), shape) for name, shape in shapes.items()}
    question = Own(topic, tensors, forms)
    answers = round.ask(dict.fromkeys(sorted(round.updates), question))
    client_answers = [answers[client] for client in sorted(answers)]
    sums = {}
    for name in client_answers[0]:
        sums[name] = np.sum([answer[name].numpy() for answer in client_answers], 0)
    return sums
