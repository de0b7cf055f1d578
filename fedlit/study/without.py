"""Leave-one-out: federations that are also trained without each of their clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError
from fedlit.jobs.job import Train
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.rows import LEAVE_OUT
from fedlit.study.trained import Planned


def runs_without(
    study: ResolvedStudy, planned: Iterable[Planned], tables: Sequence[ClientTable]
) -> list[Planned]:
    """Return the runs of the federations without each of their clients, client by client; none if
    the study does not ask for it.

    Args:
        study: the study.
        planned: the runs with all clients.
        tables: the tables of the clients.

    Raises:
        ConfigError: the study asks for it, but has fewer than three clients, or no federated
            method.
    """
    if not study.leave_one_out:
        return []
    clients = [table.name for table in tables]
    if len(clients) < 3:
        raise ConfigError(
            f"leave_one_out: expected three clients or more, found {clients!r}; with two, what the "
            "other one gains is its lift over going alone"
        )
    if not study.candidates:
        raise ConfigError(
            f"leave_one_out: expected a federated method, found {[*study.methods]!r}; add one"
        )
    federations = [run for run in planned if run.method in study.candidates and _is_plain(run)]
    runs = list[Planned]()
    for client in clients:
        runs += [_without(run, client) for run in federations]
    return runs


def _is_plain(run: Planned) -> bool:
    """Return whether a run trains one configuration."""
    return isinstance(run.work, Train) and not run.work.mixture


def _without(run: Planned, client: str) -> Planned:
    """Return the same run without a client."""
    keys = {LEAVE_OUT: [*run.made_of.get(LEAVE_OUT, ()), client]}
    work = replace(run.work, overrides={**run.work.overrides, **keys})
    return replace(run, work=work, made_of={**run.made_of, **keys}, left_out=client)
