"""Every block of the README and of docs/ that can run runs, as it stands there; ``tests/pages.py`` says how."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PAGES, ROOT, WARM, blocks_of, command_of, prepare, read, run

BIN = Path(sys.executable).parent
BLOCKS = {page: blocks_of(page, read(page)) for page in PAGES}
RUNNABLE = [
    page for page, blocks in BLOCKS.items() if any(not block.reason and block.language != "text" for block in blocks)
]

FIRST = ("README.md", "docs/tutorial.md")
"""What a newcomer runs; the other pages take some minutes, and are ``full``."""

_RUN, _STUDY = "lightning_logs/{}/version_0/{}", "lightning_logs/studies/{}"
LEFT = {
    "README.md": {_RUN.format("mine", "config.yaml"): "north.csv"},
    "docs/tutorial.md": {
        _RUN.format("clinics", "test.csv"): "south",
        _STUDY.format("clinics_study/report.html"): "Two clinics that share three columns.",
    },
    "docs/how-to/study.md": {
        _STUDY.format("mixed_study/lift.csv"): "without_trees",
        _STUDY.format("joining/leave_one_out.csv"): "west,(others)",
    },
    "docs/how-to/best.md": {_RUN.format("mixed", "mixture.json"): "federated"},
    "docs/how-to/method.md": {
        _RUN.format(name, "config.yaml"): f"class_path: {own}"
        for name, own in {
            "proximal": "mymethod.Proximal",
            "quickstart+proximal": "mymethod.Proximal",
            "median": "myrule.Median",
            "counted": "counted.Count",
            "named": "named.Named",
        }.items()
    },
}
"""What the commands of a page must leave behind: page → file → what stands in it."""


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a shell in which ``fedlit`` need not import first; its WARM is the way to the server."""
    folder = tmp_path_factory.mktemp("bin")
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    socket = folder / "socket"
    # Arrow's allocator would start a thread when it is imported, and a process with threads must not fork
    alone = {**environ, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    server = subprocess.Popen(
        [sys.executable, WARM[-2], "serve", str(socket)], env=alone, cwd=folder, stdin=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 120
        while not socket.exists():
            assert server.poll() is None and time.monotonic() < deadline, "the warm process did not start"
            time.sleep(0.05)
        command_of("fedlit", [*WARM, str(socket)], folder)
        yield {**environ, "PATH": os.pathsep.join([str(folder), str(BIN), environ["PATH"]]), "WARM": str(socket)}
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in FIRST else [pytest.mark.full]) for page in RUNNABLE]
)
def test_every_block_runs(page: str, tmp_path: Path, environ: dict[str, str]) -> None:
    prepare(tmp_path, page, read(page))
    for block in BLOCKS[page]:
        run(block, tmp_path, environ, [*WARM, environ["WARM"]])
    for file, words in LEFT.get(page, {}).items():
        assert words in (tmp_path / file).read_text(encoding="utf-8"), file


def test_the_files_that_the_design_names_are_there() -> None:
    missing, named = [], 0
    for row in (ROOT / "docs" / "design.md").read_text("utf-8").splitlines():
        folder = ""
        for name in re.findall(r"`([\w/]+\.(?:py|json))`", row) if row.startswith("| ") else ():
            folder, named = (name.rpartition("/")[0] if "/" in name else folder), named + 1
            places = (ROOT / name, ROOT / "fedlit" / name, ROOT / "fedlit" / folder / name)
            missing += [] if any(place.is_file() for place in places) else [name]
    assert named > 80 and missing == []
