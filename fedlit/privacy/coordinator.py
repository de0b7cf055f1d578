"""The coordinator's side of masked sums: who is asked for what, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.questions import Own, Question, bytes_of
from fedlit.exchange.rule import Ask, Rule, Update
from fedlit.exchange.wire import question_to
from fedlit.privacy.layout import Layout, Total, dtype_of
from fedlit.privacy.masking import sum_of
from fedlit.privacy.refusals import layout_of
from fedlit.privacy.settings import Masked
from fedlit.sharing import Sharing, all_finite

__all__ = ["SUM", "Gathered", "Gathering"]

_log = logging.getLogger(__name__)

SUM = "sum/"
"""Under which name a rule is given the mean. It is nobody's, so that nobody receives what it does not have."""

Put = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Mapping[str, Any] | None]]
"""Asks sites, all at once: site → question, to site → answer; None of one that has left."""


@dataclass(frozen=True)
class Gathered:
    """What came of a round.

    Attributes:
        updates: what a rule is given in place of updates: the mean, as that of one client of the name :data:`SUM`; or,
            where the rule only adds answers, the names of what each client federates, with zeros. It is aggregated
            with ``minimum`` 1 and without measuring drift, which nobody can.
        took: sites whose updates are in the sum.
        bytes: of tensors that travelled.
    """

    updates: dict[str, Update]
    took: tuple[str, ...]
    bytes: int


class Gathering:
    """Gets sums from sites; repeats a round without those that leave.

    Args:
        masked: settings.
        rule: the federation's.
        sharing: what of each site's client is federated.
    """

    def __init__(self, masked: Masked, rule: Rule, sharing: Sharing) -> None:
        self.masked, self.rule, self.sharing = masked, rule, sharing

    def gather(
        self,
        number: int,
        sites: Sequence[str],
        put: Put,
        attempt: int = 0,
        begin: Callable[[int, Sequence[str]], None] = lambda attempt, sites: None,
    ) -> Gathered:
        """One round's updates.

        Args:
            number: exchanges before it.
            sites: that take part, and said that their update is fit.
            put: asks them. A site that is asked to open has to come back, however long that takes: it can do so as
                soon as it is there again, and without the others, who have opened, there is no other sum.
            attempt: 0; of a coordinator that was killed within the round the last one that it began, with its sites:
                they answer with the same bytes.
            begin: is told of each attempt and its sites before anybody is asked, so that it can be written down.

        Raises:
            RunError: too few are left, a message of another form, masks that do not cancel.
        """
        if not self.rule.by_mean:
            known = {site: self.sharing.names[site] for site in sites}
            return Gathered({site: self._blank(site) for site in sorted(known)}, tuple(sorted(known)), 0)
        total, took, weight = self._sum(number, sites, put, self._layout, {}, attempt, begin)
        state = total.mean(self.sharing.forms)
        if not all(bool(own) for own in all_finite({"sum": state}).values()):
            raise RunError(f"masked sums, round {number + 1}: expected finite means, found some that are not")
        parameters = tuple(name for name in state if any(name in own for own in self.sharing.parameters.values()))
        return Gathered({SUM: Update(state, rows=1, parameters=parameters)}, took, weight)

    def _layout(self, sites: Sequence[str]) -> Layout:
        return layout_of(self.sharing, sites, self.rule, self.masked.least)

    def asking(self, number: int, sites: Sequence[str], put: Put, singly: Ask) -> Ask:
        """How a rule asks: of answers that it only adds, it gets the sum as the first client's, and zeros as others'.

        Args:
            number: exchanges before the round.
            sites: that take part.
            put: asks them.
            singly: how other questions are asked, which each client answers as it is.

        Raises:
            RunError: when it asks: other questions, or not of all; a site that has left; answers of other forms.
        """
        questions = 0

        def ask(asked: Mapping[str, Question]) -> Mapping[str, Any]:
            nonlocal questions
            if not all(isinstance(own, Own) and own.topic in self.rule.adds_answers for own in asked.values()):
                return singly(asked)
            place, questions = questions, questions + 1
            self._refuse_others(number, sites, asked)
            question = {"n": place, "question": question_to(next(iter(asked.values())))}
            total, took, _ = self._sum(number, sites, put, None, question, 0, lambda attempt, sites: None)
            first, *others = took
            zeros = {name: torch.zeros_like(own) for name, own in total.sums.items()}
            return {first: total.sums, **dict.fromkeys(others, zeros)}

        return ask

    def _refuse_others(self, number: int, sites: Sequence[str], asked: Mapping[str, Question]) -> None:
        if set(asked) != set(sites):
            raise RunError(
                f"masked sums, round {number + 1}: expected {type(self.rule).__name__} to ask all of "
                f"{', '.join(sites)}, found {', '.join(asked)}: give all the same inputs and outputs (data.align: both)"
            )
        first, *others = asked.values()
        if any(not _same(vars(first), vars(other)) for other in others):
            raise RunError(
                f"masked sums, round {number + 1}: expected {type(self.rule).__name__} to ask all the same, found "
                "other questions: give all the same inputs and outputs (data.align: both)"
            )

    def _blank(self, site: str) -> Update:
        forms = self.sharing.forms
        state = {name: torch.zeros(forms[name][1], dtype=dtype_of(forms[name][0])) for name in self.sharing.names[site]}
        return Update(state, parameters=tuple(self.sharing.parameters[site]))

    def _sum(
        self,
        number: int,
        sites: Sequence[str],
        put: Put,
        layout_over: Callable[[Sequence[str]], Layout] | None,
        question: Mapping[str, Any],
        attempt: int,
        begin: Callable[[int, Sequence[str]], None],
    ) -> tuple[Total, tuple[str, ...], int]:
        left, weight = sorted(sites), 0
        while True:
            if len(left) < self.masked.least:
                raise RunError(
                    f"masked sums, round {number + 1}: expected at least {self.masked.least} sites, found "
                    f"{', '.join(left) or 'none'} left; wait until the others are back"
                )
            begin(attempt, left)
            asked = {"attempt": attempt, "sites": left, **question}
            answers = put(dict.fromkeys(left, asked))
            wanted = ("state", "forms") if question else ("state",)
            messages = {site: _checked(site, own, wanted) for site in left if (own := answers.get(site)) is not None}
            weight += sum(bytes_of(own["state"]) for own in messages.values())
            if len(messages) == len(left):
                break
            gone = [site for site in left if site not in messages]
            if question:
                raise RunError(
                    f"masked sums, round {number + 1}: expected answers of {', '.join(left)}, found that "
                    f"{', '.join(gone)} left; answers are summed over the same sites all along: wait for them"
                )
            _log.warning("round %d: %s left; repeated without, under new masks", number + 1, ", ".join(gone))
            left, attempt = [site for site in left if site in messages], attempt + 1
        layout = layout_over(left) if layout_over is not None else _of_answers(number, messages)
        opened: dict[str, Tensor] = {}
        while missing := [site for site in left if site not in opened]:
            answers = put({site: {"attempt": attempt, "open": True, **question} for site in missing})
            opened |= {
                site: _checked(site, own, ("opened",))["opened"]
                for site in missing
                if (own := answers.get(site)) is not None
            }
            if gone := [site for site in missing if site not in opened]:
                _log.warning(
                    "round %d: waiting for %s to open its part of the sum: others have opened theirs, and no other sum "
                    "can be had",
                    number + 1,
                    ", ".join(gone),
                )
        states = {site: own["state"] for site, own in messages.items()}
        total = sum_of(layout, states, opened, self.masked.bits)
        return total, tuple(left), weight + 32 * len(left)


