"""Weights of rows: a row of weight n counts as n rows, in losses, scores, linear models and local
baselines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from sklearn.linear_model import LogisticRegression

from fedlit import reml
from fedlit.data.encoding import Rows
from fedlit.data.sources import Tables
from fedlit.errors import ConfigError, DataError
from fedlit.jobs.alone import fit_rows
from fedlit.methods.penalised import choose, fit
from fedlit.mixture.combine import combine
from fedlit.mixture.mixture import Mixture
from fedlit.mixture.settings import Mixing
from fedlit.mixture.together import choose_together, stacks
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.study.runs import bootstrap_scores, read_tested
from fedlit.tasks import Classification, Counts, Regression, Task
from fedlit.tasks.go_alone import LINEAR
from fedlit.tasks.operating import choose_threshold, scores_at
from fedlit.tasks.predictions import Predictions, PredictionTable
from fedlit.train import checkpoint_file

TASKS: dict[str, Task] = {
    "two classes": Classification(("no", "yes"), (3, 4)),
    "three classes": Classification(("a", "b", "c"), (3, 4, 5)),
    "a number": Regression(mean=2.0, scale=3.0),
    "a huber number": Regression("huber"),
    "a count": Counts(mean=2.0),
}
WEIGHT = torch.tensor([1.0, 3.0, 2.0, 1.0, 5.0, 2.0, 1.0, 4.0] * 5)


def rows_of(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and targets of some rows."""
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(len(WEIGHT), task.outputs, generator=generator)
    outputs[:9] = outputs[9:18]  # equal scores
    most = max(len(task.classes), 4)
    y = torch.randint(0, len(task.classes) or most, (len(WEIGHT),), generator=generator)
    return outputs, y if task.classes else y.float()


def repeated(values: torch.Tensor) -> torch.Tensor:
    return values.repeat_interleave(WEIGHT.long(), 0)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("balanced", [False, True])
def test_whole_weights_are_repeated_rows(kind: str, balanced: bool) -> None:
    task = TASKS[kind]
    outputs, y = rows_of(task)
    classes = task.balance() if balanced else None
    torch.testing.assert_close(
        task.loss(outputs, y, classes, WEIGHT),
        task.loss(repeated(outputs), repeated(y), classes),
        rtol=1e-5,
        atol=0,
    )
    predictions = task.predict(outputs)
    weighted = task.evaluate(predictions, y, WEIGHT)
    expected = task.evaluate(repeated(predictions), repeated(y))
    assert weighted.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(weighted[name].double(), value.double(), rtol=1e-6, atol=0)
    scaled = task.evaluate(predictions, y, WEIGHT / 100)  # only their proportions count
    assert all(
        float(scaled[name]) == pytest.approx(float(expected[name]), rel=1e-5) for name in expected
    )
    once = task.evaluate_once(predictions, y, WEIGHT)
    for name, score in task.evaluate_once(repeated(predictions), repeated(y)).items():
        assert once[name] == pytest.approx(score) or kind == "three classes"


def test_a_linear_model_of_weights_is_one_of_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(40, 3)))
    y = (x[:, 0] + torch.from_numpy(rng.normal(size=40)) > 0).double()
    weight = WEIGHT.double()
    zero = torch.zeros(3).double()
    for kind in ("logistic", "gaussian"):
        found = fit(x, y, kind, zero, zero + 2.0, rows=weight)
        expected = fit(repeated(x), repeated(y), kind, zero, zero + 2.0)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    judge = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(x, y, sample_weight=weight)
    found = fit(x, y, "logistic", zero, zero + 2.0, rows=weight)
    np.testing.assert_allclose(found[:3], judge.coef_[0], atol=1e-3)
    assert choose(x, [y], "logistic", zero[None]) == choose(
        x, [y], "logistic", zero[None], rows=torch.ones(40).double()
    )


