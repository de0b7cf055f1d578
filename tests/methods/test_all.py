"""What is promised of all methods: they are small, and nothing below them knows their names."""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from pathlib import Path

import fedlit
from fedlit.lazy import HOMES

PACKAGE = Path(fedlit.__file__).parent
FILES = [
    path
    for folder in (PACKAGE / "methods", PACKAGE / "exchange" / "rules")
    for path in sorted(folder.glob("*.py"))
    if path.stem != "__init__"
]
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


def test_half_of_all_methods_are_small() -> None:
    counts = {path.stem: lines_of(path) for path in FILES}
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
    homes = ("fedlit.methods", "fedlit.exchange.rules")
    names = [name for name, home in HOMES.items() if home in homes and name not in ("Mean", "Rule", "Update", "Robust")]
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
