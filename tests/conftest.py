"""What tests share: made federations on the path; real files, or a skip that says which one is
missing."""

import gzip
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedlit.data.files import RemoteFile, find
from fedlit.data.sources import Covertype
from fedlit.jobs import processes

sys.path.insert(0, str(Path(__file__).parent))
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


@pytest.fixture(scope="session", autouse=True)
def in_this_process() -> Iterator[None]:
    """Studies run their jobs here, one at a time: a worker process would import torch for longer
    than they train. The real ones: study/test_runner.py, by the command.
    """
    call = processes.WorkerProcess.call
    lock = threading.Lock()

    def here(
        self: processes.WorkerProcess,
        function: str,
        arguments: Mapping[str, Any],
        log: Path,
        memory: str = "",
    ) -> str:
        if function != "fedlit.study.runs:serve":
            return call(self, function, arguments, log, memory)
        from fedlit.study.runs import serve

        try:
            with lock:
                serve(arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes.WorkerProcess, "call", here)
        yield


@pytest.fixture(scope="session")
def real_file() -> Callable[[RemoteFile], Path]:
    """The path of a real file. Never fetches: a test run must not depend on the network."""

    def path_of(file: RemoteFile) -> Path:
        path = find(file)
        if path is None:
            pytest.skip(
                f"{file.path} is not here; put it into data/ or name its folder in FEDLIT_DATA"
            )
        return path

    return path_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, with the working directory and FEDLIT_DATA out of the way."""
    folder = tmp_path / "cache"
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("FEDLIT_CACHE", str(folder))
    monkeypatch.delenv("FEDLIT_DATA", raising=False)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def covertype(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Covertype's own training and validation rows, and one in fifty of those to
    test."""
    file = Covertype.known_files[0]
    folder = tmp_path_factory.mktemp("small") / "covertype"
    folder.mkdir()
    whole = find(file)
    if whole is None:
        pytest.skip(f"{file.path} was not found; fedlit data fetch covertype gets it")
    with gzip.open(whole, "rt") if whole.suffix == ".gz" else whole.open() as lines:
        kept = [line for row, line in enumerate(lines) if row < 15_120 or row % 50 == 0]
    (folder / "covtype.data").write_text("".join(kept))
    return folder.parent
