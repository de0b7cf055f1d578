"""What a study's file may say, and that the shipped ones can be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedlit.cli.study import compare as study_command
from fedlit.errors import ConfigError
from fedlit.mixture.settings import is_mixture
from fedlit.run.config import known_configs
from fedlit.run.load import load
from fedlit.study.compare import compare
from fedlit.study.method import Method, Scenario
from fedlit.study.mixtures import mixture_settings, must_have_parts
from fedlit.study.parse import load_study
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import Study
from fedlit.tasks import Classification

SMALL = "methods:\n  local: {config: quickstart.yaml}\nseeds: 1\n"


def study(tmp_path: Path, text: str) -> Study:
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    return load_study(str(tmp_path / "mine.yaml"))


def test_seeds_include_both_ends() -> None:
    assert parse_seeds("8:28") == list(range(8, 29)) and len(parse_seeds("0:100")) == 101
    assert parse_seeds("3") == parse_seeds(3) == [3] and parse_seeds("1, 5:6") == [1, 5, 6]
    for wrong in ("", "8:", "28:8", "a", "-1", "1,1", []):
        with pytest.raises(ConfigError, match="seeds: expected"):
            parse_seeds(wrong)


def test_seeds_of_a_file_are_not_taken_for_a_number_of_base_60(tmp_path: Path) -> None:
    assert study(tmp_path, SMALL.replace("seeds: 1", "seeds: 8:28")).seeds == list(range(8, 29))
    assert study(tmp_path, SMALL.replace("seeds: 1", "seeds: [4, 2]")).seeds == [4, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: 1\n", "methods"),
        (SMALL + "nonsense: 1\n", "nonsense"),
        (SMALL + "reference: alone\n", "reference: expected a method named alone"),
        (SMALL + "baselines: [extra_tree]\n", "Did you mean 'extra_trees'?"),
        (SMALL + "metrics: [roc]\n", "metrics: expected some of auroc"),
        (SMALL + "checkpoint: newest\n", "checkpoint"),
        (SMALL.replace("local", "best_alone") + "reference: best_alone\n", "that no baseline has"),
        (SMALL.replace("local", "../x") + "reference: ../x\n", "expected names of letters"),
        (SMALL.replace("seeds: 1", "seeds: 8-28"), "such as 8:28"),
        (SMALL + "seeds: 2\n", "stands twice"),
        (SMALL + "name: x\n", "named after its file"),
    ],
)
def test_a_wrong_study_is_refused_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study(tmp_path, text)
    assert message in str(caught.value) and str(tmp_path / "mine.yaml") in str(caught.value)
    assert len(str(caught.value)) < 700


def test_configurations_beside_the_study_are_found(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("seed: 1\n", encoding="utf-8")
    own = study(tmp_path, SMALL.replace("quickstart.yaml", "own.yaml"))
    assert own.config("local") == tmp_path / "own.yaml"
    with pytest.raises(ConfigError, match="nosuch"):
        study(tmp_path, SMALL.replace("quickstart", "nosuch")).config("local")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if Path(name).stem in ("best", "clusters") else [])  # long ones
        for name in known_configs(studies=True)
    ],
)
def test_every_method_of_a_shipped_study_can_be_put_together(name: str) -> None:
    shipped = load_study(name)
    if not all(how.config or how.of for how in shipped.methods.values()):  # configurations are the scenarios'
        shipped = shipped.of(next(iter(shipped.scenarios)))
    optimizer = ("model.optimizer.class_path", "model.optimizer.init_args.lr")
    alike, sources = list[dict[str, Any]](), list[dict[str, Any]]()
    for method, how in shipped.methods.items():
        if how.of is not None:
            must_have_parts(shipped, method)
            continue
        config, arguments, mixed = shipped.config(method), how.arguments(), is_mixture(shipped.config(method))
        parts = mixture_settings(config, arguments).parts.values() if mixed else ()
        for file, typed in [(part.config, part.arguments) for part in parts] or [(config, arguments)]:
            run = load(str(file), *typed, "--seed=3")
            assert run.seed == 3
            assert run.settings is not None
            sources.append({key: value for key, value in run.settings.items() if key.startswith("data.source")})
            if not mixed:
                alike.append({key: value for key, value in run.settings.items() if key.startswith(optimizer)})
    assert all(own == sources[0] for own in sources)  # on the same rows
    assert all(own == alike[0] for own in alike)  # with the same optimizer
    assert {"covertype.yaml", "heart.yaml", "quickstart.yaml"} <= set(known_configs(studies=True))
    if shipped.paper is not None:
        assert set(shipped.paper.values) <= set(shipped.methods)
        assert set(shipped.paper.remarks) <= {"all", *shipped.methods}


@pytest.mark.parametrize("name", ["covertype", "heart"])
def test_the_papers_figures_are_those_of_the_paper(name: str) -> None:
    paper = load_study(name).paper
    assert paper is not None
    found = {
        "covertype": (("gl", "neota", "auprc"), 83.11, ("fedavg", "poudre", "auroc"), 63.89),
        "heart": (("local", "sa", "balanced_accuracy"), 62.43, ("gl", "faisalabad", "auroc"), 86.77),
    }[name]
    assert paper.value(*found[0]) == found[1] and paper.value(*found[2]) == found[3]
    assert paper.value("gl", "nobody", "auroc") is None
    for clients in paper.values.values():
        for own in clients.values():
            assert set(own) == {"auroc", "balanced_accuracy", "auprc"}
            assert all(20 < value < 100 for value in own.values())


def test_scenarios_may_have_figures_of_their_own() -> None:
    whole = load_study("ifedavg")
    vehicle, activity = (whole.of(name).paper for name in ("vehicle", "activity"))
    assert vehicle is not None and activity is not None and whole.of("sitting").paper is None
    assert vehicle.value("fedavg", "(worst)", "weighted_f1") == 39.8  # Table 2
    assert activity.value("local", "(worst)", "auroc_ovo") == 99.7  # Table 4


def test_a_restricted_study_keeps_its_reference() -> None:
    whole = load_study("covertype")
    own = whole.restricted(["gl"], ["extra_trees"])
    assert list(own.methods) == ["local", "gl"] and own.alone == ["local", "extra_trees"] and own.search is not None
    assert "best_alone" in own.labels and "best_federated" in own.labels
    assert "best_alone" not in own.restricted(None, []).labels
    frozen = load_study("heart").restricted(
        ["gl_frozen"], []
    )  # with what its lift is over; the search's method is gone
    assert list(frozen.methods) == ["local", "local_frozen", "gl_frozen"] and frozen.search is None
    assert frozen.reference_of("gl_frozen") == "local_frozen" and frozen.reference_of("gl") == "local"


def test_who_is_alone_and_who_could_be_joined() -> None:
    whole = load_study("heart").for_tasks({"cleveland": Classification})
    models = ["extra_trees", "gradient_boosting", "logistic_regression", "trees_and_linear"]
    assert whole.alone == ["local", "local_frozen", *models]
    assert whole.federated == ["fedavg", "centralized", "gl", "gl_step", "gl_frozen", "fedavg_frozen"]
    assert whole.candidates == ["fedavg", "gl", "gl_step", "gl_frozen", "fedavg_frozen"]
    with pytest.raises(ConfigError, match=r"methods\.gl\.reference: expected some of local, found 'gl'"):
        Study({"local": Method("a"), "gl": Method("b", reference="gl")}, seeds=[1])
    with pytest.raises(ConfigError, match="seeds: expected"):
        Study({"local": Method("a")}, seeds=[-1])


def test_a_scenario_changes_what_methods_do_not_set_themselves() -> None:
    methods = {
        "local": Method("a.yaml", set={"exchange.federated": []}),
        "avg": Method("a.yaml", set={"data.batches": 5}),
    }
    given = {"many": Scenario("b.yaml", {"data.batches": 9, "seed": 3}, "Many."), "few": Scenario()}
    whole = Study(methods, seeds=[1], about="What if?", scenarios=given, name="parts")
    many, few = whole.of("many"), whole.of("few")
    assert {name: own.config for name, own in many.methods.items()} == {"local": "b.yaml", "avg": "b.yaml"}
    assert many.methods["local"].set == {"data.batches": 9, "seed": 3, "exchange.federated": []}
    assert many.methods["avg"].set == {"data.batches": 5, "seed": 3}
    assert (many.about, many.name, many.scenarios) == ("What if? Many.", "parts/many", {})
    assert few.methods == methods
    with pytest.raises(ConfigError, match=r"scenarios: expected some of many, few, found 'man'\. Did you mean 'many'"):
        whole.of("man")
    with pytest.raises(ConfigError, match="expected one of the scenarios many, few, found none chosen; give scenario"):
        compare(whole)
    with pytest.raises(ConfigError, match="scenarios: expected names of letters"):
        Study(methods, seeds=[1], scenarios={"a b": Scenario()})


def test_a_class_in_a_scenario_stays_as_it_is_written(tmp_path: Path) -> None:
    text = """\
seeds: 1
methods: {local: {config: quickstart.yaml, set: {exchange.federated: []}}}
scenarios:
  skewed: {set: {data.source.deal: {class_path: fedlit.Dirichlet, init_args: {alpha: 0.1}}}, about: Skewed.}
"""
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    scenario = load_study(str(tmp_path / "own.yaml")).scenarios["skewed"]
    assert scenario.set == {"data.source.deal": {"class_path": "fedlit.Dirichlet", "init_args": {"alpha": 0.1}}}
    assert scenario.about == "Skewed."
    with pytest.raises(ConfigError, match="scenarios: expected some of skewed, found 'skewd'"):
        study_command(str(tmp_path / "own.yaml"), scenarios="skewed,skewd", out=str(tmp_path))
    assert not (tmp_path / "skewed").exists()  # refused before the first was run
