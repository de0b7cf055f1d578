"""What a run tells: to loggers of Lightning, and of networks that are no better than the simplest
models."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from federations import BUNDLED, make_run
from lightning.pytorch.loggers import CSVLogger, Logger
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError, RunError
from fedlit.run.caveats import weak_networks
from fedlit.run.resolved import Resolved
from fedlit.run.run import Run
from fedlit.train.results import Results

BELOW = Path("lightning_logs") / "version_0"  # Lightning's own name of a logger that is given none


class Memory(Logger):
    """Keeps what it is told."""

    name = "memory"
    version = 0

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, list[tuple[int | None, float]]] = {}
        self.hyperparams: dict[str, Any] = {}

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        for key, value in metrics.items():
            self.metrics.setdefault(key, []).append((step, value))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.hyperparams |= params


class Fails(Memory):
    """Raises an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        raise self.error


def test_all_loggers_get_the_same_keys_steps_and_settings(tmp_path: Path) -> None:
    memory = Memory()
    run = make_run(
        tmp_path,
        epochs=2,
        logger=[CSVLogger, memory],
        config=Resolved({"seed": 8}),
        exchange={"federated": ["core"]},
    )
    run.fit(quiet=True)
    assert (
        run.folder is not None
        and any(run.folder.glob("ash/events.*"))
        and any(run.folder.glob("federation/events.*"))
    )
    assert {
        "ash/val/auroc",
        "val/auroc",
        "val/worst/auroc",
        "val/best/auroc",
    } < memory.metrics.keys()
    table = pd.read_csv(run.folder / BELOW / "metrics.csv").set_index("step")
    assert set(table) == memory.metrics.keys()
    for key, logged in memory.metrics.items():
        assert table[key].dropna().to_dict() == pytest.approx(dict(logged))
    expected = [values["ash/val/auroc"] for values in run.loop.history if "ash/val/auroc" in values]
    assert memory.metrics["ash/val/auroc"] == list(zip([4, 8], expected, strict=True))
    assert memory.hyperparams == {"seed": 8}
    assert yaml.safe_load((run.folder / BELOW / "hparams.yaml").read_text(encoding="utf-8")) == {
        "seed": 8
    }


def test_a_logger_that_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # a full disk ends no training
    make_run(tmp_path, epochs=2, logger=Fails(OSError("no space left"))).fit(quiet=True)
    told = capsys.readouterr().err
    assert (
        told.count(
            "trainer.logger: Fails: expected to write there, found: no space left; training goes on"
        )
        == 1
    )
    with pytest.raises(
        RunError, match=r"trainer.logger: Fails could not write \(ValueError: nothing like that\)"
    ):
        make_run(tmp_path, epochs=1, logger=Fails(ValueError("nothing like that"))).fit(quiet=True)
    for wrong in ("csv", dict):
        with pytest.raises(ConfigError, match=r"^trainer.logger: "):
            make_run(tmp_path, epochs=1, logger=wrong).fit(quiet=True)


def test_the_command_line_takes_a_class_and_says_where_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "my runs"
    fast = [
        "--config",
        "quickstart.yaml",
        "--trainer.max_epochs=1",
        f"--trainer.default_root_dir={root}",
    ]
    assert (
        main(
            ["fit", *fast, "--trainer.logger=CSVLogger", "--data.source.init_args.clients=[north]"]
        )
        == 0
    )
    folder = root / "quickstart" / "version_0"
    told = capsys.readouterr().out
    assert f"Logged by CSVLogger: '{folder / BELOW}'\n" in told
    # of this run alone; a space must be typed again
    assert f"Curves: tensorboard --logdir '{folder}'\n" in told
    filters = parse_qs(urlsplit(re.findall(r"http\S+", told)[0]).query)
    (tag_filter,), (run_filter,) = filters["tagFilter"], filters["runFilter"]
    known = charts(folder)
    assert "epoch" not in {tag for _, tag in known}
    shown = {
        (run, tag)
        for run, tag in known
        if re.search(tag_filter, tag) and re.search(run_filter, run)
    }
    assert shown == set(product(["north", "federation"], ["train/loss", "val/loss", "val/auroc"]))
    before = (folder / BELOW / "metrics.csv").read_text(encoding="utf-8")
    assert main(["test", *fast, "--trainer.logger=CSVLogger"]) == 0  # keeps what is there
    assert (folder / BELOW / "metrics.csv").read_text(encoding="utf-8") == before
    tested = pd.read_csv(folder / BELOW.parent / "version_1" / "metrics.csv")
    scores = pd.read_csv(folder / "test.csv", index_col="client")
    assert tested["north/test/auroc"].item() == pytest.approx(scores.loc["north", "auroc"])


