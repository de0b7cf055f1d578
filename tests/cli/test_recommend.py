"""``fedlit recommend``: who should join, with what, within a budget."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fedlit.mixture.verdict import Common

from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.mixture.advice import BLEND, advise
from fedlit.mixture.asked import Asked
from fedlit.mixture.budget import Cost, choose
from fedlit.mixture.candidates import Candidate, candidates_of
from fedlit.mixture.recommend import recommend
from fedlit.mixture.recommended import Recommendation
from fedlit.mixture.settings import MixtureSettings, PartSettings, settings_of
from fedlit.mixture.survey import Survey
from fedlit.mixture.weigh import HeldOut
from fedlit.run.load import load
from fedlit.tasks import Classification
from fedlit.train.loop import FederatedLoop

COLUMNS, BUDGET = 20, 300.0  # enough on a busy machine, too
CONFIG = """
seed: 3
data:
  source:
    class_path: fedlit.Tables
    init_args:
      files: {large: large.csv, odd: odd.csv, small: small.csv}
      target: y
      split: {column: part}
"""


def write(folder: Path, *, other_test_labels: bool = False) -> None:
    """Three clients of the same columns: at large and small the label is one function of them, at odd it is drawn."""
    weights = np.random.default_rng(0).normal(size=COLUMNS)
    for number, (name, rows) in enumerate({"large": 300, "odd": 60, "small": 60}.items()):
        draw = np.random.default_rng(number + 1)
        frame = pd.DataFrame(draw.normal(size=(rows, COLUMNS)).round(3), columns=[f"c{n}" for n in range(COLUMNS)])
        y = (frame @ weights > 0).astype(int).to_numpy() if name != "odd" else draw.permutation(np.arange(rows) % 2)
        part = np.array(["train", "train", "train", "validation", "test", "train"])[np.arange(rows) % 6]
        if other_test_labels:
            y = np.where(part == "test", draw.integers(0, 2, rows), y)
        frame.assign(y=y, part=part).to_csv(folder / f"{name}.csv", index=False)
    (folder / "mine.yaml").write_text(CONFIG)


def ask(**changes: Any) -> Recommendation:
    return recommend(replace(Asked.of("mine.yaml", budget=BUDGET, folds=2), **changes), tell=lambda line: None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recommend")


@pytest.fixture(scope="module")
def found(place: Path) -> Recommendation:
    write(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return ask()


def test_those_who_gain_are_told_to_join_and_those_who_do_not_are_not(found: Recommendation) -> None:
    small, odd = found.clients["small"], found.clients["odd"]
    assert small.join and small.interval[0] > 0 and small.verdict.sentence.startswith("Join with ")
    assert not odd.join and found.wanted
    assert found.seconds < BUDGET
    text = found.text(80)
    assert max(map(len, text.split("What would leave")[0].splitlines())) <= 80
    for part in found.wanted:
        assert f"{part}: Before training, once: each client tells" in text


def test_what_it_writes_can_be_fitted(
    found: Recommendation, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    best = settings_of(found.best)
    assert set(best.parts) == {*found.own, *found.wanted}
    for part in best.parts.values():
        assert sorted(load(str(part.config)).describe().clients) == ["large", "odd", "small"]
    short = [f"--parts.{name}.trainer.max_epochs=1" for name in found.wanted]
    assert main(["fit", "--config", str(found.best), *short, "--parts.trees.grid.n_estimators=[3]"]) == 0
    assert f"{'client':<6}" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"found an earlier recommendation; give --out, or --force"):
        ask()
    with pytest.raises(ConfigError, match="found changed seed"):
        (found.best.parent / "recommend.json").rename(place / "kept.json")
        try:
            ask(seed=4)
        finally:
            (place / "kept.json").rename(found.best.parent / "recommend.json")


@pytest.mark.full
def test_killed_and_continued_it_says_the_same_whatever_test_rows_are(
    found: Recommendation, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun anew with the same choice of epochs, but with other labels of test rows."""
    write(tmp_path, other_test_labels=True)
    monkeypatch.chdir(tmp_path)
    begun = Path("recommended/mine")
    begun.mkdir(parents=True)
    shutil.copy(place / begun / "progress.json", begun)
    done, ends = begun / "trained/parts/linear/fold_1/DONE", FederatedLoop.on_train_epoch_end

    def killed(loop: FederatedLoop) -> None:
        ends(loop)
        if done.is_file():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FederatedLoop, "on_train_epoch_end", killed)
        with pytest.raises(KeyboardInterrupt):
            ask()
    before = done.stat().st_mtime_ns
    again = ask()
    assert done.stat().st_mtime_ns == before
    first, second = (json.loads(json.dumps(own.to_dict())) for own in (found, again))
    for own in (first, second):
        del own["seconds"]
    assert first == second


