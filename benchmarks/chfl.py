"""The tables of Mori et al. 2022 (CHFL) on Covertype: what columns of one's own add to what clients share.

    python benchmarks/chfl.py run [--clients 5] [--common 0.3] [--by random] [--seeds 0:14] [--out FOLDER] [--jobs 2]
    python benchmarks/chfl.py table FOLDER …
    python benchmarks/chfl.py figure FOLDER FILE.png

`run` is the study `chfl_covertype` with another number of clients, share of common columns, or way to choose them, in a
folder of its own (start it again to go on); `table` prints, for each such folder, the mean test accuracy over clients
beside the paper's, and paired differences with 95 % intervals: Student's over these runs, as if they shared no rows;
Nadeau and Bengio's, for they do; Student's over the ways of dealing columns, of which there are three.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fedlit.explain.judge import read_records
from fedlit.statistics import corrected_interval, seeds_interval

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
LABELS = {
    "common": "Common",
    "local": "Local",
    "chfl_0": "CHFL, μ = 0",
    "chfl": "CHFL, μ > 0",
    "concatenation": "Concatenation",
    "logistic_regression": "Logistic\nregression, alone",
    "extra_trees": "Extra trees,\nalone",
}
PAIRS = [("chfl_0", "common"), ("chfl_0", "local"), ("chfl", "chfl_0"), ("chfl", "local"), ("chfl", "concatenation")]


def run(arguments: argparse.Namespace) -> None:
    from fedlit.study.compare import compare
    from fedlit.study.parse import load_study

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
        say=print,
        out=arguments.out or Path("lightning_logs", "studies", name),
    )


def table(folder: Path) -> str:
    """Markdown: methods, then paired differences."""
    means, settings, ratio = accuracies(folder)
    known = paper_of(settings)
    words = ", ".join(f"{key}: {value}" for key, value in settings.items())
    lines = [f"{words}; {len(means)} runs", "", "| | accuracy | paper |", "| --- | --- | --- |"]
    extra = sorted(name for name in means if name.startswith("CHFL"))
    for method in (name for name in [*LABELS, *extra] if name in means):
        values = means[method].dropna()
        mean, deviation = known.get(method, (None, None))
        said = "" if mean is None else f"{mean}" + ("" if deviation is None else f" ± {deviation}")
        label = LABELS.get(method, method).replace("\n", " ")
        lines.append(f"| {label} | {values.mean():.3f} ± {values.std():.3f} ({len(values)} runs) | {said} |")
    header = ["difference", "over these runs", "corrected for shared rows", "over ways of dealing columns", "above 0"]
    lines += ["", f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    for one, other in PAIRS:
        if one in means and other in means:
            gain = (means[one] - means[other]).dropna()
            ways = gain.groupby(gain.index.to_numpy() % WAYS).mean()
            corrected = "" if len(gain) < 2 else _between(corrected_interval(gain.to_numpy(), ratio))
            cells = [interval(gain), corrected, interval(ways), f"{int((gain > 0).sum())} of {len(gain)}"]
            lines.append(f"| {one} − {other} | {' | '.join(cells)} |")
    return "\n".join(lines)


def accuracies(folder: Path) -> tuple[pd.DataFrame, dict[str, Any], float]:
    """Mean test accuracy over clients, a row a run and a column a method, and one for each μ, not chosen by anybody;
    what the federation is; and test rows / training rows of all clients.
    """
    results = read_records(folder / "results.csv")
    own = results[(results["split"] == "test") & (results["metric"] == "accuracy")]
    means = own.groupby(["seed", "method"])["value"].mean().unstack()
    for done in sorted(folder.glob("runs/chfl@*/seed_*/DONE")):
        record = json.loads(done.read_text(encoding="utf-8"))
        if record["seed"] not in means.index:  # of a part of the study that is still being run
            continue
        scores = read_records(done.parent / "scores.csv")
        scores = scores[(scores["split"] == "test") & (scores["metric"] == "accuracy")]
        (mu,) = record["settings"].values()
        means.loc[record["seed"], f"CHFL, μ = {mu:g} for all"] = scores["value"].mean()
    first = min(folder.glob("runs/local/seed_*/DONE"))
    record = json.loads(first.read_text(encoding="utf-8"))
    ratio = max(rows["test"]["rows"] for rows in record["rows"].values()) / sum(record["train_rows"].values())
    config = yaml.safe_load(next(first.parent.glob("version_*/config.yaml")).read_text(encoding="utf-8"))
    split = config["data"]["source"]["init_args"]
    settings = {"clients": split["source"]["init_args"]["clients"], "common": split["common"], "by": split["by"]}
    return means, settings, ratio


def paper_of(settings: dict[str, Any]) -> dict[str, Any]:
    """The paper's figures for a federation; none if it has none."""
    same = settings["common"] == 0.3 and settings["by"] == "random"
    return PAPER.get(settings["clients"], {}) if same else {}


def _between(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.3f} to {ends[1]:+.3f}"


def figure(folder: Path, file: Path) -> None:
    """Each run a dot, by the way in which columns were dealt; the paper's mean and standard deviation in grey."""
    from matplotlib.figure import Figure

    means, settings, _ = accuracies(folder)
    known_here = paper_of(settings)
    shown = [method for method in LABELS if method in means]
    drawn = Figure(figsize=(9, 3.8), layout="constrained")
    axes = drawn.subplots()
    for place, method in enumerate(shown):
        if method in known_here:
            mean, deviation = known_here[method]
            known = "the paper: mean ± sd" if place == 0 else None
            axes.errorbar(place - 0.3, mean, yerr=deviation, fmt="D", color="0.55", capsize=3, label=known)
        for way in range(WAYS):
            values = means.loc[means.index.to_numpy() % WAYS == way, method].dropna()
            places = place - 0.1 + 0.15 * way + np.linspace(-0.03, 0.03, len(values))
            label = f"columns dealt in way {way + 1}" if place == 0 else None
            axes.plot(places, values, "o", markersize=4, color=f"C{way}", alpha=0.8, label=label)
    axes.set_xticks(range(len(shown)), [LABELS[method] for method in shown])
    axes.set_ylabel("test accuracy, mean over clients")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    drawn.savefig(file, dpi=140)


def interval(values: pd.Series) -> str:
    """Mean and 95 % interval of Student's t."""
    return f"{values.mean():+.3f}" + (f" ({_between(seeds_interval(values))})" if len(values) > 1 else "")


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
    drawn = commands.add_parser("figure")
    drawn.add_argument("folder", type=Path)
    drawn.add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments)
    elif arguments.command == "figure":
        figure(arguments.folder, arguments.file)
    else:
        print("\n\n".join(table(folder) for folder in arguments.folders))


if __name__ == "__main__":
    main()
