"""What a checkpoint holds of a run's settings, and which checkpoints a run refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedlit.errors import ConfigError

if TYPE_CHECKING:
    from fedlit.train.loop import FederatedLoop

__all__ = ["fixed_settings", "refuse_other_runs"]


def fixed_settings(loop: FederatedLoop) -> dict[str, Any]:
    """What a resumed run keeps or must have in common: how steps are executed, the seed, the rows of each client."""
    return {
        "engine": loop.engine_name,
        "kernels": loop.kernels,
        "threads": loop.threads,
        "data": {client.spec.name: client.fingerprint() for client in loop.data.clients},
        "pace": loop.data.batching.to_dict(),
        "seed": loop.seed,
    }


def refuse_other_runs(loop: FederatedLoop, saved: Mapping[str, Any] | None) -> None:
    """Whether a checkpoint is of this federation.

    Args:
        loop: whose checkpoint it should be.
        saved: :func:`fixed_settings` as saved, and what each client remembers under ``clients``; None for a file that
            fedlit did not write.

    Raises:
        ConfigError: other clients, another seed, other rows or splits, another pace of batches.
    """
    names = set(loop.clients)
    if saved is None or set(saved["clients"]) != names:
        found = "no fedlit run" if saved is None else ", ".join(sorted(saved["clients"]))
        raise ConfigError(
            f"checkpoint: expected the clients {', '.join(sorted(names))}, found {found}; use this "
            "configuration's checkpoint"
        )
    if saved["seed"] != loop.seed:
        raise ConfigError(
            f"checkpoint: expected seed {loop.seed}, found {saved['seed']}; set seed: {saved['seed']} or "
            "start a new run"
        )
    changed = [
        client.spec.name for client in loop.data.clients if client.fingerprint() != saved["data"][client.spec.name]
    ]
    if changed or saved["pace"] != loop.data.batching.to_dict():
        pace = ", ".join(f"{name} {value}" for name, value in saved["pace"].items() if value is not None)
        what = f"other rows or splits of {', '.join(changed)}" if changed else f"data: {pace}"
        raise ConfigError(
            f"checkpoint: expected one that was trained on this data, found {what}; rows that it was "
            "trained on could be scored as test rows. Use the run's own config.yaml, or start a new run"
        )
