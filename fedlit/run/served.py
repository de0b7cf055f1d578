"""Builds a client of a trained run as a :class:`~fedlit.score.scorer.Scorer`, from its checkpoint
and without the tables that it was trained on.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.encoder import TableEncoder
from fedlit.data.findings import Finding, Findings
from fedlit.data.loader import Batch
from fedlit.data.table import check_client
from fedlit.errors import ConfigError, RunError, told_as
from fedlit.extras import MODULES, needs
from fedlit.score.folder import NETWORK
from fedlit.score.scorer import Scorer
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.spec import ClientSpec
from fedlit.tasks import task_state
from fedlit.tasks.metrics import Site
from fedlit.train.checkpoint_file import CheckpointContent
from fedlit.train.manifest import Manifest, check_tensors, read_checkpoint

if TYPE_CHECKING:
    from fedlit.data.module import FederatedData
    from fedlit.train.loop import FederatedLoop


_ANY = 2**40  # bytes


class ClientFunction:
    """The function from encoded rows to a client's predictions. It can be written as ONNX.

    Args:
        client: the trained client; it is put into evaluation mode.
        site: the site whose rows are scored; its name seeds the random numbers of a client that
            uses dropout even in evaluation.
        seed: the seed of the run.
    """

    network = "onnx"

    def __init__(self, client: FederatedClient, site: str, seed: int) -> None:
        self.client = client.eval()
        self._site = site
        self._seed = derive_seed(seed, "predict", site, 0)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """Return predictions (n, width) for rows (n, d) float32."""
        with isolated_rng(self._seed), torch.no_grad():
            batch = Batch(torch.from_numpy(x), self.client.spec.task.unknown(len(x)))
            predictions = self.client.evaluate(batch)[0].cpu()
        outputs: NDArray[Any] = predictions.to(
            torch.promote_types(predictions.dtype, torch.float32)
        ).numpy()
        return outputs

    def write(self, folder: Path) -> None:
        """Write ``model.onnx``. From then on, the client is computed by plain torch operations."""
        from fedlit.nn.native import use_kernels

        # Kernels that are compiled on this machine do not exist on another one.
        use_kernels({self._site: self.client}, "torch")
        _write_network(folder / NETWORK, self.client, self._site)


def scorers_of(
    loop: FederatedLoop,
    data: FederatedData,
    checkpoint: Path,
    clients: Iterable[str] | None = None,
) -> dict[str, Scorer]:
    """Return clients of a run, as they were when a checkpoint was written.

    Args:
        loop: the loop, which builds clients like those of the checkpoint.
        data: the data of the run, for the size of batches.
        checkpoint: a checkpoint of this run; it is read only once, for any number of clients.
        clients: the names of the clients, all if None; for a federation whose rows are pooled, the
            names of the parties whose rows will be scored.

    Raises:
        ConfigError: there is no such client, or the checkpoint has other networks.
    """
    content = read_checkpoint(checkpoint, resumable=False)
    saved = content["fedlit"]
    with told_as(_altered):
        specs = [ClientSpec.from_state(state) for state in saved["specs"].values()]
    spec_and_site: dict[str, tuple[ClientSpec, Site]] = {}
    for spec in specs:
        spec_and_site |= {site.name: (spec, site) for site in spec.sites}
    tensors: dict[str, dict[str, Tensor]] = {spec.name: {} for spec in specs}
    for key, tensor in content["state_dict"].items():
        tensors[key.split(".", 2)[1]][key] = tensor  # A client's name has no point.
    findings = [Finding.of(saved_finding) for saved_finding in saved.get("findings", ())]
    scorers = {}
    if clients is None:
        clients = sorted(saved["encoders"])
    for client in clients:
        check_client("--client", client, sorted(saved["encoders"]))
        with told_as(_altered):
            encoder = TableEncoder(client)
            encoder.load_state_dict(saved["encoders"][client])
        spec, site = spec_and_site[client]
        built = _trained(loop, content, spec, tensors[spec.name])
        about = {
            # The first parts of the path would describe this machine.
            "checkpoint": "/".join(checkpoint.absolute().parts[-4:]),
            "epochs": epochs_of(content),
            "client": type(built).__name__,
            "rows": dict(site.rows),
            "version": content.get("pytorch-lightning_version"),
            "findings": [
                str(saved_finding)
                for saved_finding in findings
                if not saved_finding.clients or client in saved_finding.clients
            ],
        }
        function = ClientFunction(built, client, loop.seed)
        state = task_state(spec.task)
        batch = data.eval_batch_size
        scorers[client] = Scorer(
            client, encoder, function, state, classes=site.classes, batch=batch, about=about
        )
    return scorers


def epochs_of(saved: CheckpointContent) -> int:
    """Return the number of epochs after which a checkpoint was written."""
    if saved["global_step"] == 0:
        return saved["epoch"]
    return saved["epoch"] + 1


def use_encoders(data: FederatedData, saved: CheckpointContent) -> None:
    """Use the encoders of the training, because the files may have changed since."""
    if not data.clients:
        with told_as(_altered):
            data.use_encoders(saved["fedlit"]["encoders"])
        data.findings = Findings(tuple(map(Finding.of, saved["fedlit"].get("findings", ()))))


def _altered(error: Exception) -> ConfigError:
    return ConfigError(
        "checkpoint: expected clients as fedlit describes them, found other things "
        f"({type(error).__name__}: {error}); use another checkpoint"
    )


def _trained(
    loop: FederatedLoop, content: CheckpointContent, spec: ClientSpec, tensors: Mapping[str, Tensor]
) -> FederatedClient:
    from fedlit.client import call_hook, overrides
    from fedlit.nn.native import use_kernels

    client = loop.federation.fresh(spec)
    prefix = f"clients.{spec.name}."
    if overrides(client, "setup"):
        call_hook(client, "setup", "predict")
    check_tensors(tensors, {prefix + key: value for key, value in client.state_dict().items()})
    client.load_state_dict({key.removeprefix(prefix): value for key, value in tensors.items()})
    saved = content["fedlit"]["clients"][spec.name]
    client.state = saved["state"]
    client.steps_taken = saved.get("steps_taken", 0)
    call_hook(client, "on_load_checkpoint", saved)
    use_kernels({spec.name: client}, Manifest.read(content).kernels)
    for parameter in client.parameters():
        parameter.requires_grad_(False)
    return client


# ---------------------------------------------------------------------- as ONNX


class _Predicting(nn.Module):
    """The function from encoded rows to predictions, without a target."""

    def __init__(self, client: FederatedClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor) -> Tensor:
        kind = type(self.client)
        if kind.evaluate is FederatedClient.evaluate and kind.score is FederatedClient.score:
            # This leaves out the loss, which needs labels.
            return self.client.probabilities(self.client(x))
        return self.client.evaluate(Batch(x, self.client.spec.task.unknown(x.shape[0])))[0]


def _write_network(path: Path, client: FederatedClient, site: str) -> None:
    """Write the ONNX graph from rows ``x`` (n, inputs) float32 to a client's ``predictions`` (n,
    width), for any n.

    Args:
        path: the path of the file.
        client: the client, in evaluation mode, and computed by plain torch operations.
        site: the site whose rows these are; messages name it.

    Raises:
        ConfigError: a package is missing.
        RunError: ONNX has no equivalent of a computation.
    """
    # onnxruntime is needed to compare the written network with the client.
    for module in MODULES["export"]:
        if find_spec(module) is None:
            raise ConfigError(f"client {site!r}: the export of a network {needs(module)}")
    from onnxscript.ir.passes.common import ClearMetadataAndDocStringPass
    from onnxscript.optimizer import optimize_ir

    rows = torch.export.Dim("rows", min=1)
    inputs = torch.zeros(4, client.spec.num_features)

    def unable(error: Exception) -> RunError:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        return RunError(
            f"client {site!r}: expected a network that ONNX can hold, found {_named(client)}: "
            f"{reason}; write its forward without if and for over values of tensors and with "
            "operations that ONNX has, or score with fedlit predict --run"
        )

    with told_as(unable), torch.no_grad(), _quiet():
        program = torch.export.export(_Predicting(client), (inputs,), dynamic_shapes=({0: rows},))
        program_of_onnx = torch.onnx.export(
            program, (), input_names=["x"], output_names=["predictions"], verbose=False
        )
        assert program_of_onnx is not None
        # Values that depend on no row are computed now, so that the file holds no copy of tensors
        # from which they were computed.
        optimize_ir(program_of_onnx.model, input_size_limit=_ANY, output_size_limit=_ANY)
        # The metadata hold lines of source and their paths on this machine.
        ClearMetadataAndDocStringPass()(program_of_onnx.model)
        content = program_of_onnx.model_proto.SerializeToString()
    path.write_bytes(content)


def _named(client: FederatedClient) -> str:
    """Name the classes that a user may have written: the class of the client, and those of the
    parts of its network.
    """
    kinds = dict.fromkeys(
        type(module)
        for module in client.modules()
        if not type(module).__module__.startswith("torch.")
    )
    return ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of torch about its internals, which no user can act on."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