@pytest.mark.parametrize("family", ["gaussian", "logistic", "poisson"])
def test_a_mixed_model_of_weights_is_one_of_repeated_rows(family: str) -> None:
    rng = np.random.default_rng(0)
    sites = []
    for _ in range(6):
        x = np.column_stack([np.ones(40), rng.normal(size=40)])
        eta = x @ [0.3, 0.5] + rng.normal()
        draws = {
            "gaussian": eta + rng.normal(size=40),
            "poisson": rng.poisson(np.exp(np.clip(eta, -3, 2))),
        }
        y = draws.get(family, (eta + rng.normal(size=40) > 0)).astype(float)
        sites.append((x, y, x[:, :1]))
    weight = WEIGHT.double().numpy()

    def ask(many: bool) -> Any:
        def answered(theta: Any, at: Any, effects: Any) -> Any:
            total: dict[str, Any] = {}
            for own in sites:
                counted: Any = (
                    [np.repeat(part, WEIGHT.long().numpy(), 0) for part in own] if many else own
                )
                x, y, z = counted
                rows = None if many else weight
                terms = reml.site_answer(x, y, z, theta, at, effects, family, rows)
                total = {name: total.get(name, 0.0) + value for name, value in terms.items()}
            return total

        return answered

    found, _, _ = reml.solve(ask(False), 2, 1, family)
    expected, _, _ = reml.solve(ask(True), 2, 1, family)
    np.testing.assert_allclose(found.effects, expected.effects, rtol=1e-6)
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-5)


@pytest.mark.parametrize(
    "model", ["logistic_regression", "extra_trees", "gradient_boosting", "trees_and_linear"]
)
def test_local_baselines_weigh_rows(model: str) -> None:
    task = TASKS["two classes"]
    if model not in task.go_alone:
        pytest.skip("the task has no such baseline")
    # each twice, with either label
    x = torch.linspace(-1, 1, 20).repeat_interleave(2)[:, None].float()
    y = (torch.arange(40) % 2).long()
    make = task.go_alone[model].make(
        {key: values[0] for key, values in task.go_alone[model].grid.items()}, []
    )
    heavy = torch.where(y == 1, 50.0, 1.0)
    fitted = fit_rows(task, make, Rows(x, y, np.arange(40), heavy))
    assert task.of_model(fitted, x.numpy())[:, 1].mean() > 0.7


@pytest.mark.parametrize("kind", ["two classes", "a number", "a count"])
def test_local_linear_models_count_repeated_rows(kind: str) -> None:
    task = TASKS[kind]
    _, y = rows_of(task)
    name = next(name for name in task.go_alone if name in LINEAR)
    x = torch.randn(len(y), 2, generator=torch.Generator().manual_seed(3)) * torch.tensor(
        [1.0, 20.0]
    )
    settings = {key: values[0] for key, values in task.go_alone[name].grid.items()}
    weighted = fit_rows(
        task, task.go_alone[name].make(settings, []), Rows(x, y, np.arange(len(y)), WEIGHT)
    )
    whole = Rows(repeated(x), repeated(y), np.arange(int(WEIGHT.sum())))
    expected = fit_rows(task, task.go_alone[name].make(settings, []), whole)
    torch.testing.assert_close(
        task.of_model(weighted, x.numpy()), task.of_model(expected, x.numpy()), rtol=1e-3, atol=1e-3
    )


