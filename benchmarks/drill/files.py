"""Drills with files: torn ones, disks without room, signals, two writers.

Each function trains small federations of tables that scikit-learn carries, by the fedlit command,
and returns rows (what, tries, passed, note).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from drill.command import Commands, in_one_message

from fedlit.train import checkpoint_file

Rows = list[tuple[str, int, int, str]]

EPOCHS = 6
ARGS = ["--config", "quickstart.yaml", "--checkpoint.seconds", "0", "--board.pictures", "0"]
LIMIT = 5.0
"""Seconds in which a signal ends a command."""


def _fit(*more: str, epochs: int = EPOCHS) -> list[str]:
    return ["fit", *ARGS, "--trainer.max_epochs", str(epochs), *more]


def _checkpoints(folder: Path, name: str = "quickstart", version: int = 0) -> Path:
    return folder / "lightning_logs" / name / f"version_{version}" / "checkpoints"


def _state(path: Path) -> dict[str, bytes]:
    """Tensors of clients and of their optimizers, as bytes."""
    loaded = checkpoint_file.load(path)
    tensors = dict(loaded["state_dict"])
    for number, optimizer in enumerate(loaded["optimizer_states"]):
        for parameter, state in optimizer["state"].items():
            tensors |= {
                f"{number}/{parameter}/{key}": torch.as_tensor(value)
                for key, value in state.items()
            }
    return {key: value.contiguous().numpy().tobytes() for key, value in tensors.items()}


def _table(said: str) -> list[str]:
    """The lines of the scores."""
    lines = said.splitlines()
    begin = next(
        (n for n, line in enumerate(lines) if line.startswith(("test:", "validation:"))), len(lines)
    )
    return [line.split() for line in lines[begin : begin + 6]]  # type: ignore[misc]


class _Count:
    """Tries and what failed of them."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.tries = 0
        self.passed = 0
        self.notes = list[str]()

    def add(self, passed: bool, note: str) -> None:
        self.tries += 1
        self.passed += passed
        if not passed and len(self.notes) < 3:
            self.notes.append(note)

    def row(self, note: str = "") -> tuple[str, int, int, str]:
        return (
            self.what,
            self.tries,
            self.passed,
            "; ".join([*([note] if note else []), *self.notes]),
        )


# ---------------------------------------------------------------------- torn files


