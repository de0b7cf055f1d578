"""Exported folders that somebody changed: each is refused in one message, and nothing of it runs."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fedlit.data.encoder import TableEncoder
from fedlit.data.table import ClientTable
from fedlit.errors import DataError
from fedlit.score import Scorer, load
from fedlit.score.folder import write_scorer
from fedlit.score.graph import Graph
from fedlit.score.ops import CHECKS, OPS
from fedlit.score.plain import write_json
from fedlit.score.trace import graph_of, traced


def table() -> ClientTable:
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"age": rng.normal(50, 9, 40), "town": rng.choice(["Bonn", "Köln", "Ulm"], 40)})
    target = pd.Series(np.where(features["age"] > 50, "ill", "well"), name="outcome")
    splits = {"train": np.arange(30), "validation": np.arange(30, 34), "test": np.arange(34, 40)}
    return ClientTable("north", features, target, splits, ("town",))  # type: ignore[arg-type]


TABLE = table()
NETWORK = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(1)).eval()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "north"
    folder.mkdir()
    encoder = TableEncoder("north").fit(TABLE)
    graph, tensors = graph_of(traced(NETWORK, 2, "north"), "north")
    write_json(folder / "network.json", graph | {"inputs": 2})
    save_file(tensors, folder / "parameters.safetensors")
    write_scorer(folder, Scorer("north", encoder, NETWORK, encoder.task), "graph", 2)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(written, tmp_path / "north")


def seal(folder: Path) -> None:
    """Have the checksums fit what is there, as somebody who means harm would."""
    main = json.loads((folder / "scorer.json").read_text())
    main["files"] = {name: sha256((folder / name).read_bytes()).hexdigest() for name in main["files"]}
    (folder / "scorer.json").write_text(json.dumps(main))


def refused(folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as found:
        load(folder)
    assert len(str(found.value)) < 1000 and str(folder) in str(found.value)


def test_a_folder_scores_as_its_network_does(folder: Path) -> None:
    scorer = load(folder)
    x = TableEncoder("north").fit(TABLE).transform(TABLE.features)
    with torch.no_grad():
        expected = NETWORK(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(scorer.predict_proba(TABLE.features), expected, atol=1e-7)
    assert scorer.predict(TABLE.features)["predicted"].isin(["ill", "well"]).all()
    columns = json.loads((folder / "columns.json").read_text())["columns"]
    assert [own["name"] for own in columns] == ["age", "town"] and columns[1]["categories"] == ["Bonn", "Köln", "Ulm"]


@pytest.mark.parametrize("name", ["encoder.json", "network.json", "parameters.safetensors"])
def test_a_file_that_was_changed_or_is_gone(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-7])
    refused(folder, f"{name}: expected the file as it was written.*cut short or was changed")
    seal(folder)
    refused(folder, name)
    (folder / name).unlink()
    refused(folder, f"expected the file {name}, found none")


def test_other_files_and_other_folders(folder: Path, tmp_path: Path) -> None:
    (folder / "run.py").write_text("raise SystemExit('it ran')")
    refused(folder, r"and nothing else, found run\.py")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "expected a folder that fedlit export wrote")


class Payload:
    def __reduce__(self) -> Any:
        return (open, ("it_ran", "w"))


def test_a_pickle_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for write in (lambda p: p.write_bytes(pickle.dumps(Payload())), lambda p: torch.save({"a": Payload()}, p)):
        write(folder / "parameters.safetensors")
        seal(folder)
        refused(folder, r"parameters\.safetensors: expected what fedlit export writes, found others \(SafetensorError")
    assert not (folder.parent / "it_ran").exists()


def node(op: str, *args: Any, **kwargs: Any) -> Callable[[dict[str, Any]], None]:
    """Puts a node in front of the others."""

    def change(graph: dict[str, Any]) -> None:
        graph["nodes"].insert(0, {"name": "bad", "op": op, "args": list(args), "kwargs": kwargs})

    return change


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(graph: dict[str, Any]) -> None:
        own: Any = graph
        for key in path[:-1]:
            own = own[key]
        own[path[-1]] = value

    return change


NETWORKS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "os.system": (node("os.system", "touch it_ran"), "operation of fedlit's list, found 'os.system'"),
    "builtins": (node("builtins.eval", "1"), "operation of fedlit's list, found 'builtins.eval'"),
    "from_file": (node("aten.from_file.default", "/etc/passwd"), "operation of fedlit's list, found 'aten.from_file"),
    "in place": (
        node("aten.add_.Tensor", {"value": "x"}, 1),
        "list, found 'aten.add_.Tensor'. Did you mean 'aten.add.T",
    ),
    "random": (node("aten.rand.default", [2]), "operation of fedlit's list, found 'aten.rand"),
    "not initialised": (node("aten.empty.memory_format", [2]), "operation of fedlit's list, found 'aten.empty"),
    "an op that is no text": (node(["aten.relu.default"]), "operation of fedlit's list"),  # type: ignore[arg-type]
    "huge": (
        node("aten.zeros.default", [2**31, 2**20]),
        "at most 1,073,741,824 bytes, found 9,007,199,254,740,992",
    ),
    "overflow": (
        node("aten.zeros.default", [2**62, 8]),
        r"'bad' \(aten.zeros.default\): expected arguments that fit",
    ),
    "negative": (node("aten.zeros.default", [-1]), r"'bad' \(aten.zeros.default\): expected arguments that fit"),
    "repeated": (node("aten.repeat.default", {"value": "x"}, [2**20, 2**12]), "expected at most 1,073,741,824 bytes"),
    "parts": (
        lambda g: (
            node("aten.unbind.int", {"value": "big"})(g),
            g["nodes"].insert(0, {"name": "big", "op": "aten.zeros.default", "args": [[2**20]], "kwargs": {}}),
        ),
        "expected at most 65536 parts",
    ),
    "a device": (node("aten.zeros.default", [2], device="cuda:9"), "expected no argument device"),
    "too many arguments": (node("aten.relu.default", *[{"value": "x"}] * 9), "expected arguments that fit"),
    "a keyword": (node("aten.relu.default", {"value": "x"}, out={"value": "x"}), "expected no argument out"),
    "a word": (node("aten.einsum.default", "a" * 300, [{"value": "x"}]), "expected a word, found 300 letters"),
    "nested": (node("aten.cat.default", [[[[[1]]]]]), "some nested deeper"),
    "unknown value": (node("aten.relu.default", {"value": "later"}), "expected a value that was computed before"),
    "a path": (node("aten.relu.default", {"value": "../../etc/passwd"}), "expected a value that was computed before"),
    "a file": (node("aten.relu.default", {"file": "/etc/passwd"}), "expected a value that was computed before"),
    "a dtype": (node("aten.to.dtype", {"value": "x"}, {"dtype": "complex64"}), "expected a value that was computed"),
    "an empty name": (node("aten.relu.default", {}), "expected a value that was computed before"),
    "training": (at("nodes", 1, "args", 5, value=True), "expected aten.batch_norm.default as in scoring"),
    "a name twice": (at("nodes", 1, "name", value="linear"), "each node with a name of its own, found 'linear'"),
    "the rows' name": (at("nodes", 0, "name", value="x"), "each node with a name of its own, found 'x'"),
    "another key": (at("code", value="import os"), "expected the keys format.*'code'"),
    "a node's key": (at("nodes", 0, "code", value="import os"), "expected the node's keys .*'code'"),
    "no node": (at("nodes", 0, value="import os"), "expected nodes as objects, found 'import os'"),
    "no nodes": (at("nodes", value={"a": 1}), "a list of at most 50000 nodes"),
    "format": (at("format", value=99), "expected format 1, found 99; update fedlit"),
    "no output": (at("output", value="nowhere"), "expected the name of a node as output"),
    "another output": (
        at("output", value="linear"),
        r"an output \(1, 2\) of floats for 1 rows, found \(1, 8\)",
    ),
    "another width": (at("inputs", value=3), "expected arguments that fit"),
    "a wide row": (at("inputs", value=10**12), "expected a width of rows"),
    "whole numbers": (
        lambda g: (node("aten.argmax.default", {"value": "x"})(g), g.update(output="bad")),
        r"expected an output \(1, 2\) of floats",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_are_refused(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    change, message = NETWORKS[name]
    graph = json.loads((folder / "network.json").read_text())
    change(graph)
    (folder / "network.json").write_text(json.dumps(graph))
    seal(folder)
    refused(folder, message)
    assert not (folder.parent / "it_ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('"format": 1', '"format": NaN', 1), "found: the number NaN"),
        (lambda text: text.replace('"format": 1', '"format": 1e999', 1), "found: the number 1e999"),
        (lambda text: text.replace('"format": 1', '"format": ' + "9" * 5000, 1), "a whole number of 5000 digits"),
        (lambda text: text.replace('"format": 1', '"format": 1, "format": 1', 1), "the key 'format' twice"),
        (lambda text: "[" * 100_000, "nested too deep|found: "),
        (lambda text: '{"nodes": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep"),
        (lambda text: text[: len(text) // 2], "expected plain data, found: "),
        (lambda text: "[1, 2]", "expected an object, found a list"),
        (lambda text: "", "expected plain data"),
        (lambda text: "\ud800", "expected plain data"),
    ],
)
def test_json_that_is_refused(folder: Path, change: Callable[[str], str], message: str) -> None:
    for name in ("network.json", "scorer.json", "encoder.json"):
        whole = (folder / name).read_bytes()
        text = whole.decode().replace('"scaling": "client"', '"format": 1, "scaling": "client"')  # of the encoder
        (folder / name).write_bytes(change(text).encode("utf-8", "surrogatepass"))
        if name != "scorer.json":
            seal(folder)
        refused(folder, message)
        (folder / name).write_bytes(whole)
    seal(folder)
    load(folder)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("scorer.json", at("format", value=2), "expected format 1, found 2; update fedlit"),
        ("scorer.json", at("network", value="pickle"), "found others: network 'pickle'"),
        ("scorer.json", at("code", value="import os"), "found others: code"),
        ("scorer.json", at("task", value={"name": "os.system"}), "found others"),
        ("scorer.json", at("task", "classes", value=["ill", ["a"]]), "found others"),
        ("scorer.json", at("task", "classes", value=["ill", "ill"]), "labels that differ"),
        ("scorer.json", at("task", "classes", value=["a", "b", "c"]), r"expected an output \(1, 3\)"),
        ("scorer.json", at("classes", value=[0, 5]), "places of classes"),
        ("scorer.json", at("classes", value=[]), "at least one class"),
        ("scorer.json", at("batch", value=0), "whole numbers as batch"),
        ("scorer.json", at("batch", value="1"), "whole numbers as batch"),
        ("scorer.json", at("inputs", value=5), "5 inputs"),
        ("scorer.json", at("client", value=["a"]), "names as text"),
        ("scorer.json", at("keys", value=[1]), "names as text"),
        ("scorer.json", at("files", value={"../../x": "0"}), "files: expected encoder.json"),
        ("encoder.json", at("columns", value=[]), "encoder.json: expected what fedlit export writes"),
        ("encoder.json", at("columns", "age", "moments", value=["a", "b", "c"]), "found others"),
        ("encoder.json", at("columns", "age", "kind", value="code"), "found others"),
        ("encoder.json", at("columns", "age", value=None), "found others"),
        ("encoder.json", at("features", value=["age", "age"]), "inputs, each with a name of its own"),
        ("encoder.json", at("features", value=["age", "weight"]), "found others .KeyError"),
        ("encoder.json", at("task", "name", value="os"), "found others .KeyError"),
    ],
)
def test_descriptions_that_are_refused(folder: Path, file: str, change: Any, message: str) -> None:
    data = json.loads((folder / file).read_text())
    change(data)
    (folder / file).write_text(json.dumps(data))
    if file != "scorer.json":
        seal(folder)
    refused(folder, message)


def test_tensors_that_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "parameters.safetensors")
    name = next(own for own in tensors if "weight" in own)
    for change, message in (
        ({name: tensors[name] * torch.nan}, "expected numbers in"),
        ({name: tensors[name].to(torch.complex64)}, "expected numbers in"),
        ({name: torch.zeros(3, 3)}, "expected arguments that fit"),
        ({"x": torch.zeros(1)}, "expected no tensor of the name x"),
    ):
        save_file({**tensors, **change}, folder / "parameters.safetensors")
        seal(folder)
        refused(folder, message)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}).encode()
    (folder / "parameters.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"0000")
    seal(folder)
    refused(folder, "SafetensorError")


def test_the_list_of_operations_has_none_that_changes_reads_or_draws() -> None:
    """By PyTorch's own schemas: no argument is written to, and no operation is said to be random."""
    for name in OPS:
        if name.startswith("aten.") and name != "aten.sym_size.int":
            packet, overload = name.removeprefix("aten.").split(".")
            op = getattr(getattr(torch.ops.aten, packet), overload)
            assert op is OPS[name] and not op._schema.is_mutable, name
            random = torch.Tag.nondeterministic_seeded in op.tags
            assert not random or name in CHECKS, name  # which exclude dropout
            assert not any("filename" in own.name for own in op._schema.arguments), name


def test_a_large_result_makes_the_batch_smaller() -> None:
    wide = {"name": "w", "op": "aten.repeat.default", "args": [{"value": "x"}, [1, 2**21]], "kwargs": {}}
    total = {"name": "y", "op": "aten.sum.dim_IntList", "args": [{"value": "w"}, [1], True], "kwargs": {}}
    graph = Graph({"format": 1, "inputs": 1, "nodes": [wide, total], "output": "y"}, {}, 1)
    assert graph.batch == 64  # of 8 MiB a row
    assert graph(torch.ones(1, 1)).item() == 2**21
