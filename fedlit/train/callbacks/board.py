"""What TensorBoard shows beside curves: the plan, the configuration, confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, Trainer

from fedlit.data.table import Split
from fedlit.show.confusion import confusion_figure
from fedlit.train.logger import FederatedTensorBoardLogger
from fedlit.train.loop import FederatedLoop

__all__ = ["Board"]


class Board(Callback):
    """Writes text and images to the runs of :class:`~fedlit.train.logger.FederatedTensorBoardLogger`.

    Args:
        plan: as Markdown, shown in the federation's run.
        settings: the configuration's keys and values, shown as hyperparameters.
    """

    def __init__(self, plan: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.plan, self.settings = plan, settings

    def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Plan and configuration."""
        for logger in _boards(trainer):
            if self.plan is not None:
                logger.writer().add_text("plan", self.plan, trainer.global_step)
            if self.settings:
                logger.log_hyperparams(self.settings)

    def on_fit_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Confusion matrices of the last validation."""
        if "validation" in pl_module.federation.evaluations.scoring:
            self._draw(trainer, pl_module, "validation")

    def on_test_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Confusion matrices of the test."""
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: Trainer, loop: FederatedLoop, split: Split) -> None:
        tag = {"validation": "val", "test": "test"}[split]
        for logger in _boards(trainer):
            if not (most := logger.shown.confusion_matrices):
                continue
            matrices = loop.federation.evaluations.scoring[split].confusion()
            drawn = {site: own for site, own in matrices.items() if logger.shows(site)}
            for site, (labels, matrix) in list(drawn.items())[:most]:
                logger.writer(site).add_figure(
                    f"{tag}/confusion_matrix", confusion_figure(site, labels, matrix), loop.federation.step
                )


def _boards(trainer: Trainer) -> list[FederatedTensorBoardLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, FederatedTensorBoardLogger)]
