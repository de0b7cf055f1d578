"""One client's part of an aligned step."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.base import Scope
from fedlit.errors import FedlitError, RunError
from fedlit.seeding import isolated_rng
from fedlit.train.training import Moment


class StepContext(NamedTuple):
    """Where a step runs.

    Attributes:
        device: the device of the client.
        scope: makes the context of the step.
    """

    device: torch.device
    scope: Scope


def take_step(
    client: FederatedClient,
    batch: Batch,
    moment: Moment,
    seed: Callable[[], int],
    context: StepContext,
    seeded: bool,
) -> bool:
    """Take one client's part of an aligned step (see :data:`fedlit.engine.base.Step`).

    Args:
        client: the client.
        batch: its batch.
        moment: the aligned step.
        seed: computes the seed of the random numbers that the step draws.
        context: where the step runs.
        seeded: whether torch's generators are seeded for this step.
    """
    try:
        with context.scope():  # the autocast of mixed precision belongs to a thread
            if not seeded:
                descend(client, batch, moment)
                return False
            with isolated_rng(seed(), context.device) as drawn:
                descend(client, batch, moment)
                return drawn()
    except FedlitError:
        raise
    except Exception as error:
        raise RunError(
            f"client {client.spec.name!r}, step {moment.step + 1}: {type(error).__name__}: {error}"
        ) from error


def descend(client: FederatedClient, batch: Batch, moment: Moment) -> None:
    """Compute the loss and its gradient, clip the gradient, and step the optimizers."""
    client.row_weight = batch.weight
    try:
        loss = client.training_step(batch, moment.batch)
    finally:
        client.row_weight = None
    client.skipped = loss is None
    if loss is None:
        return  # the client skips this batch, as in Lightning, or has nothing to say
    if not isinstance(loss, Tensor) and (
        client.automatic_optimization or not isinstance(loss, int | float)
    ):
        raise RunError(
            f"client {client.spec.name!r}, step {moment.step + 1}: expected the loss, a "
            f"tensor, from {type(client).__name__}.training_step, found a "
            f"{type(loss).__name__}; return the loss itself, without .item() and in no "
            "dictionary, or None to skip the batch"
        )
    client.log("loss", loss)
    if client.automatic_optimization:
        if not loss.requires_grad:
            raise RunError(
                f"client {client.spec.name!r}, step {moment.step + 1}: expected a loss with a "
                f"gradient from {type(client).__name__}.training_step, found one that depends "
                "on no parameter (detached?); return the loss itself, or set "
                "automatic_optimization to False and descend there"
            )
        groups = client.clipped_apart() if client.gradient_clip_val else ()
        client.descend(loss, client._optimizers, groups)
