"""Engines: side by side gives the bits of one after another; stacks of alike clients agree with
each client alone."""

import copy
import gc
import logging
import threading
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import one_in
from federations import (
    METHODS,
    SEVEN,
    Dry,
    Killed,
    SmallNet,
    Spy,
    alike,
    close,
    different,
    dry,
    trained,
    weights,
)
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn

from fedlit import APFL, MLP, FedProx, GlobalLayers, IFedAvg, Network
from fedlit.client.build import ClientOverride
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine import stack_sizes as stack_sizes_module
from fedlit.engine.base import ClientStep, PlainEngine, ThreadedEngine
from fedlit.engine.layers import PlainNetwork
from fedlit.engine.leaving import LEFT
from fedlit.engine.make import make_engine
from fedlit.engine.stack import Stack
from fedlit.engine.stack_keys import stack_key
from fedlit.engine.stack_sizes import LEAST_FOR_THREADS
from fedlit.engine.stacked import StackedEngine
from fedlit.spec import ClientSpec
from fedlit.tasks import Classification, Regression, Task
from fedlit.train import checkpoint_file
from fedlit.train.personal import FineTune, Then


class Watched(FederatedClient):
    """Says on which thread it was stepped."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.state.setdefault("threads", []).append(threading.current_thread().name)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("method", one_in(15, [name for name in METHODS if name != "centralized"]))
def test_auto_has_the_bits_of_threads_and_plain_is_close(method: str, tmp_path: Path) -> None:
    """Other numbers of threads give the same bits: contract/test_contract.py."""
    one, auto, plain = (
        trained(tmp_path / engine, **dry(METHODS[method], engine, workers))
        for engine, workers in (("threads", 1), ("auto", 3), ("plain", 1))
    )
    assert different(weights(one), weights(auto)) == [] and close(plain, one)


def test_threads_are_really_used_and_the_first_step_is_plain(tmp_path: Path) -> None:
    for engine, plain in (("threads", [0]), ("auto", [0, 1, 2, 3, 4])):
        run = trained(tmp_path, **dry({"client": Watched}, engine, 2), epochs=2)
        for client in run.loop.federation.values():
            steps = enumerate(client.state["threads"][:5])
            assert [step for step, name in steps if not name.startswith("fedlit")] == plain


def test_a_client_with_dropout_is_found_and_stepped_plainly(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "loop": {"client": partial(Watched, network=SmallNet), "engine": "auto", "threads": 2}
    }
    run = trained(tmp_path / "auto", **options)
    assert set(run.loop.federation["ash"].state["threads"]) == {"MainThread"}
    reference = trained(tmp_path / "one", client=Watched)  # one thread
    assert different(weights(reference), weights(run)) == []
    options["loop"]["engine"] = "threads"
    # fused optimizers round otherwise: compared with the same engine on one thread
    threaded = trained(tmp_path / "threads", **options)
    alone = trained(tmp_path / "alone", loop={**options["loop"], "threads": 1})
    assert different(weights(alone), weights(threaded)) == [] and close(reference, threaded)
    assert set(threaded.loop.federation["ash"].state["threads"]) == {"MainThread"}


def test_a_resumed_run_keeps_engine_and_threads(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1, **dry({}, "plain", 1))
    resumed = trained(tmp_path, "last", epochs=2, **dry({}, "threads", 3))
    assert (resumed.loop.engine_name, resumed.loop.threads) == ("plain", 1)


def test_threads_are_shared_out() -> None:
    cpu = torch.device("cpu")
    make = partial(make_engine, scope=nullcontext)
    assert (
        isinstance(make("auto", 1, 8, cpu), PlainEngine) and make("auto", 1, 8, cpu).intra_op == 8
    )
    engine = make("auto", 3, 2, cpu)
    assert isinstance(engine, ThreadedEngine) and engine.workers == 2 and engine.intra_op == 1
    assert isinstance(make("auto", 3, 16, torch.device("cuda")), PlainEngine)
    assert isinstance(make("threads", 4, 16, cpu), ThreadedEngine)
    stacked = make("auto", 4, 1, cpu)
    assert isinstance(stacked, StackedEngine) and isinstance(stacked.inner, PlainEngine)


class Asks(FederatedClient):
    """Its loss uses something of its own, and it does not say that it may be stacked."""

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return super().loss(logits, y) * (1 + len(self.spec.name))


class Says(FederatedClient):
    stackable = True

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return super().loss(logits, y) * 0.5


@pytest.mark.parametrize("client", [Asks, Says, FedProx])
def test_a_subclass_is_stacked_only_if_it_says_so(
    client: type[FederatedClient], tmp_path: Path
) -> None:
    spy = Spy()
    exchange = {"federated": ["core"]}
    stacked = alike(tmp_path / "a", client=client, callbacks=[spy], exchange=exchange)
    stacked.fit(quiet=True)
    assert bool(spy.stacks) == (client is not Asks)
    plain = alike(tmp_path / "b", "plain", client=client, exchange=exchange)
    plain.fit(quiet=True)
    assert close(plain, stacked)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().sum()) > 0 else -x


class Asking(Network):
    """Branches on its values, which a stack cannot."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        first = nn.Sequential(nn.Linear(num_features, 4), Branch())
        super().__init__(first, nn.Linear(4, 4), nn.Linear(4, num_outputs))


