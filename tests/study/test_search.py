"""A search goes on after it was killed, is judged on validation rows alone, and says what it
found."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import yaml
from study.conftest import LR, RATES, write_study

from fedlit.errors import ConfigError, RunError
from fedlit.jobs.job import Job, digest_of, variant_name
from fedlit.run.load import load
from fedlit.study import search as module
from fedlit.study import tune
from fedlit.study.basis import Basis
from fedlit.study.job import validation_scores
from fedlit.study.method import Search
from fedlit.study.parse import load_study
from fedlit.study.search import Found, Trial, search
from fedlit.study.study import StudyFile
from fedlit.study.tune import judged

SMALL = {"data.batches": 2, "model.client.network.hidden": [8, 8, 8], "board.pictures": 0}
SMALL["data.source.init_args.clients"] = ["north", "west"]
RATE = {"low": 0.25, "high": 1.0}
SPACE = {
    "exchange.federated": {"choices": [["nothing"], ["core"]]},
    "exchange.every": {"choices": ["epoch", {"steps": 1}]},
    "exchange.rate": RATE,
}


def study(folder: Path, space: dict[str, Any], *, epochs: int = 2, **more: Any) -> StudyFile:
    methods = {"gl": {"config": "quickstart.yaml", "set": {**SMALL, "trainer.max_epochs": epochs}}}
    asked: dict[str, Any] = {
        "seeds": 1,
        "methods": methods,
        "baselines": [],
        "search": {"method": "gl", "space": space, **more},
    }
    tune = {LR: RATES}  # a search has nothing to do with it
    return load_study(str(write_study(folder, **asked, reference="gl", tune=tune, paper=None)))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> StudyFile:
    return study(tmp_path_factory.mktemp("search"), SPACE, seeds=[1, 2])


@pytest.fixture(scope="module")
def found(file: StudyFile) -> Found:
    return search(file, trials=4, workers=1, out=Path(file.folder) / "out", quiet=True)


def scores(found: Found, trial: Trial) -> pd.DataFrame:
    """By hand: one row per seed, one column per client."""
    files = sorted(
        (found.folder / "runs" / variant_name("gl", trial.params)).glob("seed_*/scores.csv")
    )
    own = pd.concat([pd.read_csv(file).assign(seed=file.parent.name) for file in files])
    return own[(own["split"] == "validation") & (own["metric"] == "auroc")].pivot(
        index="seed", columns="client", values="value"
    )


def test_the_best_trial_is_the_best_on_validation(found: Found) -> None:
    values: dict[int, Any] = {}
    for trial in found.ranked:
        own = scores(found, trial)
        assert own.shape == (2, 2)
        values[trial.number] = trial.value
        assert trial.value == pytest.approx(own.mean(axis=1).mean(), abs=1e-12)
    assert len(values) > 1 and found.best.number == max(values, key=values.__getitem__)
    assert found.unchanged == pytest.approx(
        scores(found, Trial(0, {}, 0, "")).mean(axis=1).mean(), abs=1e-12
    )


def test_trials_that_fail_are_named_and_the_others_count(found: Found) -> None:
    assert [trial.number for trial in found.trials] == list(range(4))
    for trial in found.trials:
        assert ("'nothing'" in trial.error) == (trial.params["exchange.federated"] == ["nothing"])
        assert (trial.value is None) == bool(trial.error)
    assert found.failures and all(error in str(found) for error in found.failures.values())


def test_the_printed_command_gives_the_best(found: Found) -> None:
    command = re.search(r"^Train the best: (.*)$", str(found), re.MULTILINE)
    snippet = re.search(r"^As a method of a study: (.*)$", str(found), re.MULTILINE)
    assert command is not None and snippet is not None
    arguments = shlex.split(command[1])
    assert arguments[:4] == ["fedlit", "fit", "--config", "quickstart.yaml"]
    run = load("quickstart.yaml", *arguments[4:])
    best = found.best.params
    assert (run.exchange.rate, run.exchange.every) == (
        best["exchange.rate"],
        best["exchange.every"],
    )
    assert yaml.safe_load(snippet[1])["best"]["set"] == found.method.set


def test_a_changed_search_begins_anew_but_trains_no_run_twice(
    file: StudyFile, found: Found
) -> None:
    kept = {path: path.read_text() for path in found.folder.glob("runs/*/*/DONE")}
    again = search(file, trials=4, workers=1, out=found.folder, quiet=True)
    assert again.trials == found.trials
    other = search(file, trials=4, seeds=[1], workers=1, out=found.folder, quiet=True)
    assert [trial.params for trial in other.trials] == [trial.params for trial in found.trials]
    assert other.best.value == pytest.approx(scores(other, other.best).iloc[0].mean())
    assert {path: path.read_text() for path in found.folder.glob("runs/*/*/DONE")} == kept


def test_a_search_says_beside_its_digest_what_it_is_of(found: Found) -> None:
    storage = f"sqlite:///{found.folder / 'trials.db'}"
    names = set(optuna.get_all_study_names(storage))
    made_of = [
        optuna.load_study(study_name=name, storage=storage).user_attrs["made_of"] for name in names
    ]
    assert {digest_of(content) for content in made_of} == names
    assert [1, 2] in [content["seeds"] for content in made_of]


def test_a_lost_client_leaves_a_trial_without_a_value(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its predictions were not finite with one of the seeds: the mean of the others would
    flatter the trial."""

    def lost(job: Job) -> pd.DataFrame:
        own = validation_scores(job)
        return own.assign(value=own["value"].where((own["client"] != "west") | (job.seed != 2)))

    monkeypatch.setattr(tune, "validation_scores", lost)
    (own,) = judged(
        found.study, [("gl", found.best.params)], [1, 2], found.folder, Basis(found.study), 1
    )
    assert np.isnan(own[0]) and "auroc" in own[1]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"exchange.rate": {"low": 0.5}}, "exchange.rate"),
    ({"exchange.rate": {"low": 1.0, "high": 0.5}}, "exchange.rate"),
    ({"model.optimizer.lr": {"low": 0, "high": 0.1, "log": True}}, "model.optimizer.lr"),
    ({"model.optimizer.lr": {"low": "little", "high": 0.1}}, "model.optimizer.lr"),
    ({"exchange.every": {"choices": []}}, "exchange.every"),
    ({"seed": {"low": 1, "high": 9}}, "seed"),
    ({"exchange.rate": {}, "seed": {"choices": [1]}}, r"exchange.rate: .*\n.*search.space.seed"),
    ({}, "search.space"),
]


