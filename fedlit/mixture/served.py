"""A client of a trained run, or its mixture of several parts, as one scorer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlit.data.table import check_client
from fedlit.errors import expect
from fedlit.mixture.folders import CONFIG, find_mixture, read_mixture
from fedlit.mixture.parts import Part
from fedlit.mixture.settings import settings_of
from fedlit.run.folders import find_trained
from fedlit.run.load import run_of
from fedlit.run.run import Run
from fedlit.score.mixed import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.show.shown import say

__all__ = ["load_run", "mixed_scorer", "opened"]


def load_run(run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False) -> Scorer:
    """One client of a trained run; of a mixture, its whole mixture. The tables that it was trained on need not be
    there.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        client: its name.
        checkpoint: ``last``, ``best`` or a file; of a mixture ``last``.
        quiet: do not say which checkpoint is used.

    Raises:
        ConfigError: no such run, checkpoint or client, or a run whose networks nobody can build.
    """
    return opened(run, client, checkpoint, quiet=quiet)[0]


def opened(
    run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False
) -> tuple[Scorer, Path, Callable[[], Run]]:
    """See :func:`load_run`; with the run's folder, and a run that reads the client's table."""
    folder = find_mixture(run)
    if folder is None:
        where, path = find_trained(run, str(checkpoint), "score")
        if not quiet:
            say(f"Using {path}")
        single = run_of(where)
        return single.client(client, path), where, lambda: single
    expect(checkpoint == "last", "--ckpt_path", "last, for a mixture has one state", checkpoint)
    if not quiet:
        say(f"Using {folder}")
    scorer, parts = mixed_scorer(folder, client), Part.of(settings_of(folder / CONFIG), folder)
    return scorer, folder, lambda: parts[next(iter(scorer.scorers))].load(0)


def mixed_scorer(folder: Path, client: str) -> MixedScorer:
    """One client's mixture of a run's folder. The tables that it was trained on need not be there.

    Raises:
        ConfigError: no such client, or a run that was not trained to its end.
        DataError: ``mixture.json`` was altered.
    """
    settings = settings_of(folder / CONFIG)
    clients = read_mixture(folder, settings.parts)
    check_client("--client", client, list(clients))
    weights, stack, parts = clients[client]["weights"], clients[client]["stack"], Part.of(settings, folder)
    models = {name: [parts[name].scorers(fold, [client])[client] for fold in parts[name].each_fold] for name in weights}
    every = [str(own.about.get("precision")) for folds in models.values() for own in folds]
    about: dict[str, Any] = {
        "checkpoint": "/".join(folder.absolute().parts[-2:]), "epochs": None, "client": "Mixture", "rows": {},
        "version": None, "precision": next((own for own in every if own not in ("32", "32-true")), "32-true"),
    }  # fmt: skip
    return MixedScorer(client, models, weights, about, stack)
