"""Who belongs together: tables and a picture of the study `clusters`.

    fedlit compare clusters --jobs 2
    python benchmarks/clusters.py table FOLDER
    python benchmarks/clusters.py figure FOLDER FILE.png

`table` prints, for each scenario of the study's folder, accuracy, clusters and cost by method; `figure` draws accuracy
over the earth mover's distance.
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.explain.judge import read_records
from fedlit.study.parse import load_study
from fedlit.study.study import Study

LABELS = {
    "digits": "Digits, labels mean the same everywhere",
    "covertype": "Covertype, half of the clients mean other labels",
}
COLOURS = {
    "local": "#111111", "fedavg": "#D55E00", "fedprox": "#E69F00", "cfl": "#009E73", "ifca": "#56B4E9",
    "agglomerative": "#CC79A7", "fedgmcc": "#0072B2", "fedgmcc_raw": "#8B5CF6", "fedgmcc_unit": "#882255",
    "fedgmcc_barriers": "#999933", "fedgmcc_barriers_raw": "#117733", "fedgmcc_barriers_unit": "#DDCC77",
    "centralized": "#777777",
}  # fmt: skip


def scenarios(folder: Path) -> dict[str, Study]:
    study = load_study("clusters")
    return {name: study.of(name) for name in study.scenarios if (folder / name / "runs").is_dir()}


def done(folder: Path) -> pd.DataFrame:
    """One row per run: method, seed, accuracy (mean over clients, worst client), cost, clusters."""
    rows = []
    for path in sorted(folder.glob("runs/*/seed_*/DONE")):
        record = json.loads(path.read_text(encoding="utf-8"))
        scores = read_records(path.parent / "scores.csv")
        own = scores[(scores["split"] == "test") & (scores["metric"] == "accuracy")].set_index("client")["value"]
        row: dict[str, Any] = {
            "method": record["method"],
            "seed": record["seed"],
            "mean": own.mean(),
            "worst": own.min(),
        }
        exchange = record["exchange"]
        row["seconds"] = exchange["seconds"] / exchange["rounds"] if exchange["rounds"] else np.nan
        row["bytes"] = exchange["bytes"] / exchange["rounds"] if exchange["rounds"] else np.nan
        if (path.parent / "clusters.csv").is_file():
            row |= grouping(path.parent / "clusters.csv")
        rows.append(row)
    return pd.DataFrame(rows)


def grouping(path: Path) -> dict[str, float]:
    from fedlit.explain.clusters import adjusted_rand, clusters_of, concepts_of, judged, read_clusters

    found = read_clusters(path)
    concepts, partition = concepts_of(found), judged(found)
    index = adjusted_rand(partition, concepts)
    earlier = adjusted_rand(judged(found[found["round"] < found["round"].max()]), concepts)
    last = found[found["round"] > found["round"].max() - 10]
    each = [adjusted_rand(clusters_of(own), concepts) for _, own in last.groupby("round")]
    return {"clusters": len(partition), "index": index, "earlier": earlier, "right": float(np.mean(np.equal(each, 1)))}


@lru_cache
def distance(config: str, emd: str, seed: int) -> float:
    """The earth mover's distance of a partition, before any concept shift."""
    import fedlit
    from fedlit.data.shaping.describe import describe

    run = fedlit.load(config, f"--data.source.init_args.source.init_args.deal.init_args.emd={emd}", f"--seed={seed}")
    partition: Any = run.data.source.source  # type: ignore[attr-defined]
    found = describe(partition.tables(seed), seed, partition.deal.measure).distances
    assert found is not None
    return float(found.mean)


def table(folder: Path) -> str:
    lines = []
    for name, study in scenarios(folder).items():
        runs = done(folder / name)
        seeds = sorted(runs["seed"].unique())
        emds = [distance(study.methods["fedgmcc"].config, name.partition("_")[2], seed) for seed in seeds]
        lines += [
            f"**{name}**, EMD {np.mean(emds):.1f}, {len(seeds)} seeds",
            "",
            "| | accuracy, mean over clients | worst client | clusters | index | runs with index 1 "
            "| judged a round earlier | of the last ten rounds | s a round | MB a round |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for method, own in study.methods.items():
            mine = runs[runs["method"] == method]
            cells = [
                f"{100 * mine['mean'].mean():.1f} ± {100 * mine['mean'].std():.1f}",
                f"{100 * mine['worst'].mean():.1f}",
            ]
            if "index" in mine and mine["index"].notna().any():
                cells += [f"{mine['clusters'].mean():.1f}", f"{mine['index'].mean():.2f}"]
                cells += [f"{(mine[when] == 1).sum()} of {len(mine)}" for when in ("index", "earlier")]
                cells.append(f"{100 * mine['right'].mean():.0f} %")
            else:
                cells += ["–"] * 5
            cells += (
                [f"{mine['seconds'].mean():.3g}", f"{mine['bytes'].mean() / 1e6:.2f}"]
                if method != "local"
                else ["–", "–"]
            )
            lines.append(f"| {own.label} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def figure(folder: Path, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = scenarios(folder)
    data = [key for key in LABELS if any(name.startswith(key) for name in found)]
    pictures, axes = plt.subplots(1, len(data), figsize=(5.2 * len(data), 3.9), layout="constrained", squeeze=False)
    for axis, key in zip(axes[0], data, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for name, study in found.items():
            if not name.startswith(key):
                continue
            runs = done(folder / name)
            config, emd = study.methods["fedgmcc"].config, name.partition("_")[2]
            x = float(np.mean([distance(config, emd, seed) for seed in sorted(runs["seed"].unique())]))
            for method, own in runs.groupby("method"):
                lines.setdefault(str(method), []).append((x, 100 * own["mean"].mean()))
        for method in [own for own in found[next(iter(found))].methods if own in lines]:
            x, y = map(np.array, zip(*sorted(lines[method]), strict=True))
            label = load_study("clusters").methods[method].label
            styles = {"local": ":", "centralized": ":", "fedgmcc_raw": "--", "fedgmcc_unit": "-."}
            style = styles.get(method, "-")
            axis.plot(x, y, style, color=COLOURS[method], marker="o", ms=4, lw=1.6, label=label)
        axis.set_title(LABELS[key], fontsize=10)
        axis.set_xlabel("earth mover's distance of clients to the whole")
        axis.grid(color="#eeeeee")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test accuracy, %, mean over clients")
    handles, labels = axes[0][0].get_legend_handles_labels()
    pictures.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    pictures.savefig(file, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["table", "figure"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("file", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table(arguments.folder))
    else:
        figure(arguments.folder, arguments.file)


if __name__ == "__main__":
    main()
