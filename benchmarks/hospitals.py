"""How often does the quickstart's study say what is so? It is run on other draws of its three
hospitals, then on 100,000 later rows of each, which show the truth.

    python benchmarks/hospitals.py FOLDER --draws 11:30
    python benchmarks/hospitals.py FOLDER --draws 11 --later 100000

Prints the verdicts and lifts by draw. Started again, it continues in the folder. Draws 1 to 5 are
those by which rows and effects of :class:`fedlit.Hospitals` were chosen.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedlit import compare
from fedlit.answers.verdict import Verdict
from fedlit.study.method import Scenario
from fedlit.study.parse import load_study
from fedlit.study.seeds import parse_seeds

MEANT = {"north": Verdict.JOIN, "south": Verdict.ALONE, "west": Verdict.FEW}


def main() -> None:
    """Run the study on each draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", default="11:30", help="seeds of the hospitals' rows")
    parser.add_argument(
        "--later", type=int, help="test rows of each hospital, instead of its own number"
    )
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    counts: Counter[bool] = Counter()
    for draw in parse_seeds(asked.draws, "--draws"):
        changes: dict[str, Any] = {"data.source.draw": draw}
        if asked.later is not None:
            changes["data.source.later"] = asked.later
        name = "_".join(str(value) for value in changes.values())
        shipped = load_study("quickstart")
        # so many rows leave nothing to resample
        bootstrap = shipped.bootstrap if asked.later is None else 0
        study = replace(shipped, scenarios={name: Scenario(set=changes)}, bootstrap=bootstrap)
        answers = compare(
            study, scenario=name, workers=asked.workers, out=asked.folder, quiet=True
        ).answers
        verdicts = {answer.client: answer.verdict for answer in answers}
        counts[verdicts == MEANT] += 1
        for answer in answers:
            low, lift, high, _ = answer.bar
            told = (
                f"{draw:4} {answer.client:6} {answer.verdict:17} {lift:+6.2f} ({low:+.2f} to "
                f"{high:+.2f})"
            )
            print(told, flush=True)
        print(f"{draw:4} {'as meant' if verdicts == MEANT else 'not as meant'}", flush=True)
    print(f"{counts[True]} of {counts.total()} draws as meant: {MEANT}")


if __name__ == "__main__":
    main()
