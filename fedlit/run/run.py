"""A run: a federation, its data, its exchange, and its folder. It offers in Python what the command
line does.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from copy import copy, deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.data.module import FederatedData
from fedlit.run.alike import check_alike
from fedlit.run.assembly import Assembly
from fedlit.run.config import shown
from fedlit.run.evaluate import ScoredSplit, evaluate
from fedlit.run.fit import fit
from fedlit.run.folders import to_resume, to_score, writing
from fedlit.run.length import Length
from fedlit.run.plan import Plan
from fedlit.run.planning import make_plan
from fedlit.run.predict import predict, scorers
from fedlit.run.served import use_encoders
from fedlit.show.shown import say
from fedlit.train.checkpoint_file import CheckpointContent
from fedlit.train.loop import FederatedLoop
from fedlit.train.manifest import Manifest, check_rule, read_checkpoint
from fedlit.train.results import Results

if TYPE_CHECKING:
    from fedlit.run.predictions import PredictionFiles
    from fedlit.score.scorer import Scorer


class Run(Assembly):
    """Trains, scores and predicts with one federation.

    Everything that a run writes goes to ``<root>/<name>/version_<n>/``: the resolved configuration,
    TensorBoard events (one run per client), ``checkpoints/``, ``test.csv``, ``test.json``,
    ``predictions/``. ``fit`` makes a new folder unless it resumes; the other commands use the
    newest run of that name, and say which.

    Args:
        loop: the clients, and how their steps are executed.
        data: their tables.
        exchange: what clients exchange; nothing if None.
        name: the folder of this configuration's runs.
        root: the folder of all runs.
        checkpoints: which checkpoints are kept.
        board: which clients are shown in TensorBoard.
        score: what is scored beside the usual scores.
        transport: the way to clients that are elsewhere; if None, to those of the other processes
            that torchrun or srun started with this one, if any.
        config: the configuration with all its keys: written to ``config.yaml``, shown as
            hyperparameters.
        trainer: further arguments of Lightning's Trainer, such as ``max_epochs``, ``accelerator``,
            ``precision``, ``callbacks``; ``logger`` may be false, or one of Lightning's or several,
            beside TensorBoard (see :func:`fedlit.run.trainer.make_loggers`).

    Example:
        >>> from functools import partial
        >>> from fedlit.client.client import FederatedClient
        >>> from fedlit.data.sources import Bundled
        >>> from fedlit.exchange.exchange import Exchange
        >>> from fedlit import MLP
        >>> loop = FederatedLoop(partial(FederatedClient, network=MLP), seed=8)
        >>> run = Run(loop, FederatedData(Bundled(), batches=4, seed=8), Exchange(["core"]), max_epochs=2)
        >>> run.describe().clients["wine"]["federated"]
        8320
    """

    def with_fold(self, fold: int, name: str) -> Run:
        """Return the same run with another fold as its validation rows, untrained. This is much
        faster than to read its configuration again.

        Args:
            fold: the fold, see :class:`~fedlit.data.module.FederatedData`.
            name: the folder of its runs.
        """
        config = self.config
        if config is not None:
            config = config.changed({"data.fold": fold, "name": name})
        # Callbacks remember the runs that they were in.
        callbacks = deepcopy(self.trainer_options.get("callbacks"))
        options = self.trainer_options | {"callbacks": callbacks}
        return Run(
            FederatedLoop(**copy(self.loop.arguments)),
            FederatedData(**{**copy(self.data.arguments), "fold": fold}),
            deepcopy(self.untrained_exchange),
            name=name,
            root=self.root,
            checkpoints=self.checkpoints,
            board=self.board,
            score=self.score,
            transport=self.exchange.transport,
            config=config,
            **options,
        )

    def describe(self) -> Plan:
        """Return the plan. This reads the data and builds the clients, but trains nothing."""
        check_alike(self, "describe")
        return self._plan()

    def _plan(self) -> Plan:
        self.loop.build(self.data)
        self.score.check(self.data.specs)
        return make_plan(
            self.loop.federation, Length.of(self.trainer_options, self.data.aligned_steps)
        )

    def fit(self, ckpt_path: str | Path | None = None, *, quiet: bool = False) -> Results:
        """Train the clients. If the run was trained or scored before, it begins with new clients.

        Args:
            ckpt_path: None for a new run; ``"last"`` to continue the newest run of this name in its
                folder; or a checkpoint's path, whose folder is continued if it is a run's.
            quiet: print nothing but errors.

        Returns:
            The scores on the validation split after the last epoch.

        Raises:
            ConfigError: the configuration cannot be run.
            RunError: training had to stop.
        """
        check_alike(self, "fit", ckpt_path)
        if self.trainer is not None:
            self.renew()
        checkpoint, folder = to_resume(self.root, self.name, ckpt_path)
        with ExitStack() as locks:
            # The folder is locked before its checkpoint is read, because another process that
            # writes there may be about to replace it.
            if folder is not None:
                self._lock(folder, locks)
            saved: CheckpointContent = {}
            if checkpoint is not None:
                saved = read_checkpoint(checkpoint, resumable=True)
            plan = self._plan()
            if checkpoint is not None:
                Manifest.read(saved).refuse(self.loop.manifest, resume=True)
                check_rule(saved, self.exchange)
            self.folder = self.share_folder(folder)
            if folder is None:
                self._lock(self.folder, locks)
            locks.callback(self.loop.release)
            return fit(self, plan, checkpoint, saved, quiet or self.group.rank > 0)

    def _lock(self, folder: Path, locks: ExitStack) -> None:
        if self.group.rank == 0:
            locks.enter_context(writing(folder))

    def validate(
        self, ckpt_path: str | Path | None = None, *, quiet: bool = False, brief: bool = False
    ) -> Results:
        """Score the validation split; see :meth:`test`."""
        return self._evaluate("validation", ckpt_path, quiet, brief)

    def test(
        self, ckpt_path: str | Path | None = None, *, quiet: bool = False, brief: bool = False
    ) -> Results:
        """Score the test split, and write ``test.csv`` and ``test.json`` to the run's folder.

        Args:
            ckpt_path: a checkpoint, ``"best"`` or ``"last"``; the last one of this run, or of the
                newest run of this name, if None.
            quiet: print nothing but errors.
            brief: print the main score, loss and accuracy only. The files contain all scores.

        Raises:
            ConfigError: there is no such checkpoint.
        """
        return self._evaluate("test", ckpt_path, quiet, brief)

    def predict(
        self, ckpt_path: str | Path | None = None, *, format: str = "csv", quiet: bool = False
    ) -> PredictionFiles:
        """Predict each client's rows, and write one file per client: row number in the source,
        probability of each class, predicted label or number.

        Args:
            ckpt_path: see :meth:`test`.
            format: ``csv`` or ``parquet``.
            quiet: print nothing but errors.

        Returns:
            client → what its file holds, as a frame; ``.files`` has client → file, also of other
            processes' clients.
        """
        checkpoint, saved = self._find(ckpt_path, quiet, "predict")
        return predict(self, checkpoint, saved, format, quiet)

    def client(self, name: str, ckpt_path: str | Path | None = None) -> Scorer:
        """Return one client, to score rows without labels: ``run.client("north").predict(frame)``.

        Args:
            name: the name of the client.
            ckpt_path: see :meth:`test`.
        """
        return self.scorers([name], ckpt_path)[name]

    def scorers(
        self, names: Iterable[str] | None = None, ckpt_path: str | Path | None = None
    ) -> dict[str, Scorer]:
        """Return several clients, see :meth:`client`; all if ``names`` is None. The checkpoint is
        read only once.
        """
        checkpoint, _ = to_score(self.root, self.name, ckpt_path, self.folder, "client")
        return scorers(self, checkpoint, names)

    def _evaluate(
        self, split: ScoredSplit, ckpt_path: str | Path | None, quiet: bool, brief: bool
    ) -> Results:
        checkpoint, saved = self._find(ckpt_path, quiet, split)
        return evaluate(self, split, checkpoint, saved, quiet=quiet, brief=brief)

    def _find(
        self, ckpt_path: str | Path | None, quiet: bool, purpose: str
    ) -> tuple[Path, CheckpointContent]:
        """Return the checkpoint to load, and its content without tensors.

        Sets the folder to write to, and the encoders that the run was trained with.
        """
        check_alike(self, purpose, ckpt_path)
        checkpoint, folder = to_score(self.root, self.name, ckpt_path, self.folder, purpose)
        saved = read_checkpoint(checkpoint, resumable=False)
        use_encoders(self.data, saved)
        self.folder = self.share_folder(folder)
        if not quiet:
            say(f"Using {shown(checkpoint)}")
        return checkpoint, saved
