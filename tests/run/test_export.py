"""Clients of every method as folders of data: what they predict there, and what cannot be exported."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import METHODS, make_run
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.errors import ConfigError, RunError
from fedlit.nn import CNN, MLP, GlobalLayers, TabM
from fedlit.run.export import Exported, export_scorer, random_rows
from fedlit.run.run import Run
from fedlit.score import load

SQUARE = {"ash": 4}
NETWORKS: dict[str, Any] = {
    "mlp": partial(MLP, hidden=[8, 8], dropout=0.2),
    "global layers, small": partial(GlobalLayers, global_features=2, width=4, blocks=1, heads=2),
    "cnn": CNN,
    "tabm": partial(TabM, k=3, width=8, embedding=3),
}
# what is exported is the same for all that differ in the exchange alone
APART = ("local", "centralized", "fedprox", "two optimizers", "apfl", "apfl, alpha learnt", "ifedavg", "chfl")
ALIKE = [pytest.param(own, marks=[] if own.startswith(APART) else pytest.mark.full) for own in METHODS]


def exported(run: Run, folder: Path, client: str = "ash", **options: Any) -> Exported:
    return export_scorer(run.client(client), folder, rows=run.data.table(client).features, **options)


def test_scores_elsewhere_are_the_runs(tmp_path: Path) -> None:
    """In a process that has no Lightning."""
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    told = run.predict(quiet=True)["cedar"]
    exported(run, tmp_path / "cedar", "cedar")
    rows = run.data.table("cedar").features
    rows.to_parquet(tmp_path / "rows.parquet")
    code = (
        "import sys\nimport pandas as pd\nimport fedlit.score\n"
        f"made = fedlit.score.load({str(tmp_path / 'cedar')!r}).predict(pd.read_parquet('rows.parquet'))\n"
        "made.to_parquet('made.parquet')\n"
        "heavy = ('lightning', 'jsonargparse', 'onnxruntime', 'fedlit.train', 'fedlit.run', 'fedlit.client')\n"
        "found = [own for own in sys.modules if (own + '.').startswith(tuple(name + '.' for name in heavy))]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    found = pd.read_parquet(tmp_path / "made.parquet").loc[told["row"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, told.drop(columns="row"), check_exact=False, rtol=1e-6)


@pytest.mark.parametrize("method", ALIKE)
def test_every_method_is_exported(method: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, **METHODS[method])
    run.fit(quiet=True)
    done = exported(run, tmp_path / "ash")
    assert done.checked.startswith("Checked: on 90 test rows of the client it predicts what the run predicts")
    rows = run.data.table("ash").features
    read, own = load(tmp_path / "ash"), run.client("ash")
    for part in (rows, rows.head(1), rows.head(0)):
        pd.testing.assert_frame_equal(read.predict(part), own.predict(part), rtol=1e-6)
    assert read.classes_.tolist() == own.classes_.tolist()


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_is_exported(network: str, tmp_path: Path) -> None:
    options = {"columns": ["x0", "x1", "x2", "x3"]} if network == "cnn" else {}
    clients = ("ash",)
    factory = partial(FederatedClient, network=NETWORKS[network])
    run = make_run(tmp_path, clients=clients, loop={"client": factory}, data=options, epochs=1)
    run.fit(quiet=True)
    exported(run, tmp_path / "ash")
    rows = run.data.table("ash").features
    np.testing.assert_allclose(
        load(tmp_path / "ash").predict_proba(rows), run.client("ash").predict_proba(rows), atol=1e-6
    )


def test_other_formats(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    rows = run.data.table("ash").features
    expected = run.client("ash").predict_proba(rows)
    told = exported(run, tmp_path / "torch", format="torch")
    assert "can fall back to pickle" in str(told)
    with pytest.raises(ConfigError, match="whose reader can run what is in the file"):
        load(tmp_path / "torch")
    np.testing.assert_allclose(load(tmp_path / "torch", trusted=True).predict_proba(rows), expected, atol=1e-6)
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    exported(run, tmp_path / "onnx", format="onnx")
    np.testing.assert_allclose(load(tmp_path / "onnx").predict_proba(rows), expected, atol=1e-6)
    assert load(tmp_path / "onnx").predict_proba(rows.head(1)).shape == (1, 3)


class LooksAtRows(FederatedClient):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if float(x.mean()) > 0 else -super().forward(x)


class Draws(FederatedClient):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn_like(x[:, :1])


class InPlace(FederatedClient):
    """Adds to what it has, whose result nobody takes."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        logits.add_(x[:, :1].sinh())
        return logits


class Doubtful(FederatedClient):
    """Predicts by itself, without looking at the target."""

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        predictions = self.probabilities(self(batch.x)) + 1
        return predictions / predictions.sum(1, keepdim=True), batch.x.sum() * 0


