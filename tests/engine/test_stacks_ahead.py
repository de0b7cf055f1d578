"""Stacks on a device that runs ahead, such as a GPU, as a CPU shows them: larger batches, batches of
several lengths, larger stacks, and dropout from counters."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Spy, alike, close
from torch import nn
from torch.overrides import TorchFunctionMode
from unread import READING, Unread

from fedlit import MLP, FedProx
from fedlit import seeding as seeding_module
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine import stack_keys as stack_keys_module
from fedlit.engine import stack_sizes as stack_sizes_module
from fedlit.engine import trial as trial_module
from fedlit.engine.base import ClientStep, PlainEngine
from fedlit.engine.stacked import StackedEngine
from fedlit.exchange import exchange as exchange_module
from fedlit.seeding import Counters
from fedlit.spec import ClientSpec
from fedlit.tasks import Classification, Regression, Task

MODULES = (
    stack_keys_module,
    stack_sizes_module,
    trial_module,
    seeding_module,
    exchange_module,
)
CPU = torch.device("cpu")
Federation = list[tuple[FederatedClient, Batch]]


@pytest.fixture(autouse=True)
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats the CPU as a device that runs ahead."""
    for module in MODULES:
        monkeypatch.setattr(module, "runs_ahead", lambda device: True)


def federation(lengths: Sequence[int], network: Any = MLP, task: Task | None = None) -> Federation:
    """Return clients of one structure, each with a batch of its own."""
    task = task or Classification((0, 1, 2))
    clients = []
    for number, length in enumerate(lengths):
        torch.manual_seed(number)
        spec = ClientSpec(f"site{number:02d}", tuple("abcd"), task.classes, {}, (), task=task)
        client = FederatedClient(spec, network)
        client._optimizers = [torch.optim.SGD(client.parameters(), lr=0.1, momentum=0.9)]
        y = torch.randint(0, 3, (length,))
        clients.append((client, Batch(torch.randn(length, 4), y if task.classes else y.float())))
    return clients


def stepped(
    clients: Federation, steps: int = 3, engine: StackedEngine | None = None
) -> StackedEngine:
    """Step clients, stacked where they can be."""
    engine = engine or StackedEngine(PlainEngine(1), nullcontext, False)

    def step_of(client: FederatedClient, batch: Batch) -> Callable[[Any], bool]:
        def step(_: Any) -> bool:
            client.descend(client.objective(*batch[:2]), client._optimizers, [])
            return False

        return step

    for number in range(steps):
        engine.run(
            {
                client.spec.name: ClientStep(
                    client, batch, step_of(client, batch), seed=partial(hash, (index, number))
                )
                for index, (client, batch) in enumerate(clients)
            }
        )
    return engine


def alone(clients: Federation, steps: int = 3) -> Federation:
    """Return copies of clients, stepped one by one in plain torch."""
    copies = [(copy.deepcopy(client), batch) for client, batch in clients]
    for client, batch in copies:
        optimizer = torch.optim.SGD(client.parameters(), lr=0.1, momentum=0.9)
        for _ in range(steps):
            optimizer.zero_grad()
            client.objective(*batch[:2]).backward()
            optimizer.step()
    return copies


def agree(clients: Federation, others: Federation) -> None:
    for (client, _), (other, _) in zip(clients, others, strict=True):
        for name, value in client.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "network", [MLP, partial(MLP, norm="batch"), partial(MLP, hidden=[300, 300])]
)
def test_batches_of_more_than_256_rows_are_stacked(network: Any) -> None:
    clients = federation([300] * 6, network)
    expected = alone(clients)
    assert len(stepped(clients)._stacks) == 1
    agree(clients, expected)


@pytest.mark.parametrize("task", [Classification((0, 1, 2)), Regression("huber")])
@pytest.mark.parametrize("weighted", [False, True])
def test_shorter_batches_are_padded(task: Task, weighted: bool) -> None:
    clients = federation([5, 12, 9, 1], task=task)
    if weighted and task.classes:
        for client, _ in clients:
            client.class_weight = torch.tensor([1.0, 3.0, 0.5])
    expected = alone(clients)
    engine = stepped(clients)
    assert len(engine._stacks) == 1
    agree(clients, expected)


