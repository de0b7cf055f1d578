"""What is said of networks that are no better than the simplest models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedlit
from fedlit.run.caveats import weak_networks
from fedlit.run.run import Run
from fedlit.train.results import Results


def load(folder: Path, *more: str) -> Run:
    words = ("--data.source.init_args.clients=[breast_cancer]", f"--trainer.default_root_dir={folder}", *more)
    return fedlit.load("quickstart.yaml", *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Results]:
    run = load(tmp_path_factory.mktemp("trained"), "--trainer.max_epochs=20")
    run.fit(quiet=True)
    return run, run.test(quiet=True)


def test_an_untrained_network_is_said_and_a_trained_one_is_not(tmp_path: Path, trained: tuple[Run, Results]) -> None:
    run = load(tmp_path, "--trainer.max_epochs=1", "--model.optimizer.lr=0")
    run.fit(quiet=True)
    results = run.test(quiet=True)
    (note,) = results.weak
    assert note.startswith("breast_cancer: ")
    if "logistic regression" in note:  # the oracle: scikit-learn on the same rows
        (client,) = run.data.clients
        x, y = client.train.x.numpy(), client.train.y.numpy()
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
    scores = {name: float(one.get(name, value)) for name, value in results.scores["breast_cancer"].items()}
    (note,) = weak_networks(run.data, replace(results, scores={"breast_cancer": scores}))
    assert "one class" in note
    many = SimpleNamespace(clients=run.data.clients * 23)
    assert weak_networks(many, results)[-1].startswith("3 more clients' networks")  # type: ignore[arg-type]


def test_errors_in_other_units_have_no_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, unit in (("north", 1.0), ("south", 100.0)):
        x = rng.normal(size=120)
        pd.DataFrame({"x": x, "wage": (x + rng.normal(size=120)) * unit}).to_csv(tmp_path / f"{name}.csv", index=False)
    source = f"{{class_path: fedlit.Tables, init_args: {{files: {tmp_path}, target: wage, task: regression}}}}"
    run = fedlit.load(
        "quickstart.yaml",
        f"--data.source={source}",
        "--trainer.max_epochs=1",
        f"--trainer.default_root_dir={tmp_path / 'logs'}",
    )
    run.fit(quiet=True)
    results = run.test(quiet=True)
    assert results.apart == {"rmse", "mae"}
    (line,) = (own for own in str(results).splitlines() if own.startswith("mean"))
    assert "–" in line and any("other units" in own for own in str(results).splitlines())