class CountsRows(FederatedClient):
    """What it predicts of a row depends on the number of rows."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.0 if x.shape[0] == 4 else 2.0)


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (LooksAtRows, "client 'ash': expected a prediction that is the same computation for all rows"),
        (CountsRows, "client 'ash': expected"),
        (Draws, "client 'ash': expected operations that give the same for the same rows, found aten.randn"),
    ],
)
def test_a_client_that_cannot_be_exported_says_so(client: type[FederatedClient], message: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, client=client, epochs=1)
    run.fit(quiet=True)
    with pytest.raises(RunError, match=message) as found:
        exported(run, tmp_path / "out" / "ash")
    assert len(str(found.value)) < 500
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("client", [InPlace, Doubtful])
def test_clients_of_users_are_exported(client: type[FederatedClient], tmp_path: Path) -> None:
    run = make_run(tmp_path, client=client, epochs=1)
    run.fit(quiet=True)
    rows = run.data.table("ash").features
    exported(run, tmp_path / "ash")
    np.testing.assert_allclose(
        load(tmp_path / "ash").predict_proba(rows), run.client("ash").predict_proba(rows), atol=1e-6
    )


def test_an_export_that_predicts_otherwise_is_not_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    scorer = run.client("ash")
    evaluate = scorer.function.client.evaluate  # type: ignore[attr-defined]
    scorer.function.client.evaluate = lambda batch: [own.flip(1) for own in evaluate(batch)[:1]]  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="expected the exported network to predict what the run predicts, found diff"):
        export_scorer(scorer, tmp_path / "out" / "ash")
    assert not list((tmp_path / "out").iterdir())


def test_what_is_written_for_people_and_what_is_replaced(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    scores = {"rows": 27, "auroc": 0.875, "auprc": None}
    done = exported(run, tmp_path / "ash", scores=scores)
    card = (tmp_path / "ash" / "model_card.md").read_text()
    assert "# y at ash" in card and "| AUROC | 0.875 |" in card and "Of 27 rows" in card and done.checked in card
    assert "| x0 | numbers, " in card and str(tmp_path) not in card + (tmp_path / "ash" / "scorer.json").read_text()
    assert sorted(path.name for path in (tmp_path / "ash").iterdir()) == [
        "columns.json", "encoder.json", "model_card.md", "network.json", "parameters.safetensors", "scorer.json",
    ]  # fmt: skip
    exported(run, tmp_path / "ash")
    assert "Unknown: nobody has run" in (tmp_path / "ash" / "model_card.md").read_text()
    with pytest.raises(ConfigError, match="--out: expected a new folder, or one of an earlier export"):
        exported(run, tmp_path / "fedlit")
    with pytest.raises(ConfigError, match="expected a client of a run, found one that was exported"):
        export_scorer(load(tmp_path / "ash"), tmp_path / "again")
    with pytest.raises(ConfigError, match="--format: expected one of graph, onnx, torch"):
        exported(run, tmp_path / "ash", format="pickle")
    assert json.loads((tmp_path / "ash" / "scorer.json").read_text())["client"] == "ash"


def test_a_private_copy_that_does_not_predict_is_left_out(tmp_path: Path) -> None:
    """APFL mixes two networks: the mixture is written, and neither of them."""
    run = make_run(tmp_path, epochs=1, **METHODS["apfl"])
    run.fit(quiet=True)
    exported(run, tmp_path / "ash")
    local = make_run(tmp_path / "local", epochs=1)
    local.fit(quiet=True)
    exported(local, tmp_path / "plain")
    sizes = [(tmp_path / name / "parameters.safetensors").stat().st_size for name in ("ash", "plain")]
    assert abs(sizes[0] - sizes[1]) < 1000


def test_random_rows_have_all_kinds(tmp_path: Path) -> None:
    from fedlit.data.encoder import TableEncoder
    from fedlit.data.table import ClientTable

    features = pd.DataFrame(
        {"a": [1.0, 2, 3, 4] * 5, "b": [True, False] * 10, "c": ["x", "y"] * 10, "d": [1, 2] * 10, "e": [np.nan] * 20}
    )
    splits = {"train": np.arange(16), "validation": np.arange(16, 18), "test": np.arange(18, 20)}
    table = ClientTable("n", features, pd.Series([0, 1] * 10, name="y"), splits, ("b", "c", "d"))  # type: ignore[arg-type]
    encoder = TableEncoder("n").fit(table)
    made = encoder.transform(random_rows(encoder, 200))
    assert made.shape == (200, 5) and set(np.unique(made[:, 2])) == {-1.0, 0.0, 1.0} and made[:, 0].std() > 0.5
