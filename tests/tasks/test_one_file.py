"""A task is one file: :mod:`claims` defines one that fedlit does not ship, and everything takes it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from claims import Claims
from federations import different, weights
from mixed import mixed_best
from sites import federate

import fedlit
import fedlit.score
from fedlit.errors import ConfigError, DataError
from fedlit.mixture.export import export
from fedlit.mixture.recommend import recommend
from fedlit.outcomes import OUTCOMES
from fedlit.run.allowed import trusting
from fedlit.run.run import Run
from fedlit.study.compare import compare
from fedlit.tasks import TASKS

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "fedlit"
WARDS = ("north", "south")


def source(folder: Path, *wards: str, task: Any = "claims.Claims") -> dict[str, Any]:
    files = {ward: str(folder / f"{ward}.csv") for ward in wards}
    settings = {"files": files, "target": ["claims", "years"], "task": task}
    return {"class_path": "fedlit.Tables", "init_args": settings}


def content(folder: Path, **data: Any) -> dict[str, Any]:
    network = {"class_path": "fedlit.MLP", "init_args": {"hidden": [8, 8]}}
    client = {"class_path": "fedlit.FederatedClient", "init_args": {"network": network}}
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}}
    trainer = {"max_epochs": 2, "logger": False, "default_root_dir": str(folder)}
    return {
        "seed": 3,
        "data": {"batches": 4, **data},
        "model": {"client": client, "optimizer": optimizer, "threads": 1, "engine": "plain"},
        "exchange": {"federated": ["core"]},
        "trainer": {**trainer, "enable_progress_bar": False},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables in which claims a year depend on age, and a configuration that names the task."""
    folder = tmp_path_factory.mktemp("claims")
    for number, ward in enumerate(WARDS):
        draw = np.random.default_rng(number)
        age = draw.normal(size=240).round(3)
        years = draw.uniform(0.2, 2.0, 240).round(2)
        claims = draw.poisson(years * np.exp(0.8 * age - 0.5))
        frame = pd.DataFrame({"age": age, "km": draw.normal(size=240).round(3)})
        frame.assign(claims=claims, years=years).to_csv(folder / f"{ward}.csv", index=False)
    whole = content(folder, source=source(folder, *WARDS))
    (folder / "claims.yaml").write_text(yaml.safe_dump(whole))
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    run = fedlit.load(str(folder / "claims.yaml"))
    run.fit(quiet=True)
    return run


