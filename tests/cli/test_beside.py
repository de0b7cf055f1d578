"""Modules that lie in the folder in which a command is started, with the names of all that it
imports: none runs."""

import ast
from pathlib import Path

import beside
import hostile
import pytest

import fedlit
from fedlit.cli.commands import COMMANDS
from fedlit.institutions.child import Child, Gone
from fedlit.jobs.processes import WorkerProcess, Workshop

pytest.importorskip("flwr", reason="the extra flower is not installed")
SHORT = ("init", "methods", "data show", "coordinate watch", "site keys")
"""Commands that import no torch; the others take seconds each."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    beside.make_folders(folder)
    beside.plant(folder, folder / "canary")
    return folder


def test_each_command_is_started_beside_planted_modules() -> None:
    assert {*beside.COMMANDS, *beside.WAITING} == {*COMMANDS}


@pytest.mark.parametrize(
    "name",
    [own if own in SHORT else pytest.param(own, marks=pytest.mark.full) for own in beside.COMMANDS],
)
def test_no_module_beside_a_command_runs(folders: Path, name: str) -> None:
    assert beside.wrong_of(folders, name, folders / "canary") == ""


@pytest.mark.full
@pytest.mark.parametrize("name", [*beside.WAITING])
def test_no_module_beside_an_institution_runs(folders: Path, name: str) -> None:
    assert beside.wrong_of_waiting(folders, name, folders / "canary") == ""


def test_no_module_beside_a_child_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's process for the network, and the worker of a study; both import fedlit before they
    can fail."""
    canary = tmp_path / "canary"
    (tmp_path / "here").mkdir()
    hostile.plant_modules(tmp_path / "here", canary)
    monkeypatch.chdir(tmp_path / "here")
    child = Child(
        "A child",
        "speaker",
        tmp_path / "log",
        address="localhost:1",
        certificate="none",
        key="none",
    )
    with pytest.raises(Gone):
        child.hear(60)
    assert child.end() != 99 and "No such file" in (tmp_path / "log").read_text()
    workshop = Workshop(1)
    for forks in (True, False):
        workshop.forks &= forks
        worker = WorkerProcess(workshop)
        assert worker.call("builtins:len", {"one": 1}, tmp_path / "worker") == ""
        worker.stop()
    workshop.stop()
    assert not canary.exists()


def test_no_process_looks_for_modules_where_it_starts() -> None:
    """``-m`` does, unless ``-P`` comes before it."""
    for path in Path(fedlit.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List | ast.Tuple):
                words = [own.value for own in node.elts if isinstance(own, ast.Constant)]
                assert "-m" not in words or "-P" in words[: words.index("-m")], path
