"""TensorBoard with one run per client and equal tags, so that clients overlay in one chart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter

__all__ = ["FEDERATION", "FederatedTensorBoardLogger"]

FEDERATION = "federation"


class FederatedTensorBoardLogger(TensorBoardLogger):
    """Writes ``<client>/<tag>`` as ``<tag>`` of the run ``version_<n>/<client>``, and any other tag to
    ``version_<n>/federation``.

    Args:
        save_dir: where all runs live.
        name: the folder of this configuration's runs.
        version: number of the run; the next free one if None.
        purge_step: when a run is resumed, drop events after this step, which the interrupted run may have written.

    Attributes:
        clients: names that count as clients; set by the loop.
    """

    def __init__(
        self,
        save_dir: str | Path,
        name: str = "fedlit",
        version: int | str | None = None,
        purge_step: int | None = None,
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)
        self.clients: frozenset[str] = frozenset()
        self.purge_step = purge_step
        self._writers: dict[str, SummaryWriter] = {}

    def writer(self, run: str = FEDERATION) -> SummaryWriter:
        """The writer of a client's run, or of the federation's."""
        if run not in self._writers:
            self._writers[run] = SummaryWriter(str(Path(self.log_dir) / run), purge_step=self.purge_step)
        return self._writers[run]

    @property
    def experiment(self) -> SummaryWriter:
        """The federation's writer (Lightning's own would open one more file at the top)."""
        return self.writer()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write scalars; see the class."""
        for key, value in metrics.items():
            run, _, tag = key.partition("/")
            if run in self.clients:
                self.writer(run).add_scalar(tag, value, step)
            else:
                self.writer().add_scalar(key, value, step)

    def log_hyperparams(self, params: Any, metrics: dict[str, Any] | None = None, step: int | None = None) -> None:
        """Write hyperparameters to the federation's run, where TensorBoard's HParams tab finds them."""
        from torch.utils.tensorboard.summary import hparams

        flat = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in dict(params).items()
        }
        writer = self.writer().file_writer
        assert writer is not None
        for summary in hparams(flat, metrics or {}):
            writer.add_summary(summary)

    def save(self) -> None:
        """Flush all runs."""
        for writer in self._writers.values():
            writer.flush()

    def finalize(self, status: str) -> None:
        """Close all runs; a later write opens its run again."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
