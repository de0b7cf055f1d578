"""Clients of different tasks in one federation, and regression from the configuration to the predictions."""

from __future__ import annotations

import json
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import Made, SmallNet, different, make_run, weights
from torch import Tensor
from torch.nn import functional

from fedlit import APFL, CHFL, FedProx, IFedAvg, load
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.data.sources.base import Source, random_split
from fedlit.data.table import ClientTable
from fedlit.engine.alike import stack_key
from fedlit.exchange.exchange import Exchange
from fedlit.nn import MLP
from fedlit.run.predictions import scored_predictions
from fedlit.run.run import Run
from fedlit.spec import ClientSpec, Site
from fedlit.study.bootstrap import bootstrap_scores
from fedlit.study.explained import read_tested
from fedlit.tasks import Classification, Regression, Score
from fedlit.tasks.metrics import SiteMetrics
from fedlit.train.callbacks import Checkpoints, Progress
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop


class Mixed(Source):
    """``ash`` is classified; ``elm`` and ``fir`` have numbers, of other columns."""

    name = "mixed"
    about = "made data"

    def __init__(self, clients: tuple[str, ...] = ("ash", "elm"), loss: str = "squared") -> None:
        self.clients, self.loss = clients, loss

    def tables(self, seed: int) -> list[ClientTable]:
        tables = Made(tuple(name for name in self.clients if name == "ash")).tables(seed)
        for name in self.clients:
            if name != "ash":
                x = np.random.default_rng(sum(map(ord, name))).normal(size=(100, 4))
                frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(4)])
                target = pd.Series(500 + 40 * (x[:, 0] - x[:, 1]), name="price")
                task = {"name": "regression", "loss": self.loss}
                tables.append(ClientTable(name, frame, target, random_split(100, seed, 0.3, 0.2), task=task))
        return tables


def mixed_run(
    folder: Path,
    client: Any = FederatedClient,
    clients: tuple[str, ...] = ("ash", "elm"),
    network: Any = SmallNet,
    data: dict[str, Any] | None = None,
    epochs: int = 3,
    engine: Any = "plain",
    loss: str = "squared",
    federated: tuple[str, ...] = ("core",),
    **options: Any,
) -> Run:
    factory = client if network is None else partial(client, network=network)
    optimizer = partial(torch.optim.SGD, lr=0.05)
    loop = FederatedLoop(factory, optimizer=optimizer, seed=8, threads=1, engine=engine)
    rows = FederatedData(Mixed(clients, loss), seed=8, batches=4, **(data or {}))
    options.setdefault("checkpoints", Checkpoints(best=0, seconds=0))
    exchange = Exchange(federated=list(federated))
    board = BoardSettings(corrections=0, confusion_matrices=0)
    return Run(loop, rows, exchange, root=folder, max_epochs=epochs, board=board, **options)


