"""Plans a mixture: describes each part, and refuses parts that cannot be mixed because their
clients, rows, targets or weights of rows differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlit.data.table import ClientTable
from fedlit.errors import FedlitError, Told, expect, must_be_known
from fedlit.exchange.exchange import Exchange
from fedlit.mixture.parts import Part
from fedlit.mixture.plan import MixturePlan
from fedlit.mixture.settings import MixtureSettings
from fedlit.run.run import Run
from fedlit.run.scoring import ScoreSettings


@dataclass(frozen=True)
class _Rows:
    """The rows of a client in a part.

    Attributes:
        targets: maps the splits that a mixture is judged by to the rows' targets.
        weights: how much each row counts; None if all count alike.
    """

    targets: Mapping[str, pd.Series]
    weights: np.ndarray | None

    @classmethod
    def of(cls, table: ClientTable) -> _Rows:
        """Return the rows of a table."""
        targets = {
            "validation": table.target.iloc[table.splits["validation"]],
            "test": table.target.iloc[table.splits["test"]],
        }
        return cls(targets, table.weights)


def plan_parts(
    settings: MixtureSettings, parts: Mapping[str, Part], score: ScoreSettings, keep: bool = False
) -> MixturePlan:
    """Return the plan of a mixture. This reads the data and builds the clients of the first fold.

    Args:
        settings: the settings of the mixture.
        parts: its parts.
        score: what is scored beside the usual scores.
        keep: whether to write what each part is trained with to its folder.

    Raises:
        ConfigError: a part cannot be run, or parts cannot be mixed.
    """
    plan = MixturePlan(settings)
    rows = dict[str, dict[str, _Rows]]()
    for name, part in parts.items():
        run = part.load(0)
        if part.alone:
            run.exchange = Exchange()  # nobody asks anybody
        try:
            plan.plans[name] = run.describe()
        except FedlitError as error:
            raise type(error)(f"part {name!r}: {error}") from error
        score.check(run.data.specs)
        _check_score(settings, name, run)
        _check_grid(name, part, run)
        if run.data.pool:
            plan.pooled.append(name)
        elif not run.exchange.on:
            plan.local.append(name)
        rows[name] = {table.name: _Rows.of(table) for table in run.data.tables()}
        first = next(iter(rows))
        _compare(first, rows[first], name, rows[name], alone=name in plan.local)
        if keep:
            part.keep(run)
        run.loop.release()
    _check_weights(rows)
    return plan


def _check_score(settings: MixtureSettings, name: str, run: Run) -> None:
    """Refuse a score to decide by that no client of a part has."""
    by = settings.mixing.by
    if by is None:
        return
    deciding = set[str]()
    for spec in run.data.specs:
        deciding.update(score.name for score in spec.task.scores if score.may_decide)
    must_be_known(f"mixture.by, for part {name!r}", [str(by)], sorted(deciding))


def _check_grid(name: str, part: Part, run: Run) -> None:
    """Refuse settings to try that a local model does not have."""
    if part.settings.grid is None:
        return
    for spec in run.data.specs:
        model = spec.task.go_alone.get(str(part.settings.go_alone))
        if model is not None:
            must_be_known(f"mixture.parts.{name}.grid", part.settings.grid, model.adjustable)


def _compare(
    first: str,
    before: Mapping[str, _Rows],
    name: str,
    now: Mapping[str, _Rows],
    *,
    alone: bool,
) -> None:
    """Refuse parts that do not have the same rows. Only a local part, in which no other client has
    a share, may leave clients out.
    """
    same_clients = set(now) <= set(before) if alone else set(now) == set(before)
    expected = f"the clients of part {first!r}, {', '.join(sorted(before))}"
    do = "and the same clients of it"
    one = "let all parts have one source"
    expect(same_clients, f"part {name!r}", expected, Told(", ".join(sorted(now))), f"{one}, {do}")
    expected = f"the held-out and test rows of part {first!r}, with its target"
    do = "one way to split and one target"
    for client in now:
        same_rows = all(
            target.equals(before[client].targets[split])
            for split, target in now[client].targets.items()
        )
        expect(
            same_rows, f"part {name!r}, client {client!r}", expected, Told("others"), f"{one}, {do}"
        )


def _check_weights(parts: Mapping[str, Mapping[str, _Rows]]) -> None:
    """Refuse parts whose rows do not count as much as those of the first part, since they are
    judged together.
    """
    first, before = next(iter(parts.items()))
    for name, clients in parts.items():
        for client, rows in clients.items():
            key = f"part {name!r}, client {client!r}: data.source.weight"
            expected = f"the weights of rows of part {first!r}"
            expect(
                _alike(rows.weights, before[client].weights),
                key,
                expected,
                Told("others"),
                "give all parts one source",
            )


def _alike(first: np.ndarray | None, second: np.ndarray | None) -> bool:
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)
