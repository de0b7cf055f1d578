"""What TensorBoard shows in addition to curves over steps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from torch import Tensor

from fedlit.data.table import Split
from fedlit.names import joined
from fedlit.show.heatmap import confusion_figure
from fedlit.train.logger import (
    FederatedTensorBoardLogger,
    boards,
    log_hyperparams,
    log_scalars,
    spared_logger,
)
from fedlit.train.loop import FederatedLoop
from fedlit.train.results import Results


class Board(Callback):
    """Writes scalars and hyperparameters to all loggers, and text and images to the runs of
    :class:`~fedlit.train.logger.FederatedTensorBoardLogger`.

    Scalars: ``val/best/<score>``, the best mean of the main score so far.

    Args:
        plan: the plan as Markdown, shown in the federation's run.
        settings: the configuration's keys and values, shown as hyperparameters.

    Attributes:
        best: the best mean of the main score so far; NaN before the first one.
    """

    def __init__(
        self, plan: str | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.best = math.nan

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far."""
        self.best = state_dict["best"]

    def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write the plan and the configuration."""
        for logger in boards(trainer):
            if self.plan is not None:
                with spared_logger(logger):
                    logger.writer().add_text("plan", self.plan, trainer.global_step)
        if self.settings:
            log_hyperparams(trainer, self.settings)

    def on_validation_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write the best score so far."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        results = pl_module.results["validation"]
        step = pl_module.federation.step
        main = results.main
        mean = _mean(results)
        if mean is not None:
            # The gain is NaN if there is no earlier score to compare with.
            if not main.gain(mean, self.best) <= 0:
                self.best = mean
            best = {f"val/best/{main.name}": self.best}
            self._compare_by(trainer, {f"val/{main.name}": mean, **best}, step)
            log_scalars(trainer, best, step)

    def _compare_by(self, trainer: Trainer, values: Mapping[str, float], step: int) -> None:
        if not self.settings:
            return
        for logger in boards(trainer):
            with spared_logger(logger):
                logger.log_outcome(values, step)

    def on_fit_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw pictures of the last validation."""
        if "validation" in pl_module.federation.evaluations.scoring:
            self._draw(trainer, pl_module, "validation")

    def on_test_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw pictures of the test, and write its score for the comparison with other runs."""
        results = pl_module.results["test"]
        mean = _mean(results)
        if mean is not None:
            self._compare_by(trainer, {f"test/{results.main.name}": mean}, results.step)
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: Trainer, loop: FederatedLoop, split: Split) -> None:
        tag = "val" if split == "validation" else split
        federation = loop.federation
        scoring = federation.evaluations.scoring[split]
        step = federation.step
        loggers = boards(trainer)
        sites = dict.fromkeys(scoring.sites)
        if federation.group.size > 1:
            sites |= dict.fromkeys(federation.scores_of)
        most = max((logger.shown.pictures for logger in loggers), default=0)
        drawn = [site for site in sites if _shown_by_any(loggers, site)][:most]
        # The first of several processes draws the matrices of all of them.
        drawn = federation.group.first("what is drawn", drawn)
        matrices: dict[str, tuple[list[str], Tensor]] = {}
        if drawn:
            for site, counts in scoring.confusion().items():
                if site in drawn:
                    matrices[site] = counts
        of_processes = federation.group.gather("what is drawn of clients", matrices)
        for logger in loggers:
            for site, (labels, matrix) in joined(of_processes).items():
                figure = confusion_figure(site, labels, matrix)
                logger.draw(f"{tag}/confusion_matrix", figure, step, site)


def _shown_by_any(loggers: Sequence[FederatedTensorBoardLogger], site: str) -> bool:
    return any(logger.shows(site) for logger in loggers)


def _mean(results: Results) -> float | None:
    """Return the mean of the main score over clients; None if it is undefined."""
    mean = results.summary["mean"].get(results.main.name, math.nan)
    return mean if math.isfinite(mean) else None
