"""What blocks a verdict travels: fit, test, the checkpoint, the card, recommend, compare and the
API carry it, and print no verdict above it. ``data.known`` settles it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from ranks import on_ranks

import fedlit
from fedlit.__main__ import main
from fedlit.answers.verdict import VERDICTS, Verdict
from fedlit.data.sources import Tables
from fedlit.errors import DataError
from fedlit.mixture.export import export
from fedlit.mixture.recommend import recommend
from fedlit.run.load import load
from fedlit.study.basis import Basis
from fedlit.study.compare import compare
from fedlit.study.joining import add_client
from fedlit.study.parse import load_study
from fedlit.train.manifest import read_checkpoint

N = 120
KNOWN = {"code": "is set at admission"}
STUDY = {
    "seeds": "1:3",
    "methods": {
        "local": {"config": "mine.yaml", "set": {"exchange.federated": []}},
        "fedavg": {"config": "mine.yaml"},
    },
    "baselines": {"logistic_regression": {"C": [1.0]}},
    "metrics": ["auroc"],
    "bootstrap": 20,
}


def rows(seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": draw.integers(20, 90, N), "bmi": draw.normal(27, 4, N).round(1)})
    frame["outcome"] = draw.integers(0, 2, N)
    frame["code"] = np.where(frame["outcome"] == 1, "X1", "Z9")
    return frame


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(["north", "south"]):
        rows(seed).to_csv(f"{name}.csv", index=False)
    Path("study.yaml").write_text(yaml.safe_dump(STUDY))
    write()
    return tmp_path


def write(**data: Any) -> None:
    source = {"files": {"north": "north.csv", "south": "south.csv"}, "target": "outcome"}
    network = {"class_path": "fedlit.MLP", "init_args": {"hidden": [4, 4]}}
    content = {
        "seed": 1,
        "data": {
            "source": {"class_path": "fedlit.Tables", "init_args": source},
            "batches": 4,
            **data,
        },
        "model": {
            "client": {"class_path": "fedlit.FederatedClient", "init_args": {"network": network}}
        },
        "exchange": {"federated": ["core"]},
        "trainer": {"max_epochs": 1, "enable_progress_bar": False},
    }
    Path("mine.yaml").write_text(yaml.safe_dump(content))


@pytest.mark.parametrize("known", [None, KNOWN])
def test_a_run_its_scores_and_its_card_carry_a_leak(
    place: Path, known: dict[str, str] | None
) -> None:
    write(known=known)
    run = load("mine.yaml")
    fitted = run.fit(quiet=True)
    (finding,) = run.data.findings
    assert (finding.column, finding.clients) == ("code", ("north", "south"))
    assert len(run.data.findings.blocks) == (known is None)
    plan = "\n".join(run.describe().notes)
    scored = load("mine.yaml").test(run.last_checkpoint, quiet=True)
    assert run.folder is not None
    export(run.folder, "north", "exported")
    texts = [plan, str(fitted), str(scored), Path("exported/model_card.md").read_text()]
    assert all("code: alone predicts outcome" in text for text in texts)
    assert all(("is set at admission" in text) is (known is not None) for text in texts)
    assert json.loads((run.folder / "test.json").read_text())["findings"]


@pytest.mark.parametrize("known", [None, KNOWN])
def test_a_study_has_no_verdict_above_an_open_leak(
    place: Path, known: dict[str, str] | None
) -> None:
    write(known=known)
    found = compare("study.yaml", workers=1, quiet=True)
    verdicts = {*found.lift["verdict"]}
    if known is None:
        assert found.answers == [] and verdicts == {Verdict.BLOCKED}
    else:
        assert len(found.answers) == 2 and verdicts <= {*VERDICTS}
    report = (found.folder / "report.html").read_text()
    assert ("Should this client join?" in report) is (known is not None)
    assert "alone predicts outcome" in report and ("is set at admission" in report) is (
        known is not None
    )


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "study.yaml", "--workers", "1"],
        ["recommend", "mine.yaml", "--budget", "0", "--folds", "2"],
    ],
)
def test_a_command_prints_a_finding_once(
    place: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    notes = " ".join(capsys.readouterr().out.split()).split("Note: ")
    assert sum("alone predicts outcome" in note for note in notes) == 1


def test_a_column_that_a_study_leaves_out_blocks_nothing(place: Path) -> None:
    write(columns=["!code"])
    assert Basis(load_study("study.yaml")).rows.findings.blocks == ()


@pytest.mark.parametrize("known", [None, KNOWN])
def test_recommend_has_no_verdict_above_an_open_leak(
    place: Path, known: dict[str, str] | None
) -> None:
    write(known=known)
    lines = list[str]()
    found = recommend("mine.yaml", budget=0.0, folds=2, tell=lines.append)
    verdicts = {own.verdict for own in found.clients.values()}
    assert (verdicts == {Verdict.BLOCKED}) is (known is None)
    written = json.loads((Path("recommended") / "mine" / "recommend.json").read_text())
    assert [own["column"] for own in written["findings"]] == ["code"]
    first = str(found).partition("held-out rows:")[0]
    assert "alone predicts outcome" in first and "alone predicts outcome" in lines[0]
    if known is None:
        assert found.wanted == ()


@pytest.mark.parametrize("known", [None, KNOWN])
def test_the_api_warns_of_a_leak_and_keeps_findings(
    place: Path, known: dict[str, str] | None
) -> None:
    settings = {"trainer.max_epochs": 1, "data.batches": 4}
    tables = {
        "north": rows(0),
        "south": rows(1).assign(age=lambda own: own["age"].where(own.index % 9 != 0, -999)),
    }
    federation = fedlit.Federation(
        "outcome", method="fedavg", settings=settings, folder="api", known=known
    )
    if known is None:
        with pytest.warns(UserWarning, match="alone predicts outcome"):
            federation.fit(tables)
    else:
        federation.fit(tables)
    kinds = {finding.kind: finding for finding in federation.notes_}
    assert {"leak", "missing"} <= {*kinds} and bool(kinds["leak"].reason) is (known is not None)
    assert all(str(own) in str(federation.report()) for own in (kinds["leak"], kinds["missing"]))


@pytest.mark.parametrize(
    "study", ["covertype", "diabetes", "heart", "populations", "quickstart", "sites"]
)
def test_shipped_studies_keep_their_verdicts(study: str) -> None:
    """Nothing in the tables that are here blocks them."""
    whole = load_study(study)
    names: list[str | None] = [*whole.scenarios]
    for name in names or [None]:
        one = whole if name is None else whole.of(name)
        try:
            rows = Basis(one).rows
            rows.tables  # noqa: B018 (a property that reads)
        except DataError:
            continue  # a file is not here
        assert rows.findings.blocks == ()


def of_two_units() -> None:
    for seed, (name, factor) in enumerate([("north", 1), ("south", 1 / 18)]):
        frame = rows(seed).drop(columns="code")
        glucose = np.random.default_rng(seed).normal(100, 12, N)
        frame.assign(glucose=(glucose * factor).round(2)).to_csv(f"{name}.csv", index=False)


def test_recommend_and_compare_repeat_what_is_asked(place: Path) -> None:
    """Verdicts stay, and name the columns whose questions are open; an answer ends that."""
    of_two_units()
    said = [
        str(recommend("mine.yaml", budget=0.0, folds=2)),
        str(compare("study.yaml", workers=1, quiet=True)),
    ]
    for text in said:
        (line,) = (
            own for own in " ".join(text.split()).split("Note: ") if "fedlit check --config" in own
        )
        assert "glucose (scale)" in line and "--config mine.yaml" in line
    write(known={"glucose": "each site standardises its own numbers"})
    assert not [*Basis(load_study("study.yaml")).rows.open_questions]


def test_a_leak_blocks_the_verdicts_of_those_who_have_it(place: Path) -> None:
    rows(2).drop(columns="code").to_csv("west.csv", index=False)
    settings = yaml.safe_load(Path("mine.yaml").read_text())
    settings["data"]["source"]["init_args"]["files"]["west"] = "west.csv"
    Path("mine.yaml").write_text(yaml.safe_dump(settings))
    found = recommend("mine.yaml", budget=0.0, folds=2)
    blocked = {client for client, own in found.clients.items() if own.verdict == Verdict.BLOCKED}
    assert blocked == {"north", "south"}
    study = compare("study.yaml", workers=1, quiet=True)
    assert [own.client for own in study.answers] == ["west"]
    free = study.lift[study.lift["verdict"] != Verdict.BLOCKED]
    assert {*free["client"]} == {"west"}  # not the mean over all


def test_what_another_rank_finds_reaches_the_run(place: Path) -> None:
    """Two processes, one table each: the second one's leak is in the scores and the checkpoint."""
    rows(0).drop(columns="code").to_csv("north.csv", index=False)
    ended = on_ranks(2, "fit", "--config", "mine.yaml", module="fedlit")
    assert ended.returncode == 0, ended.stderr[-3000:]
    (folder,) = Path("lightning_logs/mine").iterdir()
    saved = read_checkpoint(folder / "checkpoints" / "last.ckpt", resumable=False)["fedlit"]
    found = {(own["kind"], own["column"], *own["clients"]) for own in saved["findings"]}
    assert found == {("leak", "code", "south")}
    assert "alone predicts outcome" in ended.stdout + ended.stderr


