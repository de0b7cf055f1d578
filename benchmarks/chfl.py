"""The tables of Mori et al. 2022 (CHFL) on Covertype: what columns of one's own add to what clients share.

    python benchmarks/chfl.py run [--clients 5] [--common 0.3] [--by random] [--seeds 0:14] [--out FOLDER] [--jobs 2]
    python benchmarks/chfl.py table FOLDER …

`run` is the study `chfl_covertype` with another number of clients, share of common columns, or way to choose them, in a
folder of its own (start it again to go on); `table` prints, for each such folder, the mean test accuracy over clients
beside the paper's, and paired differences with intervals: over runs, and over ways of dealing columns.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

WAYS = 3  # of dealing columns; a run's seed modulo this
# clients → method → mean and standard deviation of the accuracy (Covertype, 30 % of the columns in common)
PAPER = {
    5: {
        "common": (0.622, 0.109),
        "local": (0.641, 0.059),
        "chfl_0": (0.674, 0.073),
        "chfl": (0.684, 0.066),
        "concatenation": (0.664, 0.071),
    },
    2: {"common": (0.642, None), "local": (0.765, None), "chfl_0": (0.748, None), "chfl": (0.775, None)},
    10: {"common": (0.601, None), "local": (0.563, None), "chfl_0": (0.629, None), "chfl": (0.629, None)},
}
PAIRS = [("chfl_0", "common"), ("chfl_0", "local"), ("chfl", "chfl_0"), ("chfl", "local"), ("chfl", "concatenation")]


def run(arguments: argparse.Namespace) -> None:
    from fedlit.study.compare import compare
    from fedlit.study.study import load_study

    study = load_study("chfl_covertype")
    changes = {
        "data.source.init_args.source.init_args.clients": arguments.clients,
        "data.source.init_args.common": arguments.common,
        "data.source.init_args.by": arguments.by,
    }
    methods = {name: replace(method, set={**method.set, **changes}) for name, method in study.methods.items()}
    name = f"chfl_covertype_{arguments.clients}_{arguments.common}_{arguments.by}"
    compare(
        replace(study, methods=methods, name=name),
        seeds=arguments.seeds,
        methods=arguments.methods.split(",") if arguments.methods else None,
        baselines=[] if arguments.methods else None,
        jobs=arguments.jobs,
        out=arguments.out or Path("lightning_logs", "studies", name),
    )


def table(folder: Path) -> str:
    """Markdown: methods, then paired differences."""
    results = pd.read_csv(folder / "results.csv")
    own = results[(results["split"] == "test") & (results["metric"] == "accuracy")]
    clients = own["client"].nunique()
    means = own.groupby(["seed", "method"])["value"].mean().unstack()
    known = PAPER.get(clients, {})
    lines = [
        f"{folder.name}: {clients} clients, {len(means)} runs",
        "",
        "| | accuracy | paper |",
        "| --- | --- | --- |",
    ]
    for method in (name for name in [*PAPER[5], "extra_trees", "logistic_regression"] if name in means):
        values = means[method].dropna()
        mean, deviation = known.get(method, (None, None))
        said = "" if mean is None else f"{mean}" + ("" if deviation is None else f" ± {deviation}")
        lines.append(f"| {method} | {values.mean():.3f} ± {values.std():.3f} ({len(values)} runs) | {said} |")
    lines += [
        "",
        "| difference | over runs | over ways of dealing columns | runs above 0 |",
        "| --- | --- | --- | --- |",
    ]
    for one, other in PAIRS:
        if one in means and other in means:
            gain = (means[one] - means[other]).dropna()
            ways = gain.groupby(gain.index.to_numpy() % WAYS).mean()
            cells = [interval(gain), interval(ways), f"{int((gain > 0).sum())} of {len(gain)}"]
            lines.append(f"| {one} − {other} | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(values: pd.Series) -> str:
    """Mean and 95 % interval of Student's t."""
    mean = float(values.mean())
    if len(values) < 2:
        return f"{mean:+.3f}"
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std() / np.sqrt(len(values)))
    return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--clients", type=int, default=5)
    runs.add_argument("--common", type=float, default=0.3)
    runs.add_argument("--by", default="random", choices=("random", "maximum", "median", "minimum"))
    runs.add_argument("--seeds", default=None)
    runs.add_argument("--methods", default=None)
    runs.add_argument("--jobs", type=int, default=None)
    runs.add_argument("--out", default=None)
    commands.add_parser("table").add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments)
    else:
        print("\n\n".join(table(folder) for folder in arguments.folders))


if __name__ == "__main__":
    main()
