"""Clients that look alike and are not, or stop being alike: none may be computed as another one."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from fedlit import MLP
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.base import ClientStep, Evaluation, PlainEngine
from fedlit.engine.layers import PlainNetwork
from fedlit.engine.stack_keys import stack_key
from fedlit.engine.stacked import StackedEngine
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec

ROWS = Batch(torch.randn(10, 4), torch.randint(0, 2, (10,)))


def clients_of(count: int, network: NetworkFactory = MLP) -> list[FederatedClient]:
    """Return clients of one structure and of other values, with their optimizers."""
    clients = []
    for number in range(count):
        spec = ClientSpec(f"site{number}", tuple("abcd"), (0, 1), {"train": 10}, ())
        spec = replace(spec, task=replace(spec.task, class_rows=(2, 8)))  # type: ignore[type-var]
        torch.manual_seed(number)
        client = FederatedClient(spec, network)
        client._optimizers = [torch.optim.SGD(client.parameters(), lr=0.1)]
        clients.append(client)
    return clients


def stepped(clients: Sequence[FederatedClient]) -> StackedEngine:
    """Step clients once, stacked where they can be."""
    engine = StackedEngine(PlainEngine(1), nullcontext, False)

    def step_of(client: FederatedClient) -> Callable[[Any], bool]:
        def step(_: Any) -> bool:
            client.descend(client.objective(*ROWS[:2]), client._optimizers, client.clipped_apart())
            return False

        return step

    engine.run({client.spec.name: ClientStep(client, ROWS, step_of(client)) for client in clients})
    return engine


def test_clients_with_and_without_class_weights_share_no_stack() -> None:
    without, weighted = clients_of(2)
    weighted.register_buffer("class_weight", torch.tensor([4.0, 1.0]), persistent=False)
    assert stack_key(without, ROWS) != stack_key(weighted, ROWS)


def test_a_client_with_a_replaced_tensor_is_scored_with_it() -> None:
    clients = clients_of(4)
    engine = stepped(clients)
    assert all(client.stacked for client in clients)
    weight = clients[1].get_parameter("head.weight")
    weight.data = torch.full_like(weight, 3.0)
    for client in clients:
        client.eval()
    jobs = [Evaluation(client, ROWS, lambda c=client: c.evaluate(ROWS)) for client in clients]  # type: ignore[misc]
    engine.evaluate(jobs)
    for client, job in zip(clients, jobs, strict=True):
        scored = job.outcome()[0]
        assert torch.allclose(scored, client.evaluate(ROWS)[0], atol=1e-5)
    assert engine.shared["leavers"] == ["site1"]


@pytest.mark.parametrize("method", ["forward", "loss", "objective", "training_step"])
def test_a_method_of_an_instance_keeps_its_client_alone(method: str) -> None:
    (client,) = clients_of(1)
    assert stack_key(client, ROWS) is not None and PlainNetwork.of_client(client) is not None
    setattr(client, method, getattr(client, method))
    assert stack_key(client, ROWS) is None and PlainNetwork.of_client(client) is None


def test_a_client_with_a_hook_is_scored_with_it() -> None:
    clients = clients_of(4)
    engine = stepped(clients)
    for client in clients:
        client.eval()
    clients[1].head.register_forward_hook(lambda module, x, outputs: -outputs)
    jobs = [Evaluation(client, ROWS, lambda c=client: c.evaluate(ROWS)) for client in clients]  # type: ignore[misc]
    engine.evaluate(jobs)
    for client, job in zip(clients, jobs, strict=True):
        assert torch.allclose(job.outcome()[0], client.evaluate(ROWS)[0], atol=1e-5)


@pytest.mark.parametrize("lengths", [[10, 10, 10, 10], [10, 7, 1, 9], [40, 1, 1, 1]])
def test_a_stack_scores_each_client_as_it_is_scored_alone(lengths: list[int]) -> None:
    """With batches of several lengths, unknown labels, and a client that knows none."""
    clients = clients_of(4)
    engine = stepped(clients)
    batches = []
    for client, length in zip(clients, lengths, strict=True):
        client.eval()
        y = torch.randint(-1, 2, (length,))
        batches.append(Batch(torch.randn(length, 4), y))
    batches[1].y.fill_(-1)
    jobs = []
    for client, batch in zip(clients, batches, strict=True):
        jobs.append(Evaluation(client, batch, partial(client.evaluate, batch)))
    engine.evaluate(jobs)
    for client, job, batch in zip(clients, jobs, batches, strict=True):
        for actual, expected in zip(job.outcome(), client.evaluate(batch), strict=True):
            assert actual.shape == expected.shape
            assert torch.allclose(actual, expected, atol=1e-5, equal_nan=True)


def test_a_stack_scores_by_a_method_of_one_instance() -> None:
    clients = clients_of(4)
    vars(clients[2])["predict"] = torch.zeros_like
    engine = stepped(clients)
    for client in clients:
        client.eval()
    jobs = [Evaluation(client, ROWS, partial(client.evaluate, ROWS)) for client in clients]
    engine.evaluate(jobs)
    for client, job in zip(clients, jobs, strict=True):
        assert torch.allclose(job.outcome()[0], client.evaluate(ROWS)[0], atol=1e-5)


def test_a_module_that_comes_twice_is_computed_twice() -> None:
    def network(inputs: int, outputs: int) -> MLP:
        made = MLP(inputs, outputs)
        activation = made.core[1]  # type: ignore[index]
        made.core = nn.Sequential(made.core[0], activation, made.core[2], activation)  # type: ignore[index]
        return made

    (client,) = clients_of(1, network)
    plain = PlainNetwork.of_client(client)
    (usual,) = clients_of(1)
    counted = PlainNetwork.of_client(usual)
    assert plain is not None and counted is not None
    assert len(plain.layers) == len(client.core) + len(counted.layers) - len(usual.core)  # type: ignore[arg-type]


def test_a_copy_of_a_client_holds_no_row_of_others_batches() -> None:
    (client,) = clients_of(1)
    everybody = torch.randn(4, 10, 4)
    client.kept = {"batches": [Batch(everybody[1], ROWS.y)]}  # type: ignore[assignment]
    twin = copy.deepcopy(client)
    for state in (vars(twin), client.__getstate__()):
        (batch,) = state["kept"]["batches"]
        assert torch.equal(batch.x, everybody[1])
        assert batch.x.untyped_storage().nbytes() == batch.x.nbytes


def test_copies_keep_what_belongs_together() -> None:
    (client,) = clients_of(1)
    twin, parameters = copy.deepcopy((client, list(client.parameters())))
    assert all(mine is listed for mine, listed in zip(twin.parameters(), parameters, strict=True))
