"""The loop against a hand-written one, bit for bit, and what it does around it."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import ALIKE, Dry, Made, SmallNet, different, make_run, trained
from lightning.pytorch import Trainer
from lightning.pytorch.cli import ReduceLROnPlateau
from torch import Tensor, nn

import fedlit
from fedlit import GlobalLayers, Mean, Round
from fedlit.client.build import ClientOverride
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.errors import RunError
from fedlit.exchange.exchange import Exchange
from fedlit.nn.blocks import FrozenBatchNorm
from fedlit.seeding import derive_seed, initialise
from fedlit.train.lightning import Modes, switch_to_evaluation
from fedlit.train.loop import FederatedLoop

SEED = 8
EPOCHS = 3
BATCHES = 4


def by_hand(  # noqa: PLR0912 (the reference is one plain loop on purpose)
    network: Any,
    *,
    federated: str | None,
    clip: float | None = None,
    accumulate: int = 1,
    gamma: float | None = None,
) -> dict[str, dict[str, Tensor]]:
    """Plain PyTorch: for each batch, for each client, one step; then the mean of the shared part
    after each epoch."""
    data = FederatedData(Made(), batches=BATCHES, seed=SEED)
    data.setup()
    nets = {}
    optimizers = {}
    schedulers = {}
    for client in data.clients:
        name = client.spec.name
        built = network(client.spec.num_features, client.spec.num_outputs)
        nets[name] = nn.ModuleDict(
            {"encoder": built.encoder, "core": built.core, "head": built.head}
        )
        initialise(nets[name], SEED)
        optimizers[name] = torch.optim.AdamW(nets[name].parameters(), lr=0.01, weight_decay=0.1)
        if gamma is not None:
            schedulers[name] = torch.optim.lr_scheduler.ExponentialLR(optimizers[name], gamma)
    for epoch in range(EPOCHS):
        orders = {}
        for client in data.clients:
            generator = torch.Generator().manual_seed(
                derive_seed(SEED, "rows", client.spec.name, epoch)
            )
            orders[client.spec.name] = torch.randperm(len(client.train.y), generator=generator)
        for batch in range(BATCHES):
            for client in data.clients:
                name = client.spec.name
                net = nets[client.spec.name]
                size = len(client.train.y) // BATCHES
                index = orders[name][batch * size : (batch + 1) * size]
                x = client.train.x[index]
                y = client.train.y[index]
                # for dropout
                torch.manual_seed(derive_seed(SEED, "step", name, epoch * BATCHES + batch))
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
        shared = [
            key
            for key, _ in nets["ash"].named_parameters()
            if federated and key.startswith(federated)
        ]
        for first, second, third in (
            [net.get_parameter(key).data for net in nets.values()] for key in shared
        ):
            mean = (first + second + third) / 3
            for tensor in (first, second, third):
                tensor.copy_(mean)
    return {name: net.state_dict() for name, net in nets.items()}


SMALL_GLOBAL_LAYERS = partial(GlobalLayers, global_features=2, width=4, blocks=1, heads=2)


@pytest.mark.parametrize(
    "network", [SmallNet, SMALL_GLOBAL_LAYERS], ids=["dropout", "global layers"]
)
@pytest.mark.parametrize(
    ("federated", "settings"),
    [
        (None, {}),
        ("core", {}),
        pytest.param("core", {"accumulate": 3}, marks=pytest.mark.full),
        ("core", {"accumulate": 3, "clip": 0.05, "gamma": 0.5}),
    ],
)
def test_it_is_the_hand_written_loop(
    network: Any, federated: str | None, settings: dict[str, Any], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the run does
    expected = by_hand(network, federated=federated, **settings)
    gamma = settings.get("gamma")
    loop = {
        "client": partial(FederatedClient, network=network),
        "optimizer": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
        "scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=gamma)
        if gamma
        else None,
        "gradient_clip_val": settings.get("clip"),
        "accumulate": settings.get("accumulate", 1),
        "engine": "plain",
    }
    torch.set_num_threads(threads)
    run = trained(tmp_path, exchange={"federated": [federated] if federated else []}, loop=loop)
    assert torch.get_num_threads() == threads
    for name, client in run.loop.federation.items():
        assert different(expected[name], client.state_dict()) == [], name


def test_a_plateau_schedule_follows_the_clients_own_score(tmp_path: Path) -> None:
    def never_better(optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau:
        # any change counts as no improvement, so the rate falls at every validation but the first
        return ReduceLROnPlateau(
            optimizer, "val/loss", factor=0.5, patience=0, threshold=1e9, threshold_mode="abs"
        )

    run = trained(tmp_path, epochs=3, loop={"scheduler": never_better})
    rates = {client._optimizers[0].param_groups[0]["lr"] for client in run.loop.federation.values()}
    assert rates == {0.01 / 4}


class Hooked(FederatedClient):
    """Notes which hooks are called, and with which batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[str] = []

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.calls.append(
            f"{self.spec.name} batch {batch_idx} of {len(batch.y)} in epoch {self.current_epoch}"
        )

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        assert optimizer is self.optimizers()
        self.calls.append("step")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.log("twice", 2.0 * batch_idx)
        return super().training_step(batch, batch_idx)