def test_a_leak_of_a_newcomer_alone_blocks_its_verdict(place: Path) -> None:
    for seed, name in enumerate(["north", "south", "west"]):
        code = np.random.default_rng(seed).choice(["X1", "Z9"], N)
        rows(seed).assign(code=code).to_csv(f"{name}.csv", index=False)
    load("mine.yaml").fit(quiet=True)
    source = {"files": {"west": "west.csv"}, "target": "outcome"}
    content = {"data": {"source": {"class_path": "fedlit.Tables", "init_args": source}}}
    keys: dict[str, Any] = {"baselines": ["logistic_regression"], "bootstrap": 20, "quiet": True}
    assert len(add_client("mine", content, **keys).comparison.answers) == 1
    rows(2).to_csv("west.csv", index=False)
    found = add_client("mine", content, **keys).comparison
    assert found.answers == [] and {*found.lift["verdict"]} == {Verdict.BLOCKED}
    assert any("code: alone predicts outcome" in note for note in found.notes)


def test_the_api_reads_its_tables_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[int]()
    before = Tables.tables

    def counted(source: Tables, seed: int) -> Any:
        reads.append(seed)
        return before(source, seed)

    monkeypatch.setattr(Tables, "tables", counted)
    settings = {"trainer.max_epochs": 1, "data.batches": 4}
    tables = {name: rows(seed).drop(columns="code") for seed, name in enumerate(["north", "south"])}
    fedlit.Federation("outcome", method="fedavg", settings=settings, folder="api").fit(tables)
    assert len(reads) == 1