def rows_of(folder: Path, ward: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{ward}.csv").drop(columns=["claims", "years"]).tail(9)


def test_it_is_trained_tested_and_predicted_with(run: Run, folder: Path) -> None:
    assert {spec.task.name for spec in run.data.specs} == {"claims.Claims"}
    results = run.test(quiet=True)
    frames = run.predict(quiet=True)
    for ward in WARDS:
        frame = frames[ward]
        table = pd.read_csv(folder / f"{ward}.csv").iloc[frame["row"]]
        claims, years = table["claims"].to_numpy(), table["years"].to_numpy()
        rate = frame["predicted"].to_numpy()
        terms = np.where(claims > 0, claims * np.log(np.maximum(claims, 1) / (rate * years)), 0.0)
        deviance = 2 * (terms - claims + rate * years).sum() / years.sum()
        assert results.scores[ward]["claims_deviance"] == pytest.approx(deviance, rel=1e-6)
        np.testing.assert_allclose(frame["predicted_any"], -np.expm1(-rate))


def test_it_is_exported_and_scored_where_it_is_known(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    with trusting("claims"):
        export(str(run.folder), "north", tmp_path / "north")
    rows = rows_of(folder, "north")
    scorer = fedlit.score.load(tmp_path / "north")
    pd.testing.assert_frame_equal(
        scorer.predict(rows), run.client("north").predict(rows), rtol=1e-5
    )
    code = f"import fedlit.score; fedlit.score.load({str(tmp_path / 'north')!r})"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = process.stderr.strip().splitlines()[-1]
    assert DataError.__name__ in last and "claims.Claims" in last  # no folder imports a module


def test_it_is_mixed_by_its_own_loss(folder: Path, tmp_path: Path) -> None:
    parts: dict[str, dict[str, Any]] = {
        "trees": {"go_alone": "extra_trees", "grid": {"n_estimators": [5]}},
        "linear": {"go_alone": "poisson_regression", "grid": {"alpha": [0.01]}},
        "federated": {"config": str(folder / "claims.yaml")},
    }
    mixture = mixed_best(parts, tmp_path)
    assert set(mixture.test(quiet=True).scores) == set(WARDS)
    with trusting("claims"):
        export(str(mixture.folder), "south", tmp_path / "south")
    rows = rows_of(folder, "south")
    pd.testing.assert_frame_equal(
        fedlit.score.load(tmp_path / "south").predict(rows),
        mixture.client("south").predict(rows),
        rtol=1e-5,
    )


def test_it_is_compared_with_local_baselines(folder: Path, tmp_path: Path) -> None:
    study = {
        "about": "Claims.",
        "seeds": "1:2",
        "methods": {"federated": {"config": str(folder / "claims.yaml")}},
        "reference": "federated",
        "baselines": {
            "extra_trees": {"n_estimators": [5], "min_samples_leaf": [3]},
            "forest_of_claims": None,
        },
        "bootstrap": 20,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    comparison = compare(str(tmp_path / "study.yaml"), out=tmp_path / "out", quiet=True)
    scores = comparison.collected.scores
    tested = scores[(scores["metric"] == "claims_deviance") & (scores["split"] == "test")]
    assert {*tested["method"]} >= {"federated", "extra_trees", "forest_of_claims"}
    assert tested["value"].notna().all()


def test_it_gets_an_answer_who_should_join(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"seed": 3, "data": {"source": source(folder, *WARDS)}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    answer = recommend("mine.yaml", budget=1.0, folds=2, tell=lambda line: None)
    assert set(answer.clients) == set(WARDS)
    assert all(own.score.name == "claims_deviance" for own in answer.clients.values())


def test_sites_have_the_bits_of_one_process(folder: Path, tmp_path: Path) -> None:
    task = {"name": "claims.Claims", "targets": "pooled"}
    path = tmp_path / "federation.yaml"
    shared = content(tmp_path)
    del shared["trainer"]["default_root_dir"]
    path.write_text(yaml.safe_dump({**shared, "checkpoint": {"seconds": 0, "best": 0}}))
    sources = {ward: source(folder, ward, task=task) for ward in WARDS}
    _, sites, errors = federate(tmp_path, path, sources)
    assert not errors
    whole_file = tmp_path / "whole.yaml"
    whole_file.write_text(
        yaml.safe_dump(content(tmp_path / "one", source=source(folder, *WARDS, task=task)))
    )
    whole = fedlit.load(str(whole_file))
    whole.fit(quiet=True)
    of_sites = {key: own for site in sites.values() for key, own in weights(site.run).items()}
    assert different(weights(whole), of_sites) == []


def test_a_name_of_its_own_and_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        type("Named", (Claims,), {"name": "claims", "__module__": __name__})
    with pytest.raises(ConfigError, match=r"claims\.Nothing"):
        fedlit.Tables(files={"a": "a.csv"}, target="y", task="claims.Nothing").tables(seed=0)


# ---------------------------------------------------------------------- nobody asks for a name

ORDINARY = "counts"
"""The name of a task that is an ordinary word elsewhere, so only a comparison with it asks."""


def names_asked(path: Path) -> Iterator[str]:
    """Yield where a file names a task of fedlit or its class, or compares the name of a task."""
    classes = {kind.__name__ for kind in (*TASKS.values(), *OUTCOMES.values())}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        words = {getattr(node, key, None) for key in ("id", "attr", "name", "value")}
        texts = {word for word in words if isinstance(word, str)}
        if texts & (classes | TASKS.keys() - {ORDINARY}):
            yield f"{where}: {texts}"
        if isinstance(node, ast.Compare):
            parts = [ast.unparse(part) for part in (node.left, *node.comparators)]
            asks = any(
                part.endswith(("task.name", "['task']", "task_name(table)")) for part in parts
            )
            constant = any(isinstance(part, ast.Constant) for part in node.comparators)
            if asks and (constant or any(repr(name) in " ".join(parts) for name in TASKS)):
                yield f"{where}: {ast.unparse(node)}"


def test_nobody_outside_asks_for_a_task_by_name() -> None:
    asked = [
        line
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ("tasks", "outcomes")
        for line in names_asked(path)
    ]
    assert asked == []