def test_what_cannot_be_stacked_is_said_and_stepped_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fedlit"):
        run = alike(tmp_path / "a", network=Asking)
        run.fit(quiet=True)
    said = [record.getMessage() for record in caplog.records if "one by one" in record.getMessage()]
    assert len(said) == 1 and "item" in said[0] and "site0 and 5 clients like it" in said[0]
    plain = alike(tmp_path / "b", "plain", network=Asking)
    plain.fit(quiet=True)
    assert close(plain, run)


BINARY = Classification((0, 1))


def client(
    name: str, network: Any, task: Task = BINARY, rows: int = 12
) -> tuple[FederatedClient, Batch]:
    torch.manual_seed(sum(map(ord, name)))
    made = FederatedClient(
        ClientSpec(name, ("a", "b", "c"), task.classes, {}, (), task=task), network
    )
    made._optimizers = [torch.optim.AdamW(made.parameters(), lr=0.01)]
    return made, Batch(torch.randn(rows, 3), torch.arange(rows) % max(1, len(task.classes)))


def test_clients_match_by_shape_settings_and_optimizer() -> None:
    base = stack_key(*client("a", Dry))
    assert base is not None and stack_key(*client("b", Dry)) == base
    assert base not in (
        stack_key(*client("b", Dry, rows=11)),
        stack_key(*client("b", Dry, Classification((0, 1, 2)))),
    )
    # a regressor's network has the same shape, and another loss; its unit does not matter
    batch = client("b", Dry)[1]
    numbers = (Regression(), Regression(mean=5.0), Regression("huber"))
    keys = [
        stack_key(client("b", Dry, task)[0], Batch(batch.x, batch.y.float())) for task in numbers
    ]
    assert keys[0] == keys[1] and len({base, *keys}) == 3
    watched, batch = client("b", Dry)
    watched.core.register_forward_hook(lambda *_: None)
    assert stack_key(watched, batch) is None
    lbfgs, batch = client("b", Dry)
    lbfgs._optimizers = [torch.optim.LBFGS(lbfgs.parameters())]
    assert stack_key(lbfgs, batch) is None
    assert stack_key(*client("b", Dry, rows=1000)) is None
    negative: list[Any] = []
    for slope in (0.1, 0.2):
        activation = nn.LeakyReLU(slope)
        network = Network(nn.Linear(3, 3), activation, nn.Linear(3, 2))
        made, batch = client("c", lambda d, k, network=network: network)
        negative.append(stack_key(made, batch))
    assert negative[0] != negative[1]


def test_a_stack_may_be_used_on_several_threads_at_once() -> None:
    made = [client(name, Dry, rows=10) for name in "abcd"]
    batches = [batch for _, batch in made]
    stack = Stack([own.eval() for own, _ in made])
    expected = [own.evaluate(batch)[0] for own, batch in made]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(stack.evaluate, batches) for _ in range(40)]
        single = [pool.submit(made[0][0].evaluate, batches[0]) for _ in range(40)]
        for job in jobs:
            for (found, _), one in zip(job.result(), expected, strict=True):
                torch.testing.assert_close(found, one, rtol=1e-5, atol=1e-6)
        assert all(torch.equal(job.result()[0], expected[0]) for job in single)


SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


class Scaled(nn.Module):
    """Has a parameter of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Remembers(nn.Module):
    """Assigns its buffer instead of changing it in place."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