def charts(folder: Path) -> set[tuple[str, str]]:
    """The runs and tags of the scalars that TensorBoard shows of a folder."""
    found = set()
    for path in {file.parent for file in folder.rglob("events*")}:
        scalars = EventAccumulator(str(path)).Reload().Tags()["scalars"]
        found |= {(str(path.relative_to(folder)), tag) for tag in scalars}
    return found


def test_a_score_over_fewer_classes_is_marked(here: Path) -> None:
    """At the client whose last days have no benign row, and at no other."""
    rng = np.random.default_rng(0)
    for name, labels in (("one", "ABC"), ("two", "AB")):
        kinds = np.array([*rng.choice(list("ABC"), 70), *rng.choice(list(labels), 30)])
        table = pd.DataFrame(
            {"day": range(100), "x": rng.normal(size=100) + (kinds == "A"), "kind": kinds}
        )
        table.to_csv(f"{name}.csv", index=False)
    Path("mine.yaml").write_text(
        "data: {source: {class_path: fedlit.Tables, init_args: {files: {one: one.csv, two: "
        "two.csv}, target: kind, split: {time: day}}}, batches: 4}\nmodel: {client: {class_path: "
        "fedlit.FederatedClient, init_args: {network: fedlit.MLP}}}\n"
    )
    run = fedlit.load("mine.yaml", overrides={"trainer.max_epochs": 1})
    run.fit(quiet=True)
    results = run.test(quiet=True)
    assert results.absent == {"two": ("C",)} and results.scores["two"]["classes"] == 2
    assert results.to_dict()["absent"] == {"two": ["C"]}
    noted = [line for line in str(results).splitlines() if "two: AUROC" in line]
    assert len(noted) == 1 and "one: AUROC" not in str(results)


def load(folder: Path, *more: str) -> Run:
    words = (
        "--data.source.init_args.clients=[breast_cancer]",
        f"--trainer.default_root_dir={folder}",
        *more,
    )
    return fedlit.load(str(BUNDLED), *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Results]:
    run = load(tmp_path_factory.mktemp("trained"), "--trainer.max_epochs=20")
    run.fit(quiet=True)
    return run, run.test(quiet=True)


def test_an_untrained_network_is_said_and_a_trained_one_is_not(
    tmp_path: Path, trained: tuple[Run, Results]
) -> None:
    run = load(tmp_path, "--trainer.max_epochs=1", "--model.optimizer.lr=0")
    run.fit(quiet=True)
    results = run.test(quiet=True)
    (note,) = results.weak
    assert note.startswith("breast_cancer: ")
    if "logistic regression" in note:  # the oracle: scikit-learn on the same rows
        (client,) = run.data.clients
        x = client.train.x.numpy()
        y = client.train.y.numpy()
        rows = client.sites["breast_cancer"]["test"]
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
        expected = roc_auc_score(rows.y, model.predict_proba(rows.x.numpy())[:, 1])
        assert f"{expected:.3f}" in note
    assert trained[1].weak == ()


def test_a_network_that_predicts_one_class_is_said(trained: tuple[Run, Results]) -> None:
    run, results = trained
    (client,) = run.data.clients
    y = client.sites["breast_cancer"]["test"].y
    one = client.spec.task.evaluate(torch.tensor([[0.1, 0.9]]).expand(len(y), 2), y)
    scores = {
        name: float(one.get(name, value)) for name, value in results.scores["breast_cancer"].items()
    }
    (note,) = weak_networks(run.data, replace(results, scores={"breast_cancer": scores}))
    assert "one class" in note
    many = SimpleNamespace(clients=run.data.clients * 23)
    assert weak_networks(many, results)[-1].endswith("3 more clients")  # type: ignore[arg-type]


def test_errors_in_other_units_have_no_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, unit in (("north", 1.0), ("south", 100.0)):
        x = rng.normal(size=120)
        pd.DataFrame({"x": x, "wage": (x + rng.normal(size=120)) * unit}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    source = (
        f"{{class_path: fedlit.Tables, init_args: {{files: {tmp_path}, target: wage, task: "
        "regression}}"
    )
    run = fedlit.load(
        "quickstart.yaml",
        f"--data.source={source}",
        "--trainer.max_epochs=1",
        f"--trainer.default_root_dir={tmp_path / 'logs'}",
    )
    trained = run.fit(quiet=True)
    results = run.test(quiet=True)
    assert trained.incomparable == results.incomparable == {"rmse", "mae"}
    (line,) = (own for own in str(results).splitlines() if own.startswith("mean"))
    assert "–" in line and any("other units" in own for own in str(results).splitlines())
