"""Warnings of what a client's author thinks that it does, and it does not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import METHODS, Dry, SmallNet, alike, trained
from lightning.pytorch.core.hooks import CheckpointHooks, ModelHooks
from torch import Tensor

import fedlit
from fedlit import Mean
from fedlit.client.client import FederatedClient
from fedlit.client.hooks import misspelt
from fedlit.errors import FedlitError
from fedlit.exchange.rule import Rule


class Misspelt(FederatedClient):
    """Its helpers are called above, or begin with an underscore."""

    privat = ("encoder",)

    def on_recieve(self, received: Any) -> None: ...

    def train_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.losses(batch)

    def losses(self, batch: Any) -> Tensor:
        raise AssertionError

    def _on_sent(self) -> None: ...


class MisspeltRule(Mean):
    need: frozenset[str] = frozenset()


def test_names_that_resemble_hooks() -> None:
    found = {"privat": "private", "on_recieve": "on_receive", "train_step": "training_step"}
    assert misspelt(Misspelt, FederatedClient, ModelHooks) == found
    assert misspelt(MisspeltRule, Rule) == {"need": "needs"}
    for base in (FederatedClient, Rule):  # what is shipped resembles none
        public = (getattr(fedlit, name) for name in fedlit.__all__)  # type: ignore[attr-defined]
        shipped = [kind for kind in public if isinstance(kind, type) and issubclass(kind, base)]
        assert len(shipped) >= 4 and not any(
            misspelt(kind, base, ModelHooks, CheckpointHooks) for kind in shipped
        )


def does(name: str, change: Callable[[Any], Any], **more: Any) -> type[FederatedClient]:
    """A class that changes what a step of training gives."""

    def training_step(self: FederatedClient, batch: Any, batch_idx: int) -> Any:
        return change(FederatedClient.training_step(self, batch, batch_idx))

    return type(name, (FederatedClient,), {"training_step": training_step, **more})


SILENT = does("Silent", lambda loss: None)
# its parameters are changed by the exchange of every step alone
STILL = does("Still", lambda loss: loss.detach(), automatic_optimization=False)
NUMBER = does("Number", lambda loss: loss.item())
DICTIONARY = does("Dictionary", lambda loss: {"loss": loss})


class Detached(FederatedClient):
    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        return super().objective(x, y).detach()


class Short(FederatedClient):
    def training_step(self, batch: Any) -> Tensor:  # type: ignore[override]
        return self.objective(batch.x, batch.y)


class Lost(FederatedClient):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nothing()  # type: ignore[operator]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("engine", ["plain", "threads"])
@pytest.mark.parametrize("client", [SILENT, STILL])
def test_clients_that_learn_nothing(
    client: Any, engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = {"client": partial(client, network=Dry), "engine": engine}
    exchange = {"federated": ["core"], "every": "step"} if client is STILL else {}
    trained(tmp_path, epochs=2, loop=loop, exchange=exchange, enable_checkpointing=False)
    (line,) = warnings_of(caplog)
    assert "in epoch 1" in line and client.__name__ in line


@pytest.mark.parametrize("method", ["two optimizers", "chfl", "forest"])
def test_clients_that_learn_are_told_nothing(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, epochs=1, enable_checkpointing=False, **METHODS[method])
    some: dict[str, Any] = {  # a client of the first stack is in no other
        "loop": {"optimizer": partial(torch.optim.SGD, lr=0.01)}, "data": {"batches": 2},
        "exchange": {"federated": ["core"], "every": "step", "participation": 0.8},
    }  # fmt: skip
    for name, options in {"stacked": {}, "some": some}.items():
        alike(tmp_path / name, epochs=1, enable_checkpointing=False, **options).fit(quiet=True)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (Short, "Short.training_step"),
        (NUMBER, "Number.training_step.*float"),
        (DICTIONARY, "Dictionary.training_step.*dict"),
        (Detached, "Detached.training_step"),
        (Lost, "AttributeError: .*test_watch.py, line"),
    ],
)
def test_a_client_that_cannot_be_trained_is_told_why(tmp_path: Path, kind: type, key: str) -> None:
    with pytest.raises(FedlitError, match=f"client 'ash'.*{key}"):
        trained(tmp_path, loop={"client": partial(kind, network=SmallNet)})
