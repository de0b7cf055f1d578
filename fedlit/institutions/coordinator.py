"""The coordinator: applies the rule, answers sites, and stores all of its replies."""

import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedlit.client.build import build_client
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.minimum import least
from fedlit.exchange.named import words
from fedlit.exchange.rule import Rule
from fedlit.exchange.schedule import BEGIN, rounds
from fedlit.institutions.behind import JOINED
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.facts import agreed
from fedlit.institutions.journal import Journal
from fedlit.institutions.messages import settings_of, wrong_settings
from fedlit.institutions.progress import Progress, read_progress, with_time, write_json
from fedlit.institutions.serving.line import Line
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.settings import (
    FederationFile,
    federation_of,
    plain_federation,
    read_coordinator,
)
from fedlit.institutions.sites_server import SitesServer
from fedlit.privacy.settings import Privacy
from fedlit.run.arguments import Asked
from fedlit.run.config import shown
from fedlit.run.keys import check_keys
from fedlit.run.layers import Layer
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.session import Session

_log = logging.getLogger(__name__)


class NoTables(Source):
    """A source without tables, for the coordinator, which has none."""

    name = "none"
    about = "no table: what a coordinator has"

    def tables(self, seed: int) -> list[ClientTable]:
        """Return an empty list."""
        return []


def run_of(federation: Path) -> Run:
    """Return the run of a federation's configuration, without tables: its rule, its seed and its
    settings.
    """
    content = plain_federation(federation)
    path = shown(federation)
    check_keys(content, f"{path}: ")
    layers = [
        JOINED,
        Layer(content, f"{path}: "),
        Layer({"data.source": "fedlit.institutions.coordinator.NoTables"}),
    ]
    return parse(Asked("fit", layers, federation.stem, [federation]))[0]


def coordinate(
    federation: Path,
    sites: list[str],
    state: Path,
    line: Line,
    *,
    patience: float = 600.0,
    minimum: float = 1.0,
    repeat: float = 60.0,
) -> dict[str, object]:
    """Coordinate until all sites are done; continue where an earlier coordinator was stopped.

    Args:
        federation: the configuration that all sites have.
        sites: their names.
        state: the folder of what must survive a restart.
        line: to the sites.
        patience: seconds that a round waits for a site.
        minimum: sites that a round needs: a number, or a share.
        repeat: seconds after which a silent site is asked again.

    Returns:
        The outcome: rounds, bytes, who took part.

    Raises:
        FedlitError: it cannot go on.
    """
    run = run_of(federation)
    sites = sorted(sites)
    file = federation_of(federation)
    settings = settings_of(run, file)
    _check_listed(federation, file, sites)
    rule = run.exchange.rule
    start = BEGIN if type(rule).begin is not Rule.begin else 0
    journal = Journal(state, sites, start)
    if "settings" in journal.told:
        _check_same(federation, journal, settings)
        journal.tell("settings", {site: {site: settings} for site in journal.told["settings"]})
        _log.info("continues with round %d of %s", journal.number + 1, ", ".join(sites))
    needed = least(minimum, len(sites))
    _check_masked(file.privacy, needed, minimum, sites)
    build = partial(build_client, run.loop.federation.training.client)
    rounds = _planned(run)
    progress = Progress(state, rounds or _epochs(run))
    hub = SitesServer(
        CoordinatorServer(rule, run.seed, run.exchange.minimum, run.exchange.guard, build),
        line,
        journal,
        settings,
        Patience(patience, needed, repeat),
        report=progress.write,
        privacy=file.privacy,
        rounds=rounds,
        meet=partial(agreed, terms=run.data.terms(known=False)),
    )
    hub.run()
    if journal.number < rounds:
        raise RunError(
            f"expected {rounds} rounds, found that all sites ended after {max(journal.number, 0)}; "
            "look at their messages"
        )
    result = _result(hub)
    write_json(state / "result.json", result)
    progress.write(hub, "finished")
    for warning in words(result.get("guarded", {})):
        _log.warning("since this coordinator was started: %s", warning)
    _log.info("finished: %d rounds, %s bytes", result["rounds"], f"{hub.desk.bytes:,}")
    return result


