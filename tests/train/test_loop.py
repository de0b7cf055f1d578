"""The loop against a hand-written one, bit for bit, and what it does around it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Made, SmallNet, different, make_run
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import ReduceLROnPlateau
from torch import Tensor, nn

from fedlit.client.build import ClientOverride, build_clients
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, RunError
from fedlit.nn import MLP, GlobalLayers
from fedlit.seeding import derive_seed, initialise
from fedlit.spec import ClientSpec
from fedlit.train.callbacks import Checkpoints
from fedlit.train.loop import FederatedLoop

SEED, EPOCHS, BATCHES = 8, 3, 4


def by_hand(
    network: Any, *, federated: str | None, clip: float | None = None, accumulate: int = 1, gamma: float | None = None
) -> dict[str, dict[str, Tensor]]:
    """Plain PyTorch: for each batch, for each client, one step; then the mean of the shared part after each epoch."""
    data = FederatedData(Made(), batches=BATCHES, seed=SEED)
    data.setup()
    nets, optimizers, schedulers = {}, {}, {}
    for client in data.clients:
        name = client.spec.name
        built = network(client.spec.num_features, client.spec.num_outputs)
        nets[name] = nn.ModuleDict({"encoder": built.encoder, "core": built.core, "head": built.head})
        initialise(nets[name], SEED)
        optimizers[name] = torch.optim.AdamW(nets[name].parameters(), lr=0.01, weight_decay=0.1)
        if gamma:
            schedulers[name] = torch.optim.lr_scheduler.ExponentialLR(optimizers[name], gamma)
    for epoch in range(EPOCHS):
        orders = {
            client.spec.name: torch.randperm(
                len(client.train.y),
                generator=torch.Generator().manual_seed(derive_seed(SEED, "rows", client.spec.name, epoch)),
            )
            for client in data.clients
        }
        for batch in range(BATCHES):
            for client in data.clients:
                name, net = client.spec.name, nets[client.spec.name]
                size = len(client.train.y) // BATCHES
                index = orders[name][batch * size : (batch + 1) * size]
                x, y = client.train.x[index], client.train.y[index]
                torch.manual_seed(derive_seed(SEED, "step", name, epoch * BATCHES + batch))  # for dropout
                logits = net["head"](net["core"](net["encoder"](x)))
                if logits.shape[1] == 1:
                    loss = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y.float())
                else:
                    loss = nn.functional.cross_entropy(logits, y)
                (loss / accumulate).backward()
                if (batch + 1) % accumulate == 0 or batch == BATCHES - 1:
                    if clip:
                        nn.utils.clip_grad_norm_(net.parameters(), clip)
                    optimizers[name].step()
                    optimizers[name].zero_grad()
        for scheduler in schedulers.values():
            scheduler.step()
        if federated:
            with torch.no_grad():
                for key, _ in nets["ash"].named_parameters():
                    if key.startswith(federated):
                        tensors = [net.get_parameter(key) for net in nets.values()]
                        mean = (tensors[0] + tensors[1] + tensors[2]) / 3
                        for tensor in tensors:
                            tensor.copy_(mean)
    return {name: net.state_dict() for name, net in nets.items()}


SMALL_GLOBAL_LAYERS = partial(GlobalLayers, global_features=2, width=4, blocks=1, heads=2)


@pytest.mark.parametrize("network", [SmallNet, SMALL_GLOBAL_LAYERS], ids=["dropout", "global layers"])
@pytest.mark.parametrize(
    ("federated", "settings"),
    [
        (None, {}),
        ("core", {}),
        ("core", {"clip": 0.05}),
        ("core", {"accumulate": 3}),
        ("core", {"gamma": 0.5}),
    ],
)
def test_equals_a_hand_written_loop_bit_for_bit(
    network: Any, federated: str | None, settings: dict[str, Any], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the run does
    expected = by_hand(network, federated=federated, **settings)
    gamma = settings.get("gamma")
    run = make_run(
        tmp_path,
        seed=SEED,
        epochs=EPOCHS,
        client=FederatedClient,
        exchange={"federated": [federated] if federated else []},
        loop={
            "client": partial(FederatedClient, network=network),
            "optimizer": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
            "scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=gamma) if gamma else None,
            "gradient_clip_val": settings.get("clip"),
            "accumulate": settings.get("accumulate", 1),
            "engine": "plain",
        },
    )
    torch.set_num_threads(threads)
    run.fit(quiet=True)
    assert torch.get_num_threads() == threads
    for name, client in run.loop.federation.items():
        assert different(expected[name], client.state_dict()) == [], name


def test_global_step_counts_aligned_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=3, max_steps=7)
    run.fit(quiet=True)
    assert run.trainer is not None and run.trainer.global_step == 7


def test_a_plateau_schedule_follows_the_clients_own_score(tmp_path: Path) -> None:
    def never_better(optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau:
        # any change counts as no improvement, so the rate falls at every validation but the first
        return ReduceLROnPlateau(optimizer, "val/loss", factor=0.5, patience=0, threshold=1e9, threshold_mode="abs")

    run = make_run(tmp_path, epochs=3, loop={"scheduler": never_better})
    run.fit(quiet=True)
    rates = {client._optimizers[0].param_groups[0]["lr"] for client in run.loop.federation.values()}
    assert rates == {0.01 / 4}
    with pytest.raises(ConfigError, match=r"waits for 'val/auc', expected one of .* Did you mean 'val/auroc'"):
        make_run(tmp_path, loop={"scheduler": lambda optimizer: ReduceLROnPlateau(optimizer, "val/auc")}).fit(
            quiet=True
        )


def test_step_schedules_advance_every_aligned_step(tmp_path: Path) -> None:
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    run = make_run(tmp_path, epochs=2, loop={"scheduler": scheduler, "scheduler_interval": "step"})
    run.fit(quiet=True)
    rates = [client._optimizers[0].param_groups[0]["lr"] for client in run.loop.federation.values()]
    assert rates == [0.01 * 0.5**8] * 3


class Hooked(FederatedClient):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[str] = []

    def on_fit_start(self) -> None:
        self.calls.append("fit start")

    def on_train_epoch_start(self) -> None:
        self.calls.append(f"epoch {self.current_epoch}")

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.calls.append(f"{self.spec.name} batch {batch_idx} of {len(batch.y)}")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        assert optimizer is self.optimizers()
        self.calls.append("step")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.log("twice", 2.0 * batch_idx)
        return super().training_step(batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        self.calls.append("validated")

    def on_fit_end(self) -> None:
        self.calls.append("fit end")


def test_hooks_reach_each_client_with_its_own_batch(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=Hooked, epochs=1)
    run.fit(quiet=True)
    birch = run.loop.federation["birch"]
    steps = [call for batch in range(4) for call in (f"birch batch {batch} of 9", "step")]
    assert birch.calls == ["fit start", "epoch 0", *steps, "validated", "fit end"]  # type: ignore[attr-defined]
    assert run.trainer is not None
    logged = run.trainer.callback_metrics
    assert logged["birch/train/twice"] == pytest.approx(3.0)  # mean of 0, 2, 4, 6
    assert logged["train/loss"] == pytest.approx(
        sum(float(logged[f"{name}/train/loss"]) for name in ("ash", "birch", "cedar")) / 3
    )


def test_client_log_refuses_what_it_would_ignore(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.describe()
    with pytest.raises(TypeError, match="records the epoch's mean and takes nothing else"):
        run.loop.federation["ash"].log("loss", 1.0, prog_bar=True)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"gradient_clip_val": 1.0}, "set model.gradient_clip_val"),
        ({"accumulate_grad_batches": 2}, "set model.accumulate"),
    ],
)
def test_trainer_options_that_do_not_reach_clients_are_refused(
    option: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_run(tmp_path, **option).fit(quiet=True)


def test_bfloat16_trains_and_keeps_float32_weights(tmp_path: Path) -> None:
    run = make_run(tmp_path, precision="bf16-mixed", exchange={"federated": ["core"]})
    full = make_run(tmp_path, exchange={"federated": ["core"]})
    scores, reference = run.fit(quiet=True), full.fit(quiet=True)
    assert {value.dtype for value in run.loop.state_dict().values()} == {torch.float32, torch.int64}
    assert scores.summary["mean"]["loss"] == pytest.approx(reference.summary["mean"]["loss"], rel=0.1)
    assert scores.summary["mean"]["loss"] != reference.summary["mean"]["loss"]


def test_overrides_reach_the_clients_they_name_and_no_others(tmp_path: Path) -> None:
    sgd = ClientOverride(optimizer=partial(torch.optim.SGD, lr=0.2), client=partial(Hooked, network=SmallNet))
    run = make_run(tmp_path, epochs=1, loop={"overrides": {"ce*": sgd}})
    run.fit(quiet=True)
    kinds = {name: type(client._optimizers[0]).__name__ for name, client in run.loop.federation.items()}
    assert kinds == {"ash": "AdamW", "birch": "AdamW", "cedar": "SGD"}
    assert isinstance(run.loop.federation["cedar"], Hooked)
    with pytest.raises(ConfigError, match=r"found 'cedra'; clients are ash, birch, cedar. Did you mean 'cedar'"):
        make_run(tmp_path, loop={"overrides": {"cedra": sgd}}).describe()


class StopWhenGood(Callback):
    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        trainer.should_stop = float(trainer.callback_metrics["ash/val/auroc"]) > 0


def test_a_score_that_no_client_has_is_refused_before_training(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, checkpoints=Checkpoints(monitor="val/rmse"))
    with pytest.raises(ConfigError, match=r"checkpoint.monitor: expected a score .*auroc.*found val/rmse"):
        run.fit(quiet=True)
    assert run.loop.global_step == 0


def test_scores_of_clients_and_means_can_be_monitored(tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import EarlyStopping

    for monitor in ("val/auroc", "birch/val/loss", "val/worst/auroc"):
        stop = EarlyStopping(monitor, mode="max", patience=1, min_delta=1e9)
        run = make_run(tmp_path, epochs=9, callbacks=[stop], checkpoints=Checkpoints(monitor=monitor))
        run.fit(quiet=True)
        assert run.trainer is not None and run.trainer.current_epoch == 2, monitor


def test_validation_every_n_epochs_and_a_table_that_is_current(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=3, check_val_every_n_epoch=2)
    results = run.fit(quiet=True)
    again = run.validate(quiet=True)
    assert results.scores == again.scores


def test_batches_of_one_row_are_refused_where_batch_normalisation_would_fail(tmp_path: Path) -> None:
    data = FederatedData(Made(), batches=30, seed=SEED)
    loop = FederatedLoop(partial(FederatedClient, network=SmallNet), seed=SEED)
    with pytest.raises(ConfigError, match=r"client 'ash': expected at least 2 rows per batch.*50 training rows in 30"):
        loop.build(data)


def test_loop_without_federated_data_says_what_it_expects(tmp_path: Path) -> None:
    loop = FederatedLoop(partial(FederatedClient, network=SmallNet))
    trainer = Trainer(default_root_dir=tmp_path, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with pytest.raises(ConfigError, match=r"expected trainer.fit\(loop, datamodule=FederatedData"):
        trainer.fit(loop, train_dataloaders=[])


def test_a_second_fit_starts_from_nothing_in_a_folder_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path, exchange={"federated": ["core"]})
    first = run.fit(quiet=True)
    weights = {name: value.clone() for name, value in run.loop.state_dict().items()}
    second = run.fit(quiet=True)
    assert second.scores == first.scores and run.exchange.rounds == 3
    assert different(weights, dict(run.loop.state_dict())) == []
    assert sorted(path.name for path in (tmp_path / "fedlit").iterdir()) == ["version_0", "version_1"]


@pytest.mark.parametrize("name", ["type", "keys", "cpu", "training"])
def test_client_names_that_torch_uses_are_refused(name: str) -> None:
    spec = ClientSpec(name, ("a",), (0, 1), {}, ())
    with pytest.raises(ConfigError, match=f"client '{name}': expected a name that torch does not use"):
        build_clients([spec], partial(FederatedClient, network=SmallNet), seed=8)


def test_a_network_that_cannot_be_built_is_named(tmp_path: Path) -> None:
    client = partial(FederatedClient, network=partial(MLP, hidden=[-1]))
    with pytest.raises(ConfigError, match=r"client 'ash': expected a client for 5 features and 3 outputs, found that"):
        make_run(tmp_path, loop={"client": client}).describe()


def test_a_local_run_that_diverges_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(tmp_path, loop={"optimizer": partial(torch.optim.SGD, lr=1e30)}, checkpoints=Checkpoints())
    results = run.fit(quiet=True)
    assert caplog.text.count("client 'ash': its training loss is not finite since epoch") == 1
    assert "–" in str(results)


class Noisy(FederatedClient):
    """Draws random numbers wherever a client is called."""

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.state["noise"] = torch.randn(3)

    def on_receive(self, received: Any) -> None:
        with torch.no_grad():
            self.head.weight += 0.01 * torch.randn_like(self.head.weight)  # type: ignore[operator, arg-type]

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        probabilities, loss = super().evaluate(batch)
        return (probabilities + 0.1 * torch.rand_like(probabilities)).softmax(1), loss


def test_whatever_draws_random_numbers_draws_the_same_ones_again(tmp_path: Path) -> None:
    results = []
    for folder in ("a", "b"):
        run = make_run(tmp_path / folder, client=Noisy, exchange={"federated": ["core"]}, loop={"threads": 2})
        torch.rand(len(folder) + len(results))
        results.append(
            (run.fit(quiet=True).scores, dict(run.loop.state_dict()), run.loop.federation["ash"].state["noise"])
        )
    (scores, weights, noise), (again, weights_again, noise_again) = results
    assert scores == again and different(weights, weights_again) == [] and torch.equal(noise, noise_again)


class Overriding(FederatedClient):
    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("never called")


def test_a_hook_that_would_never_be_called_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"client 'ash': Overriding overrides optimizer_step, which a federation does not"
    ):
        make_run(tmp_path, client=Overriding).describe()


class Skips(FederatedClient):
    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        return None if self.spec.name == "birch" else super().training_step(batch, batch_idx)


def test_a_step_that_returns_nothing_is_skipped(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=Skips, epochs=1)
    run.describe()
    before = {name: value.clone() for name, value in run.loop.state_dict().items()}
    run.fit(quiet=True)
    changed = {name.split(".")[1] for name in different(before, dict(run.loop.state_dict()))}
    assert changed == {"ash", "cedar"}


def test_a_failed_run_gives_its_threads_back(tmp_path: Path) -> None:
    class Fails(FederatedClient):
        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            raise ValueError("no")

    before = torch.get_num_threads()
    run = make_run(tmp_path, client=Fails, loop={"engine": "threads", "threads": 2})
    with pytest.raises(RunError, match="step 1: ValueError: no"):
        run.fit(quiet=True)
    assert torch.get_num_threads() == before and run.loop._engine is None


def test_step_schedules_wait_for_accumulated_steps(tmp_path: Path) -> None:
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    settings = {"scheduler": scheduler, "scheduler_interval": "step", "accumulate": 2}
    run = make_run(tmp_path, epochs=1, loop=settings)
    run.fit(quiet=True)
    assert run.loop.federation["ash"]._optimizers[0].param_groups[0]["lr"] == 0.01 * 0.5**2
