"""Folders in which modules lie that nobody may import, and commands that are started inside of
them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import hostile
import yaml
from sklearn.datasets import load_wine

from fedlit.__main__ import main
from fedlit.data.sources import Hospitals
from fedlit.run.config import find_config

QUICK = ("--trainer.max_epochs=1", "--board.pictures=0")
STUDY = {
    "seeds": "1:1",
    "baselines": [],
    "bootstrap": 0,
    "methods": {
        "local": {"config": "own.yaml", "set": {"trainer.max_epochs": 1, "board.pictures": 0}}
    },
}
COMMANDS: dict[str, tuple[str, Sequence[str], int]] = {
    "init": ("project", ["init", "tables", "--target", "target", "--out", "new.yaml"], 0),
    "check": ("project", ["check", "own.yaml"], 0),
    "recommend": ("project", ["recommend", "--config", "own.yaml", "--folds", "1"], 2),
    "fit": ("project", ["fit", "own.yaml", *QUICK], 0),
    "describe": ("project", ["describe", "own.yaml"], 0),
    "validate": (
        "run",
        ["validate", "--config", "config.yaml", "--ckpt_path", "checkpoints/last.ckpt"],
        0,
    ),
    "test": ("run", ["test", "--config", "config.yaml", "--ckpt_path", "checkpoints/last.ckpt"], 0),
    "predict": (
        "run",
        ["predict", "--config", "config.yaml", "--ckpt_path", "checkpoints/last.ckpt"],
        0,
    ),
    "predict --run": (
        "run",
        ["predict", "--run", ".", "--client", "north", "--data", "new.csv", "--out", "out.csv"],
        0,
    ),
    "export": ("run", ["export", "--run", ".", "--client", "north", "--out", "exported"], 0),
    "explain": ("run", ["explain", "--run", "."], 2),
    "add-client": ("run", ["add-client", "--run", ".", "--config", "config.yaml"], 2),
    "compare": ("project", ["compare", "study.yaml", "--workers", "1", "--out", "out"], 0),
    "search": ("project", ["search", "study.yaml", "--out", "searched"], 2),
    "methods": ("project", ["methods"], 0),
    "methods show": ("project", ["methods", "show", "fedavg"], 0),
    "data": ("project", ["data"], 0),
    "data fetch": ("project", ["data", "fetch", "nosuch"], 2),
    "data show": ("project", ["data", "show", "heart"], 0),
    "coordinate init": (
        "project",
        ["coordinate", "init", "coordinator", "--sites", "wine,digits"],
        0,
    ),
    "coordinate add": ("coordinator", ["coordinate", "add", ".", "wine", "wine.pub"], 0),
    "coordinate watch": ("coordinator", ["coordinate", "watch", ".", "--once"], 0),
    "coordinate renew": ("coordinator", ["coordinate", "renew", "."], 0),
    "site keys": ("invited", ["site", "keys", "."], 0),
    "site check": ("site", ["site", "check", "--config", "site.yaml"], 0),
}
"""Command → the folder that it is started in, its words, and its exit status."""
WAITING = {
    "coordinate start": ("coordinator", ["coordinate", "start", "."], "Waits for"),
    "site join": (
        "site",
        ["site", "join", "--config", "site.yaml", "--accept", "HASH"],
        "tries again",
    ),
}
"""The same for commands that wait for others: what they have printed when their child processes
run."""


def make_folders(folder: Path) -> None:
    """Make the folders that commands are started in, without planted modules."""
    for name in ("project", "run"):
        (folder / name).mkdir()
    _make_project(folder / "project")
    trained = [
        "fit",
        "--config",
        str(find_config("quickstart")),
        f"--trainer.default_root_dir={folder / 'trained'}",
    ]
    assert main([*trained, *QUICK]) == 0
    shutil.copytree(
        folder / "trained" / "quickstart" / "version_0", folder / "run", dirs_exist_ok=True
    )
    Hospitals().new_rows("north", 5).to_csv(folder / "run" / "new.csv", index=False)
    coordinator = folder / "coordinator"
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port = str(line.getsockname()[1])
    assert (
        main(["coordinate", "init", str(coordinator), "--sites", "wine,digits", "--port", port])
        == 0
    )
    invitation = coordinator / "invitations" / "wine"
    shutil.copytree(invitation, folder / "invited")
    shutil.copytree(invitation, folder / "site")
    assert main(["site", "keys", str(folder / "site")]) == 0
    settings = folder / "site" / "site.yaml"
    content = yaml.safe_load(settings.read_text())
    content["data"] = {
        "source": {"class_path": "fedlit.Bundled", "init_args": {"clients": ["wine"]}}
    }
    settings.write_text(yaml.safe_dump(content))
    shutil.copy(folder / "site" / "wine.pub", coordinator)
    assert main(["coordinate", "add", str(coordinator), "wine", str(coordinator / "wine.pub")]) == 0
    shutil.copytree(coordinator / "invitations" / "digits", folder / "other")
    assert main(["site", "keys", str(folder / "other")]) == 0
    assert (
        main(
            ["coordinate", "add", str(coordinator), "digits", str(folder / "other" / "digits.pub")]
        )
        == 0
    )


def _make_project(folder: Path) -> None:
    (folder / "tables").mkdir()
    rows = load_wine(as_frame=True).frame
    for name, part in (("north", rows[::2]), ("south", rows[1::2])):
        part.to_csv(folder / "tables" / f"{name}.csv", index=False)
    shutil.copy(find_config("quickstart"), folder / "own.yaml")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))


def plant(folder: Path, canary: Path) -> None:
    """Plant modules in each folder that commands are started in."""
    for place in {place for place, *_ in (*COMMANDS.values(), *WAITING.values())}:
        hostile.plant_modules(folder / place, canary)


def started(folder: Path, words: Sequence[str]) -> subprocess.Popen[str]:
    """A command that begins in a folder, as the command ``fedlit`` does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fedlit", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wrong_of(folder: Path, name: str, canary: Path) -> str:
    """What was wrong with a command of :data:`COMMANDS`; an empty text if nothing was."""
    place, words, status = COMMANDS[name]
    process = started(folder / place, words)
    output, _ = process.communicate(timeout=300)
    if ran := _ran(canary):
        return ran
    return (
        ""
        if process.returncode == status
        else f"exit status {process.returncode}: {output[-2000:]}"
    )


