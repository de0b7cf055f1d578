"""Heart: the real files against plain Python and scikit-learn's own splits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from fedlit.data.files import RemoteFile
from fedlit.data.sources import Heart
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

SITES = ["cleveland", "hungarian", "switzerland", "va", "sa", "faisalabad", "framingham"]
ROWS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200, "sa": 462, "faisalabad": 299}
ROWS["framingham"] = 4240


@pytest.fixture(scope="module")
def files(real_file: Callable[[RemoteFile], Path]) -> dict[str, Path]:
    return {Path(file.path).stem: real_file(file) for file in Heart.known_files()}


@pytest.fixture(scope="module")
def tables(files: dict[str, Path]) -> dict[str, ClientTable]:
    return {table.name: table for table in Heart(clients=SITES).tables(seed=8)}


def plain_rows(path: Path) -> list[list[str]]:
    return [[field.strip() for field in row.split(",")] for row in path.read_text().splitlines()]


@pytest.mark.parametrize("site", SITES)
def test_rows_targets_and_values(site: str, files: dict[str, Path], tables: dict[str, ClientTable]) -> None:
    table, rows = tables[site], plain_rows(files[site])
    if site in ("sa", "faisalabad", "framingham"):
        header, *rows = rows
    else:
        header = [*table.features.columns, "target"]
    assert len(table.features) == len(rows) == ROWS[site]
    assert table.target.tolist() == [int(float(row[-1]) > 0) for row in rows]
    assert table.positive == 1
    first = 1 if site == "sa" else 0  # sa's first column is a row number
    assert list(table.features.columns) == header[first:-1]
    assert {"sa": 1, "faisalabad": 5, "framingham": 7}.get(site, 8) == len(table.categorical)
    for position, column in enumerate(header[first:-1], start=first):
        plain = [row[position] for row in rows]
        missing = [field in ("?", "NA", "") for field in plain]
        assert table.features[column].isna().tolist() == missing
        if column == "famhist":
            assert table.features[column].tolist() == plain
        else:
            numbers = [np.nan if gone else float(field) for field, gone in zip(plain, missing, strict=True)]
            np.testing.assert_array_equal(table.features[column].to_numpy(dtype=float), numbers)


def test_splits_are_scikit_learns(files: dict[str, Path]) -> None:
    for table in Heart().tables(100):
        rest, test = train_test_split(range(ROWS[table.name]), test_size=0.33, random_state=100)
        train, validation = train_test_split(rest, test_size=0.1, random_state=100)
        found = {split: rows.tolist() for split, rows in table.splits.items()}
        assert found == {"train": train, "validation": validation, "test": test}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sa.data", "row.names,sbp\n1,2\n", r"sa\.data: expected the published file"),
        ("va.data", ",".join(["1"] * 13 + ["5"]) + "\n", r"client 'va', .*target 'num': expected labels .* found 5"),
        ("va.data", (",".join(["1"] * 14) + "\n") * 20 + ",".join(["1"] * 13 + ["?"]), r"found 1 rows without"),
        ("va.data", (",".join(["1"] * 15) + "\n") * 20, r"va\.data: expected the published file"),
    ],
)
def test_a_damaged_file(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        Heart(root=str(tmp_path), clients=[name.split(".")[0]]).tables(seed=0)


def test_arguments() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cleveland'"):
        Heart(clients=["clevland"])
    with pytest.raises(ConfigError, match=r"clients: expected a list of names .*found 'sa'"):
        Heart(clients="sa")
