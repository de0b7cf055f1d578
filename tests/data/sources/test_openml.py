"""OpenML, by answers that were recorded: the real ``fetch_openml`` reads them from its cache."""

import gzip
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from openml_answers import described, path_of, recorded
from sklearn import datasets
from sklearn.model_selection import train_test_split

from fedlit import OpenML
from fedlit.data.sources.base import check_tables
from fedlit.errors import ConfigError, DataError

IRIS = 61
CPU = 561
TITANIC = 40945
MICE = 40966
EMOTIONS = 40589
REVIEWS = 42074
GLASS = 40675
SPARSE = 292

# What scikit-learn warns of before fedlit says what to do.
pytestmark = pytest.mark.filterwarnings(
    "ignore:A network error|Invalid cache|Version .* is inactive"
)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy on a port that nobody listens to, so that it is the same with and without a
    network."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")


def test_values_labels_and_splits_of_iris_by_id_and_by_name(tmp_path: Path, cache: Path) -> None:
    root = recorded(tmp_path, IRIS)
    with pytest.warns(UserWarning, match="Multiple active versions"):
        (oldest,) = OpenML("Iris", root=str(root)).tables(seed=3)
    recorded(cache, IRIS)  # the usual cache
    described(cache, IRIS, name="all")  # a name that no client can have
    bunch = datasets.load_iris()
    expected = bunch.data.copy()
    # scikit-learn's copy follows R's, OpenML's is UCI's, which is known to differ in these two
    # flowers.
    expected[34] = [4.9, 3.1, 1.5, 0.1]
    expected[37] = [4.9, 3.1, 1.5, 0.1]
    _, test = train_test_split(range(150), test_size=0.2, random_state=3)
    sources = (OpenML("61", root=root), OpenML("iris", 1, root=root), OpenML(IRIS))
    tables = [oldest, *(source.tables(seed=3)[0] for source in sources)]
    assert [table.name for table in tables] == ["iris"] * 3 + ["openml-61"]
    for table in tables:
        assert (table.target.name, table.categorical) == ("class", ())
        np.testing.assert_array_equal(table.features.to_numpy(), expected)
        assert table.target.tolist() == [
            f"Iris-{bunch.target_names[label]}" for label in bunch.target
        ]
        assert table.splits["test"].tolist() == test


def test_categories_text_and_missing_values(tmp_path: Path) -> None:
    (table,) = check_tables(OpenML(TITANIC, root=recorded(tmp_path, TITANIC)).tables(seed=0))
    assert table.name == "titanic"
    assert table.categorical == ("name", "sex", "ticket", "cabin", "embarked", "boat", "home.dest")
    # As published with the data: 1309 passengers, 500 survivors, 263 of unknown age, 2 without a
    # port.
    assert table.target.value_counts().to_dict() == {0: 809, 1: 500}
    assert table.target.dtype == np.int64
    missing = table.features.isna().sum()
    assert (len(table.features), missing["age"], missing["embarked"], missing["sex"]) == (
        1309,
        263,
        2,
        0,
    )
    assert table.features[["sex", "age", "fare"]].iloc[0].tolist() == ["female", 29.0, 211.3375]


def test_row_identifiers_and_ignored_columns_are_left_out(tmp_path: Path) -> None:
    (table,) = OpenML("MiceProtein", root=recorded(tmp_path, MICE)).tables(seed=0)
    assert table.features.shape == (7, 77)
    assert not {"MouseID", "Genotype", "Treatment", "Behavior", "class"} & set(table.features)


def test_whole_numbers_are_classes_and_many_numbers_a_target(tmp_path: Path) -> None:
    (table,) = OpenML(GLASS, root=recorded(tmp_path, GLASS)).tables(seed=0)
    assert (table.features.shape, sorted(set(table.target)), table.categorical) == (
        (163, 9),
        [0, 1],
        (),
    )
    root = recorded(tmp_path, CPU)
    (cpu,) = OpenML("cpu", 1, root=root, task="classification").tables(seed=0)
    assert cpu.target.dtype == np.int64 and cpu.categorical == ("vendor",)
    (cpu,) = OpenML("cpu", 1, root=root, task={"name": "regression", "loss": "huber"}).tables(
        seed=0
    )
    assert cpu.task == {"name": "regression", "loss": "huber"}


@pytest.mark.parametrize(
    ("data_id", "arguments", "error", "message"),
    [
        (IRIS, {"target": "klass"}, ConfigError, "target: .*Did you mean 'class'"),
        (
            IRIS,
            {"target": "petalwidth"},
            DataError,
            "expected class labels, found numbers such as 0.2",
        ),
        (REVIEWS, {}, ConfigError, "target: expected one"),
        (EMOTIONS, {}, ConfigError, "target: .*amazed"),
        (SPARSE, {}, DataError, "data set 292.*Sparse"),
        (CPU, {"task": {"gpu": "regression"}}, ConfigError, "one of the clients cpu"),
    ],
)
def test_data_sets_that_do_not_fit(
    tmp_path: Path, data_id: int, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    root = recorded(tmp_path, data_id)
    with pytest.raises(error, match=message):
        OpenML(data_id, root=root, **arguments).tables(seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("dataset", ["iris", IRIS])
def test_a_silent_network_is_given_up_in_five_seconds(
    dataset: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{silent.getsockname()[1]}")
        begin = time.monotonic()
        with pytest.raises(DataError, match=r"https://www\.openml\.org"):
            OpenML(dataset, root=tmp_path).tables(seed=0)
        assert time.monotonic() - begin < 5


def test_without_a_network(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data set 'iris', version 1: expected") as caught:
        OpenML("iris", 1, root=tmp_path).tables(seed=0)
    assert str(tmp_path / "openml") in str(caught.value)
    root = recorded(tmp_path, IRIS)
    path_of(root, described(root, IRIS)["url"]).unlink()
    for damage in (None, gzip.compress(b"@data" * 99)[:20]):
        if damage is not None:
            path_of(root, described(root, IRIS)["url"]).write_bytes(damage)
        with pytest.raises(DataError, match=r"data set 61.*: expected"):
            OpenML(IRIS, root=root).tables(seed=0)