def wrong_of_waiting(folder: Path, name: str, canary: Path, seconds: float = 120.0) -> str:
    """The same of a command of :data:`WAITING`, which is ended when its child processes run."""
    place, words, until = WAITING[name]
    hashes = _hash(folder / "site") if "HASH" in words else ""
    process = started(folder / place, [word.replace("HASH", hashes) for word in words])
    output = ""
    end = time.monotonic() + seconds
    assert process.stdout is not None
    while until not in output and time.monotonic() < end and process.poll() is None:
        output += process.stdout.readline()
    if name == "coordinate start":
        _wait_for_port(folder / place, end)
    process.terminate()
    process.communicate(timeout=60)
    if ran := _ran(canary):
        return ran
    return "" if until in output else f"ended before {until!r}: {output[-2000:]}"


def _ran(canary: Path) -> str:
    """Which planted modules ran; an empty text if none did. The canary goes."""
    if not canary.exists():
        return ""
    names = canary.read_text().split()
    canary.unlink()
    return f"{' '.join(names[:5])} ran"


def _hash(site: Path) -> str:
    output, _ = started(site, ["site", "check", "--config", "site.yaml"]).communicate(timeout=300)
    return output.partition("Hash of all this: ")[2].partition(" ")[0]


def _wait_for_port(coordinator: Path, end: float) -> None:
    port = yaml.safe_load((coordinator / "coordinator.yaml").read_text())["port"]
    while time.monotonic() < end:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
