"""Whether clients fit their rows, their batches and the exchange, before anything is trained."""

from collections.abc import Mapping

from torch.nn.modules.batchnorm import _BatchNorm

from fedlit.client import FederatedClient
from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange


def check_settings(client: FederatedClient, data: FederatedData, exchange: Exchange) -> None:
    """Refuse settings that a client's method cannot do without, and a client that the rule cannot
    work with.

    Raises:
        ConfigError: a setting or the client's class does not fit.
    """
    name = client.spec.name
    method = type(client).__name__
    rule = exchange.rule
    for key, expected in client.requires.items():
        if key == "exchange.rule":
            values = [kind.__name__ for kind in type(rule).__mro__]
        else:
            values = [getattr(data, key.removeprefix("data."))]
        if not set(values) & set(expected):
            raise ConfigError(
                f"client {name!r}: {method} expected {key}: {' or '.join(expected)}, found "
                f"{values[0]}; set {key}: {expected[0]}, or another model.client"
            )
    required = rule.facts.requires if exchange.on else ""
    if required and required not in {kind.__name__ for kind in type(client).__mro__}:
        raise ConfigError(
            f"client {name!r}: exchange.rule: {type(rule).__name__} expected model.client: "
            f"{required}, found {method}; set model.client, or another exchange.rule"
        )


def check_weights(clients: Mapping[str, FederatedClient], data: FederatedData) -> None:
    """Refuse weights of rows for clients that have no use for them.

    Raises:
        ConfigError: a client has weights, and its method or its task does not weigh rows.
    """
    for encoded in data.clients:
        name = encoded.spec.name
        task = encoded.spec.task
        method = type(clients[name])
        has_loss = method.loss is not FederatedClient.loss
        weighs = clients[name].weighs_rows and task.weighs_rows and not has_loss
        if encoded.train.weight is not None and not weighs:
            raise ConfigError(
                f"client {name!r}: data.source.weight: expected a method and a task that weigh "
                f"rows, found {method.__name__} and {task.name}; take another, or leave out the key"
            )


def check_batch_size(client: FederatedClient, data: FederatedData) -> None:
    """Refuse batches of one row for a network with batch normalisation.

    Raises:
        ConfigError: a client has such batches; the message says what to set.
    """
    name = client.spec.name
    loader = data.train_loaders[name]
    normalises = any(isinstance(module, _BatchNorm) for module in client.modules())
    if loader.batch_size > 1 or not normalises:
        return
    rows = len(loader.rows)
    if data.batching.batches is None:
        advice = "data.batch_size to at least 2"
    else:
        advice = f"data.batches to at most {rows // 2}"
    raise ConfigError(
        f"client {name!r}: expected at least 2 rows per batch, which batch normalisation needs, "
        f"found {rows} training rows in {loader.batches} batches; set {advice}, or leave the "
        "client out"
    )
