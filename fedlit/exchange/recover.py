"""A client whose state is not finite starts again."""

from __future__ import annotations

import torch

from fedlit.client import FederatedClient
from fedlit.exchange.members import Members
from fedlit.sharing import named_tensors

__all__ = ["recover"]


def recover(members: Members, client: FederatedClient) -> None:
    """Empty a client's optimizers' state, and start again where a tensor is not finite: otherwise the client would be
    lost for good.
    """
    for optimizer in client._optimizers:
        optimizer.state.clear()
    initial = named_tensors(members.fresh(client.spec))
    for name, tensor in named_tensors(client).items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            tensor.copy_(initial[name])