def networks(num_features: int, num_outputs: int, special: str) -> Network:
    middle: dict[str, nn.Module] = {
        "scalar": Scaled(),
        "assigned buffer": Remembers(),
        "no running statistics": nn.BatchNorm1d(4, track_running_stats=False),
        "tied": nn.Linear(4, 4),
    }
    core = nn.Sequential(middle.get(special, nn.Tanh()), nn.Linear(4, 4))
    network = Network(nn.Linear(num_features, 4), core, nn.Linear(4, num_outputs))
    if special == "frozen":
        network.encoder.requires_grad_(False)
    if special == "unused":
        core.register_parameter("idle", nn.Parameter(torch.zeros(3)))
    if special == "tied":
        core[0].weight = core[1].weight
    return network


Drops = partial(MLP, hidden=[8, 8], dropout=0.3, input_dropout=0.2)
Frozen = partial(GlobalLayers, global_features=2, width=4, blocks=1, heads=2, norm="frozen")
CORE = {"federated": ["core"]}
SOME: dict[str, Any] = {"loop": {"optimizer": SGD}, "epochs": 5}
SPECIAL = ["frozen", "scalar", "assigned buffer", "no running statistics", "tied", "unused"]
AGREEING: dict[str, dict[str, Any]] = {
    "local": {},
    "every step": {"exchange": {"federated": ["core"], "every": "step"}},
    "buffers": {"exchange": {"federated": ["core"], "every": {"steps": 3}, "buffers": "average"}},
    "clipped": {"loop": {"gradient_clip_val": 0.05}},
    "accumulated": {"loop": {"accumulate": 3}},
    "schedule": {"loop": {"scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)}},
    "momentum": {"loop": {"optimizer": partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True)}},
    # cohorts
    "some, moments of a round": {**SOME, "exchange": {**CORE, "participation": 0.7, "every": {"epochs": 2}}},
    "some, reset": {**SOME, "exchange": {**CORE, "participation": 0.7, "optimizer_state": "reset", "rate": 0.5}},
    "some, accumulated": {
        **SOME, "loop": {"optimizer": SGD, "accumulate": 2},
        "exchange": {**CORE, "participation": 0.7, "every": "step"},
    },
    # a client's last batch of the epoch steps its optimizer, in the middle of what others
    # accumulate
    "other steps": {
        "network": Drops, "data": {"steps": {"site4": 5, "*": 8}}, "loop": {"accumulate": 4, "optimizer": SGD},
    },
    # its optimizer has no state
    "plain descent": {"loop": {"optimizer": partial(torch.optim.SGD, lr=0.05)}},
    "batch norm": {"network": partial(MLP, hidden=[8, 8], norm="batch"), "loop": {"optimizer": SGD}},
    # the same units fall
    "dropout": {"network": Drops},
    # of each client its own: the template of a stack is the first
    "weighted classes": {"network": Drops, "client": partial(FederatedClient, class_weights="balanced")},
    "apfl": {"network": Drops, "client": partial(APFL, alpha=0.3), "exchange": CORE},
    "ifedavg": {"network": Drops, "client": partial(IFedAvg, lr_factor=3.0), "exchange": CORE},
    "ifedavg, a scalar": {"network": Drops, "client": partial(IFedAvg, outputs="scalar"), "exchange": CORE},
    "global layers": {"network": partial(Frozen, dropout=0.3)},
    # networks that a stack must treat as each alone does
    **{
        special: {"network": partial(networks, special=special), "loop": {"optimizer": SGD, "gradient_clip_val": clip}}
        for special, clip in zip(SPECIAL, [None, 0.05] * 3, strict=True)
    },
}  # fmt: skip


@pytest.mark.parametrize("case", one_in(3, AGREEING))
def test_a_stack_agrees_with_one_after_another(case: str, tmp_path: Path) -> None:
    plain = alike(tmp_path / "plain", "plain", **AGREEING[case])
    stacked = alike(tmp_path / "stacked", **AGREEING[case])
    expected = plain.fit(quiet=True)
    found = stacked.fit(quiet=True)
    assert close(plain, stacked) and stacked.loop.federation.step == plain.loop.federation.step
    for name, client in stacked.loop.federation.items():
        assert expected.scores[name]["loss"] == pytest.approx(found.scores[name]["loss"], rel=1e-4)
        if case != "tied":  # afterwards each owns its tensors
            own = (*client.parameters(), *client.buffers())
            assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in own)


