"""What a checkpoint is of, what can be in it, and what is refused."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import make_run, trained

from fedlit.errors import ConfigError
from fedlit.train.checkpoint_file import content_of
from fedlit.train.manifest import FORMAT, Manifest, check_state

MANIFEST = Manifest(
    {"ash": "1", "birch": "2"},
    {"batches": 4, "batch_size": None},
    8,
    "plain",
    "torch",
    1,
    {"seed": 8},
)


@pytest.mark.parametrize(
    ("change", "resume", "message"),
    [
        ({"data": {"ash": "1"}}, False, "expected the clients ash, found ash, birch"),
        ({"seed": 9}, False, "expected seed 9, found 8"),
        ({"pace": {"batches": 5, "batch_size": None}}, False, "found data: batches 4;"),
        (
            {"settings": {"seed": 8, "model.threads": 2}},
            True,
            r"found changed model.threads \(None → 2\)",
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    change: dict[str, Any], resume: bool, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        MANIFEST.refuse(replace(MANIFEST, **change), resume=resume)


def test_a_manifest_is_read_back_and_what_may_change() -> None:
    written = {**asdict(MANIFEST), "clients": {}}
    assert Manifest.read(content_of({"fedlit": written})) == MANIFEST
    MANIFEST.refuse(MANIFEST, resume=True)
    # the engine is the checkpoint's; a configuration matters only where it is trained further, and
    # where there is one
    MANIFEST.refuse(
        replace(MANIFEST, engine="threads", threads=3, settings={"seed": 8, "model.x": 1}),
        resume=False,
    )
    MANIFEST.refuse(replace(MANIFEST, settings={}), resume=True)
    for other in (
        {},
        *({"fedlit": {**written, "format": own}} for own in (FORMAT + 1, FORMAT - 1, None)),
    ):
        with pytest.raises(ConfigError, match=r"expected one .*found"):
            Manifest.read(content_of(other))


def test_a_checkpoint_is_refused_for_other_rows(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    other = make_run(tmp_path, epochs=1)
    other.data.source.test = 0.5  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="found other rows or splits of ash, birch, cedar"):
        other.test(quiet=True)


@pytest.mark.parametrize("value", [np.float64(1), np.zeros(2), {1, 2}, [{"deep": np.float64(1)}]])
def test_what_cannot_be_read_back_is_refused_by_key(value: Any) -> None:
    with pytest.raises(ConfigError, match="'mine'"):
        check_state("a", {"fine": 1, "mine": value})
