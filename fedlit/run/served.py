"""A client of a trained run as a :class:`~fedlit.score.scorer.Scorer`: built from its checkpoint, without the tables
that it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlit.data.encoder import TableEncoder
from fedlit.data.table import check_client
from fedlit.errors import ConfigError, told_as
from fedlit.score.folder import NETWORK
from fedlit.score.scorer import Scorer
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.spec import ClientSpec
from fedlit.tasks import task_state
from fedlit.train.manifest import Manifest, check_tensors, read_checkpoint

if TYPE_CHECKING:
    from fedlit.client.client import FederatedClient
    from fedlit.data.module import FederatedData
    from fedlit.train.loop import FederatedLoop

__all__ = ["ClientFunction", "scorers_of", "use_encoders"]


class ClientFunction:
    """The function from encoded rows to a client's predictions. It is written as ONNX.

    Args:
        client: trained; it is put into evaluation mode.
        site: whose rows; seeds what a client draws that has dropout in evaluation, too.
        seed: the run's.
    """

    network = "onnx"

    def __init__(self, client: FederatedClient, site: str, seed: int) -> None:
        self.client, self._site, self._seed = client.eval(), site, derive_seed(seed, "predict", site, 0)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """(n, d) float32 → (n, width)."""
        from fedlit.data.loader import Batch

        with isolated_rng(self._seed), torch.no_grad():
            batch = Batch(torch.from_numpy(x), self.client.spec.task.unknown(len(x)))
            made = self.client.evaluate(batch)[0].cpu()
        found: NDArray[Any] = made.to(torch.promote_types(made.dtype, torch.float32)).numpy()
        return found

    def write(self, folder: Path) -> None:
        """Write ``model.onnx``, see :func:`fedlit.run.onnx.write_network`; from now on the client is computed by plain
        operations of torch.
        """
        from fedlit.engine.kernels import use_kernels
        from fedlit.run.onnx import write_network

        use_kernels({self._site: self.client}, "torch")  # what is compiled here is not elsewhere
        write_network(folder / NETWORK, self.client, self._site)


def scorers_of(
    loop: FederatedLoop,
    data: FederatedData,
    checkpoint: Path,
    clients: Iterable[str] | None = None,
    precision: str = "32-true",
) -> dict[str, Scorer]:
    """Clients of a run, as they were when a checkpoint was written.

    Args:
        loop: which builds clients as the checkpoint's were.
        data: the run's, for the size of batches.
        checkpoint: of this run; it is read once, however many clients there are.
        clients: their names, all if None; of a federation whose rows are pooled, that of the party whose rows will
            come.
        precision: that the run was trained with.

    Raises:
        ConfigError: no such client, or a checkpoint of other networks.
    """
    header = read_checkpoint(checkpoint, resumable=False)
    saved = header["fedlit"]
    with told_as(_altered):
        specs = [ClientSpec.from_state(state) for state in saved["specs"].values()]
    place = {site.name: (spec, site) for spec in specs for site in spec.sites}
    tensors: dict[str, dict[str, Tensor]] = {spec.name: {} for spec in specs}
    for key, tensor in header["state_dict"].items():
        tensors[key.split(".", 2)[1]][key] = tensor  # no client's name has a point
    found = {}
    for client in sorted(saved["encoders"]) if clients is None else clients:
        _check_client(header, client)
        with told_as(_altered):
            encoder = TableEncoder(client)
            encoder.load_state_dict(saved["encoders"][client])
        spec, site = place[client]
        built = _trained(loop, header, spec, tensors[spec.name])
        about = {
            "checkpoint": "/".join(checkpoint.absolute().parts[-4:]),  # no more of this machine
            "epochs": int(header["epoch"]) + (header["global_step"] > 0),
            "client": type(built).__name__,
            "rows": dict(site.rows),
            "version": header.get("pytorch-lightning_version"),
            "precision": precision,
        }
        function = ClientFunction(built, client, loop.seed)
        state, batch = task_state(spec.task), data.eval_batch_size
        found[client] = Scorer(client, encoder, function, state, classes=site.classes, batch=batch, about=about)
    return found


def _check_client(header: Mapping[str, Any], client: str) -> None:
    """Refuse a name that no client of a checkpoint has.

    Raises:
        ConfigError: says which there are.
    """
    saved = header["fedlit"]
    names = sorted(saved["encoders"])
    if client not in names and client in {*saved["data"], "all"}:
        raise ConfigError(
            f"--client: expected one of {', '.join(names)}, whose rows were pooled: name the one whose table new rows "
            f"are like, found {client!r}"
        )
    check_client("--client", client, names)


def use_encoders(data: FederatedData, header: Mapping[str, Any]) -> None:
    """Use the encoders of training, for the files may have changed since."""
    if not data.clients:
        with told_as(_altered):
            data.use_encoders(header["fedlit"]["encoders"])


def _altered(error: Exception) -> ConfigError:
    return ConfigError(
        "checkpoint: expected clients as fedlit describes them, found other things "
        f"({type(error).__name__}: {error}); use another checkpoint"
    )


def _trained(
    loop: FederatedLoop, header: Mapping[str, Any], spec: ClientSpec, tensors: Mapping[str, Tensor]
) -> FederatedClient:
    from fedlit.client import call_hook, overrides
    from fedlit.engine.kernels import use_kernels

    client = loop.federation.fresh(spec)
    prefix = f"clients.{spec.name}."
    if overrides(client, "setup"):
        call_hook(client, "setup", "predict")
    check_tensors(tensors, {prefix + key: value for key, value in client.state_dict().items()})
    client.load_state_dict({key.removeprefix(prefix): value for key, value in tensors.items()})
    saved = header["fedlit"]["clients"][spec.name]
    client.state, client.steps_taken = saved["state"], saved.get("steps_taken", 0)
    call_hook(client, "on_load_checkpoint", saved)
    use_kernels({spec.name: client}, Manifest.read(header).kernels)
    for parameter in client.parameters():
        parameter.requires_grad_(False)
    return client
