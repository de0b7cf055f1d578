"""iFedAvg: identity start, what is private, what moves when, and that a flipped label turns the output round."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import Made, make_run

from fedlit.data.loader import Batch
from fedlit.data.shaping.mutations import Mutation
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.methods import IFedAvg
from fedlit.nn import MLP
from fedlit.run.run import Run
from fedlit.spec import ClientSpec

SPEC = ClientSpec("ash", ("a", "b", "c"), (0, 1, 2), {}, (), (5, 5, 5))


def build(**options: Any) -> IFedAvg:
    return IFedAvg(SPEC, partial(MLP, hidden=[4]), **options)


def test_its_learning_rate_is_a_multiple_and_decay_never_pulls_it_to_zero() -> None:
    client = build(lr_factor=5.0)
    client.optimizer_factory = partial(torch.optim.SGD, lr=0.1, weight_decay=0.5)
    client.scheduler_factory = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.1)
    configured = client.configure_optimizers()
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    before = {name: value.clone() for name, value in client.named_parameters()}
    loss = client.training_step(Batch(torch.randn(8, 3), torch.arange(8) % 3), 0)
    loss.backward()
    for value in client.parameters():
        value.grad.zero_()  # type: ignore[union-attr]
    optimizer.step()
    after = dict(client.named_parameters())
    assert torch.equal(after["affine_in.weight"], before["affine_in.weight"])
    assert torch.allclose(after["head.weight"], 0.95 * before["head.weight"])
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.05])


class Alike(Made):
    """Eight clients of one distribution and two classes."""

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for number in range(8):
            rng = np.random.default_rng(100 * seed + number)
            x = rng.normal(size=(160, 3))
            y = (2 * x[:, 0] - x[:, 1] + rng.normal(size=160) > 0).astype(int)
            frame = pd.DataFrame(x, columns=["a", "b", "c"])
            tables.append(
                ClientTable(f"site{number}", frame, pd.Series(y, name="y"), random_split(160, seed, 0.2, 0.2))
            )
        return tables


def planted(folder: Path, mutations: list[Mutation]) -> Run:
    client = partial(IFedAvg, network=partial(MLP, hidden=[8], activation="tanh"), outputs="both", lr_factor=10.0)
    run = make_run(
        folder,
        loop={"client": client, "optimizer": partial(torch.optim.SGD, lr=0.1)},
        exchange={"federated": ["*"]},
        align="both",
        data={"scaling": "pooled", "batches": None, "batch_size": 16, "mutations": mutations},
        epochs=30,
    )
    run.data.source = Alike()
    run.fit(quiet=True)
    return run


def test_a_flipped_label_turns_the_output_round_at_that_client_alone(tmp_path: Path) -> None:
    run = planted(tmp_path, [Mutation("flip", client="site3")])
    scales = {name: client.corrections["output scale"]["1"] for name, client in run.loop.federation.items()}
    assert [name for name, value in scales.items() if value < 0] == ["site3"]