def _check_listed(path: Path, file: FederationFile, sites: list[str]) -> None:
    """Refuse a file that lists other sites than the coordinator's.

    Raises:
        ConfigError: it does.
    """
    if file.sites and list(file.sites) != sites:
        raise ConfigError(
            f"{path}: federation.sites: expected {', '.join(sites)}, as in coordinator.yaml, "
            f"found {', '.join(file.sites)}; give both the same sites, and all sites this file"
        )


def _check_same(path: Path, journal: Journal, settings: Mapping[str, Any]) -> None:
    """Refuse settings other than those with which the federation in the journal began. The list of
    sites may have become shorter.

    Raises:
        ConfigError: they differ; the message names the keys.
    """
    facts = next(iter(journal.told["settings"].values()))
    before = dict(next(iter(facts.values())))
    if "federation.sites" in settings:
        before["federation.sites"] = settings["federation.sites"]
    wrong = wrong_settings(before, settings)
    if wrong:
        raise ConfigError(
            f"{path}: expected the settings that the federation began with, found others: {wrong}; "
            f"put them back, or move {journal.folder} away and let all sites begin anew"
        )


def _check_masked(privacy: Privacy, needed: int, minimum: float, sites: list[str]) -> None:
    """Refuse masked sums over too few sites, or without some of them.

    Raises:
        ConfigError: there are too few, or a round would go on without one.
    """
    if privacy.masked is None:
        return
    if needed < len(sites):
        raise ConfigError(
            f"minimum: expected 1.0 with masked sums, found {minimum}: a sum needs the message of "
            "each of its sites, so a round waits for all of them"
        )
    if len(sites) < privacy.masked.least:
        raise ConfigError(
            f"masked sums: expected at least {privacy.masked.least} sites, found {', '.join(sites)}"
        )


def _result(hub: SitesServer) -> dict[str, Any]:
    """Return the outcome of a federation that has ended."""
    journal = hub.journal
    counts = Counter[str]()
    for number, sites in journal.took.items():
        if number != BEGIN:
            counts.update(sites)
    result: dict[str, Any] = {
        "rounds": max(journal.number, 0),
        "sites": hub.sites,
        "took": {site: counts[site] for site in hub.sites},
        "bytes": hub.desk.bytes,
        "scores": hub.desk.scores,
        "refused": hub.desk.refused,
    }
    guarded = hub.server.incidents.counts()
    if guarded:
        result["guarded"] = guarded
    return result


def serve(folder: Path, line: Line) -> None:
    """Coordinate the federation of a coordinator's folder.

    Args:
        folder: made by ``fedlit coordinate init``.
        line: to its sites.

    Raises:
        FedlitError: it cannot go on.
    """
    settings = read_coordinator(folder)
    state = settings.state
    progress = read_progress(state) or {}
    if progress.get("state") == "finished":
        print(
            f"This federation has finished ({state / 'result.json'}). Move {state} away to begin "
            "anew",
            flush=True,
        )
        return
    with Session():
        with_time(logging.INFO)
        try:
            coordinate(
                settings.federation,
                list(settings.sites),
                state,
                line,
                patience=settings.patience,
                minimum=settings.minimum,
            )
        except FedlitError as error:
            progress = read_progress(state) or {}
            failed = {**progress, "state": "failed", "why": str(error)}
            write_json(state / "progress.json", failed)
            raise


def _planned(run: Run) -> int:
    """Return the number of rounds if it follows from the epochs alone; 0 if it is not known."""
    tune = run.loop.federation.training.tune
    if any(run.trainer_options.get(key) not in (None, -1) for key in ("max_steps", "max_time")):
        return 0
    return rounds(
        run.exchange.every, max(_epochs(run) - (tune.epochs if tune is not None else 0), 0), 0
    )


def _epochs(run: Run) -> int:
    return int(run.trainer_options.get("max_epochs") or 0)
