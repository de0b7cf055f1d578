"""Devices without float64: one file knows them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest
import torch

import fedlit
from fedlit.precision import double_on_cpu, in_double, widest

PACKAGE = Path(fedlit.__file__).parent
NAMES = {"float64", "double"}
MAKERS = {"empty", "eye", "full", "ones", "tensor", "zeros"}
"""Functions of torch that make a tensor on the CPU unless they are given a device."""


def test_values_survive_and_the_device_stays_if_it_can() -> None:
    numbers = torch.tensor([0.1, -3.0e38])
    for widened in (in_double(numbers), double_on_cpu(numbers)):
        assert widened.dtype == torch.float64
        assert widened.float().equal(numbers)
    assert in_double(torch.ones(2, device="meta")).device.type == "meta"
    assert [widest(torch.device(name)) for name in ("cpu", "cuda", "mps")] == [
        torch.float64,
        torch.float64,
        torch.float32,
    ]


def test_a_device_without_float64_is_left_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of a device that has no float64 is converted on the CPU, never there."""
    monkeypatch.setattr("fedlit.precision._WITHOUT_FLOAT64", frozenset({"meta"}))
    with pytest.raises(
        NotImplementedError, match="meta"
    ):  # the move, for a meta tensor has no data
        in_double(torch.ones(2, device="meta"))


def test_one_file_converts_tensors_to_float64() -> None:
    """All others call it, or make a tensor of float64 on the CPU."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "precision.py"]
    assert len(files) > 300
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in files
        for line in conversions(path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("x.double()", [1]),
        ("x.to(torch.float64)", [1]),
        ("wide = torch.double", [1]),
        ("torch.zeros(2, dtype=torch.float64)", []),
        ("torch.zeros(2, dtype=torch.float64, device=x.device)", [1]),
        ("x.new_zeros(2, dtype=torch.float64)", [1]),
        ("x.astype(np.float64)", []),
    ],
)
def test_conversions_are_found(code: str, lines: list[int]) -> None:
    assert list(conversions(code)) == lines


def conversions(code: str) -> Iterator[int]:
    """The lines that may convert a tensor on an accelerator to float64."""
    if "torch" not in code and ".double()" not in code:
        return
    nodes = list(ast.walk(ast.parse(code)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    on_cpu = {
        id(option.value)
        for call in calls
        if is_of_torch(call.func, MAKERS) and "device" not in {name.arg for name in call.keywords}
        for option in call.keywords
    }
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "double":
            yield call.lineno
    for node in nodes:
        if is_of_torch(node, NAMES) and id(node) not in on_cpu:
            yield node.lineno


def is_of_torch(node: ast.AST, names: set[str]) -> TypeGuard[ast.Attribute]:
    if not isinstance(node, ast.Attribute) or node.attr not in names:
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "torch"
