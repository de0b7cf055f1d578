"""The private names of Lightning that ``fedlit/train/lightning.py`` uses still do what fedlit relies on."""

from __future__ import annotations

import ast
from pathlib import Path

from lightning.pytorch import Trainer

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


def test_validation_follows_the_last_batch_of_an_epoch_and_precedes_its_end() -> None:
    """The order in which Lightning calls hooks, on which exchange, schedules and checkpoints rely."""
    from lightning.pytorch.demos.boring_classes import BoringModel

    calls: list[str] = []

    class Watched(BoringModel):
        def on_train_batch_end(self, *_: object) -> None:
            calls.append("batch")

        def on_validation_epoch_end(self) -> None:
            calls.append("validation")

        def on_train_epoch_end(self) -> None:
            calls.append("epoch")

    trainer = Trainer(
        max_epochs=2,
        limit_train_batches=2,
        limit_val_batches=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Watched())
    assert calls == ["batch", "batch", "validation", "epoch"] * 2
