"""The federated mixed model: fixed effects are shared by all sites, a site's private effects are
shrunk towards them, and no row moves.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlit import reml
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError
from fedlit.exchange.rule import DOWN
from fedlit.methods.bases import Fitted
from fedlit.methods.pooled_logistic import safe_name
from fedlit.precision import double_on_cpu
from fedlit.sharing import State
from fedlit.spec import ClientSpec

INTERCEPT = "(intercept)"

_EFFECT_COLUMNS = ("output", "part", "column", "value", "error")


class MixedModel(Fitted):
    """A linear or generalised linear mixed model. Fixed effects and variance components are shared;
    a site's intercept and, on request, its slopes are private. The model is fitted by restricted
    maximum likelihood (REML) or, if the outcome is a class or a count, by penalised
    quasi-likelihood (PQL).

    The rule :class:`fedlit.MixedEffects` asks all sites for terms that are only added. The result
    is the mixed model of pooled rows, with the site as the group. One exchange finds it, so that
    one epoch is enough; optimizer and batches have no effect. ``exchange.federated: [effects]``
    shares one number for each pair of output and input. Columns are shared by name; a column that
    only some sites have is an effect of these. An input that is a combination of the inputs before
    it has the effect 0.

    With two classes there is one output, the log odds of the positive class. With more, each class
    is set against the rest. A count is Poisson distributed with a logarithmic link. As in
    ``glmmPQL`` of R, the residual variance (the dispersion) is estimated for these, too.

    The time to an event is fitted by person-periods (see
    :class:`~fedlit.methods.cases.PersonPeriods`): effects are those of the logit hazard, and a
    site's intercept is its frailty.

    A site that took no part is predicted by the shared effects. Its private effects follow from its
    training rows, if it has some.

    Source: Luo et al. 2022, DLMM (Nature Communications 13:1678) and dPQL (JAMIA 29:1366); Breslow
    and Clayton 1993 for PQL.

    NOTE[DIFF]: the papers let each site send XᵀX, XᵀZ, ZᵀZ, Xᵀy, Zᵀy and yᵀy once. Here sites
    answer at the coordinator's present variances with terms that are added, so that masked sums can
    be used and nobody learns a site's matrix.

    Args:
        spec: the client's description.

    Raises:
        ConfigError: the task is not supported.

    Example:
        >>> client = MixedModel(ClientSpec("school-1", ("age", "size"), (0, 1), {"train": 20}, ()))
        >>> list(dict(client.effects.named_parameters())), client(torch.zeros(5, 2)).shape
        (['1: (intercept)', '1: age', '1: size'], torch.Size([5, 1]))
    """

    compares_inputs = True
    weighs_rows = True

    def __init__(self, spec: ClientSpec) -> None:
        super().__init__(spec)
        self.family = _family(self.cases.spec)
        ending = {"gaussian": " (number)", "poisson": " (count)"}.get(self.family, "")
        self.outputs = [
            f"{safe_name(name, '.:')}{ending}" for name in self.cases.spec.task.output_names
        ]
        self.inputs = {
            safe_name(name, "."): column
            for column, name in enumerate(self.cases.spec.features)
            if name not in spec.absent
        }
        self.effects = nn.Module()
        for output in self.outputs:
            for name in self._terms:
                self.effects.register_parameter(f"{output}: {name}", nn.Parameter(torch.zeros(())))

    @property
    def _terms(self) -> list[str]:
        """The names of the effects: the intercept, then the client's inputs."""
        return [INTERCEPT, *self.inputs]

    # ------------------------------------------------------------------ fitting

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        """Return the terms of the client's rows at the present variances: :data:`fedlit.reml.Terms`
        over the columns that are asked for, in float64. Columns that the client does not have are
        0.
        """
        if topic != "mixed":
            return super().answer(topic, tensors, rows)
        prefix = "effects."
        names = [name for name in tensors if name.startswith(prefix)]
        output = names[0].removeprefix(prefix).partition(": ")[0]
        prefix = f"effects.{output}: "
        columns = {name.removeprefix(prefix): tensors[name].tolist() for name in names}
        theta = tensors["theta"].numpy()
        if output in self.outputs:
            rows = self.cases.of(rows)
            x, y, z, beta = self._design(rows, self.outputs.index(output), columns)
            weight = self._weights(rows)
            terms = reml.site_answer(
                x, y, z, theta, tensors["at"].numpy(), beta, self.family, weight
            )
        else:
            slopes = sum(slope > 0 for _, slope, _ in columns.values())
            terms = reml.site_terms(
                np.zeros((0, len(columns))), np.zeros(0), np.zeros((0, 1 + slopes)), theta
            )
        return {name: torch.from_numpy(np.asarray(term)) for name, term in terms.items()}

    def on_receive(self, received: State) -> None:
        """Compute the site's private effects, given the shared effects and variances."""
        for position, output in enumerate(self.outputs):
            prefix = f"{DOWN}{output}/"
            fit = {
                name.removeprefix(prefix): tensor
                for name, tensor in received.items()
                if name.startswith(prefix)
            }
            if fit:
                self._fit_private(position, fit)
                self.state[output] = {name: tensor.cpu() for name, tensor in fit.items()}

    def _fit_private(self, position: int, fit: dict[str, Tensor]) -> None:
        """Put the received fit of one output into the client's order of inputs, and add the private
        effects to it.
        """
        names = self._terms
        # The rule sorts inputs by name, after the intercept.
        sorted_names = [INTERCEPT, *sorted(self.inputs)]
        order = [sorted_names.index(name) for name in names]
        fit["effects"] = fit["effects"][order]
        fit["covariance"] = fit["covariance"][order][:, order]
        effects = fit["effects"].tolist()
        columns = {name: [column, *effects[column][1:]] for column, name in enumerate(names)}
        q = 1 + int((fit["effects"][:, 1] > 0).sum())
        private = np.zeros(q)
        covariance = np.zeros((q, q))
        if self._rows is not None:
            rows = self.cases.of(self._rows)
            x, y, z, beta = self._design(rows, position, columns)
            weight = self._weights(rows)
            theta = fit["theta"].numpy()
            private, covariance = reml.own_effects(x, y, z, theta, beta, self.family, weight)
        fit["own"] = torch.from_numpy(private)
        fit["own_covariance"] = torch.from_numpy(covariance) * fit["sigma2"]

    def _weights(self, rows: Rows) -> np.ndarray | None:
        """Return how often each row with a known label counts (n,), float64."""
        if rows.weight is None:
            return None
        labelled = self.cases.spec.task.known(rows.y)
        weights: np.ndarray = double_on_cpu(rows.weight[labelled]).numpy()
        return weights

    def _design(
        self, rows: Rows, output: int, columns: dict[str, list[float]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return X (n, p), y (n,), Z (n, q) and β (p,), float64, of the rows whose label is known.

        Args:
            rows: the rows of the client.
            output: the position of the output.
            columns: maps the name of each column to its position in X, its position in Z (0 for
                none), and its effect.
        """
        task: Any = self.cases.spec.task
        labelled = task.known(rows.y)
        inputs = double_on_cpu(rows.x[labelled]).numpy()
        y = double_on_cpu(rows.y[labelled]).numpy()
        if self.family == "gaussian":
            y = y * task.scale + task.mean
        elif self.family == "logistic":
            y = (y == (1 if len(self.outputs) == 1 else output)).astype(np.float64)
        x = np.zeros((len(y), len(columns)))
        beta = np.zeros(len(columns))
        z = np.zeros((len(y), 1 + sum(slope > 0 for _, slope, _ in columns.values())))
        values = {name: inputs[:, column] for name, column in self.inputs.items()}
        values[INTERCEPT] = np.ones(len(y))
        for name, (position, slope, effect) in columns.items():
            beta[int(position)] = effect
            if name in values:
                x[:, int(position)] = values[name]
                if slope or name == INTERCEPT:
                    z[:, int(slope)] = values[name]
        return x, y, z, beta

    @property
    def effect_rows(self) -> list[dict[str, Any]]:
        """The rows of ``effects.csv``. Effects are per standard deviation of a number."""
        rows: list[tuple[Any, ...]] = []
        names = [INTERCEPT, *(self.cases.spec.features[column] for column in self.inputs.values())]
        for output, fit in self.state.items():
            effects = fit["effects"].numpy()
            slopes = sorted(
                (int(row[1]), name) for name, row in zip(names, effects, strict=True) if row[1] > 0
            )
            private = [INTERCEPT, *(name for _, name in slopes)]
            root = reml.lower(fit["theta"].numpy(), len(private))
            sigma2 = float(fit["sigma2"])
            variances = sigma2 * (root @ root.T).diagonal()
            errors = fit["covariance"].diagonal().sqrt().tolist()
            private_errors = fit["own_covariance"].diagonal().sqrt().tolist()
            for row in zip(names, effects[:, 2], errors, strict=True):
                rows.append((output, "effect", *row))
            for column, variance in zip(private, variances, strict=True):
                rows.append((output, "variance", column, variance, None))
            rows.append((output, "variance", "residual", sigma2, None))
            for row in zip(private, fit["own"].tolist(), private_errors, strict=True):
                rows.append((output, "own", *row))
        return [dict(zip(_EFFECT_COLUMNS, row, strict=True)) for row in rows]

    # ------------------------------------------------------------------ prediction

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a network for the task: a standardised number, the log odds of
        the positive class, logarithms of each class's probability against the rest, or log(rate /
        mean).

        Shape:
            - x: (n, d) float32
            - output: (n, num_outputs)
        """
        return self.cases.outputs(self._of_cases, x)

    def _of_cases(self, x: Tensor) -> Tensor:
        """Return the outputs for cases."""
        task: Any = self.spec.task
        coefficients = x.new_zeros(len(self.outputs), x.shape[1])
        offsets = []
        values: dict[str, Tensor] = dict(self.effects.named_parameters())
        columns = list(self.inputs.values())
        for position, output in enumerate(self.outputs):
            effects = x.new_zeros(0)
            if columns:
                effects = torch.stack([values[f"{output}: {name}"] for name in self.inputs])
            offset = values[f"{output}: {INTERCEPT}"]
            fit = self.state.get(output)
            if fit is not None:
                private = fit["own"].to(x)
                slopes = fit["effects"][1:, 1].long().to(x.device)
                effects = effects + torch.where(
                    slopes > 0, private[slopes], torch.zeros_like(effects)
                )
                offset = offset + private[0]
            coefficients[position, columns] = effects
            offsets.append(offset)
        z = functional.linear(x, coefficients, torch.stack(offsets))
        if self.family == "gaussian":
            standard: Tensor = (z - task.mean) / task.scale
            return standard
        if self.family == "poisson":
            return z - math.log(task.mean)
        return functional.logsigmoid(z) if len(self.outputs) > 1 else z


def _family(spec: ClientSpec) -> str:
    family = spec.task.glm
    if family is not None:
        return family
    raise ConfigError(
        f"client {spec.name!r}: MixedModel: expected task classification, counts, or regression "
        f"with loss: squared, found {spec.task.title}; take a network (fedlit.FederatedClient with "
        "fedlit.MLP) for it"
    )
