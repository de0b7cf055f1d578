"""fedlit explain, on real runs: what it writes, from what, and what it must not read."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedlit.__main__ import main
from fedlit.explain.judge import judge
from fedlit.run.explanation import explain, read_corrections
from fedlit.run.load import run_of
from fedlit.show.histograms import Sample, histogram_figure
from fedlit.study.compare import compare
from fedlit.study.method import Method
from fedlit.study.study import StudyFile

CONFIG = """
seed: 1
data:
  source: {{class_path: fedlit.Tables, init_args: {{files: {folder}/*.csv, target: died}}}}
  batch_size: 16
  align: both
  scaling: pooled
  categories: indicators
model:
  client:
    class_path: fedlit.IFedAvg
    init_args: {{network: {{class_path: fedlit.MLP, init_args: {{hidden: [8]}}}}, outputs: both, lr_factor: 5.0}}
  threads: 1
exchange: {{federated: ["*"]}}
board: {{pictures: 1}}
trainer: {{max_epochs: 5, default_root_dir: {folder}/logs}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run over six sites with the same three columns; site3 has `b` in another
    unit."""
    folder = tmp_path_factory.mktemp("explain")
    for number in range(6):
        rng = np.random.default_rng(number)
        a = rng.normal(50, 10, 120)
        b = rng.normal(2, 1, 120)
        ward = rng.choice(["north", "south", "west"], 120)
        y = ((a - 50) / 10 + 2 * (b - 2) + rng.normal(size=120) > 0).astype(int)
        frame = pd.DataFrame({"a": a, "b": b * (10 if number == 3 else 1), "ward": ward, "died": y})
        frame.to_csv(folder / f"site{number}.csv", index=False)
    (folder / "sites.yaml").write_text(CONFIG.format(folder=folder))
    assert main(["fit", "--config", str(folder / "sites.yaml")]) == 0
    return folder / "logs" / "sites" / "version_0"


def test_a_run_records_its_corrections(run: Path) -> None:
    last, epoch = read_corrections(run)
    assert epoch == 5 and len(last) == 6 * (2 * 5 + 2)
    features = {"a", "b", "ward=north", "ward=south", "ward=west"}
    assert set(last.loc[last["part"] == "input scale", "feature"]) == features
    board = EventAccumulator(str(run / "federation"), size_guidance={"images": 0}).Reload()
    assert {"corrections/input", "corrections/output"} <= set(board.Tags()["images"])


def test_corrections_alone_give_pictures_a_table_and_words(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the newest run whose training began."""
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "lightning_logs/sites/version_10"
    for folder in (copy, copy.with_name("version_2")):
        (folder / "checkpoints").mkdir(parents=True)
    for name in ("version_11", "version_old"):
        copy.with_name(name).mkdir()
    (copy / "corrections.csv").write_bytes((run / "corrections.csv").read_bytes())
    assert main(["explain", "--run", "sites"]) == 0
    told = capsys.readouterr().out
    assert "After epoch 5:" in told
    pictures = {
        f"corrections_{side}s.{ending}" for side in ("input", "output") for ending in ("png", "svg")
    }
    written = {path.name for path in (copy / "explain").iterdir()}
    assert written == pictures | {"findings.csv"}
    table = pd.read_csv(copy / "explain" / "findings.csv")
    expected = judge(read_corrections(copy)[0]).cells
    assert {"client", "part", "feature", "marked", "feature_marked", "words"} <= set(table)
    for column in ("value", "z", "p"):
        assert table[column].tolist() == pytest.approx(expected[column].tolist(), nan_ok=True)
    svg = (copy / "explain" / "corrections_inputs.svg").read_text(encoding="utf-8")
    assert "ward=north" in svg and "site3" in svg
    assert (copy / "explain" / "corrections_inputs.png").read_bytes().startswith(b"\x89PNG")


def test_a_client_draws_its_own_columns_from_its_own_file(run: Path, tmp_path: Path) -> None:
    hidden = [path for path in run.parents[2].glob("site*.csv") if path.name != "site3.csv"]
    moved = [path.rename(path.with_suffix(".hidden")) for path in hidden]
    try:
        assert (
            main(
                [
                    "explain",
                    "--run",
                    str(run),
                    "--histograms",
                    "site3",
                    "--out",
                    str(tmp_path / "out"),
                ]
            )
            == 0
        )
    finally:
        for path in moved:
            path.rename(path.with_suffix(".csv"))
    svg = (tmp_path / "out" / "histograms_site3.svg").read_text(encoding="utf-8")
    assert "site3, b" in svg and "b: scale" in svg
    assert (tmp_path / "out" / "histograms_site3.png").read_bytes().startswith(b"\x89PNG")
    found = explain(run, histograms=["site3", "site0"], out=tmp_path / "two")
    assert {path.name for path in found.files} >= {
        "histograms_site3_site0.png",
        "corrections_inputs.png",
    }
    assert "site0, b" in (tmp_path / "two" / "histograms_site3_site0.svg").read_text(
        encoding="utf-8"
    )


def test_histograms_are_shares_of_each_class_on_one_axis(run: Path) -> None:
    data = run_of(run).data
    tables = [data.table(name) for name in ("site3", "site0")]
    samples = {}
    for table in tables:
        train = table.splits["train"]
        samples[table.name] = Sample(table.features.iloc[train].copy(), table.target.iloc[train])
    labels = samples["site3"].labels
    wards = samples["site3"].rows["ward"].astype(object)
    samples["site3"].rows["ward"] = wards.where(labels == 1)  # recorded for one class alone
    figure = histogram_figure(samples, ["b", "ward"], ["ward"], {("site3", "b"): "scale 0.2"})
    first, second, third, _ = figure.axes
    assert (
        first.get_title(loc="left") == "site3, b\nscale 0.2"
        and first.get_xlim() == second.get_xlim()
    )
    values = samples["site3"].rows["b"]
    edges = np.histogram_bin_edges(
        np.concatenate([sample.rows["b"] for sample in samples.values()]), bins=24
    )
    for label, bars in zip((0, 1), first.containers, strict=True):
        expected = np.histogram(values[labels == label], edges)[0] / (labels == label).sum()
        assert [bar.get_height() for bar in bars] == pytest.approx(expected.tolist())
    missing = [bars[-1].get_height() for bars in third.containers]
    assert missing == [1.0, 0.0]
    legend = [text.get_text() for text in third.get_legend().get_texts()]
    rows = [int((labels == label).sum()) for label in (0, 1)]
    assert legend == [f"0 (n = {rows[0]}, {rows[0]} missing)", f"1 (n = {rows[1]})"]


def test_a_number_to_predict_is_drawn_as_all_rows_together() -> None:
    rows = pd.DataFrame({"x": np.arange(40.0)})
    (axes,) = histogram_figure(
        {"ash": Sample(rows, pd.Series(np.arange(40.0), name="y"))}, ["x"]
    ).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["all rows (n = 40)"]


def test_what_is_refused(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, found in (
        ("--run nowhere", "--run:"),
        (f"--run {tmp_path}", str(tmp_path)),
        (f"--run {run} --histograms site9", "'site9'"),
        (f"--run {tmp_path} --histograms site3", "--histograms"),
        (f"--run {run} --client site3 --histograms site3", "--histograms"),
    ):
        assert main(["explain", *words.split(), "--out", str(tmp_path / "out")]) == 2
        assert found in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_study_keeps_what_was_corrected(run: Path, tmp_path: Path) -> None:
    config = str(run.parents[2] / "sites.yaml")
    short = {"trainer.max_epochs": 1}
    methods = {"ifedavg": Method(config, label="iFedAvg", set=short)}
    study = StudyFile(methods, seeds=[1], baselines={}, metrics=["weighted_f1", "auroc_ovo"], bootstrap=0,
                  reference="ifedavg")  # fmt: skip
    found = compare(study, out=tmp_path, workers=1, quiet=True)
    assert not found.failures
    assert (
        len(pd.read_csv(tmp_path / "runs" / "ifedavg" / "seed_1" / "version_0" / "corrections.csv"))
        == 72
    )
    scores = found.collected.results
    assert {"weighted_f1", "auroc_ovo"} <= set(scores.loc[scores["split"] == "test", "metric"])
    assert "auroc_ovo" not in set(scores.loc[scores["split"] == "validation", "metric"])


def test_the_loss_along_paths_is_drawn_and_averaged_over_pairs(tmp_path: Path) -> None:
    """As FedGMCC's rule leaves it behind in a run's folder."""
    rows = [
        (3, first, second, path, u, loss * (1 + (second == "c")))
        for first, second in (("a", "b"), ("a", "c"))
        for path, u, loss in (
            ("straight", 0.0, 4.0),
            ("straight", 1.0, 0.0),
            ("bent", 0.0, 4.0),
            ("bent", 1.0, 0.0),
        )
    ]
    columns = ["round", "first", "second", "path", "u", "loss"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "paths.csv", index=False)
    found = explain(tmp_path)
    assert found.table.to_dict() == {path: {0.0: 6.0, 1.0: 0.0} for path in ("straight", "bent")}
    assert sorted(path.name for path in found.files) == [
        "paths.png",
        "paths.svg",
    ] and "2 pairs" in str(found)
