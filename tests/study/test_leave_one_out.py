"""What the others gain by a client, against federations that were trained by hand without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from federations import TINY

from fedlit.errors import ConfigError
from fedlit.run.load import load
from fedlit.statistics import corrected_interval
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, compare
from fedlit.study.findings import answers
from fedlit.study.lift import LEFT_OUT, OTHERS, Scores, estimates, leave_one_out, lifts
from fedlit.study.method import Method
from fedlit.study.plan import plan_jobs
from fedlit.study.study import Study

THREE = TINY.replace("[wine, breast_cancer]", "[wine, breast_cancer, diabetes]").format(epochs=2)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two clients with classes, and one with a number."""
    folder = tmp_path_factory.mktemp("leave_one_out")
    (folder / "mine.yaml").write_text(THREE, encoding="utf-8")
    methods = {"local": {"config": "mine.yaml", "set": {"exchange.federated": []}}, "shared": {"config": "mine.yaml"}}
    study = {"seeds": [1, 2], "methods": methods, "baselines": [], "bootstrap": 0, "leave_one_out": True}
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return compare(str(folder / "study.yaml"), out=folder / "out", jobs=1, quiet=True)


def test_what_others_gain_is_that_of_runs_made_by_hand(found: Comparison, tmp_path: Path) -> None:
    """The federation without wine, made from a source that does not have it."""
    (tmp_path / "two.yaml").write_text(THREE.replace("[wine, ", "["), encoding="utf-8")
    scores = found.collected.scores
    whole = scores[(scores["method"] == "shared") & (scores["split"] == "test") & (scores["without"] == "")]
    whole = whole.set_index(["metric", "client", "seed"])["value"]
    differences = []
    for seed in (1, 2):
        run = load(str(tmp_path / "two.yaml"), f"--seed={seed}", f"--trainer.default_root_dir={tmp_path}")
        run.fit(quiet=True)
        own = run.test("last", quiet=True).scores["breast_cancer"]["auroc"]
        differences.append(whole["auroc", "breast_cancer", seed] - own)
    table = pd.read_csv(found.folder / LEFT_OUT).set_index(["metric", "method", "joins", "client"])
    for client in ("breast_cancer", OTHERS):  # the third has a score of its own
        row = table.loc[("auroc", "shared", "wine", client)]
        assert row["mean"] == pytest.approx(np.mean(differences), abs=1e-7) and row["n"] == 2
    ratio = found.collected.ratio["breast_cancer"]
    assert row[["low", "high"]].tolist() == pytest.approx(corrected_interval(differences, ratio), abs=1e-6)
    lift = found.lift.set_index(["metric", "reference", "method", "client"])["mean"]
    assert table.loc[("auroc", "shared", "wine", "wine"), "mean"] == lift["auroc", "local", "shared", "wine"]
    assert len(list(found.folder.glob("runs/shared~*/seed_*/DONE"))) == 6 and found.collected.lacking == 6
    assert set(found.collected.records["method"]) == {"local", "shared"} and len(found.collected.records) == 4
    told = [line for own in found.answers for line in own.more]
    sentence = next(line for line in told if line.startswith("Should wine join? For wine itself: "))
    assert f"{sentence}." in str(found) and f"{sentence}." in (found.folder / "tables.md").read_text("utf-8")


def test_what_failed_is_not_known_and_said_so(found: Comparison) -> None:
    jobs = plan_jobs(found.study, [1, 2], found.folder)
    own = collect(found.study, [job for job in jobs if job.left_out != "wine"])
    assert set(own.results["without"]) == {"", "diabetes", "breast_cancer"}
    scores = Scores(own)
    table = leave_one_out(found.study, scores)
    told = answers(found.study, own, estimates(found.study, scores), lifts(found.study, scores), table)
    assert told[-1].client == "wine" and "For the others: not known" in told[-1].more[-1]


def test_where_there_is_nobody_to_leave_out_it_is_refused(found: Comparison, tmp_path: Path) -> None:
    study, one = found.study, {"data.source.init_args.clients": ["wine"]}
    with pytest.raises(ConfigError, match="leave_one_out: expected a federated method"):
        plan_jobs(replace(study, methods={"local": study.methods["local"]}), [1], tmp_path)
    alone = Method("quickstart", set={**one, "exchange.federated": []})
    methods = {"local": alone, "gl": Method("quickstart", set=one)}
    with pytest.raises(ConfigError, match="leave_one_out: expected three clients or more"):
        plan_jobs(Study(methods, [1], leave_one_out=True, baselines={}, choose="auroc"), [1], tmp_path)
