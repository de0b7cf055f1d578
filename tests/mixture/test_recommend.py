"""``fedlit recommend``: who should join, with what, within a time."""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from mixture.test_combine import rows_of
from sklearn.metrics import roc_auc_score

from fedlit.__main__ import main
from fedlit.answers.verdict import Verdict
from fedlit.errors import ConfigError
from fedlit.mixture import candidates
from fedlit.mixture.advice import advise
from fedlit.mixture.candidates import Survey, candidates_of
from fedlit.mixture.candidates import survey as survey_of
from fedlit.mixture.jobs import best_so_far
from fedlit.mixture.parts import MORE_TIME
from fedlit.mixture.recommend import Recommendation, recommend
from fedlit.mixture.settings import Mixing
from fedlit.mixture.written import settings_of
from fedlit.run.load import load
from fedlit.statistics import over_rows
from fedlit.tasks import Classification, Score
from fedlit.tasks.predictions import MIXTURE, Predictions

COLUMNS = 20
FILES = {name: f"{name}.csv" for name in ("large", "odd", "small")}
SETTINGS = {"files": FILES, "target": "y", "split": {"column": "part"}}
CONFIG = {"seed": 3, "data": {"source": {"class_path": "fedlit.Tables", "init_args": SETTINGS}}}


def write(folder: Path, *, other_test_labels: bool = False) -> None:
    """Three clients of the same columns: at large and small the label is one function of them, at
    odd it is drawn."""
    weights = np.random.default_rng(0).normal(size=COLUMNS)
    for number, (name, rows) in enumerate({"large": 300, "odd": 60, "small": 60}.items()):
        draw = np.random.default_rng(number + 1)
        frame = pd.DataFrame(
            draw.normal(size=(rows, COLUMNS)).round(3), columns=[f"c{n}" for n in range(COLUMNS)]
        )
        y = (
            (frame @ weights > 0).astype(int).to_numpy()
            if name != "odd"
            else draw.permutation(np.arange(rows) % 2)
        )
        part = np.array(["train", "train", "train", "validation", "test", "train"])[
            np.arange(rows) % 6
        ]
        if other_test_labels:
            y = np.where(part == "test", draw.integers(0, 2, rows), y)
        frame.assign(y=y, part=part).to_csv(folder / f"{name}.csv", index=False)
    (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG))


def ask(budget: float = 1e6, **changes: Any) -> Recommendation:
    return recommend("mine.yaml", budget=budget, folds=2, tell=lambda line: None, **changes)


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    quick = candidates.templates()
    quick["tabm"]["trainer"] = {"max_epochs": 2}
    quick["tabm"]["model"]["average"] = 0.0
    quick["tabm"]["model"]["then"]["fine_tune"]["epochs"] = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "templates", lambda: deepcopy(quick))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recommend")


