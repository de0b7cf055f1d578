"""The terms that a site is asked to accept before anything leaves it, and the check that nothing
else leaves it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedlit.errors import RunError
from fedlit.exchange.question_terms import QuestionTerms, kind_of
from fedlit.exchange.questions import Question
from fedlit.institutions.plain import Message
from fedlit.institutions.terms import OF_TENSORS, Forms, Terms
from fedlit.show.text import shorten


class Consent:
    """Checks that nothing leaves the site that was not agreed to.

    Args:
        terms: what was agreed to.
        renew: asks a person to agree to other terms, where the tensors depend on what other sites
            told; raises where nobody does.
    """

    def __init__(self, terms: Terms, renew: Callable[[Terms], None] | None = None) -> None:
        self.terms = terms
        self._renew = renew

    def check(self, topic: str, facts: Message) -> None:
        """Refuse facts that were not agreed to.

        Raises:
            RunError: facts were not agreed to; the message names their topic.
        """
        agreed = self.terms.facts.get(topic, _MISSING)
        if (
            topic == "federated"
            and self.terms.aligned
            and self._renew is not None
            and facts != agreed
        ):
            wider = {
                name: (dtype, tuple(shape)) for name, (dtype, shape) in facts["tensors"].items()
            }
            self.terms = replace(
                self.terms, facts={**self.terms.facts, topic: facts}, tensors=wider, aligned=False
            )
            self._renew(self.terms)
            return
        if topic == "privacy" and self.terms.protection:
            return  # settings that the terms have, and a public key
        if topic in OF_TENSORS and topic in self.terms.facts:
            return  # it follows from the tensors, which were agreed to
        if not _within(json.loads(json.dumps(facts)), json.loads(json.dumps(agreed, default=str))):
            raise RunError(
                f"{topic}: expected only facts that were agreed to, found more; nothing of it was "
                "sent. Run fedlit site check, and accept again"
            )

    def check_update(self, state: Forms, published: Forms, *, masked: bool = False) -> None:
        """Refuse tensors that were not agreed to.

        Args:
            state: maps each name to its form.
            published: the same for published tensors.
            masked: whether they are words under masks, which include sums of weights and of
                answers.

        Raises:
            RunError: tensors were not agreed to; the message names them.
        """
        strange = [
            name for name, form in state.items() if not self._fits(name, form, masked=masked)
        ]
        strange += [
            name
            for name, form in published.items()
            if name not in self.terms.published or not _alike(form, self.terms.published[name])
        ]
        if strange:
            raise RunError(
                f"expected only tensors that were agreed to, found {shorten(strange)} too; nothing "
                "was sent"
            )

    def _fits(self, name: str, form: tuple[str, tuple[int, ...]], *, masked: bool) -> bool:
        if masked and name.startswith("sum/"):
            return len(form[1]) <= 1
        planned = self.terms.tensors.get(name)
        return planned is not None and _alike(form, ("int64" if masked else planned[0], planned[1]))

    def check_question(
        self, question: Question, others: int | None = None, seed: int | None = None
    ) -> QuestionTerms:
        """Refuse a question that was not agreed to, and return the bounds of its kind.

        Args:
            question: what the coordinator asks.
            others: the number of the other sites; None if it is not known.
            seed: the seed of the round; None if it is not known.

        Raises:
            RunError: the question was not agreed to; the message names its kind.
        """
        kind = kind_of(question)
        terms = self.terms.questions.get(kind) or self.terms.questions.get("*")
        if terms is None:
            raise RunError(
                "expected only questions that were agreed to "
                f"({', '.join(self.terms.questions) or 'none'}), found {kind!r} from the "
                "coordinator; nothing was answered"
            )
        terms.check(question, others, seed)
        return terms


_MISSING = "nothing at all was agreed to"


def _within(told: object, agreed: object) -> bool:
    """Return whether a message is part of what was agreed to."""
    if isinstance(told, dict) and isinstance(agreed, dict):
        return all(key in agreed and _within(value, agreed[key]) for key, value in told.items())
    return bool(told == agreed)


def _alike(found: tuple[str, Sequence[int]], planned: tuple[str, Sequence[int]]) -> bool:
    return found[0] == planned[0] and tuple(found[1]) == tuple(planned[1])


def write(folder: Path, terms: Terms) -> None:
    """Write all terms, with every value, into a site's folder."""
    path = folder / "terms.json"
    path.write_text(json.dumps(terms.to_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
