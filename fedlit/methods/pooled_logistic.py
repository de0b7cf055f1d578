"""Logistic regression for small tables: coefficients of shared columns are shrunk towards those of
the other clients.
"""

import logging
import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError
from fedlit.exchange.rule import DOWN
from fedlit.methods.bases import Fitted
from fedlit.methods.penalised import (
    FEW,
    RIDGES,
    STRENGTHS,
    Kind,
    choose,
    fit,
    number_of,
    prior,
    profile,
)
from fedlit.precision import double_on_cpu
from fedlit.sharing import State
from fedlit.spec import ClientSpec

_log = logging.getLogger(__name__)


class PooledLogistic(Fitted):
    """Logistic regression in which the coefficients of shared inputs have a Gaussian prior around
    those of all other clients. The strength of this prior is chosen by cross-validation on the
    client's own training rows.

    The rule :class:`fedlit.Newton` finds what others know, by name: ``exchange.federated: [prior]``
    shares one number for each pair of output and input. The intercept is private, and so are
    coefficients of inputs that no other client has, which a ridge shrinks towards 0. One exchange
    finds the exact optimum, so that one epoch is enough. No gradient step is taken: optimizer,
    batches and their sizes have no effect.

    With ``strength: .inf`` and the rule's ``of: all`` it is the model on pooled rows, with an
    intercept for each. Without an exchange it is the client's own ridge regression.

    With two classes there is one output, the log odds of the positive class, which is shared by the
    clients that have this label as positive class or among several. With more, each class is set
    against the rest, its coefficients are shared by the clients that have the label, and
    probabilities are scaled to sum to 1. A number is predicted by ridge regression on its
    standardised values, shared by the clients that give it the same name.

    The time to an event is fitted by person-periods (see
    :class:`~fedlit.methods.cases.PersonPeriods`), which stay together in folds.

    Coefficients mean the same at all clients only if inputs do: set ``data.scaling: pooled`` and,
    where there are categories, ``data.categories: indicators`` (and ``targets: pooled`` of a
    number).

    Args:
        spec: the client's description.
        strength: the precision of the prior, in units of scaled inputs: one of ∞, 1000, 100, …,
            0.3, chosen by cross-validation (``cross_validated``), or a number: ``.inf`` takes over
            the other clients' coefficients, 0 ignores them.
        ridge: the precision of the prior around 0, for coefficients about which no other client has
            information: one of 100, 30, …, 0.3, chosen by cross-validation, or a number.

    Raises:
        ConfigError: the task is not supported, the strength is below 0, or the ridge is not above
            0.

    Example:
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {"train": 182}, ())
        >>> client = PooledLogistic(spec)
        >>> list(dict(client.prior.named_parameters())), client(torch.zeros(5, 2)).shape
        (['1: age', '1: sex'], torch.Size([5, 1]))
    """

    private = ("coefficients", "intercept")
    weighs_rows = True
    compares_inputs = True

    def __init__(
        self,
        spec: ClientSpec,
        strength: float | Literal["cross_validated"] = "cross_validated",
        ridge: float | Literal["cross_validated"] = "cross_validated",
    ) -> None:
        super().__init__(spec)
        cases = self.cases.spec
        self.kind = _kind(cases)
        self.strengths = _values("strength", strength, STRENGTHS)
        self.ridges = _values("ridge", ridge, RIDGES)
        ending = " (number)" if self.kind == "gaussian" else ""
        self.cells: dict[str, tuple[int, int]] = {}
        for row, output in enumerate(cases.task.output_names):
            for column, name in enumerate(cases.features):
                if name not in spec.absent:
                    cell = f"{safe_name(output, '.:')}{ending}: {safe_name(name, '.')}"
                    self.cells[cell] = row, column
        self.prior = nn.Module()
        for name in self.cells:
            self.prior.register_parameter(name, nn.Parameter(torch.zeros(())))
        self.coefficients = nn.Parameter(torch.zeros(cases.num_outputs, cases.num_features))
        self.intercept = nn.Parameter(torch.zeros(cases.num_outputs))
        self._sent = False

    def forward(self, x: Tensor) -> Tensor:
        """Return the log odds of the positive class, a number, or, for several classes, the
        logarithm of each class's probability against the rest: (n, outputs).
        """
        return self.cases.outputs(self._of_cases, x)

    def _of_cases(self, x: Tensor) -> Tensor:
        """Return the outputs for cases."""
        z = functional.linear(x, self.coefficients, self.intercept)
        return functional.logsigmoid(z) if len(self.intercept) > 1 else z

    def on_send(self, steps: int) -> None:
        """Remember that an exchange takes place, so that a reply of the rule is expected."""
        self._sent = True

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        """Return the profile of the client's rows over shared coefficients; see
        :func:`fedlit.methods.penalised.profile`.
        """
        if topic != "curvature":
            return super().answer(topic, tensors, rows)
        x, targets, counted = self._design(self.cases.of(rows))
        ridge = float(tensors["ridge"])
        names_by_output: dict[int, list[str]] = {}
        for name in sorted(name.removeprefix("prior.") for name in tensors if name != "ridge"):
            names_by_output.setdefault(self.cells[name][0], []).append(name)
        answer: dict[str, Tensor] = {}
        for output, names in names_by_output.items():
            shared = [self.cells[name][1] for name in names]
            private = sorted({column for _, column in self.cells.values()}.difference(shared))
            points = torch.stack([tensors[f"prior.{name}"] for name in names], 1)
            value, gradient, curvature = profile(
                x[:, shared], x[:, private], targets[output], self.kind, points, ridge, counted
            )
            label = names[0].partition(": ")[0]
            answer[f"value {label}"] = value
            answer[f"gradient {label}"] = gradient
            answer[f"curvature {label}"] = curvature
        return answer

    def on_receive(self, received: State) -> None:
        """Fit the model once the other clients' coefficients are known."""
        answered = any(name.startswith(DOWN) for name in received)
        if self._sent and not answered:
            raise ConfigError(
                f"client {self.spec.name!r}: expected exchange.rule: fedlit.Newton, which computes "
                "the means of PooledLogistic's prior, found another rule; set it"
            )
        self._sent = False
        if answered or not received:
            self._fit()

    @torch.no_grad()
    def _fit(self) -> None:
        means = torch.zeros(self.coefficients.shape, dtype=torch.float64)
        for name, value in self.prior.named_parameters():
            means[self.cells[name]] = double_on_cpu(value)
        before = self.state.get("means")
        if self._rows is None or (before is not None and torch.equal(means, before.cpu())):
            return
        cases = self.cases.of(self._rows)
        x, targets, counted = self._design(cases)
        persons = self.cases.persons(cases)
        count = number_of(x, persons)
        strengths = self.strengths if bool((means != 0).any()) else (0.0,)
        if count < FEW and len(strengths) > 1:
            _log.warning(
                "client %r: has %d training rows, too few to choose strength and ridge by "
                "cross-validation; it uses the other clients' coefficients",
                self.spec.name, count,
            )  # fmt: skip
        chosen = choose(x, targets, self.kind, means, self.ridges, strengths, counted, persons)
        for output, y in enumerate(targets):
            mean, precision = prior(means[output], chosen.ridge, chosen.strength)
            fitted = fit(x, y, self.kind, mean, precision, rows=counted)
            self.coefficients[output] = fitted[:-1].float()
            self.intercept[output] = fitted[-1].float()
        self.state = {"means": means, "strength": chosen.strength, "ridge": chosen.ridge}
        rows = self._rows
        device = self.coefficients.device
        self.row_weight = None if rows.weight is None else rows.weight.to(device)
        total = float(self.loss(self(rows.x.to(device)), rows.y.to(device)))
        self.row_weight = None
        self.log_dict(
            {
                "loss": total,
                "held_out": chosen.loss,
                "strength": chosen.strength,
                "ridge": chosen.ridge,
            }
        )

    def _design(self, rows: Rows) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Return the inputs (n, d), the target of each output (n,), and how often each row counts
        (n,), float64 on the CPU.
        """
        labelled = self.cases.spec.task.known(rows.y)
        x = double_on_cpu(rows.x[labelled])
        y = rows.y[labelled].cpu()
        counted = None if rows.weight is None else double_on_cpu(rows.weight[labelled])
        if self.kind == "gaussian":
            return x, [double_on_cpu(y)], counted
        outputs = len(self.intercept)
        labels = [1] if outputs == 1 else range(outputs)
        return x, [double_on_cpu(y == label) for label in labels], counted


def _kind(spec: ClientSpec) -> Kind:
    family = spec.task.glm
    if family == "logistic" or family == "gaussian":
        return family
    raise ConfigError(
        f"client {spec.name!r}: PooledLogistic: expected task classification, or regression with "
        f"loss: squared (ridge regression then), found {spec.task.title}; take a network "
        "(fedlit.FederatedClient with fedlit.MLP) for it"
    )


def _values(key: str, value: float | str, all_of_them: tuple[float, ...]) -> tuple[float, ...]:
    if isinstance(value, str):
        if value != "cross_validated":
            raise ConfigError(
                f"PooledLogistic: {key}: expected cross_validated or a number, found {value!r}"
            )
        return all_of_them
    if math.isnan(value) or value < 0 or (key == "ridge" and not 0 < value < math.inf):
        least = "above 0, and finite" if key == "ridge" else "of at least 0"
        raise ConfigError(f"PooledLogistic: {key}: expected a number {least}, found {value}")
    return (float(value),)


def safe_name(name: str, special: str) -> str:
    """Return a name that torch accepts for a tensor, and that no other name is changed into.

    Example:
        >>> safe_name("max. rate", "."), safe_name("100%", ".")
        ('max%2E rate', '100%25')
    """
    for sign in "%" + special:
        name = name.replace(sign, f"%{ord(sign):02X}")
    return name
