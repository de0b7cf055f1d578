"""Advances the schedules of clients' learning rates."""

from collections.abc import Iterable, Mapping
from typing import cast

from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from fedlit.client import FederatedClient
from fedlit.client.hooks import settings_of
from fedlit.errors import ConfigError, did_you_mean
from fedlit.train.training import Moment


def advance(name: str, client: FederatedClient, moment: Moment, updated: bool) -> None:
    """Advance a client's schedules that wait for no score.

    Args:
        name: the name of the client.
        client: the client.
        moment: the aligned step that has just ended, counted already.
        updated: whether the client's optimizers have stepped in it.
    """
    for config in client._scheduler_configs:
        by_step = config.interval == "step"
        count = moment.step if by_step else moment.epoch + 1
        due = updated if by_step else moment.last
        if config.reduce_on_plateau or not due or count % config.frequency:
            continue
        config.scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]  # else torch warns of an idle client
        with settings_of(name, "model.scheduler"):
            config.scheduler.step()  # type: ignore[call-arg]  # Lightning types it as a plateau schedule too


def step_plateaus(clients: Iterable[FederatedClient], logged: Mapping[str, Tensor]) -> None:
    """Step the schedules of clients that wait for a score (see
    :meth:`fedlit.train.clients.Clients.step_plateaus`).
    """
    for client in clients:
        for config in client._scheduler_configs:
            if config.reduce_on_plateau:
                cast(ReduceLROnPlateau, config.scheduler).step(_monitored(client, config, logged))


def _monitored(
    client: FederatedClient, config: LRSchedulerConfig, logged: Mapping[str, Tensor]
) -> Tensor:
    for key in (f"{client.spec.name}/{config.monitor}", str(config.monitor)):
        if key in logged:
            return logged[key]
    raise ConfigError(
        f"client {client.spec.name!r}: its schedule waits for {config.monitor!r}, expected one of "
        f"{', '.join(sorted(logged))}." + did_you_mean(str(config.monitor), logged)
    )
