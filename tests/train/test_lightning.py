"""The private names of Lightning that ``fedlit/train/lightning.py`` uses still do what fedlit relies on."""

import ast
from pathlib import Path

import fedlit
from fedlit.train.lightning import count_aligned_step


def test_counting_a_step_advances_the_global_step_by_one(tmp_path: Path) -> None:
    from federations import make_run

    run = make_run(tmp_path)
    run.fit(quiet=True)
    assert run.trainer is not None
    before = run.trainer.global_step
    count_aligned_step(run.trainer)
    assert run.trainer.global_step == before + 1 == 13


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
