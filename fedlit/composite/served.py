"""A client's mixture of a trained run as one scorer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlit.composite.folders import CONFIG, MIXED, find_composite, read_mixture
from fedlit.composite.parts import Part
from fedlit.composite.settings import MixtureSettings, settings_of
from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.run import Run
from fedlit.run.trained import open_run
from fedlit.score.mixed import MixedScorer, Recipe
from fedlit.score.scorer import Scorer
from fedlit.show.shown import say

__all__ = ["load_mixture", "load_run", "mixed_scorers", "opened"]


def load_run(run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False) -> Scorer:
    """One client of a trained run; of a run of several parts, its whole mixture. The tables that it was trained on need
    not be there.

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
    folder = find_composite(run)
    if folder is None:
        single, path = open_run(run, client, checkpoint, quiet=quiet)
        return single.client(client, path), path.parent.parent, lambda: single
    if checkpoint != "last":
        raise ConfigError(f"--ckpt_path: expected last, for a mixture has one state, found {checkpoint}")
    if not quiet:
        say(f"Using {folder}")
    scorer, parts = load_mixture(folder, client), Part.of(settings_of(folder / CONFIG), folder)
    return scorer, folder, lambda: parts[next(iter(scorer.scorers))].load(0)


def load_mixture(folder: Path, client: str) -> MixedScorer:
    """One client's mixture of a run's folder. The tables that it was trained on need not be there.

    Raises:
        ConfigError: no such client, or a run that was not trained to its end.
        DataError: ``mixture.json`` was altered.
    """
    settings = settings_of(folder / CONFIG)
    clients = read_mixture(folder, settings.parts)
    if client not in clients:
        raise ConfigError(
            f"--client: expected one of {', '.join(clients)}, found {client!r}." + did_you_mean(client, clients)
        )
    return mixed_scorers(folder, settings, {client: clients[client]})[client]


def mixed_scorers(
    folder: Path, settings: MixtureSettings, clients: dict[str, dict[str, Any]], *, every: bool = False
) -> dict[str, MixedScorer]:
    """Client → its mixture.

    Args:
        folder: the run's.
        settings: of the run.
        clients: what :func:`fedlit.composite.folders.read_mixture` found, of those that are asked for.
        every: whether parts that did not enter are loaded, too, with weight 0.
    """
    recipes = {name: Recipe.of(own["recipe"], f"{folder / MIXED}: client {name!r}") for name, own in clients.items()}
    models: dict[str, dict[str, list[Scorer]]] = {name: {} for name in clients}
    for part in Part.of(settings, folder).values():
        wanted = [
            name for name, own in clients.items() if part.name in (own["scores"] if every else own["recipe"]["weights"])
        ]
        for fold in part.each_fold if wanted else ():
            for name, scorer in part.scorers(fold, wanted).items():
                models[name].setdefault(part.name, []).append(scorer)
    made = {}
    for name, own in clients.items():
        recipe = recipes[name]
        if every:
            recipe = Recipe({part: recipe.weights.get(part, 0.0) for part in own["scores"]})
        about: dict[str, Any] = {
            "checkpoint": "/".join(folder.absolute().parts[-2:]), "epochs": None, "client": "Mixture",
            "rows": {}, "version": None, "precision": _precision(models[name]),
        }  # fmt: skip
        made[name] = MixedScorer(name, models[name], recipe, about)
    return made


def _precision(models: dict[str, list[Scorer]]) -> str:
    """That of a part that was not trained in float32, if there is one."""
    found = [str(own.about.get("precision")) for folds in models.values() for own in folds]
    return next((own for own in found if own not in ("32", "32-true")), "32-true")
