"""The federated Cox model: hazard ratios are shared by all sites, each site's baseline hazard is its
own, and no row moves.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlit.cox import At, Stratum, Ties, site_residuals, site_terms
from fedlit.cox_fit import solve
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError, expect
from fedlit.exchange.rule import DOWN
from fedlit.exchange.rules.partial_likelihood import POINT, RESIDUALS
from fedlit.explain.effects import ALL, ROBUST
from fedlit.methods.bases import Fitted
from fedlit.methods.pooled_logistic import safe_name
from fedlit.outcomes.censored import EVENT
from fedlit.precision import double_on_cpu
from fedlit.sharing import State
from fedlit.spec import ClientSpec
from fedlit.types import Floats

OUTPUT = "log hazard"
_PREFIX = "effects."
_LEAST = 1e-9
"""The least increment of a cumulative hazard in an interval for the training row with the highest
one: an event there is unlikely, but not impossible."""
_HIGHEST = 600.0
"""Beyond this logarithm of a hazard ratio float64 ends."""
_MOST = 4.6
"""The logarithm of the largest one, beyond which nobody is left."""
_SOON = 1e-4
"""Where g is the logarithm, times below this share of the last agreed one count as it."""

_EFFECT_COLUMNS = ("output", "part", "column", "value", "error")


class StratifiedCox(Fitted):
    """A Cox proportional hazards model, stratified by site. Effects are shared; a site's baseline
    hazard is private.

    The rule :class:`fedlit.PartialLikelihood` asks all sites for terms that are only added. The
    result is the stratified Cox model of pooled rows. One exchange finds it, so that one epoch is
    enough; optimizer and batches have no effect. ``exchange.federated: [effects]`` shares one
    number for each input. Columns are shared by name. The effects of columns that no other site has
    are fitted by their site afterwards, with the shared ones as an offset, and never leave it;
    without an exchange, all are. An input that is a combination of the inputs before it has the
    effect 0.

    Rows are at risk from their entry (exclusive) to the end of their observation (inclusive). A row
    of weight 2 counts as two rows, except in Efron's terms for events at the same time, which count
    as the mean of their weights, as in R's survival.

    A site predicts by the shared effects, its own ones, and the cumulative baseline hazard of its
    own rows at the ends of the task's intervals. A site without an event predicts that there is
    next to none.

    Effects mean the same at all sites only if inputs do: set ``data.scaling: pooled`` and, where
    there are categories, ``data.categories: indicators``.

    Source: Cox 1972 (JRSS B 34:187) for the partial likelihood and Cox 1975 (Biometrika 62:269) for
    that of strata; Breslow 1974 (Biometrics 30:89) and Efron 1977 (JASA 72:557) for ties; Lin and
    Wei 1989 (JASA 84:1074) for robust errors; Grambsch and Therneau 1994 (Biometrika 81:515) for
    the test of proportional hazards.

    Args:
        spec: the client's description.
        ties: how events at the same time are handled.
        ridge: the precision of a normal prior around 0 for the effects of a site's own columns, in
            units of scaled inputs; that of the shared ones is the rule's.
        trend: the function of time g(t) with which the test of proportional hazards lets effects
            change: ``log`` t, t itself (``identity``), or the number of agreed intervals before t
            (``steps``).

    Raises:
        ConfigError: the task is not survival, or the ridge is below 0.

    Example:
        >>> from fedlit.tasks.survival import Survival
        >>> task = Survival(edges=(1.0, 2.0), horizons=(2.0,))
        >>> spec = ClientSpec("north", ("age", "dose"), (), {"train": 20}, (), task=task)
        >>> client = StratifiedCox(spec)
        >>> list(dict(client.effects.named_parameters())), client(torch.zeros(5, 2)).shape
        (['age', 'dose'], torch.Size([5, 2]))
    """

    private = ("own", "baseline")
    compares_inputs = True
    weighs_rows = True

    def __init__(
        self,
        spec: ClientSpec,
        ties: Ties = "efron",
        ridge: float = 1.0,
        trend: Literal["log", "identity", "steps"] = "log",
    ) -> None:
        super().__init__(spec)
        if not spec.task.periods:
            raise ConfigError(
                f"client {spec.name!r}: StratifiedCox: expected task survival, found "
                f"{spec.task.title}; take fedlit.MixedModel or a network for it"
            )
        expect(ridge >= 0, "StratifiedCox: ridge", "a number of at least 0", ridge)
        self.task = cast("Any", spec.task)
        self.ties: Ties = ties
        self.ridge = ridge
        self.trend = trend
        self.inputs = {
            safe_name(name, "."): column
            for column, name in enumerate(spec.features)
            if name not in spec.absent
        }
        self.effects = nn.Module()
        for name in self.inputs:
            self.effects.register_parameter(name, nn.Parameter(torch.zeros(())))
        self.own = nn.Parameter(torch.zeros(spec.num_features))
        # An interval with the hazard for which the output 0 stands.
        usual = math.log(-math.log1p(-self.task.hazard))
        self.baseline = nn.Parameter(torch.full((self.task.outputs,), usual))

    # ------------------------------------------------------------------ fitting

    @property
    def rows_behind_answers(self) -> int | None:
        """The number of events in its training rows."""
        if self._rows is None:
            return None
        return int((self._rows.y[:, EVENT] == 1).sum())

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        """Return the terms of the client's rows at given effects, in float64; see
        :func:`fedlit.cox.site_terms` and :func:`fedlit.cox.site_residuals`. Columns that the client
        does not have are 0.
        """
        if topic not in (POINT, RESIDUALS):
            return super().answer(topic, tensors, rows)
        names = sorted(tensors)
        effects = np.array([float(tensors[name]) for name in names])
        stratum = self._stratum(rows, [name.removeprefix(_PREFIX) for name in names])
        if topic == POINT:
            terms = site_terms(stratum, effects)
        else:
            terms = site_residuals(stratum, effects, self._trend_at(stratum.times))
        return {name: torch.from_numpy(np.asarray(term)) for name, term in terms.items()}

    def _stratum(self, rows: Rows, names: Sequence[str]) -> Stratum:
        """Return the client's rows with a known target, with the named inputs in this order."""
        labelled = self.task.known(rows.y)
        inputs = double_on_cpu(rows.x[labelled]).numpy()
        x = np.zeros((len(inputs), len(names)))
        for position, name in enumerate(names):
            if name in self.inputs:
                x[:, position] = inputs[:, self.inputs[name]]
        y = double_on_cpu(rows.y[labelled]).numpy()
        weight = None
        if rows.weight is not None:
            weight = double_on_cpu(rows.weight[labelled]).numpy()
        return Stratum.of(x, y, weight, self.ties)

    def _trend_at(self, times: Floats) -> Floats:
        """Return g(t), in units in which the last agreed time has a value near 1 or 0."""
        edges = np.asarray(self.task.edges, np.float64)
        if self.trend == "steps":
            return np.searchsorted(edges, times) / len(edges)
        shares: Floats = times / edges[-1]
        if self.trend == "log":
            return np.log(np.maximum(shares, _SOON))
        return shares

    @torch.no_grad()
    def on_receive(self, received: State) -> None:
        """Fit the effects of the client's own columns and its baseline hazard, given the shared
        effects.
        """
        fit = {
            name.removeprefix(DOWN): tensor.cpu()
            for name, tensor in received.items()
            if name.startswith(DOWN)
        }
        parameters = dict(self.effects.named_parameters())
        shared = sorted(
            name
            for name, effect in parameters.items()
            if f"{_PREFIX}{name}" in received or not effect.requires_grad
        )
        if fit:
            effects = fit["effects"].numpy()
            self.state = {"columns": shared, **fit}
        else:
            effects = np.array(
                [float(received.get(f"{_PREFIX}{name}", parameters[name])) for name in shared]
            )
        if self._rows is not None:
            self._fit_private(self._rows, shared, effects)

    def _fit_private(self, rows: Rows, shared: Sequence[str], effects: Floats) -> None:
        """Fit what the client keeps to itself.

        Args:
            rows: its training rows.
            shared: the names of the shared inputs.
            effects: their effects.
        """
        labelled = self.task.known(rows.y)
        inputs = double_on_cpu(rows.x[labelled]).numpy()
        predictor = inputs[:, [self.inputs[name] for name in shared]] @ effects
        private = [name for name in sorted(self.inputs) if name not in shared]
        stratum = self._stratum(rows, private)
        columns = [self.inputs[name] for name in private]
        self.own.zero_()
        self.state |= {"own": [], "own_effects": [], "own_errors": []}
        if private:
            fit = solve(
                lambda trial: site_terms(stratum, trial, predictor), len(private), self.ridge
            )
            information = site_terms(stratum, fit.effects, predictor)["information"]
            errors = (
                np.linalg.pinv(information + self.ridge * np.eye(len(private))).diagonal() ** 0.5
            )
            self.own[columns] = torch.from_numpy(fit.effects).to(self.own)
            predictor = predictor + inputs[:, columns] @ fit.effects
            self.state |= {
                "own": private,
                "own_effects": fit.effects.tolist(),
                "own_errors": np.where(fit.finite, errors, 0.0).tolist(),
            }
        cumulative = At.of(stratum, predictor).baseline(np.asarray(self.task.edges))
        # Where effects are large, a baseline is tiny, and so is the least that matters.
        highest = np.clip(predictor.max(initial=0.0), 0.0, _HIGHEST)
        least = _LEAST * np.exp(-highest)
        increments = np.maximum(np.diff(cumulative, prepend=0.0), least)
        self.baseline.copy_(torch.from_numpy(np.log(increments)))

    @property
    def effect_rows(self) -> list[dict[str, Any]]:
        """The rows of ``effects.csv``. Effects are logarithms of hazard ratios, per standard
        deviation of a number.
        """
        title = {name: self.spec.features[column] for name, column in self.inputs.items()}
        rows: list[tuple[Any, ...]] = []
        if "effects" in self.state:
            fit = {name: self.state[name].numpy() for name in ("effects", "trend", "trend_of_all")}
            columns = [title[name] for name in self.state["columns"]]
            for part, covariance in (("effect", "covariance"), (ROBUST, "robust")):
                errors = self.state[covariance].diagonal().sqrt().tolist()
                for column, effect, error in zip(columns, fit["effects"], errors, strict=True):
                    rows.append((part, column, float(effect), error))
            tests = [*zip(columns, fit["trend"], strict=True), (ALL, fit["trend_of_all"])]
            for column, (chi, freedom) in tests:
                rows.append(("trend", column, float(chi), float(freedom)))
        private = zip(
            self.state.get("own", []),
            self.state.get("own_effects", []),
            self.state.get("own_errors", []),
            strict=True,
        )
        for name, effect, error in private:
            rows.append(("own", title[name], effect, error))
        return [dict(zip(_EFFECT_COLUMNS, (OUTPUT, *row), strict=True)) for row in rows]

    # ------------------------------------------------------------------ prediction

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a network for the task: the logit of the hazard in each interval,
        less that for which the output 0 stands.

        Shape:
            - x: (n, d) float32
            - output: (n, intervals)
        """
        coefficients = x.new_zeros(self.spec.num_features)
        values = dict(self.effects.named_parameters())
        if values:
            columns = list(self.inputs.values())
            coefficients[columns] = torch.stack([values[name] for name in self.inputs])
        coefficients = (coefficients + self.own)[None]
        predictor = functional.linear(x, coefficients)
        logarithm = (predictor + self.baseline).clamp(max=_MOST)
        outputs: Tensor = _logit_of(logarithm) - self.task.offset
        return outputs


def _logit_of(logarithm: Tensor) -> Tensor:
    """Return log(eᵃ − 1), the logit of the probability 1 − e⁻ᵃ, given log a: by its series if a is
    small.

    Example:
        >>> _logit_of(torch.tensor([-9.0, 0.0, 2.0]))
        tensor([-8.9999,  0.5413,  7.3884])
    """
    a = logarithm.exp()
    small = logarithm + a / 2 - a.square() * (a.square() / 2880 - 1 / 24)
    large = a + (1 - (-a).exp()).log()
    return torch.where(a < 0.5, small, large)
