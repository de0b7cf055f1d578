"""Cox's partial likelihood of all clients' rows, with each client as a stratum, from sums."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedlit import cox_fit
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.rule import DOWN, Facts, Round, Rule, by_owners, demand
from fedlit.exchange.rules.added import added
from fedlit.sharing import Sharing, State
from fedlit.show.text import shorten
from fedlit.types import Floats

_log = logging.getLogger(__name__)

_PREFIX = "effects."
POINT = "partial likelihood"
RESIDUALS = "score residuals"
"""The topics of the questions that clients answer."""


class PartialLikelihood(Rule):
    """Fits a Cox model, with the client as the stratum, for clients of
    :class:`fedlit.StratifiedCox`.

    Effects are those of one stratified model on pooled rows. The rule sends them to all clients
    until they are found, usually five to seven times, at most 49 times; clients answer with the log
    partial likelihood of their rows, its gradient and its information, of which only the sums over
    clients are used. A last question is about the robust covariance and the test of proportional
    hazards. A client's baseline hazard never leaves it.

    Only columns that two or more clients have are asked for, or all if there is one client. The
    effects of other columns are their client's own.

    Args:
        ridge: the precision of a normal prior of the effects around 0, in units of scaled inputs; 0
            for no prior, but then a column that separates the rows with an event from all others
            has no finite effect.

    Raises:
        ConfigError: the ridge is below 0.
    """

    needs = frozenset({"answers"})
    sends = "effects with their covariances, and the test of proportional hazards"

    def __init__(self, ridge: float = 0.0) -> None:
        demand(ridge >= 0, "PartialLikelihood: ridge", "a number of at least 0", ridge)
        self.ridge = ridge
        forms: dict[str, tuple[str, tuple[int | str, ...]]] = {f"{_PREFIX}*": ("float64", ())}
        self.facts = Facts(
            questions={
                POINT: QuestionTerms(forms, times=cox_fit.POINTS),
                RESIDUALS: QuestionTerms(forms, times=1),
            },
            whole_rate=True,
            adds_answers=frozenset({POINT, RESIDUALS}),
            requires="StratifiedCox",
        )
        self.asks = (
            "the log partial likelihood of its rows, its gradient and its information (1, d and d × "
            f"d numbers for d shared columns) at up to {cox_fit.POINTS} points, and at the last one "
            "sums of its score residuals' products and of the information weighted by time (3 d × "
            "d numbers); only sums over sites are used, but without masked sums the coordinator sees each "
            "site's, and can read single rows and times of events from them"
        )

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse federated tensors that are not effects, and log that no two clients have a column
        in common.
        """
        wrong = [name for name in sharing.all_names if not name.startswith(_PREFIX)]
        demand(
            not wrong,
            "exchange.rule: PartialLikelihood finds effects by name",
            "exchange.federated: [effects] and clients of fedlit.StratifiedCox",
            "".join(wrong[:1]),
        )
        if not _shared(sharing.names):
            _log.warning(
                "nothing to gain: no two clients have a column in common, so that each fits its own "
                "model; columns meet by their names: see data.columns, or correct the names"
            )

    def __call__(self, round: Round) -> Mapping[str, State]:
        """Find the effects of all shared columns."""
        names = _shared(round.receivers)
        if not names:
            return {}
        questions = 1
        p = len(names)
        shapes: dict[str, tuple[int, ...]] = {
            "value": (),
            "gradient": (p,),
            "information": (p, p),
        }

        def ask(effects: Floats) -> dict[str, Floats]:
            nonlocal questions
            questions += 1
            return added(round, POINT, _question(names, effects), shapes)

        fit = cox_fit.solve(ask, p, self.ridge)
        shapes |= {"meat": (p, p), "trend": (p,), "trend_information": (2, p, p)}
        sums = added(round, RESIDUALS, _question(names, fit.effects), shapes)
        inference = cox_fit.infer(sums, fit, self.ridge)
        self.scalars = {"questions": float(questions)}
        self._warn(round, names, fit)
        received: dict[str, State] = {}
        for client, client_names in round.receivers.items():
            at = [position for position, name in enumerate(names) if name in client_names]
            received[client] = _received(names, at, fit, inference) if at else {}
        return received

    def _warn(self, round: Round, names: Sequence[str], fit: cox_fit.Fit) -> None:
        number = round.number + 1
        infinite = [
            name.removeprefix(_PREFIX)
            for name, is_so in zip(names, fit.infinite, strict=True)
            if is_so
        ]
        if infinite:
            _log.warning(
                "exchange %d: effects without bounds: %s: the likelihood grows with them, as if "
                "their hazard ratios were 0 or infinite; set the rule's ridge (such as 1), or leave "
                "the columns out (data.columns)",
                number, shorten(infinite),
            )  # fmt: skip
        elif not fit.settled:
            _log.warning(
                "exchange %d: effects were not found in %d questions; set the rule's ridge (%g) "
                "higher",
                number, cox_fit.POINTS, self.ridge,
            )  # fmt: skip


def _shared(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sorted names that two or more clients have, or all if there is one client."""
    least = min(2, len(names))
    shared: list[str] = []
    for owners, owned in by_owners(names).items():
        if len(owners) >= least:
            shared += owned
    return sorted(shared)


def _question(names: Sequence[str], effects: Floats) -> dict[str, Tensor]:
    return {name: _tensor(effect) for name, effect in zip(names, effects, strict=True)}


def _received(
    names: Sequence[str], at: Sequence[int], fit: cox_fit.Fit, inference: cox_fit.Inference
) -> dict[str, Tensor]:
    """Return what a client receives: the effects of its columns, and what it needs to explain and
    predict, in the order of their names.

    Args:
        names: the names of all effects.
        at: the positions of the client's.
        fit: the effects.
        inference: their covariances and tests.
    """
    block = np.ix_(at, at)
    beside = {
        "effects": fit.effects[at],
        "covariance": inference.covariance[block],
        "robust": inference.robust[block],
        "trend": inference.trend[at],
        "trend_of_all": inference.trend_of_all,
    }
    effects = {names[position]: _tensor(fit.effects[position]).float() for position in at}
    return {**effects, **{f"{DOWN}{name}": _tensor(values) for name, values in beside.items()}}


def _tensor(value: object) -> Tensor:
    return torch.from_numpy(np.array(value, np.float64))
