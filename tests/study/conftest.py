"""One study with everything on, run once for all tests that only look at it."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from federations import TINY

from fedlit.jobs.job import Job
from fedlit.study.basis import Basis
from fedlit.study.compare import Comparison, compare
from fedlit.study.plan import plan_jobs
from fedlit.study.resolve import resolve
from fedlit.study.study import StudyFile

LR = "model.optimizer.lr"
RATES = [0.001, 0.1]
MIXTURE = {
    "folds": 2,
    "mixture": {
        "parts": {
            "trees": {"go_alone": "extra_trees", "grid": {"n_estimators": [5]}},
            "linear": {"go_alone": "logistic_regression", "grid": {"C": [1.0]}},
            "federated": {"config": "tiny.yaml"},
        },
        "weights": "equal",
        "admit": False,
    },
}
METHODS: dict[str, dict[str, Any]] = {
    "local": {"label": "Local", "config": "tiny.yaml", "set": {"exchange.federated": []}},
    "gl": {"label": "Shared <core>", "config": "tiny.yaml", "tune": {LR: RATES}},
    "best": {"config": "mixture.yaml"},
    "given": {"of": "best", "weights": {"trees": 3, "federated": 1}},
    "fitted": {"of": "best", "weights": "fitted", "shrink": 5.0},
    "own": {"of": "best", "parts": ["trees", "linear"], "weights": "fitted", "alone": True},
}
STUDY = {
    "about": "Two small tables.",
    "seeds": "1:2",
    "methods": METHODS,
    "baselines": {
        "trees_and_linear": None,
        "extra_trees": {"n_estimators": [5], "min_samples_leaf": [1, 20]},
        "logistic_regression": {"C": [0.001, 1.0]},
    },
    "choose": "auroc",
    "metrics": ["auroc"],
    "bootstrap": 20,
    "paper": {
        "source": "a made one",
        "values": {"gl": {"wine": {"auroc": 90.0}}},
        "remarks": {"gl": "counted otherwise"},
    },
}


def stored(
    found: Comparison, method: str, name: str = "predictions.parquet", seed: int = 1
) -> pd.DataFrame:
    """A run's own file."""
    path = found.folder / "runs" / method / f"seed_{seed}" / name
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def write_study(folder: Path, name: str = "small", **changed: Any) -> Path:
    """The study's files, with other keys; None for a key that is left out."""
    (folder / "tiny.yaml").write_text(TINY.format(epochs=2), encoding="utf-8")
    (folder / "mixture.yaml").write_text(yaml.safe_dump(MIXTURE, sort_keys=False), encoding="utf-8")
    content = {key: value for key, value in {**STUDY, **changed}.items() if value is not None}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder / f"{name}.yaml"


def jobs_of(file: StudyFile, seeds: list[int], out: Path, basis: Basis | None = None) -> list[Job]:
    """The jobs of a study as it is written."""
    read = basis or Basis(file)
    return plan_jobs(resolve(file, None, read.rows.tasks), seeds, out, read)


@pytest.fixture(scope="session")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("studies"))


@pytest.fixture(scope="session")
def compared(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(str(study_file), out=tmp_path_factory.mktemp("compared"), workers=1, quiet=True)
