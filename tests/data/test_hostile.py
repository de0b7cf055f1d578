# ruff: noqa: E501 - a line for each case is easier to read than many for one
"""Hostile files: each gives a result, a note or one message; never a traceback, never a silence."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedlit.data.module import FederatedData
from fedlit.data.sources import Tables
from fedlit.errors import FedlitError

ROWS = 60
SECONDS = 30  # none may take longer, on a busy machine


def column(make: Callable[[int], Any]) -> list[Any]:
    return [make(n) for n in range(ROWS)]


def table(**columns: Callable[[int], Any]) -> pd.DataFrame:
    """A number, what is asked for, and a target of two classes."""
    return pd.DataFrame(
        {
            "x": column(lambda n: n * 7 % 60 / 4),
            **{name: column(make) for name, make in columns.items()},
            **({} if "y" in columns else {"y": column(lambda n: n % 2)}),
        }
    )


def text(frame: pd.DataFrame, **options: Any) -> bytes:
    return frame.to_csv(index=False, **options).encode("utf-8")


def lines(header: str, row: str = "{n},{m},{y}", rows: int = ROWS) -> bytes:
    return "\n".join([header, *(row.format(n=n * 7 % 60, m=n % 5, y=n % 2) for n in range(rows))]).encode() + b"\n"


def parquet(frame: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    frame.to_parquet(stream)
    return stream.getvalue()


def wide(columns: int) -> bytes:
    rng = np.random.default_rng(0)
    rows = [",".join(map(str, [*rng.integers(0, 99, columns), n % 2])) for n in range(30)]
    return "\n".join([",".join([*(f"c{n}" for n in range(columns)), "y"]), *rows]).encode()


GOOD = lines("x,z,y")
PLAIN = table(z=lambda n: n % 5)

# what is said → a file; of a note it begins with "note:", of a message with "error:", and "" is a result without a word
CASES: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    # ---- bytes
    "plain": ("", GOOD, {}),
    "bare carriage returns": ("", GOOD.replace(b"\n", b"\r"), {}),
    "random bytes": ("error:", np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8).tobytes(), {}),
    # ---- shape
    "no header": ("error:expected a column 'y'", lines("1,2,0"), {}),
    "numbers as names": ("note:most names of columns are numbers", lines("1,2,y"), {}),
    "integer names in parquet": ("", parquet(PLAIN.rename(columns={"x": 0, "z": 1})), {}),
    "one column": ("error:expected columns", b"y\n" + b"0\n1\n" * 30, {}),
    "two rows": ("error:2 rows cannot be split", b"x,y\n1,0\n2,1\n", {}),
    "300 columns": ("", wide(300), {}),
    "names of 5,000 letters": ("", lines("x" * 5000 + ",z,y"), {}),
    "a name with a line end": ("note:line ends", lines('x,"z\nmore",y'), {}),
    # ---- numbers
    "numbers as text in parquet": ("", parquet(table(z=lambda n: str(n * 7 % 60))), {}),
    "infinite": ("error:column 'z': expected finite numbers", text(table(z=lambda n: "inf" if n == 3 else n % 7)), {}),
    "huge": ("error:column 'z' is not finite", text(table(z=lambda n: 1e300 if n % 2 else -1e300)), {}),
    # ---- categories, dates, what is left out
    "20,000 categories": ("note:duplicates|^$", b"x,k,y\n" + b"".join(b"%d,k%d,%d\n" % (n * 7 % 1000, n * 7919 % 20_000, n % 2) for n in range(24_000)), {}),
    "dates before pandas' first": ("note:z|^$", parquet(table(z=lambda n: np.datetime64("0700-01-01", "s") + np.timedelta64(n * 99, "D"))), {}),
    "decimals": ("", parquet(table(z=lambda n: __import__("decimal").Decimal(n * 7 % 60) / 4)), {}),
    "times of day": ("", parquet(table(z=lambda n: __import__("datetime").time(n % 24, n))), {}),
    # ---- targets
    "no target": ("error:expected a column 'y', the target, found x, z", lines("x,z,w"), {}),
    "a rare class": ("note:never scored: 2 \\(1\\)", text(table(y=lambda n: 2 if n == 5 else n % 2)), {}),
    "very many whole numbers": ("error:Say task: regression", text(table(y=lambda n: n)), {}),
    "fractions to predict": ("", text(table(y=lambda n: n / 3)), {"task": "regression"}),
    "text to predict as a number": ("error:expected numbers for task: regression", text(table(y=lambda n: "ab"[n % 2])), {"task": "regression"}),
    "counts": ("", text(table(y=lambda n: n % 7)), {"task": "counts"}),
    "counts below zero": ("error:", text(table(y=lambda n: n % 7 - 3)), {"task": "counts"}),
    "dates as target": ("error:target 'y'", parquet(table(y=lambda n: pd.Timestamp(2024, 1, n % 2 + 1))), {}),
    "the target twice": ("note:|^$", text(table(z=lambda n: n % 2)), {}),
    "rows in two splits": ("note:identical to training rows", text(table(x=lambda n: n % 3, z=lambda n: n % 2)), {}),
    # ---- settings
    "types of nothing": ("error:types: expected columns of a client, found 'w'", GOOD, {"types": {"w": "numeric"}}),
    "split by a column that is not there": ("error:expected a column 'w', the split", GOOD, {"split": {"group": "w"}}),
    "missing of nothing": ("error:missing: expected one of the columns, found 'w'", GOOD, {"files": {"missing": {"w": [1]}}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_file_gives_a_result_a_note_or_one_message(name: str, tmp_path: Path) -> None:
    expected, content, arguments = CASES[name]
    path = tmp_path / ("north.parquet" if content[:4] == b"PAR1" and "named csv" not in name else "north.csv")
    path.write_bytes(content)
    own = {"path": str(path), **arguments.get("files", {})}
    rest = {key: value for key, value in arguments.items() if key != "files"}
    began = time.monotonic()
    try:
        data = FederatedData(Tables({"north": own}, "y", **rest), batches=2)
        data.setup()
    except FedlitError as error:
        kind, said = "error", [str(error)]
    else:
        kind, said = "note", list(data.notes)
        (client,) = data.clients
        assert bool(client.train.x.isfinite().all())
        assert all("north" in note for note in said)
    assert time.monotonic() - began < SECONDS
    import re

    if not expected:
        assert kind == "note", said
        usual = ("validation rows: what is chosen", "AUROC and", "different value in each row")
        surprising = [note for note in said if not any(own in note for own in usual)]
        assert not surprising
        return
    wanted, _, pattern = expected.partition(":")
    assert kind == wanted, said
    assert any(re.search(pattern, own, re.S) for own in (*said, "")), said
    if kind == "error":
        assert (
            "north" in said[0]
            or "tables:" in said[0]
            or "types:" in said[0]
            or "missing:" in said[0]
            or "split" in said[0]
        )


@pytest.mark.full
def test_ten_thousand_columns_take_a_minute(tmp_path: Path) -> None:
    path, began = tmp_path / "wide.csv", time.monotonic()
    path.write_bytes(wide(10_000))
    data = FederatedData(Tables({"north": str(path)}, "y"), batches=2)
    data.setup()
    assert data.specs[0].num_features == 10_000 and time.monotonic() - began < 60


PLACES = {
    "nowhere": ("{folder}/none.csv", "expected a file"),
    "a folder": ("{folder}", "found a folder"),
    "a URL of a page": ("https://example.org/north.csv", "north|sqlalchemy|SQL|database"),
    "a password": ("postgresql://me:secret@host/base", r"\$\{"),
}


@pytest.mark.parametrize("name", PLACES)
def test_each_place_gives_one_message(name: str, tmp_path: Path) -> None:
    path, message = PLACES[name]
    with pytest.raises(FedlitError, match=message) as caught:
        Tables({"north": {"path": path.format(folder=tmp_path)}}, "y").tables(0)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 3000


CELLS = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "NA", "?", "-", "yes", "no", "1,5", "1.5", "1,000", "−3", "12 mg", "€ 5", "50 %", "2024-01-31", "a", "A "]
    ),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=True).map(str),
    st.text(max_size=12),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_table_of_any_cells(tmp_path: Path, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True))
    frame = pd.DataFrame({name: data.draw(st.lists(CELLS, min_size=24, max_size=24)) for name in names})
    frame["y"] = data.draw(st.lists(st.sampled_from(["0", "1", "x", ""]), min_size=24, max_size=24))
    path = tmp_path / "any.csv"
    path.write_bytes(frame.to_csv(index=False).encode("utf-8", "surrogatepass"))
    try:
        rows = FederatedData(Tables({"north": str(path)}, "y", unlabelled="drop"), batches=1)
        rows.setup()
    except FedlitError as error:
        assert "north" in str(error)
    else:
        assert bool(rows.clients[0].train.x.isfinite().all())
        seen = rows.encoders["north"]
        again, _ = seen.read(rows.source.tables(0)[0].features.iloc[:0].reindex(columns=seen.asked))
        assert len(again) == 0
