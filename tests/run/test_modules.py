"""Where a user's own modules are looked for: beside the configuration that names them, after all
installed ones."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fedlit.errors import ConfigError
from fedlit.run.arguments import read
from fedlit.run.load import parse

NET = "from fedlit.nn import MLP\nclass Net(MLP): ...\n"
INSTALLED = ("httpx", "numpy", "statistics", "sys")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user, and with files that have the names of installed
    modules."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "beside_net.py").write_text(NET)
    for name in INSTALLED:
        (folder / f"{name}.py").write_text("raise SystemExit('imported')\n")
    yield folder
    for name in ("beside_net", "beside_more"):
        sys.modules.pop(name, None)


def network(folder: Path, name: str) -> list[str]:
    """Names a network in a configuration; returns what is typed."""
    content = {"model": {"client": {"init_args": {"network": {"class_path": name}}}}}
    (folder / "own.yaml").write_text(yaml.safe_dump(content))
    return ["--config", "quickstart", "--config", str(folder / "own.yaml")]


def test_own_modules_come_after_installed_ones(beside: Path) -> None:
    before = list(sys.path)
    run, _ = parse(read("describe", network(beside, "beside_net.Net")))
    assert "beside_net.Net" in str(run.loop.arguments["client"])
    assert sys.path == [*before, str(beside)]


def test_a_folder_without_named_modules_is_not_searched(beside: Path) -> None:
    before = list(sys.path)
    parse(read("describe", network(beside, "fedlit.MLP")))
    assert sys.path == before


@pytest.mark.parametrize("name", INSTALLED)
def test_a_name_that_is_installed_too_is_refused(beside: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: .*project/{name}\.py and .*rename"):
        parse(read("describe", network(beside, f"{name}.Net")))
    (beside / "beside_net.py").write_text(f"import {name}.more\n{NET}")
    with pytest.raises(ConfigError, match=rf"{name}: .*project/{name}\.py and .*rename"):
        parse(read("describe", network(beside, "beside_net.Net")))


def test_a_module_that_another_one_imports_is_found(beside: Path) -> None:
    (beside / "beside_more").mkdir()
    (beside / "beside_more" / "__init__.py").write_text(NET)
    (beside / "beside_net.py").write_text("from beside_more import Net\n")
    run, _ = parse(read("describe", network(beside, "beside_net.Net")))
    assert "beside_more.Net" in str(run.loop.arguments["client"])


def test_a_run_s_folder_is_not_searched(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = beside / "version_0"
    run.mkdir()
    (run / "beside_net.py").write_text("raise SystemExit('imported')\n")
    (run / "config.yaml").write_text(yaml.safe_dump({"seed": 1}))
    monkeypatch.chdir(run)
    parse(
        read(
            "describe",
            ["--config", "quickstart", "--config", "config.yaml", "--name", "beside_net.Net"],
        )
    )
    assert str(run) not in sys.path
