"""Federations without one of their clients: who should join, for itself and for the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlit.errors import ConfigError
from fedlit.run.load import load
from fedlit.statistics import corrected_interval
from fedlit.study.compare import Comparison, compare
from fedlit.study.leave_one_out import FILE, OTHERS
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.study import BEST_FEDERATED, Study

CLIENTS = ["breast_cancer", "digits", "wine"]
SMALL = {"data.batches": 2, "model.client.network.hidden": [8, 8], "trainer.max_epochs": 2}
LR = "model.optimizer.lr"


def study(folder: Path, clients: list[str] = CLIENTS, **more: Any) -> Study:
    own = {**SMALL, "data.source.init_args.clients": clients}
    content = {
        "seeds": "1:2",
        "leave_one_out": True,
        "metrics": ["auroc"],
        "baselines": [],
        "bootstrap": 5,
        "methods": {
            "local": {"config": "quickstart.yaml", "set": {**own, "exchange.federated": []}},
            "gl": {"config": "quickstart.yaml", "label": "Shared core", "set": own, **more},
        },
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_study(str(folder / "tiny.yaml"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study(tmp_path_factory.mktemp("asked"))


@pytest.fixture(scope="module")
def found(asked: Study, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(asked, out=tmp_path_factory.mktemp("found"), jobs=1, quiet=True)


def by_hand(seed: int, clients: list[str], folder: Path) -> dict[str, float]:
    """AUROC on test rows by client, where the source makes these clients alone."""
    values = {**SMALL, "data.source.init_args.clients": clients, "trainer.default_root_dir": str(folder)}
    arguments = [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()]
    run = load("quickstart.yaml", *arguments, f"--seed={seed}", "--board.curves=false", "--board.confusion_matrices=0")
    run.fit(quiet=True)
    return {client: own["auroc"] for client, own in run.test("last", quiet=True).scores.items()}


def test_what_others_gain_is_that_of_runs_made_by_hand(found: Comparison, tmp_path: Path) -> None:
    table = pd.read_csv(found.folder / FILE).set_index(["metric", "method", "joins", "client"])
    others = ["breast_cancer", "wine"]
    differences = {client: [] for client in others}
    for seed in (1, 2):
        whole, without = (by_hand(seed, clients, tmp_path) for clients in (CLIENTS, others))
        for client in others:
            differences[client].append(whole[client] - without[client])
    for client in others:
        own = table.loc[("auroc", "gl", "digits", client)]
        assert own["mean"] == pytest.approx(np.mean(differences[client]), abs=1e-7)
        ratio = found.collected.ratio[client]
        assert own[["low", "high"]].tolist() == pytest.approx(corrected_interval(differences[client], ratio), abs=1e-6)
    mean = np.mean(list(differences.values()), axis=0)
    assert table.loc[("auroc", "gl", "digits", OTHERS), "mean"] == pytest.approx(mean.mean(), abs=1e-7)
    assert table.loc[("auroc", "gl", "digits", OTHERS), "n"] == 2
    # there is one federated method, so the best is this one
    pd.testing.assert_frame_equal(
        table.xs(BEST_FEDERATED, level="method").drop(CLIENTS, level="client"),
        table.xs("gl", level="method").drop(CLIENTS, level="client"),
    )
    lift = found.lift.set_index(["metric", "reference", "method", "client"])
    for client in CLIENTS:
        assert table.loc[("auroc", "gl", client, client), "mean"] == lift.loc[("auroc", "local", "gl", client), "mean"]
    assert len(table) == 2 * 3 * 4


def test_it_is_said_in_cards_tables_and_terminal(found: Comparison) -> None:
    table = found.left_out.set_index(["method", "joins", "client"])
    mine, theirs = (table.loc[(BEST_FEDERATED, "wine", who)] for who in ("wine", OTHERS))
    sentence = (
        f"Should wine join? For wine itself: {100 * mine['mean']:+.2f} percentage points ({mine['verdict']}). For the "
        f"others: {100 * theirs['mean']:+.2f} ({theirs['verdict']})."
    )
    report = (found.folder / "report.html").read_text(encoding="utf-8")
    assert sentence in (found.folder / "tables.md").read_text(encoding="utf-8") and sentence in str(found)
    assert sentence in report and report.count("wine joins") == 1
    assert f"{100 * theirs['mean']:+.2f}" in report.split("wine joins", 1)[1].split("</tr>", 1)[0]
    assert "6 of these were federations without one of their clients" in report and "10 of 10 runs" in report


@pytest.mark.full
def test_nothing_else_is_changed_and_nothing_is_run_again(found: Comparison, asked: Study) -> None:
    assert set(found.collected.results["method"]) == {"local", "gl", BEST_FEDERATED}
    assert sorted(path.name for path in found.folder.glob("runs/*")) == [
        "gl",
        *(f"gl~{own}" for own in CLIENTS),
        "local",
    ]
    said: list[str] = []
    again = compare(asked, out=found.folder, jobs=1, say=said.append)
    assert said == ["leave_one_out: 6 further runs, each federation without one of its 3 clients in turn",
                    "10 of 10 runs are done already"]  # fmt: skip
    pd.testing.assert_frame_equal(again.left_out, found.left_out)
    plain = compare(asked, leave_one_out=False, out=found.folder, jobs=1, say=said.append)
    assert said[2:] == ["4 of 4 runs are done already"] and not (found.folder / FILE).exists()
    pd.testing.assert_frame_equal(plain.collected.results, found.collected.results)
    assert "Should wine join" not in str(plain)


def test_what_failed_is_not_known_and_said_so(found: Comparison, asked: Study) -> None:
    from fedlit.study.collect import collect
    from fedlit.study.leave_one_out import joining_line, joinings, leave_one_out
    from fedlit.study.lift import Scores

    jobs = plan_jobs(found.study, [1, 2], found.folder)
    broken = [replace(job, digest="none") if job.left_out == "wine" else job for job in jobs]
    own = collect(found.study, broken)
    assert set(own.without) == {"breast_cancer", "digits"}
    table = leave_one_out(found.study, Scores(own))
    wine = next(own for own in joinings(found.study, table) if own.client == "wine")
    assert joining_line(wine).endswith("For the others: not known (runs are missing, or nobody has this score)")


def test_of_two_clients_the_other_goes_alone(tmp_path: Path) -> None:
    said: list[str] = []
    found = compare(study(tmp_path, ["breast_cancer", "wine"]), out=tmp_path / "out", jobs=1, say=said.append)
    assert said[0].startswith("leave_one_out: there are two clients, and without one of them the other goes alone")
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2
    table = found.left_out.set_index(["method", "joins", "client"])["mean"]
    for method in ("gl", BEST_FEDERATED):
        assert table[method, "wine", OTHERS] == table[method, "wine", "breast_cancer"]
        assert table[method, "wine", "breast_cancer"] == table[method, "breast_cancer", "breast_cancer"]
    assert "There are two clients: without one of them the other goes alone" in (
        (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    )


def test_what_is_planned(tmp_path: Path, asked: Study) -> None:
    plain = plan_jobs(replace(asked, leave_one_out=False), [1, 2], tmp_path)
    jobs = plan_jobs(asked, [1, 2], tmp_path)
    assert jobs[:4] == plain and len(jobs) == 4 + 2 * 3  # nothing of these is changed; local needs no second run
    assert [job.name for job in jobs[4:7]] == [f"gl without {client}, seed 1" for client in CLIENTS]
    for field in ("digest", "folder", "name"):
        assert len({getattr(job, field) for job in jobs}) == 10
    tuned = plan_jobs(study(tmp_path, tune={LR: [0.1, 0.2]}), [1], tmp_path)
    assert len(tuned) == 3 + 3 * 2 and {job.method for job in tuned[3:]} == {"gl"}


def test_where_there_is_nobody_to_leave_out_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave_one_out: expected two clients or more, found wine alone"):
        plan_jobs(study(tmp_path, ["wine"]), [1], tmp_path)
    alone = study(tmp_path)
    with pytest.raises(ConfigError, match="leave_one_out: expected a federated method"):
        plan_jobs(replace(alone, methods={"local": alone.methods["local"]}), [1], tmp_path)
    with pytest.raises(ConfigError, match="leaves the rows alone"):
        study(tmp_path, tune={"data.leave_out": [["wine"], ["digits"]]})
