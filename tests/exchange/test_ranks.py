"""Clients over the ranks of a job: the bits of one process, whatever the number of ranks."""

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from contracts import ALL, APART
from federations import different

from fedlit.exchange.place import find_place
from fedlit.exchange.ranks import deal

NAMES = [*(name for name in ALL if name not in ("centralized", "local")), *APART]
"""All but what needs all rows in one process, and what exchanges nothing."""
FEW = [
    "averages, then fine-tuned",
    "ifca",
    "one is far from the others",
    "pooled logistic",
    "half take part, half the rate, by rows",
    "one is not finite",
]


def same(whole: dict[str, Any], ends: list[dict[str, Any]]) -> list[str]:
    """What is not."""
    tensors = {key: value for end in ends for key, value in end["weights"].items()}
    wrong = different(whole["weights"], tensors)
    assert sum(len(end["weights"]) for end in ends) == len(tensors)
    for end in ends:
        last = len(end["history"])
        whole = {**whole, "history": whole["history"][-last:]}  # a resumed run's is shorter
        wrong += [
            f"{key}: {end[key]} != {whole[key]}"
            for key in whole
            if key != "weights" and end[key] != whole[key]
        ]
    return wrong


def compare(folder: Path, names: list[str], size: int, step: int = 6) -> None:
    before = {}
    jobs = [f"train={name}" for name in names]
    # one process's checkpoints, for ranks
    for name in {names[0]: 0, "cfl": 0, "averages, then fine-tuned": 0}:
        before[name] = folder / f"before {name}"
        before[name].mkdir(parents=True)
        ranks.stop(before[name], name, step)
        jobs += [f"stop={name}={step}", f"resume={name}={before[name] / 'middle.ckpt'}"]
    ended = ranks.on_ranks(size, folder, *jobs)
    assert ended.returncode == 0, ended.stderr[-4000:]
    ends = [torch.load(folder / f"{size}-{rank}.pt", weights_only=True) for rank in range(size)]
    wrong = {}
    wholes = {name: ranks.train(folder / f"one {name}", name) for name in {*names, "cfl"}}
    for job in ends[0]:
        wrong[job] = same(wholes[job.split("=")[1]], [end[job] for end in ends])
    for number, job in enumerate(jobs):
        if job.startswith("stop"):  # the ranks' checkpoints, for one process
            name = job.split("=")[1]
            again = ranks.train(
                folder / f"again {name}", name, folder / f"{size}-ranks-{number}" / "middle.ckpt"
            )
            wrong[f"{job}, then one"] = same(wholes[name], [again])
    assert {job: own for job, own in wrong.items() if own} == {}


def test_two_ranks_have_the_bits_of_one_process(tmp_path: Path) -> None:
    compare(tmp_path, FEW, 2)


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_have_the_bits_of_one_process(size: int, tmp_path: Path) -> None:
    compare(tmp_path, NAMES, size)


def test_blocks_are_even_and_in_the_order_of_names() -> None:
    sizes = {f"c{place:03d}": 10 + 7 * place % 13 for place in range(100)}
    for size in (1, 2, 3, 7, 100):
        blocks = deal(sizes, size)
        assert [name for block in blocks for name in block] == sorted(sizes) and all(blocks)
        loads = [sum(sizes[name] for name in block) for block in blocks]
        assert max(loads) - min(loads) <= 2 * max(sizes.values())
    assert deal({"a": 1000, "b": 1, "c": 1}, 3) == [["a"], ["b"], ["c"]]
    assert deal({"a": 1, "b": 1, "c": 1000}, 3) == [["a"], ["b"], ["c"]]


def test_torchrun_and_srun_make_a_process_one_of_several() -> None:
    step = {
        "SLURM_PROCID": "3",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_LOCALID": "1",
        "SLURM_JOB_ID": "123456",
    }
    place = find_place({**step, "SLURM_STEP_NODELIST": "gpu[07-10]"})
    assert place is not None
    assert (place.rank, place.size, place.local, place.address, place.port) == (
        3,
        8,
        1,
        "gpu07",
        18456,
    )
    assert find_place({**step, "SLURM_STEP_NUM_TASKS": "1"}) is None
    alone = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "node",
        "MASTER_PORT": "1",
    }
    assert find_place(alone) is None
