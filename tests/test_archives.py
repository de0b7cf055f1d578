"""Files that are whole: no byte of a checkpoint changes unseen, and what was cut short leaves what
was there."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
from disks import files_of_at_most

from fedlit.errors import ConfigError
from fedlit.files import check_archive, clear_partials, write_archive, write_text

CONTENT = {
    "state_dict": {"a": torch.arange(6.0), "b": torch.ones(3, dtype=torch.int64)},
    "epoch": 3,
    "name": "müller",
}


def refused_or_the_same(path: Path) -> bool:
    try:
        check_archive(path)
    except ConfigError as error:
        return str(error).startswith(f"{path}: expected a file that fedlit wrote, found ")
    try:
        found = torch.load(path, weights_only=True, mmap=True)
    except Exception:  # what reads checkpoints says which file cannot be read
        return True
    tensors = found["state_dict"]
    same = all(torch.equal(tensors[key], value) for key, value in CONTENT["state_dict"].items())  # type: ignore[attr-defined]
    return (
        same and tensors.keys() == {"a", "b"} and found["epoch"] == 3 and found["name"] == "müller"
    )


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.full)])
def test_no_byte_of_a_checkpoint_changes_unseen(step: int, tmp_path: Path) -> None:
    """One bit of each byte in turn, and each end: refused, or of no consequence (the gaps between
    records)."""
    path = tmp_path / "last.ckpt"
    write_archive(CONTENT, path)
    content = path.read_bytes()
    assert refused_or_the_same(path) and len(content) < 5000
    damaged = [bytearray(content) for _ in range(0, len(content), step)]
    for number, own in enumerate(damaged):
        own[number * step] ^= 1 << number % 8
    for written in [
        *map(bytes, damaged),
        *(content[:end] for end in range(0, len(content), 7 * step)),
    ]:
        path.unlink()
        path.write_bytes(written)
        assert refused_or_the_same(path)
        if len(written) < len(content):
            with pytest.raises(ConfigError, match="cut short"):
                check_archive(path)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    before = tmp_path / "previous.ckpt"
    for epoch in (1, 2):
        write_archive(CONTENT | {"epoch": epoch}, path, before)
    for size in (10, 1000, len(path.read_bytes()) - 1):
        with files_of_at_most(size), pytest.raises(OSError, match="File too large") as error:
            write_archive(CONTENT | {"epoch": 3}, path, before)
        assert error.value.filename == str(path)
    found = {file.name: torch.load(file, weights_only=True)["epoch"] for file in tmp_path.iterdir()}
    assert found == {"last.ckpt": 2, "previous.ckpt": 1}
    os.link(path, tmp_path / "both")  # as if killed between the second name and the rename
    os.replace(tmp_path / "both", before)
    write_archive(CONTENT, path, before)
    assert {file.name for file in tmp_path.iterdir()} == {"last.ckpt", "previous.ckpt"}
    for place in (tmp_path, path / "a.txt"):
        with pytest.raises(OSError) as error:
            write_text("a", place)
        assert error.value.filename == str(place)


def test_an_archive_is_not_gathered_in_memory(tmp_path: Path) -> None:
    content = {"w": torch.zeros(10**6)}
    write_archive(content, tmp_path / "warm.ckpt")
    tracemalloc.start()
    try:
        write_archive(content, tmp_path / "last.ckpt")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**6 < (tmp_path / "last.ckpt").stat().st_size


WRITES = """
import os, signal, sys, time, torch
from pathlib import Path
from fedlit.files import check_archive, write_archive
path, before = Path(sys.argv[1], "last.ckpt"), Path(sys.argv[1], "previous.ckpt")
for tries in range(8):
    child = os.fork()  # imports nothing again
    if child == 0:
        for epoch in range(10**6):
            write_archive({"state": torch.full((300_000,), float(epoch))}, path, before)
    while not before.exists():
        time.sleep(0.001)
    time.sleep(0.007 * tries)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for own in (path, before):
        check_archive(own)
        state = torch.load(own, weights_only=True)["state"]
        assert bool((state == state[0]).all())
"""


def test_a_killed_process_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """One that was cut short is no checkpoint: it has another name, until the next start clears
    it."""
    done = subprocess.run(
        [sys.executable, "-c", WRITES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    clear_partials(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"last.ckpt", "previous.ckpt"}
