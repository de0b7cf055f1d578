"""Coefficients that clients share by name, found exactly and without moving rows, by Newton's
method on sums.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import OTHERS, QuestionTerms
from fedlit.exchange.questions import AnswerForm, Own
from fedlit.exchange.rule import Facts, Round, Rule, demand
from fedlit.sharing import Sharing, State
from fedlit.show.text import shorten

_log = logging.getLogger(__name__)

STEPS = 50
SMALL = 1e-9
"""The largest number of steps, and the change of coefficients below which they end."""


_SAID = ("value", "gradient", "curvature")


@dataclass
class _Problem:
    """The coefficients of one output, fitted to the rows of some clients.

    Attributes:
        output: the output.
        names: the names of the coefficients, sorted.
        clients: maps each client whose rows are needed to the coefficients that it has, in the
            order of names.
        at: the best known point, (d,) float64.
        step: the step that is tried from there.
        value: the value at the best known point.
        done: whether no better point can be found.
    """

    output: str
    names: list[str]
    clients: dict[str, list[str]]
    at: Tensor
    step: Tensor = field(init=False)
    value: float = float("inf")
    done: bool = False

    def __post_init__(self) -> None:
        self.step = torch.zeros_like(self.at)
        self.done = not self.names

    @property
    def tried(self) -> Tensor:
        """The point that is tried next."""
        return self.at + self.step

    def take(self, value: Tensor, gradient: Tensor, curvature: Tensor, ridge: float) -> None:
        """Update the point and the step, given the sums over clients at :attr:`tried`."""
        tried = self.tried
        value = value + 0.5 * ridge * tried.square().sum()
        if float(value) > self.value + 1e-12 * abs(self.value):
            self.step = self.step / 2
        else:
            gradient = gradient + ridge * tried
            curvature = curvature + ridge * torch.eye(len(tried), dtype=torch.float64)
            self.at = tried
            self.value = float(value)
            self.step = -torch.linalg.solve(curvature, gradient)
        self.done = float(self.step.abs().max()) < SMALL


class Newton(Rule):
    """Each client receives the coefficients that best fit the rows of all others (or of all,
    including its own), where each client has its own intercept and private columns: those of one
    model on pooled rows, to some nine digits.

    It is for clients such as :class:`fedlit.PooledLogistic`, whose federated tensors are one number
    for each pair of output and input, by name: equal names are one coefficient. A ridge shrinks all
    coefficients towards 0.

    An exchange asks until the optimum is found, usually six to eight times: each client sends the
    value, gradient and curvature of its rows' log likelihood at each point. Only their sums over
    clients are used. Private coefficients never leave a client. The next exchange starts where this
    one ended.

    Args:
        of: whose rows: those of the ``others``, as needed for a prior of one's own coefficients; or
            of ``all``, which is the model on pooled rows.
        ridge: the precision of the prior around 0, in units of scaled inputs.

    Raises:
        ConfigError: the ridge is not above 0.
    """

    needs = frozenset({"answers"})
    _memory = ("found",)
    sends = "the number of clients whose rows contributed"

    def __init__(self, of: Literal["others", "all"] = "others", ridge: float = 3.0) -> None:
        demand(ridge > 0, "Newton: ridge", "a number above 0", ridge)
        self.of: Literal["others", "all"] = of
        self.ridge = ridge
        self._found: dict[str, dict[str, float]] = {}
        # Masked sums can serve `all` only. For `others` there is a sum without each client, and the
        # differences of these sums are the clients' answers.
        only_added = frozenset({"curvature"} if of == "all" else ())
        point: tuple[int | str, ...] = (OTHERS,) if of == "others" else (1,)
        terms = QuestionTerms(
            {"ridge": ("float64", ()), "prior.*": ("float64", point)},
            times=STEPS,
            values={"ridge": ridge},
        )
        self.facts = Facts(questions={"curvature": terms}, whole_rate=True, adds_answers=only_added)
        points = "each other client's point" if of == "others" else "one point"
        self.asks = (
            "the value, gradient and curvature (1, d and d × d numbers for each output, d shared "
            f"inputs) of its rows' log likelihood at {points} in a question, until it is found (at "
            f"most {STEPS} questions in a round), its own intercept and columns taken out. That "
            "tells about as much as weighted sums, squares and products of the shared inputs by "
            "class: of a category that few rows have, near to these rows"
        )

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse tensors that are not coefficients, and log which clients have nothing in common
        with any other.
        """
        wrong = [
            name
            for name in sharing.all_names
            if not name.startswith("prior.") or tuple(sharing.forms[name][1])
        ]
        expected = "exchange.federated: [prior] and clients of fedlit.PooledLogistic"
        demand(
            not wrong,
            "exchange.rule: Newton finds single coefficients by name",
            expected,
            "".join(wrong[:1]),
        )
        shared = _shared(sharing.names)
        nothing = [
            client for client, names in sharing.names.items() if not shared.intersection(names)
        ]
        if len(nothing) == len(sharing.names):
            _log.warning(
                "nothing to gain: no two clients have an output and a column in common, so that "
                "each fits its own model; columns and labels meet by their names: see "
                "data.columns, or mend the names"
            )
        elif nothing:
            _log.warning(
                "%s: nothing to gain, for no other client has an output and a column in common "
                "with it",
                shorten(nothing),
            )

    def __call__(self, round: Round) -> Mapping[str, State]:
        """Take Newton steps until all coefficients are found, and return each client's
        coefficients.
        """
        problems = self._problems(round)
        steps = 0
        while steps < STEPS and not all(problem.done for _, problem in problems):
            self._ask(round, [problem for _, problem in problems if not problem.done])
            steps += 1
        self.scalars = {"newton_steps": float(steps)}
        if not all(problem.done for _, problem in problems):
            _log.warning(
                "exchange %d: coefficients were not found to %g in %d steps; raise the rule's "
                "ridge (%g)",
                round.number + 1, SMALL, STEPS, self.ridge,
            )  # fmt: skip
        self._found = {}
        for whose, problem in problems:
            self._found.setdefault(whose, {}).update(
                zip(problem.names, problem.at.tolist(), strict=True)
            )
        received = {}
        for client, names in round.receivers.items():
            solution = self._found.get(self._whose(client), {})
            behind = len(round.updates.keys() - {self._whose(client)})
            tensors: dict[str, Tensor] = {
                name: torch.tensor(solution[name]).float() for name in names if name in solution
            }
            received[client] = {**tensors, "down/clients": torch.tensor(float(behind))}
        return received

    def _whose(self, client: str) -> str:
        return client if self.of == "others" else ""

    def _problems(self, round: Round) -> list[tuple[str, _Problem]]:
        """Return pairs of a receiver's name and its problem; the name is empty if all clients share
        the problem.
        """
        shared = _shared(round.receivers)
        problems = []
        outputs_of = {
            client: _by_output(shared.intersection(round.receivers[client]))
            for client in sorted(round.updates)
        }
        for whose in sorted({self._whose(client) for client in round.receivers}):
            before = self._found.get(whose, {})
            for output in sorted(set().union(*outputs_of.values())):
                if whose and output not in _by_output(round.receivers[whose]):
                    continue
                coefficients_of = {
                    name: has[output]
                    for name, has in outputs_of.items()
                    if name != whose and output in has
                }
                # those that the receiver does not have matter too: they take their share of what
                # others' rows say
                names = sorted(set().union(*coefficients_of.values()))
                at = torch.tensor([before.get(name, 0.0) for name in names], dtype=torch.float64)
                problems.append((whose, _Problem(output, names, coefficients_of, at)))
        return problems

    def _ask(self, round: Round, problems: list[_Problem]) -> None:
        """Ask all clients whose rows are needed, and take a step in each problem."""
        ridge = torch.tensor(self.ridge, dtype=torch.float64)
        problems_of: dict[str, dict[str, list[_Problem]]] = {}
        for problem in problems:
            for client in problem.clients:
                problems_of.setdefault(client, {}).setdefault(problem.output, []).append(problem)
        points: dict[str, dict[str, Tensor]] = {client: {"ridge": ridge} for client in problems_of}
        for client, outputs in problems_of.items():
            for some in outputs.values():
                for name in some[0].clients[client]:
                    points[client][name] = torch.stack(
                        [problem.tried[problem.names.index(name)] for problem in some]
                    )
        answers = round.ask({client: _question(points[client]) for client in sorted(problems_of)})
        for problem in problems:
            d = len(problem.names)
            value, gradient, curvature = (
                torch.zeros(shape, dtype=torch.float64) for shape in ((), (d,), (d, d))
            )
            for client, names in problem.clients.items():
                position = next(
                    i for i, one in enumerate(problems_of[client][problem.output]) if one is problem
                )
                at = torch.tensor([problem.names.index(name) for name in names])
                terms = {
                    term: answers[client][f"{term} {problem.output}"][position] for term in _SAID
                }
                value += terms["value"]
                gradient[at] += terms["gradient"]
                curvature[at[:, None], at] += terms["curvature"]
            problem.take(value, gradient, curvature, self.ridge)


def _question(points: Mapping[str, Tensor]) -> Own:
    """Return the question about points: of each coefficient, its value at each of them."""
    forms: dict[str, AnswerForm] = {}
    for output, names in _by_output(name for name in points if name != "ridge").items():
        sizes = len(points[names[0]]), len(names), len(names)
        forms |= {
            f"{term} {output}": AnswerForm(("float64",), sizes[: n + 1])
            for n, term in enumerate(_SAID)
        }
    return Own("curvature", points, forms)


def _output(name: str) -> str:
    """Return the output in a coefficient's name, which is ``prior.<output>: <input>``."""
    return name.partition(": ")[0].removeprefix("prior.")


def _by_output(names: Iterable[str]) -> dict[str, list[str]]:
    """Map each output to the sorted names of its coefficients."""
    names_of: dict[str, list[str]] = {}
    for name in sorted(names):
        names_of.setdefault(_output(name), []).append(name)
    return names_of


def _shared(names: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the names that two or more clients have."""
    owners: dict[str, int] = {}
    for of_client in names.values():
        for name in of_client:
            owners[name] = owners.get(name, 0) + 1
    return {name for name, number in owners.items() if number > 1}
