"""How clients are built and trained, and where training is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable

from fedlit.client.build import ClientFactory, ClientOverride
from fedlit.client.hooks import check_clipping
from fedlit.errors import expect
from fedlit.train.personal import FineTune
from fedlit.train.stop import Stop


@dataclass(frozen=True)
class Training:
    """How clients are built and trained. The attributes are arguments of
    :class:`~fedlit.train.loop.FederatedLoop`.
    """

    client: ClientFactory
    optimizer: OptimizerCallable = torch.optim.AdamW
    scheduler: LRSchedulerCallable | None = None
    scheduler_interval: str = "epoch"
    gradient_clip_val: float | None = None
    accumulate: int = 1
    seed: int = 0
    overrides: Mapping[str, ClientOverride] = field(default_factory=dict)
    average: float = 0.0
    keep: str | None = None
    tune: FineTune | None = None
    stop: Stop | None = None

    def __post_init__(self) -> None:
        expect(
            self.accumulate >= 1,
            "model.accumulate",
            "at least 1 batch per optimizer step",
            self.accumulate,
        )
        is_interval = self.scheduler_interval in ("epoch", "step")
        expect(is_interval, "model.scheduler_interval", "epoch or step", self.scheduler_interval)
        check_clipping(self.gradient_clip_val, "model.gradient_clip_val")


@dataclass(frozen=True)
class Moment:
    """The current point of training.

    Attributes:
        epoch: the number of the epoch, from 0.
        batch: the number of the aligned step in the epoch, from 0.
        step: the number of aligned steps that are done.
        last: whether it is the last aligned step of the epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    last: bool = False