ONCE = ("on_fit_start", "on_train_epoch_start", "on_validation_epoch_end", "on_fit_end")
for hook in ONCE:
    setattr(Hooked, hook, lambda self, hook=hook: self.calls.append(hook))


def test_hooks_reach_each_client_with_its_own_batch(tmp_path: Path) -> None:
    run = trained(tmp_path, client=Hooked, epochs=1)
    birch = run.loop.federation["birch"]
    steps = [
        call for batch in range(4) for call in (f"birch batch {batch} of 9 in epoch 0", "step")
    ]
    assert birch.calls == [*ONCE[:2], *steps, *ONCE[2:]]
    assert run.trainer is not None
    logged = run.trainer.callback_metrics
    assert logged["birch/train/twice"] == pytest.approx(3.0)  # mean of 0, 2, 4, 6
    losses = [float(logged[f"{name}/train/loss"]) for name in ("ash", "birch", "cedar")]
    assert logged["train/loss"] == pytest.approx(sum(losses) / 3)


def test_overrides_reach_the_clients_they_name_and_no_others(tmp_path: Path) -> None:
    sgd = ClientOverride(
        optimizer=partial(torch.optim.SGD, lr=0.2), client=partial(Hooked, network=SmallNet)
    )
    run = trained(tmp_path, epochs=1, loop={"overrides": {"ce*": sgd}})
    kinds = {
        name: type(client._optimizers[0]).__name__ for name, client in run.loop.federation.items()
    }
    assert kinds == {"ash": "AdamW", "birch": "AdamW", "cedar": "SGD"}
    assert isinstance(run.loop.federation["cedar"], Hooked)


def test_a_failed_run_gives_its_threads_back(tmp_path: Path) -> None:
    class Fails(FederatedClient):
        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            raise ValueError("no")

    before = torch.get_num_threads()
    run = make_run(tmp_path, client=Fails, loop={"engine": "threads", "threads": 2})
    with pytest.raises(RunError, match="step 1: ValueError: no"):
        run.fit(quiet=True)
    assert torch.get_num_threads() == before and run.loop._engine is None


def test_a_second_fit_starts_from_nothing_in_a_folder_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path, exchange={"federated": ["core"]})
    first = run.fit(quiet=True)
    weights = {name: value.clone() for name, value in run.loop.state_dict().items()}
    second = run.fit(quiet=True)
    assert second.scores == first.scores and different(weights, dict(run.loop.state_dict())) == []
    assert sorted(path.name for path in (tmp_path / "fedlit").iterdir()) == [
        "version_0",
        "version_1",
    ]


@pytest.mark.parametrize(
    ("accumulate", "data", "steps"),
    [(2, {}, [2, 2, 2]), (1, {"batches": 4, "steps": {"ash": 5, "birch": 2, "*": 3}}, [5, 2, 3])],
)
def test_schedules_of_steps_count_their_clients_own(
    accumulate: int, data: dict[str, Any], steps: list[int], tmp_path: Path
) -> None:
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    settings = {"scheduler": scheduler, "scheduler_interval": "step", "accumulate": accumulate}
    run = trained(tmp_path, epochs=1, loop=settings, data=data)
    rates = [client._optimizers[0].param_groups[0]["lr"] for client in run.loop.federation.values()]
    assert rates == [0.01 * 0.5**number for number in steps]


