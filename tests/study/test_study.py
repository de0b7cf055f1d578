"""What a study's file may say, and that the shipped ones can be run."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from study.conftest import METHODS, write_study

from fedlit.cli.study import compare as study_command
from fedlit.errors import ConfigError
from fedlit.run.config import STUDIES, known_configs
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.study import contents
from fedlit.study.basis import Basis
from fedlit.study.compare import compare
from fedlit.study.method import Method, Scenario
from fedlit.study.parse import load_study
from fedlit.study.resolve import resolve
from fedlit.study.rows import Rows
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import StudyFile
from fedlit.study.trained import planned_methods
from fedlit.tasks import Classification, Survival

SMALL = "methods:\n  local: {config: quickstart.yaml}\nseeds: 1\n"
LR = "model.optimizer.lr"


def study(tmp_path: Path, text: str) -> StudyFile:
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    return load_study(str(tmp_path / "mine.yaml"))


def test_seeds_include_both_ends(tmp_path: Path) -> None:
    assert parse_seeds("8:28") == list(range(8, 29)) and len(parse_seeds("0:100")) == 101
    assert parse_seeds("3") == parse_seeds(3) == [3] and parse_seeds("1, 5:6") == [1, 5, 6]
    wrong: Any
    for wrong in ("", "8:", "28:8", "a", "-1", "1,1", []):
        with pytest.raises(ConfigError, match="seeds"):
            parse_seeds(wrong)
    # in a file 8:28 is not taken for a number of base 60
    written = study(tmp_path, SMALL.replace("seeds: 1", "seeds: 8:28"))
    assert parse_seeds(written.seeds) == list(range(8, 29))


def tuned(**tune: Any) -> str:
    methods = {
        "local": {"config": "quickstart.yaml", "set": {"trainer.max_epochs": 2}, "tune": tune}
    }
    return yaml.safe_dump({"seeds": 1, "methods": methods})


# what a file says → the key, and the word, that a refusal names
REFUSED: list[tuple[str, str, str]] = [
    ("seeds: 1\n", "methods", ""),
    (SMALL + "nonsense: 1\n", "nonsense", ""),
    (SMALL + "reference: alone\n", "reference", "'alone'"),
    (SMALL + "checkpoint: newest\n", "checkpoint", "newest"),
    (SMALL + "folds: 1\n", "folds", "1"),
    (SMALL + "matters: -1\n", "matters", "-1"),
    (SMALL + "small: -1\n", "small", "-1"),
    (SMALL + "metrics: []\n", "metrics", ""),
    (SMALL + "tune_seeds: 1\n", "tune_seeds", "[1]"),
    (
        SMALL + "search: {method: gl, space: {exchange.rate: {choices: [1]}}}\n",
        "search.method",
        "'gl'",
    ),
    (
        SMALL + "search: {method: local, space: {exchange.rat: {choices: [1]}}}\n",
        "search.space.exchange.rat",
        "rate",
    ),
    (SMALL + "scenarios: {a b: {}}\n", "scenarios", "'a b'"),
    (SMALL.replace("local", "best_alone") + "reference: best_alone\n", "methods", "best_alone"),
    (SMALL.replace("local", "../x") + "reference: ../x\n", "methods", "../x"),
    (SMALL.replace("seeds: 1", "seeds: 8-28"), "seeds", "8-28"),
    (SMALL + "seeds: 2\n", "seeds", "twice"),
    (SMALL + "name: x\n", "name", ""),
    (SMALL.replace("quickstart.yaml", "quikstart"), "methods.local.config", "quickstart"),
    (
        SMALL.replace("{config: quickstart.yaml}", "quickstart"),
        "methods.local",
        "config: …",
    ),
    (SMALL.replace("}", ", reference: gl}"), "methods.local.reference", "'gl'"),
    (SMALL.replace("}", ", of: local}"), "methods.local", "both"),
    (SMALL.replace("}", ", sett: {}}"), "methods.local", "'set'"),
    (SMALL + "scenarios: {a: {sets: {}}}\n", "scenarios.a", "'set'"),
    (SMALL + "paper: {source: x, values: {gl: {a: {auroc: b}}}}\n", "paper.values.gl.a.auroc", "b"),
    (tuned(**{LR: []}), f"methods.local.tune.{LR}", "[]"),
    (tuned(**{LR: 0.1}), "methods", "0.1"),
    (tuned(**{LR: [0.1, 0.1]}), f"methods.local.tune.{LR}", "twice"),
    (tuned(**{LR: [dt.date(2026, 1, 2)]}), f"methods.local.tune.{LR}", ""),
    (tuned(**{"trainer.max_epochs": [1, 2]}), "methods.local.tune.trainer.max_epochs", "set"),
    (tuned(seed=[1, 2]), "methods.local.tune.seed", "rows"),
    (tuned(**{"data.source.init_args.test": [0.2, 0.3]}), "tune.data.source", "rows"),
    (tuned(config=["a", "b"]), "methods.local.tune.config", ""),
]


@pytest.mark.parametrize(("text", "key", "word"), REFUSED)
def test_a_wrong_study_is_refused_with_its_file_and_key(
    tmp_path: Path, text: str, key: str, word: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        study(tmp_path, text)
    told = str(caught.value)
    assert "mine.yaml" in told and key in told and word in told and len(told) < 1000


def test_a_key_without_a_value_has_its_default(tmp_path: Path) -> None:
    text = SMALL.replace("}", ", of:, pooled:}") + "small:\ntune:\nreference:\nbaselines:\n"
    assert study(tmp_path, text) == study(tmp_path, SMALL)


def test_configurations_of_a_file_stay_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("seed: 1\n", encoding="utf-8")
    assert (
        study(tmp_path, SMALL.replace("quickstart", "own")).config("local") == tmp_path / "own.yaml"
    )
    source = {"class_path": "fedlit.Dirichlet", "init_args": {"alpha": 0.1}}
    values = ["torch.optim.Adam", {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}]
    content = yaml.safe_load(SMALL) | {
        "scenarios": {"skewed": {"set": {"data.source.deal": source}, "about": "S."}}
    }
    content["methods"]["local"]["tune"] = {"model.optimizer": values}
    own = study(tmp_path, yaml.safe_dump(content))
    assert own.scenarios == {"skewed": Scenario(set={"data.source.deal": source}, about="S.")}
    assert own.methods["local"].tune == {"model.optimizer": values}
    with pytest.raises(ConfigError, match=r"scenarios: .*'skewd'"):
        study_command(str(tmp_path / "mine.yaml"), scenarios="skewed,skewd", out=str(tmp_path))
    assert not (tmp_path / "skewed").exists()  # refused before the first was run


@pytest.mark.parametrize(
    "name",
    [
        # long ones
        pytest.param(
            name, marks=[pytest.mark.full] if Path(name).stem in ("best", "clusters") else []
        )
        for name in known_configs(STUDIES)
    ],
)
def test_every_method_of_a_shipped_study_can_be_put_together(name: str) -> None:
    shipped = load_study(name)
    # configurations are the scenarios'
    if not all(how.config or how.of for how in shipped.methods.values()):
        shipped = shipped.of(next(iter(shipped.scenarios)))
    # all configurations are read, and have the same rows
    planned = planned_methods(shipped, Basis(shipped))
    optimizer = ("model.optimizer.class_path", "model.optimizer.init_args.lr")
    assert {own.method for own in planned} == {
        name for name, own in shipped.methods.items() if own.of is None
    }
    paced = {name for name, how in shipped.methods.items() if LR in how.set}  # a paper's rate
    same = [own for own in planned if own.method not in paced and LR not in (own.settings or {})]
    plain = [own.made_of for own in same if "mixture" not in own.made_of]
    alike = [
        {key: value for key, value in own.items() if key.startswith(optimizer)} for own in plain
    ]
    assert all(own == alike[0] for own in alike)  # with the same optimizer
    if shipped.paper is not None:
        assert set(shipped.paper.values) <= set(shipped.methods)
        assert set(shipped.paper.remarks) <= {"all", *shipped.methods}


def test_a_restricted_study_keeps_its_reference() -> None:
    part = load_study("covertype").restricted(["gl"], ["extra_trees"])
    own = resolve(part, None, {"spruce": Classification})
    assert list(own.methods) == ["local", "gl"] and own.alone == ["local", "extra_trees"]
    assert part.search is not None
    assert "best_alone" in own.labels and "best_federated" in own.labels
    without = resolve(part.restricted(None, []), None, {"spruce": Classification})
    assert "best_alone" not in without.labels
    frozen = load_study("heart").restricted(["gl_frozen"], [])
    assert list(frozen.methods) == ["local", "local_frozen", "gl_frozen"] and frozen.search is None
    assert (
        frozen.reference_of("gl_frozen") == "local_frozen" and frozen.reference_of("gl") == "local"
    )


def test_a_scenario_changes_what_methods_do_not_set_themselves() -> None:
    methods = {
        "local": Method("a.yaml", set={"exchange.federated": []}),
        "avg": Method("a.yaml", set={"data.batches": 5}),
    }
    given = {
        "many": Scenario("b.yaml", {"data.batches": 9, "seed": 3}, "Many.", tune={LR: [1]}),
        "few": Scenario(),
    }
    whole = StudyFile(
        methods,
        seeds=[1],
        about="What if?",
        scenarios=given,
        name="parts",
        tune={LR: [2], "a": [3]},
    )
    many = whole.of("many")
    few = whole.of("few")
    assert {name: own.config for name, own in many.methods.items()} == {
        "local": "b.yaml",
        "avg": "b.yaml",
    }
    assert many.methods["local"].set == {"data.batches": 9, "seed": 3, "exchange.federated": []}
    assert many.methods["avg"].set == {"data.batches": 5, "seed": 3}
    assert (many.about, many.name, many.scenarios) == ("What if? Many.", "parts/many", {})
    assert few.methods == methods and many.tune == {LR: [1], "a": [3]}
    complete = resolve(whole, "many", {"x": Classification})
    assert complete == resolve(many, None, {"x": Classification})
    assert complete.methods["avg"].tune == {LR: [1], "a": [3]}
    for wrong in (lambda: whole.of("man"), lambda: compare(whole)):
        with pytest.raises(ConfigError, match="many, few"):
            wrong()


def test_what_is_read_is_kept_but_for_somebody_elses_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedlit import FederatedClient\n\nclass Mine(FederatedClient): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = {"config": "tiny.yaml", "set": {"model.client.class_path": "mine.Mine"}}
    methods = {"local": METHODS["local"], "gl": {"config": "tiny.yaml"}, "mine": own}
    asked = load_study(str(write_study(tmp_path, methods=methods, baselines=[])))
    built: list[str] = []

    def counted(config: str, overrides: dict[str, Any]) -> Run:
        built.append(overrides.get("model.client.class_path", ""))
        return load(config, overrides=overrides)

    monkeypatch.setattr(contents, "load", counted)
    first = Basis(asked, tmp_path)
    planned = planned_methods(asked, first)
    first.contents.keep()
    assert planned_methods(asked, Basis(asked, tmp_path)) == planned
    assert built == ["", "", "mine.Mine", "mine.Mine"]
    (tmp_path / "tiny.yaml").write_text(
        (tmp_path / "tiny.yaml").read_text().replace("[8, 8]", "[9, 9]")
    )
    assert planned_methods(asked, Basis(asked, tmp_path)) != planned and len(built) == 7


def test_the_fingerprint_of_rows_has_weights_and_groups(tmp_path: Path) -> None:
    """Neither is a feature, and the configuration names only their columns."""
    frame = pd.DataFrame(
        {
            "age": [40 + row % 13 for row in range(60)],
            "person": [f"p{row // 3:02}" for row in range(60)],
            "counts": [1 + row % 4 for row in range(60)],
            "outcome": [row % 2 for row in range(60)],
        }
    )
    path = tmp_path / "north.csv"
    source = {
        "files": {"north": str(path)},
        "target": "outcome",
        "weight": "counts",
        "split": {"group": "person"},
    }

    def written(frame: pd.DataFrame) -> Rows:
        frame.to_csv(path, index=False)
        return Rows("quickstart.yaml", {
            "data.source.class_path": "fedlit.Tables",
            **{f"data.source.init_args.{key}": value for key, value in source.items()},
        })  # fmt: skip

    rows = written(frame)
    fingerprint = rows.fingerprint
    assert written(frame).fingerprint == fingerprint
    assert written(frame.assign(counts=frame["counts"] + 1)).fingerprint != fingerprint
    # The order of the persons is the same, and so are the splits.
    renamed = written(frame.assign(person=frame["person"].str.replace("p", "q")))
    for split, chosen in rows.tables[0].splits.items():
        assert np.array_equal(renamed.tables[0].splits[split], chosen)
    assert renamed.fingerprint != fingerprint


def test_a_baseline_is_called_as_the_task_of_clients_calls_it() -> None:
    file = StudyFile({"local": Method("quickstart")}, seeds="1:2", baselines={"mean": None})
    labels = {task: task.go_alone["mean"].label for task in (Classification, Survival)}
    for task, label in labels.items():
        assert resolve(file, None, {"north": task}).labels["mean"] == label
    of_both = resolve(file, None, {"north": Classification, "south": Survival})
    assert of_both.labels["mean"] not in labels.values()
