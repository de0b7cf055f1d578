"""A client whose rows have one class: it never stops the others, and its classes are the
federation's."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from fedlit.__main__ import main
from fedlit.data.module import FederatedData
from fedlit.data.sources import Tables
from fedlit.errors import DataError
from fedlit.run.load import load
from fedlit.train import checkpoint_file

WORDS = {"yes": ["yes", "no"], "Yes": ["Yes", "No"], "1": ["1", "0"], "true": ["true", "false"]}
SETTINGS = """
model: {client: {class_path: fedlit.FederatedClient, init_args: {network: {class_path: fedlit.MLP}}}, threads: 1}
exchange: {federated: []}
board: {pictures: 0}
trainer: {max_epochs: 1, enable_progress_bar: false, callbacks: null}
data: {batches: 3}
"""


def write(folder: Path, words: list[str], west: str) -> pd.DataFrame:
    """Three clients, of which the west has one label."""
    rng = np.random.default_rng(0)
    tables = []
    for client, rows in (("north", 90), ("south", 80), ("west", 60)):
        frame = pd.DataFrame(
            {"age": rng.normal(size=rows).round(3), "outcome": rng.choice(words, rows)}
        )
        if client == "west":
            frame["outcome"] = west
        frame.to_csv(folder / f"{client}.csv", index=False)
        tables.append(frame.assign(site=client))
    return pd.concat(tables)


def encoded(source: Tables, **options: Any) -> FederatedData:
    data = FederatedData(source, batches=3, **options)
    data.setup()
    return data


@pytest.mark.parametrize("positive", WORDS)
@pytest.mark.parametrize("west", [0, 1])
@pytest.mark.parametrize("one_file", [False, True])
def test_a_client_of_one_class_has_those_of_all(
    positive: str, west: int, one_file: bool, tmp_path: Path
) -> None:
    words = WORDS[positive]
    rows = write(tmp_path, words, words[west])
    arguments: dict[str, Any] = {"target": "outcome", "positive": positive}
    if one_file:
        rows.to_csv(tmp_path / "all.csv", index=False)
        source = Tables(str(tmp_path / "all.csv"), client_column="site", **arguments)
    else:
        source = Tables(
            {name: str(tmp_path / f"{name}.csv") for name in ("north", "south", "west")},
            **arguments,
        )
    data = encoded(source)
    north, _, one = data.specs
    assert one.classes == north.classes and str(one.classes[1]).casefold() == positive.casefold()
    assert data.clients[2].train.y.unique().tolist() == [1 - west]
    assert sum(getattr(note, "kind", "") == "one class" for note in data.notes) == 1


def test_positive_may_be_said_for_clients_by_name(tmp_path: Path) -> None:
    write(tmp_path, ["ill", "well"], "well")
    files = {name: str(tmp_path / f"{name}.csv") for name in ("north", "south", "west")}
    # as init writes it
    data = encoded(Tables(files, "outcome", positive={"north": "ill", "south": "ill"}))
    assert [spec.classes for spec in data.specs] == [("well", "ill")] * 3
    with pytest.raises(DataError, match="perhaps"):
        encoded(Tables(files, "outcome", positive={"west": "perhaps", "*": "ill"}))


@pytest.mark.parametrize(
    ("label", "positive", "classes"), [("no", None, 0), ("no", "yes", 0), ("yes", "yes", 1)]
)
def test_a_site_that_sees_itself_alone_can_take_part(
    label: str, positive: str | None, classes: int, tmp_path: Path
) -> None:
    write(tmp_path, ["yes", "no"], label)
    data = FederatedData(
        Tables({"west": str(tmp_path / "west.csv")}, "outcome", positive=positive), batches=3
    )
    # as between institutions, which are not asked for their labels
    data.share = lambda topic, facts: facts
    data.setup()
    (spec,) = data.specs
    assert spec.num_outputs == 1 and spec.classes.index(label) == classes
    with pytest.raises(DataError, match="at least two classes"):
        encoded(Tables({"west": str(tmp_path / "west.csv")}, "outcome"))  # there is nobody else


def test_it_changes_no_bit_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, ["yes", "no"], "no")
    weights = []
    for clients in (["north", "south"], ["north", "south", "west"]):
        content = yaml.safe_load(SETTINGS)
        files = {name: f"{name}.csv" for name in clients}
        content["data"]["source"] = {
            "class_path": "fedlit.Tables",
            "init_args": {"files": files, "target": "outcome"},
        }
        Path("mine.yaml").write_text(yaml.safe_dump(content))
        run = load("mine.yaml")
        run.fit(quiet=True)
        assert run.folder is not None
        weights.append(checkpoint_file.load(run.folder / "checkpoints" / "last.ckpt")["state_dict"])
    alone, beside = weights
    assert all(torch.equal(alone[name], beside[name]) for name in alone) and len(beside) > len(
        alone
    )
    assert run.client("west").classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("one_file", [False, True])
def test_init_and_check_go_on(
    one_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, ["Yes", "No"], "No").to_csv("all.csv", index=False)
    files = ["all.csv", "--client-column", "site"] if one_file else ["[nsw]*.csv"]
    assert main(["init", *files, "--target", "outcome", "--out", "mine.yaml"]) == 0
    assert main(["check", "--config", "mine.yaml"]) == 0
    load("mine.yaml").data.setup()
    pd.DataFrame({"age": range(60), "outcome": "No"}).to_csv("all.csv", index=False)
    assert main(["init", "all.csv", "--target", "outcome", "--out", "one.yaml"]) != 0
