"""A federation of the time to an event, from two tables of unlike columns to exported scorers."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from federations import different, weights
from mixed import mixed_best
from sites import federate

import fedlit
import fedlit.score
from fedlit.__main__ import main
from fedlit.data.encoder import TableEncoder
from fedlit.data.examine import examine
from fedlit.data.folds import folded
from fedlit.data.module import FederatedData
from fedlit.data.sources import Tables
from fedlit.errors import ConfigError, DataError
from fedlit.mixture.export import export
from fedlit.run.curves import draw_curves
from fedlit.run.run import Run
from fedlit.score.folder_checks import MAIN
from fedlit.study.compare import compare
from fedlit.study.joining import add_client
from fedlit.tasks.survival_scores import SCORES
from fedlit.tasks.units import heading
from fedlit.train.results import Results

ROLES = ["--time", "days", "--time", "south=tage", "--event", "died", "--event", "south=tot"]


def rows_of(seed: int, rows: int = 240) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age = draw.normal(size=rows).round(3)
    death = draw.exponential(900 * np.exp(-age))
    end = draw.uniform(100, 1500, rows)
    frame = pd.DataFrame({"age": age, "dose": draw.normal(size=rows).round(3)})
    return frame.assign(
        days=np.ceil(np.minimum(death, end)).astype(int),
        died=np.where(death <= end, "dead", "alive"),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, of which one counts the event as 1 and the other writes words."""
    folder = tmp_path_factory.mktemp("survival")
    rows_of(0).to_csv(folder / "north.csv", index=False)
    south = rows_of(1).rename(columns={"dose": "pressure", "days": "tage"})
    south["tot"] = (south.pop("died") == "dead").astype(int)
    south.to_csv(folder / "south.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["init", "north.csv", "south.csv", "--task", "survival", *ROLES, "--unit", "day"])
    config = folder / "mine.yaml"
    content = yaml.safe_load(config.read_text())
    for client in ("north", "south"):
        content["data"]["source"]["init_args"]["task"][client]["horizons"] = ["1y", 730.5]
    content["data"]["source"]["init_args"]["root"] = str(folder)
    content["trainer"] |= {
        "max_epochs": 3,
        "enable_progress_bar": False,
        "logger": False,
        "default_root_dir": str(folder),
    }
    config.write_text(yaml.safe_dump(content))
    return config


@pytest.fixture(scope="module")
def run(config: Path) -> Run:
    run = fedlit.load(str(config))
    run.fit(quiet=True)
    return run


def test_init_proposes_columns_and_codes_by_client(config: Path) -> None:
    settings = yaml.safe_load(config.read_text())["data"]["source"]["init_args"]
    assert "target" not in settings
    tasks = settings["task"]
    assert (tasks["north"]["time"], tasks["south"]["event"]) == ("days", "tot")
    assert settings["values"] == {"north": {"died": {"dead": 1, "alive": 0}}}


def test_it_is_trained_tested_and_predicted_with(run: Run, folder: Path) -> None:
    tasks = [spec.task for spec in run.data.specs]
    assert {task.name for task in tasks} == {"survival"}
    first, second = tasks
    assert first.edges == second.edges and first.horizons == (365.25, 730.5)  # type: ignore[attr-defined]
    assert first.censor_times != second.censor_times  # type: ignore[attr-defined]
    results = run.test(quiet=True)
    frames = run.predict(quiet=True)
    for ward in ("north", "south"):
        scores = results.scores[ward]
        assert all(math.isfinite(value) for value in scores.values()), scores
        frame = frames[ward]
        curves = frame.filter(like="survival_").to_numpy()
        assert (np.diff(curves, axis=1) <= 0).all() and (curves <= 1).all()
        assert (frame["risk_2y"] >= frame["risk_1y"]).all()
        at_median = np.isfinite(frame["median"])
        first_below = (curves <= 0.5).any(1)
        assert (at_median == first_below).all()


def test_the_target_is_no_feature_and_splits_are_by_event(folder: Path, config: Path) -> None:
    source = yaml.safe_load(config.read_text())["data"]["source"]["init_args"]
    north, south = Tables(**source).tables(3)
    assert list(north.features) == ["age", "dose"] and list(south.features) == ["age", "pressure"]
    for table in (north, south, folded(north, 4, 1, 3)):
        events = table.target.map(lambda row: row[1])
        for rows in table.splits.values():
            assert abs(events.iloc[rows].mean() - events.mean()) < 1 / len(rows)


def test_an_exported_client_predicts_the_same_curves(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    export(str(run.folder), "north", tmp_path / "north")
    rows = pd.read_csv(folder / "north.csv").drop(columns=["days", "died"]).tail(9)
    scorer = fedlit.score.load(tmp_path / "north")
    expected = run.client("north").predict(rows)
    pd.testing.assert_frame_equal(scorer.predict(rows), expected, rtol=1e-4)
    assert not {"censor_times", "censor_left"} & {*scorer.state}  # predictions do not need them


@pytest.mark.parametrize(
    "changed",
    [
        {"target": "days"},
        {"task": {"name": "survival", "time": "days"}},
        {"task": {"name": "survival", "time": "days", "event": "died", "when": "start"}},
        {"task": {"name": "regression", "time": "days"}, "target": "days"},
        {"task": {"name": "survival", "time": "days", "event": "died", "unit": "hour"}},
    ],
)
def test_mixed_forms_are_one_error(folder: Path, changed: dict[str, Any]) -> None:
    task = {"name": "survival", "time": "days", "event": "died"}
    settings = {"files": {"north": str(folder / "north.csv")}, "task": task, **changed}
    with pytest.raises(ConfigError):
        Tables(**settings).tables(1)


def test_codes_that_are_not_0_and_1_are_asked_for(tmp_path: Path) -> None:
    frame = rows_of(2)
    frame["died"] = (frame["died"] == "dead") + 1
    frame.to_csv(tmp_path / "north.csv", index=False)
    task = {"name": "survival", "time": "days", "event": "died"}
    files = {"north": str(tmp_path / "north.csv")}
    (table,) = Tables(files=files, task=task).tables(1)
    (note,) = [note for note in table.notes if getattr(note, "kind", "") == "event"]
    assert [fix["values"]["died"] for fix in note.alternatives] == [{1: 1, 2: 0}, {1: 0, 2: 1}]
    mended = Tables(files=files, task=task, values={"died": {1: 0, 2: 1}})
    (table,) = mended.tables(1)
    assert not [note for note in table.notes if getattr(note, "kind", "") == "event"]
    assert {row[1] for row in table.target} == {0, 1}


def test_curves_are_predicted_at_any_times(run: Run, folder: Path, tmp_path: Path) -> None:
    scorer = run.client("north")
    rows = pd.read_csv(folder / "north.csv").tail(5)
    curves = scorer.predict(rows).filter(like="survival_")
    edges = list(run.data.specs[0].task.edges)  # type: ignore[attr-defined]
    at_edges = scorer.predict_survival(rows, [0, *edges, edges[-1] + 1])
    assert (at_edges[0] == 1).all() and at_edges.iloc[:, -1].isna().all()
    np.testing.assert_allclose(at_edges[edges], curves, rtol=1e-9)
    for wrong in ([-1], ["1y"], 365, [math.nan]):
        with pytest.raises(ConfigError, match="times"):
            scorer.predict_survival(rows, wrong)  # type: ignore[arg-type]
    for name, options in {"short": [], "long": ["--curves"]}.items():
        typed = [
            "--run",
            str(run.folder),
            "--client",
            "north",
            "--out",
            str(tmp_path / name) + ".csv",
        ]
        assert not main(["predict", *typed, "--data", str(folder / "north.csv"), *options])
    short = pd.read_csv(tmp_path / "short.csv")
    assert list(short) == ["row", "risk_1y", "risk_2y", "median"]
    assert len(pd.read_csv(tmp_path / "long.csv").filter(like="survival_").columns) == len(edges)


def test_frames_are_a_federation_in_three_lines(tmp_path: Path) -> None:
    north = rows_of(0)
    south = rows_of(1).rename(columns={"days": "time", "dose": "pressure"})
    task = {"name": "survival", "event": "died", "unit": "day", "horizons": [365]}
    tasks = {"north": {**task, "time": "days"}, "south": {**task, "time": "time"}}
    fed = fedlit.Federation(
        task=tasks, method="fedper", settings={"trainer.max_epochs": 1}, folder=tmp_path
    ).fit({"north": north, "south": south})
    report = fed.report()
    assert isinstance(report, Results)
    axes = report.plot()
    dots = np.asarray(axes.collections[-1].get_offsets())[:, 0].tolist()
    assert dots == report.to_frame()["integrated_brier"].tolist()
    assert axes.get_xlabel() == heading(SCORES[0])  # which says that lower is better
    curves = fed["south"].predict_survival(south.tail(3), [0, 365])
    assert curves.shape == (3, 2) and (curves[365] < 1).all()
    assert list(fed["north"].predict(north.tail(3)).filter(like="risk")) == ["risk_365d"]
    with pytest.raises(ConfigError):
        fed["north"].score(north)
    with pytest.raises(ConfigError):
        fedlit.Federation("days", task=tasks, method="fedper", folder=tmp_path).fit(
            {"north": north}
        )


@pytest.mark.parametrize(
    ("kind", "column", "change"),
    [
        ("", "", lambda frame: frame),
        ("labels", "gone", lambda frame: frame.assign(gone=1 - frame["gone"])),
        ("scale", "days", lambda frame: frame.assign(years=frame["years"] / 365.25)),
        ("leak", "cause", lambda frame: frame.assign(cause=frame["gone"].map({0: "-", 1: "x"}))),
    ],
)
def test_opposite_codes_units_and_leaks_are_asked_about(
    tmp_path: Path, kind: str, column: str, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    """The event, and the time, have other names at the two clients."""
    for seed, name in enumerate(("north", "south")):
        frame = rows_of(seed)
        frame["died"] = (frame["died"] == "dead").astype(int)
        frame = frame[(frame["died"] == 1) | (frame.index % 3 == 0)]
        if name == "south":
            frame = change(frame.rename(columns={"died": "gone", "days": "years"}))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    task = {
        "north": {"name": "survival", "time": "days", "event": "died"},
        "south": {"name": "survival", "time": "years", "event": "gone"},
    }
    files = {name: str(tmp_path / f"{name}.csv") for name in task}
    source = Tables(files=files, task=task)
    items = examine(source.tables(1), source).findings.items
    found = {(item.kind, item.column) for item in items if item.severity != "info"}
    assert found == ({(kind, column)} if kind else set())


def test_curves_of_more_centres_than_a_column_may_have_values(tmp_path: Path) -> None:
    frame = rows_of(5, 600)
    frame["died"] = (frame["died"] == "dead").astype(int)
    frame["centre"] = [f"c{row % 15:02}" for row in frame.index]
    frame.to_csv(tmp_path / "registry.csv", index=False)
    task = {"name": "survival", "time": "days", "event": "died", "unit": "day"}
    source = Tables(str(tmp_path / "registry.csv"), client_column="centre", task=task)
    data = FederatedData(source)
    data.setup()
    drawn = draw_curves(data, "client", tmp_path)
    train = sum(len(table.splits["train"]) for table in source.tables(0))
    assert len(drawn.table) == 15 and drawn.table["rows"].sum() == train
    with pytest.raises(ConfigError, match="--curves"):
        draw_curves(data, "age", tmp_path)


def test_another_unit_is_refused_with_its_conversion(tmp_path: Path) -> None:
    """What the message says to add to the configuration makes the federation one in days."""
    task = {
        "north": {"name": "survival", "time": "days", "event": "died", "unit": "day"},
        "south": {"name": "survival", "time": "months", "event": "died", "unit": "month"},
    }
    files = dict[str, str]()
    days = dict[str, list[float]]()
    for seed, name in enumerate(task):
        frame = rows_of(seed)
        frame["died"] = (frame["died"] == "dead").astype(int)
        days[name] = sorted(frame["days"])
        if name == "south":
            frame["months"] = frame.pop("days") / 30.4375
        files[name] = str(tmp_path / f"{name}.csv")
        frame.to_csv(files[name], index=False)
    with pytest.raises(DataError, match="convert: ") as refused:
        FederatedData(Tables(files=files, task=task)).setup()
    (conversion,) = re.findall(r"convert: (\{.*\})", str(refused.value))
    convert = yaml.safe_load(conversion)
    (client,) = convert
    peer = "south" if client == "north" else "north"
    of_one_unit = {**task, client: {**task[client], "unit": task[peer]["unit"]}}
    source = Tables(files=files, task=of_one_unit, convert=convert)
    FederatedData(source).setup()
    days_in_unit = 1 if peer == "north" else 30.4375
    for table in source.tables(1):
        times = sorted(time for time, _ in table.target)
        np.testing.assert_allclose(np.multiply(times, days_in_unit), days[table.name], rtol=1e-9)


@pytest.mark.parametrize("name", ["alive", "gone"])
def test_an_opposite_code_is_one_question_with_its_answer(tmp_path: Path, name: str) -> None:
    """Whether or not the name of the column says that its code is opposite."""
    for seed, client in enumerate(("north", "south")):
        frame = rows_of(seed)
        frame["died"] = (frame["died"] == "dead").astype(int)
        frame = frame[(frame["died"] == 1) | (frame.index % 3 == 0)]
        if client == "south":
            frame[name] = 1 - frame.pop("died")
        frame.to_csv(tmp_path / f"{client}.csv", index=False)
    task = {
        "north": {"name": "survival", "time": "days", "event": "died"},
        "south": {"name": "survival", "time": "days", "event": name},
    }
    settings: dict[str, Any] = {"files": {}, "task": task}
    for client in task:
        settings["files"][client] = str(tmp_path / f"{client}.csv")
    source = Tables(**settings)
    items = examine(source.tables(1), source).findings.items
    (asked,) = [item for item in items if item.severity != "info"]
    mended = Tables(**settings, **asked.alternatives[0]["data"]["source"]["init_args"])
    items = examine(mended.tables(1), mended).findings.items
    assert not [item for item in items if item.severity != "info"]


def test_few_events_and_far_horizons_are_noted(tmp_path: Path) -> None:
    frame = rows_of(4)
    dead = frame.index[frame["died"] == "dead"]
    frame.loc[dead[9:], "died"] = "alive"
    frame["died"] = (frame["died"] == "dead").astype(int)
    frame.assign(start=frame["days"]).to_csv(tmp_path / "north.csv", index=False)
    task = {"name": "survival", "time": "days", "event": "died", "unit": "day", "horizons": ["9y"]}
    source = Tables(files={"north": str(tmp_path / "north.csv")}, task=task)
    (table,) = source.tables(1)
    remarks = TableEncoder("north").fit(table).encode(table).notes
    assert len([note for note in remarks if getattr(note, "kind", "") == "few rows"]) == 2
    assert not examine([table], source).findings.blocks
    (late,) = Tables(files=source.files, task={**task, "entry": "start"}).tables(1)
    items = examine([late], source).findings.items
    assert [item.kind for item in items if item.severity == "review"] == ["target"]


def test_a_mixture_of_curves_beats_its_parts_on_held_out_rows(
    config: Path, folder: Path, tmp_path: Path
) -> None:
    # Horizons are quantiles of event times, so that folds differ in intervals.
    content = yaml.safe_load(config.read_text())
    for task in content["data"]["source"]["init_args"]["task"].values():
        del task["horizons"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    parts = {"curve": {"go_alone": "mean"}, "federated": {"config": str(tmp_path / "mine.yaml")}}
    mixture = mixed_best(parts, tmp_path)
    scores = mixture.test(quiet=True).scores
    assert set(scores) == {"north", "south"}
    export(str(mixture.folder), "south", tmp_path / "south")
    rows = pd.read_csv(folder / "south.csv").drop(columns=["tage", "tot"]).tail(9)
    pd.testing.assert_frame_equal(
        fedlit.score.load(tmp_path / "south").predict(rows),
        mixture.client("south").predict(rows),
        rtol=1e-4,
    )
    # An export holds times that clients agreed on, and no times of rows.
    curves = list((tmp_path / "south").rglob("model.npz"))
    assert curves
    for path in curves:
        edges = json.loads((path.parent / MAIN).read_text())["task"]["edges"]
        assert np.load(path)["times"].tolist() == edges
    for path in (tmp_path / "south").rglob(MAIN):
        assert "censor" not in path.read_text()


def test_a_study_compares_it_with_kaplan_and_meier(config: Path, tmp_path: Path) -> None:
    study = {
        "about": "Time to death.",
        "seeds": "1:2",
        "methods": {"federated": {"config": str(config)}},
        "reference": "federated",
        "baselines": {"mean": None},
        "bootstrap": 20,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    comparison = compare(str(tmp_path / "study.yaml"), out=tmp_path / "out", quiet=True)
    scores = comparison.collected.scores
    tested = scores[(scores["metric"] == "integrated_brier") & (scores["split"] == "test")]
    assert {*tested["method"]} >= {"federated", "mean"}
    assert tested["value"].notna().all()
    of_mean = (scores["method"] == "mean") & (scores["split"] == "test")
    ordered = scores[of_mean & (scores["metric"] == "uno_c")]
    assert (ordered["value"] == 0.5).all()  # one curve for all rows orders none


def test_a_client_that_joins_is_compared_at_the_times_of_the_run(run: Run, tmp_path: Path) -> None:
    rows_of(2).to_csv(tmp_path / "west.csv", index=False)
    task = {"name": "survival", "time": "days", "event": "died", "unit": "day"}
    arguments = {
        "files": {"west": str(tmp_path / "west.csv")},
        "task": {**task, "horizons": ["1y", 730.5]},
        "values": {"died": {"dead": 1, "alive": 0}},
        "validation": 0.2,
    }
    content = {"data": {"source": {"class_path": "fedlit.Tables", "init_args": arguments}}}
    assert run.folder is not None
    typed = [f"--trainer.default_root_dir={tmp_path}"]
    joined = add_client(run.folder, content, typed, baselines=["mean"], quiet=True)
    tables = [pd.read_parquet(path) for path in joined.folder.rglob("predictions.parquet")]
    columns = {tuple(table.filter(regex="^(survival|risk)_")) for table in tables}
    assert len(tables) > 2 and len(columns) == 1
    arguments["task"] = {**task, "unit": "week", "horizons": ["1y", 730.5]}
    with pytest.raises(DataError):
        add_client(run.folder, content, typed, baselines=[], quiet=True)


def test_sites_have_the_bits_of_one_process(config: Path, folder: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(config.read_text())
    settings = content["data"]["source"]["init_args"]
    content["trainer"]["default_root_dir"] = str(tmp_path / "one")
    content |= {"checkpoint": {"seconds": 0, "best": 0}}
    content["model"]["engine"] = "plain"
    content["data"]["facts_from"] = 5  # as sites have it
    del content["model"]["stop"]
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump(content))
    whole = fedlit.load(str(tmp_path / "whole.yaml"))
    whole.fit(quiet=True)
    sources = {}
    for ward in ("north", "south"):
        arguments = {"files": {ward: str(folder / f"{ward}.csv")}, "task": settings["task"][ward]}
        if ward in settings["values"]:
            arguments["values"] = settings["values"][ward]
        arguments["validation"] = settings["validation"]
        sources[ward] = {"class_path": "fedlit.Tables", "init_args": arguments}
    del content["data"]["source"]
    del content["trainer"]["default_root_dir"]
    path = tmp_path / "federation.yaml"
    path.write_text(yaml.safe_dump(content))
    _, sites, errors = federate(tmp_path, path, sources)
    assert not errors
    for spec in whole.data.specs:
        assert spec.task == sites[spec.name].run.data.specs[0].task
    of_sites = {key: value for site in sites.values() for key, value in weights(site.run).items()}
    assert different(weights(whole), of_sites) == []