ROWS = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
PLAIN: dict[str, tuple[Any, Task, Tensor]] = {
    "binary": (partial(MLP, hidden=[5, 4], norm="batch"), BINARY, torch.arange(9) % 2),
    "classes": (partial(MLP, hidden=[5]), Classification((0, 1, 2)), torch.arange(9) % 3),
    "huber": (partial(MLP, hidden=[5], activation="tanh"), Regression("huber"), ROWS[:, 0]),
}


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("case", PLAIN)
def test_plain_layers_give_each_client_its_gradient(case: str, balanced: bool) -> None:
    network, task, y = PLAIN[case]
    made = [client(name, network, task)[0] for name in "abcd"]
    if balanced and task.classes:
        for position, one in enumerate(made):
            one.class_weight = torch.arange(1.0, len(task.classes) + 1) + position
    alone = [copy.deepcopy(one) for one in made]
    for one in alone:
        one.objective(ROWS, y).backward()
    stack = Stack(made)
    assert isinstance(stack.network, PlainNetwork)
    stack.step(Batch(ROWS.repeat(4, 1), y.repeat(4)), update=False)
    for position, one in enumerate(alone):
        for name, parameter in one.named_parameters():
            found = stack.parameters[name].grad
            assert found is not None and parameter.grad is not None
            torch.testing.assert_close(found[position], parameter.grad, rtol=1e-4, atol=1e-6)
        for name, buffer in one.named_buffers():
            torch.testing.assert_close(stack.buffers[name][position], buffer)


def halved(*arguments: Any) -> Tensor:
    """Return half of the last argument: half of a layer's output."""
    half: Tensor = arguments[-1] / 2
    return half


def replace_module(client: Any) -> None:
    torch.manual_seed(0)
    client.head = nn.Linear(client.head.in_features, client.head.out_features)


def replace_forward(client: Any) -> None:
    forward = client.forward
    client.forward = lambda x: forward(x) / 2


def replace_forward_of_a_layer(client: Any) -> None:
    forward = client.head.forward
    client.head.forward = lambda x: forward(x) / 2


DIFFERENT: dict[str, Callable[[Any], Any]] = {
    "memory": lambda client: setattr(client.head.bias, "data", client.head.bias + 0.5),
    "parameter": lambda client: setattr(
        client.head, "bias", nn.Parameter(client.head.bias.detach() + 0.5)
    ),
    "module": replace_module,
    "hook": lambda client: client.head.register_forward_hook(halved),
    "hook of a gradient": lambda client: client.head.weight.register_hook(halved),
    "mode": lambda client: client.encoder.eval(),
    "forward": replace_forward,
    "forward of a layer": replace_forward_of_a_layer,
}


