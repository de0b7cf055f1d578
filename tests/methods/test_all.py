"""What is promised of all methods: they are small, and nothing below them knows their names."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import statistics
import tokenize
from pathlib import Path

import yaml

import fedlit
from fedlit import methods
from fedlit.client import FederatedClient
from fedlit.exchange import rules
from fedlit.exchange.rule import Rule
from fedlit.exchange.rules import Mean
from fedlit.run.catalogue import cards, find_method
from fedlit.run.config import flatten

PACKAGE = Path(fedlit.__file__).parent
LINES = 60


def lines_of(path: Path) -> int:
    """Lines of code: without docstrings, comments, imports, ``__all__`` and empty lines."""
    text = path.read_text(encoding="utf-8")
    tree, left_out = ast.parse(text), set[int]()
    for node in ast.walk(tree):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        listed = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (
            node.targets[0].id == "__all__"
        )  # fmt: skip
        if told or listed or isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [own for own in tokenize.generate_tokens(io.StringIO(text).readline) if own.type not in skipped]
    return len({line for own in tokens for line in range(own.start[0], own.end[0] + 1)} - left_out)


def classes_of(method: str) -> set[type]:
    """The clients and rules that a method's configuration names; none where it is a pattern of names alone."""
    said = yaml.safe_load(find_method(method).read_text(encoding="utf-8"))
    paths = {str(value) for _, value in flatten(said) if str(value).startswith("fedlit.")}
    found = {getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in paths}
    return {own for own in found if issubclass(own, FederatedClient | Rule) and own not in (FederatedClient, Mean)}


def test_half_of_all_methods_are_small() -> None:
    """Also of those that are more than a pattern; a client and its rule count together, with all that is in their
    files.
    """
    files = {name: {inspect.getsourcefile(own) for own in classes_of(name)} for name in cards()}
    counts = {name: sum(lines_of(Path(str(own))) for own in paths) for name, paths in files.items() if paths}
    assert counts["scaffold"] > counts["median"] > 5
    assert statistics.median(counts.values()) <= LINES, counts


def test_lines_are_counted_without_words(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        '"""Words."""\nimport os\n\n__all__ = ["f"]\n\n\ndef f():\n    """More.\n\n    Of them.\n    """\n'
        "    # why\n    return (\n        1\n    )\n"
    )
    assert lines_of(path) == 4


def test_nothing_below_knows_a_method_by_name() -> None:
    """The loop, the engine and the exchange work with any client and any rule; only the usual mean is a default."""
    known = {*methods.__all__, *rules.__all__} & set(dir(fedlit))
    names = sorted(known - {"Clustering", "Mean", "Round", "Rule", "Update"})
    assert "FedProx" in names and "Krum" in names
    pattern = re.compile(rf"\b({'|'.join(names)})\b")
    rooms = [*(PACKAGE / "train").rglob("*.py"), *(PACKAGE / "engine").glob("*.py"), *(PACKAGE / "client").glob("*.py")]
    rooms += [*(PACKAGE / "exchange").glob("*.py")]
    found = {}
    for path in rooms:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            word = node.id if isinstance(node, ast.Name) else node.value if isinstance(node, ast.Constant) else ""
            word = node.name if isinstance(node, ast.alias) else word
            if isinstance(word, str) and id(node) not in told and pattern.search(word):
                found[f"{path.name}:{getattr(node, 'lineno', 0)}"] = word
    assert not found
