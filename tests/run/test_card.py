"""What runs, plans and results show of themselves at a prompt and in a notebook."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from federations import Made, make_run

from fedlit.data.table import ClientTable
from fedlit.methods import IFedAvg


class Unread(Made):
    """Tables that must not be read."""

    def tables(self, seed: int) -> list[ClientTable]:
        raise AssertionError("a repr reads no table")


def test_a_run_shows_what_it_knows_and_reads_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=IFedAvg, epochs=1, exchange={"federated": ["core"]})
    read, run.data.source = run.data.source, Unread()
    before = repr(run)
    assert "fedlit, seed 8" in before and "IFedAvg; tables are not read yet" in before and "trained  no" in before
    assert "core; every epoch, by Mean" in before and str(tmp_path) in before
    run.data.source = read
    results = run.fit(quiet=True)
    assert run.folder is not None
    shutil.rmtree(run.folder)
    after, page = repr(run), run._repr_html_()
    auroc = results.summary["mean"]["auroc"]
    for text in ("3 of IFedAvg: ash, birch, cedar", "4 aligned steps", f"mean {auroc:.4f}", str(run.folder)):
        assert text in after and text in page
    rows = sum(client.spec.rows["train"] for client in run.loop.federation.values())
    assert f"{rows} train, " in after
    # at a prompt a plan and scores are their tables
    assert repr(results) == str(results) and repr(run.describe()) == str(run.describe())
    assert "<td" in run.describe()._repr_html_() and f"{results.scores['ash']['auroc']:.4f}" in results._repr_html_()


def test_a_configurations_class_is_named_before_it_is_built() -> None:
    from fedlit import load

    run = load("quickstart.yaml")
    assert "FederatedClient; tables are not read yet" in repr(run)


@pytest.mark.parametrize("name", ["ClientOverride", "NetworkFactory"])
def test_names_that_signatures_use_are_public(name: str) -> None:
    import fedlit

    assert name in fedlit.__all__ and name in dir(fedlit) and getattr(fedlit, name) is not None
