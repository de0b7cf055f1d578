"""A small study, run once for all tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlit.study.compare import Comparison, compare

STUDY = """\
about: Two small tables.
seeds: 1:2
leave_one_out: true  # of two clients the other goes alone: nothing more is trained
methods:
  local: {label: Local, config: quickstart.yaml, set: {exchange.federated: [], SMALL}}
  gl: {label: "Shared <core>", config: quickstart.yaml, set: {SMALL}}
baselines:
  extra_trees: {n_estimators: [5], min_samples_leaf: [1, 20]}
  logistic_regression: {C: [0.001, 1.0]}
bootstrap: 20
paper:
  source: a made one
  values: {gl: {wine: {auroc: 90.0}}}
  remarks: {gl: counted otherwise}
"""
SMALL = "data.source.init_args.clients: [wine, breast_cancer], trainer.max_epochs: 2, board.confusion_matrices: 0"
STUDY = STUDY.replace("SMALL", SMALL)


@pytest.fixture(scope="session")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("studies") / "small.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def compared(study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(str(study_file), out=tmp_path_factory.mktemp("compared"), jobs=1, quiet=True)
