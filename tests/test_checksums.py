"""Files that are whole: no byte of a checkpoint changes unseen, and what was cut short leaves what was there."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest
import torch

from fedlit.checksums import check, write
from fedlit.errors import ConfigError
from fedlit.files import clear_partials

CONTENT = {"state_dict": {"a": torch.arange(6.0), "b": torch.ones(3, dtype=torch.int64)}, "epoch": 3, "name": "müller"}


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def refused_or_the_same(path: Path) -> bool:
    try:
        check(path)
    except ConfigError as error:
        return str(error).startswith(f"{path}: expected a checkpoint that fedlit wrote, found ")
    try:
        return same(torch.load(path, weights_only=True, mmap=True), CONTENT)
    except Exception:  # what reads checkpoints says which file cannot be read
        return True


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.full)])
def test_no_byte_of_a_checkpoint_changes_unseen(step: int, tmp_path: Path) -> None:
    """One bit of each byte in turn, and each end: refused, or of no consequence (the gaps between records)."""
    path = tmp_path / "last.ckpt"
    write(CONTENT, path)
    content = path.read_bytes()
    assert same(torch.load(path, weights_only=True), CONTENT) and len(content) < 5000
    wrong = []
    for place in range(0, len(content), step):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.unlink()
        path.write_bytes(damaged)
        if not refused_or_the_same(path):
            wrong.append(place)
    for end in range(0, len(content), 7 * step):
        path.unlink()
        path.write_bytes(content[:end])
        with pytest.raises(ConfigError, match="cut short"):
            check(path)
    assert wrong == []


def test_what_could_not_be_written_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path, before = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    for epoch in (1, 2):
        write(CONTENT | {"epoch": epoch}, path, before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (10, 1000, len(path.read_bytes()) - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):  # not torch's own words
                write(CONTENT | {"epoch": 3}, path, before)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    found = {file.name: torch.load(file, weights_only=True)["epoch"] for file in tmp_path.iterdir()}
    assert found == {"last.ckpt": 2, "previous.ckpt": 1}


def test_only_what_the_dead_left_is_cleared(tmp_path: Path) -> None:
    host = socket.gethostname()
    names = [
        f".a.{host}-{os.getpid()}.partial",
        f".a.{host}-{2**22 + 1}.partial",
        ".a.elsewhere-1.partial",
        "a.partial",
    ]
    for name in names:
        (tmp_path / name).touch()
    clear_partials(tmp_path, ours=False)
    assert {file.name for file in tmp_path.iterdir()} == {names[0], names[2], names[3]}
    clear_partials(tmp_path, ours=True)
    assert {file.name for file in tmp_path.iterdir()} == {"a.partial"}
