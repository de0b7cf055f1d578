"""Warnings of what a client's author thinks that it does, and it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from federations import METHODS, Dry, SmallNet, alike, make_run
from lightning.pytorch.core.hooks import CheckpointHooks, ModelHooks
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.client.hooks import misspelt
from fedlit.errors import FedlitError, RunError
from fedlit.exchange.rule import Rule
from fedlit.exchange.rules import Mean
from fedlit.sharing import State


def descendants(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from descendants(one)


class Misspelt(FederatedClient):
    privat = ("encoder",)

    def on_recieve(self, received: State) -> None: ...

    def train_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.losses(batch)

    def losses(self, batch: Any) -> Tensor:  # a helper: it is used above
        raise AssertionError

    def _on_sent(self) -> None: ...

    def penalty(self) -> None: ...

    @property
    def predictor(self) -> None: ...


class Mixin:
    def on_sends(self, steps: int) -> None: ...


class Mixed(Mixin, FederatedClient):
    def receive(self) -> None: ...

    @staticmethod
    def train_steps() -> None: ...


class Short(FederatedClient):
    def training_step(self, batch: Any) -> Tensor:  # type: ignore[override]
        return self.objective(batch.x, batch.y)


class Number(FederatedClient):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx).item()


class Dictionary(FederatedClient):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": super().training_step(batch, batch_idx)}


class Lost(FederatedClient):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nothing()


class MisspeltRule(Mean):
    @property
    def need(self) -> frozenset[str]:
        return frozenset()

    def weigh(self) -> None: ...


class Silent(FederatedClient):
    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        self.objective(batch.x, batch.y)


class Still(FederatedClient):
    """Its parameters are changed by the exchange of every step alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.objective(batch.x, batch.y).detach()


class Detached(FederatedClient):
    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        return super().objective(x, y).detach()


def test_names_that_resemble_hooks() -> None:
    assert misspelt(Misspelt, FederatedClient, ModelHooks) == {
        "privat": "private",
        "on_recieve": "on_receive",
        "train_step": "training_step",
    }
    assert misspelt(Mixed, FederatedClient) == {"on_sends": "on_send"}  # not its helpers
    assert misspelt(MisspeltRule, Rule) == {"need": "needs"}


def test_what_is_shipped_resembles_none() -> None:
    for base in (FederatedClient, Rule):
        shipped = [kind for kind in descendants(base) if kind.__module__.startswith("fedlit.")]
        assert len(shipped) >= 4 and not any(misspelt(kind, base, ModelHooks, CheckpointHooks) for kind in shipped)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return lines


@pytest.mark.parametrize("engine", ["plain", "threads"])
def test_clients_that_learn_nothing(engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fit(client: type[FederatedClient], **exchange: Any) -> None:
        loop = {"client": partial(client, network=Dry), "engine": engine}
        make_run(tmp_path, epochs=2, loop=loop, exchange=exchange, enable_checkpointing=False).fit(quiet=True)

    fit(Silent)
    (line,) = said(caplog)
    assert line.startswith(
        "client 'ash', 'birch', 'cedar': in epoch 1 Silent.training_step returned None in every step"
    )
    fit(Still, federated=["core"], every="step")
    (line,) = said(caplog)
    assert "in epoch 1 Still took no optimizer step" in line
    assert "self.descend(" in line


def test_a_loss_without_a_gradient_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=Detached, epochs=1, enable_checkpointing=False)
    with pytest.raises(
        RunError, match=r"client 'ash', step 1: expected a loss with a gradient .* Detached\.training_step"
    ):
        run.fit(quiet=True)


@pytest.mark.parametrize("method", ["two optimizers", "chfl", "forest"])
def test_clients_that_learn_are_told_nothing(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: Mapping[str, Any] = METHODS[method]
    make_run(tmp_path, epochs=1, enable_checkpointing=False, **options).fit(quiet=True)
    alike(tmp_path / "stacked", epochs=1, enable_checkpointing=False).fit(quiet=True)
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Short, r"expected Short.training_step\(self, batch, batch_idx\), found \(self, batch\)"),
        (Number, "step 1: expected the loss, a tensor, from Number.training_step, found a float"),
        (Dictionary, "step 1: expected the loss, a tensor, from Dictionary.training_step, found a dict"),
        (Lost, r"could not be built: AttributeError: .*nothing.*\(in __init__, test_watch.py, line \d+\)"),
    ],
)
def test_a_client_that_cannot_be_trained_is_told_why(tmp_path: Path, kind: type, message: str) -> None:
    with pytest.raises(FedlitError, match=f"client 'ash'.*{message}"):
        make_run(tmp_path, loop={"client": partial(kind, network=SmallNet)}).fit(quiet=True)
