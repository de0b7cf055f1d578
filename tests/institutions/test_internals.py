"""What fedlit uses of Flower that is private to Flower stands in one file; its release is pinned."""

from __future__ import annotations

import re
from pathlib import Path

import fedlit


def test_one_file_imports_flower() -> None:
    own = Path(fedlit.__file__).parent
    flower = re.compile(r"^\s*(from|import) flwr\b", re.MULTILINE)
    using = {str(path.relative_to(own)) for path in own.rglob("*.py") if flower.search(path.read_text())}
    assert using == {"institutions/flower.py"}
