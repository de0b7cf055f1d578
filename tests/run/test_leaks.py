"""Clients that are stepped as one lie in one memory; what is written for one of them holds nothing
of another."""

import copy
import io
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import torch
from federations import ALIKE, Dry, make_run
from lightning.pytorch import Callback
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.exchange.collect import collect
from fedlit.exchange.wire import pack, update_to
from fedlit.mixture.export import export_scorer
from fedlit.run.run import Run
from fedlit.sharing import named_tensors
from fedlit.stacks import memory_of
from fedlit.store import Store


def bytes_of(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor's values."""
    content: bytes = tensor.detach().contiguous().numpy().tobytes()
    return content


def values_of(client: FederatedClient) -> dict[str, bytes]:
    """Return the bytes of a client's tensors and of its optimizer's state, by name; not of small
    ones, which may be equal by chance."""
    tensors = dict(named_tensors(client))
    names = {id(tensor): name for name, tensor in tensors.items()}
    for optimizer in client._optimizers:
        for parameter, state in optimizer.state.items():
            tensors |= {
                f"{key} of {names[id(parameter)]}": value
                for key, value in state.items()
                if isinstance(value, Tensor)
            }
    return {
        name: bytes_of(tensor)
        for name, tensor in tensors.items()
        if tensor.numel() >= 8 and len(tensor.unique()) >= 8
    }


def archive_of(value: Any) -> bytes:
    """Return the bytes that torch writes."""
    torch.save(value, file := io.BytesIO())
    return file.getvalue()


class Writes(Callback):
    """Writes each client in many ways in the middle of an epoch, and searches for the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[str] = []
        self.searched = 0

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.current_epoch != 1 or batch_idx != 1:
            return
        clients = pl_module.federation.clients
        for client in clients.values():
            assert client.stacked
        # Otherwise there would be nothing to find.
        assert len({memory_of(next(client.parameters())) for client in clients.values()}) == 1
        exchange = pl_module.federation.exchange
        values = {name: values_of(client) for name, client in clients.items()}
        for name, client in clients.items():
            update = collect(client, exchange.sharing, {}, 0, 0, begin=False)
            client.state["last"] = next(iter(client.buffers()))
            store = Store(self.folder / f"{name}.db", "restore it")
            store.put({("update", 0): dict(update.state)})
            contents = {
                "its tensors": archive_of(client.state_dict()),
                "itself": archive_of(client),
                "its pickle": pickle.dumps(client),
                "its copy": archive_of(copy.deepcopy(client)),
                "a part": archive_of(client.core),
                "a part's tensors": archive_of(client.core.state_dict(prefix="core.")),
                "a part's copy": archive_of(copy.deepcopy(client.core)),
                "a part's pickle": pickle.dumps(client.core),
                "its parameters": archive_of(list(client.parameters())),
                "its optimizer": archive_of(
                    [list(client.parameters()), client._optimizers[0].state_dict()]
                ),
                "its message": pack({"update": update_to(update, frozenset())}),
                "its store": (self.folder / f"{name}.db").read_bytes(),
            }
            del client.state["last"]
            twin = copy.deepcopy(client)
            assert values_of(twin).keys() == values[name].keys()
            for kind, content in contents.items():
                assert values[name]["core.0.weight"] in content, kind
                self._search(f"{kind} of {name}", content, name, values)

    def _search(
        self, where: str, content: bytes, client: str, values: dict[str, dict[str, bytes]]
    ) -> None:
        for stranger, of_stranger in values.items():
            if stranger == client:
                continue
            for tensor, value in of_stranger.items():
                self.searched += 1
                if value in content:
                    self.found.append(f"{where} holds {tensor} of {stranger}")


def stacked_run(folder: Path, **options: Any) -> Run:
    """A run of clients that are stepped as one, with private parts."""
    loop = {"client": partial(FederatedClient, network=Dry), "engine": "auto"}
    return make_run(
        folder, clients=ALIKE, exchange={"federated": ["core"]}, loop=loop, epochs=2, **options
    )


def test_what_is_written_for_a_client_holds_no_other_ones_values(tmp_path: Path) -> None:
    writes = Writes(tmp_path)
    stacked_run(tmp_path / "run", callbacks=[writes]).fit(quiet=True)
    assert writes.searched > 500
    assert not writes.found


def test_files_beside_checkpoints_and_exports_hold_no_values(tmp_path: Path) -> None:
    run = stacked_run(tmp_path / "run")
    run.fit(quiet=True)
    run.test(quiet=True)
    run.predict(quiet=True)
    assert run.folder is not None
    values = {name: values_of(client) for name, client in run.loop.federation.items()}
    files = [file for file in run.folder.rglob("*") if file.is_file() and file.suffix != ".ckpt"]
    assert len(files) > 5
    for file in files:
        content = file.read_bytes()
        for name, tensors in values.items():
            assert not any(value in content for value in tensors.values()), (file, name)
    for table in run.data.tables():
        folder = tmp_path / table.name
        export_scorer(run.client(table.name), folder, rows=table.features)
        content = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
        assert any(value in content for value in values[table.name].values())
        for name in values.keys() - {table.name}:
            private = [value for tensor, value in values[name].items() if "core" not in tensor]
            assert private and not any(value in content for value in private), (table.name, name)