class Replaces(Callback):
    """Makes one client different from those that it is stacked with."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == 3:
            DIFFERENT[self.how](pl_module.federation["site2"])


@pytest.mark.parametrize("how", DIFFERENT)
def test_a_client_that_becomes_different_leaves_its_stack(how: str, tmp_path: Path) -> None:
    spy = Spy()
    network = partial(MLP, hidden=[5, 4], norm="batch")
    # Adam would amplify rounding where a normalisation makes a gradient zero.
    options: dict[str, Any] = {"network": network, "loop": {"optimizer": SGD}}
    plain = alike(tmp_path / "plain", "plain", callbacks=[Replaces(how)], **options)
    stacked = alike(tmp_path / "stacked", callbacks=[Replaces(how), spy], **options)
    plain.fit(quiet=True)
    stacked.fit(quiet=True)
    assert spy.stacks == [["site0", "site1", "site3", "site4", "site5"]]
    assert close(plain, stacked)


def clamps(parameters: Any) -> torch.optim.Optimizer:
    """Return an optimizer with a hook that keeps its parameters small."""
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def clamp(*_: Any) -> None:
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.data.clamp_(-0.05, 0.05)

    optimizer.register_step_post_hook(clamp)
    return optimizer


def some(parameters: Any) -> torch.optim.Optimizer:
    """Return an optimizer of all parameters but those of the first layer."""
    return torch.optim.SGD(list(parameters)[2:], lr=0.1)


TWO = partial(MLP, hidden=[8, 8])
PULLED = partial(FedProx, network=TWO)
ONE_DIFFERS: dict[str, dict[str, Any]] = {
    "coefficient": {
        "client": partial(PULLED, mu=0.5),
        "overrides": {"site2": ClientOverride(client=partial(PULLED, mu=3.0))},
    },
    "parameters of the optimizer": {"overrides": {"site2": ClientOverride(optimizer=some)}},
    "parameters of the first optimizer": {"overrides": {"site0": ClientOverride(optimizer=some)}},
    "hook of the optimizer": {"overrides": {"site2": ClientOverride(optimizer=clamps)}},
    # what a coefficient means may change
    "nobody, until fine-tuning": {
        "client": partial(PULLED, mu=2.0), "then": Then(FineTune(epochs=3, lr=0.1)),
    },
}  # fmt: skip


def assert_plain_equals_stacked(folder: Path, options: dict[str, Any]) -> None:
    """Train the same clients one by one and stacked, and compare their weights."""
    plain = alike(folder / "plain", "plain", **options)
    stacked = alike(folder / "stacked", **options)
    plain.fit(quiet=True)
    stacked.fit(quiet=True)
    assert close(plain, stacked, 1e-5)


@pytest.mark.parametrize("what", ONE_DIFFERS)
def test_clients_that_differ_in_one_setting_share_no_stack(what: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "network": TWO,
        "exchange": CORE,
        "loop": {"optimizer": SGD, **ONE_DIFFERS[what]},
    }
    assert_plain_equals_stacked(tmp_path, options)


def other_dropout(client: Any) -> None:
    for module in client.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.05


def other_momentum(client: Any) -> None:
    for state in client._optimizers[0].state.values():
        state["momentum_buffer"] = torch.zeros_like(state["momentum_buffer"])


def loaded_momentum(client: Any) -> None:
    saved = copy.deepcopy(client._optimizers[0].state_dict())
    for state in saved["state"].values():
        state["momentum_buffer"].zero_()
    client._optimizers[0].load_state_dict(saved)


def another_group(client: Any) -> None:
    client._optimizers[0].add_param_group({"params": [*client.encoder.parameters()], "lr": 0.02})


class Itself(nn.Module):
    """Is no layer that a stack knows, so that the stack computes the network by ``vmap``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def any_layers(num_features: int, num_outputs: int) -> Network:
    first = nn.Sequential(nn.Linear(num_features, 8), Itself(), nn.Dropout(0.4))
    return Network(first, nn.Linear(8, 8), nn.Linear(8, num_outputs))


CHANGES: dict[str, tuple[Callable[[Any], None], Any, Any]] = {
    "dropout": (other_dropout, partial(TWO, dropout=0.4), SGD),
    "dropout, by vmap": (other_dropout, any_layers, SGD),
    "momentum": (other_momentum, TWO, SGD),
    "state of an optimizer": (loaded_momentum, TWO, SGD),
    "groups of an optimizer": (another_group, TWO, some),
}


class Changes(Callback):
    """Changes some clients within a run."""

    def __init__(self, how: str, clients: Sequence[str]) -> None:
        self.change = CHANGES[how][0]
        self.clients = clients

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == 3:
            for name in self.clients:
                self.change(pl_module.federation[name])


