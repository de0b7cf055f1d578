"""The coordinator: one Lightning module that steps all clients aligned."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from fedlit.client.build import ClientFactory, ClientOverride, build_client, build_clients, find_override
from fedlit.client.client import FederatedClient, call_hook, overrides
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.engine import ClientStep, Engine, EngineName, StackedEngine, make_engine
from fedlit.engine.kernels import ROWS_WORTH_COMPILING, Kernels, fuse_optimizer, use_kernels
from fedlit.errors import ConfigError, FedlitError, RunError, did_you_mean
from fedlit.run.manifest import fixed_settings, refuse_other_runs
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.spec import ClientSpec
from fedlit.train.lightning import count_aligned_step, parse_optimizers
from fedlit.train.logger import FederatedTensorBoardLogger
from fedlit.train.results import Results
from fedlit.train.scoring import Evaluations, Scoring

__all__ = ["FederatedLoop"]

_log = logging.getLogger(__name__)


class FederatedLoop(LightningModule):
    """Steps all clients aligned: one optimizer step of every client on one batch of its own.

    Lightning's Trainer sees one module with manual optimization; the clients are its children. The loop builds them
    once the data is known, seeds them, forwards hooks to them, keeps each one's optimizers and schedules, scores
    them, and logs. When they exchange is the matter of :class:`~fedlit.train.callbacks.Exchange`.

    Args:
        client: makes a client from its description, for instance ``functools.partial(FederatedClient, network=MLP)``.
        optimizer: makes a client's optimizer from its parameters.
        scheduler: makes a client's learning-rate schedule from its optimizer.
        scheduler_interval: whether schedules advance every epoch or every aligned step.
        gradient_clip_val: limit for the norm of each client's gradient.
        accumulate: batches per optimizer step.
        engine: how clients' steps are executed: one after another (``plain``), side by side on threads (``threads``),
            or whichever is faster (``auto``; both give the same bits). ``plain`` is the reference: it equals a
            hand-written loop bit for bit. The others also use PyTorch's fused optimizers.
        kernels: what computes the parts of networks that have a compiled twin: ``torch`` operations, ``compiled``
            kernels, or the latter where the run is long enough to pay for compiling them (``auto``; ``torch`` under
            the plain engine). They agree to float32 tolerance.
        threads: threads in all; as many as PyTorch would use if None.
        seed: the run's seed.
        overrides: client name or glob → what is different there.

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
        seed: int = 0,
        overrides: dict[str, ClientOverride] | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        if accumulate < 1:
            raise ConfigError(f"model.accumulate: expected at least 1 batch per optimizer step, found {accumulate}")
        if threads is not None and threads < 1:
            raise ConfigError(f"model.threads: expected at least 1, found {threads}")
        if scheduler_interval not in ("epoch", "step"):
            raise ConfigError(f"model.scheduler_interval: expected epoch or step, found {scheduler_interval!r}")
        self.automatic_optimization = False
        self.client_factory, self.optimizer_factory, self.scheduler_factory = client, optimizer, scheduler
        self.scheduler_interval, self.gradient_clip_val, self.accumulate = (
            scheduler_interval,
            gradient_clip_val,
            accumulate,
        )
        self.threads, self.seed, self.overrides = threads, seed, overrides or {}
        self.engine_name: EngineName = engine
        self.kernels: Kernels = kernels
        self._engine: Engine | None = None
        self._threads_before: int  # known while there is an engine
        self._loaded_step = 0
        self.clients = nn.ModuleDict()
        self.batch_sizes: dict[str, int] = {}
        self.steps: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()
        self.told_before: list[dict[str, Any]] = []
        self.evaluations = Evaluations(self)
        self.results: dict[Split, Results] = {}
        self.own_data: FederatedData | None = None
        self.cohort: frozenset[str] | None = None
        self.history: list[dict[str, float]] = []
        self._recorded: dict[str, Tensor | float] = {}
        self._diverged: set[str] = set()
        self._said = False
        self._resumed_stacks: dict[str, list[Any]] | None = None

    # ------------------------------------------------------------------ set-up

    @property
    def federation(self) -> dict[str, FederatedClient]:
        """The clients by name, in the order of names."""
        return cast(dict[str, FederatedClient], dict(self.clients.items()))

    @property
    def active(self) -> dict[str, FederatedClient]:
        """The clients that take part in this round, by name."""
        return {name: client for name, client in self.federation.items() if self.cohort is None or name in self.cohort}

    @property
    def engine(self) -> Engine:
        """What executes the clients' steps; made when first used, with the checkpoint's settings if there is one."""
        if self._engine is None:
            self._threads_before = torch.get_num_threads()
            self.threads = self.threads or torch.get_num_threads()
            alone = not all(client.side_by_side for client in self.federation.values())
            name: EngineName = "plain" if alone else self.engine_name
            compiled, scope = self.kernels == "compiled", self.trainer.precision_plugin.train_step_context
            self._engine = make_engine(name, len(self.clients), self.threads, self.device, scope, compiled)
            if isinstance(self._engine, StackedEngine):
                self._engine.resumed, self._resumed_stacks = self._resumed_stacks, None
        return self._engine

    @property
    def data(self) -> FederatedData:
        """The run's data module."""
        data = self.own_data or getattr(self.trainer, "datamodule", None)
        if not isinstance(data, FederatedData):
            raise ConfigError(
                f"expected trainer.fit(loop, datamodule=FederatedData(...)), found {type(data).__name__} as data module"
            )
        return data

    def build(self, data: FederatedData) -> None:
        """Build the clients for the data, once."""
        if len(self.clients):
            return
        data.setup()
        for name, client in build_clients(data.specs, self.client_factory, self.seed, self.overrides).items():
            override = find_override(self.overrides, name)
            client.optimizer_factory = override.optimizer or self.optimizer_factory
            client.scheduler_factory = override.scheduler or self.scheduler_factory
            client.scheduler_interval = self.scheduler_interval
            client.gradient_clip_val = override.gradient_clip_val or self.gradient_clip_val
            size = data.train_loaders[name].batch_size
            if size < 2 and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in client.modules()):
                rows = len(data.train_loaders[name].rows)
                fixed = data.pace.batches is None
                advice = "data.batch_size to at least 2" if fixed else f"data.batches to at most {rows // 2}"
                raise ConfigError(
                    f"client {name!r}: expected at least 2 rows per batch, which batch normalisation needs, "
                    f"found {rows} training rows in "
                    f"{data.train_loaders[name].batches} batches; set {advice}, or leave the client out"
                )
            self.clients[name] = client
            self.batch_sizes[name], self.steps[name] = size, data.train_loaders[name].range
        self.told_before = data.told_before
        self.notes = data.notes

    def reset(self) -> None:
        """Forget the clients; the next ``build`` makes new ones, untrained."""
        self.clients = nn.ModuleDict()
        self.evaluations = Evaluations(self)
        self.results.clear()
        self.history.clear()
        self._diverged.clear()
        self._loaded_step = 0

    def fresh(self, spec: ClientSpec) -> FederatedClient:
        """A client as it was before training."""
        return build_client(self.factory_of(spec), spec, self.seed)

    def factory_of(self, spec: ClientSpec) -> ClientFactory:
        """What makes a client."""
        return find_override(self.overrides, spec.name).client or self.client_factory

    def release(self) -> None:
        """Give threads back, whether a run ended or failed."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            torch.set_num_threads(self._threads_before)

    def configure_model(self) -> None:
        """Lightning's hook: builds the clients, whose sizes are known now, before optimizers and checkpoints need
        them.
        """
        if self.trainer.world_size != 1:
            raise ConfigError(f"expected one device, found {self.trainer.world_size}; set trainer.devices to 1")
        self.build(self.data)
        for client in self.federation.values():
            client.trainer = self.trainer
        for logger in self.trainer.loggers:
            if isinstance(logger, FederatedTensorBoardLogger):
                logger.clients = frozenset(
                    site.name for client in self.federation.values() for site in client.spec.sites
                )
        # Lightning's own `setup` comes before the clients exist.
        self._forward("setup", str(self.trainer.state.fn.value if self.trainer.state.fn else ""))

    def configure_optimizers(self) -> Any:
        """All clients' optimizers and schedules in two lists; each client keeps its own share."""
        optimizers, schedulers = [], []
        for name, client in self.federation.items():
            mine, configs = parse_optimizers(client.configure_optimizers())
            for position, config in enumerate(configs):
                config.name = config.name or f"{name}/lr" + (f"-{position}" if position else "")
            if self.engine_name != "plain":
                for optimizer in mine:
                    fuse_optimizer(optimizer)
            client._optimizers, client._scheduler_configs = mine, configs
            optimizers += mine
            schedulers += [
                {"scheduler": config.scheduler, "interval": config.interval, "name": config.name} for config in configs
            ]
        return optimizers, schedulers

    @property
    def step(self) -> int:
        """Aligned steps that the clients have behind them (outside of fit the Trainer does not know)."""
        return self.trainer.global_step if self.trainer.state.fn == "fit" else self._loaded_step

    def choose_kernels(self, runs: int = 1) -> None:
        """Decide about ``auto`` by the length of the training, so that the same configuration gives the same bits.

        Args:
            runs: how many runs like this one are trained together.
        """
        if self.kernels == "auto":
            epochs = self.trainer.max_epochs if self.trainer.max_epochs is not None else -1
            rows = runs * self.data.rows_per_epoch * epochs
            worth = rows < 0 or rows >= ROWS_WORTH_COMPILING
            self.kernels = "compiled" if worth and self.engine_name != "plain" else "torch"

    def _use_kernels(self) -> None:
        used, reasons = use_kernels(self.federation, self.kernels)
        if self.kernels == "compiled" and reasons and not used:
            self.kernels = "torch"  # what a checkpoint remembers is what was used
        if reasons and not self._said:
            self._said = True
            for reason, names in reasons.items():
                shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
                _log.warning("plain torch operations are used for %s: %s", shown, reason)

    # ------------------------------------------------------------------ training

    def training_step(self, batch: Mapping[str, Batch | None], batch_idx: int) -> None:
        """One aligned step."""
        self.engine.run(self.begin_step(batch, batch_idx))
        count_aligned_step(self.trainer)
        self.end_step(batch, batch_idx)

    def begin_step(self, batch: Mapping[str, Batch | None], batch_idx: int) -> dict[str, ClientStep]:
        """What there is to do in an aligned step, by client."""
        steps = {}
        for name, client in self.active.items():
            own = batch[name]
            if own is None:
                continue  # it waits for others
            self._call(client, "on_train_batch_start", own, batch_idx)
            # A function of (seed, client, its own place in the training), whatever others do and whatever ran before.
            own_step = self.current_epoch * self.data.train_loaders[name].most + batch_idx
            seed = derive_seed(self.seed, "step", name, own_step)
            step = partial(self._step_client, client, own, batch_idx, seed)
            steps[name] = ClientStep(client, own, step, self.accumulate, self._updates(name, batch_idx), seed=seed)
        return steps

    def _updates(self, name: str, batch_idx: int) -> bool:
        """Whether a client's optimizers step behind this batch."""
        last = self.trainer.is_last_batch or self.data.train_loaders[name].ends(batch_idx)
        return last or (batch_idx + 1) % self.accumulate == 0

    def end_step(self, batch: Mapping[str, Batch | None], batch_idx: int) -> None:
        """Schedules and hooks after an aligned step, which has been counted."""
        last = self.trainer.is_last_batch
        for name, client in self.active.items():
            own = batch[name]
            updated = own is not None and self._updates(name, batch_idx)
            for config in client._scheduler_configs:
                if not config.reduce_on_plateau and (updated if config.interval == "step" else last):
                    count = self.trainer.global_step if config.interval == "step" else self.current_epoch + 1
                    if count % config.frequency == 0:
                        config.scheduler.step()  # type: ignore[call-arg]  # Lightning types it as a plateau schedule too
            if own is not None:
                self._call(client, "on_train_batch_end", None, own, batch_idx)

    def _step_client(self, client: FederatedClient, batch: Batch, batch_idx: int, seed: int, seeded: bool) -> bool:
        """One client's step (see :data:`fedlit.engine.base.Step`)."""
        step = self.trainer.global_step
        try:
            # The autocast of mixed precision belongs to a thread.
            with self.trainer.precision_plugin.train_step_context():
                if not seeded:
                    self.step_client(client, batch, batch_idx)
                    return False
                with isolated_rng(seed, self.device) as drawn:
                    self.step_client(client, batch, batch_idx)
                    return drawn()
        except FedlitError:
            raise
        except Exception as error:
            raise RunError(f"client {client.spec.name!r}, step {step + 1}: {type(error).__name__}: {error}") from error

    def step_client(self, client: FederatedClient, batch: Batch, batch_idx: int) -> None:
        """One client's share of an aligned step: loss, gradient, clipping, optimizer."""
        client.accumulate, client.steps_now = self.accumulate, self._updates(client.spec.name, batch_idx)
        loss = client.training_step(batch, batch_idx)
        if loss is None:
            return  # the client skips this batch, as in Lightning, or has nothing to say
        client.log("loss", loss)
        if client.automatic_optimization:
            client.descend(loss, client._optimizers, client.clipped_apart() if client.gradient_clip_val else ())

    def record(self, values: Mapping[str, Tensor | float]) -> None:
        """Have scalars logged at the end of this epoch; a key ``<client>/<tag>`` goes to the client's run, others
        to the federation's.
        """
        self._recorded.update(values)

    def _log(self, values: Mapping[str, float]) -> None:
        # What is undefined has no point in a curve, but callbacks that monitor it must find it.
        self.trainer.callback_metrics.update({key: torch.tensor(value) for key, value in values.items()})
        self.history.append({"step": float(self.step), **values})
        defined = {key: value for key, value in values.items() if math.isfinite(value)}
        for logger in self.trainer.loggers:
            logger.log_metrics(defined, self.step)

    # ------------------------------------------------------------------ evaluation

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Score one batch of one site."""
        self.evaluations.add("validation", batch, dataloader_idx)

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Score one batch of one site."""
        self.evaluations.add("test", batch, dataloader_idx)

    def predict_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        """Probabilities (n, classes) of one batch of one site."""
        owner, site, _ = self.data.sites(self.data.predict)[dataloader_idx]
        with isolated_rng(derive_seed(self.seed, "predict", site, batch_idx), self.device):
            return self.federation[owner].evaluate(batch)[0]

    @property
    def scoring(self) -> dict[Split, Scoring]:
        """What was last collected of each split."""
        return self.evaluations.scoring

    def _finish_scoring(self, split: Split) -> None:
        self.engine.evaluate(self.evaluations.take())
        results = self.results[split] = self.scoring[split].results(self.step)
        for logger in self.trainer.loggers:
            if isinstance(logger, FederatedTensorBoardLogger):
                logger.show(results.summary["worst_client"].values())
        self._log(results.scalars())

    # ------------------------------------------------------------------ hooks

    def on_fit_start(self) -> None:
        """Fix the number of threads; move what clients remember to the device."""
        self.choose_kernels()
        self._use_kernels()
        torch.set_num_threads(self.engine.intra_op)
        for client in self.federation.values():
            client.state = move_data_to_device(client.state, self.device)
        self._forward("on_fit_start")

    def on_train_epoch_start(self) -> None:
        """Tell the loaders which epoch's order of rows to use."""
        for loader in self.data.train_loaders.values():
            loader.epoch = self.current_epoch
        self._forward("on_train_epoch_start")

    def on_train_epoch_end(self) -> None:
        """Log what was recorded during the epoch."""
        self._forward("on_train_epoch_end")
        values = {"epoch": float(self.current_epoch), **{key: float(value) for key, value in self._recorded.items()}}
        losses = []
        for name, client in self.federation.items():
            means = client.pop_logged()
            losses += [means["loss"]] if "loss" in means else []
            if not math.isfinite(means.get("loss", 0.0)) and name not in self._diverged:
                self._diverged.add(name)
                _log.warning("client %r: its training loss is not finite since epoch %d", name, self.current_epoch + 1)
            values |= {f"{name}/train/{tag}": value for tag, value in means.items()}
            values |= {f"{name}/lr": optimizer.param_groups[0]["lr"] for optimizer in client._optimizers[:1]}
        if losses:
            values["train/loss"] = sum(losses) / len(losses)
        self._recorded = {}
        self._log(values)

    def on_validation_epoch_start(self) -> None:
        """Begin to score."""
        self.evaluations.begin("validation")
        self._forward("on_validation_epoch_start")

    def on_validation_epoch_end(self) -> None:
        """Score, log, and step the schedules that wait for a score, all before any checkpoint of this epoch."""
        self._finish_scoring("validation")
        self._forward("on_validation_epoch_end")
        if self.trainer.state.fn != "fit":
            return
        for client in self.federation.values():
            for config in client._scheduler_configs:
                if config.reduce_on_plateau:
                    cast(ReduceLROnPlateau, config.scheduler).step(self._monitored(client, config))

    def _monitored(self, client: FederatedClient, config: LRSchedulerConfig) -> Tensor:
        """A score by its name: the client's own where it has one of that name, else the federation's."""
        known = self.trainer.callback_metrics
        for key in (f"{client.spec.name}/{config.monitor}", str(config.monitor)):
            if key in known:
                return known[key]
        raise ConfigError(
            f"client {client.spec.name!r}: its schedule waits for {config.monitor!r}, expected one of "
            f"{', '.join(sorted(known))}." + did_you_mean(str(config.monitor), known)
        )

    def on_test_epoch_start(self) -> None:
        """Begin to score."""
        self.evaluations.begin("test")
        self._forward("on_test_epoch_start")

    def on_test_epoch_end(self) -> None:
        """Score and log."""
        self._finish_scoring("test")
        self._forward("on_test_epoch_end")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save what is not in the parameters: each client's ``state``, and what a resumed run must not change."""
        own: dict[str, Any] = {}
        for name, client in self.federation.items():
            own[name] = {"state": client.state}
            call_hook(client, "on_save_checkpoint", own[name])
        stacks = self._engine.shared if isinstance(self._engine, StackedEngine) else None
        checkpoint["fedlit"] = {"clients": own, "stacks": stacks, **fixed_settings(self)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore; engine, kernels and thread count are the checkpoint's."""
        saved = checkpoint.get("fedlit")
        refuse_other_runs(self, saved)
        assert saved is not None
        if self.trainer.state.fn == "fit":
            self.engine_name, self.threads = saved["engine"], saved["threads"]
        self.kernels = saved["kernels"]
        self._use_kernels()
        self._resumed_stacks = saved["stacks"] if self.trainer.state.fn == "fit" else None
        self._loaded_step = checkpoint["global_step"]
        for name, client in self.federation.items():
            client.state = saved["clients"][name]["state"]
            call_hook(client, "on_load_checkpoint", saved["clients"][name])

    def _forward(self, hook: str, *args: Any) -> None:
        for client in self.federation.values():
            self._call(client, hook, *args)

    def _call(self, client: FederatedClient, hook: str, *args: Any) -> None:
        """Call a hook that may draw random numbers, outside of a client's step, which is seeded as a whole."""
        if overrides(client, hook):
            with isolated_rng(derive_seed(self.seed, hook, client.spec.name, self.step), self.device):
                getattr(client, hook)(*args)

    def teardown(self, stage: str) -> None:
        """Put the number of threads back."""
        self.release()
        self._forward("teardown", stage)

    def on_fit_end(self) -> None:
        """Remember how far training got."""
        self._loaded_step = self.trainer.global_step
        self._forward("on_fit_end")

    def on_train_start(self) -> None:
        """Forwarded to the clients."""
        self._forward("on_train_start")

    def on_train_end(self) -> None:
        """Forwarded to the clients."""
        self._forward("on_train_end")