@pytest.fixture(scope="module")
def found(place: Path) -> Recommendation:
    write(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return ask()


def test_only_those_who_gain_are_told_to_join(found: Recommendation, place: Path) -> None:
    small = found.clients["small"]
    odd = found.clients["odd"]
    assert (
        small.verdict == Verdict.JOIN
        and small.lift.interval[0] > 0
        and small.sentence.startswith("Join with ")
    )
    assert odd.verdict != Verdict.JOIN and found.wanted
    text = found.text(80)
    assert max(map(len, text.split("What would leave")[0].splitlines())) <= 80
    for part in found.wanted:
        assert f"{part}: Before training, once: each client sends" in text
    best = settings_of(place / found.best)
    assert set(best.parts) == {*found.mixture.plan.local, *found.wanted} and best.mixing == Mixing(
        "fitted"
    )
    written = json.loads((place / "recommended/mine/recommend.json").read_text())
    assert written["clients"]["small"]["join"] and set(written["leaves"]) == set(found.wanted)
    mixed = json.loads((place / "recommended/mine/trained/version_0/mixture.json").read_text())[
        "clients"
    ]
    used = {name for own in mixed.values() for name in own["weights"]}
    assert used <= set(best.parts)  # the mixture that was trained predicts with these, too


def test_the_best_so_far_is_the_best_on_held_out_rows(
    found: Recommendation, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local models are scored on the rows of all folds together, federated ones fold by fold."""
    monkeypatch.chdir(place)
    means = dict[str, float]()
    for name in found.labels:
        of_clients = list[float]()
        for rows in found.mixture.held.values():
            assert rows.fold is not None
            fold = np.zeros(len(rows.y)) if name in found.mixture.plan.local else rows.fold
            y = rows.y.numpy()
            predicted = np.asarray(rows.parts[name])
            of_clients += [
                float(roc_auc_score(y[fold == one], predicted[fold == one, 1])) / len(set(fold))
                for one in set(fold)
            ]
        means[name] = sum(of_clients) / len(found.mixture.held)
    best = max(means, key=lambda name: means[name])
    jobs = [job for part in found.mixture.built().values() for job in part.jobs()]
    assert best_so_far(jobs) == f"best so far AUROC {100 * means[best]:.2f} ({best})"


def test_many_clients_are_told_in_groups_and_each_is_in_the_file(found: Recommendation) -> None:
    names = [f"school {number}" for number in range(58)]
    kinds = dict(
        zip(names, [found.clients["small"]] * 40 + [found.clients["odd"]] * 18, strict=True)
    )
    each: dict[str, Any] = {key: dict.fromkeys(names, 9) for key in ("rows", "shared", "columns")}
    mixtures = dict.fromkeys(names, found.mixtures["small"])
    survey = replace(found.survey, **each)
    many = replace(found, clients=kinds, mixtures=mixtures, survey=survey)
    told = [
        line
        for line in str(many).splitlines()
        if "58" not in line and "school 0" in line and "clients" in line
    ]
    assert (
        len(told) == 1
        and told[0].startswith("Join with ")
        and ": 40 clients (school 0, school 1, " in told[0]
    )
    assert "… and 34 more clients" in str(many) and str(many).count("school 57") == 0
    assert len(many.to_dict()["clients"]) == 58


def test_a_small_budget_gives_the_answer_that_it_reached(
    found: Recommendation,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    assert (
        main(["recommend", "--config", "mine", "--budget", "0", "--folds", "2", "--out", "little"])
        == 0
    )
    told = " ".join(capsys.readouterr().out.split())
    assert (
        f"small: {Verdict.FEW.words}: no federated model was tried." in told
        and "Nothing would leave a site" in told
    )
    assert "Missing: tabm: no time was left for it; a larger budget gives it more time." in told
    written = json.loads(Path("little/recommend.json").read_text())
    # of first settings alone
    assert 0.5 < written["clients"]["small"]["alone"] <= found.clients["small"].alone + 1e-9
    for arguments, expected in (
        (["--config", "quickstart_best"], "found a mixture"),
        (["--config", "mine", "--folds", "1"], "--folds: expected at least 2, found 1"),
        (["--config", "mine", "--buget", "9"], "Did you mean"),
        (["--config", "mine", "--out", "."], "with other contents"),
        (["--config", "mine"], "found an earlier recommendation; give --out"),
    ):
        assert main(["recommend", *arguments]) == 2
        assert expected in capsys.readouterr().err


def test_more_time_is_not_the_advice_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    settings = {**SETTINGS, "target": "c0", "task": "regression"}
    content = {"data": {"source": {"class_path": "fedlit.Tables", "init_args": settings}}}
    Path("mine.yaml").write_text(yaml.safe_dump(content))
    missing = ask().missing["forest"]  # whose clients each scale the target by their own rows
    assert "targets: pooled" in missing and MORE_TIME not in missing


def test_keys_with_points_count_for_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What check offers at the end of a file: a column that is dropped is dropped everywhere, and
    one that differs in kind does not stop the rest."""
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    odd = pd.read_csv("odd.csv")
    odd.assign(c1=np.where(odd["c1"] > 0, "high", "low")).to_csv("odd.csv", index=False)
    with Path("mine.yaml").open("a") as file:
        file.write("data.source.drop+: [c0]\n")
    ask(budget=0.0)
    for name in ("tables", "logistic", "forest", "tabm"):
        written = yaml.safe_load(Path(f"recommended/mine/mine_{name}.yaml").read_text())
        assert written["data"]["source"]["init_args"]["drop"] == ["c0"], name
    assert written["data"].get("columns") is None
    missing = json.loads(Path("recommended/mine/recommend.json").read_text())["missing"]
    assert "no time was left" in missing["logistic"]


@pytest.mark.full
def test_a_score_that_cannot_decide_is_refused_by_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^--by: .*'aurc'"):
        recommend("quickstart", by="aurc", tell=lambda _: None)


def test_test_rows_change_no_word(
    found: Recommendation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, other_test_labels=True)
    monkeypatch.chdir(tmp_path)
    said = [json.loads(json.dumps(own.to_dict())) for own in (found, ask())]
    for own in said:
        del own["seconds"], own["config"]
    assert said[0] == said[1]


def noise(seed: int, shift: float, rows: int = 80) -> Predictions:
    """Own parts that know nothing, and a federated one that is right as far as ``shift`` says."""
    draw = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    parts = {}
    for name, own in {"trees": 0.0, "linear": 0.0, "forest": shift, "logistic": 0.0}.items():
        yes = 1 / (1 + np.exp(-(own * (2 * y - 1) + draw.normal(size=rows))))
        parts[name] = np.column_stack([1 - yes, yes])
    return rows_of(Classification((0, 1)), y, parts)


def test_what_rows_chose_is_not_taken_for_a_gain() -> None:
    """All parts are noise: nobody is told to join, though the best of them are chosen by the rows
    that judge."""
    own = ["trees", "linear"]
    labels = {"forest": "the forest", "logistic": "the pooled linear model"}
    told = [advise("a", noise(seed, 0.0), own, Mixing(), labels)[0] for seed in range(5)]
    assert abs(np.mean([got.lift.mean for got in told])) < 0.04
    assert not any(got.verdict == Verdict.JOIN for got in told)
    clear, mixture = advise("a", noise(1, 1.5), own, Mixing(), labels)
    assert (
        clear.verdict == Verdict.JOIN
        and "forest" in mixture.weights
        and clear.reference in (*own, MIXTURE)
        and clear.lift.optimism != 0
    )
    far, _ = advise("a", noise(1, 1.5), ["trees", "forest"], Mixing(), {"linear": "it"})
    assert far.verdict in (Verdict.SAME, Verdict.FEW, Verdict.ALONE) and far.lift.mean <= 0.01


def test_the_bootstraps_interval_is_the_closed_form_of_a_mean() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(0.1, 1, 500)
    second = rng.normal(0, 1, 500)

    def mean(values: np.ndarray):  # type: ignore[no-untyped-def]
        return lambda counts: float(np.average(values, weights=counts))

    higher = Score("accuracy", "Accuracy").gain
    lower = Score("loss", "Loss", higher_is_better=False).gain
    lift = over_rows(mean(first), mean(second), 500, higher, resamples=2000)
    gain = lift.mean
    error = (first - second).std() / np.sqrt(500)
    assert gain == pytest.approx((first - second).mean())
    expected = (gain - 1.96 * error, gain + 1.96 * error)
    assert lift.interval == pytest.approx(expected, abs=0.2 * error)
    assert over_rows(mean(second), mean(first), 500, lower, resamples=2000).mean == gain
    # rows that chose say too much by 0.1: the interval moves with the value
    honest = over_rows(mean(first), mean(second), 500, higher, honest=gain - 0.1, resamples=2000)
    assert (honest.optimism, honest.mean) == pytest.approx((0.1, gain - 0.1))
    assert honest.interval == pytest.approx([end - 0.1 for end in lift.interval])


@pytest.mark.parametrize(("theirs", "mixed"), [(("no", "yes"), True), ((0, 1), False)])
def test_labels_of_two_types_are_seen_before_training(
    tmp_path: Path, theirs: tuple[Any, Any], mixed: bool
) -> None:
    draw = np.random.default_rng(1)
    for name, labels in {"north": (0, 1), "south": theirs}.items():
        frame = pd.DataFrame({"age": draw.normal(50, 9, 60), "died": draw.choice(labels, 60)})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {name: str(tmp_path / f"{name}.csv") for name in ("north", "south")}
    content = {"class_path": "fedlit.Tables", "init_args": {"files": files, "target": "died"}}
    run = load("quickstart.yaml", overrides={"data.source": content})
    assert survey_of(run).mixed_labels == mixed


WORTH = [
    ({"a": 80, "b": 80}, 3, {"classification"}, "linear trees logistic forest tabm", "network"),
    ({"a": 800, "b": 80}, 3, {"regression"}, "linear trees logistic forest tabm network", ""),
    ({"a": 80, "b": 80}, 0, {"classification"}, "linear trees tabm", "logistic, forest network"),
    (
        {"a": 80, "b": 80},
        3,
        {"counts", "regression"},
        "linear trees tabm",
        "logistic, forest network",
    ),
    ({"a": 80, "b": 80}, 3, {"survival"}, "linear trees cox tabm", "logistic, forest network"),
    ({"a": 80, "b": 80}, 0, {"survival"}, "linear trees tabm", "logistic, forest network"),
    ({"a": 80}, 0, {"classification"}, "linear trees", "logistic, forest, tabm network"),
]


@pytest.mark.parametrize(("rows", "shared", "tasks", "tried", "missing"), WORTH)
def test_what_is_worth_a_try(
    rows: dict[str, int], shared: int, tasks: set[str], tried: str, missing: str
) -> None:
    counts = dict.fromkeys(rows, shared)
    survey = Survey(
        rows,
        counts,
        counts,
        frozenset(tasks),
        frozenset({"extra_trees", "ridge", "mean"}),
        frozenset(),
    )
    made, out = candidates_of({"data": {"source": "s", "leave_out": ["c"]}}, survey)
    assert " ".join(made) == tried and " ".join(out) == missing
    if "network" in made:
        assert made["network"].content is not None and made["network"].content["data"][
            "leave_out"
        ] == ["c", "b"]
    _, out = candidates_of({"data": {"source": "s"}}, replace(survey, weighted=True))
    assert ("forest" in out) == ("forest" in made)
    mixed, _ = candidates_of({"data": {"source": "s"}}, replace(survey, differing=("si[z]e",)))
    for name in {"logistic", "forest"} & mixed.keys():  # which cannot have one name for two kinds
        content = mixed[name].content or {}
        assert content["data"]["columns"] == ["*", "!si[[]z]e"]
    mixed, _ = candidates_of({"data": {"source": "s"}}, replace(survey, mixed_labels=True))
    assert mixed.keys() == made.keys() - {"logistic", "forest"}
    with pytest.raises(ConfigError, match="no local baselines"):
        candidates_of(
            {},
            Survey(
                rows, counts, counts, frozenset({"sequence_labelling"}), frozenset(), frozenset()
            ),
        )
