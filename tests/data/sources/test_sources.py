"""What every source has in common: files that are found or fetched, lazy imports, checks of tables
and of settings."""

import dataclasses
import hashlib
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets._covtype import ARCHIVE

from fedlit.__main__ import main
from fedlit.data import sources
from fedlit.data.files import RemoteFile, find, locate, search_roots
from fedlit.data.reach import PATIENCE
from fedlit.data.sources import Covertype, Heart, OpenML, Populations, Reads, known_sources
from fedlit.data.sources.base import check_tables
from fedlit.data.table import ClientTable, Split
from fedlit.errors import ConfigError, DataError, FedlitError

CONTENT = b"a,b\n1,2\n" * 50_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a file, and the file."""
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "good").write_bytes(CONTENT)
    handler = partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}/good", tmp_path / "good"
        httpd.shutdown()
        thread.join()


def sample(url: str | None, sha256: str | None = SHA256) -> RemoteFile:
    return RemoteFile("sample/sample.csv", url, sha256, "a sample", ("sample/sample.txt",))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_where_a_file_is_found(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    variable = tmp_path / "variable"
    file = sample(None, None)
    given.mkdir()
    assert search_roots() == [Path.cwd() / "data", cache] and find(file) is None
    monkeypatch.setenv("FEDLIT_DATA", str(variable))
    assert search_roots() == [variable, cache] and search_roots(given) == [given, cache]
    # each one found hides those after it
    for folder, name in ((cache, "sample/sample.csv"), (given, "sample.txt")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")  # used as it is: its checksum is not the original's
        assert find(file, given) == locate(file, given) == folder / name


def test_download_into_the_cache_once(cache: Path, server: tuple[str, Path]) -> None:
    url, original = server
    program = (
        "from fedlit.data.files import RemoteFile, locate\n"
        f"print(locate(RemoteFile('sample/sample.csv', '{url}', '{SHA256}', 'a sample')))"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program]  # two at once
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) for _ in range(2)
    ]
    path = cache / "sample" / "sample.csv"
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [str(path)] * 2
    original.unlink()
    assert (
        locate(sample(url)) == path and path.read_bytes() == CONTENT and files_in(cache) == [path]
    )


@pytest.mark.parametrize(
    ("url", "sha256", "reason"),
    [
        ("{}", "0" * 64, "hash"),
        ("{}", None, "hash"),
        ("http://127.0.0.1:9/file", SHA256, "127.0.0.1"),
        (None, None, "no public address"),
    ],
)
def test_a_failed_download_says_why_and_leaves_nothing(
    url: str | None, sha256: str | None, reason: str, cache: Path, server: tuple[str, Path]
) -> None:
    url = url and url.format(server[0])
    with pytest.raises(DataError) as caught:
        locate(sample(url, sha256))
    message = str(caught.value)
    assert (
        reason in message
        and (url or "") in message
        and all(str(root) in message for root in search_roots())
    )
    assert f"Put it at {Path.cwd() / 'data' / 'sample' / 'sample.csv'}" in message
    assert files_in(cache) == []


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/file"


def test_a_mirror_is_used_where_the_first_does_not_answer(
    cache: Path, server: tuple[str, Path], silent: str
) -> None:
    file = dataclasses.replace(sample(silent), mirrors=("http://127.0.0.1:9/file", server[0]))
    begin = time.monotonic()
    assert locate(file).read_bytes() == CONTENT
    assert time.monotonic() - begin < PATIENCE + 1


@pytest.mark.parametrize("proxy", ["dead", "silent"])
@pytest.mark.parametrize("source", ["covertype", "heart"])
def test_without_a_network_addresses_are_named_in_5_seconds(
    source: str,
    proxy: str,
    cache: Path,
    silent: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, silent if proxy == "silent" else "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    begin = time.monotonic()
    assert main(["data", "fetch", source]) == 1
    assert time.monotonic() - begin < 5
    told = capsys.readouterr().err
    addresses = [
        address for file in known_sources()[source].known_files for address in file.addresses
    ]
    assert len(addresses) >= 2
    assert all(address in told for address in addresses)


def test_covertype_has_the_mirror_of_scikit_learn() -> None:
    (file,) = Covertype.known_files
    assert (ARCHIVE.url in file.mirrors, file.sha256) == (True, ARCHIVE.checksum)


def test_a_cache_that_cannot_be_written(cache: Path, server: tuple[str, Path]) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=re.escape(str(cache))):
        locate(sample(server[0]))


def splits(train: int, validation: np.ndarray, test: int, end: int = 10) -> dict[Split, np.ndarray]:
    return {"train": np.arange(train), "validation": validation, "test": np.arange(test, end)}


def table(**changes: object) -> ClientTable:
    good = ClientTable(
        name="north",
        features=pd.DataFrame({"x": np.arange(10.0), "code": list("ababababab")}),
        target=pd.Series([0, 1] * 5, name="y"),
        splits=splits(6, np.arange(6, 8), 8),
        categorical=("code",),
    )
    return dataclasses.replace(good, **changes)  # type: ignore[arg-type]


INFINITE = pd.DataFrame({"x": [np.inf, -np.inf, np.nan, *range(7)], "code": list("ababababab")})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Federation"}, "this name is taken"),
        ({"name": "a b"}, "client 'a b': expected a name"),
        (
            {"categorical": ("cod",)},
            "categorical: expected columns, found 'cod'.* Did you mean 'code'",
        ),
        ({"categorical": ()}, "client 'north': columns: expected numbers, found {'code'"),
        (
            {"features": pd.DataFrame(index=range(10)), "categorical": ()},
            "expected a column beside the target",
        ),
        ({"features": INFINITE}, r"client 'north'.* expected finite numbers, found .*'x': 2"),
        ({"target": pd.Series([0, 1] * 4)}, "10 rows of features and 8 labels"),
        (
            {"target": pd.Series([0, None] * 5, name="y")},
            "target 'y': expected a label in every row, found 5 rows",
        ),
        ({"splits": {"train": np.arange(10)}}, "expected the splits"),
        ({"splits": splits(8, np.arange(0), 8)}, "expected rows in validation, found none"),
        (
            {"splits": splits(8, np.arange(7, 9), 8)},
            "expected rows of the table, each in one split",
        ),
        (
            {"splits": splits(8, np.arange(8, 9), 9, 12)},
            "expected rows of the table, each in one split",
        ),
    ],
)
def test_a_bad_table_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_tables([table(**changes)])


def test_a_good_table_passes_and_two_of_one_name_do_not() -> None:
    assert len(check_tables([table()])) == 1
    with pytest.raises(ConfigError, match="2 clients have this name"):
        check_tables([table(), table()])


SETTINGS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (Covertype, {"clients": ["neota", "neota"]}, "clients: .*each once, found .'neota', 'neota'"),
    (Covertype, {"columns": "all"}, "columns: .*found .all."),
    (Heart, {"clients": ["clevland"]}, "Did you mean 'cleveland'"),
    (Heart, {"clients": "sa"}, r"clients: expected a list of names .*found 'sa'"),
    (OpenML, {"dataset": 61, "version": 1}, "data set 61, version 1: expected"),
    (Populations, {"populations": 0}, "expected at least one client"),
    (Populations, {"errors": 1.5}, "errors: expected a share between 0 and 1, found 1.5"),
    (Populations, {"reference": 100}, "length: expected 1 to 100 bases, found 150"),
    (Populations, {"flipped": [5]}, "flipped: expected numbers from 1 to 4"),
    (Reads, {"files": "none/*", "length": 4}, "reads: files: expected"),
]


@pytest.mark.parametrize(("source", "settings", "message"), SETTINGS, ids=str)
def test_settings_that_cannot_be_meant_are_refused(
    source: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(FedlitError, match=message):
        source(**settings).tables(0)


def test_registry_names_every_source() -> None:
    assert all(source.name == name for name, source in sources.known_sources().items())
    assert all(getattr(sources, name) is not None for name in sources.__all__)
    with pytest.raises(AttributeError, match="Nothing"):
        sources.Nothing  # noqa: B018


def test_importing_and_building_sources_is_light() -> None:
    program = (
        "import sys\n"
        "from fedlit.data.sources import Bundled, Covertype, Heart, OpenML, Tables\n"
        "Bundled(), Covertype(), Heart(), OpenML(61), Tables(files={'a': 'a.csv'}, target='y')\n"
        "print(sorted({'torch', 'pandas', 'sklearn', 'pooch'} & set(sys.modules)))"
    )
    checkout = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=checkout, check=True
    )
    assert done.stdout.strip() == "[]"
