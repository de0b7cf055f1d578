"""A client of a run as a scorer: what ``fedlit predict`` says, also where tables are gone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from contracts import one_in
from federations import METHODS, make_run
from pages import table

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.run.allowed import trusting
from fedlit.run.folders import find_run
from fedlit.score import load_run

CONFIG = """seed: 1
data:
  source:
    class_path: fedlit.Tables
    init_args:
      files: {north: north.csv, south: south.csv}
      target: {north: outcome, south: creatinine}
      task: {north: classification, south: regression}
  batches: 4
model:
  client: {class_path: CLIENT, init_args: {network: {class_path: fedlit.MLP, init_args: {hidden: [8, 8]}}}}
exchange: {federated: [core]}
trainer: {max_epochs: 2}
"""
OWN = """
from fedlit import FederatedClient

class Doubling(FederatedClient):
    def forward(self, x):
        return 2 * super().forward(x)
"""


@pytest.mark.parametrize("method", one_in(8, METHODS))
def test_a_scorer_predicts_what_the_run_predicts(method: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, **METHODS[method])
    run.fit(quiet=True)
    told, tables = run.predict(quiet=True), {own.name: own for own in run.data.tables()}
    for site, frame in told.items():
        if site == "all":
            continue
        found = run.client(site).predict(tables[site].features.loc[frame["row"]])
        pd.testing.assert_frame_equal(found.reset_index(drop=True), frame.drop(columns="row"), check_exact=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a client class of the user's own, whose tables are in ``tables``."""
    here = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        (here / "mine.yaml").write_text(CONFIG.replace("CLIENT", "doubling.Doubling"))
        (here / "doubling.py").write_text(OWN)
        for name in ("north.csv", "south.csv"):
            table(name).to_csv(here / name, index=False)
        assert main(["fit", "--config", "mine.yaml"]) == 0
        assert main(["predict", "--config", "mine.yaml"]) == 0
        (here / "tables").mkdir()
        for name in ("north.csv", "south.csv"):
            (here / name).rename(here / "tables" / name)
    return here


def test_tables_may_be_gone(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    assert fedlit.load("mine.yaml", command="predict").client("south").outcome.name == "regression"
    run = trained / "lightning_logs" / "mine" / "version_0"
    for named, client in (("mine", "north"), ("mine.yaml", "north"), ("lightning_logs/mine", "south"), (run, "south")):
        expected = pd.read_csv(find_run("mine") / "predictions" / "test" / f"{client}.csv")
        rows = pd.read_csv(trained / "tables" / f"{client}.csv").loc[expected["row"]]
        with trusting("doubling"):
            found = load_run(named, client, quiet=True).predict(rows).reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected.drop(columns="row"), rtol=1e-6, check_dtype=False)


def test_of_pooled_rows_a_party_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, **METHODS["centralized"])
    run.fit(quiet=True)
    for name in ("centralized", "all"):
        with pytest.raises(ConfigError, match="expected one of ash, birch, cedar, whose rows were pooled"):
            run.client(name)
