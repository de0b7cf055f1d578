"""Does iFedAvg find faults that are planted in a client's table, and what do they cost the client?

    python benchmarks/shifts.py run --out FOLDER [--jobs 2] [--only cut,own,heart,areas] [--seeds 0:7] [--faults flip] …
    python benchmarks/shifts.py table --out FOLDER

`run` trains what is missing in FOLDER (one JSON a run; start it again to go on); `table` prints precision and recall of
the marks and the harmed client's F1, and writes them to benchmarks/results/shifts_*.csv. One fault in one client a run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

RESULTS = Path(__file__).parent / "results"
METHODS = ("local", "fedavg", "apfl", "ifedavg")
FAULTS = ("scale", "shift", "swap", "clip", "missing", "flip")
MLP = {
    "class_path": "fedlit.MLP",
    "init_args": {"hidden": [128, 64], "activation": "tanh", "dropout": 0.2, "input_dropout": 0.2},
}
FAST = ["--model.optimizer.lr=0.05", "--model.client.lr_factor=20"]
FEDERATIONS = {
    "cut": ("shifts.yaml", []),
    "own": ("shifts.yaml", ["--data.scaling=client"]),  # as in the paper
    "areas": ("covertype_ifedavg.yaml", [*FAST, "--trainer.max_epochs=50", "--model.scheduler.step_size=1"]),
    "heart": ("heart_sites_ifedavg.yaml", [*FAST, "--trainer.max_epochs=100", "--model.scheduler.step_size=2"]),
}


def jobs(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is run: seed by seed, so that a run which is cut short has all of its first seeds."""
    from fedlit.study.seeds import parse_seeds

    faults: list[str | None] = [None if fault == "none" else fault for fault in arguments.faults.split(",")]
    for seed in parse_seeds(arguments.seeds):
        for name in arguments.only.split(","):
            kinds = [kind for kind in faults if kind != "flip" or name != "areas"]  # seven types cannot be flipped
            column = None if name == "heart" else "elevation"
            for method in arguments.methods.split(","):
                job = {"federation": name, "seed": seed, "method": method}
                yield from ({**job, "kind": kind, "feature": column if kind else None} for kind in kinds)
            if column is not None and arguments.drawn:  # any other column too, drawn by the seed
                job = {"federation": name, "seed": seed, "method": "ifedavg", "feature": "drawn"}
                yield from ({**job, "kind": kind} for kind in kinds if kind not in (None, "flip"))


def path_of(out: Path, job: dict[str, Any]) -> Path:
    words = (job["federation"], job["method"], job["kind"] or "unharmed", job["feature"] or "", job["seed"])
    return out / ("-".join(str(word) for word in words) + ".json")


def mutations(job: dict[str, Any]) -> list[dict[str, Any]]:
    if job["kind"] is None:
        return []
    named = job["feature"] if job["feature"] != "drawn" and job["kind"] != "flip" else None
    # every key: what a list in a configuration leaves open is taken from the list that it replaces
    return [{"kind": job["kind"], "feature": named, "client": None, "other": None, "by": None}]


def run(job: dict[str, Any], out: Path) -> None:
    """Train one federation and write what came of it."""
    import torch

    import fedlit
    from fedlit.explain.judge import corrections_frame

    torch.set_num_threads(1)
    config, arguments = FEDERATIONS[job["federation"]]
    client: dict[str, Any] = {"network": MLP, "class_weights": "balanced"}
    classes = {"local": "fedlit.FederatedClient", "fedavg": "fedlit.FederatedClient", "apfl": "fedlit.APFL"}
    if job["method"] != "ifedavg":
        arguments = [argument for argument in arguments if "lr_factor" not in argument]
        arguments = [
            f"--model.client={json.dumps({'class_path': classes[job['method']], 'init_args': client})}",
            *arguments,
        ]
    arguments += ["--exchange.federated=[]"] if job["method"] == "local" else []
    arguments += ["--model.optimizer.momentum=0"] if job["method"] == "apfl" else []
    loaded = fedlit.load(
        config,
        *arguments,
        f"--seed={job['seed']}",
        f"--data.mutations={json.dumps(mutations(job))}",
        "--model.threads=1",
        "--trainer.logger=false",
    )
    loaded.trainer_options["check_val_every_n_epoch"] = loaded.trainer_options["max_epochs"]
    start = time.perf_counter()
    fedlit.fit_together([loaded])
    seconds = time.perf_counter() - start
    scores = fedlit.test_together([loaded])[0]
    planted = [
        {"client": own.client, "features": list(own.features), "kind": own.kind, "by": own.by}
        for own in loaded.data.planted
    ]
    record = {
        **job,
        "planted": planted,
        "seconds": round(seconds, 1),
        "scores": {
            client: {m: own[m] for m in ("weighted_f1", "f1", "balanced_accuracy", "auroc")}
            for client, own in scores.scores.items()
        },
        "corrections": corrections_frame(
            {name: client.corrections for name, client in loaded.loop.federation.items()}
        ).values.tolist(),
    }
    target = path_of(out, job)
    partial = target.with_suffix(".part")
    partial.write_text(json.dumps(record), encoding="utf-8")
    partial.replace(target)


