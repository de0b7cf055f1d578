"""``fedlit partition describe``: table and picture of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.data.shaping.by_distance import Distance
from fedlit.data.shaping.concept import ConceptShift
from fedlit.data.shaping.describe import describe
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled
from fedlit.show.partition import partition_figure

DEALT = """
data:
  source:
    class_path: fedlit.Partition
    init_args:
      source: {class_path: fedlit.Bundled, init_args: {clients: [digits]}}
      clients: 4
      deal: {class_path: fedlit.Distance, init_args: {emd: highest, sample: 60}}
model:
  client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}
  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.001}}
exchange: {federated: [core]}
"""


def test_the_command_shows_the_distance_that_clients_were_dealt_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dealt.yaml").write_text(DEALT)
    assert main(["partition", "describe", "--config", "dealt.yaml", "--seed", "2"]) == 0
    told = capsys.readouterr().out
    deal = Distance("highest", sample=60)
    tables = Partition(Bundled(clients=["digits"]), 4, deal=deal).tables(2)
    expected = describe(tables, 2, sample=60)
    assert expected.distances is not None and str(expected) in told
    assert f"mean weighted by rows: {expected.distances.mean:.4g}" in told and "samples of at most 60" in told
    folder = Path("lightning_logs", "partition", "dealt")
    assert f"Wrote {folder / 'partition.png'}, {folder / 'partition.svg'}" in told
    assert (folder / "partition.png").read_bytes().startswith(b"\x89PNG")
    assert "c04" in (folder / "partition.svg").read_text()
    keys = ["--data.source.init_args.clients", "3", "--data.source.init_args.deal", "fedlit.Iid", "--out", "here"]
    assert main(["partition", "describe", "--config", "dealt.yaml", *keys]) == 0
    told = capsys.readouterr().out
    assert "c03" in told and "c04" not in told and "samples of at most 200" in told
    assert Path("here/partition.png").exists()


def test_concepts_and_shares_are_told_whatever_the_order() -> None:
    tables = ConceptShift(Partition(Bundled(clients=["wine"]), 4), groups=[["c01"], ["c0[234]"]]).tables(0)
    one, other = describe(tables, 0), describe(tables[::-1], 0)
    assert str(one) == str(other) and one.concepts == {"c01": "1", "c02": "2", "c03": "2", "c04": "2"}
    for place, table in enumerate(tables):
        own = table.target.iloc[table.splits["train"]]
        assert [(own == label).mean() for label in one.shares] == pytest.approx(one.shares.iloc[place].tolist())
    assert one.distances is not None
    rows = {name: own["train"] for name, own in one.rows.items()}
    bars, distances = partition_figure(one.shares, rows, one.distances.to_whole, one.distances.mean).axes
    assert len(bars.patches) == 12 and sum(bar.get_width() for bar in bars.patches) == pytest.approx(400)  # type: ignore[attr-defined]
    assert distances.lines[0].get_xdata() == pytest.approx([one.distances.to_whole[t.name] for t in tables])


def test_where_there_is_nothing_to_measure_or_draw_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other columns, and numbers to predict."""
    monkeypatch.chdir(tmp_path)
    assert main(["partition", "describe", "--config", "quickstart", "--out", "here"]) == 0
    told = capsys.readouterr().out
    assert "digits has other columns than breast_cancer" in told and "benign (62 %), malignant (38 %)" in told
    assert main(["partition", "describe", "--config", "diabetes", "--seed", "2"]) == 0
    told = capsys.readouterr().out
    assert "mean of target" in told and "No earth mover's distance" in told and "No picture" in told
