"""The forest as clients have it: what they end with, what they refuse, how they predict
elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import Made, trained

from fedlit import Forest, GrowForest
from fedlit.data.encoding import Rows
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, FedlitError
from fedlit.mixture.export import export_scorer
from fedlit.run.run import Run
from fedlit.spec import ClientSpec


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


def forest(folder: Path, trees: int, minimum: int, source: Made | type[Made] = Made) -> Run:
    return trained(
        folder, align="both", data={"scaling": "pooled"}, loop={"client": Forest}, epochs=2, source=source,
        exchange={"rule": GrowForest(trees, minimum=minimum)},
    )  # fmt: skip


def test_clients_have_the_same_trees_but_for_lacking_columns(tmp_path: Path) -> None:
    run = forest(tmp_path, 4, 1)
    ash, birch, cedar = (own.state["trees"] for own in run.loop.federation.values())
    assert run.loop.federation["birch"].spec.absent == ("x4", "x5") and len(cedar["roots"]) == 8
    assert all(
        torch.equal(birch[name], cedar[name]) for name in ("feature", "child", "values", "roots")
    )
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
    with pytest.raises(
        ConfigError, match=r"'birch': expected the units of the target of 'ash'.*targets: pooled"
    ):
        forest(tmp_path / "apart", 10, 3, Numbers("client"))


def client() -> Forest:
    return Forest(ClientSpec("north", ("age", "sex"), (0, 1), {"train": 9}, ()))


def stump(**changes: Any) -> dict[str, torch.Tensor]:
    """One split and its leaves, as a coordinator sends them."""
    dtypes = {"feature": np.int16, "threshold": np.float32, "child": np.int32, "totals": np.int16}
    tree = {
        "feature": [0, -1, -1],
        "threshold": [0.5, 0, 0],
        "child": [1, 1, 2],
        "totals": [[2, 0], [0, 3]],
    }
    sent = {**tree, "seed": 1, "trees": 1, **changes}
    return {
        f"down/{name}": torch.from_numpy(np.asarray(own, dtypes.get(name)))
        for name, own in sent.items()
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"child": [0, 1, 2]},
        {"feature": [0, 0, -1], "child": [1, 1, 2], "totals": [[2, 0]]},
        {"feature": [0, 0, -1, -1], "threshold": [0.5] * 4, "child": [2, 2, 2, 3], "trees": 2},
        {"child": [7, 1, 2]},
        {"child": [-1, 1, 2]},
        {"feature": [2, -1, -1]},
        {"threshold": [0.5]},
        {"trees": 9},
    ],
)
def test_what_is_no_forest_is_refused_rather_than_followed(odd: dict[str, Any]) -> None:
    north = client()
    north.on_receive(stump())
    assert north.state["depth"] == 1
    with pytest.raises(FedlitError, match="forest: expected"):
        north.on_receive(stump(**odd))
    assert north.state["depth"] == 1 and len(north.state["trees"]["roots"]) == 1


def test_an_exchange_without_a_start_answers_nothing() -> None:
    """Otherwise its rows would lie in nodes of the exchange before, while other sites begin
    anew."""
    north = client()
    rule = GrowForest(2, minimum=1, summed=True)
    rows = Rows(
        torch.tensor([[1.0, 0.0], [3.0, 1.0], [5.0, 0.0]]), torch.tensor([0, 1, 1]), np.arange(3)
    )
    start = {name: torch.tensor(value) for name, value in {"seed": 1, **rule._limits}.items()}
    box = {
        "low": torch.tensor([0.0, 0.0]),
        "high": torch.tensor([6.0, 1.0]),
        "open": torch.ones(2, dtype=torch.bool),
    }
    north.answer("forest/start", start, rows)
    assert north.answer("forest/counts", box, rows)["left"].shape == (2, 2, 2, 2)
    north.on_receive({})
    with pytest.raises(FedlitError, match="forest/counts"):
        north.answer("forest/counts", box, rows)
