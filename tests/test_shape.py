"""The rules of `benchmarks/shape.py`: each finds its case, and nothing else."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def shape() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "shape.py"
    spec = importlib.util.spec_from_file_location("shape_of_code", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "broken"),
    [
        ("a, b = x, f(y)", ["packed assignment"]),
        ("a, b = b, a", []),
        ("a, b = f(x)", []),
        ("[x for y in z for x in y]", ["nested comprehension"]),
        ("{x: [y for y in x] for x in z}", ["nested comprehension"]),
        ("[x for x in z if x]", []),
        ("a if b else c if d else e", ["nested conditional"]),
        ("f(a, b, c if d else e)", ["conditional argument"]),
        ("f(a, key=c if d else e)", []),
        ("text = 'a' * (b > c)", ["text by condition"]),
        ("row = [a] * bool(b)", ["text by condition"]),
        ("line = '-' * width", []),
        ("own = f(x)", ["generic name"]),
        ("weights = own", []),
    ],
)
def test_each_rule_finds_its_case_alone(shape: ModuleType, code: str, broken: list[str]) -> None:
    assert [breach.rule for breach in shape.breaches(ast.parse(code))] == broken


def test_breaking_a_line_changes_no_figure_but_lines(shape: ModuleType) -> None:
    short = shape.Shape()
    short.add('"""Doc."""\nx = f(a, b)  # why\n')
    long = shape.Shape()
    long.add('"""Doc."""\nx = f(\n    a,\n    b\n)\n')
    assert (short.lines, long.lines) == (1, 4)
    assert short.tokens == long.tokens == 8
    assert short.counts == long.counts


def test_rewritten_rooms_keep_the_rules(shape: ModuleType) -> None:
    assert shape.check(shape.LIBRARY) == []


def test_names_of_tests_have_at_most_60_characters(shape: ModuleType, tmp_path: Path) -> None:
    assert shape.long_test_names(shape.TESTS) == []
    folder = tmp_path / "tests"
    folder.mkdir()
    names = [f"test_{'a' * 55}", f"test_{'b' * 56}", "c" * 90]
    (folder / "test_it.py").write_text("\n".join(f"def {name}(): ..." for name in names))
    (line,) = shape.long_test_names(folder)
    assert line.startswith("tests/test_it.py:2: ") and "61" in line
