"""What TensorBoard shows beside curves over steps: the plan, the configuration, how long an epoch takes, the best score
so far, and pictures of the last predictions.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer

from fedlit.data.table import Split
from fedlit.show.confusion import confusion_figure
from fedlit.show.curves import MOST_LINES, Panel, curves_figure
from fedlit.tasks.curves import Ranked, largest, precision_recall, reliability, roc
from fedlit.tasks.metrics import SiteMetrics
from fedlit.train.logger import FederatedTensorBoardLogger, boards, log_hyperparams, log_scalars, spared_logger
from fedlit.train.loop import FederatedLoop
from fedlit.train.results import Results

__all__ = ["Board"]

_log = logging.getLogger(__name__)

TAGS: Mapping[Split, str] = {"train": "train", "validation": "val", "test": "test"}
DOTS = 2000
"""Of a scatter: more are one blot, and take seconds to draw."""


class Board(Callback):
    """Writes scalars and hyperparameters to all loggers, and text and images to the runs of
    :class:`~fedlit.train.logger.FederatedTensorBoardLogger`.

    Scalars: ``val/best/<score>``, the best mean of the main score so far, and ``seconds/train`` and ``seconds/val``,
    how long an epoch and its validation take (no two runs agree on them, so nothing is computed from them).

    Args:
        plan: as Markdown, shown in the federation's run.
        settings: the configuration's keys and values, shown as hyperparameters.
    """

    def __init__(self, plan: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.plan, self.settings = plan, settings
        self._best = math.nan
        self._epoch_began = self._validation_began = self._validated = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The best score so far."""
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self._best = state_dict["best"]

    def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Plan and configuration."""
        for logger in boards(trainer):
            if self.plan is not None:
                with spared_logger(logger):
                    logger.writer().add_text("plan", self.plan, trainer.global_step)
        if self.settings:
            log_hyperparams(trainer, self.settings)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Look at the clock."""
        self._epoch_began, self._validated = time.perf_counter(), 0.0

    def on_validation_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Look at the clock."""
        self._validation_began = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """How long it took, and the best score so far."""
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
        """How long it took, without its validation."""
        took = time.perf_counter() - self._epoch_began - self._validated
        log_scalars(trainer, {"seconds/train": took}, pl_module.federation.step)

    def on_fit_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Pictures of the last validation."""
        if "validation" in pl_module.federation.evaluations.scoring:
            self._draw(trainer, pl_module, "validation")

    def on_test_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Pictures of the test, and its score beside those of other runs."""
        results = pl_module.results["test"]
        if (mean := _mean(results)) is not None:
            self._compare_by(trainer, {f"test/{results.main.name}": mean}, results.step)
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: Trainer, loop: FederatedLoop, split: Split) -> None:
        tag, federation = TAGS[split], loop.federation
        scoring, step, loggers = federation.evaluations.scoring[split], federation.step, boards(trainer)
        sites = list(dict.fromkeys([*scoring.sites, *(federation.scores_of if federation.group.size > 1 else ())]))
        shown = [site for site in sites if any(logger.shows(site) for logger in loggers)]
        most = max((logger.shown.confusion_matrices for logger in loggers), default=0)
        curves = any(logger.shown.curves for logger in loggers)
        # of several processes the first draws what all tell
        shown, most, curves = federation.group.first("what is drawn", [shown, most, curves])
        own = {
            "matrices": {
                site: [*found] for site, found in (scoring.confusion() if most else {}).items() if site in shown
            },
            "lines": {
                site: _lines(site, scoring.metrics[site]) for site in shown if curves and site in scoring.metrics
            },
        }
        told = federation.group.gather("what is drawn of clients", own)
        matrices = [(site, found) for one in told for site, found in one["matrices"].items()]
        lines = {site: found for one in told for site, found in one["lines"].items() if found}
        for logger in loggers:
            for site, (labels, matrix) in matrices[: logger.shown.confusion_matrices]:
                logger.draw(f"{tag}/confusion_matrix", confusion_figure(site, labels, matrix), step, site)
            for site, found in lines.items() if logger.shown.curves else ():
                try:
                    _write_curves(logger, site, found, tag, step)
                except Exception as error:  # no picture is worth a training
                    _log.warning("%s: no curves: %s: %s", site, type(error).__name__, error)


def _mean(results: Results) -> float | None:
    """Return the mean of the main score over clients; None if it is undefined."""
    mean = results.summary["mean"].get(results.main.name, math.nan)
    return mean if math.isfinite(mean) else None


def _lines(site: str, metrics: Any) -> dict[str, Any]:
    """What curves of a site's predictions are drawn from, as tensors: they may be drawn elsewhere."""
    if not isinstance(metrics, SiteMetrics):  # a client's own metric may have collected something else
        return {}
    try:
        ranked, numbers = metrics.ranked(), metrics.numbers()
        return {
            "ranked": {label: [torch.from_numpy(own) for own in rows] for label, rows in ranked.items()},
            "numbers": [] if numbers is None else [torch.as_tensor(own) for own in numbers],
        }
    except Exception as error:  # no picture is worth a training
        _log.warning("%s: no curves: %s: %s", site, type(error).__name__, error)
        return {}


def _write_curves(logger: FederatedTensorBoardLogger, site: str, lines: Mapping[str, Any], tag: str, step: int) -> None:
    """One picture of a site's predictions; of a classifier also the curves of TensorBoard's own tab."""
    ranked = {label: (positive.numpy(), own.numpy()) for label, (positive, own) in lines["ranked"].items()}
    if panels := list(_panels(ranked, [own.numpy() for own in lines["numbers"]])):
        logger.draw(f"{tag}/curves", curves_figure(site, panels), step, site)
    if ranked:  # one card a client: of several classes the micro-average
        positive, probability = (torch.from_numpy(np.concatenate(own)) for own in zip(*ranked.values(), strict=True))
        logger.writer(site).add_pr_curve(f"{tag}/pr", positive, probability, step)


def _panels(ranked: Ranked, numbers: Sequence[Any]) -> Iterator[Panel]:
    if drawn := largest(ranked, MOST_LINES):
        some = f", {len(drawn)} of {len(ranked)} classes" if len(drawn) < len(ranked) else ""
        own = {name: {label: line(*rows) for label, rows in drawn.items()} for name, line in _LINES.items()}
        yield Panel(f"precision by recall{some}", "recall", "precision", own["pr"], diagonal=False)
        yield Panel("ROC", "false positive rate", "true positive rate", own["roc"])
        yield Panel("calibration", "predicted probability", "share of rows", own["calibration"], marker="o")
    if numbers:
        true, found = numbers
        every = slice(None, None, max(1, -(-len(true) // DOTS)))
        some = f", {len(true[every])} of {len(true)} rows" if len(true) > DOTS else ""
        lines = {"": (true[every], found[every])}
        yield Panel(f"predicted by true{some}", "true", "predicted", lines, marker=".", joined=False, unit=False)


_LINES = {"pr": precision_recall, "roc": roc, "calibration": reliability}