def test_statistics_of_a_batch_are_not_padded() -> None:
    clients = federation([5, 12, 12, 12, 12], partial(MLP, norm="batch"))
    expected = alone(clients)
    (names, _), *rest = stepped(clients)._stacks.values()
    assert names == ["site01", "site02", "site03", "site04"] and not rest
    agree(clients, expected)


def test_many_clients_are_one_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_sizes_module, "LARGEST_STACK", 4096)
    clients = federation([7] * 40)
    expected = alone(clients)
    engine = stepped(clients)
    assert [len(names) for names, _ in engine._stacks.values()] == [40]
    agree(clients, expected)


def test_counters_draw_the_numbers_of_splitmix64() -> None:
    """As published for the seed 1234567, whatever the other clients are and in whatever parts."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    counters = Counters([7, 1234567, -1], CPU)
    drawn = torch.cat([counters.integers(1), counters.integers(3)], 1)
    assert [number % 2**64 for number in drawn[1].tolist()] == published
    counters.set_state(1)
    assert torch.equal(counters.integers(3), drawn[:, 1:])


def test_counters_choose_a_share_of_the_numbers() -> None:
    chosen = Counters(range(100), CPU).chosen(torch.zeros(100, 50, 40), 0.7)
    assert chosen.unique().tolist() == [0.0, 1.0]
    assert float(chosen.mean()) == pytest.approx(0.7, abs=0.005)
    assert float(chosen.mean((1, 2)).std()) == pytest.approx((0.7 * 0.3 / 2000) ** 0.5, rel=0.3)
    correlation = torch.corrcoef(chosen.flatten(1)).fill_diagonal_(0.0)
    assert float(correlation.abs().max()) < 0.12


class Doubled(nn.Module):
    """Not a plain layer, so that ``vmap`` computes the stack."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def doubled(num_features: int, num_outputs: int) -> MLP:
    network = MLP(num_features, num_outputs, dropout=0.4)
    network.head = nn.Sequential(Doubled(), network.head)
    return network


@pytest.mark.parametrize("network", [partial(MLP, dropout=0.4), doubled])
def test_dropout_of_a_client_does_not_depend_on_its_stack(network: Any) -> None:
    many = federation([9] * 12, network)
    few = federation([9] * 6, network)
    dry = federation([9] * 6, network)
    assert len(stepped(many)._stacks) == len(stepped(few)._stacks) == 1
    agree(few, many[:6])
    for client, _ in dry:
        client.eval()
    stepped(dry)
    with pytest.raises(AssertionError, match="Tensor-likes"):
        agree(few, dry)


class Reads(TorchFunctionMode):
    """Counts how often values are read."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += getattr(func, "__name__", "") in READING
        return func(*args, **(kwargs or {}))


def test_a_new_cohort_is_read_once() -> None:
    clients = federation([7] * 12)
    for client, _ in clients:
        client._optimizers = [torch.optim.AdamW(client.parameters(), fused=True)]
    engine = stepped(clients)
    for cohort in (clients[:8], clients[2:10]):
        with Reads() as reads:
            stepped(cohort, 1, engine)
        assert reads.count == 1
        assert len(engine._stacks) == 1


@pytest.mark.parametrize("client", [FederatedClient, FedProx])
def test_a_run_with_dropout_is_stacked_and_reads_nothing(client: Any, tmp_path: Path) -> None:
    def run(folder: str) -> Any:
        spy = Spy()
        watch = Unread()
        made = alike(
            tmp_path / folder,
            client=client,
            network=partial(MLP, hidden=[8, 8], dropout=0.3),
            exchange={"federated": ["core"], "every": "step"},
            callbacks=[spy, watch],
        )
        made.fit(quiet=True)
        assert spy.stacks and watch.steps > 0
        return made

    assert close(run("first"), run("second"))
