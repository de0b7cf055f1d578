"""Exported folders that somebody changed: each is refused in one message, and nothing of it
runs."""

import json
import pickle
import shutil
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tables import clinic
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import ExtraTreesClassifier

from fedlit.data.encoder import TableEncoder
from fedlit.errors import DataError, RunError
from fedlit.score import Scorer, load
from fedlit.score.arrays import ArrayFunction
from fedlit.score.as_arrays import as_arrays
from fedlit.score.folder import write
from fedlit.tasks import task_state

TABLE = clinic("age", "town")
RNG = np.random.default_rng(1)
WEIGHT = RNG.normal(size=(2, 2)).astype(np.float32)
BIAS = RNG.normal(size=2).astype(np.float32)


def network(
    weight: TensorProto | None = None, op: str = "Gemm", domain: str = "", outputs: int = 2
) -> bytes:
    """Softmax of a linear layer, as ONNX."""
    layer = helper.make_node(op, ["x", "w", "b"], ["z"], domain=domain)
    rows, made = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in ("x", "y")
    )
    weight = weight or numpy_helper.from_array(WEIGHT[:, :outputs], "w")
    tensors = [weight, numpy_helper.from_array(BIAS[:outputs], "b")]
    graph = helper.make_graph(
        [layer, helper.make_node("Softmax", ["z"], ["y"])], "g", [rows], [made], tensors
    )
    made_with = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=made_with, ir_version=9).SerializeToString()


class Linear:
    network = "onnx"

    def __call__(self, x: np.ndarray) -> np.ndarray:
        powers = np.exp(x @ WEIGHT + BIAS)
        return powers / powers.sum(1, keepdims=True)

    def write(self, folder: Path) -> None:
        (folder / "model.onnx").write_bytes(network())


def made(name: str) -> Scorer:
    encoder = TableEncoder("north").fit(TABLE)
    function: Any = Linear()
    if name == "trees":
        x = encoder.transform(TABLE.features)
        y = encoder.target(TABLE.target).numpy()
        function = ArrayFunction(
            *as_arrays(ExtraTreesClassifier(3).fit(x, y)), encoder.task.outcome, 2
        )
    return Scorer("north", encoder, function, task_state(encoder.task))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("written")
    for name in ("north", "trees"):
        write(here / name, made(name))
    return here


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(written / "north", tmp_path / "north")


@pytest.fixture
def trees(written: Path, tmp_path: Path) -> Path:
    """The same of a model of scikit-learn."""
    return shutil.copytree(written / "trees", tmp_path / "trees")


def seal(folder: Path) -> None:
    """Have the checksums fit what is there, as somebody who means harm would."""
    main = json.loads((folder / "scorer.json").read_text())
    main["files"] = {
        name: sha256((folder / name).read_bytes()).hexdigest() for name in main["files"]
    }
    (folder / "scorer.json").write_text(json.dumps(main))


