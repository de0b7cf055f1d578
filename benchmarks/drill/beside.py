"""Folders that somebody else filled: modules beside each command, and invitations that reach for a
site's machine.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drill.federation import TESTS

sys.path.insert(0, str(TESTS))

Rows = list[tuple[str, int, int, str]]
CALLED = {"class_path": "subprocess.getoutput", "init_args": {"cmd": "touch CANARY"}}
MACHINE: dict[str, Any] = {
    "ckpt_path": "/etc/passwd",
    "model": "os.system",
    "model.start": {"checkpoint": "/etc/passwd"},
    "model.threads": 10**6,
    "trainer.callbacks": [{"class_path": "fedlit.train.callbacks.Tables"}],
    "trainer.default_root_dir": "/tmp",
    "trainer.devices": 64,
    "trainer.logger": {
        "class_path": "lightning.pytorch.loggers.CSVLogger",
        "init_args": {"save_dir": "/tmp"},
    },
    "trainer.max_time": "00:00:00:01",
    "trainer.num_nodes": 9999,
    "trainer.profiler": "simple",
    "trainer.strategy": "ddp_spawn",
}
"""Keys of ``federation.yaml`` that use a site's machine, with values that would."""


def beside(folder: Path, tries: int) -> Rows:
    """Start each command inside a folder with modules that have the names of all that it
    imports.
    """
    import beside as folders  # of the tests

    folders.make_folders(folder)
    canary = folder / "canary"
    folders.plant(folder, canary)
    commands = {name: folders.wrong_of(folder, name, canary) for name in folders.COMMANDS}
    waiting = {name: folders.wrong_of_waiting(folder, name, canary) for name in folders.WAITING}
    return [
        _row("commands beside planted modules", commands),
        _row("institutions beside planted modules", waiting),
    ]


def invitation(folder: Path, tries: int) -> Rows:
    """Send a site settings of the coordinator's choice, and a configuration that uses the site's
    machine.
    """
    import beside as folders
    import yaml

    folders.make_folders(folder)
    canary = folder / "canary"
    invited = folder / "invited"
    settings = (folder / "site" / "site.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load((invited / "federation.yaml").read_text(encoding="utf-8"))

    def refused(place: Path, words: list[str]) -> str:
        process = folders.started(place, words)
        output, _ = process.communicate(timeout=300)
        if canary.exists():
            canary.unlink()
            return f"{' '.join(words)}: code of the invitation ran"
        message = (
            "fedlit: error:" in output and "expected" in output and "FEDLIT_DEBUG" not in output
        )
        return (
            ""
            if process.returncode == 2 and message
            else f"exit status {process.returncode}: {output[-300:]}"
        )

    def trusting(place: Path) -> None:
        (place / "site.yaml").write_text(settings + "\ntrust: [subprocess]\n", encoding="utf-8")
        _change(place, content, "model.client.init_args.network", CALLED, canary)

    checks = ["site", "check", "--config", "site.yaml"]
    sent = {
        "site check": _in_copy(
            invited, folder / "check", trusting, lambda place: refused(place, checks)
        ),
        "site keys": _in_copy(
            invited, folder / "keys", trusting, lambda place: refused(place, ["site", "keys", "."])
        ),
        "site check with a key": _in_copy(
            folder / "site", folder / "key", trusting, lambda place: refused(place, checks)
        ),
    }
    machine = {}
    for number, (key, value) in enumerate(MACHINE.items()):

        def using(place: Path, key: str = key, value: Any = value) -> None:
            _change(place, content, key, value, canary)

        machine[key] = _in_copy(
            folder / "site",
            folder / f"machine-{number}",
            using,
            lambda place: refused(place, checks),
        )
    return [
        _row("settings in an invitation", sent),
        _row("keys that use a site's machine", machine),
    ]


def _in_copy(
    source: Path, place: Path, change: Callable[[Path], None], look: Callable[[Path], str]
) -> str:
    shutil.copytree(source, place)
    change(place)
    return look(place)


def _change(place: Path, content: Mapping[str, Any], key: str, value: Any, canary: Path) -> None:
    """Write ``federation.yaml`` with one value changed."""
    import hostile
    import yaml

    path = place / "federation.yaml"
    text = yaml.safe_dump(hostile.put(dict(content), key, value, place, canary), sort_keys=False)
    path.write_text(text, encoding="utf-8")


def _row(what: str, found: Mapping[str, str]) -> tuple[str, int, int, str]:
    wrong = [f"{name} ({why})" for name, why in found.items() if why]
    return (
        what,
        len(found),
        len(found) - len(wrong),
        "; ".join(wrong) or "nothing of it ran, one message each",
    )