@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_the_logged_rate_is_the_one_that_was_used(interval: str, tmp_path: Path) -> None:
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    settings = {"scheduler": scheduler, "scheduler_interval": interval}
    run = trained(tmp_path, epochs=3, loop=settings)
    rates = [values["ash/train/lr"] for values in run.loop.history if "ash/train/lr" in values]
    each = 1 if interval == "epoch" else run.data.aligned_steps
    assert rates == [0.01 * 0.5 ** (each * epoch + each - 1) for epoch in range(3)]


def test_schedules_of_epochs_advance_for_clients_that_sit_out(tmp_path: Path) -> None:
    scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    settings = {"federated": ["core"], "participation": 0.34}
    run = trained(tmp_path, epochs=4, loop={"scheduler": scheduler}, exchange=settings)
    clients = run.loop.federation.clients
    assert min(client.steps_taken for client in clients.values()) < 4 * run.data.aligned_steps, (
        "some sat out"
    )
    for name, client in clients.items():
        rates = [
            values[f"{name}/train/lr"]
            for values in run.loop.history
            if f"{name}/train/lr" in values
        ]
        assert rates == [0.01, 0.005, 0.0025, 0.00125], name
        assert client._optimizers[0].param_groups[0]["lr"] == 0.000625


class Draws(FederatedClient):
    """Draws a number at the start of each epoch, and noise where it predicts."""

    def on_train_epoch_start(self) -> None:
        self.state["drawn"] = [*self.state.get("drawn", []), torch.rand(1).item()]

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        return outputs if self.training else outputs + torch.randn_like(outputs)


def test_a_resumed_run_draws_what_the_whole_one_draws(tmp_path: Path) -> None:
    """Its clients' seeds depend on the step, which a checkpoint has."""
    options: dict[str, Any] = {"client": Draws, "loop": {"engine": "plain"}}
    whole, _ = (trained(tmp_path / str(epochs), epochs=epochs, **options) for epochs in (3, 2))
    resumed, scored = (make_run(tmp_path / "2", epochs=3, **options) for _ in range(2))
    scores = resumed.fit("last", quiet=True).scores
    assert (
        scores
        == whole.loop.results["validation"].scores
        == scored.validate("last", quiet=True).scores
    )
    for name, client in whole.loop.federation.items():
        assert (
            client.state == resumed.loop.federation[name].state
            and len(set(client.state["drawn"])) == 3
        )
    assert scored.loop.federation.step == resumed.loop.federation.step == 12


def test_clients_that_draw_nothing_are_scored_as_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = []
    evaluate = FederatedClient.evaluate

    def counting(client: FederatedClient, batch: Batch) -> tuple[Tensor, Tensor]:
        alone.append(client.spec.name)
        return evaluate(client, batch)

    monkeypatch.setattr(FederatedClient, "evaluate", counting)
    loop: dict[str, Any] = {"client": partial(FederatedClient, network=Dry)}
    run = make_run(tmp_path, clients=ALIKE, loop=loop, epochs=1)
    scores = run.fit(quiet=True).scores
    assert alone == []
    loop["engine"] = "plain"
    plain = make_run(tmp_path / "plain", clients=ALIKE, loop=loop, epochs=1).fit(quiet=True)
    assert sorted(set(alone)) == sorted(ALIKE)
    for name, of_client in plain.scores.items():
        assert scores[name] == pytest.approx(of_client, abs=1e-4, nan_ok=True)


def test_private_names_of_lightning_are_used_by_one_file_alone() -> None:
    private = re.compile(
        r"^from lightning(\S*\._\S* import|\S* import (\([^)]*|.*)\b_\w)", re.MULTILINE
    )
    files = Path(fedlit.__file__).parent.rglob("*.py")
    assert {path.name for path in files if private.search(path.read_text(encoding="utf-8"))} == {
        "lightning.py"
    }


def test_scoring_leaves_each_module_in_its_mode() -> None:
    def module() -> nn.Module:
        made = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Linear(2, 2), nn.Dropout()), nn.Tanh())
        made[2].eval()
        made.append(FrozenBatchNorm(2))
        made.append(nn.Sequential())  # It has no modules, and so counts as false.
        return made

    quick = module()
    usual = module()
    before = [part.training for part in quick.modules()]
    modes = Modes()
    modes.capture(quick)
    switch_to_evaluation(quick)
    usual.eval()
    assert [part.training for part in quick.modules()] == [
        part.training for part in usual.modules()
    ]
    modes.restore(quick)
    assert [part.training for part in quick.modules()] == before


