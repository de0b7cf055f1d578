"""``fedlit check``: the page, its data, and that what it suggests can be pasted and changes what it
says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlit.__main__ import main
from fedlit.data.merging import merged

SOUTH = {"path": "south.csv", "sep": ";"}
SETTINGS: dict[str, Any] = {
    "files": {"north": "north.csv", "south": SOUTH}, "target": "outcome", "drop": {"south": ["ward"]},
}  # fmt: skip
NETWORK = {
    "class_path": "fedlit.FederatedClient",
    "init_args": {"network": {"class_path": "fedlit.MLP"}},
}


def write(source: dict[str, Any], **data: Any) -> None:
    """The configuration; a source of own tables by its settings."""
    own = source if "class_path" in source else {"class_path": "fedlit.Tables", "init_args": source}
    content = {"seed": 1, "data": {"source": own, **data}, "model": {"client": NETWORK}}
    Path("mine.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clients with a leak, a code for missing, several rows of a patient, a date, another name,
    and a class of the wrong name.
    """
    monkeypatch.chdir(tmp_path)
    made = {}
    for seed, client in enumerate(["north", "south"]):
        draw = np.random.default_rng(seed)
        own = pd.DataFrame(
            {"age": draw.integers(20, 90, 200), "bmi": draw.normal(27, 4, 200).round(1)}
        )
        own["ward"] = draw.choice(["a", "b"], 200)
        own["outcome"] = draw.choice(["ill", "well"], 200)
        made[client] = own
    made["north"]["code"] = made["north"]["outcome"].str.upper()
    made["north"].loc[::9, "bmi"] = -999
    made["north"]["patient_id"] = np.arange(200) * 7 % 80
    made["south"]["seen"] = [20240101 + n % 28 for n in range(200)]
    made["south"] = made["south"].rename(columns={"age": "AGE_YEARS"})
    made["north"].to_csv("north.csv", index=False)
    made["south"].to_csv("south.csv", index=False, sep=";")
    write(SETTINGS)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["check", "--config", "mine.yaml", "--format", "json", *args]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_suggested_settles_what_was_found(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Merged as a block: then nothing is found any more, and what was written before still
    holds."""
    page = told(capsys)
    settled = [own["kind"] for own in page["findings"] if own["fix"]]
    assert settled == ["leak", "group", "missing", "date", "positive", "name"]
    assert main(["check", "--config", "mine.yaml", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert text.count("-999 (") == 1 and all(
        len(line) <= 80 or line.startswith("#") for line in text.splitlines()
    )
    content = yaml.safe_load(Path("mine.yaml").read_text())
    Path("mine.yaml").write_text(yaml.safe_dump(merged(content, page["fix"])))
    after = told(capsys)
    assert after["fix"] == {}
    columns = {own["client"]: own["columns"] for own in after["clients"]}
    assert set(columns["north"]) == {"age", "ward", "bmi"}  # the leak is dropped
    assert set(columns["south"]) == {"age", "bmi", "seen"}  # renamed, and ward is still dropped
    assert columns["south"]["seen"]["kind"] == "date"
    assert columns["north"]["bmi"]["missing"] == pytest.approx(23 / 200)
    assert {own["positive"] for own in after["clients"]} == {"ill"}


def test_sources_of_sources_are_looked_at_too(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of Tables are none of theirs; columns can be left out by pattern."""
    own = {
        "class_path": "fedlit.Tables",
        "init_args": {"files": {"north": "north.csv"}, "target": "outcome"},
    }
    source = {"class_path": "fedlit.Partition", "init_args": {"source": own, "clients": 2}}
    write(source)
    assert main(["check", "--config", "mine.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "code: alone predicts outcome" in shown and "data:\n  columns: ['!code']\n" in shown
    write(source, columns=["!code"])
    assert "leak" not in [own["kind"] for own in told(capsys)["findings"]]
