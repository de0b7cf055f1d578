"""The coordinator's side of masked sums: asking sites for their parts, and adding these up."""

import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.ahead import SUM
from fedlit.exchange.questions import AnswerForm, Own, Question, wrong_forms
from fedlit.exchange.rule import Ask, Rule, Update
from fedlit.exchange.wire import pack, question_to
from fedlit.privacy.masking import Layout, Total, dtype_of, layout_of, sum_of
from fedlit.privacy.settings import Masked
from fedlit.sharing import Form, Sharing, all_finite

Put = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Mapping[str, Any]]]
"""Asks sites, all at once, and waits for all of them: maps questions by site to answers by site."""

Flags = Mapping[str, tuple[bool, Mapping[str, str]]]
"""Maps each site of the round to whether its update is fit, and to its proof for each other site
(``Pairs.flags``)."""


class Gathering:
    """Gets the sums of one round from its sites.

    Args:
        masked: the settings of masked sums.
        rule: the federation's rule.
        sharing: which tensors of each site's client are federated.
        number: the number of exchanges before the round.
        flags: the flag of each site of the round, which states that its update is fit: if one is
            not, there is no sum.
        put: asks sites. It waits for a site that is away, because there is no sum without it.

    Attributes:
        sites: the sites of the round; each sum is over all of them.
    """

    def __init__(
        self, masked: Masked, rule: Rule, sharing: Sharing, number: int, flags: Flags, put: Put
    ) -> None:
        self.masked = masked
        self.rule = rule
        self.sharing = sharing
        self.number = number
        self.flags = flags
        self.put = put
        self.sites = sorted(flags)

    def gather(self) -> dict[str, Update]:
        """Return what a rule gets instead of the round's updates: the mean, as that of one client
        of the name :data:`SUM`; or, where the rule only adds answers, the names of what each client
        federates, with zeros. It is aggregated with ``minimum`` 1 and without measuring drift,
        which nobody can.

        Raises:
            FedlitError: too few sites are fit, a message of another form, or masks that do not
                cancel.
        """
        if not self.rule.facts.by_mean:
            return {site: self._blank(site) for site in self.sites}
        total = self._sum(layout_of(self.sharing, self.sites, self.rule, self.masked.least), {})
        state = total.mean(self.sharing.forms)
        if not all(map(bool, all_finite({"sum": state}).values())):
            raise RunError(
                f"masked sums, round {self.number + 1}: expected finite means, found some that are "
                "not"
            )
        known_parameters = set().union(*self.sharing.parameters.values())
        parameters = tuple(name for name in state if name in known_parameters)
        return {SUM: Update(state, rows=1, parameters=parameters)}

    def asking(self, singly: Ask) -> Ask:
        """Return an `ask` that routes questions whose answers the rule only adds through the masked
        sum. The rule gets the sum as the first client's answer, and zeros as the others'.

        Args:
            singly: asks all other questions, which each client answers by itself.

        Raises:
            RunError: (by the result) the questions differ between clients or leave some out, or
                answers have other forms.
        """
        numbers = itertools.count()

        def ask(questions: Mapping[str, Question]) -> Mapping[str, Any]:
            if not all(
                isinstance(question_of_site, Own)
                and question_of_site.topic in self.rule.facts.adds_answers
                for question_of_site in questions.values()
            ):
                return singly(questions)
            question = question_to(next(iter(questions.values())))
            if (
                set(questions) != set(self.sites)
                or len(
                    {pack(question_to(question_of_site)) for question_of_site in questions.values()}
                )
                > 1
            ):
                raise RunError(
                    f"masked sums, round {self.number + 1}: expected one question to all of "
                    f"{', '.join(self.sites)}, found other ones, or to {', '.join(questions)} alone: "
                    "give all the same inputs and outputs (data.align: both)"
                )
            sample = next(iter(questions.values()))
            expected = sample.answers if isinstance(sample, Own) else None
            total = self._sum(None, {"n": next(numbers), "question": question}, expected)
            first, *other_sites = self.sites
            zeros = {
                name: torch.zeros_like(question_of_site)
                for name, question_of_site in total.sums.items()
            }
            return {first: total.sums, **dict.fromkeys(other_sites, zeros)}

        return ask

    def _blank(self, site: str) -> Update:
        forms = self.sharing.forms
        state = {
            name: torch.zeros(forms[name][1], dtype=dtype_of(forms[name][0]))
            for name in self.sharing.names[site]
        }
        return Update(state, parameters=tuple(self.sharing.parameters[site]))

    def _sum(
        self,
        layout: Layout | None,
        question: Mapping[str, object],
        expected: Mapping[str, AnswerForm] | None = None,
    ) -> Total:
        answers = self.put(
            {site: {"flags": self._flags_for(site), **question} for site in self.sites}
        )
        forms = {
            site: _forms(site, answers[site], by_question=bool(question)) for site in self.sites
        }
        if layout is None:
            if expected is not None:
                self._check_answers(forms, expected)
            first = self.sites[0]
            if differing := [site for site in self.sites if forms[site] != forms[first]]:
                raise RunError(
                    f"masked sums, round {self.number + 1}: expected answers of one form, found "
                    f"those of {first} and {differing[0]} differ: give all the same inputs and "
                    "outputs (data.align: both)"
                )
            layout = Layout(
                {tuple(self.sites): sorted(forms[first])}, forms[first], least=self.masked.least
            )
        return sum_of(
            layout, {site: answers[site]["state"] for site in self.sites}, self.masked.bits
        )

    def _flags_for(self, site: str) -> dict[str, list[bool | str]]:
        return {peer: [fit, proofs.get(site, "")] for peer, (fit, proofs) in self.flags.items()}

    def _check_answers(
        self,
        forms: Mapping[str, Mapping[str, Form]],
        expected: Mapping[str, AnswerForm],
    ) -> None:
        """Refuse answers with other tensors than the rule can add.

        Raises:
            RunError: there is one; the message names its site.
        """
        for site, answer_forms in forms.items():
            if wrong := wrong_forms(answer_forms, expected):
                raise RunError(
                    f"masked sums, round {self.number + 1}: expected {wrong} as answer of site "
                    f"{site!r}, found something else; do all sites run the same version?"
                )


def _forms(site: str, message: Mapping[str, Any], *, by_question: bool) -> dict[str, Form]:
    """Return the forms of an answer in a site's message that has not been checked yet; none for an
    update.
    """
    state = message.get("state")
    forms = message.get("forms", {})
    try:
        stated_forms = {
            name: (dtype, tuple(map(operator.index, shape)))
            for name, (dtype, shape) in forms.items()
        }
    except (AttributeError, TypeError, ValueError):
        stated_forms = {}
    expected = "named tensors and their forms" if by_question else "named tensors"
    named = isinstance(state, Mapping) and all(
        isinstance(tensor, Tensor) for tensor in state.values()
    )
    sizes = itertools.chain.from_iterable(shape for _, shape in stated_forms.values())
    if not named or bool(stated_forms) != by_question or any(size < 0 for size in sizes):
        raise RunError(
            f"masked sums: site {site!r}: expected {expected}, found another message; do all sites "
            "run the same version?"
        )
    return stated_forms
