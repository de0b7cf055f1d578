"""What the coordinator writes of its rounds, as people see it."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path

import pytest

from fedlit.errors import ConfigError
from fedlit.institutions.folder import init
from fedlit.institutions.watch import watch

pytest.importorskip("flwr", reason="the extra fedlit[flower] is not installed")


def test_each_change_is_a_line_until_the_end(tmp_path: Path) -> None:
    folder, out = tmp_path / "trial", io.StringIO()
    init(folder, ["north", "south"])
    path = folder / "state" / "progress.json"

    def write(round_: int, state: str, away: list[str]) -> None:
        told = {"round": round_, "rounds": 2, "in": ["north"], "away": away, "seconds": 2.5, "bytes": 2048}
        path.with_suffix(".new").write_text(json.dumps(told | {"updated": time.time(), "state": state}))
        path.with_suffix(".new").replace(path)

    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(watch(folder, every=0.01, out=out)))
    thread.start()
    for turn, state in enumerate(("trains", "trains", "failed")):
        write(turn, state, ["south"] if turn else [])
        while len(out.getvalue().splitlines()) < turn + 2:
            time.sleep(0.01)
    thread.join(10)
    header, first, second, third = out.getvalue().splitlines()
    assert header.split() == ["round", "state", "in", "away", "seconds", "bytes", "told"]
    assert first.split()[:9] == ["0", "/", "2", "trains", "north", "nobody", "2.50", "2.0", "KiB"]
    assert second.split()[:6] == ["1", "/", "2", "trains", "north", "south"]
    assert "failed" in third and codes == [1]
    path.write_text("{half")
    with pytest.raises(ConfigError, match=r"progress.json: expected what a coordinator writes, found"):
        watch(folder, once=True, out=out)
