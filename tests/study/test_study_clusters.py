"""Who belongs together, in a study: from a rule's clusters to tables, files and pictures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedlit.explain.clusters import judged
from fedlit.files import read_named
from fedlit.study.compare import Comparison, compare
from fedlit.study.report import times
from fedlit.study.tables import cluster_table

CONFIG = """\
seed: 1
data:
  source:
    class_path: fedlit.ConceptShift
    init_args:
      source:
        class_path: fedlit.Partition
        init_args: {source: {class_path: fedlit.Bundled, init_args: {clients: [breast_cancer]}}, clients: 4}
  batches: 4
model:
  client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP, init_args: {hidden: [8]}}}}
  optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}
  threads: 1
exchange:
  federated: ["*"]
  rule: {class_path: fedlit.IFCA}
trainer: {max_epochs: 2}
board: {pictures: 0}
"""

STUDY = """\
seeds: 1
baselines: []
metrics: [auroc]
bootstrap: 0
methods:
  local: {label: Local, config: alike.yaml, set: {exchange.federated: []}}
  ifca: {label: "IFCA <2>", config: alike.yaml}
  apart:
    label: Apart
    config: alike.yaml
    set: {exchange.rule: {class_path: fedlit.Agglomerative, init_args: {after: 1, distance: 1.0}}}
    tune: {model.optimizer.lr: [0.1, 0.2]}
  pooled:
    config: alike.yaml
    pooled: true
    set: {data.pool: true, data.align: both, exchange.federated: [], exchange.rule: fedlit.Mean}
scenarios:
  flipped: {}
  alike: {set: {data.source.concepts: 1}}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clusters")
    (folder / "alike.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "alike_study.yaml").write_text(STUDY, encoding="utf-8")
    return folder / "alike_study.yaml"


@pytest.fixture(scope="module")
def found(study: Path) -> Comparison:
    return compare(str(study), scenario="flipped", out=study.parent / "out", jobs=1, quiet=True)


PLANTED = (("c01", "c03"), ("c02", "c04"))  # as seed 1 draws them
TUNED = ["apart (model.optimizer.lr=0.1)", "apart (model.optimizer.lr=0.2)"]


def cells(found: Comparison) -> dict[str, list[str]]:
    table = cluster_table(found.study, found.collected)
    assert table is not None
    assert list(table) == ["runs", "clusters", "adjusted Rand index", "runs with index 1"]
    return {str(label): cells.tolist() for label, cells in table.iterrows()}


def test_a_run_keeps_its_clusters_and_what_exchanges_cost(found: Comparison) -> None:
    assert not found.failures
    folder = found.folder / "runs" / "ifca" / "seed_1"
    clusters = read_named(folder / "version_0" / "clusters.csv")
    assert clusters["round"].unique().tolist() == [1, 2] and judged(clusters) == PLANTED
    done = json.loads((folder / "DONE").read_text(encoding="utf-8"))
    assert done["exchange"]["rounds"] == 2 and done["exchange"]["seconds"] > 0
    # 30 columns, 8 and 1: whatever a client sends it also receives, in float32, and IFCA sends a model more
    assert done["exchange"]["bytes"] % 4 == 0 and done["exchange"]["bytes"] > 2 * 4 * 2 * 4 * (30 * 8 + 8)
    local = json.loads((found.folder / "runs" / "local" / "seed_1" / "DONE").read_text(encoding="utf-8"))
    assert local["exchange"]["rounds"] == 0


def test_the_study_says_who_belongs_together(found: Comparison) -> None:
    own = pd.read_csv(found.folder / "clusters.csv")
    assert list(own) == ["method", "seed", "client", "cluster", "concept", "adjusted_rand"]
    assert own["method"].unique().tolist() == ["ifca", *TUNED]
    ifca = own[own["method"] == "ifca"].set_index("client")
    assert ifca["cluster"].to_dict() == {"c01": 1, "c02": 2, "c03": 1, "c04": 2} == ifca["concept"].to_dict()
    assert (own["adjusted_rand"] == 1.0).all()
    rows = cells(found)
    assert list(rows) == ["IFCA <2>", *(name.replace("apart", "Apart") for name in TUNED)]
    assert rows["IFCA <2>"] == ["1", "2.0", "1.000", "100 %"]
    done = json.loads((found.folder / "runs" / "ifca" / "seed_1" / "DONE").read_text(encoding="utf-8"))
    cost = times(found).loc["IFCA <2>"]
    assert cost["runs"] == "1" and times(found).loc["Local", "MB an exchange"] == "–"
    assert float(cost["s an exchange"]) == pytest.approx(done["exchange"]["seconds"] / 2, rel=5e-3)
    assert float(cost["MB an exchange"]) == pytest.approx(done["exchange"]["bytes"] / 2 / 1e6, rel=5e-3)
    text = (found.folder / "tables.md").read_text(encoding="utf-8")
    assert "## Who belongs together" in text
    assert "Who belongs together:" in str(found)


def test_pooled_rows_are_scored_for_each_client_and_nobody_could_join_them(found: Comparison) -> None:
    assert found.collected.clients == ["c01", "c02", "c03", "c04"] and found.study.candidates == ["ifca", "apart"]
    scores = pd.read_csv(found.folder / "runs" / "pooled" / "seed_1" / "scores.csv")
    assert set(scores["client"]) == set(found.collected.clients)
    assert found.estimates.query("method == 'pooled' and metric == 'auroc'")["mean"].between(0, 1).all()


def test_of_several_runs_the_table_has_means_and_says_what_is_not_known(found: Comparison) -> None:
    rows = [("ifca", seed, f"c{k}", k, "1", index) for seed, index in ((1, 1.0), (2, 0.25)) for k in range(1, 2 + seed)]
    rows += [(TUNED[0], 1, "c1", 1, "", math.nan)]
    clusters = pd.DataFrame(rows, columns=found.collected.clusters.columns)
    own = cells(replace(found, collected=replace(found.collected, clusters=clusters)))
    assert own == {"IFCA <2>": ["2", "2.5", "0.625", "50 %"], "Apart (model.optimizer.lr=0.1)": ["1", "1.0", "–", "–"]}
