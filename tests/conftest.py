"""What tests share: made federations on the path; real files, or a skip that says which one is missing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedlit.data.files import RemoteFile, find

sys.path.insert(0, str(Path(__file__).parent))
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def real_file() -> Callable[[RemoteFile], Path]:
    """The path of a real file. Never fetches: a test run must not depend on the network."""

    def path_of(file: RemoteFile) -> Path:
        path = find(file)
        if path is None:
            pytest.skip(f"{file.path} is not here; put it into data/ or name its folder in FEDLIT_DATA")
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
