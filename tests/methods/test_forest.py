"""The forest as clients have it: what they end with, what they refuse, how they predict elsewhere."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from federations import Made, trained

from fedlit import Forest, GrowForest
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError
from fedlit.mixture.export import export_scorer
from fedlit.run.run import Run


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


def forest(folder: Path, trees: int, minimum: int, source: Made | None = None) -> Run:
    return trained(
        folder, align="both", data={"scaling": "pooled"}, loop={"client": Forest}, epochs=2, source=source,
        exchange={"rule": GrowForest(trees, minimum=minimum)},
    )  # fmt: skip


def test_clients_end_with_the_same_trees_but_for_columns_that_they_lack(tmp_path: Path) -> None:
    run = forest(tmp_path, 4, 1)
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


def test_numbers(tmp_path: Path) -> None:
    run = forest(tmp_path, 10, 3, Numbers())
    assert all(own["r2"] > 0.6 for own in run.loop.results["validation"].scores.values())
    result = export_scorer(run.client("ash"), tmp_path / "out", rows=run.data.tables()[0].features)
    assert result.checked.startswith("Checked")
    with pytest.raises(ConfigError, match=r"'birch': expected the units of the target of 'ash'.*targets: pooled"):
        forest(tmp_path / "apart", 10, 3, Numbers("client"))