def held(seed: int, shift: float, rows: int = 80) -> HeldOut:
    """Own parts that know nothing, and a federated one that is right as far as ``shift`` says."""
    draw = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    parts = {}
    for name, own in {"trees": 0.0, "linear": 0.0, "forest": shift, "logistic": 0.0}.items():
        yes = 1 / (1 + np.exp(-(own * (2 * y - 1) + draw.normal(size=rows))))
        parts[name] = np.column_stack([1 - yes, yes])
    return HeldOut(Classification((0, 1)), torch.from_numpy(y), np.arange(rows), parts)


def test_what_rows_chose_is_not_taken_for_a_gain(tmp_path: Path) -> None:
    """All parts are noise: nobody is told to join, though the best of them are chosen by the rows that judge."""
    settings = MixtureSettings({"trees": PartSettings(tmp_path)}, "x", weights="equal")
    common, labels = Common(["age"], 1, 2, 2, 120), {"forest": "the forest", "logistic": "the pooled linear model"}
    noise = [advise("a", held(seed, 0.0), ["trees", "linear"], settings, common, labels) for seed in range(5)]
    assert abs(np.mean([own.lift for own in noise])) < 0.04
    assert not any(own.join for own in noise)
    clear = advise("a", held(1, 1.5), ["trees", "linear"], settings, common, labels)
    assert clear.join and "forest" in clear.parts and clear.best in ("trees", "linear", BLEND)
    alone = advise("a", held(1, 1.5), ["trees", "linear", "forest", "logistic"], settings, common, {}, nobody=True)
    assert alone.verdict.kind == "no difference" and alone.lift == 0


def test_a_budget_that_is_too_small_is_refused_and_a_small_one_leaves_out_what_takes_most() -> None:
    trees, forest = Candidate("trees", "", "extra_trees"), Candidate("forest", "", epochs=8)
    tabm = Candidate("tabm", "", epochs=60)
    costs = {"trees": Cost(1.0), "forest": Cost(2.0, 1.0), "tabm": Cost(5.0, 3.0)}
    made = choose([trees, forest, tabm], costs, 60.0, 4)
    assert made.folds == 4 and made.epochs == {"trees": 0, "forest": 8} and "tabm" in made.out
    assert sum(made.seconds.values()) <= 60
    with pytest.raises(
        ConfigError, match=r"--budget: expected time for each client's own models, some 11 s .* --folds 2"
    ):
        choose([trees], {"trees": Cost(3.0)}, 3.0, 4)


def test_one_client_and_what_is_no_table_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(CONFIG.replace("large: large.csv, odd: odd.csv, ", ""))
    assert main(["recommend", "--config", "mine", "--budget", "120", "--folds", "2"]) == 0
    told = capsys.readouterr().out
    assert "small: No difference that matters: there is no other client to share with." in told
    assert "Nothing would leave a site" in told
    for arguments, expected in (
        (["--config", "quickstart_best"], "found a mixture"),
        (["--config", "mine", "--folds", "1"], "--folds: expected at least 2, found 1"),
        (["--config", "mine", "--buget", "9"], "Did you mean"),
        (["--config", "mine", "--out", "."], "with other contents"),
    ):
        assert main(["recommend", *arguments]) == 2
        assert expected in capsys.readouterr().err


def test_a_task_without_go_alone_models_is_refused() -> None:
    found = Survey({}, {"north": "sequence_labelling"}, frozenset())
    with pytest.raises(ConfigError, match=r"found sequence_labelling: this task has no go-alone models"):
        candidates_of({}, found)
