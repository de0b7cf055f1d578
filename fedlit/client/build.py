"""Builds clients from their descriptions. Each of their parameters is a function of (seed, its
name).
"""

import fnmatch
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from lightning.pytorch import LightningModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fedlit.client.client import FederatedClient
from fedlit.client.hooks import check_clipping
from fedlit.errors import ConfigError, described, did_you_mean, told_as
from fedlit.seeding import derive_seed, initialise, isolated_rng
from fedlit.sharing import can_name_a_module
from fedlit.spec import ClientSpec

NOT_FORWARDED = (
    "backward",
    "configure_callbacks",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "on_before_backward",
    "on_predict_batch_end",
    "on_predict_batch_start",
    "on_test_batch_end",
    "on_test_batch_start",
    "on_validation_batch_end",
    "on_validation_batch_start",
    "optimizer_step",
    "optimizer_zero_grad",
    "predict_step",
    "test_step",
    "validation_step",
)
"""Lightning's hooks that have no place in a federation's step; overriding one would do nothing, so
it is refused."""

ClientFactory = Callable[[ClientSpec], FederatedClient]
OptimizerFactory = Callable[[Iterable], Optimizer]
SchedulerFactory = Callable[[Optimizer], LRScheduler]


@dataclass
class ClientOverride:
    """Settings for the clients whose name matches a pattern.

    Attributes:
        client: another client class.
        optimizer: another optimizer.
        scheduler: another learning-rate schedule.
        gradient_clip_val: another limit for the gradient's norm.
    """

    client: ClientFactory | None = None
    optimizer: OptimizerFactory | None = None
    scheduler: SchedulerFactory | None = None
    gradient_clip_val: float | None = None

    def __post_init__(self) -> None:
        check_clipping(self.gradient_clip_val, "model.overrides: gradient_clip_val")


def build_clients(
    specs: list[ClientSpec],
    client: ClientFactory,
    seed: int,
    overrides: Mapping[str, ClientOverride] | None = None,
    names: Sequence[str] = (),
) -> dict[str, FederatedClient]:
    """Return the clients by name, in the order of names. Every parameter is a function of (seed,
    its name).

    Args:
        specs: the clients' descriptions.
        client: makes a client from its description.
        seed: the run's seed.
        overrides: maps the name of a client, or a glob, to the settings that differ there; the
            first match counts.
        names: the names of all clients, if some of them are in other processes.

    Raises:
        ConfigError: an override matches no client, the initial value of a parameter would depend on
            the order of draws, or a hook would not be called.
    """
    names = names or [spec.name for spec in specs]
    for pattern in overrides or {}:
        if not fnmatch.filter(names, pattern):
            raise ConfigError(
                f"model.overrides: expected the name or pattern of a client, found {pattern!r}; "
                f"clients are {', '.join(names)}." + did_you_mean(pattern, names)
            )
    for name in names:
        if not can_name_a_module(name):
            raise ConfigError(
                f"client {name!r}: expected a name that torch does not use itself; rename the "
                "client"
            )
    clients: dict[str, FederatedClient] = {}
    checked: set[int] = set()  # the factories whose first client was checked
    for spec in sorted(specs, key=lambda spec: spec.name):
        factory = find_override(overrides, spec.name).client or client
        clients[spec.name] = build_client(factory, spec, seed, "build")
        if id(factory) not in checked:
            _check_initial_values(clients[spec.name], factory, seed)
            checked.add(id(factory))
    return clients


def _check_initial_values(client: FederatedClient, factory: ClientFactory, seed: int) -> None:
    """Refuse a client whose initial values change if its constructor draws other numbers."""
    again = build_client(factory, client.spec, seed, "build again").state_dict()
    state = client.state_dict()
    drawn = [name for name, value in state.items() if not torch.equal(value, again[name])]
    if drawn:
        raise ConfigError(
            f"client {client.spec.name!r}: expected initial values that depend on (seed, name) "
            f"alone, found that {', '.join(drawn)} depend on earlier draws; draw them in a "
            "reset_parameters method of the module that holds them, so that clients whose "
            "networks differ elsewhere start equal"
        )


def build_client(
    factory: ClientFactory, spec: ClientSpec, seed: int, purpose: str = "build"
) -> FederatedClient:
    """Build one untrained client. ``purpose`` seeds the random numbers that its constructor may
    draw.
    """
    if isinstance(factory, type) and not issubclass(factory, FederatedClient):
        raise ConfigError(
            f"client {spec.name!r}: expected a subclass of fedlit.FederatedClient, found "
            f"{factory.__name__}; make it one, or give its network: partial(FederatedClient, "
            "network=…)"
        )

    def refusal(error: Exception) -> ConfigError:
        return ConfigError(
            f"client {spec.name!r}: expected a client for {spec.num_features} features and "
            f"{spec.num_outputs} outputs, found that it could not be built: {described(error)}; "
            "look at model.client"
        )

    with told_as(refusal), isolated_rng(derive_seed(seed, purpose)):
        built = factory(spec)  # type: ignore[call-arg]  # mypy takes a class for its constructor
    refused = [
        hook
        for hook in NOT_FORWARDED
        if getattr(type(built), hook) is not getattr(LightningModule, hook)
    ]
    if refused:
        raise ConfigError(
            f"client {spec.name!r}: {type(built).__name__} overrides {', '.join(refused)}, which a "
            "federation does not call; override training_step, evaluate, configure_optimizers or "
            "the epoch and fit hooks instead"
        )
    _check_signatures(spec.name, type(built))
    initialise(built, seed)
    return built


def _check_signatures(client: str, kind: type) -> None:
    for name in ("training_step", "evaluate"):
        expected = list(inspect.signature(getattr(FederatedClient, name)).parameters)
        signature = inspect.signature(getattr(kind, name))
        try:
            signature.bind(*expected)
        except TypeError as error:
            raise ConfigError(
                f"client {client!r}: expected {kind.__name__}.{name}({', '.join(expected)}), found "
                f"({', '.join(signature.parameters)}); take these arguments"
            ) from error


def find_override(overrides: Mapping[str, ClientOverride] | None, name: str) -> ClientOverride:
    """Return the settings for a client; the first pattern that matches its name counts."""
    for pattern, override in (overrides or {}).items():
        if fnmatch.fnmatchcase(name, pattern):
            return override
    return ClientOverride()
