"""Executes clients of the same structure as one, and the others by another engine; makes the engine
of a name.
"""

import ctypes
import logging
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.base import (
    ClientStep,
    Engine,
    EngineName,
    Evaluation,
    PlainEngine,
    Scope,
    Step,
    ThreadedEngine,
)
from fedlit.engine.stack import Stack
from fedlit.errors import RunError

MAX_ROWS = 256
"""Rows in a batch up to which stacking pays; beyond, the arithmetic dominates and threads do as
well."""

ELEMENTWISE = frozenset(
    {
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.RMSprop,
    }
)
"""Optimizers that treat each number by itself, so that one of them serves stacked parameters."""

_MODULE = frozenset(vars(nn.Module()))
_SAME = _MODULE | {"axes"}
_STEP_HOOKS = ("on_after_backward", "on_before_optimizer_step", "on_before_zero_grad", "optimizers")


def stack_key(client: FederatedClient, batch: Batch) -> Hashable | None:
    """Return the key of clients that may share a stack; None for a client that may not.

    A client qualifies if it is a plain :class:`FederatedClient`, or of a class that itself sets
    ``stackable = True`` (its ``forward``, ``loss`` and ``objective`` use nothing of the client but
    its modules), with one optimizer that treats numbers one by one. Clients match if their tasks
    have the same loss and their networks the same modules, shapes and settings.
    """
    kind = type(client)
    own_step = kind.training_step is not FederatedClient.training_step
    if (
        not vars(kind).get("stackable")
        or own_step
        or not client.automatic_optimization
        or batch.weight is not None
    ):
        return None
    if any(getattr(kind, hook) is not getattr(FederatedClient, hook) for hook in _STEP_HOOKS):
        return None
    if (
        len(client._optimizers) != 1
        or type(client._optimizers[0]) not in ELEMENTWISE
        or len(batch.y) > MAX_ROWS
    ):
        return None
    optimizer = client._optimizers[0]
    groups = tuple(
        (key, repr(g[key])) for g in optimizer.param_groups for key in g if key != "params"
    )
    steps = {float(state["step"]) for state in optimizer.state.values() if "step" in state}
    # one that has lost its state differs from the others from then on
    age = (len(optimizer.state), *steps)
    task = client.spec.task.alike
    structure: list[Any] = [
        kind,
        task,
        client.gradient_clip_val,
        batch.x.shape,
        type(optimizer),
        groups,
        age,
    ]
    for name, module in client.named_modules():
        hooks = (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
        if any(hooks):
            return None
        if module is not client:
            # names of columns and classes change nothing that is computed
            settings = {
                key: value
                for key, value in vars(module).items()
                if key not in _SAME or key == "training"
            }
            structure.append(
                (name, type(module), tuple((key, _plain(value)) for key, value in settings.items()))
            )
    for parameter in client.parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return None
        structure.append(parameter.requires_grad)
    structure += [(name, value.shape, value.dtype) for name, value in client.state_dict().items()]
    return tuple(structure)


def _plain(value: Any) -> Hashable:
    return (
        value
        if isinstance(value, bool | int | float | str | None)
        else repr(value)
        if _simple(value)
        else id(value)
    )


def _simple(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(
        isinstance(item, bool | int | float | str | None) for item in value
    )


_log = logging.getLogger(__name__)

SMALLEST_STACK = 4
LARGEST_STACK = 32
"""The number of clients of the same structure from which on stacking pays, and the largest number
that share a stack: more would start fewer operations, but their gradients would take more memory at
a time."""


class StackedEngine(Engine):
    """Combines clients of the same structure into stacks (see :mod:`fedlit.engine.stack`). Another
    engine executes the stacks and the remaining clients.

    Which clients share a stack depends on their names and settings only, so the same federation
    gives the same bits.

    Args:
        inner: executes stacks and single clients.
        scope: makes the context in which a stack's step runs.
        compiled: whether compiled kernels may be used.

    Attributes:
        resumed: the clients that shared a stack when a checkpoint was written, for the first step
            after it. (Clients that have lost their optimizer's state differ from the others from
            then on, and it is not known afterwards which ones have.)
    """

    def __init__(self, inner: Engine, scope: Scope, compiled: bool) -> None:
        self.inner = inner
        self.scope = scope
        self.compiled = compiled
        self.resumed: dict[str, list[Any]] | None = None
        self.intra_op = inner.intra_op
        self._names: tuple[str, ...] = ()
        self._stacks: dict[str, tuple[list[str], Stack]] = {}
        self._refused: set[Hashable] = set()
        self._tried: set[Hashable] = set()

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`."""
        if tuple(steps) != self._names:
            self._stack_up(steps)
        for _ in range(2):  # a checkpoint's stacks may hold clients that part in this very step
            if not all(
                stack.consistent and _agree(names, steps) for names, stack in self._stacks.values()
            ):
                self._stack_up(steps)
        joint: dict[str, ClientStep] = {}
        stacked: set[str] = set()
        for label, (names, stack) in self._stacks.items():
            members = [steps[name] for name in names]
            rows = Batch(
                torch.cat([one.batch.x for one in members]),
                torch.cat([one.batch.y for one in members]),
            )
            joint[label] = ClientStep(
                members[0].client, rows, self._step_of(stack, rows, members), dry=True
            )
            stacked.update(names)
        self.inner.run(joint | {name: one for name, one in steps.items() if name not in stacked})

    def _step_of(self, stack: Stack, rows: Batch, steps: Sequence[ClientStep]) -> Step:
        seeds = [one.seed for one in steps]

        def step(seeded: bool) -> bool:
            try:
                with self.scope():
                    stack.step(rows, steps[0].accumulate, steps[0].update, seeds)
            except Exception as error:
                names = ", ".join(client.spec.name for client in stack.clients)
                raise RunError(
                    f"clients {names}, stepped as one: {type(error).__name__}: {error}"
                ) from error
            return False

        return step

    def _stack_up(self, steps: Mapping[str, ClientStep]) -> None:
        self._dissolve()
        self._names = tuple(steps)
        resumed = self.resumed
        self.resumed = None
        same = resumed is not None and resumed["clients"] == list(steps)
        for names in resumed["stacks"] if resumed is not None and same else self._divide(steps):
            stack = Stack([steps[name].client for name in names], self.compiled)
            self._stacks[f"{names[0]} … {names[-1]}"] = (names, stack)

    def _divide(self, steps: Mapping[str, ClientStep]) -> Iterator[list[str]]:
        """Divide clients into stacks."""
        alike: dict[tuple[Hashable, bool], list[str]] = {}
        for name, one in steps.items():
            key = stack_key(one.client, one.batch)
            if key is not None:
                alike.setdefault((key, one.update), []).append(name)
        for (key, _), names in alike.items():
            if len(names) < SMALLEST_STACK or key in self._refused:
                continue
            if key not in self._tried:
                pair = [steps[name].client for name in names[:2]]
                with self.scope():
                    reason = Stack.why_not(pair, steps[names[0]].batch, self.compiled)
                if reason:
                    self._refused.add(key)
                    others = len(names) - 1
                    _log.warning(
                        "%s and %d clients like it are stepped one by one: %s",
                        names[0],
                        others,
                        reason,
                    )
                    continue
                self._tried.add(key)
            parts = -(-len(names) // LARGEST_STACK)
            for part in range(parts):
                yield names[part * len(names) // parts : (part + 1) * len(names) // parts]

    @property
    def shared(self) -> dict[str, list[Any]]:
        """The clients that take part, and the stacks that they share, for a checkpoint."""
        return {
            "clients": list(self._names),
            "stacks": [names for names, _ in self._stacks.values()],
        }

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`. The batches of a stack's clients in one round are evaluated
        together.
        """
        position = {
            id(client): (stack, index)
            for _, stack in self._stacks.values()
            for index, client in enumerate(stack.clients)
            if type(client).evaluate is FederatedClient.evaluate
        }
        rounds: dict[tuple[int, int], list[Evaluation]] = {}
        single: list[Evaluation] = []
        seen: dict[int, int] = {}
        for job in jobs:
            own = id(job.client)
            if own in position:
                seen[own] = seen.get(own, -1) + 1
                rounds.setdefault((id(position[own][0]), seen[own]), []).append(job)
            else:
                single.append(job)
        for together in rounds.values():
            stack, _ = position[id(together[0].client)]
            if (
                len(together) < len(stack.clients)
                or len({len(job.batch.y) for job in together}) > 1
            ):
                single += together
            else:
                self._evaluate_stack(
                    stack, sorted(together, key=lambda job: position[id(job.client)][1])
                )
        self.inner.evaluate(single)

    def _evaluate_stack(self, stack: Stack, jobs: Sequence[Evaluation]) -> None:
        def run() -> tuple[Tensor, Tensor]:
            try:
                with self.scope():
                    outcomes = stack.evaluate([job.batch for job in jobs])
            except Exception as error:
                for job in jobs:
                    job.outcome.set_exception(error)
                raise
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.outcome.set_result(outcome)
            return outcomes[0]

        self.inner.evaluate([Evaluation(jobs[0].client, jobs[0].batch, run)])

    def close(self) -> None:
        """See :class:`Engine`."""
        self._dissolve()
        self.inner.close()

    def _dissolve(self) -> None:
        # one by one: the next stack's clients take the memory that this one leaves
        while self._stacks:
            _, (_, stack) = self._stacks.popitem()
            stack.release()
        self._names = ()


def _agree(names: Sequence[str], steps: Mapping[str, ClientStep]) -> bool:
    """Return whether the optimizers of all clients step now, or those of none. A client's last
    batch of an epoch may come before the others'.
    """
    return len({steps[name].update for name in names}) == 1


@cache
def keep_freed_memory() -> None:
    """Let the C library (glibc) reuse the memory of large tensors, instead of giving it back to the
    system and asking for it again: at each step this cost a fifth of a stack's time in page faults.
    """
    if sys.platform != "linux":
        return
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    # numbers of malloc.h
    trim_threshold = -1
    mmap_threshold = -3
    arena_max = -8
    tune(mmap_threshold, 2**30)
    tune(trim_threshold, 2**31 - 1)
    tune(arena_max, 1)  # threads' own arenas are given back whatever the thresholds


def make_engine(
    name: EngineName,
    clients: int,
    threads: int,
    device: torch.device,
    scope: Scope,
    compiled: bool = False,
) -> Engine:
    """Return the engine of a given name.

    ``threads`` are divided: as many clients run side by side as there are threads, and the
    remaining threads are used inside each client's operations.

    Args:
        name: ``plain``, ``threads``, or ``auto``.
        clients: the number of clients.
        threads: the number of threads in total.
        device: the device of the clients; they run side by side on the CPU only.
        scope: makes the context in which a step runs.
        compiled: whether compiled kernels may be used.

    Example:
        >>> from contextlib import nullcontext
        >>> engine = make_engine("threads", clients=4, threads=8, device=torch.device("cpu"), scope=nullcontext)
        >>> engine.workers, engine.intra_op
        (4, 2)
    """
    workers = min(clients, threads)
    if name == "plain":
        return PlainEngine(threads)
    keep_freed_memory()
    if name == "threads":
        return (
            ThreadedEngine(workers, max(1, threads // workers))
            if device.type == "cpu"
            else PlainEngine(threads)
        )
    alone = device.type != "cpu" or workers == 1
    inner = (
        PlainEngine(threads)
        if alone
        else ThreadedEngine(workers, max(1, threads // workers), trial=True)
    )
    return StackedEngine(inner, scope, compiled) if clients >= SMALLEST_STACK else inner