def frame_of(seed: int, rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(size=rows)
    label = np.where(age + rng.normal(size=rows) > 0, "ill", "well")
    return pd.DataFrame(
        {"age": age.round(3), "dose": rng.normal(size=rows).round(3), "outcome": label}
    )


def trained(folder: Path, frames: dict[str, pd.DataFrame], weight: Any, **more: Any) -> Run:
    folder.mkdir()
    for client, frame in frames.items():
        frame.to_csv(folder / f"{client}.csv", index=False)
    files = {client: str(folder / f"{client}.csv") for client in frames}
    source = {"files": files, "target": "outcome", "weight": weight}
    content = {
        "seed": 1,
        "data": {"batches": 3, "source": {"class_path": "fedlit.Tables", "init_args": source}},
        "model": {
            "client": {
                "class_path": "fedlit.FederatedClient",
                "init_args": {"network": {"class_path": "fedlit.MLP"}},
            },
            "threads": 1,
        },
        "exchange": {"federated": ["core"]},
        "board": {"pictures": 0},
        "trainer": {"max_epochs": 2, "enable_progress_bar": False, "default_root_dir": str(folder)},
        **more,
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(content))
    run = load(str(folder / "mine.yaml"))
    run.fit(quiet=True)
    return run


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    assert run.folder is not None
    state: dict[str, torch.Tensor] = checkpoint_file.load(run.folder / "checkpoints" / "last.ckpt")[
        "state_dict"
    ]
    return state


def test_weights_train_score_and_stay_out_of_features(tmp_path: Path) -> None:
    frames = {name: frame_of(seed) for seed, name in enumerate(["north", "south"])}
    plain = trained(tmp_path / "plain", frames, None)
    ones = trained(
        tmp_path / "ones", {name: frame.assign(w=1) for name, frame in frames.items()}, "w"
    )
    assert all(torch.equal(own, weights_of(ones)[name]) for name, own in weights_of(plain).items())
    heavy = {
        name: frame.assign(w=np.where(frame["outcome"] == "ill", 9.0, 1.0))
        for name, frame in frames.items()
    }
    run = trained(tmp_path / "heavy", heavy, {"north": "w", "south": "w"})
    assert list(run.data.clients[0].spec.features) == ["age", "dose"]
    assert not torch.equal(
        weights_of(run)["clients.north.core.0.weight"],
        weights_of(plain)["clients.north.core.0.weight"],
    )
    results = run.test("last", quiet=True)
    frame = pd.read_csv(tmp_path / "heavy" / "north.csv")
    scored = run.client("north").predict(frame.drop(columns="outcome"))
    rows = run.data.clients[0].sites["north"]["test"].row
    weight = frame["w"].to_numpy()[rows]
    hit = (scored["predicted"] == frame["outcome"]).to_numpy()[rows]
    assert results.scores["north"]["accuracy"] == pytest.approx(
        float(np.average(hit, weights=weight)), abs=1e-6
    )
    with pytest.raises(ConfigError, match="weight"):
        trained(tmp_path / "refused", heavy, "w", model={
            "client": {"class_path": "fedlit.PerFedAvg", "init_args": {"network": {"class_path": "fedlit.MLP"}}},
        })  # fmt: skip


def test_what_cannot_weigh_rows_refuses_them(tmp_path: Path) -> None:
    frame_of(0).assign(w=[1, 2] * 60).to_csv(tmp_path / "north.csv", index=False)
    source = {"files": {"north": str(tmp_path / "north.csv")}, "target": "outcome", "weight": "w"}
    content = {
        "data": {"batches": 3, "source": {"class_path": "fedlit.Tables", "init_args": source}},
        "model": {
            "client": {
                "class_path": "fedlit.FederatedClient",
                "init_args": {"network": {"class_path": "fedlit.MLP"}},
            }
        },
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    for method in ("forest", "fedala", "per_fedavg"):
        with pytest.raises(ConfigError, match=r"data\.source\.weight"):
            load(str(path), overrides={"method": method}).describe()
    parts: dict[str, Any] = {"linear": {"config": str(path), "go_alone": "logistic_regression"}}
    parts["others"] = {**parts["linear"], "set": {"data.source.weight": None}}
    with pytest.raises(ConfigError, match=r"'others', client 'north': data\.source\.weight"):
        Mixture({"mixture": {"parts": parts}, "folds": 2}).describe()


def predicted(seed: int) -> Predictions:
    """Two parts of one task, whose rows have weights."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(0, 2, len(WEIGHT)))
    parts = {}
    for name, skill in (("mine", 0.6), ("ours", 1.0)):
        yes = 1 / (1 + np.exp(-skill * (2 * y.numpy() - 1) - rng.normal(size=len(y))))
        parts[name] = np.stack([1 - yes, yes], 1)
    return Predictions(TASKS["two classes"], np.arange(len(y)), y, parts, weight=WEIGHT.double())


def in_full(rows: Predictions) -> Predictions:
    """The same rows, each as often as its weight says."""
    return replace(rows.some(np.arange(len(rows.row)).repeat(WEIGHT.long().numpy())), weight=None)


@pytest.mark.parametrize("weights", ["equal", "fitted"])
def test_a_mixture_of_weights_is_one_of_repeated_rows(weights: str) -> None:
    for metric in ("auroc", "accuracy", "loss"):
        mixing = Mixing(weights, by=metric, shrink=5.0)
        for seed in range(3):
            rows = predicted(seed)
            found = combine({"a": rows}, ["mine"], mixing)["a"]
            expected = combine({"a": in_full(rows)}, ["mine"], mixing)["a"]
            assert found.weights == pytest.approx(expected.weights, abs=1e-5)
            assert found.scores == pytest.approx(expected.scores, rel=1e-6)
            assert found.mixture == pytest.approx(expected.mixture, rel=1e-5)
            plain = combine({"a": replace(rows, weight=None)}, ["mine"], mixing)["a"]
            assert found.scores != pytest.approx(plain.scores, rel=1e-6)


def test_a_stack_of_weights_is_one_of_repeated_rows() -> None:
    clients = {f"c{seed}": predicted(seed) for seed in range(6)}
    found = stacks(clients)
    expected = stacks({name: in_full(rows) for name, rows in clients.items()})
    plain = stacks({name: replace(rows, weight=None) for name, rows in clients.items()})
    for name in clients:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6)
        assert not np.allclose(found[name], plain[name], rtol=1e-2)


def test_ones_choose_the_mixture_that_no_weights_choose() -> None:
    clients = {f"c{seed}": replace(predicted(seed), weight=None) for seed in range(6)}
    ones = {
        name: replace(rows, weight=torch.ones(len(rows.row)).double())
        for name, rows in clients.items()
    }
    assert choose_together(ones, ["mine"]) == choose_together(clients, ["mine"])
    drawn = np.random.default_rng(0).integers(0, 4, len(WEIGHT))
    for name, rows in clients.items():
        for metric in ("auroc", "loss"):
            scores = [
                own.judge(metric).by_counts(rows.parts["mine"])(drawn) for own in (rows, ones[name])
            ]
            assert scores[0] == pytest.approx(scores[1], rel=1e-6)


def mixture_of(folder: Path, frame: pd.DataFrame, weight: str | None) -> Mixture:
    folder.mkdir()
    frame.to_csv(folder / "north.csv", index=False)
    source: dict[str, Any] = {"files": str(folder / "*.csv"), "target": "outcome"}
    source |= {"drop": ["w"]} if weight is None else {"weight": weight}
    (folder / "mine.yaml").write_text(yaml.safe_dump({
        "data": {"source": {"class_path": "fedlit.Tables", "init_args": source}},
        "model": {"client": {"class_path": "fedlit.FederatedClient", "init_args": {"network": "fedlit.MLP"}}},
    }))  # fmt: skip
    alone = {"config": str(folder / "mine.yaml")}
    parts = {
        "linear": {**alone, "go_alone": "logistic_regression", "grid": {"C": [1.0]}},
        "trees": {**alone, "go_alone": "extra_trees", "grid": {"n_estimators": [20]}},
    }
    score = {"threshold": "youden", "subgroups": {"age": [0.0]}}
    mixture = Mixture({
        "mixture": {"parts": parts, "weights": "fitted"}, "folds": 2, "seed": 1, "score": score,
        "trainer": {"default_root_dir": str(folder)},
    })  # fmt: skip
    mixture.fit(quiet=True)
    return mixture


def test_a_mixture_trains_and_scores_weighted_rows(tmp_path: Path) -> None:
    frame = frame_of(0).assign(w=1.0)
    plain = mixture_of(tmp_path / "plain", frame, None)
    ones = mixture_of(tmp_path / "ones", frame, "w")
    assert plain.folder is not None and ones.folder is not None
    for file in ("mixture.json", "out_of_fold.parquet"):
        assert (plain.folder / file).read_bytes() == (ones.folder / file).read_bytes()
    heavy = mixture_of(
        tmp_path / "heavy", frame.assign(w=np.where(frame["outcome"] == "ill", 9.0, 1.0)), "w"
    )
    results = heavy.test(quiet=True)
    rows = heavy.held["north"]
    ill = rows.y.numpy() == 0
    assert rows.weight is not None and (rows.weight.numpy() == np.where(ill, 9.0, 1.0)).all()
    predictions = heavy.predict(quiet=True)["north"]
    written = frame.assign(w=np.where(frame["outcome"] == "ill", 9.0, 1.0)).loc[predictions["row"]]
    hit = (predictions["predicted"].to_numpy() == written["outcome"].to_numpy()).astype(float)
    expected = np.average(hit, weights=written["w"])
    assert results.scores["north"]["accuracy"] == pytest.approx(expected, abs=1e-6)
    at_half, _ = results.supplements[0].of("north")
    assert results.scores["north"]["balanced_accuracy"] == pytest.approx(
        at_half["balanced_accuracy"], abs=1e-6
    )
    assert sum(
        at_half[name] for name in at_half if name.endswith(("positives", "negatives"))
    ) == len(predictions)
    groups = results.supplements[1].of("north")
    total = [
        written.loc[written["age"] < 0, "w"].sum(),
        written.loc[written["age"] >= 0, "w"].sum(),
    ]
    accuracies = [group["accuracy"] for group in groups]
    assert np.average(accuracies, weights=total) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("bad", ["0", "-1", "inf", "", "x"])
def test_a_weight_that_is_none_is_named(bad: str, tmp_path: Path) -> None:
    frame = frame_of(0).assign(w=["1", "2", bad] + ["1.5"] * 117)
    frame.to_csv(tmp_path / "north.csv", index=False)
    with pytest.raises(DataError, match="row 2"):
        Tables({"north": str(tmp_path / "north.csv")}, "outcome", weight="w").tables(seed=1)
    with pytest.raises(ConfigError, match="weight"):
        Tables({"north": str(tmp_path / "north.csv")}, "outcome", weight="ww").tables(seed=1)


@pytest.mark.parametrize("rule", ["youden", {"specificity": 0.7}, {"sensitivity": 0.7}])
def test_a_threshold_of_weights_is_one_of_repeated_rows(rule: Any) -> None:
    rows = predicted(4)
    positive = rows.y.numpy() == 1
    probability = rows.parts["ours"][:, 1]
    weight = WEIGHT.double().numpy()
    many = WEIGHT.long().numpy()
    found = choose_threshold(positive, probability, rule, weight)
    assert found == choose_threshold(positive.repeat(many), probability.repeat(many), rule)
    assert found is not None
    scores = scores_at(positive, probability >= found, weight)
    expected = scores_at(positive.repeat(many), probability.repeat(many) >= found)
    for name in ("sensitivity", "specificity", "ppv", "npv", "balanced_accuracy"):
        assert scores[name] == pytest.approx(expected[name])


def test_a_bootstrap_of_equal_weights_is_one_without() -> None:
    task = TASKS["two classes"]
    outputs, y = rows_of(task)
    drawn = []
    for weight in (None, torch.full((len(y),), 2.0)):
        rows = Predictions.of_model(task, np.arange(len(y)), y, task.predict(outputs), weight)
        table = PredictionTable()
        table.add("a", rows, "test")
        drawn.append(bootstrap_scores(read_tested(table), 20))
    first, second = drawn
    pd.testing.assert_frame_equal(first, second, rtol=1e-6)
