"""The coordinator: one Lightning module that steps all clients aligned."""

import gc
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from fedlit.client.build import ClientFactory, ClientOverride
from fedlit.data.findings import Finding
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.devices import choose_tf32
from fedlit.engine.base import Engine, EngineName
from fedlit.engine.make import make_engine
from fedlit.engine.stacked import SharedStacks, StackedEngine
from fedlit.errors import ConfigError, expect
from fedlit.exchange.exchange import Exchange
from fedlit.nn.native import ROWS_WORTH_COMPILING, Kernels, use_kernels
from fedlit.train.checkpoint_file import OptimizerNames, content_of
from fedlit.train.clients import Clients
from fedlit.train.entry import entry_of, restore_client
from fedlit.train.lightning import Modes, count_aligned_step, switch_to_evaluation
from fedlit.train.limits import check_stops, last_step, limit_of, time_is_up
from fedlit.train.logger import boards, log_scalars
from fedlit.train.manifest import Manifest, check_optimizers, check_tensors, optimizers_of
from fedlit.train.personal import Then, then_of
from fedlit.train.results import Results
from fedlit.train.start import Begun, Start
from fedlit.train.stop import Epoch, Stop
from fedlit.train.training import Moment, Training

_log = logging.getLogger(__name__)


class FederatedLoop(LightningModule):
    """Trains all clients in aligned steps: each client takes one optimizer step on one of its own
    batches.

    Lightning's Trainer sees one module with manual optimization; the clients are its children. The
    loop builds them once the data is known, seeds them, forwards hooks to them, keeps each one's
    optimizers and schedules, scores them, and logs. :class:`~fedlit.exchange.exchange.Exchange`
    determines when they exchange.

    Args:
        client: makes a client from its description: a class such as ``fedlit.FederatedClient`` with
            its arguments.
        optimizer: makes a client's optimizer from its parameters.
        scheduler: makes a client's learning-rate schedule from its optimizer.
        scheduler_interval: whether schedules advance every epoch or every aligned step.
        gradient_clip_val: limit for the norm of each client's gradient.
        accumulate: batches per optimizer step.
        engine: how clients' steps are executed: one after another (``plain``), side by side on
            threads (``threads``), or the faster of these two, which are bit-for-bit identical
            (``auto``; it steps four or more homogeneous clients as one, which agrees to float32
            tolerance). ``plain`` is the reference: it equals a hand-written loop bit for bit. The
            others also use PyTorch's fused optimizers.
        kernels: how parts of networks that have a compiled kernel are computed: by ``torch``
            operations, by ``compiled`` kernels, or by kernels if the run is long enough to pay for
            compiling them (``auto``; ``torch`` under the plain engine). They agree to float32
            tolerance.
        threads: the total number of threads; if None, as many as PyTorch would use.
        tf32: whether NVIDIA GPUs may round the inputs of float32 products to 10 binary digits
            (TensorFloat-32), which is faster. Other devices ignore it.
        seed: the run's seed.
        overrides: client's name or pattern → its own settings.
        start: a trained run that clients start from (see :class:`fedlit.train.start.Start`); random
            values if None.
        average: the decay of each client's exponential average over epochs; with it, the average is
            scored. 0 for no average. See :class:`fedlit.train.personal.Personal`, of the next two
            too.
        keep: the score on its own validation rows (``loss``, ``auroc``, …) by which each client
            keeps its best epoch; None for the last epoch. It is ``loss`` where there is an average
            or fine-tuning.
        then: what follows the federation: ``fine_tune``, or with settings ``{fine_tune: {epochs:
            25, lr: 0.001}}`` (see :class:`fedlit.train.personal.FineTune`).
        stop: ends the federation early, when a score has not improved for some epochs (see
            :class:`fedlit.train.stop.Stop`); only ``trainer`` ends it if None. What follows, such
            as fine-tuning, begins then.

    Raises:
        ConfigError: values out of range.
    """

    def __init__(
        self,
        client: ClientFactory,
        optimizer: OptimizerCallable = torch.optim.AdamW,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: str = "epoch",
        gradient_clip_val: float | None = None,
        accumulate: int = 1,
        engine: EngineName = "auto",
        kernels: Kernels = "auto",
        threads: int | None = None,
        tf32: bool = False,
        seed: int = 0,
        overrides: dict[str, ClientOverride] | None = None,
        start: Start | None = None,
        average: float = 0.0,
        keep: str | None = None,
        then: Then | Literal["fine_tune"] | None = None,
        stop: Stop | None = None,
    ) -> None:
        arguments = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        expect(threads is None or threads >= 1, "model.threads", "at least 1", threads)
        self.automatic_optimization = False
        training = Training(
            client, optimizer, scheduler, scheduler_interval, gradient_clip_val, accumulate, seed, overrides or {},
            average, keep, then_of(then), stop,
        )  # fmt: skip
        self.threads = threads
        self.tf32 = tf32
        self.seed = seed
        self.start = start
        self.engine_name: EngineName = engine
        self.kernels: Kernels = kernels
        self.federation = Clients(training)
        self.clients = nn.ModuleDict()
        self._engine: Engine | None = None
        # Both are known while there is an engine.
        self._threads_before: int
        self._reset_tf32: Callable[[], None]
        self._kernels_told = False
        self._scored = False  # whether validation rows were scored in this epoch
        self._resumed_stacks: SharedStacks | None = None
        self._resumed_optimizers: dict[str, OptimizerNames] | None = None

    # ------------------------------------------------------------------ set-up

    @property
    def results(self) -> dict[Split, Results]:
        """Maps each split to its last scores."""
        return self.federation.results

    @property
    def history(self) -> list[dict[str, float]]:
        """The values that were logged, epoch by epoch."""
        return self.federation.history

    def build(self, data: FederatedData) -> None:
        """Build the clients for the data, once."""
        federation = self.federation
        # The clients of a run that is scored have learnt already, and the checkpoint that they
        # started from may be gone.
        begun = None
        if self.start is not None and not (federation or data.learnt):
            begun = Begun(self.start)
            entry = begun.content["fedlit"]
            data.use_encoders(entry["encoders"], entry["agreement"])
        federation.build(data)
        if begun is not None:
            begun.apply(federation)
        self.clients.update(federation.clients)

    @property
    def engine(self) -> Engine:
        """The engine that executes the clients' steps. It is made when first used, with the
        checkpoint's settings if there is one.
        """
        if self._engine is None:
            self._threads_before = torch.get_num_threads()
            self._reset_tf32 = choose_tf32(self.tf32)
            self.threads = self.threads or torch.get_num_threads()
            clients = list(self.federation.clients.values())
            alone = not all(client.side_by_side for client in clients)
            name: EngineName = "plain" if alone else self.engine_name
            compiled = self.kernels == "compiled"
            scope = self.trainer.precision_plugin.train_step_context
            device = self.trainer.strategy.root_device
            self._engine = make_engine(name, len(clients), self.threads, device, scope, compiled)
            # Thousands of clients are millions of objects, and none of them becomes garbage while
            # they are trained: looking through them all takes longer than a round.
            gc.freeze()
            if isinstance(self._engine, StackedEngine):
                self._engine.on_finding = self.federation.add_finding
                self._engine.resumed = self._resumed_stacks
                self._resumed_stacks = None
        return self._engine

    def release(self) -> None:
        """Release the engine and its threads, whether a run ended or failed."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            gc.unfreeze()
            torch.set_num_threads(self._threads_before)
            self._reset_tf32()

    def configure_model(self) -> None:
        """Build the clients, whose sizes are known now, before optimizers and checkpoints need
        them.
        """
        devices = self.trainer.world_size
        expect(devices == 1, "trainer.devices", "one device", devices, "set it to 1")
        federation = self.federation
        if not federation:
            self._adopt()
        federation.device = self.trainer.strategy.root_device
        federation.scope = self.trainer.precision_plugin.train_step_context
        federation.scope_of_scoring = self.trainer.precision_plugin.val_step_context
        for client in federation.clients.values():
            client.trainer = self.trainer
        sites = set[str]()
        for client in federation.clients.values():
            sites |= {site.name for site in client.spec.sites}
        if federation.group.size > 1:
            sites |= {*federation.scores_of}
        for logger in boards(self.trainer):
            logger.clients = frozenset(sites)
        Modes.install(self.trainer)
        # Lightning's own `setup` comes before the clients exist.
        function = self.trainer.state.fn
        stage = function.value if function else ""
        self.federation.forward_hook("setup", str(stage))

    def _adopt(self) -> None:
        """Take the data and the exchange of the Trainer."""
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, FederatedData):
            raise ConfigError(
                "expected trainer.fit(loop, datamodule=FederatedData(...)), found "
                f"{type(data).__name__} as data module"
            )
        callbacks = getattr(self.trainer, "callbacks", ())
        exchanges = (callback for callback in callbacks if isinstance(callback, Exchange))
        self.federation.exchange = next(exchanges, self.federation.exchange)
        self.build(data)

    def configure_optimizers(self) -> Any:
        """Make all clients' optimizers and schedules, in two lists; each client keeps its own."""
        optimizers = self.federation.configure_optimizers(fuse=self.engine_name != "plain")
        if self._resumed_optimizers is not None:
            check_optimizers(self._resumed_optimizers, optimizers_of(self.federation))
            self._resumed_optimizers = None
        return optimizers

    def _choose_kernels(self) -> None:
        """Decide about ``auto`` by the length of the training, so that the same configuration gives
        the same bits.
        """
        if self.kernels == "auto":
            epochs = self.trainer.max_epochs
            rows = self.federation.data.rows_per_epoch * (-1 if epochs is None else epochs)
            worth = rows < 0 or rows >= ROWS_WORTH_COMPILING
            self.kernels = "compiled" if worth and self.engine_name != "plain" else "torch"

    def _use_kernels(self) -> None:
        used, reasons = use_kernels(dict(self.clients.items()), self.kernels)
        if self.kernels == "compiled" and reasons and not used:
            self.kernels = "torch"  # A checkpoint remembers which kernels were used.
        if reasons and not self._kernels_told:
            self._kernels_told = True
            for reason, names in reasons.items():
                clients = ", ".join(names[:3])
                if len(names) > 3:
                    clients += f" and {len(names) - 3} more"
                _log.warning("plain torch operations are used for %s: %s", clients, reason)

    # ------------------------------------------------------------------ training

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> None:
        """Take one aligned step; ``batch`` maps clients to their batches."""
        self.engine.run(self.federation.begin_step(batch, self._moment(batch_idx)))
        count_aligned_step(self.trainer)
        self.federation.end_step(batch, self._moment(batch_idx))

    def _moment(self, batch_idx: int) -> Moment:
        return Moment(
            self.current_epoch, batch_idx, self.trainer.global_step, self.trainer.is_last_batch
        )

    def _log(self, values: Mapping[str, float]) -> None:
        # What is undefined has no point in a curve, but callbacks that monitor it must find it.
        self.trainer.callback_metrics.update(
            {key: torch.scalar_tensor(value) for key, value in values.items()}
        )
        defined = {key: value for key, value in values.items() if math.isfinite(value)}
        log_scalars(self.trainer, defined, self.federation.step)

    # ------------------------------------------------------------------ evaluation

    def validation_step(self, batch: Mapping[str, Batch], batch_idx: int) -> None:
        """Score one batch of each site; ``batch`` maps sites to their batches."""
        self.federation.evaluations.add("validation", batch)

    def test_step(self, batch: Mapping[str, Batch], batch_idx: int) -> None:
        """Score one batch of each site; ``batch`` maps sites to their batches."""
        self.federation.evaluations.add("test", batch)

    def _finish_scoring(self, split: Split) -> None:
        federation = self.federation
        federation.evaluations.execute(self.engine.evaluate)
        values = federation.finish_scoring(split)
        for logger in boards(self.trainer):
            logger.show(federation.results[split].summary["worst_client"].values())
        self._log(values)
        self.federation.forward_hook(f"on_{split}_epoch_end")
        if split == "validation" and self.trainer.state.fn == "fit":
            federation.step_plateaus(self.trainer.callback_metrics)
            federation.personal.judge(federation, federation.results[split], self.current_epoch + 1)
            self._scored = True

    # ------------------------------------------------------------------ hooks

    def on_fit_start(self) -> None:
        """Choose kernels, fix the number of threads, and move what clients remember to the device.
        A run that was to stop when its checkpoint was written takes no further step.
        """
        check_stops(self.trainer, self.federation.ending)
        self._choose_kernels()
        self._use_kernels()
        torch.set_num_threads(self.engine.intra_op)
        self.federation.step = self.trainer.global_step
        for client in self.federation.clients.values():
            client.state = move_data_to_device(client.state, self.federation.device)
        self.federation.forward_hook("on_fit_start")
        if self.federation.ending.asked or self.federation.personal.done:
            self.trainer.should_stop = True

    def on_train_epoch_start(self) -> None:
        """Set the epoch of the loaders, which determines the order of rows."""
        for loader in self.federation.data.train_loaders.values():
            loader.epoch = self.current_epoch
        self.federation.forward_hook("on_train_epoch_start")

    def on_train_epoch_end(self) -> None:
        """Log what was recorded during the epoch, and decide what follows it."""
        self.engine.report()
        self.federation.forward_hook("on_train_epoch_end")
        self._log(self.federation.end_epoch(self.current_epoch))
        number = self.current_epoch + 1
        limit = limit_of(self.trainer, number)
        epoch = Epoch(
            number,
            self._scored,
            self.trainer.callback_metrics,
            limit,
            self.federation.exchange.open,
        )
        self._scored = False
        if self.federation.ending.end_epoch(self.federation, epoch):
            self.trainer.should_stop = True

    def on_validation_model_eval(self) -> None:
        """Set all modules to evaluation mode."""
        switch_to_evaluation(self)

    def on_test_model_eval(self) -> None:
        """Set all modules to evaluation mode."""
        switch_to_evaluation(self)

    def on_validation_epoch_start(self) -> None:
        """Begin to score."""
        if self.trainer.state.fn == "fit":
            self.federation.personal.show(self.federation)
        self._begin_scoring("validation")

    def on_validation_epoch_end(self) -> None:
        """Score, log, and step the schedules that wait for a score, all before any checkpoint of
        this epoch.
        """
        self._finish_scoring("validation")

    def on_test_epoch_start(self) -> None:
        """Begin to score."""
        self._begin_scoring("test")

    def on_test_epoch_end(self) -> None:
        """Score and log."""
        self._finish_scoring("test")

    def _begin_scoring(self, split: Split) -> None:
        self.federation.evaluations.begin(split)
        self.federation.forward_hook(f"on_{split}_epoch_start")

    @property
    def manifest(self) -> Manifest:
        """The manifest of the run: what it is trained on, and with which settings."""
        return Manifest.of(self.federation, self.engine_name, self.kernels, self.threads)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save what is not in the parameters: each client's ``state``, and what a resumed run must
        not change.
        """
        stacks = self._engine.shared if isinstance(self._engine, StackedEngine) else None
        stops = self.trainer.should_stop and not time_is_up(self.trainer)
        checkpoint["fedlit"] = entry_of(self.federation, self.manifest, stacks, stops)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state. Engine, kernels and the number of threads are those of the
        checkpoint.
        """
        content = content_of(checkpoint)
        manifest = Manifest.read(content)
        entry = content["fedlit"]
        fitting = self.trainer.state.fn == "fit"
        manifest.refuse(self.manifest, resume=fitting)
        if fitting:
            self.engine_name = manifest.engine
            self.threads = manifest.threads
            self._resumed_stacks = entry["stacks"]
            self._resumed_optimizers = entry["optimizers"]
            self.federation.personal.load_state_dict(entry["personal"], entry["records"])
        if entry["stacks"]:
            self.federation.findings = list(map(Finding.of, entry["stacks"]["findings"]))
        self.federation.ending.load_state_dict(entry["ending"])
        self.kernels = manifest.kernels
        self._use_kernels()
        self.federation.step = content["global_step"]
        for name, client in self.federation.items():
            restore_client(client, entry["clients"][name])
        check_tensors(content["state_dict"], self.state_dict())

    def teardown(self, stage: str) -> None:
        """Restore the number of threads."""
        self.release()
        self.federation.forward_hook("teardown", stage)

    def on_fit_end(self) -> None:
        """Remember how many steps were taken."""
        self.federation.step = self.trainer.global_step
        self.federation.forward_hook("on_fit_end")

    def on_train_start(self) -> None:
        """Warn about a training of one step, prepare personal parts, and forward the hook to the
        clients.
        """
        epochs = self.trainer.max_epochs
        federation = self.federation
        # In a resumed run, Lightning restores the global step after `on_fit_start`.
        federation.step = self.trainer.global_step
        takes_steps = any(client.takes_steps for client in federation.values())
        if takes_steps and epochs == 1 == federation.data.aligned_steps:
            _log.warning(
                "clients take one step in all: one batch in one epoch; set trainer.max_epochs and "
                "data.batches, which may be of a method that takes no steps"
            )
        federation.ending.start(federation, epochs)
        federation.personal.start(federation)
        federation.last_step = last_step(self.trainer, federation.ending.planned)
        counts = federation.personal.wanted or federation.ending.stop is not None
        if counts and federation.ending.epochs < self.trainer.current_epoch:
            raise ConfigError(
                "--ckpt_path: expected a checkpoint of the end of an epoch (last.ckpt), for "
                "model.average, keep, then and stop need each epoch's scores, found one that was "
                "written before its validation; take another one"
            )
        self.federation.forward_hook("on_train_start")

    def on_train_end(self) -> None:
        """Forward the hook to the clients."""
        self.federation.forward_hook("on_train_end")
