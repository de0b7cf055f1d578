"""The place of this process among those that torchrun or srun started together. Imports no
torch.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fedlit.errors import ConfigError
from fedlit.session import session


@dataclass(frozen=True)
class Place:
    """The place of a process in a job.

    Attributes:
        rank: its number, from 0.
        size: the number of processes.
        local: its number on its machine, from 0.
        address: the address of the machine of rank 0.
        port: the port on that machine at which the processes meet.
    """

    rank: int
    size: int
    local: int
    address: str
    port: int


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return the place in the environment of torchrun or srun; None if neither started this
    process, or only this one.

    Example:
        >>> find_place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "n7", "MASTER_PORT": "29500"})
        Place(rank=1, size=2, local=1, address='n7', port=29500)
        >>> find_place({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"})  # a batch script, without srun
    """
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        rank, size, local = (
            int(environment.get(key, 0)) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        )
        address = environment["MASTER_ADDR"]
        port = int(environment["MASTER_PORT"])
    elif {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} <= environment.keys():
        rank, size, local = (
            int(environment.get(key, 0))
            for key in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
        )
        # All processes of a job take the same port, and each job of a machine takes another one.
        job = int(environment.get("SLURM_JOB_ID", "0"))
        port = int(environment.get("MASTER_PORT", 15000 + job % 10000))
        address = environment.get("MASTER_ADDR", "")
        if size > 1 and not address:
            address = _first_node(environment)
    else:
        return None
    if size == 1:
        return None
    return Place(rank, size, local, address, port)


def _first_node(environment: Mapping[str, str]) -> str:
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "127.0.0.1")
    return SLURMEnvironment.resolve_root_node_address(nodes)


def refuse_ranks(what: str) -> None:
    """Refuse to run a single-process command if several processes were started.

    Raises:
        ConfigError: torchrun or srun started several processes.
    """
    rank_place = find_place()
    if rank_place is not None:
        raise ConfigError(
            f"expected one process for {what}, found {rank_place.size} (torchrun or srun); start it "
            "without them. Several processes can fit, validate, test, predict and describe one "
            "federation"
        )


def says_the_end() -> bool:
    """Return whether this process prints why it ends. The first rank to end does; the others end
    because of it.
    """
    return session().is_first("the end")