def refused(folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as found:
        load(folder)
    assert len(str(found.value)) < 1000 and str(folder) in str(found.value)


def test_a_folder_scores_as_its_network_does(folder: Path, trees: Path) -> None:
    rows = TABLE.features
    write(again := trees.with_name("again"), load(trees))
    np.testing.assert_array_equal(load(again).predict_proba(rows), load(trees).predict_proba(rows))
    scorer = load(folder)
    expected = Linear()(TableEncoder("north").fit(TABLE).transform(rows))
    np.testing.assert_allclose(scorer.predict_proba(TABLE.features), expected, atol=1e-7)
    assert scorer.predict(TABLE.features)["predicted"].isin(["ill", "well"]).all()
    columns = json.loads((folder / "columns.json").read_text())["columns"]
    assert [own["name"] for own in columns] == ["age", "town"] and columns[1]["categories"] == [
        "Bonn",
        "Köln",
        "Ulm",
    ]


@pytest.mark.parametrize("name", ["encoder.json", "model.onnx", "model.json", "model.npz"])
def test_a_file_that_was_changed_or_is_gone(folder: Path, trees: Path, name: str) -> None:
    folder = folder if (folder / name).is_file() else trees
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


def saved(roots: np.ndarray) -> bytes:
    np.savez_compressed(content := BytesIO(), roots=roots)
    return content.getvalue()


def external(place: str) -> TensorProto:
    """A tensor whose numbers lie in another file."""
    tensor = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", place), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def test_contents_that_are_refused(
    folder: Path, trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickles, and networks that read other files of this machine, wherever the process runs."""
    monkeypatch.chdir(folder.parent)
    secret = folder.parent / "secret"
    pickled = pickle.dumps(Payload())
    secret.write_bytes(WEIGHT.tobytes())
    (folder / ".link").symlink_to("../secret")
    elsewhere = [
        network(external(place)) for place in (str(secret), "../secret", "secret", ".link")
    ]
    unknown = [
        network(op="Shell", domain="my.own"),
        network(op="Gem"),
        network(external("model.onnx"))[:-3],
    ]
    for path, contents in (
        (
            trees / "model.npz",
            [pickled, saved(np.array([Payload()], object)), saved(np.zeros(10**6))],
        ),
        (folder / "model.onnx", [pickled, *elsewhere, *unknown]),
    ):
        for content in contents:
            path.write_bytes(content)
            seal(path.parent)
            refused(path.parent, rf"{path.name}: expected what fedlit export writes, found others")
    assert not (folder.parent / "it_ran").exists()
    (folder / "model.onnx").write_bytes(network(outputs=1))
    seal(folder)
    with pytest.raises(RunError, match="expected predictions"):
        load(folder).predict(TABLE.features)


FORMATS = ("NaN", "2e999", "9" * 5000, '3, "format": 3')
NESTED = '{"nodes": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize("name", ["scorer.json", "encoder.json"])
def test_json_that_is_refused(folder: Path, name: str) -> None:
    whole = (folder / name).read_text()
    # of the encoder
    text = whole.replace('"scaling": "client"', '"format": 3, "scaling": "client"')
    odd = [text.replace('"format": 3', f'"format": {value}', 1) for value in FORMATS]
    for content in (*odd, NESTED, text[: len(text) // 2], "[1, 2]", "", "\ud800"):
        (folder / name).write_bytes(content.encode("utf-8", "surrogatepass"))
        if name != "scorer.json":
            seal(folder)
        refused(folder, rf"{name}: expected (plain data|an object), found")
    (folder / name).write_text(whole)
    seal(folder)
    load(folder)


HOSTILE: dict[str, list[tuple[str, Any]]] = {
    "scorer.json": [
        ("format", 1), ("network", "pickle"), ("code", "import os"), ("task", {"name": "os.system"}),
        ("task name", "os.system"), ("task classes", ["ill", ["a"]]), ("task classes", ["ill", "ill"]),
        ("classes", [0, 5]), ("classes", []), ("batch", 0), ("batch", "1"), ("inputs", 5), ("client", ["a"]),
        ("keys", [1]), ("files", {"../../x": "0"}),
    ],
    "encoder.json": [
        ("columns", []), ("columns age moments", ["a", "b", "c"]), ("columns age kind", "code"), ("columns "
            "age", None),
        ("features", ["age", "age"]), ("features", ["age", "weight"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("file", HOSTILE)
def test_descriptions_that_are_refused(folder: Path, file: str) -> None:
    whole = (folder / file).read_text()
    for place, value in HOSTILE[file]:
        data = own = json.loads(whole)
        *path, last = place.split()
        for key in path:
            own = own[key]
        own[last] = value
        (folder / file).write_text(json.dumps(data))
        if file != "scorer.json":
            seal(folder)
        refused(folder, "expected")


def test_arrays_that_are_refused(trees: Path) -> None:
    arrays = dict(np.load(trees / "model.npz"))
    for change, message in (
        ({"threshold": arrays["threshold"] * np.nan}, "expected numbers in 'threshold'"),
        ({"values": arrays["values"].astype(complex)}, "expected numbers in 'values'"),
        ({"values": np.zeros((3, 3))}, "found others"),
        ({"left": np.zeros_like(arrays["left"])}, "found others"),
        *(
            ({name: np.full_like(arrays[name], -(10**6))}, "found others")
            for name in ("roots", "feature")
        ),
        ({"classes": np.array([0, 7])}, "found others"),
    ):
        np.savez(trees / "model.npz", **{**arrays, **change})
        seal(trees)
        refused(trees, message)
    state = json.loads((trees / "model.json").read_text())
    (trees / "model.json").write_text(json.dumps(state | {"kind": "os.system"}))
    np.savez(trees / "model.npz", **arrays)
    seal(trees)
    refused(trees, "found 'os.system'")
