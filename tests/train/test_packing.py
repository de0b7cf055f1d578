"""A checkpoint holds one tensor for all that are of one form, and comes back as it was."""

import io
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from federations import ALIKE, Dry, make_run

from fedlit.client.client import FederatedClient
from fedlit.train.packing import Constant, packed, unpacked

CONTENT: dict[str, Any] = {
    "epoch": 3,
    "rates": {0: 0.1, 1: math.inf, (2, "x"): -0.0},
    "names": ("north", None, True, ["müller"]),
    "like a tag": {"~tensor": [0, 0]},
    "weights": {"a": torch.randn(3, 2), "b": torch.randn(3, 2).bfloat16(), "c": torch.tensor(5)},
    "turned": torch.randn(2, 3).T,
    "empty": torch.zeros(0, 4),
}


def text_of(value: Any) -> str:
    """Return everything about plain data and tensors as a text, to the last bit."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.double().flatten().tolist()}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {text_of(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(text_of, value))})"
    return repr(value)


def test_content_comes_back_as_it_was() -> None:
    torch.save(packed(CONTENT), file := io.BytesIO())
    file.seek(0)
    assert text_of(unpacked(torch.load(file, weights_only=True))) == text_of(CONTENT)


def test_content_that_is_not_packed_stays_as_it_is() -> None:
    assert text_of(unpacked(CONTENT)) == text_of(CONTENT)


def test_clients_of_one_form_add_no_objects(tmp_path: Path) -> None:
    numbers = {}
    for clients in (ALIKE[:2], ALIKE):
        loop = {"client": partial(FederatedClient, network=Dry)}
        run = make_run(tmp_path / str(len(clients)), clients=clients, loop=loop, epochs=1)
        run.fit(quiet=True)
        assert run.folder is not None
        content = torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)
        numbers[len(clients)] = (len(content["stacks"]), content["rest"])
        assert len(content["packed"]) > 1000
    # Another client's predictions for its rows may have a form of their own, its tensors have not.
    assert numbers[4][0] <= numbers[2][0] + 2
    assert numbers[4][1] == []


def bytes_of(content: dict[str, Any]) -> bytes:
    return bytes(packed(content)["packed"].tolist())


def test_constant_parts_are_made_once_and_packed_as_any_part() -> None:
    made = []

    def part() -> dict[Any, Any]:
        made.append(1)
        return {"bins": (0.5, [1.5, "\\\\1"]), "text": '{"~constant": 0}', 3: None, "~map": [2]}

    content = {"~constant": 7, "text": '{"~constant": 0}', "of": {"a": part(), "b": part()}}
    parts = {"a": Constant(part), "b": Constant(part)}
    with_constants = {**content, "of": parts}
    made.clear()
    for _ in range(3):
        assert bytes_of(with_constants) == bytes_of(content)
    assert len(made) == 2
    assert unpacked(packed(with_constants)) == content
    assert parts == content["of"]


def test_constant_parts_may_hold_tensors() -> None:
    content = {"w": torch.ones(2), "part": Constant(lambda: {"w": torch.zeros(2)})}
    assert unpacked(packed(content))["part"]["w"].tolist() == [0.0, 0.0]


def test_constant_parts_can_be_saved_unpacked(tmp_path: Path) -> None:
    torch.save({"part": Constant(lambda: {"bins": (0.5, 1.5)})}, tmp_path / "file.pt")
    assert torch.load(tmp_path / "file.pt", weights_only=True) == {"part": {"bins": (0.5, 1.5)}}
