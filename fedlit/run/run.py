"""A run: a federation, its data, its exchange, and its folder. It offers in Python what the command
line does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from fedlit import yaml_text
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.errors import RunError, Told, expect
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.named import found_in
from fedlit.exchange.place import find_place
from fedlit.exchange.transport import Transport
from fedlit.names import plain
from fedlit.run.alike import check_alike
from fedlit.run.caveats import mixed_units, weak_networks
from fedlit.run.config import flatten, listed, shown
from fedlit.run.folders import (
    begin,
    check_name,
    new_folder,
    run_folder,
    to_resume,
    to_score,
    writing,
)
from fedlit.run.layers import Layer, laid
from fedlit.run.length import Length
from fedlit.run.plan import Plan, make_plan
from fedlit.run.predictions import scored_rows
from fedlit.run.scoring import ScoreSettings, supplements_of
from fedlit.run.served import epochs_of, scorers_of, use_encoders
from fedlit.run.thresholds import choose, keep, kept, state_of
from fedlit.run.trainer import check_options, make_trainer, opening, without_hints
from fedlit.session import session
from fedlit.show.shown import for_terminal, say
from fedlit.train.callbacks import Board, Checkpoints, Progress, Tables
from fedlit.train.limits import check_least
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop
from fedlit.train.manifest import Manifest, check_rule, read_checkpoint
from fedlit.train.monitor import check_monitors
from fedlit.train.results import Results, wrote
from fedlit.train.whole import CHECKPOINTS, LAST, PREVIOUS, spared

if TYPE_CHECKING:
    from fedlit.run.predictions import PredictionFiles
    from fedlit.score.scorer import Scorer
    from fedlit.train.supplement import Supplement


class Run:
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
        config_text: the resolved configuration, as YAML: written to ``config.yaml``, shown as
            hyperparameters.
        trainer: further arguments of Lightning's Trainer, such as ``max_epochs``, ``accelerator``,
            ``precision``, ``callbacks``; ``logger`` may be false, or one of Lightning's or several,
            beside TensorBoard (see :func:`fedlit.run.trainer.make_loggers`).

    Example:
        >>> from functools import partial
        >>> from fedlit.client.client import FederatedClient
        >>> from fedlit.data.sources import Bundled
        >>> from fedlit import MLP
        >>> loop = FederatedLoop(partial(FederatedClient, network=MLP), seed=8)
        >>> run = Run(loop, FederatedData(Bundled(), batches=4, seed=8), Exchange(["core"]), max_epochs=2)
        >>> run.describe().clients["wine"]["federated"]
        8320
    """

    def __init__(
        self,
        loop: FederatedLoop,
        data: FederatedData,
        exchange: Exchange | None = None,
        *,
        name: str = "fedlit",
        root: str | Path = "lightning_logs",
        checkpoints: Checkpoints | None = None,
        board: BoardSettings | None = None,
        score: ScoreSettings | None = None,
        transport: Transport | None = None,
        config_text: str | None = None,
        **trainer: Any,
    ) -> None:
        expect(0 <= loop.seed < 2**32, "seed", "a number from 0 to 2**32 - 1", loop.seed)
        expect(loop.seed == data.seed, "seed", "one for loop and data", (loop.seed, data.seed))
        check_name(name, "name")
        self.loop = loop
        self.data = data
        self.config_text = config_text
        self.settings = (
            None if config_text is None else dict(flatten(plain(yaml_text.load(config_text))))
        )
        exchange = exchange if exchange is not None else Exchange()
        self._untouched_exchange = deepcopy(exchange)
        self._take(exchange, transport or _everywhere())
        check_options(trainer, ranks=self.group.size)
        if loop.federation.ending.stop is not None:
            check_least(trainer)
        self.name = name
        self.root = Path(root).absolute()
        self.checkpoints = checkpoints if checkpoints is not None else Checkpoints()
        self.board = board if board is not None else BoardSettings()
        self.score = score if score is not None else ScoreSettings()
        self.trainer_options = trainer
        self.folder: Path | None = None
        self.trainer: Trainer | None = None

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.loop.seed

    @property
    def group(self) -> Transport:
        """The processes to which its clients are dealt."""
        return self.exchange.transport

    @property
    def exchange(self) -> Exchange:
        """The exchange of the clients."""
        return self.loop.federation.exchange

    @exchange.setter
    def exchange(self, exchange: Exchange) -> None:
        self._take(exchange, self.exchange.transport)

    def _take(self, exchange: Exchange, transport: Transport) -> None:
        exchange.transport = transport
        self.loop.federation.exchange = exchange
        self.loop.federation.settings = self.settings

    def with_fold(self, fold: int, name: str) -> Run:
        """Return the same run with another fold as its validation rows, untrained. This is much
        faster than to read its configuration again.

        Args:
            fold: the fold, see :class:`~fedlit.data.module.FederatedData`.
            name: the folder of its runs.
        """
        text = self.config_text
        if text is not None:
            layers = [Layer(yaml_text.load(text)), Layer({"data.fold": fold, "name": name})]
            text = yaml_text.dump(laid(layers))
        # they remember
        options = self.trainer_options | {
            "callbacks": deepcopy(self.trainer_options.get("callbacks"))
        }
        return Run(
            FederatedLoop(**copy(self.loop.arguments)),
            FederatedData(**{**copy(self.data.arguments), "fold": fold}),
            deepcopy(self._untouched_exchange),
            name=name,
            root=self.root,
            checkpoints=self.checkpoints,
            board=self.board,
            score=self.score,
            transport=self.exchange.transport,
            config_text=text,
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
            transport = self.exchange.transport
            self.loop = FederatedLoop(**self.loop.arguments)
            self._take(deepcopy(self._untouched_exchange), transport)
        checkpoint, folder = to_resume(self.root, self.name, ckpt_path)
        with ExitStack() as locks:
            # before the checkpoint is read: whoever writes there may be about to change it
            if folder is not None:
                self._hold(folder, locks)
            header = read_checkpoint(checkpoint, resumable=True) if checkpoint is not None else {}
            plan = self._plan()
            if checkpoint is not None:
                Manifest.read(header).refuse(self.loop.manifest, resume=True)
                check_rule(header, self.exchange)
            self.folder = self._one_folder(folder)
            if folder is None:
                self._hold(self.folder, locks)
            locks.callback(self.loop.release)
            return self._fit(plan, checkpoint, header, quiet or self.group.rank > 0)

    def _hold(self, folder: Path, held: ExitStack) -> None:
        if self.group.rank == 0:
            held.enter_context(writing(folder))

    def _one_folder(self, folder: Path | None) -> Path:
        """Return the run's folder, or a new one if None. If there are several processes, one of
        them creates it for all.
        """
        if folder is None and self.group.rank == 0:
            folder = new_folder(self.root, self.name)
        return Path(self.group.first("the folder of the run", str(folder)))

    def _fit(
        self, plan: Plan, checkpoint: Path | None, header: dict[str, Any], quiet: bool
    ) -> Results:
        assert self.folder is not None
        # Another run begins, which reports again what it cannot write.
        session().said.clear()
        step = header.get("global_step")
        step = None if step is None else step + 1
        trainer = self.trainer = make_trainer(self, self._callbacks(plan, quiet), purge_step=step)
        if (
            checkpoint is not None
            and self.group.rank == 0
            and checkpoint.parent == self.folder / CHECKPOINTS
        ):
            last = checkpoint.with_name(LAST)
            # damaged: it must not take the place of this one
            if checkpoint.name == PREVIOUS and last.is_file():
                os.replace(last, last.with_name("damaged.ckpt"))
        if not quiet:
            lines = opening(self.folder, trainer, checkpoint, header, self.group.size)
            print(for_terminal(plan), for_terminal("\n".join(lines)), sep="\n", flush=True)
        with without_hints():
            if header.get("fedlit", {}).get("personal", {}).get("done"):
                trainer.validate(
                    self.loop,
                    datamodule=self.data,
                    ckpt_path=checkpoint,
                    verbose=False,
                    weights_only=True,
                )
                return self._ended(self._results("validation", self._found_in(header), quiet))
            self._train(trainer, checkpoint)
            self._check_exchanged(trainer)
            scored = self.loop.results.get("validation")
            if (
                scored is None
                or scored.step != trainer.global_step
                or self.loop.federation.personal.done
            ):
                trainer.validate(self.loop, datamodule=self.data, verbose=False)
        return self._ended(self._results("validation", self.exchange.found, quiet))

    def _check_exchanged(self, trainer: Trainer) -> None:
        """Refuse a federation whose clients have never exchanged anything: it has no result."""
        if self.exchange.on and not self.exchange.rounds and trainer.global_step:
            raise RunError(
                f"expected a federation, found that training ended after {trainer.global_step:,} "
                "aligned steps, before the first exchange: each client was trained alone. Set "
                "exchange.every to less, or train for longer"
            )

    def _ended(self, results: Results) -> Results:
        """Return the last scores of a training with how it ended, and its best epoch's scores if
        they are others.
        """
        federation = self.loop.federation
        ending = federation.ending
        ended = ending.ended(federation.scores_of)
        if federation.personal.wanted or ending.best_epoch in (0, ending.epochs):
            return replace(results, ended=ended)
        return replace(
            results, ended=ended, best_epoch=ending.best_epoch, best_means=ending.best_means
        )

    def _results(
        self, split: Split, guarded: Mapping[str, Mapping[str, int]], quiet: bool = False
    ) -> Results:
        """Return the scores of a split with what is to be said of them. Nothing is compared with
        the simplest models if nobody reads it.
        """
        results = replace(
            self.loop.results[split],
            guarded=guarded,
            incomparable=mixed_units(spec.task for spec in self.data.specs),
            findings=tuple(self.data.findings.sentences()),
        )
        return (
            results
            if quiet or self.group.rank
            else replace(results, weak=weak_networks(self.data, results))
        )

    def _callbacks(self, plan: Plan, quiet: bool) -> list[Callback]:
        """Return the callbacks of a training, without the user's."""
        assert self.folder is not None
        callbacks: list[Callback] = [
            Board(f"```\n{plan}\n```", self.settings),
            LambdaCallback(on_train_start=self._begin),
            Tables(self.folder, self.exchange, self.board.pictures > 0),
        ]
        if not quiet and self.trainer_options.get("enable_progress_bar") is not False:
            callbacks.append(Progress())
        if self.trainer_options.get("enable_checkpointing") is not False:
            user_callbacks = check_monitors(
                listed(self.trainer_options.get("callbacks")), self.loop.federation.scores_of
            )
            checkpoint_callbacks = self.checkpoints.callbacks(
                self.folder / CHECKPOINTS, self.loop.federation.scores_of, user_callbacks
            )
            # each client keeps its best epoch: the last checkpoint has these, and there is no best
            # epoch of all
            callbacks += (
                checkpoint_callbacks[-1:]
                if self.loop.federation.personal.wanted
                else checkpoint_callbacks
            )
        return callbacks

    def _begin(self, trainer: Trainer, loop: Any) -> None:
        if self.folder is not None and self.group.rank == 0:
            begin(self.folder, self.config_text, trainer.global_step)

    def _train(self, trainer: Trainer, checkpoint: Path | None) -> None:
        try:
            trainer.fit(self.loop, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
        except SystemExit as error:  # how Lightning ends on a signal
            if getattr(trainer, "received_sigterm", False):
                raise RunError(f"the run was terminated (SIGTERM); {self._go_on()}") from error
            raise KeyboardInterrupt(self._go_on()) from error

    def _found_in(self, header: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        """Return what a checkpoint records about clients that were left out."""
        return found_in(header.get("callbacks", {}).get(self.exchange.state_key, {}))

    def _go_on(self) -> str:
        has_checkpoint = self.last_checkpoint is not None
        return (
            "continue with --ckpt_path last"
            if has_checkpoint
            else "no checkpoint had been written: start it again"
        )

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint that the next command would use, if there is one."""
        path = self.folder / CHECKPOINTS / LAST if self.folder is not None else None
        return path if path is not None and path.is_file() else None

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
        from fedlit.run.predictions import PredictionFiles

        checkpoint, header = self._find(ckpt_path, quiet, "predict")
        assert self.folder is not None
        writable = os.access(self.folder, os.W_OK)
        do = "copy it, and give --ckpt_path with the copy's checkpoint"
        expect(
            writable,
            str(self.folder),
            "a folder to write predictions to",
            Told("that it is read-only"),
            do,
        )
        self.loop.build(self.data)
        Manifest.read(header).refuse(self.loop.manifest, resume=False)
        sites = {name: rows for _, name, rows in self.data.sites(self.data.predict)}
        scorers = self._scorers(checkpoint, sites)
        frames = {
            name: scorers[name].frame(rows.row, rows.x.numpy()) for name, rows in sites.items()
        }
        folder = self.folder / "predictions" / self.data.predict
        replaced = folder.exists() and not quiet
        predictions = PredictionFiles.written(frames, folder, format)
        if replaced:
            say(f"Replaced the predictions in {folder}")
        for paths in self.group.gather(
            "files of predictions", {name: str(path) for name, path in predictions.files.items()}
        ):
            predictions.files.update({name: Path(path) for name, path in paths.items()})
        return predictions

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
        return self._scorers(checkpoint, names)

    def _scorers(self, checkpoint: Path, names: Iterable[str] | None) -> dict[str, Scorer]:
        scorers = scorers_of(self.loop, self.data, checkpoint, names)
        for client, scorer in scorers.items():
            scorer.about["precision"] = str(self.trainer_options.get("precision") or "32-true")
            state = state_of(checkpoint, scorer.about["epochs"])
            thresholds = kept(run_folder(checkpoint), state, [client], self.score.threshold)
            if client in thresholds:
                scorer.about["threshold"] = thresholds[client]
        return scorers

    def _evaluate(
        self,
        split: Literal["validation", "test"],
        ckpt_path: str | Path | None,
        quiet: bool,
        brief: bool,
    ) -> Results:
        checkpoint, header = self._find(ckpt_path, quiet, split)
        assert self.folder is not None
        log = split == "test" and os.access(self.folder, os.W_OK)
        evaluated: dict[str, Any] = {
            "datamodule": self.data,
            "ckpt_path": checkpoint,
            "verbose": False,
            "weights_only": True,
        }
        with without_hints():
            if split == "test" and self.score.threshold is not None:  # which validation rows choose
                self.trainer = make_trainer(self, [], log=False)
                self.trainer.validate(self.loop, **evaluated)
            callbacks = [Board(None, self.settings)] if log else []
            self.trainer = make_trainer(self, callbacks, log=log)
            evaluate = self.trainer.test if split == "test" else self.trainer.validate
            evaluate(self.loop, **evaluated)
        results = self._results(split, self._found_in(header))
        results = replace(
            results, supplements=self._supplements(split, results.main.name, checkpoint, header)
        )
        if self.group.rank:
            return results
        if not quiet:
            print(for_terminal(results.brief() if brief else results))
        existed = (self.folder / f"{split}.csv").exists()
        with spared(
            self.folder / f"{split}.csv",
            f"{split}.csv and {split}.json",
            go_on="the scores are printed",
        ):
            files = results.write(self.folder)
            if not quiet:
                print(for_terminal(f"\n{wrote(files, existed)}"))
        return results

    def _supplements(
        self,
        split: Literal["validation", "test"],
        main: str,
        checkpoint: Path,
        header: Mapping[str, Any],
    ) -> tuple[Supplement, ...]:
        """Return what the user asked for beside the scores, and keep the thresholds for
        predictions.
        """
        if not self.score.asked:
            return ()
        self.score.check(self.data.specs)
        chosen: dict[str, dict[str, Any]] = {}
        if self.score.threshold is not None:
            chosen = choose(self.score.threshold, scored_rows(self.loop, self.data, "validation"))
            for of_other_ranks in self.group.gather("thresholds", chosen):
                chosen |= of_other_ranks
            if self.group.rank == 0 and self.folder is not None and os.access(self.folder, os.W_OK):
                keep(self.folder, state_of(checkpoint, epochs_of(header)), chosen)
        scored = scored_rows(self.loop, self.data, split)
        return supplements_of(
            self.score, scored, chosen, self.data.source, self.seed, main, self.group
        )

    def _find(
        self, ckpt_path: str | Path | None, quiet: bool, purpose: str
    ) -> tuple[Path, dict[str, Any]]:
        """Return the checkpoint to load, and its header.

        Sets the folder to write to, and the encoders that the run was trained with.
        """
        check_alike(self, purpose, ckpt_path)
        checkpoint, folder = to_score(self.root, self.name, ckpt_path, self.folder, purpose)
        header = read_checkpoint(checkpoint, resumable=False)
        use_encoders(self.data, header)
        self.folder = self._one_folder(folder)
        if not quiet:
            say(f"Using {shown(checkpoint)}")
        return checkpoint, header


def _everywhere() -> Transport:
    """Return the transport to the clients of the processes that torchrun or srun started with this
    one; if there are none, the transport within this process.
    """
    if find_place() is not None:
        from fedlit.exchange.ranks import join

        if (ranks := join()) is not None:
            return ranks
    return Transport()
