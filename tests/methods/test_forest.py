"""The forest as clients have it: what they end with, what they refuse, how they predict elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import Made, different, make_run, weights

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError
from fedlit.exchange.rules import GrowForest
from fedlit.methods import Forest
from fedlit.mixture.export import export_scorer
from fedlit.run.run import Run
from fedlit.spec import ClientSpec
from fedlit.tasks import Regression


def forest(folder: Path, rule: Any = None, **options: Any) -> Run:
    rule = GrowForest(4, minimum=1) if rule is None else rule
    settings = {"align": "both", "data": {"scaling": "pooled"}, "epochs": 2, "loop": {"client": Forest}, **options}
    run = make_run(folder, exchange={"rule": rule}, **settings)
    run.fit(quiet=True)
    return run


class Numbers(Made):
    """The made clients, with a number to predict."""

    def __init__(self, targets: str = "pooled") -> None:
        super().__init__()
        self.task = {"name": "regression", "targets": targets}

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for own in super().tables(seed):
            y = pd.Series(own.features["x0"] * 3 + own.features["x1"], name="y")
            tables.append(ClientTable(own.name, own.features, y, own.splits, task=self.task))
        return tables


def test_clients_end_with_the_same_trees_but_for_columns_that_they_lack(tmp_path: Path) -> None:
    run = forest(tmp_path)
    ash, birch, cedar = (own.state["trees"] for own in run.loop.federation.values())
    assert run.loop.federation["birch"].spec.absent == ("x4", "x5") and len(cedar["roots"]) == 8
    assert all(torch.equal(birch[name], cedar[name]) for name in ("feature", "child", "values", "roots"))
    lacked = (birch["feature"] >= 4).numpy()
    assert lacked.any() and torch.isinf(birch["threshold"][lacked]).all()
    known = ~lacked & (birch["feature"] >= 0).numpy()
    assert torch.equal(birch["threshold"][known], cedar["threshold"][known])
    # grown until leaves are pure: training rows are told apart
    for name, client in run.loop.federation.items():
        rows = run.loop.federation.rows(name)
        assert (client.probabilities(client(rows.x)).argmax(1) == rows.y).float().mean() > 0.95
    assert ash.keys() == cedar.keys()


def test_a_minimum_leaves_each_client_with_ends_of_its_own(tmp_path: Path) -> None:
    run = forest(tmp_path, GrowForest(4, minimum=5))
    ash, _, cedar = (own.state["trees"] for own in run.loop.federation.values())
    assert len(ash["feature"]) != len(cedar["feature"])
    rows = run.loop.federation.rows("ash")
    client = run.loop.federation["ash"]
    assert (client.probabilities(client(rows.x)).argmax(1) == rows.y).float().mean() > 0.95
    plan = str(run.describe())
    assert "no number of rows from 1 to 4 is told" in plan and "rule GrowForest(trees=4" in plan
    nodes = [entry["exchange/nodes"] for entry in run.loop.history if "exchange/nodes" in entry]
    assert len(nodes) == 2 and run.exchange.bytes > 0


def numbers(folder: Path, targets: str) -> Run:
    run = make_run(
        folder, align="both", data={"scaling": "pooled"}, loop={"client": Forest}, epochs=2,
        exchange={"rule": GrowForest(10, minimum=3)},
    )  # fmt: skip
    run.data.source = Numbers(targets)
    run.fit(quiet=True)
    return run


def test_numbers(tmp_path: Path) -> None:
    run = numbers(tmp_path, "pooled")
    assert all(own["r2"] > 0.6 for own in run.loop.results["validation"].scores.values())
    result = export_scorer(run.client("ash"), tmp_path / "out", rows=run.data.table("ash").features)
    assert result.checked.startswith("Checked")
    with pytest.raises(ConfigError, match=r"'birch': expected the units of the target of 'ash'.*targets: pooled"):
        numbers(tmp_path / "apart", "client")


def test_it_predicts_elsewhere_what_the_run_predicts(tmp_path: Path) -> None:
    run = forest(tmp_path)
    rows = run.data.table("birch").features
    scorer = run.client("birch")
    told = run.predict(quiet=True)["birch"].filter(like="probability_").to_numpy()
    np.testing.assert_allclose(scorer.predict_proba(rows.loc[run.predict(quiet=True)["birch"]["row"]]), told, rtol=1e-6)
    assert "it predicts what the run predicts" in export_scorer(scorer, tmp_path / "out", rows).checked


def test_who_takes_no_part_receives_the_trees(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, align="both", data={"scaling": "pooled"}, loop={"client": Forest},
        exchange={"rule": GrowForest(2), "participation": 0.5},
    )  # fmt: skip
    run.fit(quiet=True)
    assert {len(own.state["trees"]["roots"]) for own in run.loop.federation.values()} == {6}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"align": "none"}, r"client 'ash': Forest expected data.align: both, found none; set data.align: both"),
        ({"data": {"scaling": "client"}}, r"Forest expected data.scaling: pooled or none, found client"),
        ({"rule": None}, r"Forest expected exchange.rule: GrowForest, found Mean; set exchange.rule: GrowForest"),
        ({"loop": {}}, r"client 'ash': expected a client that can answer 'forest/start', found FederatedClient"),
        ({"federated": ["core"], "loop": {}}, r"expected \[\] with GrowForest, which works by questions"),
    ],
)
def test_settings_that_do_not_fit(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    exchange = {"rule": options.pop("rule", GrowForest(2)), "federated": options.pop("federated", [])}
    settings = {"align": "both", "data": {"scaling": "pooled"}, "loop": {"client": Forest}, **options}
    with pytest.raises(ConfigError, match=message):
        make_run(tmp_path, exchange=exchange, **settings).fit(quiet=True)


@pytest.mark.parametrize(("task", "found"), [(Regression("huber"), "loss: huber")])
def test_a_task_that_it_cannot_do(task: Any, found: str) -> None:
    with pytest.raises(ConfigError, match=rf"client 'a': Forest: expected a task .*{found}"):
        Forest(ClientSpec("a", ("x",), (), {}, (), task=task))


def test_a_rule_out_of_range() -> None:
    for key, wrong in (("trees", 0), ("minimum", 0), ("max_features", 1.5)):
        with pytest.raises(ConfigError, match=f"{key}: expected"):
            GrowForest(**{"trees": 2, key: wrong})  # type: ignore[arg-type]


def test_exact_ranges_and_some_columns_change_the_forest_and_nothing_else(tmp_path: Path) -> None:
    first = forest(tmp_path / "a", GrowForest(2, minimum=1, exact=True, max_features=0.5))
    again = forest(tmp_path / "b", GrowForest(2, minimum=1, exact=True, max_features=0.5))
    other = forest(tmp_path / "c", GrowForest(2, minimum=1))
    assert different(weights(first), weights(again)) == [] and different(weights(first), weights(other))