@pytest.mark.parametrize(("space", "key"), BAD)
def test_a_bad_space_is_refused(tmp_path: Path, space: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        search(study(tmp_path, space), out=tmp_path / "out", quiet=True)


def test_what_is_no_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--trials"):
        search(study(tmp_path, SPACE), trials=0, out=tmp_path, quiet=True)
    with pytest.raises(ConfigError, match="search"):
        search(replace(study(tmp_path, SPACE), search=None), out=tmp_path, quiet=True)
    other = replace(study(tmp_path, SPACE), search=Search("gl", {"model.optimizer.lrate": RATE}))
    with pytest.raises(RunError, match="lrate"):
        search(other, trials=2, workers=1, out=tmp_path, quiet=True)


def test_a_search_that_was_cut_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {key: own for key, own in SPACE.items() if key in ("exchange.rate", "exchange.every")}
    searched = study(tmp_path, space, seeds=3)
    calls = list[Any]()

    def cut_short(*given: Any, **more: Any) -> Any:
        calls.append(judged(*given, **more))
        # the configuration's own run is done, and a trial's, which nobody was told
        if len(calls) == 2:
            raise KeyboardInterrupt
        return calls[-1]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "judged", cut_short)
        search(searched, trials=2, workers=1, out=tmp_path / "out", quiet=True)
    done = {path: path.read_text() for path in tmp_path.glob("out/runs/*/*/DONE")}
    found = search(searched, trials=2, workers=1, out=tmp_path / "out", quiet=True)
    assert len(found.trials) == 2 and not found.failures
    assert len(done) == 2 and all(path.read_text() == text for path, text in done.items())
    # the trial that was cut short has been told
    assert len(list(tmp_path.glob("out/runs/*/*/DONE"))) == 3
    for trial in found.trials:
        assert trial.value == pytest.approx(np.mean(scores(found, trial).to_numpy()), abs=1e-12)
