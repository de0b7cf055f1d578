"""The coordinator: applies the rule, answers sites, and stores all of its replies."""

import logging
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
from fedlit.institutions.settings import federation_of, plain_federation, read_coordinator
from fedlit.institutions.sites_server import SitesServer
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
    where = shown(federation)
    check_keys(content, f"{where}: ")
    layers = [
        JOINED,
        Layer(content, f"{where}: "),
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
) -> dict[str, Any]:
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
    rule = run.exchange.rule
    training = run.loop.federation.training
    build = partial(build_client, training.client)
    server = CoordinatorServer(rule, run.seed, run.exchange.minimum, run.exchange.guard, build)
    start = BEGIN if type(rule).begin is not Rule.begin else 0
    told = federation_of(federation)
    privacy = told.privacy
    settings = settings_of(run, told)
    if told.sites and list(told.sites) != sites:
        raise ConfigError(
            f"{federation}: federation.sites: expected {', '.join(sites)}, as in coordinator.yaml, "
            f"found {', '.join(told.sites)}; give both the same sites, and all sites this file"
        )
    journal = Journal(state, sites, start)
    if "settings" in journal.told:
        (known,) = list(journal.told["settings"].values())[:1]
        if wrong := wrong_settings(next(iter(known.values())) | _sites_of(settings), settings):
            raise ConfigError(
                f"{federation}: expected the settings that the federation began with, found "
                f"others: {wrong}; put them back, or move {state} away and let all sites begin anew"
            )
        journal.tell("settings", {site: {site: settings} for site in journal.told["settings"]})
        _log.info("continues with round %d of %s", journal.number + 1, ", ".join(sites))
    needed = least(minimum, len(sites))
    if privacy.masked and needed < len(sites):
        raise ConfigError(
            f"minimum: expected 1.0 with masked sums, found {minimum}: a sum needs the message of "
            "each of its sites, so a round waits for all of them"
        )
    if privacy.masked and len(sites) < privacy.masked.least:
        raise ConfigError(
            f"masked sums: expected at least {privacy.masked.least} sites, found {', '.join(sites)}"
        )
    limit = Patience(patience, needed, repeat)
    planned = _planned(run)
    progress = Progress(state, planned or _epochs(run))
    meet = partial(agreed, terms=run.data.terms(known=False))
    hub = SitesServer(
        server, line, journal, settings, limit, progress.write, privacy, planned, meet
    )
    hub.run()
    if journal.number < planned:
        found = max(journal.number, 0)
        raise RunError(
            f"expected {planned} rounds, found that all sites ended after {found}; look at their "
            "messages"
        )
    result = {
        "rounds": max(journal.number, 0),
        "sites": sites,
        "took": {
            site: sum(site in took for number, took in journal.took.items() if number >= 0)
            for site in sites
        },
        "bytes": hub.desk.bytes,
        "scores": hub.desk.scores,
        "refused": hub.desk.refused,
        **({"guarded": guarded} if (guarded := server.incidents.found()) else {}),
    }
    write_json(state / "result.json", result)
    progress.write(hub, "finished")
    for warning in words(guarded):
        _log.warning("since this coordinator was started: %s", warning)
    _log.info("finished: %d rounds, %s bytes", result["rounds"], f"{hub.desk.bytes:,}")
    return result


def _sites_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the list of sites, which may become shorter."""
    return {key: value for key, value in settings.items() if key == "federation.sites"}


def serve(folder: Path, line: Line) -> None:
    """Coordinate the federation of a coordinator's folder.

    Args:
        folder: made by ``fedlit coordinate init``.
        line: to its sites.

    Raises:
        FedlitError: it cannot go on.
    """
    own = read_coordinator(folder)
    known = read_progress(own.state) or {}
    if known.get("state") == "finished":
        where = own.state / "result.json"
        print(
            f"This federation has finished ({where}). Move {own.state} away to begin anew",
            flush=True,
        )
        return
    with Session():
        with_time(logging.INFO)
        try:
            coordinate(
                own.federation,
                list(own.sites),
                own.state,
                line,
                patience=own.patience,
                minimum=own.minimum,
            )
        except FedlitError as error:
            known = read_progress(own.state) or {}
            failed = {**known, "state": "failed", "why": str(error)}
            write_json(own.state / "progress.json", failed)
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
