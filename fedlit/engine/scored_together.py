"""Evaluates the batches of the clients of a stack together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from torch import Tensor

from fedlit.client.client import has_hook
from fedlit.engine.base import Evaluation, Scope
from fedlit.engine.stack import Stack


def scored_together(
    stacks: Iterable[Stack], jobs: Sequence[Evaluation], scope: Scope
) -> list[Evaluation]:
    """Return the evaluations to execute: one for each round of a stack, in which each of its
    clients has a batch, and those of single clients.

    Args:
        stacks: the stacks.
        jobs: the evaluations of all clients.
        scope: makes the context in which a stack is evaluated.
    """
    stack_of: dict[int, Stack] = {}
    position: dict[int, int] = {}
    for stack in stacks:
        if not stack.scores_alike:
            continue
        for index, client in enumerate(stack.clients):
            if not has_hook(client, "evaluate"):
                stack_of[id(client)] = stack
                position[id(client)] = index
    rounds: dict[tuple[int, int], list[Evaluation]] = {}
    single: list[Evaluation] = []
    batches: Counter[int] = Counter()  # client → the number of its batches so far
    for job in jobs:
        client_id = id(job.client)
        if client_id in stack_of:
            key = (id(stack_of[client_id]), batches[client_id])
            rounds.setdefault(key, []).append(job)
            batches[client_id] += 1
        else:
            single.append(job)
    for round_jobs in rounds.values():
        stack = stack_of[id(round_jobs[0].client)]
        lengths = [len(job.batch.y) for job in round_jobs]
        if len(round_jobs) < len(stack.clients) or not stack.pads(lengths):
            single += round_jobs
        else:
            round_jobs.sort(key=lambda job: position[id(job.client)])
            single.append(_of_stack(stack, round_jobs, scope))
    return single


def _of_stack(stack: Stack, jobs: Sequence[Evaluation], scope: Scope) -> Evaluation:
    """Return an evaluation that executes those of all clients of a stack."""

    def run() -> tuple[Tensor, Tensor]:
        try:
            with scope():
                outcomes = stack.evaluate([job.batch for job in jobs])
        except Exception as error:
            for job in jobs:
                job.fail(error)
            raise
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.settle(outcome)
        return outcomes[0]

    return Evaluation(jobs[0].client, jobs[0].batch, run)
