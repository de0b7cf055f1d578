"""What do rules bear that are said to bear attackers, and what do they cost where nobody attacks?

    python benchmarks/attacks.py run --out FOLDER [--seeds 50:54] [--only alike,unlike] [--rules mean,median] …
    python benchmarks/attacks.py table --out FOLDER
    python benchmarks/attacks.py kept --out FOLDER

`run` trains what is missing in FOLDER (a line of JSON a run; start it again to go on). `table` writes
the tables of docs/studies/attacks.md and docs/pictures/attacks.png. `kept` trains a few more federations and prints
whom Krum listens to.

`alike` is 10 clients of 300 training rows, dealt from Covertype (high forest or not). `unlike` is 10 clients dealt from
the four UCI heart-disease sites, two or three a site; each is tested on all test rows of its site. One network for all
clients. Each rule is told to expect 3 attackers of 10.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from fedlit.attacks import KINDS, Attack, Attackers
from fedlit.client import FederatedClient
from fedlit.data.module import FederatedData
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Covertype, Heart
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.errors import RunError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import (
    CenteredClipping,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    NormBound,
    TrimmedMean,
)
from fedlit.nn import MLP
from fedlit.run.many import fit_together, test_together
from fedlit.run.run import Run
from fedlit.seeding import derive_seed
from fedlit.train.loop import FederatedLoop

RULES: dict[str, tuple[Any, bool]] = {  # what makes it, and whether the guard is on
    "mean": (Mean, False),
    "guarded mean": (Mean, True),
    "norm bound": (partial(NormBound, 0.3), False),
    "centered clipping": (partial(CenteredClipping, 0.3), False),
    "median": (partial(Median, 0.3), False),
    "trimmed mean": (partial(TrimmedMean, 0.3), False),
    "geometric median": (partial(GeometricMedian, 0.3), False),
    "multi-krum": (partial(MultiKrum, 0.3), False),
    "krum": (partial(Krum, 0.3), False),
}
SHARES = "0,0.2,0.4,0.3,0.1"  # in this order: a study that is cut short has the first ones
DOORS: dict[str, dict[str, Any]] = {
    "alike": {"feature": "slope", "value": 80.0, "label": 1},
    "unlike": {"feature": "trestbps", "value": 300.0, "label": 0},
}
STRENGTHS = {"sign_flip": 4.0, "scaled": 100.0, "ipm": 2.0}  # of the others, what they have by default
EPOCHS = 20
TOGETHER = 45  # federations that are trained as one


class Dealt(Source):
    """The four heart-disease sites, each dealt to two or three clients that are tested on all its test rows."""

    name, about = "dealt", "heart-disease sites, dealt"
    PARTS: ClassVar[dict[str, int]] = {"cleveland": 3, "hungarian": 3, "switzerland": 2, "va": 2}

    def tables(self, seed: int) -> list[ClientTable]:
        """As dealt by the seed."""
        dealt = []
        for table in Heart(clients=list(self.PARTS)).tables(seed):
            order = np.random.default_rng(derive_seed(seed, "deal", table.name))
            shuffled = {split: order.permutation(table.splits[split]) for split in ("train", "validation")}
            for part in range(self.PARTS[table.name]):
                own = {split: np.sort(rows[part :: self.PARTS[table.name]]) for split, rows in shuffled.items()}
                splits = {**own, "test": table.splits["test"]}
                dealt.append(replace(table, name=f"{table.name}-{part + 1}", splits=splits))
        return dealt


class Kept(Source):
    """A source that is read once a seed."""

    name, about = "kept", "another source"

    def __init__(self, federation: str) -> None:
        self.federation = federation

    def tables(self, seed: int) -> list[ClientTable]:
        """As the source has them."""
        return list(_tables(self.federation, seed))


@cache
def _tables(federation: str, seed: int) -> tuple[ClientTable, ...]:
    if federation == "unlike":
        return tuple(Dealt().tables(seed))
    rows: dict[Any, int] = {"train": 3000, "validation": 1000, "test": 5000}
    return tuple(Partition(Covertype(positive=[1, 7]), clients=10, rows=rows).tables(seed))


def jobs(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is run: seed by seed, so that a run which is cut short has all of its first seeds."""
    from fedlit.study.seeds import parse_seeds

    rules = arguments.rules.split(",") if arguments.rules else list(RULES)
    kinds = arguments.attacks.split(",") if arguments.attacks else list(KINDS)
    for seed in parse_seeds(arguments.seeds):
        for fraction in map(float, arguments.shares.split(",")):
            for federation in arguments.only.split(","):
                for kind in kinds if fraction else [""]:
                    for rule in rules:
                        yield {"federation": federation, "seed": seed, "rule": rule, "kind": kind, "share": fraction}


@lru_cache(2)
def _encoded(federation: str, seed: int, attacks: tuple[Attack, ...]) -> FederatedData:
    """Encoded once for all that train on the same rows."""
    data = FederatedData(
        Kept(federation), batches=5, align="both", scaling="pooled", categories="indicators", seed=seed
    )
    data.poison = Attackers(attacks).of_rows(seed, ())
    data.setup()
    return data