def test_lightning_asks_for_modes_where_they_are_installed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.fit(quiet=True)
    loop = run.loop
    assert all(part.training for part in loop.modules() if part is not loop)
    assert isinstance(loop.trainer.fit_loop.epoch_loop.val_loop._module_mode, Modes)


# ------------------------------------------------------------ what a client knows of its federation


class Looks(FederatedClient):
    """Notes how many of its parameters are federated before it makes its optimizer."""

    def configure_optimizers(self) -> Any:
        self.state["seen"] = sum(name in self.federated for name, _ in self.named_parameters())
        return super().configure_optimizers()


def test_what_is_federated_is_known_under_a_plain_trainer_too(tmp_path: Path) -> None:
    loop = FederatedLoop(partial(Looks, network=SmallNet))
    off: Any = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = Trainer(
        max_epochs=1, callbacks=[Exchange(["core"])], default_root_dir=tmp_path, **off
    )
    trainer.fit(loop, datamodule=FederatedData(Made(), batches=4))
    assert [client.state["seen"] for client in loop.federation.values()] == [4] * 3


class Says(FederatedClient):
    """Notes what it is told before it sends, beside what its optimizer counts."""

    def on_send(self, steps: int) -> None:
        counted = max((int(own["step"]) for own in self._optimizers[0].state.values()), default=0)
        self.state.setdefault("told", []).append(steps)
        self.state.setdefault("counted", []).append(counted - self.state.get("before", 0))
        self.state["before"] = counted


class Skips(Says):
    """Birch's second batch of each epoch has nothing to say."""

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        skipped = self.spec.name == "birch" and batch_idx == 1
        return None if skipped else super().training_step(batch, batch_idx)


class Notes(Mean):
    """Notes the steps of updates."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, int]] = []

    def __call__(self, round: Round) -> Any:
        self.steps.append({name: update.steps for name, update in round.updates.items()})
        return super().__call__(round)


CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    # what ash, birch and cedar say in three epochs of four batches each
    "accumulated, each step": (
        {"loop": {"accumulate": 3}, "exchange": {"every": "step"}},
        [[n, n, n] for n in (0, 0, 1, 1) * 3],
    ),
    "every two epochs": ({"exchange": {"every": {"epochs": 2}}}, [[8, 8, 8]]),
    "every five steps": ({"exchange": {"every": {"steps": 5}}}, [[5, 5, 5]] * 2),
    "a batch size, accumulated": (
        {"data": {"batches": None, "batch_size": 8}, "loop": {"accumulate": 4}},
        [[2, 1, 2]] * 3,
    ),
    "steps": ({"data": {"batches": 4, "steps": {"ash": 9, "*": 3}}}, [[9, 3, 3]] * 3),
    "one skips a batch": ({"client": Skips}, [[4, 3, 4]] * 3),
}


def told_of(folder: Path, exchange: dict[str, Any], **options: Any) -> list[dict[str, int]]:
    """The steps that a run's rule was told; each client was told what its optimizer counted."""
    exchange = {"federated": ["core"], "rule": Notes(), **exchange}
    run = trained(folder, **{"client": Says, "exchange": exchange, **options})
    rounds = run.exchange.rule.steps  # type: ignore[attr-defined]
    for name, client in run.loop.federation.items():
        told = client.state.get("told", [])
        assert (
            told == client.state.get("counted", []) == [own[name] for own in rounds if name in own]
        )
    return rounds


@pytest.mark.parametrize("case", CASES)
def test_clients_and_rules_know_steps_since_the_last_exchange(case: str, tmp_path: Path) -> None:
    options, expected = CASES[case]
    rounds = told_of(tmp_path, **{"exchange": {}, **options})
    assert [[own[name] for name in ("ash", "birch", "cedar")] for own in rounds] == expected


def test_a_client_without_a_part_is_not_asked_and_starts_anew(tmp_path: Path) -> None:
    rounds = told_of(tmp_path, {"participation": 0.6}, epochs=6)
    assert [len(own) for own in rounds] == [2] * 6 and len({tuple(own) for own in rounds}) > 1
    assert {steps for own in rounds for steps in own.values()} == {4}
