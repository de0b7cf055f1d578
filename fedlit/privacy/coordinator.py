"""The coordinator's side of masked sums: asking sites for their parts, and adding these up."""

import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.questions import AnswerForm, Own, Question, wrong_forms
from fedlit.exchange.rule import Ask, Rule, Update
from fedlit.exchange.wire import pack, question_to
from fedlit.privacy.masking import Layout, Total, dtype_of, layout_of, sum_of
from fedlit.privacy.settings import Masked
from fedlit.sharing import Sharing, all_finite

SUM = "sum/"
"""The name under which a rule gets the mean. It is no client's, so that none receives what it does
not have."""

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
        if not all(bool(own) for own in all_finite({"sum": state}).values()):
            raise RunError(
                f"masked sums, round {self.number + 1}: expected finite means, found some that are "
                "not"
            )
        parameters = tuple(
            name for name in state if any(name in own for own in self.sharing.parameters.values())
        )
        return {SUM: Update(state, rows=1, parameters=parameters)}

    def asking(self, singly: Ask) -> Ask:
        """Return how a rule asks: of answers that it only adds, it gets the sum as the first
        client's, and zeros as others'.

        Args:
            singly: how other questions are asked, which each client answers as it is.

        Raises:
            RunError: when it asks: other questions, or not of all; answers of other forms.
        """
        places = itertools.count()

        def ask(asked: Mapping[str, Question]) -> Mapping[str, Any]:
            if not all(
                isinstance(own, Own) and own.topic in self.rule.facts.adds_answers
                for own in asked.values()
            ):
                return singly(asked)
            question = question_to(next(iter(asked.values())))
            if (
                set(asked) != set(self.sites)
                or len({pack(question_to(own)) for own in asked.values()}) > 1
            ):
                raise RunError(
                    f"masked sums, round {self.number + 1}: expected one question to all of "
                    f"{', '.join(self.sites)}, found other ones, or to {', '.join(asked)} alone: "
                    "give all the same inputs and outputs (data.align: both)"
                )
            sample = next(iter(asked.values()))
            expected = sample.answers if isinstance(sample, Own) else None
            total = self._sum(None, {"n": next(places), "question": question}, expected)
            first, *others = self.sites
            zeros = {name: torch.zeros_like(own) for name, own in total.sums.items()}
            return {first: total.sums, **dict.fromkeys(others, zeros)}

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
        question: Mapping[str, Any],
        expected: Mapping[str, AnswerForm] | None = None,
    ) -> Total:
        answers = self.put(
            {site: {"flags": self._flags_for(site), **question} for site in self.sites}
        )
        forms = {site: _forms(site, answers[site], asked=bool(question)) for site in self.sites}
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

    def _flags_for(self, site: str) -> dict[str, Any]:
        return {peer: [fit, proofs.get(site, "")] for peer, (fit, proofs) in self.flags.items()}

    def _check_answers(
        self,
        forms: Mapping[str, Mapping[str, tuple[str, tuple[int, ...]]]],
        expected: Mapping[str, AnswerForm],
    ) -> None:
        """Refuse answers with other tensors than the rule can add.

        Raises:
            RunError: there is one; the message names its site.
        """
        for site, own in forms.items():
            if wrong := wrong_forms(own, expected):
                raise RunError(
                    f"masked sums, round {self.number + 1}: expected {wrong} as answer of site "
                    f"{site!r}, found something else; do all sites run the same version?"
                )


def _forms(
    site: str, message: Mapping[str, Any], *, asked: bool
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the forms of an answer in a site's message that has not been checked yet; none for an
    update.
    """
    state = message.get("state")
    forms = message.get("forms", {})
    try:
        found = {
            name: (dtype, tuple(map(operator.index, shape)))
            for name, (dtype, shape) in forms.items()
        }
    except (AttributeError, TypeError, ValueError):
        found = {}
    if (
        not isinstance(state, Mapping)
        or not all(isinstance(own, Tensor) for own in state.values())
        or bool(found) != asked
        or any(size < 0 for _, shape in found.values() for size in shape)
    ):
        raise RunError(
            f"masked sums: site {site!r}: expected named "
            f"tensors{' and their forms' if asked else ''}, found another message; do all sites "
            "run the same version?"
        )
    return found
