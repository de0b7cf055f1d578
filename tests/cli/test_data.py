"""``fedlit data``: what is found, what is fetched, and from where."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.data.sources import Heart, HumanActivity, VehicleSensors


def test_fetch_without_network_tries_every_file_and_fails(cache: Path) -> None:
    with socket.socket() as closed:  # a proxy that refuses every connection: nothing leaves this machine
        closed.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{closed.getsockname()[1]}"
        proxies = {key: proxy for name in ("http_proxy", "https_proxy") for key in (name, name.upper())}
        known = {**os.environ, **proxies, "NO_PROXY": "", "no_proxy": ""}
        command = [sys.executable, "-m", "fedlit", "data", "fetch", "heart"]
        done = subprocess.run(command, capture_output=True, text=True, env=known, check=False)
    assert done.returncode == 1
    for file in Heart.known_files():
        if file.url is None:
            assert f"{file.path}: has no verified public address" in done.stdout
        else:
            assert f"{file.url} could not be fetched" in done.stderr
    assert not [path for path in cache.rglob("*") if path.is_file()]
    assert "Traceback" not in done.stderr


def test_list_and_fetch_say_where_a_file_was_found(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDLIT_DATA", str(tmp_path / "mine"))
    path = tmp_path / "mine" / "covertype" / "covtype.data.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    assert main(["data"]) == 0
    assert f"covertype/covtype.data.gz  {path}" in capsys.readouterr().out
    assert main(["data", "fetch", "covertype"]) == 0
    assert capsys.readouterr().out == f"covertype/covtype.data.gz: {path}\n"


def test_a_file_that_is_to_be_had_by_hand_says_where(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDLIT_DATA", str(cache))
    for source in (HumanActivity, VehicleSensors):
        (file,) = source.known_files()
        for arguments in (["list"], ["show", source.name], ["fetch", source.name]):
            assert main(["data", *arguments]) == 0  # it was never to be fetched
            assert str(file.page) in capsys.readouterr().out