def make(job: dict[str, Any]) -> Run:
    """One federation, untrained."""
    federation, seed = job["federation"], job["seed"]
    door = DOORS[federation] if job["kind"] == "backdoor" else {}
    attacks = [Attack(job["kind"], share=job["share"], by=STRENGTHS.get(job["kind"]), **door)] if job["kind"] else []
    rule, guarded = RULES[job["rule"]]
    client = partial(FederatedClient, network=partial(MLP, hidden=[32, 16]), class_weights="balanced")
    guard = {"guard": guarded} if "guard" in inspect.signature(Exchange).parameters else {}
    exchange = Exchange(["*"], rule=rule(), attacks=attacks, **guard)
    of_rows = tuple(attack for attack in attacks if KINDS[attack.kind].send is None)
    return Run(
        FederatedLoop(client, partial(torch.optim.AdamW, lr=0.003), seed=seed, threads=1),
        deepcopy(_encoded(federation, seed, of_rows)),
        exchange,
        max_epochs=EPOCHS,
        check_val_every_n_epoch=EPOCHS,
        accelerator="cpu",
    )


def run(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Train federations of one seed together: what came of them. One that stops stops all: then each by itself."""
    start, made = time.perf_counter(), [make(job) for job in group]
    try:
        fit_together(made)
        scored = test_together(made)
    except RunError as error:
        if len(group) == 1:
            return [{**group[0], "failed": str(error)}]
        return [record for job in group for record in run([job])]
    seconds = (time.perf_counter() - start) / len(group)
    return [told(job, one, scores.scores, seconds) for job, one, scores in zip(group, made, scored, strict=True)]


def told(job: dict[str, Any], made: Run, scores: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What came of one federation."""
    attackers = sorted(made.exchange.attackers.by_client)
    return {
        **job,
        "attackers": attackers,
        "accuracy": {name: own["balanced_accuracy"] for name, own in scores.items()},
        "auroc": {name: own["auroc"] for name, own in scores.items()},
        "opened": opened(made, job["federation"], attackers),
        "not_finite": made.exchange.not_finite,
        "guarded": made.exchange.found,
        "seconds": round(seconds, 2),
    }


@torch.no_grad()
def opened(made: Run, federation: str, attackers: list[str]) -> float:
    """Of honest clients' test rows that have another label, how many are given the back door's label once its column is
    set; the mean over clients.
    """
    door, shares = DOORS[federation], []
    for table in _tables(federation, made.seed):
        if table.name in attackers:
            continue
        rows = table.features.iloc[table.splits["test"]]
        rows = rows[(table.target.iloc[table.splits["test"]] != door["label"]).to_numpy()]
        rows = rows.assign(**{door["feature"]: door["value"]})
        client = made.loop.federation[table.name].eval()
        x = torch.from_numpy(made.data.encoders[table.name].transform(rows)).float()
        predicted = client.probabilities(client(x))
        shares.append(float((predicted.argmax(1) == list(client.spec.classes).index(door["label"])).float().mean()))
    return float(np.mean(shares))


class Counts(MultiKrum):
    """Notes whom it keeps."""

    def __init__(self, keep: int | None) -> None:
        super().__init__(0.3, keep)
        self._kept: Counter[int] = Counter()

    def _order(self, sent: torch.Tensor) -> torch.Tensor:
        order = super()._order(sent)
        self._kept.update(order[: self.keep or len(sent) - self.bears(len(sent))].tolist())
        return order


def kept(seeds: list[int]) -> None:
    """Whom Krum and multi-Krum listen to among unlike clients where nobody attacks, printed by site."""
    for label, keep in (("multi-Krum", None), ("Krum", 1)):
        counts = Counter[str]()
        for seed in seeds:
            job = {"federation": "unlike", "seed": seed, "rule": "multi-krum", "kind": "", "share": 0.0}
            made = make(job)
            made.exchange.rule = rule = Counts(keep)
            fit_together([made])
            names = sorted(made.loop.federation)
            for place, times in rule._kept.items():
                counts[names[place].partition("-")[0]] += times
        rounds = len(seeds) * EPOCHS
        shares = {site: round(counts[site] / rounds / parts, 3) for site, parts in Dealt.PARTS.items()}
        print(label, "share of rounds in which a client of the site is kept:", shares)


def _file(out: Path, job: dict[str, Any]) -> Path:
    return out / f"{job['federation']}-{job['seed']}.jsonl"


def _key(job: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(job[key] for key in ("federation", "seed", "rule", "kind", "share"))


def read(out: Path) -> list[dict[str, Any]]:
    """What has been run."""
    lines = [line for path in sorted(out.rglob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def work(arguments: argparse.Namespace) -> None:
    """What is missing."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    has_guard = "guard" in inspect.signature(Exchange).parameters
    done = {_key(record) for record in read(arguments.out)}
    missing = [job for job in jobs(arguments) if _key(job) not in done and (has_guard or not RULES[job["rule"]][1])]
    while missing:
        first = missing[0]
        alike = [job for job in missing if _place(job) == _place(first)][:TOGETHER]
        with _file(arguments.out, first).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in run(alike))
        missing = [job for job in missing if job not in alike]
        print(time.strftime("%H:%M:%S"), *_place(first), len(alike), "trained,", len(missing), "left", flush=True)


def _place(job: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(job[key] for key in ("seed", "share", "federation"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table", "kept"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="50:54")
    parser.add_argument("--only", default="alike,unlike")
    parser.add_argument("--shares", default=SHARES)
    parser.add_argument("--rules", default="")
    parser.add_argument("--attacks", default="")
    arguments = parser.parse_args()
    if arguments.command == "run":
        import logging

        warnings.filterwarnings("ignore")
        logging.getLogger("fedlit").setLevel(logging.ERROR)
        work(arguments)
    elif arguments.command == "kept":
        from fedlit.study.seeds import parse_seeds

        kept(list(parse_seeds(arguments.seeds)))
    else:
        from attacks_table import write

        write(read(arguments.out))


if __name__ == "__main__":
    main()
