"""Clients of all four tasks around one core: training, resuming, engines, predictions, a study."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from federations import different, make_run, small, weights
from four import Four

from fedlit import CHFL, MLP, IFedAvg
from fedlit.client.client import FederatedClient
from fedlit.data.sources.base import Source
from fedlit.run.predictions import scored_rows
from fedlit.run.run import Run
from fedlit.study.runs import bootstrap_scores, read_tested
from fedlit.tasks.predictions import PredictionTable

PLAIN = small(FederatedClient)


def run_of_four(
    folder: Path,
    client: Any = PLAIN,
    source: Source | None = None,
    engine: str = "plain",
    **more: Any,
) -> Run:
    loop = {"client": client, "optimizer": partial(torch.optim.Adam, lr=0.01), "engine": engine}
    more = {"exchange": {"federated": ["core"]}, **more}
    return make_run(folder, loop=loop, source=source or Four(), **more)


def test_clients_of_four_tasks_share_a_core_resume_and_predict(tmp_path: Path) -> None:
    whole = run_of_four(tmp_path / "whole", epochs=10)
    told = str(whole.describe())
    assert (
        "visits (count)" in told and "died (1 or not), back (yes or not), rare (1 or not)" in told
    )
    assert "nothing is learnt of: rare" in told and "not known of some training rows" in told
    whole.fit(quiet=True)
    run_of_four(tmp_path / "begun", epochs=5).fit(quiet=True)
    again = run_of_four(tmp_path / "begun", epochs=10)
    again.fit("last", quiet=True)
    assert different(weights(whole), weights(again)) == []
    validated = whole.loop.results["validation"].scores, again.loop.results["validation"].scores
    pd.testing.assert_frame_equal(
        pd.DataFrame(validated[0]), pd.DataFrame(validated[1]), check_exact=True
    )
    cores = [client.state_dict()["core.0.weight"] for client in whole.loop.federation.values()]
    assert all(torch.equal(core, cores[0]) for core in cores)

    results = whole.test(quiet=True)
    assert results.scores["labels"]["labels"] == 2 and results.scores["labels"]["auroc"] > 0.6
    assert results.scores["count"]["d2"] > 0.1 and "deviance" in str(results)
    predictions = whole.predict(quiet=True)
    assert (
        list(predictions["count"]) == ["row", "predicted"]
        and (predictions["count"]["predicted"] > 0).all()
    )
    names = ("died", "back", "rare")
    expected = [f"{what}_{label}" for what in ("probability", "predicted") for label in names]
    assert list(predictions["labels"]) == ["row", *expected]
    assert set(predictions["labels"]["predicted_back"]) <= {"yes", "no"}
    for name, file in predictions.files.items():
        assert file.read_text() == predictions[name].to_csv(index=False)
    assert all(
        file.stat().st_size for file in whole.predict(quiet=True, format="parquet").files.values()
    )

    table = PredictionTable()
    for name, rows in scored_rows(whole.loop, whole.data, "test").items():
        table.add(name, rows, "test")
    drawn = bootstrap_scores(read_tested(table), 100)
    for client, score in (
        ("count", "deviance"),
        ("labels", "auroc"),
        ("number", "rmse"),
        ("class", "auroc"),
    ):
        assert drawn[client, score].mean() == pytest.approx(results.scores[client][score], rel=0.15)


COMMON = {
    "exchange": {"federated": ["common", "!common.*.head"]},
    "data": {"common": {"shared": ["x0"]}},
}
METHODS: list[tuple[Any, dict[str, Any]]] = [
    (small(IFedAvg, outputs="both"), {}),
    (partial(CHFL, hidden=[8], unique="concatenation"), COMMON),
]


@pytest.mark.parametrize(("client", "options"), METHODS, ids=["ifedavg", "chfl"])
def test_methods_take_any_task(client: Any, options: dict[str, Any], tmp_path: Path) -> None:
    clients = ("count", "labels", "number")
    run = run_of_four(tmp_path, client, Four(clients), epochs=2, **options)
    run.fit(quiet=True)
    scores = run.loop.results["validation"].scores
    assert all(math.isfinite(value) for name in clients for value in scores[name].values())
    if isinstance(run.loop.federation["labels"], IFedAvg):
        assert list(run.loop.federation["number"].corrections["output shift"]) == ["price"]
        assert list(run.loop.federation["labels"].corrections["output shift"]) == [
            "died",
            "back",
            "rare",
        ]


class Watched(FederatedClient):
    """Knows whether it was stepped with others as one."""

    stackable = True

    def log(self, *arguments: Any, **options: Any) -> None:
        self.was_stacked = self.stacked
        super().log(*arguments, **options)


def test_alike_clients_are_stacked_and_agree_with_plain(tmp_path: Path) -> None:
    # vmap stacks six clients or more
    every = tuple(
        f"{kind}{number}" for kind in ("count", "labels", "number") for number in range(1, 7)
    )
    source = Four(every, pooled=True)
    runs = list[Run]()
    make = partial(Watched, network=partial(MLP, hidden=[8, 8]), class_weights="balanced")
    for engine in ("plain", "auto"):
        run = run_of_four(tmp_path / engine, make, source, engine)
        run.fit(quiet=True)
        runs.append(run)
        assert all(
            client.was_stacked == (engine == "auto") for client in run.loop.federation.values()
        )
    plain, stacked = map(weights, runs)
    assert all(torch.allclose(plain[name], stacked[name], atol=1e-5) for name in plain)
    first, second = (pd.DataFrame(run.loop.results["validation"].scores) for run in runs)
    pd.testing.assert_frame_equal(first, second, rtol=1e-4)
