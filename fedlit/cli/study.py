"""The command lines of ``fedlit compare`` and ``fedlit search``. Light: what they need is imported when it is known
what is asked.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedlit.cli.parser import Parser
from fedlit.errors import ConfigError
from fedlit.run.config import find_config, known_configs, read_yaml, shown
from fedlit.run.keys import GROUPS
from fedlit.show.shown import for_terminal, say
from fedlit.study.check import check_study
from fedlit.study.method import must_be_known
from fedlit.study.seeds import parse_seeds

__all__ = ["main"]


def _names(text: str) -> list[str]:
    return [] if text == "none" else [name.strip() for name in text.split(",") if name.strip()]


def _parser(command: str) -> argparse.ArgumentParser:
    about = {
        "compare": "Train every method of a study with every seed, fit the go-alone models, and say what federation "
        "gains for each client: results.csv, lift.csv, tables.md, report.html. Started again, it runs only what is "
        "missing.",
        "search": "Look for what to federate, how often, how much, and for hyperparameters: the space is in the study, "
        "trials are chosen on validation. Started again, it goes on.",
    }
    known = ", ".join(name.removesuffix(".yaml") for name in known_configs(studies=True))
    parser = Parser(prog=f"fedlit {command}", description=about[command], epilog=f"studies: {known}")
    parser.add_argument("study", help="a YAML file, or the name of one in configs/studies/")
    parser.add_argument("--seeds", help="8:28 (both ends included) or 1,2,5; by default the study's")
    parser.add_argument(
        "--jobs", type=int, help="runs at once, each with its share of the cores (default: one per core, at most 4)"
    )
    parser.add_argument("--out", help="the study's folder (default: lightning_logs/studies/NAME)")
    if command == "compare":
        parser.add_argument(
            "--methods", type=_names, help="these methods only, divided by commas (the reference is added)"
        )
        parser.add_argument(
            "--scenarios", type=_names, help="of a study that has scenarios these only, divided by commas"
        )
        parser.add_argument("--baselines", type=_names, help="these go-alone models only, or none")
    else:
        parser.add_argument("--trials", type=int, default=20, help="how many in all (default: 20)")
    return parser


def _check(asked: Mapping[str, Any]) -> None:
    """Refuse what is wrong at first sight, before torch is imported."""
    path = find_config(asked["study"], studies=True)
    content, where = read_yaml(path), shown(path)
    if "methods" not in content and set(content) & set(GROUPS):
        raise ConfigError(
            f"{where}: expected a study (it has methods), found a configuration. Did you mean: fedlit fit --config "
            f"{asked['study']}?"
        )
    check_study(content, path)
    if asked["seeds"] is not None:
        parse_seeds(asked["seeds"])
    for key in ("jobs", "trials"):
        if asked.get(key) is not None and asked[key] < 1:
            raise ConfigError(f"--{key}: expected at least 1, found {asked[key]}")
    for key in ("methods", "scenarios"):
        known = content.get(key)
        if asked.get(key) and isinstance(known, dict):
            must_be_known(f"--{key}", asked[key], known)


def main(command: str, argv: Sequence[str]) -> int:
    """Run ``fedlit compare`` or ``fedlit search``; the exit status: 0, or 1 if a run failed."""
    arguments = vars(_parser(command).parse_args(argv))
    _check(arguments)
    try:
        if command == "search":
            from fedlit.study.search import search

            print(for_terminal(search(**arguments)))
            return 0
        from fedlit.study.compare import compare
        from fedlit.study.parse import load_study

        arguments["study"] = load_study(arguments["study"])
        wanted = arguments.pop("scenarios")
        chosen = list(arguments["study"].scenarios) if wanted is None else wanted
        for scenario in chosen:  # refused before the first is run
            arguments["study"].of(scenario)
        failed, compared = False, {}
        for scenario in chosen or [None]:
            if scenario is not None:
                print(f"\n=== {scenario} ===")
            found = compare(**arguments, scenario=scenario)
            print(f"\n{for_terminal(found)}\n")
            print(f"Report: {found.folder / 'report.html'}")
            for name, error in found.failures.items():
                say(f"FAILED {name}: {error}")
            failed |= bool(found.failures)
            compared[scenario] = found
        if len(compared) > 1:
            from fedlit.study.across import Across

            together, folder = Across(compared), next(iter(compared.values())).folder.parent
            print(f"\n=== {len(compared)} scenarios together ===\n{for_terminal(together)}\n")
            together.write(folder)
            print(f"Tables: {folder / 'across.md'}; picture: {folder / 'ranks.png'}")
    except KeyboardInterrupt:
        again = shlex.join(["fedlit", command, *argv])
        say(f"fedlit: interrupted; the same command goes on with what is missing: {again}")
        return 130
    return 1 if failed else 0
