"""Every shipped configuration runs for two short epochs on its data, from fit to test."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from emnist_files import write_emnist
from openml_answers import recorded
from read_files import write_genomes
from sensor_files import write_activity, write_events

import fedlit
from fedlit.__main__ import main
from fedlit.data.files import find
from fedlit.data.sources import known_sources

GLASS = 40675  # of OpenML: nine numbers, two classes, 163 rows
SMALL: dict[
    str, tuple[Any, str]
] = {  # no file to be had: a small one, and some of its clients for time's sake
    "fedlit.EMNIST": (write_emnist, "3"),
    "fedlit.VehicleSensors": (write_events, "[sensor_01,sensor_10,sensor_23]"),
    "fedlit.Reads": (write_genomes, ""),
    "fedlit.HumanActivity": (write_activity, "[subject_01,subject_10,subject_30]"),
}
LIKE_OTHERS = ("activity_ifedavg", "aloi_chfl", "covertype_apfl", "covertype_centralized", "covertype_chfl",
               "covertype_fedavg", "covertype_fedgmcc", "covertype_ifedavg", "covertype_local", "covertype_tabm",
               "covertype_tabm_local", "digits_fedgmcc", "heart_centralized", "heart_local",
               "populations_fedgmcc", "vehicle_ifedavg")  # fmt: skip
"""Those that take long, and differ in little from others but their data."""
SHIPPED = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
# those: tests/mixture
CONFIGS = [path for path in SHIPPED if "mixture" not in yaml.safe_load(path.read_text())]


def innermost(config: Path) -> tuple[dict[str, Any], str]:
    """A configuration's source, without those around it, and its key."""
    source = yaml.safe_load(config.read_text())["data"]["source"]
    key = "data.source"
    while "source" in source.get("init_args", {}):  # a source of a source
        source = source["init_args"]["source"]
        key = f"{key}.init_args.source"
    return source, key


def need_data(config: Path) -> None:
    source, _ = innermost(config)
    if source["class_path"] in SMALL:
        return
    name, known = next(
        (name, own)
        for name, own in known_sources().items()
        if f"fedlit.{own.__name__}" == source["class_path"]
    )
    clients = source.get("init_args", {}).get("clients", ["cleveland", "sa", "faisalabad"])
    for file in known.known_files:
        if find(file) is None and (name != "heart" or Path(file.path).stem in clients):
            pytest.skip(f"{file.path} was not found; fedlit data fetch {name} gets it")


