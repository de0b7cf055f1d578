"""What TensorBoard shows in addition to curves over steps: the plan, the configuration, how long epochs take, the best
score so far, and pictures of the last predictions.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, Trainer

from fedlit.data.table import Split
from fedlit.show.heatmap import confusion_figure
from fedlit.train.logger import boards, log_hyperparams, log_scalars, spared_logger
from fedlit.train.loop import FederatedLoop
from fedlit.train.results import Results

TAGS: Mapping[Split, str] = {"train": "train", "validation": "val", "test": "test"}


class Board(Callback):
    """Writes scalars and hyperparameters to all loggers, and text and images to the runs of
    :class:`~fedlit.train.logger.FederatedTensorBoardLogger`.

    Scalars: ``val/best/<score>``, the best mean of the main score so far, and ``seconds/train`` and ``seconds/val``,
    how long an epoch and its validation take (no two runs agree on them, so nothing is computed from them).

    Args:
        plan: the plan as Markdown, shown in the federation's run.
        settings: the configuration's keys and values, shown as hyperparameters.
    """

    def __init__(self, plan: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.plan, self.settings = plan, settings
        self._best = math.nan
        self._epoch_began = self._validation_began = self._validated = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far."""
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far."""
        self._best = state_dict["best"]

    def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write the plan and the configuration."""
        for logger in boards(trainer):
            if self.plan is not None:
                with spared_logger(logger):
                    logger.writer().add_text("plan", self.plan, trainer.global_step)
        if self.settings:
            log_hyperparams(trainer, self.settings)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Note the time."""
        self._epoch_began, self._validated = time.perf_counter(), 0.0

    def on_validation_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Note the time."""
        self._validation_began = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write how long validation took, and the best score so far."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        took = time.perf_counter() - self._validation_began
        self._validated += took
        results, step = pl_module.results["validation"], pl_module.federation.step
        main, mean = results.main, _mean(results)
        best = {}
        if mean is not None:
            if not main.gain(mean, self._best) <= 0:  # also where there is none to compare with
                self._best = mean
            best = {f"val/best/{main.name}": self._best}
            self._compare_by(trainer, {f"val/{main.name}": mean, **best}, step)
        log_scalars(trainer, {"seconds/val": took, **best}, step)

    def _compare_by(self, trainer: Trainer, values: Mapping[str, float], step: int) -> None:
        for logger in boards(trainer) if self.settings else ():
            with spared_logger(logger):
                logger.log_outcome(values, step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write how long the epoch took, without its validation."""
        took = time.perf_counter() - self._epoch_began - self._validated
        log_scalars(trainer, {"seconds/train": took}, pl_module.federation.step)

    def on_fit_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw pictures of the last validation."""
        if "validation" in pl_module.federation.evaluations.scoring:
            self._draw(trainer, pl_module, "validation")

    def on_test_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw pictures of the test, and write its score for the comparison with other runs."""
        results = pl_module.results["test"]
        if (mean := _mean(results)) is not None:
            self._compare_by(trainer, {f"test/{results.main.name}": mean}, results.step)
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: Trainer, loop: FederatedLoop, split: Split) -> None:
        tag, federation = TAGS[split], loop.federation
        scoring, step, loggers = federation.evaluations.scoring[split], federation.step, boards(trainer)
        sites = list(dict.fromkeys([*scoring.sites, *(federation.scores_of if federation.group.size > 1 else ())]))
        most = max((logger.shown.pictures for logger in loggers), default=0)
        shown = [site for site in sites if any(logger.shows(site) for logger in loggers)][:most]
        # of several processes the first draws what all tell
        shown = federation.group.first("what is drawn", shown)
        matrices = {site: [*found] for site, found in (scoring.confusion() if shown else {}).items() if site in shown}
        told = federation.group.gather("what is drawn of clients", matrices)
        for logger in loggers:
            for site, (labels, matrix) in (pair for one in told for pair in one.items()):
                logger.draw(f"{tag}/confusion_matrix", confusion_figure(site, labels, matrix), step, site)


def _mean(results: Results) -> float | None:
    """Return the mean of the main score over clients; None if it is undefined."""
    mean = results.summary["mean"].get(results.main.name, math.nan)
    return mean if math.isfinite(mean) else None
