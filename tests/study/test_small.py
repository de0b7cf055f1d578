"""The studies of the papers, run small: two seeds, two epochs, data of the real format, made up if
it cannot be had."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from emnist_files import write_emnist
from openml_answers import recorded
from read_files import write_genomes
from sensor_files import write_activity, write_events

from fedlit.data.files import find
from fedlit.data.sources import Heart
from fedlit.errors import DataError
from fedlit.run.load import load
from fedlit.study.compare import Comparison, compare
from fedlit.study.method import Paper
from fedlit.study.parse import load_study
from fedlit.study.study import StudyFile

GLASS = 40675  # of OpenML: nine numbers, two classes, 163 rows
SHORT: dict[str, Any] = {
    "trainer.max_epochs": 2,
    "trainer.limit_train_batches": 3,
    "trainer.check_val_every_n_epoch": 1,
    "exchange.every": "epoch",
    "model.threads": 1,
}
TABLE = {"data.source.source.source.dataset": GLASS, "model.stop": None}
FEW = {"data.source.clients": ["sensor_01", "sensor_10", "sensor_23"]}
PEOPLE = {"data.source.clients": ["subject_01", "subject_10", "subject_30"]}
# made-up rows have other distances; an autoencoder takes long
MIDDLE = {
    "data.source.deal.emd": "middle",
    "data.source.deal.features": "raw",
    "data.source.clients": 3,
}
# study, scenario → what is smaller, or what the small data need
CASES: list[tuple[str, str | None, dict[str, Any]]] = [
    ("covertype", None, {}),
    ("covertype_published", None, {}),
    ("heart", None, {}),
    ("heart_further", "six", {}),
    ("ifedavg", "vehicle", FEW),
    ("ifedavg", "activity", PEOPLE),
    ("chfl", "covertype", {"model.stop": None}),
    ("chfl", "sensorless", TABLE),
    ("chfl", "correlation_median", TABLE),
    ("fedgmcc_emnist", "emd_17", MIDDLE),
    ("fedgmcc_genomes", "populations", {}),
    (
        "fedgmcc_genomes",
        "emd_10",
        {**MIDDLE, "data.source.deal.emd": "highest", "data.source.deal.least": 4},
    ),
    ("fedgmcc_paths", "digits_lowest", {"data.source.source.clients": 3}),
    ("clusters", "digits_middle", {"data.source.source.clients": 3}),
    ("clusters", "covertype_lowest", {"data.source.source.clients": 3}),
    ("populations", "shifted", {"data.source.reads": 30}),
    ("shifts", None, {"data.source.rows": {"test": 2400}}),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, covertype: Path) -> Path:
    """A folder with all data: real files where they are at hand, and made-up ones in the real
    format."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "covertype").symlink_to(covertype / "covertype")
    real = find(Heart.known_files[0])
    if real is None:
        pytest.skip("heart was not found; fedlit data fetch heart gets it")
    (folder / "heart").symlink_to(real.parent)
    for write in (write_events, write_activity, write_emnist, write_genomes):
        write(folder)
    return folder


shipped = cache(load_study)


def small(study: StudyFile, changes: Mapping[str, Any]) -> StudyFile:
    """A study with two seeds and short trainings, without local baselines; a tuned key has its
    first value alone."""
    methods = {}
    for name, method in study.methods.items():
        tuned = {key: values[0] for key, values in method.tune.items()}
        methods[name] = replace(method, tune={}, set={**method.set, **tuned, **SHORT, **changes})
    return replace(study, methods=methods, seeds=[0, 1], baselines={}, search=None, bootstrap=0)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Version 1 of dataset glass2 is inactive")
@pytest.mark.parametrize(
    ("name", "scenario", "changes"), CASES, ids=[f"{own[0]}-{own[1]}" for own in CASES]
)
def test_a_small_run_of_a_papers_study_prints_theirs_and_ours(
    name: str,
    scenario: str | None,
    changes: dict[str, Any],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLIT_DATA", str(data))
    monkeypatch.setenv("FEDLIT_CACHE", str(recorded(tmp_path / "cache", GLASS)))
    study = small(shipped(name), changes)
    found = compare(study, scenario=scenario, out=tmp_path / "out", workers=1, quiet=True)
    assert not found.failures
    results = pd.read_csv(found.folder / "results.csv")
    trained = results[results["method"].isin(list(study.methods))]
    assert set(trained["method"]) == set(study.methods) and set(trained["seed"]) == {0, 1}
    if found.study.paper is not None:
        check_theirs(found.study.paper, found)


def check_theirs(paper: Paper, found: Comparison) -> None:
    """The tables name the paper and its items, and have its figures of the clients and metrics that
    they show."""
    text = (found.folder / "tables.md").read_text("utf-8")
    assert paper.source in text and all(item in text for item in paper.items)
    for clients in paper.values.values():
        for client, scores in clients.items():
            for metric, value in scores.items():
                shown = client in found.clients and metric in found.study.metrics
                assert not shown or f"paper {value:.2f}" in text, (client, metric)


@pytest.mark.parametrize(
    ("name", "scenario", "file"),
    [
        ("ifedavg", "vehicle", "vehicle/event.zip"),
        ("ifedavg", "activity", "UCI HAR Dataset"),
        ("fedgmcc_emnist", "emd_17", "emnist"),
        ("fedgmcc_genomes", "populations", "genomes/asia.fasta"),
        ("fedgmcc_genomes", "emd_10", "genomes/sensg_s.fasta"),
    ],
)
def test_a_study_whose_data_are_missing_says_which_file(
    name: str, scenario: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLIT_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("FEDLIT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError) as caught:
        compare(shipped(name), scenario=scenario, out=tmp_path / "out", quiet=True)
    told = str(caught.value)
    assert file in told and str(tmp_path / "nothing") in told and len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "name", dict.fromkeys(name for name, scenario, _ in CASES if scenario is not None)
)
def test_every_scenario_of_a_paper_can_be_put_together(name: str) -> None:
    """What a scenario says is what its configuration has, once all classes have been built."""
    for scenario, own in shipped(name).scenarios.items():
        study = shipped(name).of(scenario)
        reference = study.methods[study.reference]
        run = load(
            str(study.config(study.reference)),
            overrides=reference.overrides(reference.combinations[0]),
        )
        built = {
            key.replace(".init_args", ""): value for key, value in (run.settings or {}).items()
        }
        plain = {key: value for key, value in own.set.items() if not isinstance(value, dict)}
        assert {key: built.get(key) for key in plain} == plain, scenario  # None is left out