@pytest.mark.filterwarnings("ignore:Version 1 of dataset glass2 is inactive")
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(path, marks=[pytest.mark.full] if path.stem in LIKE_OTHERS else [])
        for path in CONFIGS
    ],
    ids=lambda path: path.stem,
)
def test_two_epochs_and_a_test(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    need_data(config)
    monkeypatch.chdir(tmp_path)
    source, key = innermost(config)
    recorded_answer = []
    # a recorded small answer in place of hundreds of megabytes
    if source["class_path"] == "fedlit.OpenML":
        folder = recorded(tmp_path, GLASS)
        recorded_answer = [f"--{key}.init_args.dataset={GLASS}", f"--{key}.init_args.root={folder}"]
    elif source["class_path"] in SMALL:
        write, clients = SMALL[source["class_path"]]
        write(tmp_path / "small")
        recorded_answer = [f"--{key}.init_args.root={tmp_path / 'small'}"]
        recorded_answer += [f"--data.source.init_args.clients={clients}"] if clients else []
    elif source["class_path"] == "fedlit.Covertype":
        recorded_answer = [f"--{key}.init_args.root={request.getfixturevalue('covertype')}"]
    elif source.get("init_args", {}).get("item") == "Exam":
        recorded_answer = [f"--{key}.init_args.least_rows=90"]  # the largest schools
    arguments = ["--config", config.name, *recorded_answer]
    short = [
        "--trainer.max_epochs",
        "2",
        "--trainer.limit_train_batches",
        "8",
        "--model.threads",
        "1",
    ]
    every = (yaml.safe_load(config.read_text()).get("exchange") or {}).get("every")
    if isinstance(every, dict) and every.get("epochs", 0) > 2:  # at least one exchange
        short += ["--exchange.every", "{epochs: 2}"]
    assert main(["fit", *arguments, *short]) == 0
    assert main(["test", *arguments]) == 0
    results = json.loads(
        (tmp_path / "lightning_logs" / config.stem / "version_0" / "test.json").read_text()
    )
    faults = yaml.safe_load(config.read_text())["data"].get("mutations", [])
    for name, scores in results["clients"].items():
        assert scores["rows"] > 0 and math.isfinite(scores["loss"]), name
        # of a recorded table that is dealt to ten clients, each has a handful of rows
        if "rmse" in scores:  # of a target of 25 to 346, or of standardised marks
            low, high = (0.1, 2) if config.stem.startswith("sites_") else (30, 200)
            assert low < scores["rmse"] < high, name
            continue
        if "integrated_brier" in scores:  # twice that of a coin
            assert 0 < scores["integrated_brier"] < 0.5, name
            continue
        assert scores["rows"] < 20 or (0 if faults else 0.3) < scores["auroc"] <= 1, name


COVERTYPE = ("comanche", "neota", "poudre", "rawah")
HEART = ("cleveland", "sa", "faisalabad")
PAPERS = {  # clients, parameters of each, how many of them are federated
    "covertype_gl": (COVERTYPE, (915_954, 915_423, 915_600, 915_600), 717_640),
    "covertype_local": (COVERTYPE, (915_954, 915_423, 915_600, 915_600), 0),
    "covertype_fedavg": (COVERTYPE, (916_131,) * 4, 916_131),
    "heart_gl": (HEART, (448_339, 415_211, 440_057), 298_688),
    "heart_local": (HEART, (448_339, 415_211, 440_057), 0),
    "heart_fedavg": (HEART, (597_415,) * 3, 597_415),
}


@pytest.mark.parametrize("config", PAPERS)
def test_describe_gives_the_papers_parameter_counts(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need_data(next(path for path in CONFIGS if path.stem == config))
    assert main(["describe", "--config", f"{config}.yaml", "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["clients"]
    clients, parameters, federated = PAPERS[config]
    found = {name: (own["parameters"], own["federated"]) for name, own in plan.items()}
    assert found == {
        name: (count, federated) for name, count in zip(clients, parameters, strict=True)
    }
    if config == "covertype_gl":
        assert plan["comanche"]["features"] == 11 and plan["comanche"]["classes"] == [
            1,
            2,
            3,
            5,
            6,
            7,
        ]
        assert plan["comanche"]["bytes_per_exchange"] == 2_870_560


SUMMED = (
    "activity_ifedavg",
    "covertype_apfl",
    "covertype_ifedavg",
    "heart_sites_ifedavg",
    "vehicle_ifedavg",
)


@pytest.mark.parametrize("config", SUMMED)
def test_ifedavgs_step_is_the_programs_sum_over_a_batch(config: str) -> None:
    settings = yaml.safe_load(next(path for path in CONFIGS if path.stem == config).read_text())
    batch_size = settings["data"]["batch_size"]
    assert settings["model"]["optimizer"]["init_args"]["lr"] == pytest.approx(0.002 * batch_size)


def test_covertypes_fedavg_learns_beside_a_constant_column(covertype: Path, tmp_path: Path) -> None:
    small = ["width=8", "global_features=2", "blocks=1", "heads=2"]
    quick = [
        "trainer.max_epochs=16",
        "trainer.logger=false",
        "trainer.enable_checkpointing=false",
        "data.batches=5",
    ]
    arguments = [f"--model.client.network.{setting}" for setting in small] + [
        f"--{setting}" for setting in quick
    ]
    arguments += [f"--data.source.root={covertype}", f"--trainer.default_root_dir={tmp_path}"]
    run = fedlit.load("covertype_fedavg.yaml", *arguments)
    scores = run.fit(quiet=True).scores
    # with averaged statistics of wilderness_area, which is constant at each client, all four are at
    # 0.5
    assert all(client["auroc"] > 0.6 for client in scores.values())
