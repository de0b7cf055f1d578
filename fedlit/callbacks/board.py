"""What TensorBoard shows beside curves: the plan, the configuration, confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, Trainer
from torch import Tensor

from fedlit.data.table import Split
from fedlit.logger import FederatedTensorBoardLogger
from fedlit.loop import FederatedLoop
from fedlit.plan import Plan

__all__ = ["Board", "confusion_figure"]


class Board(Callback):
    """Writes text and images to the runs of :class:`~fedlit.logger.FederatedTensorBoardLogger`.

    Args:
        plan: shown as text in the federation's run.
        settings: the configuration's keys and values, shown as hyperparameters.
        confusion_matrices: draw them for at most this many clients, at the end of training and of a test.
    """

    def __init__(
        self, plan: Plan | None = None, settings: Mapping[str, Any] | None = None, confusion_matrices: int = 32
    ) -> None:
        self.plan, self.settings, self.confusion_matrices = plan, settings, confusion_matrices

    def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Plan and configuration."""
        for logger in _boards(trainer):
            if self.plan is not None:
                logger.writer().add_text("plan", self.plan.markdown(), trainer.global_step)
            if self.settings:
                logger.log_hyperparams(self.settings)

    def on_fit_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Confusion matrices of the last validation."""
        if "validation" in pl_module.scoring:
            self._draw(trainer, pl_module, "validation")

    def on_test_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Confusion matrices of the test."""
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: Trainer, loop: FederatedLoop, split: Split) -> None:
        tag = {"validation": "val", "test": "test"}[split]
        for logger in _boards(trainer):
            drawn = {site: own for site, own in loop.scoring[split].confusion().items() if logger.shows(site)}
            for site, (labels, matrix) in list(drawn.items())[: self.confusion_matrices]:
                logger.writer(site).add_figure(
                    f"{tag}/confusion_matrix", confusion_figure(site, labels, matrix), loop.step
                )


def _boards(trainer: Trainer) -> list[FederatedTensorBoardLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, FederatedTensorBoardLogger)]


def confusion_figure(title: str, labels: list[str], matrix: Tensor) -> Any:
    """A matplotlib figure: shares of each true class (rows) by predicted class (columns), with counts.

    Args:
        title: what the matrix is of.
        labels: the classes.
        matrix: (len(labels) + 1, len(labels)) counts; the last row, labels unknown to the client, is drawn if there
            are any.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    few = len(labels) <= 20  # beyond, numbers cannot be read and take seconds to draw
    rows = [*labels, "unknown"] if int(matrix[-1].sum()) else labels
    counts = matrix[: len(rows)].cpu().numpy()
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    size = (1.6 + 0.55 * len(labels), 1.4 + 0.5 * len(rows)) if few else (9, 9)
    figure = Figure(figsize=size, layout="constrained" if few else None)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.imshow(shares, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    if few:
        axes.set_xticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 4 else 0)
        axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(title)
    for i, row in enumerate(counts if few else ()):
        for j, count in enumerate(row):
            axes.text(
                j, i, str(count), ha="center", va="center", fontsize=8, color="white" if shares[i, j] > 0.6 else "black"
            )
    return figure
