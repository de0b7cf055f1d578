"""What is promised of all methods: they are small, and nothing below them knows their names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fedlit
from fedlit import methods
from fedlit.exchange import rules

PACKAGE = Path(fedlit.__file__).parent


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
