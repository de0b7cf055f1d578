"""Loads one client of a trained run, whether the run is one federation or a mixture of several
parts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlit.data.table import check_client
from fedlit.errors import expect
from fedlit.mixture.folders import CONFIG, find_mixture, read_mixture
from fedlit.mixture.parts import Part
from fedlit.mixture.written import settings_of
from fedlit.run.folders import find_trained
from fedlit.run.load import run_of
from fedlit.run.run import Run
from fedlit.run.thresholds import MIXTURE, kept
from fedlit.score.mixed_scorer import MixedScorer
from fedlit.score.scorer import Scorer
from fedlit.show.shown import say


def load_run(
    run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False
) -> Scorer:
    """Load one client of a trained run; if the run is a mixture, the client's whole mixture. The
    tables that it was trained on need not exist.

    Args:
        run: a run's folder, or the name of a configuration, which stands for its newest run.
        client: the name of the client.
        checkpoint: ``last``, ``best`` or a file; for a mixture ``last``.
        quiet: whether not to print which checkpoint is used.

    Raises:
        ConfigError: there is no such run, checkpoint or client, or the run's networks cannot be
            built.
    """
    return opened(run, client, checkpoint, quiet=quiet)[0]


def opened(
    run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False
) -> tuple[Scorer, Path, Callable[[], Run]]:
    """Load a client as :func:`load_run` does. Return also the run's folder, and a function that
    returns a run that reads the client's table.
    """
    folder = find_mixture(run)
    if folder is None:
        run_folder, path = find_trained(run, str(checkpoint), "score")
        if not quiet:
            say(f"Using {path}")
        single = run_of(run_folder)
        return single.client(client, path), run_folder, lambda: single
    expected = "last, because a mixture has only one state"
    expect(checkpoint == "last", "--ckpt_path", expected, checkpoint)
    if not quiet:
        say(f"Using {folder}")
    scorer = mixed_scorer(folder, client)
    parts = Part.of(settings_of(folder / CONFIG), folder)
    return scorer, folder, lambda: parts[next(iter(scorer.scorers))].load(0)


def mixed_scorer(folder: Path, client: str) -> MixedScorer:
    """Load one client's mixture from a run's folder. The tables that it was trained on need not
    exist.

    Raises:
        ConfigError: there is no such client, or the run was not trained to its end.
        DataError: ``mixture.json`` was altered.
    """
    settings = settings_of(folder / CONFIG)
    clients = read_mixture(folder, settings.parts)
    check_client("--client", client, list(clients))
    weights = clients[client]["weights"]
    stack = clients[client]["stack"]
    parts = Part.of(settings, folder)
    models = dict[str, list[Scorer]]()
    precisions = list[str]()
    for name in weights:
        part = parts[name]
        models[name] = [part.scorers(fold, [client])[client] for fold in part.each_fold]
        precisions += [str(model.about.get("precision")) for model in models[name]]
    unusual = [precision for precision in precisions if precision not in ("32", "32-true")]
    about: dict[str, Any] = {
        "checkpoint": "/".join(folder.absolute().parts[-2:]),
        "epochs": None,
        "client": "Mixture",
        "rows": {},
        "version": None,
        "precision": unusual[0] if unusual else "32-true",
    }
    chosen = kept(folder, MIXTURE, [client], settings.score.get("threshold"))
    if client in chosen:
        about["threshold"] = chosen[client]
    return MixedScorer(client, models, weights, about, stack)
