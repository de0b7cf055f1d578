"""``fedlit compare`` and ``fedlit search``."""

from __future__ import annotations

from fedlit.cli.commands import names
from fedlit.errors import Told, expect, must_be_known
from fedlit.run.config import STUDIES, find_config, read_yaml, shown
from fedlit.run.keys import GROUPS
from fedlit.show.shown import Printer, for_terminal, say
from fedlit.study.parse import load_study
from fedlit.study.study import StudyFile


def compare(
    study: str,
    *,
    seeds: str | None = None,
    workers: int | None = None,
    methods: str | None = None,
    scenarios: str | None = None,
    baselines: str | None = None,
    out: str | None = None,
) -> int:
    """Train every method of a study with every seed, and report what federation gains for each
    client.

    Fits the local baselines, too, and writes results.csv, lift.csv, tables.md and report.html. If
    you start it again, it runs only what is missing.

    Args:
        study: a YAML file, or the name of one in configs/studies/
        seeds: 8:28 (both ends included) or 1,2,5 (default: the study's)
        workers: runs at once, each with its share of the cores (default: one per core)
        methods: only these methods, separated by commas (the reference is added)
        scenarios: only these scenarios, if the study has any, separated by commas
        baselines: only these local baselines, separated by commas, or none
        out: the study's folder (default: lightning_logs/studies/NAME)
    """
    named = {"methods": names(methods), "scenarios": names(scenarios)}
    loaded = _checked(study, workers=workers)  # refused before torch is imported
    for key, only in named.items():
        must_be_known(f"--{key}", only or (), getattr(loaded, key) or only or ())
    from fedlit.study import compare as work
    from fedlit.study.ranks import Ranks

    chosen = named["scenarios"]
    if chosen is None:
        chosen = list(loaded.scenarios)
    for scenario in chosen:  # refused before the first is run
        loaded.of(scenario)
    failed = False
    compared = {}
    every: list[str | None] = [*chosen] or [None]
    for current in every:
        if current is not None:
            print(f"\n=== {current} ===")
        printer = Printer()
        comparison = work.compare(
            loaded, seeds=seeds, workers=workers, methods=named["methods"], baselines=names(baselines), out=out,
            scenario=current, say=printer,
        )  # fmt: skip
        print()
        printer.show(comparison)
        print(f"\nAll scores and lifts: {comparison.folder / 'report.html'}")
        for name, error in comparison.failures.items():
            say(f"FAILED {name}: {error}")
        failed |= bool(comparison.failures)
        compared[current or ""] = comparison
    if len(compared) > 1:
        ranks = Ranks(compared)
        print(f"\n=== {len(compared)} scenarios together ===\n{for_terminal(ranks)}\n")
        print(f"Ranks: {ranks.write(next(iter(compared.values())).folder.parent)}")
    return int(failed)


def search(
    study: str,
    *,
    seeds: str | None = None,
    trials: int = 20,
    workers: int | None = None,
    out: str | None = None,
) -> None:
    """Search for what to federate, how often and how much, and for hyperparameters.

    The search space is in the study, and trials are judged on validation rows. If it is started
    again, it continues.

    Args:
        study: a YAML file, or the name of one in configs/studies/
        seeds: 8:28 (both ends included) or 1,2,5 (default: the study's)
        trials: the total number of trials
        workers: runs at once, each with its share of the cores (default: one per core)
        out: the study's folder (default: lightning_logs/studies/NAME)
    """
    loaded = _checked(study, workers=workers, trials=trials)
    from fedlit.study import search as work

    print(for_terminal(work.search(loaded, seeds=seeds, trials=trials, workers=workers, out=out)))


def _checked(study: str, **counts: int | None) -> StudyFile:
    path = find_config(study, STUDIES)
    content = read_yaml(path)
    is_study = "methods" in content or not set(content) & set(GROUPS)
    expect(
        is_study,
        shown(path),
        "a study",
        Told("a configuration"),
        f"to train it: fedlit fit {study}",
    )
    for key, count in counts.items():
        expect(count is None or count > 0, f"--{key}", "at least 1", count)
    return load_study(study)
