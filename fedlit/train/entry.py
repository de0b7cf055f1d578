"""What fedlit adds to a checkpoint of Lightning, taken from the clients of a federation and given
back to them.
"""

from __future__ import annotations

from fedlit.client import FederatedClient, call_hook
from fedlit.engine.stacked import SharedStacks
from fedlit.train.checkpoint_file import ClientEntry, Entry
from fedlit.train.clients import Clients
from fedlit.train.manifest import Manifest, check_state, optimizers_of


def entry_of(
    federation: Clients, manifest: Manifest, stacks: SharedStacks | None, stops: bool
) -> Entry:
    """Return the entry of a checkpoint: each client's ``state``, and what a resumed run must not
    change.

    Args:
        federation: the federation.
        manifest: what it is trained on.
        stacks: the clients that are stepped as one; None if the engine makes no stacks.
        stops: whether the Trainer was told to stop, other than by its own limits.

    Raises:
        ConfigError: a client's state has a value that could not be read back.
    """
    clients: dict[str, ClientEntry] = {}
    for name, client in federation.items():
        check_state(name, client.state)
        clients[name] = {"state": client.state, "steps_taken": client.steps_taken}
        call_hook(client, "on_save_checkpoint", clients[name])
    data = federation.data
    return {
        "clients": clients,
        "stacks": stacks,
        "encoders": federation.encoder_states,
        "specs": federation.spec_states,
        "personal": federation.personal.state_dict(),
        "records": federation.personal.records,
        "ending": federation.ending.state_dict(stops),
        "agreement": data.agreement_state(),
        "findings": data.findings.to_dict()["findings"],
        "optimizers": optimizers_of(federation),
        **manifest.to_dict(),
    }


def restore_client(client: FederatedClient, entry: ClientEntry) -> None:
    """Give a client back what it remembered beside its tensors."""
    client.state = entry["state"]
    client.steps_taken = entry["steps_taken"]
    call_hook(client, "on_load_checkpoint", entry)