@pytest.mark.parametrize("clients", [("site2",), SEVEN], ids=["one", "all"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_setting_that_is_changed_within_a_run_counts(
    how: str, clients: Sequence[str], tmp_path: Path
) -> None:
    _, network, optimizer = CHANGES[how]
    options: dict[str, Any] = {
        "network": network,
        "loop": {"optimizer": optimizer},
        "callbacks": [Changes(how, clients)],
    }
    assert_plain_equals_stacked(tmp_path, options)


def test_collected_garbage_is_as_before_once_a_run_ends(tmp_path: Path) -> None:
    frozen = gc.get_freeze_count()
    trained(tmp_path, **dry({}, "auto", 1), epochs=1)
    assert gc.get_freeze_count() == frozen


class Kills(Callback):
    """Ends a run in its last epoch."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.current_epoch == 2:
            raise Killed


@pytest.mark.parametrize("how", ["memory", "parameter", "hook"])
def test_a_client_that_left_its_stack_is_a_finding(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = alike(tmp_path, callbacks=[Replaces(how)])
    with caplog.at_level(logging.WARNING, "fedlit"):
        results = run.fit(quiet=True)
    (finding,) = run.loop.federation.findings
    assert (finding.kind, finding.clients, finding.severity) == (LEFT, ("site2",), "info")
    assert [str(finding)] == results.to_dict()["findings"]
    assert len([line for line in caplog.messages if "site2" in line]) == 1
    scored = alike(tmp_path).test(quiet=True)
    assert [str(finding)] == scored.to_dict()["findings"]
    assert run.folder is not None
    saved = checkpoint_file.load(run.folder / "checkpoints" / "last.ckpt")["fedlit"]["stacks"]
    assert saved is not None and saved["leavers"] == ([] if how == "hook" else ["site2"])


def test_a_run_killed_after_a_client_left_has_the_same_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = alike(tmp_path / "whole", callbacks=[Replaces("memory")])
    whole.fit(quiet=True)
    with pytest.raises(Killed):
        alike(tmp_path / "killed", callbacks=[Replaces("memory"), Kills()]).fit(quiet=True)
    caplog.clear()
    spy = Spy()
    resumed = alike(tmp_path / "killed", callbacks=[spy])
    resumed.fit("last", quiet=True)
    assert spy.stacks == [["site0", "site1", "site3", "site4", "site5"]]
    assert different(weights(whole), weights(resumed)) == []
    assert resumed.loop.federation.findings == whole.loop.federation.findings
    assert not [line for line in caplog.messages if "site2" in line]


WORK = {"small": (8, 10), "large": (600, 40)}


@pytest.mark.parametrize("size", WORK)
def test_threads_step_side_by_side_by_the_size_of_steps(size: str) -> None:
    width, rows = WORK[size]
    made = [client(name, partial(MLP, hidden=[width, width]), rows=rows) for name in "ab"]
    used: list[str] = []

    def step(_: bool) -> bool:
        used.append(threading.current_thread().name)
        return False

    steps = {one.spec.name: ClientStep(one, batch, step, dry=True) for one, batch in made}
    numbers = sum(parameter.numel() for parameter in made[0][0].parameters())
    engine = make_engine("auto", 2, 2, torch.device("cpu"), nullcontext)
    for _ in range(6):
        engine.run(steps)
    engine.close()
    side_by_side = numbers * rows >= LEAST_FOR_THREADS
    assert side_by_side == (size == "large")
    assert {"fedlit" in name for name in used} == {side_by_side}


def test_stacks_are_divided_by_bytes_and_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [client(f"c{number:03d}", Dry) for number in range(70)]
    steps = {one.spec.name: ClientStep(one, batch, lambda seeded: False) for one, batch in made}
    inner = PlainEngine(1)
    sizes = {}
    size = sum(parameter.nbytes for parameter in made[0][0].parameters())
    for threads, largest in ((1, 2**26), (2, 2**26), (8, 2**26), (1, 20 * size)):
        monkeypatch.setattr(stack_sizes_module, "LARGEST_STACK", largest)
        engine = StackedEngine(inner, nullcontext, compiled=False, threads=threads)
        engine.run(steps)
        sizes[threads, largest] = [len(names) for names, _ in engine._stacks.values()]
        engine.close()
    assert list(sizes.values()) == [[70], [35, 35], [35, 35], [17, 18, 17, 18]]


def test_a_copy_or_pickle_of_a_stacked_client_holds_no_other(tmp_path: Path) -> None:
    network = partial(MLP, hidden=[5, 4], norm="batch")
    made = [client(name, network)[0] for name in "abcd"]
    stack = Stack(made)
    stack.step(Batch(torch.randn(36, 3), torch.arange(36) % 2))
    stack.report()
    made[0].state["row"] = stack.buffers["encoder.0.norm.running_mean"][0]
    twin = copy.deepcopy(made[0])
    before = {name: value.clone() for name, value in made[1].state_dict().items()}
    tensors = [*twin.parameters(), *twin.buffers(), twin.state["row"], *twin._logged["loss"]]
    for state in twin._optimizers[0].state.values():
        tensors += [value for value in state.values() if isinstance(value, Tensor)]
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors)
    assert [*twin._optimizers[0].state] == [*twin.parameters()]
    for tensor in tensors:
        tensor.data.fill_(7)
    for one, state in ((made[0], twin.state_dict()), (made[1], before)):
        same = [torch.equal(value, state[name]) for name, value in one.state_dict().items()]
        assert all(same) == (one is made[1])
    torch.save(made[0], tmp_path / "client.pt")
    with zipfile.ZipFile(tmp_path / "client.pt") as archive:
        content = b"".join(map(archive.read, archive.namelist()))
    for one in made:
        found = one.get_parameter("core.0.linear.weight").detach().numpy().tobytes() in content
        assert found == (one is made[0])
