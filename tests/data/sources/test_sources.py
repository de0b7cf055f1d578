"""What every source has in common: lazy imports, the checks that each table passes, settings that are refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data import sources
from fedlit.data.sources import Covertype, Heart, HumanActivity, OpenML, Populations, Reads
from fedlit.data.sources.activity import ACTIVITIES
from fedlit.data.sources.base import check_tables
from fedlit.data.table import ClientTable, Split
from fedlit.errors import ConfigError, DataError, FedlitError


def splits(train: int, validation: np.ndarray, test: int, end: int = 10) -> dict[Split, np.ndarray]:
    return {"train": np.arange(train), "validation": validation, "test": np.arange(test, end)}


def table(**changes: object) -> ClientTable:
    good = ClientTable(
        name="north",
        features=pd.DataFrame({"x": np.arange(10.0), "code": list("ababababab")}),
        target=pd.Series([0, 1] * 5, name="y"),
        splits=splits(6, np.arange(6, 8), 8),
        categorical=("code",),
    )
    return dataclasses.replace(good, **changes)  # type: ignore[arg-type]


INFINITE = pd.DataFrame({"x": [np.inf, -np.inf, np.nan, *range(7)], "code": list("ababababab")})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Federation"}, "this name is taken"),
        ({"name": "a b"}, "client 'a b': expected a name"),
        ({"categorical": ("cod",)}, "names the column 'cod'.* Did you mean 'code'"),
        ({"categorical": ()}, "column 'code': expected numbers, found values of type"),
        ({"features": pd.DataFrame(index=range(10)), "categorical": ()}, "expected columns"),
        ({"features": INFINITE}, r"client 'north', column 'x': .*found 2 infinite values"),
        ({"target": pd.Series([0, 1] * 4)}, "10 rows of features and 8 labels"),
        ({"target": pd.Series([0, None] * 5, name="y")}, "target 'y': expected a label in every row, found 5 rows"),
        ({"splits": {"train": np.arange(10)}}, "expected the splits"),
        ({"splits": splits(8, np.arange(0), 8)}, "found none in validation"),
        ({"splits": splits(8, np.arange(7, 9), 8)}, "found 2 rows in more than one"),
        ({"splits": splits(8, np.arange(8, 9), 9, 12)}, "the test split names rows that the table does not have"),
    ],
)
def test_a_bad_table_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_tables([table(**changes)])


def test_a_good_table_passes_unchanged_and_two_of_one_name_do_not() -> None:
    good = table()
    assert check_tables([good])[0] is good
    with pytest.raises(DataError, match="at least one client"):
        check_tables([])
    with pytest.raises(ConfigError, match="2 clients have this name"):
        check_tables([good, table()])


SETTINGS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (Covertype, {"clients": ["neota", "neota"]}, "clients: .*each once, found .'neota', 'neota'"),
    (Covertype, {"columns": "all"}, "columns: .*'all'"),
    (Covertype, {"positive": [8]}, "positive: "),
    (Heart, {"clients": ["clevland"]}, "Did you mean 'cleveland'"),
    (Heart, {"clients": "sa"}, r"clients: expected a list of names .*found 'sa'"),
    (HumanActivity, {"positive": ["SLEEPING"]}, "positive: expected"),
    (HumanActivity, {"positive": []}, "positive: expected"),
    (HumanActivity, {"positive": list(ACTIVITIES)}, "positive: expected"),
    (HumanActivity, {"positive": "SITTING"}, "positive: expected"),
    (OpenML, {"dataset": 61, "version": 1}, "version: expected"),
    (OpenML, {"dataset": "iris", "version": 0}, "version: expected a whole number"),
    (OpenML, {"dataset": True}, "dataset: expected"),
    (OpenML, {"dataset": "../iris"}, "dataset: expected"),
    (Populations, {"populations": 0}, "populations: expected at least 1, found 0"),
    (Populations, {"reference": 20}, "reference: expected at least 150, found 20"),
    (Populations, {"divergence": 0.0}, "divergence: expected a number above 0"),
    (Populations, {"errors": 1.5}, r"errors: expected a share in \[0, 1\], found 1.5"),
    (Populations, {"flipped": [5]}, "flipped: expected numbers from 1 to 4"),
    (Reads, {"files": {"north": "a.fa"}, "length": 0}, "length: expected"),
    (Reads, {"files": "none/*", "length": 4}, "reads: files: expected"),
]


@pytest.mark.parametrize(("source", "settings", "message"), SETTINGS, ids=str)
def test_settings_that_cannot_be_meant_are_refused(source: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedlitError, match=message):
        source(**settings).tables(0)


def test_registry_names_every_source() -> None:
    assert {name: sources.source_class(name).name for name in sources.SOURCES} == {n: n for n in sources.SOURCES}
    assert {path.rpartition(".")[2] for path in sources.SOURCES.values()} <= set(sources.__all__)
    for name in sources.__all__:
        assert getattr(sources, name) is not None
    with pytest.raises(AttributeError, match="Nothing"):
        sources.Nothing  # noqa: B018


def test_importing_and_building_sources_is_light() -> None:
    program = (
        "import sys\n"
        "from fedlit.data.sources import Bundled, Covertype, Heart, OpenML, Tables\n"
        "Bundled(), Covertype(), Heart(), OpenML(61), Tables(files={'a': 'a.csv'}, target='y')\n"
        "print(sorted({'torch', 'pandas', 'sklearn', 'pooch'} & set(sys.modules)))"
    )
    checkout = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=checkout, check=True)
    assert done.stdout.strip() == "[]"
