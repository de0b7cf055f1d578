"""Private names of Lightning are used by ``fedlit/train/lightning.py`` alone."""

import ast
from pathlib import Path

import fedlit


def test_all_private_names_stand_in_one_file() -> None:
    """Imports of underscored names from Lightning, anywhere else, would escape these tests."""
    offenders = []
    for path in Path(fedlit.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lightning"):
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                if private or any(part.startswith("_") for part in (node.module or "").split(".")):
                    offenders.append(path.name)
    assert set(offenders) == {"lightning.py"}
