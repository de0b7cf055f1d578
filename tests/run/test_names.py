"""A client's name is text wherever it stands, whatever YAML would take it for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlit import load, yaml_text
from fedlit.__main__ import main
from fedlit.names import plain
from fedlit.run.arguments import read
from fedlit.run.config import flatten, read_yaml
from fedlit.run.layers import Layer, laid
from fedlit.run.resolved import Resolved

NAMES = ("007", "101", "1e3", "2020", "no", "null", "true")
RUN = "lightning_logs/walk/version_0"
OVER = """
data:
  steps: {101: 2, 1e3: 2, no: 3, "*": 2}
  source: {init_args: {positive: {no: No, "*": Yes}, split: {101: random, 1e3: random, null: random}}}
model:
  overrides: {no: {gradient_clip_val: 1.0}, 1e3: {gradient_clip_val: 0.5}, null: {gradient_clip_val: 2}}
"""
STUDY = """
methods:
  local: {config: walk.yaml, set: {trainer.max_epochs: 1, exchange.federated: [], data.leave_out: [2020, null]}}
  core: {config: walk.yaml, set: {trainer.max_epochs: 1, data.leave_out: [2020, null]}}
seeds: 1
"""


def rows(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2))
    sick = np.where(rng.random(60) < 1 / (1 + np.exp(-x[:, 0])), "Yes", "No")
    return pd.DataFrame(
        {"age": (50 + 10 * x[:, 0]).round(1), "crea": (80 + 15 * x[:, 1]).round(1), "sick": sick}
    )


def test_names_like_numbers_can_be_used_in_all_commands(here: Path) -> None:
    (here / "sites").mkdir()
    for number, name in enumerate(NAMES):
        rows(number).to_csv(here / "sites" / f"{name}.csv", index=False)
    Path("over.yaml").write_text(OVER)
    Path("study.yaml").write_text(STUDY)
    configs = ["--config", "walk.yaml", "--config", "over.yaml", "--name", "walk"]
    typed = ["--data.leave_out", "2020", "--board.chosen", "101", "--data.steps.007", "2"]
    quick = ["--trainer.enable_progress_bar", "false"]
    for command in (
        ["init", "sites", "--target", "sick", "--out", "walk.yaml"],
        ["check", "walk.yaml"],
        ["fit", *configs, *typed, *quick, "--trainer.max_epochs", "1"],
        ["test", *configs],
        ["test", f"{RUN}/config.yaml"],
        ["predict", *configs],
        ["predict", "--run", RUN, "--client", "1e3", "--data", "sites/1e3.csv"],
        ["export", "--run", RUN, "--client", "no", "--out", "exported"],
        ["fit", *configs, "--ckpt_path", "last", "--trainer.max_epochs", "2"],
        ["compare", "study.yaml"],
    ):
        assert main(command) == 0, command
    run = load(f"{RUN}/config.yaml")
    assert run.data.steps == {
        "101": 2,
        "1e3": 2,
        "no": 3,
        "*": 2,
        "007": 2,
    } and run.data.leave_out == ["2020"]
    plan = run.describe()
    assert set(plan.clients) == {*NAMES} - {"2020"}
    limits = {name: client.gradient_clip_val for name, client in run.loop.clients.items()}
    assert limits == {"007": None, "101": None, "1e3": 0.5, "no": 1.0, "null": 2.0, "true": None}
    assert {table.name: table.positive for table in run.data.tables()}["no"] == "No"
    scores = json.loads(Path(RUN, "test.json").read_text())
    assert all(name in json.dumps(scores) for name in set(NAMES) - {"2020"})


OTHERS = (
    "\x85",
    "a\u2028b",
    "a\u2029",
    "8:28",
    "1e-3",
    "1_000",
    "0x1f",
    "off",
    "~",
    ".5",
    "2024-01-02",
    "=",
    "north",
)


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_a_name_is_read_back_as_it_was_written(name: str) -> None:
    content = {
        "data": {"steps": {name: 5}, "leave_out": [name, "b"], "source": {"positive": name}},
        "seed": 3,
    }
    text = yaml_text.dump(content)
    assert yaml_text.load(text) == yaml_text.load_dumped(text) == content
    assert yaml.safe_load(text)["data"]["leave_out"] == [name, "b"], "any other reader agrees"


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_takes_a_name_as_it_is(name: str) -> None:
    """One name is a list of one; a bare null leaves a key unset, as everywhere."""
    typed = [
        "--config",
        "quickstart",
        "--data.leave_out",
        f"[{name}]",
        "--model.overrides",
        f"{{{name}: {{}}}}",
    ]
    content = read("describe", [*typed, f"--data.steps.{name}", "3"]).content
    assert content["data"]["leave_out"] == [name] and content["data"]["steps"] == {name: "3"}
    assert list(content["model"]["overrides"]) == [name]
    bare = read("describe", ["--config", "quickstart", "--data.leave_out", name]).content["data"][
        "leave_out"
    ]
    assert bare == (None if name == "null" else [name])


def test_labels_levels_and_words_are_what_stands_there(here: Path) -> None:
    table = {
        "files": {"a": {"path": "a.csv", "missing": ["no", 99]}},
        "target": "y",
        "positive": "1e3",
    }
    Path("a.csv").write_text("grade,y\n" + "".join(f"{grade},{y}\n" for grade, y in GRADES))
    Path("a.yaml").write_text(
        "data: {source: {class_path: fedlit.Tables, init_args: {files: {a: {path: a.csv, missing: "
        "[no, 99]}}, target: y, positive: 1e3, types: {grade: [off, 1e1, on]}}}}\nmodel: {client: "
        "{class_path: fedlit.FederatedClient, init_args: {network: fedlit.MLP}}}\n"
    )
    own = read_yaml(Path("a.yaml"))["data"]["source"]["init_args"]
    assert {key: own[key] for key in table} == table and own["types"] == {
        "grade": ["off", "1e1", "on"]
    }
    (made,) = load("a.yaml").data.tables()
    assert made.positive == 1000 and set(made.target) == {5, 1000}
    assert made.features["grade"].isna().sum() == 10 and set(made.features["grade"].dropna()) == {
        0,
        1,
        2,
    }


GRADES = [(grade, y) for grade in ("off", "1e1", "on", "no") for y in ["1e3", "5"] * 5]


def source(**settings: Any) -> Layer:
    return Layer({"data": {"source": {"class_path": "fedlit.Tables", "init_args": settings}}})


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ({"positive": "Yes"}, {"positive": {"north": "Yes"}}, {"positive": {"north": "Yes"}}),
        ({"positive": {"north": "Yes"}}, {"positive": "Yes"}, {"positive": "Yes"}),
        ({"target": "Churn"}, {"target": {"*": "Left"}}, {"target": {"*": "Left"}}),
        ({"files": {"a": "a.csv"}}, {"files": "Data"}, {"files": "Data"}),
        ({"types": {"a": "Numeric"}}, {"types": {"a": ["X", "Y"]}}, {"types": {"a": ["X", "Y"]}}),
    ],
)
def test_a_label_over_a_mapping_is_no_class(
    below: dict[str, Any], above: dict[str, Any], expected: dict[str, Any]
) -> None:
    (key,) = above
    typed = Layer({f"data.source.{key}": above[key]})
    for over in (source(**above), typed):
        assert laid([source(**below), over])["data"]["source"]["init_args"] == expected


def test_a_class_by_its_short_name_keeps_its_arguments() -> None:
    below = Layer(
        {"model": {"client": {"class_path": "fedlit.FedProx", "init_args": {"network": "MLP"}}}}
    )
    network = laid([below, Layer({"model.client.network.width": 3})])["model"]["client"][
        "init_args"
    ]["network"]
    assert network == {"class_path": "MLP", "init_args": {"width": 3}}


def test_a_key_of_the_same_name_elsewhere_keeps_its_numbers() -> None:
    """The weights of models, and the arguments of classes."""
    content = {
        "weights": {"federated": 1, "target": 2, "name": 3},
        "model": {"client": {"init_args": {"split": 0.5}}},
    }
    assert yaml_text.load(yaml.safe_dump(content)) == content


def test_a_fold_has_the_values_of_its_run_as_they_were_written() -> None:
    whole = Resolved(
        {"data": {"source": {"drop": True, "positive": [1, "7"]}, "fold": 0}, "a": None}
    )
    fold = whole.changed({"data.fold": 1, "name": "fold_1"})
    assert yaml.safe_load(fold.text) == {
        "data": {"source": {"drop": True, "positive": [1, "7"]}, "fold": 1}, "a": None, "name": "fold_1",
    }  # fmt: skip
    # as a saved file with it is read: names are text, and keys without a value are none
    saved = dict(flatten(plain(yaml_text.load(whole.text))))
    assert whole.keys == saved and saved["data.source.positive"] == ["1", "7"] and "a" not in saved
    assert Resolved({"seed": 8}, "# made from x").text == "# made from x\nseed: 8\n"


def test_a_class_keeps_what_stands_beside_its_arguments() -> None:
    spec = {"class_path": "mine.Net", "init_args": {"depth": 1}, "dict_kwargs": {"width": 8}}
    changed = laid([Layer({"model": {"client": spec}}), Layer({"model.client.depth": 2})])
    assert changed["model"]["client"] == {**spec, "init_args": {"depth": 2}}
    over = {"init_args": {"depth": 3}, "dict_kwargs": {"width": 9}}
    changed = laid([Layer({"model": {"client": spec}}), Layer({"model": {"client": over}})])
    assert changed["model"]["client"] == {"class_path": "mine.Net", **over}
