"""What a forest grown together costs: messages, bytes and seconds per 100 trees of Covertype, and its AUROC.

``python benchmarks/forest.py [--trees 100] [--seed 8]``. Beside it scikit-learn's extra trees on the same rows in one
place. Seconds are of the CPU; a client's answers and the rule's sums run in one process here.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier

from fedlit.data.module import FederatedData
from fedlit.data.sources import Covertype
from fedlit.exchange.questions import bytes_of
from fedlit.trees import keys as drawn
from fedlit.trees.finish import finished
from fedlit.trees.grow import Way, asking, grow
from fedlit.trees.nodes import find_leaves
from fedlit.trees.party import Party

BATCH = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--seed", type=int, default=8)
    asked = parser.parse_args()
    data = FederatedData(Covertype(), batches=1, align="both", scaling="pooled", seed=asked.seed)
    data.setup()
    x = np.concatenate([own.train.x.numpy() for own in data.clients])
    y = np.concatenate([own.train.y.numpy() for own in data.clients])
    begun = time.process_time()
    model = ExtraTreesClassifier(asked.trees, max_features=None, random_state=asked.seed).fit(x, y)
    alone = time.process_time() - begun
    print(f"{'':24}{'seconds':>9}{'ratio':>7}{'messages':>10}{'MB a client':>12}  AUROC: {_names(data)}, mean")
    scores = _scores(data, {own.spec.name: model.predict_proba for own in data.clients})
    print(f"{'scikit-learn, pooled':24}{alone:9.2f}{1:7.2f}{'':22}  {scores}")
    for title, minimum, exact in (("minimum 1", 1, False), ("minimum 1, exact", 1, True), ("minimum 5", 5, False)):
        seconds, messages, sent, predict = _grown(data, asked.trees, asked.seed, minimum, exact)
        megabytes = sent / 1e6 / len(data.clients)
        print(
            f"{title:24}{seconds:9.2f}{seconds / alone:7.2f}{messages:10,}{megabytes:12.1f}  {_scores(data, predict)}",
            flush=True,
        )


def _names(data: FederatedData) -> str:
    return ", ".join(own.spec.name for own in data.clients)


def _grown(data: FederatedData, trees: int, seed: int, minimum: int, exact: bool) -> tuple[float, int, int, Any]:
    """Seconds, messages, bytes from and to all clients, and what each client predicts."""
    columns, classes = data.specs[0].num_features, len(data.specs[0].classes)
    way = Way(classes, columns, columns, exact=exact)
    forests: dict[str, list[Any]] = {own.spec.name: [] for own in data.clients}
    seconds, messages, sent = 0.0, 0, 0
    for first in range(0, trees, BATCH):
        count = min(BATCH, trees - first)
        parties = [Party(own.train.x.numpy(), own.train.y.numpy(), classes, (), minimum) for own in data.clients]
        keys = drawn.roots(1000 * seed + first, count)

        def ask(topic: str, told: Any, parties: Any = parties) -> Any:
            nonlocal messages, sent
            messages += 1
            answers = asking(parties)(topic, told)
            for own in [*told, *answers]:
                sent += bytes_of({name: torch.from_numpy(value) for name, value in (own or {}).items()})
            return answers

        begun = time.process_time()
        grown = grow(ask, [party.start(keys) for party in parties], keys, way)
        for own in data.clients:
            rows = own.train.x.numpy(), own.train.y.numpy()
            ended, values = finished(grown, keys, way, *rows, (), alone=minimum > 1)
            forests[own.spec.name].append((ended, values))
        seconds += time.process_time() - begun
    return seconds, messages, sent, {name: _predictor(own) for name, own in forests.items()}


def _predictor(forest: list[Any]) -> Any:
    def predict(x: np.ndarray) -> np.ndarray:
        parts = []
        for ended, values in forest:
            leaves = find_leaves(x, ended.feature, ended.threshold, ended.child, np.arange(ended.roots))
            parts.append(values[leaves].sum(1))
        return np.sum(parts, 0) / sum(ended.roots for ended, _ in forest)

    return predict


def _scores(data: FederatedData, predict: Any) -> str:
    found = []
    for own in data.clients:
        rows = own.sites[own.spec.name]["test"]
        parts = [predict[own.spec.name](part.numpy()) for part in rows.x.split(8192)]
        classes = [place for place, count in enumerate(own.spec.class_rows) if count]
        task, chosen = own.spec.task.at(classes), torch.from_numpy(np.concatenate(parts).astype(np.float32))
        narrowed = own.spec.task.narrow(classes, chosen, rows.y, torch.tensor(0.0))
        found.append(100 * float(task.evaluate(*narrowed[:2])["auroc"]))
    return ", ".join(f"{own:.2f}" for own in (*found, np.mean(found)))


if __name__ == "__main__":
    main()