def torn(folder: Path, tries: int = 40) -> Rows:
    """Bits that flip, and files that are cut short, in each region of each file of a run."""
    draw = random.Random(0)
    rows = Rows()
    commands = Commands(folder)
    status, said = commands.run(*_fit())
    if status:
        return [("torn files", 1, 0, f"training: {said[-200:]}")]
    run = _checkpoints(folder).parent
    whole = _checkpoints(folder)
    expected = _table(commands.run("test", *ARGS)[1])
    states = _state(whole / "last.ckpt")
    rows += [
        _torn_checkpoint(commands, path, expected, tries, draw)
        for path in sorted(whole.glob("*.ckpt"))
    ]
    rows.append(_torn_last(commands, folder, states, max(1, tries // 10), draw))
    rows.append(_torn_configuration(commands, run, expected, tries, draw))
    rows.append(_torn_beside(commands, run, tries, draw))
    return rows


def _damage(path: Path, place: int, draw: random.Random) -> str:
    """Flip a bit there, or cut the file there; which was done."""
    content = bytearray(path.read_bytes())
    if draw.random() < 0.7:
        content[place] ^= 1 << draw.randrange(8)
        how = f"bit of byte {place} flipped"
    else:
        del content[place:]
        how = f"cut at {place}"
    path.write_bytes(content)
    return how


def _places(size: int, tries: int, draw: random.Random) -> list[int]:
    """One of each of as many regions as there are tries; the ends, where archives have their lists,
    more often.
    """
    regions = [
        draw.randrange(n * size // tries, max(n * size // tries + 1, (n + 1) * size // tries))
        for n in range(tries)
    ]
    return [*regions, *(size - 1 - draw.randrange(min(size, 2000)) for _ in range(tries // 2))]


def _torn_checkpoint(
    commands: Commands, path: Path, expected: Any, tries: int, draw: random.Random
) -> Any:
    found = _Count(f"torn {path.name}: refused by name, or the same scores")
    content = path.read_bytes()
    harmless = 0
    own = _table(commands.run("test", *ARGS, "--ckpt_path", str(path))[1])
    for place in _places(len(content), tries, draw):
        how = _damage(path, place, draw)
        status, said = commands.run("test", *ARGS, "--ckpt_path", str(path))
        same = status == 0 and _table(said) == own
        harmless += same
        found.add(
            in_one_message(said) and (same or (status == 2 and path.name in said)),
            f"{how}: {status} {said[-200:]}",
        )
        path.write_bytes(content)
    return found.row(f"{harmless} harmless")


def _torn_last(
    commands: Commands, folder: Path, states: Any, tries: int, draw: random.Random
) -> Any:
    found = _Count("torn last.ckpt: training goes on from the one before, to the same bits")
    run = _checkpoints(folder).parent
    kept = folder / "kept"
    shutil.copytree(run, kept)
    for _ in range(tries):
        shutil.rmtree(run)
        shutil.copytree(kept, run)
        last = _checkpoints(folder) / "last.ckpt"
        how = _damage(
            last, draw.randrange(last.stat().st_size // 10, last.stat().st_size * 8 // 10), draw
        )
        status, said = commands.run(*_fit("--ckpt_path", "last"))
        told = "The one before it is used" in said and in_one_message(said)
        found.add(status == 0 and told and _state(last) == states, f"{how}: {status} {said[-200:]}")
    shutil.rmtree(kept)
    return found.row()


def _torn_configuration(
    commands: Commands, run: Path, expected: Any, tries: int, draw: random.Random
) -> Any:
    found = _Count("torn config.yaml: refused in one message, or the same scores")
    path = run / "config.yaml"
    content = path.read_bytes()
    for place in _places(len(content), tries, draw):
        how = _damage(path, place, draw)
        status, said = commands.run("test", *ARGS)
        same = status == 0 and _table(said) == expected
        found.add(in_one_message(said) and (same or status == 2), f"{how}: {status} {said[-300:]}")
        path.write_bytes(content)
    return found.row()


def _torn_beside(commands: Commands, run: Path, tries: int, draw: random.Random) -> Any:
    """Events and tables of scores are written for people: nothing reads them to go on."""
    found = _Count("torn events, test.csv, test.json: a run goes on")
    for file in [*run.rglob("events.*"), run / "test.csv", run / "test.json"]:
        if file.stat().st_size:
            _damage(file, draw.randrange(file.stat().st_size), draw)
    for command in (_fit("--ckpt_path", "last", epochs=EPOCHS + 1), ["test", *ARGS]):
        status, said = commands.run(*command)
        found.add(status == 0 and in_one_message(said), f"{command[0]}: {status} {said[-200:]}")
    return found.row()


# ---------------------------------------------------------------------- disks without room


@contextmanager
def _small(folder: Path, size: int) -> Any:
    """A file system of that size, where one may be made."""
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def disk_full(folder: Path, tries: int = 20) -> Rows:
    """Train where there is room for some of what is written: at many sizes, on a small file system
    where one may be made, and under a limit for each file.
    """
    commands = Commands(folder)
    status, said = commands.run(*_fit())
    last = _checkpoints(folder) / "last.ckpt"
    if status:
        return [("full disks", 1, 0, f"training: {said[-200:]}")]
    whole = last.stat().st_size
    table = [line for line in _table(said) if line]
    mounted = _Count(
        "full disks: the table is printed, or one message names what could not be written"
    )
    limited = _Count("files that may not grow: as before")
    able = True
    for number in range(tries):
        size = int(whole * 4.5 * (number + 1) / tries)
        place = folder / f"full_{number}"
        with _small(place, max(4096, size)) as made:
            able = made
            if made:
                _without_room(commands, mounted, place, table, size, {})
        place = folder / f"limit_{number}"
        place.mkdir()
        size = int(whole * 1.2 * (number + 1) / tries)
        _without_room(commands, limited, place, table, size, {"most": size})
    rows = [limited.row()]
    return (
        [mounted.row(), *rows]
        if able
        else [("full disks: this user may mount none", 0, 0, "limits instead"), *rows]
    )


def _without_room(
    commands: Commands, found: _Count, place: Path, table: Any, size: int, limits: dict[str, int]
) -> None:
    root = ["--trainer.default_root_dir", str(place)]
    status, said = commands.run(*_fit(*root), **limits)
    last = place / "quickstart/version_0/checkpoints/last.ckpt"
    printed = [line for line in _table(said) if line][: len(table)] == table
    kept = last.is_file()
    good = in_one_message(said)
    if status == 0:
        good &= printed and kept
    elif kept:  # the end of training could not be kept, an earlier state is
        good &= status == 1 and str(last.parent) in said
    else:
        good &= status in (1, 2) and "error: " in said and str(place) in said
    good &= not list(place.rglob("*.partial"))
    if kept:
        tested, told = commands.run("test", *ARGS, *root, **limits)
        good &= tested == 0 and in_one_message(told)
    found.add(bool(good), f"{size} bytes: {status} {said[-300:]}")


def _await(there: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not there() and time.monotonic() < end:
        time.sleep(0.02)


# ---------------------------------------------------------------------- signals


def signals(folder: Path, tries: int = 50) -> Rows:
    """Ctrl-C and SIGTERM at random moments. What was cut short goes on, and ends with the bits of
    what was not.
    """
    draw = random.Random(1)
    epochs = 60
    ended = _Count(
        f"signals: the command ends within {LIMIT:.0f} s with the right status and one message"
    )
    same = _Count("signals: what goes on ends with the same bits")
    longest = 0.0
    commands = Commands(folder)
    began = time.monotonic()
    commands.run(*_fit("--name", "whole", epochs=epochs))
    span = time.monotonic() - began
    expected = _state(_checkpoints(folder, "whole") / "last.ckpt")
    name = "chain_0"
    left = tries
    chain = 0
    while left:
        last = _checkpoints(folder, name) / "last.ckpt"
        more = ["--ckpt_path", "last"] if last.is_file() else []
        version = len(list((folder / "lightning_logs" / name).glob("version_*")))
        if not more and version:
            shutil.rmtree(folder / "lightning_logs" / name)
        running = commands.start(*_fit("--name", name, *more, epochs=epochs))
        time.sleep(draw.uniform(0, span / 4))  # most of it is reading tables
        number = draw.choice([signal.SIGINT, signal.SIGTERM])
        sent = time.monotonic()
        running.send(number)
        if draw.random() < 0.2:
            time.sleep(draw.uniform(0, 0.3))
            running.send(number)
        status, said = running.wait(30)
        took = time.monotonic() - sent
        right = {signal.SIGINT: (0, 130), signal.SIGTERM: (0, 1, -signal.SIGTERM)}[number]
        longest = max(longest, took)
        ended.add(
            took <= LIMIT and status in right and in_one_message(said),
            f"{took:.1f} s, {status}: {said[-200:]}",
        )
        left = left - 1
        chain = chain + 1
        if chain == 5 or not left:
            status, said = commands.run(
                *_fit(
                    "--name",
                    name,
                    *(["--ckpt_path", "last"] if last.is_file() else []),
                    epochs=epochs,
                )
            )
            found = sorted((folder / "lightning_logs" / name).glob("version_*"))[-1] / "checkpoints"
            bests = len(list(found.glob("best-*.ckpt")))
            good = status == 0 and _state(found / "last.ckpt") == expected and bests == 1
            same.add(good, f"{name}: {status}, {bests} best: {said[-200:]}")
            name = f"chain_{tries - left}"
            chain = 0
    cold = _cold(folder, max(1, tries // 10), draw)
    return [ended.row(f"{longest:.1f} s at most"), same.row(), cold]


def _cold(folder: Path, tries: int, draw: random.Random) -> Any:
    """Signals to a command that is being loaded."""
    found = _Count(f"Ctrl-C while the command is loaded: it ends within {LIMIT:.0f} s")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    for number in range(tries):
        with (folder / f"cold_{number}.txt").open("w") as log:
            command = [
                sys.executable,
                "-m",
                "fedlit",
                *_fit("--name", f"cold_{number}", epochs=2000),
            ]
            # a drill in the background is started with Ctrl-C ignored, and would hand that on
            heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, preexec_fn=heed
            )
            time.sleep(draw.uniform(1.0, 10.0))
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            try:
                status = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        took = time.monotonic() - sent
        said = (folder / f"cold_{number}.txt").read_text(encoding="utf-8")
        found.add(
            took <= LIMIT and status == 130 and in_one_message(said),
            f"{took:.1f} s, {status}: {said[-300:]}",
        )
    return found.row()


# ---------------------------------------------------------------------- two writers


def two_writers(folder: Path, tries: int = 5) -> Rows:
    """Two processes that want one folder, one that was killed, and one of another machine."""
    found = _Count(
        "second writer: refused, by process and machine; the first ends with the same bits"
    )
    apart = _Count("two new runs of one name at once: a folder each")
    stale = _Count("the lock of a process that was killed is taken over")
    foreign = _Count("a lock of another machine: refused, with what to remove")
    commands = Commands(folder)
    commands.run(*_fit("--name", "whole", epochs=40))
    expected = _state(_checkpoints(folder, "whole") / "last.ckpt")
    for number in range(tries):
        name = f"two_{number}"
        last = _checkpoints(folder, name) / "last.ckpt"
        first = commands.start(*_fit("--name", name, epochs=40))
        _await(last.is_file)
        status, said = commands.run(*_fit("--name", name, "--ckpt_path", "last", epochs=40))
        refused = status == 2 and f"process {first.pid} on" in said and in_one_message(said)
        ended, told = first.wait()
        # the first was done before the second asked
        late = status == 0 and "Nothing is left to train" in said
        found.add(
            (refused or late) and ended == 0 and _state(last) == expected,
            f"{status} {said[-200:]} {told[-99:]}",
        )

        both = [commands.start(*_fit("--name", f"new_{number}")) for _ in range(2)]
        ends = [one.wait() for one in both]
        versions = [
            _checkpoints(folder, f"new_{number}", version) / "last.ckpt" for version in range(2)
        ]
        good = all(status == 0 for status, _ in ends) and all(path.is_file() for path in versions)
        apart.add(good and _state(versions[0]) == _state(versions[1]), ends[0][1][-200:])

        killed = commands.start(*_fit("--name", f"killed_{number}", epochs=40))
        last = _checkpoints(folder, f"killed_{number}") / "last.ckpt"
        _await(last.is_file)
        killed.send(signal.SIGKILL)
        killed.wait()
        status, said = commands.run(
            *_fit("--name", f"killed_{number}", "--ckpt_path", "last", epochs=40)
        )
        stale.add(status == 0 and _state(last) == expected, f"{status} {said[-200:]}")

        lock = last.parents[1] / ".lock"
        lock.write_text(json.dumps({"pid": 7, "host": "elsewhere", "began": "yesterday"}))
        status, said = commands.run(
            *_fit("--name", f"killed_{number}", "--ckpt_path", "last", epochs=42)
        )
        told = "process 7 on elsewhere" in said and str(lock) in said
        foreign.add(status == 2 and told and in_one_message(said), f"{status} {said[-200:]}")
    return [found.row(), apart.row(), stale.row(), foreign.row()]


# ---------------------------------------------------------------------- workbooks


def workbook(folder: Path, tries: int = 1) -> Rows:
    """A workbook of a few kilobytes that would keep a reader busy for hours is read as quickly as
    another one.
    """
    import zipfile

    import pandas as pd

    found = _Count("a workbook of 6 KB with 200,000 openings of a formula: init ends within 30 s")
    path = folder / "tables" / "north.xlsx"
    sheet = "xl/worksheets/sheet1.xml"
    path.parent.mkdir(parents=True)
    frame = pd.DataFrame({"age": range(60), "ill": [number % 2 for number in range(60)]})
    frame.to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents[sheet] = contents[sheet].replace(
        b"</worksheet>", b"<!--" + 200_000 * b"<f" + b"--></worksheet>"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    status, said = Commands(folder).start("init", "tables", "--target", "ill").wait(30)
    found.add(
        status == 0 and (folder / "tables.yaml").is_file(),
        f"{path.stat().st_size} bytes: {status} {said[-200:]}",
    )
    return [found.row()]