def test_a_classifier_and_a_regressor_share_a_core(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = mixed_run(tmp_path, checkpoints=Checkpoints(seconds=0), epochs=4)
    with caplog.at_level(logging.WARNING):
        run.fit(quiet=True)
    assert "different tasks: the best checkpoint is that of least val/loss" in caplog.text
    assert run.trainer is not None and "val loss" in Progress().get_metrics(run.trainer, run.loop)
    ash, elm = run.loop.federation.values()
    assert torch.equal(ash.state_dict()["core.0.weight"], elm.state_dict()["core.0.weight"])
    results = run.test(quiet=True)
    assert set(results.scores["elm"]) == {"loss", "rmse", "mae", "r2"} and "auroc" in results.scores["ash"]
    assert results.summary["worst_client"]["rmse"] == "elm" and results.summary["counted"]["loss"] == 2
    assert "rmse" in str(results) and "auroc" in str(results)
    frame = results.to_frame()
    assert math.isnan(frame.loc["ash", "rmse"]) and math.isnan(frame.loc["elm", "auroc"])
    assert run.describe().clients["elm"]["target"] == "price" and "price (number)" in str(run.describe())
    predictions = run.predict(quiet=True)
    assert list(predictions["elm"]) == ["row", "predicted"] and "probability_0" in predictions["ash"]
    assert 300 < predictions["elm"]["predicted"].mean() < 700  # in the units of the table
    for name, file in predictions.files.items():
        assert file.read_text() == predictions[name].to_csv(index=False) and f"{name}: {file}" in str(predictions)


def test_a_mixed_federation_resumes_with_the_same_bits(tmp_path: Path) -> None:
    whole = mixed_run(tmp_path / "whole", epochs=4)
    whole.fit(quiet=True)
    begun = mixed_run(tmp_path / "begun", epochs=2)
    begun.fit(quiet=True)
    again = mixed_run(tmp_path / "begun", epochs=4)
    again.fit("last", quiet=True)
    assert different(weights(whole), weights(again)) == []
    assert whole.loop.results["validation"].scores == again.loop.results["validation"].scores


@pytest.mark.parametrize(
    ("client", "options"),
    [
        (FedProx, {}),
        (partial(IFedAvg, outputs="both"), {}),
        (APFL, {}),
        (partial(CHFL, hidden=[8]), {"network": None, "data": {"common": "all"}}),
        (partial(CHFL, hidden=[8], unique="concatenation"), {"network": None, "data": {"common": {"shared": ["x0"]}}}),
    ],
    ids=["fedprox", "ifedavg", "apfl", "chfl", "chfl, concatenation"],
)
def test_methods_take_any_task(client: Any, options: dict[str, Any], tmp_path: Path) -> None:
    federated = ("common", "!common.*.head") if options else ("core",)
    run = mixed_run(tmp_path, client, federated=federated, **options)
    run.fit(quiet=True)
    scores = run.loop.results["validation"].scores
    assert all(math.isfinite(scores["elm"][name]) for name in ("rmse", "mae", "r2", "loss"))
    if isinstance(run.loop.federation["elm"], IFedAvg):
        assert list(run.loop.federation["elm"].corrections["output shift"]) == ["price"]


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_alike_regressors_are_stacked(loss: str, tmp_path: Path) -> None:
    network = partial(MLP, hidden=[8, 8])
    runs = []
    for engine in ("plain", "stacked"):
        run = mixed_run(
            tmp_path / engine, clients=("elm", "fir", "oak", "yew"), network=network, engine=engine, loss=loss
        )
        run.fit(quiet=True)
        runs.append(weights(run))
    assert all(torch.allclose(runs[0][name], runs[1][name], atol=1e-5) for name in runs[0])


def test_only_clients_of_one_loss_share_a_stack() -> None:
    """A binary classifier and a regressor have networks of one shape: they must not be stepped as one."""
    keys = []
    for task, y in (
        (Classification((0, 1)), torch.zeros(4, dtype=torch.long)),
        (Regression(), torch.zeros(4)),
        (Regression("huber"), torch.zeros(4)),
        (Regression(mean=5.0), torch.zeros(4)),
    ):
        client = FederatedClient(ClientSpec("a", ("x", "y"), task.classes, {}, (), task=task), partial(MLP, hidden=[3]))
        client._optimizers = [torch.optim.SGD(client.parameters(), lr=0.1)]
        keys.append(stack_key(client, Batch(torch.zeros(4, 2), y)))
    assert len(set(keys)) == 3 and keys[1] == keys[3] and None not in keys


class Deviance(FederatedClient):
    """Brings a score of its own, for which less is better."""

    listed = True

    @property
    def scores(self) -> tuple[Score, ...]:
        own = (Score("brier", "Brier", higher_is_better=False),) if self.listed else ()
        return (*super().scores, *own)

    def configure_metrics(self, site: Site) -> SiteMetrics:
        return BrierMetrics(site, self.spec.task)


class Unlisted(Deviance):
    listed = False


class BrierMetrics(SiteMetrics):
    def compute(self) -> dict[str, Tensor]:
        own, y = torch.cat(self.predictions), torch.cat(self.target)
        return {**super().compute(), "brier": (own - functional.one_hot(y, own.shape[1])).square().mean()}


def test_the_worst_of_a_score_of_ones_own_is_the_largest_where_less_is_better(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path, client=Deviance, epochs=1)
    results = run.fit(quiet=True)
    values = {name: own["brier"] for name, own in results.scores.items()}
    assert results.summary["worst"]["brier"] == max(values.values())
    assert "brier" not in caplog.text
    with caplog.at_level(logging.WARNING):
        results = make_run(tmp_path, client=Unlisted, epochs=2).fit(quiet=True)
    assert math.isfinite(results.summary["mean"]["brier"]) and results.summary["worst_client"]["brier"] is None
    assert caplog.text.count("score 'brier'") == 1 and "val/worst/brier" not in results.scalars()


DIABETES = """
seed: 3
data:
  source:
    class_path: fedlit.Partition
    init_args:
      source: {class_path: fedlit.Bundled, init_args: {clients: [diabetes]}}
      deal: {class_path: fedlit.ByColumn, init_args: {column: sex, drop: true}}
  batches: 4
model:
  client:
    class_path: fedlit.FederatedClient
    init_args: {network: {class_path: fedlit.MLP, init_args: {hidden: [32, 32]}}}
  threads: 1
exchange: {federated: [core]}
trainer: {max_epochs: 30}
"""


def test_diabetes_by_sex_from_the_configuration_to_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "diabetes.yaml").write_text(DIABETES)
    run = load("diabetes.yaml")
    run.fit(quiet=True)
    results = run.test(quiet=True)
    assert sorted(results.scores) == ["1", "2"]
    assert results.summary["mean"]["rmse"] < 70 and results.summary["mean"]["r2"] > 0.2  # 77 and 0 for the mean
    assert results.summary["worst_client"]["rmse"] == max(results.scores, key=lambda name: results.scores[name]["rmse"])
    assert run.folder is not None and list((run.folder / "checkpoints").glob("best-*.ckpt"))
    stored = json.loads((run.folder / "test.json").read_text())
    frames = scored_predictions(run.loop, run.data, "test")
    parts = [frame.assign(client=name) for name, frame in frames.items()]
    drawn = bootstrap_scores(read_tested(pd.concat(parts, ignore_index=True).assign(split="test")), 200)
    for name, frame in frames.items():
        rmse = math.sqrt(((frame["target"] - frame["predicted"]) ** 2).mean())
        assert rmse == pytest.approx(stored["clients"][name]["rmse"], rel=1e-5)
        assert frame["target"].tolist() == run.data.source.table(name, 3).target.loc[frame["row"]].tolist()
        assert drawn[name, "rmse"].mean() == pytest.approx(rmse, rel=0.05)
    assert {metric for _, metric in drawn.columns} == {"rmse", "mae", "r2"}
