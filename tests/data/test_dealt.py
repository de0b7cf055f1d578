"""Clients dealt to several processes: each reads its own tables and encodes them as one process would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import fedlit.data.sources.tables as tables_module
from fedlit.data.module import FederatedData
from fedlit.data.shaping.mutations import Mutation
from fedlit.data.sources import Tables
from fedlit.errors import ConfigError

CLIENTS = ("east", "north", "south", "west")


class Processes:
    """Two, as threads, that tell each other facts."""

    def __init__(self) -> None:
        self.meeting, self.told = threading.Barrier(2, timeout=300), dict[int, Mapping[str, Any]]()

    def share(self, number: int) -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
        def tell(topic: str, own: Mapping[str, Any]) -> dict[str, Any]:
            self.told[number] = own
            self.meeting.wait()
            everything = {**self.told[0], **self.told[1]}
            self.meeting.wait()
            return dict(sorted(everything.items()))

        return tell


def files(folder: Path) -> dict[str, str]:
    rows = range(60)
    found = {}
    for place, client in enumerate(CLIENTS):
        frame = pd.DataFrame({"age": [20 + (n * 7 + place) % 40 for n in rows], "y": [(n + place) % 2 for n in rows]})
        frame[f"own_{client}"] = [n % 5 for n in rows]
        frame.to_csv(folder / f"{client}.csv", index=False)
        found[client] = str(folder / f"{client}.csv")
    return found


def dealt(folder: Path, source: dict[str, Any], **settings: Any) -> list[FederatedData]:
    """The two halves."""
    processes, paths = Processes(), files(folder)  # written once: a half must not read what the other is writing

    def half(number: int) -> FederatedData:
        data = FederatedData(Tables(paths, "y", **source), batches=4, seed=8, **settings)
        data.share = processes.share(number)
        data.deal = lambda sizes: sorted(sizes)[2 * number : 2 * number + 2]
        try:
            data.setup()
        except BaseException:
            processes.meeting.abort()  # the other must not wait for a half that failed
            raise
        return data

    with ThreadPoolExecutor(2) as pool:
        halves = [pool.submit(half, number) for number in range(2)]
    failed = [error for own in halves if (error := own.exception()) is not None]
    if failed:
        raise min(failed, key=lambda error: isinstance(error, threading.BrokenBarrierError))
    return [own.result() for own in halves]


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        ({"align": "both", "scaling": "pooled"}, 0),
        # who gets a fault depends on all tables
        ({"align": "both", "mutations": [Mutation("scale", feature="age")]}, 2),
        ({"columns": ["age"]}, 2),
    ],
    ids=["aligned", "a fault is planted", "chosen columns"],
)
def test_each_reads_its_own_and_has_what_one_process_has(
    settings: dict[str, Any], others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, read = list[str](), tables_module.read_table
    monkeypatch.setattr(tables_module, "read_table", lambda *own: opened.append(own[2]) or read(*own))  # type: ignore[func-returns-value]
    halves = dealt(tmp_path, {}, **settings)
    assert sorted(opened) == sorted(CLIENTS * (2 if others else 1))
    whole = FederatedData(Tables(files(tmp_path), "y"), batches=4, seed=8, **settings)
    whole.setup()
    assert [own.spec.name for half in halves for own in half.clients] == list(CLIENTS)
    for one, other in zip(whole.clients, [own for half in halves for own in half.clients], strict=True):
        assert one.spec == other.spec and one.fingerprint() == other.fingerprint()
        assert torch.equal(one.train.x, other.train.x)
    for half in halves:
        assert (half.names, half.aligned_steps, half.rows_per_epoch) == (
            whole.names,
            whole.aligned_steps,
            whole.rows_per_epoch,
        )
        assert half.notes == whole.notes


@pytest.mark.parametrize("key", ["drop", "types"])
def test_a_column_that_nobody_has_is_refused_though_nobody_reads_all_tables(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"tables: {key}: .*'own_nort'. Did you mean 'own_north'"):
        dealt(tmp_path, {key: {"own_nort": "drop"} if key == "types" else ["own_nort"]})
    assert len(dealt(tmp_path, {"drop": ["own_north"]})) == 2