def work(arguments: argparse.Namespace) -> None:
    """One process's part of the jobs."""
    for number, job in enumerate(jobs(arguments)):
        path = path_of(arguments.out, job)
        if number % arguments.jobs == arguments.share and not path.is_file():
            run(job, arguments.out)
            print(path.stem, flush=True)


def table(out: Path) -> None:
    """Precision and recall of each rule for marks, and F1 of the harmed client."""
    import pandas as pd

    from fedlit.explain.judge import COLUMNS, LEVEL, judge

    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    unharmed = {(r["federation"], r["method"], r["seed"]): r for r in records if r["kind"] is None}
    marks, scores = [], []
    for record in records:
        column = "drawn" if record["feature"] == "drawn" else (record["feature"] or "drawn")
        kind = record["kind"] or "none"
        key = {"federation": record["federation"], "fault": kind, "column": "" if kind in ("none", "flip") else column}
        for planted in record["planted"]:
            harmed = planted["client"]
            before = unharmed.get((record["federation"], record["method"], record["seed"]))
            if before is not None:
                now = {name: own["weighted_f1"] for name, own in record["scores"].items()}
                was = {name: own["weighted_f1"] for name, own in before["scores"].items()}
                others = [name for name in now if name != harmed]
                scores.append(
                    {
                        **key,
                        "method": record["method"],
                        "seed": record["seed"],
                        "harmed": now[harmed],
                        "unharmed": was[harmed],
                        "others": sum(now[o] for o in others) / len(others),
                        "others_unharmed": sum(was[o] for o in others) / len(others),
                    }
                )
        if not record["corrections"]:
            continue
        judged = judge(pd.DataFrame(record["corrections"], columns=list(COLUMNS)))
        cells = judged.cells
        if kind == "flip":
            turned = set(cells.loc[(cells["part"] == "output scale") & (cells["value"] < 0), "client"])
            truth = {planted["client"] for planted in record["planted"]}
            marks.append(
                {
                    **key,
                    "rule": "output turned round",
                    "seed": record["seed"],
                    "hits": len(turned & truth),
                    "planted": 1,
                    "false": len(turned - truth),
                }
            )
        inputs = cells[cells["part"].str.startswith("input")]
        both = inputs["marked"] & inputs["feature_marked"].fillna(False).astype(bool)
        truth = {(planted["client"], feature) for planted in record["planted"] for feature in planted["features"]}
        for rule, chosen in {
            "cell marked": inputs["marked"],
            "cell and feature marked": both,
            f"p < {LEVEL}": inputs["p"] < LEVEL,
            "finding": inputs["finding"],
        }.items():
            found = set(inputs.loc[chosen, ["client", "feature"]].itertuples(index=False, name=None))
            clients = {client for client, _ in found}
            harmed_clients = {client for client, _ in truth}
            marks.append(
                {
                    **key,
                    "rule": rule,
                    "seed": record["seed"],
                    "hits": len(found & truth),
                    "planted": len(truth),
                    "false": len(found - truth),
                    "false_elsewhere": sum(client not in harmed_clients for client, _ in found),
                    "client_hits": len(clients & harmed_clients),
                }
            )
    frame = pd.DataFrame(marks)
    groups = frame.groupby(["federation", "fault", "column", "rule"], sort=False)
    summary = groups.agg(
        runs=("seed", "size"),
        hits=("hits", "sum"),
        planted=("planted", "sum"),
        false=("false", "sum"),
        false_elsewhere=("false_elsewhere", "sum"),
    ).reset_index()
    summary["recall"] = summary["hits"] / summary["planted"].clip(lower=1)
    summary["precision"] = summary["hits"] / (summary["hits"] + summary["false"]).clip(lower=1)
    RESULTS.mkdir(exist_ok=True)
    summary.round(3).to_csv(RESULTS / "shifts_marks.csv", index=False)
    print(summary.round(3).to_string(index=False))
    f1 = (
        pd.DataFrame(scores)
        .groupby(["federation", "fault", "column", "method"], sort=False)[
            ["harmed", "unharmed", "others", "others_unharmed"]
        ]
        .agg(["mean"])
    )
    f1.columns = [name for name, _ in f1.columns]
    f1["runs"] = pd.DataFrame(scores).groupby(["federation", "fault", "column", "method"], sort=False).size()
    f1.round(4).reset_index().to_csv(RESULTS / "shifts_f1.csv", index=False)
    print(f1.round(3).to_string())
    print(f"{len(records)} runs, {sum(record['seconds'] for record in records) / 60:.0f} minutes of training")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="cut,own,heart,areas")
    parser.add_argument("--seeds", default="0:7")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--faults", default="none," + ",".join(FAULTS))
    parser.add_argument("--drawn", type=int, default=1, help="0: not in drawn columns")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "table":
        table(arguments.out)
    elif arguments.share is not None:
        work(arguments)
    else:
        children = [
            subprocess.Popen([sys.executable, *sys.argv, f"--share={share}"]) for share in range(arguments.jobs)
        ]
        sys.exit(max(child.wait() for child in children))


if __name__ == "__main__":
    main()
