"""``fedlit recommend``."""

from __future__ import annotations

from fedlit.mixture.settings import is_mixture
from fedlit.run.arguments import read
from fedlit.run.config import find_config, shown
from fedlit.show.shown import for_terminal, say


def recommend(
    *,
    config: str,
    budget: float = 600.0,
    folds: int = 4,
    seed: int | None = None,
    by: str | None = None,
    workers: int = 1,
    matters: float = 0.5,
    out: str | None = None,
) -> None:
    """Find out for the tables of a configuration whether joining is worth it, for which client, and with which method.

    Trains local and federated candidates on folds of training and validation rows, within a time budget, and reports
    what each client gains and what would leave it. Writes the chosen configuration. Test rows are not touched. If you
    start it again with the same settings, it continues where it stopped.

    Args:
        config: a configuration with data.source; its method is a candidate too
        budget: seconds until training ends, roughly
        folds: 2 or more
        seed: of everything (default: the configuration's)
        by: the score that decides (default: the main one of the task)
        workers: processes at once
        matters: percentage points below which a difference does not matter
        out: the folder for what is written (default: recommended/NAME)
    """
    path = find_config(config)
    if not is_mixture(path):
        read("describe", ["--config", str(path)])  # what is wrong is said before torch is imported
    say(f"Reading {shown(path)}")
    from fedlit.mixture import recommend as work

    found = work.recommend(
        path, budget=budget, folds=folds, seed=seed, by=by, workers=workers, matters=matters, out=out
    )
    print(f"\n{for_terminal(found)}")
