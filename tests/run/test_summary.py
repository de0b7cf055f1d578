"""What runs, plans and results show of themselves at a prompt and in a notebook."""

from __future__ import annotations

import shutil
from pathlib import Path

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
    for text in ("fedlit, seed 8", "trained  no", "core; every epoch, by Mean", str(tmp_path)):
        assert text in before
    run.data.source = read
    results = run.fit(quiet=True)
    assert run.folder is not None
    shutil.rmtree(run.folder)
    after, page = repr(run), run._repr_html_()
    auroc = results.summary["mean"]["auroc"]
    rows = sum(client.spec.rows["train"] for client in run.loop.federation.values())
    shown = (
        "3 of IFedAvg: ash, birch, cedar",
        "4 aligned steps",
        f"mean {auroc:.4f}",
        f"{rows} train",
        str(run.folder),
    )
    assert all(text in after and text in page for text in shown)
    # at a prompt a plan and scores are their tables
    assert repr(results) == str(results) and repr(run.describe()) == str(run.describe())
    assert "<td" in run.describe()._repr_html_() and f"{results.scores['ash']['auroc']:.4f}" in results._repr_html_()
