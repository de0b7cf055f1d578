"""A client's network as ONNX: what PyTorch traces of it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.errors import ConfigError, RunError, told_as

__all__ = ["write_network"]

_PACKAGES = ("onnx", "onnxscript", "onnxruntime")  # the last one to compare what was written

_ANY = 2**40  # bytes


class _Predicting(nn.Module):
    """From encoded rows to predictions, without a target."""

    def __init__(self, client: FederatedClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor) -> Tensor:
        own = type(self.client)
        if own.evaluate is FederatedClient.evaluate and own.score is FederatedClient.score:
            return self.client.probabilities(self.client(x))  # without the loss, which looks at labels
        return self.client.evaluate(Batch(x, self.client.spec.task.unknown(x.shape[0])))[0]


def write_network(path: Path, client: FederatedClient, site: str) -> None:
    """Write what a client predicts of rows ``x`` (n, inputs) float32, for any n: ``predictions`` (n, width).

    Args:
        path: of the file.
        client: in evaluation mode, and computed by plain operations of torch.
        site: whose rows; messages name it.

    Raises:
        ConfigError: a package is missing.
        RunError: ONNX has no such computation.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise ConfigError(
            f"client {site!r}: expected the packages {', '.join(_PACKAGES)}, by which networks are exported, found no "
            f"{missing[0]}; pip install 'fedlit[export]'"
        )
    from onnxscript.ir.passes.common import ClearMetadataAndDocStringPass
    from onnxscript.optimizer import optimize_ir

    rows, inputs = torch.export.Dim("rows", min=1), torch.zeros(4, client.spec.num_features)

    def unable(error: Exception) -> RunError:
        told = (" ".join(str(error).split()) or type(error).__name__)[:200]
        return RunError(
            f"client {site!r}: expected a network that ONNX can hold, found {_named(client)}: {told}; write its "
            "forward without if and for over values of tensors and with operations that ONNX has, or score with "
            "fedlit predict --run"
        )

    with told_as(unable), torch.no_grad(), _quiet():
        program = torch.export.export(_Predicting(client), (inputs,), dynamic_shapes=({0: rows},))
        made = torch.onnx.export(program, (), input_names=["x"], output_names=["predictions"], verbose=False)
        assert made is not None
        # what depends on no row is computed now: no copy is left that only the network was made of
        optimize_ir(made.model, input_size_limit=_ANY, output_size_limit=_ANY)
        ClearMetadataAndDocStringPass()(made.model)  # lines of source, and where they lie on this machine
        content = made.model_proto.SerializeToString()
    path.write_bytes(content)


def _named(client: FederatedClient) -> str:
    """The classes that a user may have written: of the client, and of its network's parts."""
    own = dict.fromkeys(type(module) for module in client.modules() if not type(module).__module__.startswith("torch."))
    return ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in own)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says of its own ways, which nobody can act on."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