def _checked(site: str, message: Mapping[str, Any], wanted: Sequence[str]) -> Mapping[str, Any]:
    """What a site has said, which nobody has looked at yet."""
    state, opened, forms = (message.get(key) for key in ("state", "opened", "forms"))
    right = {
        "state": isinstance(state, Mapping) and all(isinstance(own, Tensor) for own in state.values()),
        "opened": isinstance(opened, Tensor) and opened.dtype == torch.uint8 and tuple(opened.shape) == (32,),
        "forms": isinstance(forms, Mapping)
        and all(isinstance(own, list) and len(own) == 2 and isinstance(own[1], list) for own in forms.values())
        and all(isinstance(size, int) and size >= 0 for own in forms.values() for size in own[1]),
    }
    if wrong := [key for key in wanted if not right[key]]:
        raise RunError(
            f"masked sums: site {site!r}: expected {wrong[0]}, found "
            f"{', '.join(sorted(map(str, message))) or 'nothing'} of another form; do all sites run the same version?"
        )
    return message


def _of_answers(number: int, messages: Mapping[str, Mapping[str, Any]]) -> Layout:
    sites = tuple(sorted(messages))
    for site in sites:
        if messages[site]["forms"] != messages[sites[0]]["forms"]:
            raise RunError(
                f"masked sums, round {number + 1}: expected answers of one form, found those of {sites[0]} and {site} "
                "differ: give all the same inputs and outputs (data.align: both)"
            )
    forms = {name: (dtype, tuple(shape)) for name, (dtype, shape) in messages[sites[0]]["forms"].items()}
    return Layout(dict.fromkeys(forms, sites), forms)


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.equal(first, second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(own, second[key]) for key, own in first.items())
    return bool(first == second)
