"""Mixed models of the rows of all sites, from sums of terms."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor

from fedlit import reml
from fedlit.errors import DataError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.rule import DOWN, Facts, Round, Rule, demand
from fedlit.exchange.rules.added import added
from fedlit.sharing import Sharing, State

_log = logging.getLogger(__name__)

_PREFIX = "effects."
_INTERCEPT = "(intercept)"


class MixedEffects(Rule):
    """Fits a mixed model, with the client as the group, for clients of :class:`fedlit.MixedModel`.

    Fixed effects and variance components are those of one model on pooled rows. The rule sends the
    current variances, at most 30 times for a number and 60 times for classes and counts; sites
    answer with [X y]ᵀ W⁻¹ [X y], log|W| and their derivatives, of which only the sums over sites
    are used. A site's own effects never leave it. Steps are quasi-Newton, with analytic gradients.

    Args:
        slopes: patterns of columns whose effects differ between sites, as the intercept does. Their
            covariance, with the intercept's, is full.
        ridge: for classes and counts, the precision of a normal prior of the effects around 0, in
            units of scaled inputs; 0 for no prior, but then classes that a column separates have no
            finite effects.

    Raises:
        ConfigError: the ridge is below 0.
        DataError: there are not more rows than effects.
    """

    needs = frozenset({"answers"})
    sends = "effects with their covariance, and variance components"

    def __init__(self, slopes: list[str] | None = None, ridge: float = 0.1) -> None:
        demand(ridge >= 0, "MixedEffects: ridge", "a number of at least 0", ridge)
        self.slopes = list(slopes or [])
        self.ridge = ridge
        forms: dict[str, tuple[str, tuple[int | str, ...]]] = {
            f"{_PREFIX}*": ("float64", (3,)),
            "theta": ("float64", ("variances",)),
            "at": ("float64", ("at",)),
        }
        terms = QuestionTerms(forms, times=reml.PQL_QUESTIONS, about=_PREFIX)
        self.facts = Facts(
            questions={"mixed": terms},
            whole_rate=True,
            adds_answers=frozenset({"mixed"}),
            requires="MixedModel",
        )
        self.asks = (
            "terms of the restricted likelihood of its rows at given variances, (d + 1)² numbers "
            f"and their derivatives for d columns, up to {reml.REML_QUESTIONS} times "
            f"({reml.PQL_QUESTIONS} for classes and counts); only sums over sites are used"
        )

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse federated tensors that are not effects, and patterns that match no column."""
        wrong = [name for name in sharing.all_names if not name.startswith(_PREFIX)]
        expected = "exchange.federated: [effects] and clients of fedlit.MixedModel"
        demand(
            not wrong,
            "exchange.rule: MixedEffects finds effects by name",
            expected,
            "".join(wrong[:1]),
        )
        columns = sorted({name.partition(": ")[2] for name in sharing.all_names} - {_INTERCEPT})
        for pattern in self.slopes:
            matches = any(fnmatchcase(column, pattern) for column in columns)
            demand(
                matches,
                "MixedEffects: slopes",
                f"patterns of columns such as {', '.join(columns[:8])}",
                pattern,
            )

    def __call__(self, round: Round) -> Mapping[str, State]:
        """Fit a model for each output, and return the effects that each client receives."""
        everything = set().union(*round.receivers.values())
        outputs = {name.partition(": ")[0] for name in everything}
        received: dict[str, dict[str, Tensor]] = {client: {} for client in round.receivers}
        questions = 0
        for output in sorted(outputs):
            names = sorted(name for name in everything if name.startswith(f"{output}: "))
            names.sort(key=lambda name: not name.endswith(_INTERCEPT))  # first
            problem = _Problem(round, names, self.slopes, self.ridge)
            fit = problem.solve()
            questions = max(questions, problem.asked)
            for client, client_names in round.receivers.items():
                of_output = [name for name in names if name in client_names]
                if of_output:
                    received[client] |= problem.told(fit, of_output)
        self.scalars = {"questions": float(questions)}
        return received


def _matches(column: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(column, pattern) for pattern in patterns)


class _Problem:
    """One output: its columns, and the questions that sites answer about it."""

    def __init__(
        self, round: Round, names: Sequence[str], slopes: Sequence[str], ridge: float
    ) -> None:
        self.round = round
        self.names = list(names)
        self.asked = 0
        columns = [name.partition(": ")[2] for name in names]
        private = [_matches(column, slopes) for column in columns[1:]]
        self.places = [
            0,
            *(sum(private[: at + 1]) if is_private else 0 for at, is_private in enumerate(private)),
        ]
        self.q = 1 + sum(private)
        self.output = names[0].partition(": ")[0].removeprefix(_PREFIX)
        self.family = "gaussian" if self.output.endswith(" (number)") else "quasi"
        self.ridge = ridge

    def solve(self) -> reml.Fit:
        """Return the fit (see :func:`fedlit.reml.solve`)."""
        try:
            fit, self.asked, settled = reml.solve(
                self._ask, len(self.names), self.q, self.family, self.ridge
            )
        except ValueError as error:
            raise DataError(
                f"MixedEffects: {self.output}: {error}; leave columns out (data.columns)"
            ) from error
        if not settled:
            _log.warning(
                "exchange %d: variances were not found in %d questions; are there slopes that the "
                "rows cannot tell apart?",
                self.round.number + 1, self.asked,
            )  # fmt: skip
        return fit

    def _ask(self, theta: np.ndarray, at: np.ndarray, effects: np.ndarray) -> reml.Terms:
        """Ask all clients the same question, and return the sum of their answers."""
        columns = zip(self.names, self.places, effects, strict=True)
        tensors = {
            name: _tensor([row, slope, effect]) for row, (name, slope, effect) in enumerate(columns)
        }
        both = len(self.names) + 1, len(self.names) + 1
        shapes = {
            "cross": both,
            "slope": (len(theta), *both),
            "logdet": (),
            "logdet_slope": (len(theta),),
            "rows": (),
        }
        tensors |= {"theta": _tensor(theta), "at": _tensor(at)}
        return added(self.round, "mixed", tensors, shapes)

    def told(self, fit: reml.Fit, mine: Sequence[str]) -> dict[str, Tensor]:
        """Return what a client receives: the effects of its columns, and what it needs to explain
        and predict.
        """
        at = [self.names.index(name) for name in mine]
        prefix = f"{DOWN}{self.output}/"
        rows = [[row, self.places[column], fit.effects[column]] for row, column in enumerate(at)]
        beside = {
            "effects": rows,
            "theta": fit.theta,
            "covariance": fit.covariance[np.ix_(at, at)],
            "sigma2": fit.sigma2,
        }
        effects = {
            name: torch.tensor(fit.effects[column]).float()
            for name, column in zip(mine, at, strict=True)
        }
        return {**effects, **{prefix + name: _tensor(column) for name, column in beside.items()}}


def _tensor(value: object) -> Tensor:
    return torch.from_numpy(np.array(value, np.float64))
