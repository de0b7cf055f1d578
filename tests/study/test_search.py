"""A search goes on after it was killed, is judged on validation rows alone, and says what it found."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import yaml
from optuna.storages.journal import JournalFileBackend, JournalStorage
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG, parse_session_start_info_plugin_data

from fedlit.errors import ConfigError, RunError
from fedlit.run.load import load
from fedlit.study.parse import load_study
from fedlit.study.search import Found, Trial, search
from fedlit.study.study import Study

SMALL = {"data.batches": 2, "model.client.network.hidden": [8, 8, 8], "board.confusion_matrices": 0}
SMALL["data.source.init_args.clients"] = ["wine", "iris"]
RATE = {"low": 0.25, "high": 1.0}
SPACE = {
    "exchange.federated": {"choices": [["nothing"], ["core"]]},
    "exchange.every": {"choices": ["epoch", {"steps": 1}]},
    "exchange.rate": RATE,
}


def study(
    folder: Path, space: dict[str, Any], *, epochs: int = 2, own: dict[str, Any] | None = None, **more: Any
) -> Study:
    changed = {**SMALL, "trainer.max_epochs": epochs, **(own or {})}
    content = {
        "seeds": 1,
        "reference": "gl",
        "baselines": [],
        "methods": {"gl": {"config": "quickstart.yaml", "set": changed}},
        "search": {"method": "gl", "space": space, **more},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(content))
    return load_study(str(folder / "tiny.yaml"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("search")
    searched = study(folder, SPACE, sampler="random", seeds=[1, 2])
    return search(searched, trials=4, jobs=1, out=folder / "out", quiet=True)


def scores(found: Found, trial: Trial) -> pd.DataFrame:
    """By hand: one row per seed, one column per client."""
    files = sorted((found.folder / "runs" / trial.name).glob("seed_*/scores.csv"))
    own = pd.concat([pd.read_csv(file).assign(seed=file.parent.name) for file in files])
    return own[(own["split"] == "validation") & (own["metric"] == "auroc")].pivot(
        index="seed", columns="client", values="value"
    )


def test_values_are_those_of_the_runs_and_the_best_is_the_best_on_validation(found: Found) -> None:
    values = {}
    for trial in found.ranked:
        own = scores(found, trial)
        assert own.shape == (2, 2)
        values[trial.number] = trial.value
        assert trial.value == pytest.approx(own.mean(axis=1).mean(), abs=1e-12)
        assert trial.clients == pytest.approx(own.mean().to_dict(), abs=1e-12)
    assert len(values) > 1 and found.best.number == max(values, key=values.__getitem__)


def test_trials_that_fail_are_named_and_the_others_count(found: Found) -> None:
    assert [trial.number for trial in found.trials] == list(range(4))
    for trial in found.trials:
        if trial.params["exchange.federated"] == ["nothing"]:
            assert re.search(r"seed 1: ConfigError: .*'nothing'.*; seed 2: ", trial.error, re.DOTALL), trial.error
        else:
            assert not trial.error and trial.value is not None
        assert f"FAILED {trial.name}: {trial.error}" in str(found) or not trial.error
    assert any("nothing" in error for error in found.failures.values())


def test_test_rows_are_never_scored(found: Found) -> None:
    runs = found.folder / "runs"
    for name, read in (("scores.csv", pd.read_csv), ("predictions.parquet", pd.read_parquet)):
        files = list(runs.glob(f"*/*/{name}"))
        assert files and all(set(read(file)["split"]) == {"validation"} for file in files)
    assert not list(runs.rglob("test.*"))
    tags = set()
    for folder in {file.parent for file in runs.glob("*/*/version_0/*/events.*")}:
        events = EventAccumulator(str(folder)).Reload()
        tags |= {tag for kind in ("scalars", "images", "tensors") for tag in events.Tags()[kind]}
    assert "val/auroc" in tags and not any("test" in tag for tag in tags)


def test_trials_stand_in_tensorboard(found: Found) -> None:
    assert {path.name for path in (found.folder / "trials").iterdir()} == {trial.name for trial in found.ranked}
    for trial in found.ranked:
        events = EventAccumulator(str(found.folder / "trials" / trial.name)).Reload()
        content = events.SummaryMetadata(SESSION_START_INFO_TAG).plugin_data.content
        shown = parse_session_start_info_plugin_data(content).hparams
        assert set(shown) == set(SPACE)
        assert shown["exchange.federated"].string_value == '["core"]'
        assert shown["exchange.rate"].number_value == trial.params["exchange.rate"]
        (point,) = events.Scalars("search/value")
        assert (point.step, point.value) == (trial.number, pytest.approx(trial.value))
        assert events.Scalars("client/iris")[0].value == pytest.approx(trial.clients["iris"])


def test_the_configuration_is_among_the_trials_and_the_printed_command_gives_the_best(found: Found) -> None:
    assert found.own is found.trials[0]
    assert found.own.params["exchange.rate"] == 1.0 and found.own.params["exchange.every"] == "epoch"
    text = str(found)
    command = re.search(r"^Train the best: (.*)$", text, re.MULTILINE)
    assert command is not None and "No test rows were scored" in text
    arguments = shlex.split(command[1])
    assert arguments[:4] == ["fedlit", "fit", "--config", "quickstart.yaml"]
    run = load("quickstart.yaml", *arguments[4:])
    assert (run.exchange.rate, run.exchange.every) == (
        found.best.params["exchange.rate"],
        found.best.params["exchange.every"],
    )
    snippet = re.search(r"^As a method of a study: (.*)$", text, re.MULTILINE)
    assert snippet is not None and yaml.safe_load(snippet[1])["best"]["set"] == found.method.set


def test_nothing_is_left_to_do(found: Found) -> None:
    again = search(found.study, trials=4, jobs=1, out=found.folder, quiet=True)
    assert again.trials == found.trials


def test_finished_runs_are_not_trained_again_and_the_worst_client_or_a_lost_one_decides(
    found: Found, tmp_path: Path
) -> None:
    shutil.copytree(found.folder / "runs", tmp_path / "runs")
    ended = next((trial.number for trial in found.trials if "seed" in trial.error), len(found.trials))
    # as if its predictions for a client were not finite with one of the seeds
    lost = [trial for trial in found.ranked if trial.number < ended][-1]
    file = tmp_path / "runs" / lost.name / "seed_2" / "scores.csv"
    table = pd.read_csv(file)
    table.loc[table["client"] == "iris", "value"] = np.nan
    table.to_csv(file, index=False)
    record = json.loads((file.parent / "DONE").read_text())
    record["files"][file.name] = file.stat().st_size  # a file of another size would be taken for damaged
    (file.parent / "DONE").write_text(json.dumps(record))
    kept = {path: path.read_text() for path in tmp_path.glob("runs/*/*/DONE")}
    assert ended > 1
    worst = study(tmp_path, SPACE, sampler="random", seeds=[1, 2], judge="worst")
    again = search(worst, trials=ended, jobs=1, out=tmp_path, quiet=True)
    assert [trial.params for trial in again.trials] == [trial.params for trial in found.trials[:ended]]
    assert list(again.failures) == [lost.name]
    assert "its auroc on validation is not a number" in again.failures[lost.name]
    assert again.best.value == pytest.approx(scores(again, again.best).min(axis=1).mean())
    assert {path: path.read_text() for path in tmp_path.glob("runs/*/*/DONE")} == kept


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"space": {**SPACE, "exchange.rate": {"low": 0.5, "high": 1.0}}},
            r"search\.space: .*\"low\": 0\.5.*, there .*--out",
        ),
        (
            {"space": {"exchange.rate": RATE}},
            r"expected the search whose trials lie there, found others: search\.space",
        ),
        ({"judge": "worst"}, r"search\.judge: \"worst\", there \"mean\""),
    ],
)
def test_another_search_is_refused_in_its_folder(found: Found, changes: dict[str, Any], message: str) -> None:
    assert found.study.search is not None
    other = replace(found.study, search=replace(found.study.search, **changes))
    with pytest.raises(ConfigError, match=message):
        search(other, trials=5, jobs=1, out=found.folder, quiet=True)


@pytest.mark.parametrize(
    ("key", "entry", "message"),
    [
        (
            "exchange.rate",
            {"low": 0.5},
            r"exchange\.rate: expected {choices: \[\.\.\.\]}, or {low: a, high: b}.*found {'low': 0\.5}",
        ),
        ("exchange.rate", {"low": 0.5, "high": 1.0, "choices": [1]}, "expected {choices"),
        ("exchange.rate", {"low": 1.0, "high": 0.5}, r"expected low < high, found low 1\.0, high 0\.5"),
        ("model.optimizer.lr", {"low": 0, "high": 0.1, "log": True}, "low > 0 where log is true, found low 0"),
        ("model.optimizer.lr", {"low": "little", "high": 0.1}, "expected two numbers .*found .*little"),
        ("exchange.rate", {"low": True, "high": 2}, "expected two numbers"),
        ("exchange.every", {"choices": []}, r"expected a list of at least one value and none twice, found \[\]"),
        ("exchange.every", {"choices": ["step", "step"]}, "none twice"),
        ("seed", {"low": 1, "high": 9}, "leaves the rows alone"),
        ("exchange.rat", RATE, r"search\.space\.exchange\.rat: .*Did you mean"),
    ],
)
def test_a_bad_space_is_refused(tmp_path: Path, key: str, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(study(tmp_path, {key: entry}), out=tmp_path / "out", quiet=True)


def test_all_problems_of_a_space_stand_in_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"search\.space\.exchange\.rate: .*\n.*search\.space\.seed: "):
        search(study(tmp_path, {"exchange.rate": {}, "seed": {"choices": [1]}}), out=tmp_path, quiet=True)
    with pytest.raises(ConfigError, match="expected at least one key, found none"):
        search(study(tmp_path, {}), out=tmp_path, quiet=True)
    with pytest.raises(ConfigError, match="--trials: expected at least 1, found 0"):
        search(study(tmp_path, SPACE), trials=0, out=tmp_path, quiet=True)
    with pytest.raises(ConfigError, match="expected a study with search"):
        search(replace(study(tmp_path, SPACE), search=None), out=tmp_path, quiet=True)


@pytest.mark.parametrize("sampler", ["random", "bayesian"])
def test_a_search_that_goes_on_draws_other_points(tmp_path: Path, sampler: str) -> None:
    # Nearly all rates are refused before anything is trained.
    drawn = study(tmp_path, {"exchange.rate": {"low": 1.0, "high": 1e6}}, own={"exchange.rate": 0.5}, sampler=sampler)
    rates: list[str] = []
    for trials in (1, 3, 4):
        with pytest.raises(RunError, match="expected at least one trial that came to its end, found none") as error:
            search(drawn, trials=trials, jobs=1, out=tmp_path / "out", quiet=True)
        now = re.findall(r"exchange\.rate: expected a share in \(0, 1\], found ([\d.]+);", str(error.value))
        assert now[: len(rates)] == rates and len(now) == len(set(now)) == trials
        rates = now


@pytest.mark.full
def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    space = {key: own for key, own in SPACE.items() if key in ("exchange.rate", "exchange.every")}
    searched = study(tmp_path, space, epochs=20, seeds=3)
    command = [sys.executable, "-m", "fedlit", "search", "tiny.yaml", "--trials", "4", "--jobs", "1", "--out", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    runs = tmp_path / "out" / "runs"

    def wait_for(pattern: str) -> float:
        deadline = time.monotonic() + 120
        while not list(runs.glob(pattern)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return time.monotonic()

    first = -wait_for("*/*/version_0") + wait_for("*/*/DONE")
    moment = random.uniform(0, first)  # seconds: somewhere in the second run, as a rule
    until = time.monotonic() + moment  # on a busy machine the first run may take longer than all others
    while time.monotonic() < until and len(list(runs.glob("*/*/DONE"))) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, process.communicate()[0]
    process.communicate()  # waits for the worker, which holds the other end
    done = {path: path.read_text() for path in runs.glob("*/*/DONE")}
    assert 1 <= len(done) < 4, moment
    # as if it had been killed while it drew a trial, and in the middle of a write
    journal = tmp_path / "out" / "journal.log"
    (tmp_path / "out" / "journal.log.lock").unlink(missing_ok=True)
    optuna.load_study(study_name="search", storage=JournalStorage(JournalFileBackend(str(journal)))).ask()
    with journal.open("a") as file:
        file.write('{"op_code": 6, "worker')
    (tmp_path / "out" / "journal.log.lock").touch()

    begun = time.monotonic()
    found = search(searched, trials=4, jobs=1, out=tmp_path / "out", quiet=True)
    assert time.monotonic() - begun < 60
    assert [trial.number for trial in found.trials] == list(range(4)) and not found.failures, moment
    assert all(path.read_text() == text for path, text in done.items()), moment
    assert sorted(path.parent.parent.name for path in runs.glob("*/*/DONE")) == [trial.name for trial in found.trials]
    assert len({tuple(map(str, trial.params.values())) for trial in found.trials}) == 4
    for trial in found.trials:
        assert trial.value == pytest.approx(np.mean(scores(found, trial).to_numpy()), abs=1e-12)
