"""Which losses share a stack, scores of one's own, and regression from the configuration to the predictions."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedlit import load
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.alike import stack_key
from fedlit.nn import MLP
from fedlit.run.predictions import scored_predictions
from fedlit.spec import ClientSpec, Site
from fedlit.study.bootstrap import bootstrap_scores
from fedlit.study.explained import read_tested
from fedlit.tasks import Classification, Regression, Score
from fedlit.tasks.metrics import SiteMetrics


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


class BrierMetrics(SiteMetrics):
    def compute(self) -> dict[str, Tensor]:
        own, y = torch.cat(self.predictions), torch.cat(self.target)
        return {**super().compute(), "brier": (own - functional.one_hot(y, own.shape[1])).square().mean()}


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
        assert frame["target"].tolist() == run.data.source.some([name], 3)[0].target.loc[frame["row"]].tolist()
        assert drawn[name, "rmse"].mean() == pytest.approx(rmse, rel=0.05)
    assert {metric for _, metric in drawn.columns} == {"rmse", "mae", "r2"}
