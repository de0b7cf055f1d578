"""What a checkpoint is of, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from federations import make_run

from fedlit.errors import ConfigError
from fedlit.train.manifest import FORMAT, Manifest

MANIFEST = Manifest({"ash": "1", "birch": "2"}, {"batches": 4, "batch_size": None}, 8, "plain", "torch", 1, {"seed": 8})


@pytest.mark.parametrize(
    ("change", "resume", "message"),
    [
        ({"data": {"ash": "1"}}, False, "expected the clients ash, found ash, birch"),
        ({"seed": 9}, False, "expected seed 9, found 8"),
        ({"data": {"ash": "1", "birch": "3"}}, False, "found other rows or splits of birch;"),
        ({"pace": {"batches": 5, "batch_size": None}}, False, "found data: batches 4;"),
        ({"settings": {"seed": 8, "model.threads": 2}}, True, r"found changed model.threads \(None → 2\)"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change: dict[str, Any], resume: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MANIFEST.refuse(replace(MANIFEST, **change), resume=resume)


def test_what_may_change() -> None:
    MANIFEST.refuse(MANIFEST, resume=True)
    # the engine is the checkpoint's; a configuration matters only where it is trained further, and where there is one
    MANIFEST.refuse(replace(MANIFEST, engine="threads", threads=3, settings={"seed": 8, "model.x": 1}), resume=False)
    MANIFEST.refuse(replace(MANIFEST, settings={}), resume=True)


def test_a_manifest_is_read_back_and_one_of_another_format_refused() -> None:
    written = MANIFEST.to_dict()
    assert Manifest.read({"fedlit": {**written, "clients": {}}}) == MANIFEST
    with pytest.raises(ConfigError, match="expected one that fedlit wrote, found no fedlit run"):
        Manifest.read({})
    for other in (FORMAT + 1, FORMAT - 1, None):
        with pytest.raises(ConfigError, match=rf"of format {FORMAT}, found {other}"):
            Manifest.read({"fedlit": {**written, "format": other}})


def test_a_checkpoint_is_refused_for_other_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1)
    run.fit(quiet=True)
    other = make_run(tmp_path, epochs=1)
    other.data.source.test = 0.5  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match=r"found other rows or splits of ash, birch, cedar; rows that it was trained on"
    ):
        other.test(quiet=True)
