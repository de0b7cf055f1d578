"""Executes clients of the same structure as one, and the others by another engine; makes the engine
of a name.
"""

import ctypes
import logging
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedlit.client.client import FederatedClient, has_hook
from fedlit.data.findings import Finding
from fedlit.data.loader import Batch
from fedlit.devices import runs_ahead
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
from fedlit.engine.layers import PlainNetwork
from fedlit.engine.stack import Stack
from fedlit.engine.together import together
from fedlit.engine.trial import why_not
from fedlit.engine.views import has_hooks, has_methods, join
from fedlit.errors import RunError

MAX_ROWS = 256
"""The largest number of rows in a batch for which stacking pays on a CPU. With more, the arithmetic
dominates, and threads are as fast."""

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
_STEP_HOOKS = (
    "training_step",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "optimizers",
)
_Scalar = bool | int | float | str | None


class StackKey(NamedTuple):
    """What clients that share a stack have in common.

    Attributes:
        structure: the structure of the client, its batch and its optimizer.
        steps: how many parameters the optimizer has a state of, and the steps that it has taken. A
            client whose optimizer has lost its state differs from the others from then on.
    """

    structure: Hashable
    steps: Hashable


def stack_key(
    client: FederatedClient, batch: Batch, steps: Sequence[float] | None = None
) -> StackKey | None:
    """Return the key of clients that may share a stack; None for a client that may not.

    A client qualifies if it is a plain :class:`FederatedClient`, or of a class that itself sets
    ``stackable = True`` (its ``forward``, ``loss`` and ``objective`` use nothing of the client but
    its modules), with one optimizer that treats numbers one by one. Clients match if their tasks
    have the same loss and their networks the same modules, shapes and settings.

    Args:
        client: the client.
        batch: its batch.
        steps: the numbers of steps in the state of its optimizer; None to read them.
    """
    if not _has_plain_step(client, batch) or has_hooks(client):
        return None
    optimizer = client._optimizers[0]
    if steps is None:
        (steps,) = _steps_taken([client])
    structure: list[object] = [
        type(client),
        client.training,
        client.spec.task.alike,
        client.gradient_clip_val,
        _shape(client, batch),
        type(optimizer),
        _optimizer_settings(optimizer),
    ]
    for name, module in client.named_modules():
        if module is not client:
            structure.append((name, type(module), _module_settings(module)))
    structure += [parameter.requires_grad for parameter in client.parameters()]
    tensors = chain(client.named_parameters(), client.named_buffers())
    structure += [(name, value.shape, value.dtype) for name, value in tensors]
    return StackKey(tuple(structure), (len(optimizer.state), *steps))


def _steps_taken(clients: Sequence[FederatedClient]) -> list[tuple[float, ...]]:
    """Return the different numbers of steps in the state of each client's optimizers. Those that
    are on a device are read at once.
    """
    of_clients = []
    for client in clients:
        states = chain.from_iterable(optimizer.state.values() for optimizer in client._optimizers)
        of_clients.append([state["step"] for state in states if "step" in state])
    counts = list(chain(*of_clients))
    if counts and all(isinstance(count, Tensor) and runs_ahead(count.device) for count in counts):
        counts = torch.stack(counts).tolist()
    numbers = map(float, counts)
    return [tuple(sorted(set(islice(numbers, len(counts))))) for counts in of_clients]


def _has_plain_step(client: FederatedClient, batch: Batch) -> bool:
    """Return whether a stack can take the client's step: one of the loop's own, on unweighted rows,
    with one optimizer that treats numbers one by one.
    """
    kind = type(client)
    if not vars(kind).get("stackable") or not client.automatic_optimization:
        return False
    if any(has_hook(client, hook) for hook in _STEP_HOOKS):
        return False
    if has_methods(client):
        return False
    if batch.weight is not None:
        return False
    if len(batch.y) > MAX_ROWS and not runs_ahead(batch.x.device):
        return False
    return len(client._optimizers) == 1 and type(client._optimizers[0]) in ELEMENTWISE


def _shape(client: FederatedClient, batch: Batch) -> torch.Size:
    """Return what must be equal of the shapes of clients' batches."""
    if runs_ahead(batch.x.device):
        network = PlainNetwork.of_client(client)
        if network is not None and network.by_rows:
            return batch.x.shape[1:]
    return batch.x.shape


def _optimizer_settings(optimizer: Optimizer) -> Hashable:
    settings: list[tuple[str, str]] = []
    for group in optimizer.param_groups:
        settings += [(key, repr(value)) for key, value in group.items() if key != "params"]
    return tuple(settings)


def _module_settings(module: nn.Module) -> Hashable:
    """Return the attributes of a module that change its results; names of columns and classes do
    not.
    """
    settings = []
    for key, value in vars(module).items():
        if key not in _SAME or key == "training":
            settings.append((key, _plain(value)))
    return tuple(settings)


def _plain(value: object) -> Hashable:
    """Return a value by which equal settings are recognised."""
    if isinstance(value, _Scalar):
        return value
    if isinstance(value, tuple | list) and all(isinstance(item, _Scalar) for item in value):
        return repr(value)
    return id(value)


_log = logging.getLogger(__name__)

SMALLEST_STACK = 4
"""The number of clients of the same structure from which on stacking pays, if their networks have
plain layers only (:mod:`fedlit.engine.layers`)."""

SMALLEST_OF_ANY = 6
"""The same number for any other networks, which ``vmap`` stacks."""

LARGEST_STACK = 2**26
"""The most bytes of parameters that are stepped as one. Larger stacks start no fewer operations
worth the memory of their gradients."""

LARGEST_AHEAD = 2**31
"""The same number on a device that runs ahead, such as a GPU, which computes a large stack as fast
as it reads the stack's memory. This was not measured."""

SHARED_OUT = 32
"""The number of clients for each thread from which on threads step stacks of their own."""


LEAST_FOR_THREADS = 2**22
"""The product of rows and parameters of a step from which on steps run side by side on threads
(``benchmarks/threads.py``). Python's part of smaller steps is too large."""

LEFT = "left its stack"
"""The kind of a finding about clients that are no longer stepped with others as one."""

_REPLACED = (
    "stepped alone from here on, because one of its modules, parameters or buffers was replaced by "
    "another one; write into the tensor instead (copy_)"
)
_HOOKED = "stepped alone, because it has a hook that a stack would not call"
_METHOD = "stepped alone, because one of its methods was replaced"
_NO_STACK = "stepped alone, because no stack takes a step such as its own"
_DIFFERS = (
    "no longer stepped with those it was stepped with, because its modules' modes, its frozen "
    "parameters, or the settings or state of its optimizer differ from theirs"
)


class SharedStacks(TypedDict):
    """The clients that took part in a step, the names in each group of homogeneous ones, the
    clients that have left their stack for good, and the findings about those that left.
    """

    clients: list[str]
    stacks: list[list[str]]
    leavers: list[str]
    findings: list[dict[str, Any]]


class StackedEngine(Engine):
    """Combines clients of the same structure into stacks (see :mod:`fedlit.engine.stack`). Another
    engine executes the stacks and the remaining clients.

    Which clients share a stack depends on their names and settings only, so the same federation
    gives the same bits.

    Args:
        inner: executes stacks and single clients.
        scope: makes the context in which a stack's step runs.
        compiled: whether compiled kernels may be used.
        threads: the number of stacks that ``inner`` executes at a time.

    Attributes:
        resumed: the clients that shared a stack when a checkpoint was written, for the first step
            after it. (Clients that have lost their optimizer's state differ from the others from
            then on, and it is not known afterwards which ones have.)
        findings: what was found about clients that left their stack.
        on_finding: called with each of them, once.
    """

    def __init__(self, inner: Engine, scope: Scope, compiled: bool, threads: int = 1) -> None:
        self.inner = inner
        self.threads = threads
        self.scope = scope
        self.compiled = compiled
        self.resumed: SharedStacks | None = None
        self.findings: list[Finding] = []
        self.on_finding: Callable[[Finding], None] = _log_finding
        self.intra_op = inner.intra_op
        self._names: tuple[str, ...] = ()
        self._groups: list[list[str]] = []  # the names of homogeneous clients
        self._stacks: dict[str, tuple[list[str], Stack]] = {}  # label → its clients' names, stack
        self._refused: set[Hashable] = set()
        self._tried: set[Hashable] = set()
        self._leavers: set[str] = set()  # clients with a tensor that is no longer their stack's

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`."""
        self._let_leave()
        if tuple(steps) != self._names:
            self._stack_up(steps)
        for _ in range(2):  # Stacks of a checkpoint may hold clients that differ from this step on.
            if self._consistent(steps):
                break
            self._restack(steps)
        single = dict(steps)
        stacked: dict[str, ClientStep] = {}
        for label, (names, stack) in self._stacks.items():
            members = [single.pop(name) for name in names]
            rows = together([member.batch for member in members])
            step = self._step_of(stack, rows, members)
            stacked[label] = ClientStep(members[0].client, rows, step, dry=True)
        self.inner.run(stacked | single)

    def _let_leave(self) -> None:
        """Let clients with a tensor that is no longer their stack's be stepped alone from now on,
        and name them.
        """
        replaced = list(chain(*(stack.replaced for _, stack in self._stacks.values())))
        if not replaced:
            return
        names = sorted(client.spec.name for client in replaced)
        self._leavers.update(names)
        self._dissolve()
        self._find(_REPLACED, names)

    def _restack(self, steps: Mapping[str, ClientStep]) -> None:
        """Stack clients anew, because some are no longer like those that they share a stack with,
        and name them.
        """
        before = self._groups
        self._stack_up(steps)
        stacked = set(chain(*self._groups))
        clients: dict[str, list[str]] = {}  # by sentence
        for names in before:
            keys = {name: stack_key(steps[name].client, steps[name].batch) for name in names}
            ((usual, _),) = Counter(keys.values()).most_common(1)
            for name, key in keys.items():
                if key is None:
                    clients.setdefault(_why_alone(steps[name].client), []).append(name)
                elif key != usual and name not in stacked:
                    clients.setdefault(_DIFFERS, []).append(name)
        for sentence, names in clients.items():
            self._find(sentence, names)

    def _find(self, sentence: str, names: Sequence[str]) -> None:
        """Make a finding about clients, unless it was made before."""
        named = set[str]()
        for finding in self.findings:
            if finding.sentence == sentence:
                named.update(finding.clients)
        clients = tuple(name for name in names if name not in named)
        if clients:
            finding = Finding(LEFT, sentence, clients, severity="info")
            self.findings.append(finding)
            self.on_finding(finding)

    def _consistent(self, steps: Mapping[str, ClientStep]) -> bool:
        """Return whether the clients of each stack can still be stepped as one."""
        return all(
            stack.consistent and _agree(names, steps) for names, stack in self._stacks.values()
        )

    def _step_of(self, stack: Stack, rows: Batch, steps: Sequence[ClientStep]) -> Step:
        seeds = [client_step.seed for client_step in steps]

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
        if resumed is not None:
            self._leavers.update(resumed["leavers"])
            self.findings = list(map(Finding.of, resumed["findings"]))
        groups: Iterable[list[str]] = self._divide(steps)
        if resumed is not None and resumed["clients"] == list(steps):
            groups = resumed["stacks"]
        self._groups = list(groups)
        for names in self._groups:
            self._stack([steps[name].client for name in names])

    def _stack(self, clients: Sequence[FederatedClient]) -> None:
        """Stack clients of one structure. Stacks that are stepped apart, because of their size or by
        several threads, are slices of the same tensors.
        """
        parameters, buffers = join(clients)
        size = sum(tensor.nbytes for tensor in parameters.values())
        threads = min(self.threads, len(clients) // SHARED_OUT)
        largest = LARGEST_STACK
        if runs_ahead(next(iter(parameters.values())).device):
            largest = LARGEST_AHEAD
        parts = min(max(1, -(-size // largest), threads), len(clients))
        for part in range(parts):
            members = slice(part * len(clients) // parts, (part + 1) * len(clients) // parts)
            tensors = (_sliced(parameters, members), _sliced(buffers, members))
            stack = Stack(clients[members], self.compiled, tensors)
            names = [client.spec.name for client in stack.clients]
            self._stacks[f"{names[0]} … {names[-1]}"] = (names, stack)

    def _divide(self, steps: Mapping[str, ClientStep]) -> Iterator[list[str]]:
        """Divide clients into groups of the same structure."""
        groups: dict[tuple[StackKey, bool], list[str]] = {}
        names_left = [name for name in steps if name not in self._leavers]
        taken = _steps_taken([steps[name].client for name in names_left])
        for name, steps_of_client in zip(names_left, taken, strict=True):
            client_step = steps[name]
            key = stack_key(client_step.client, client_step.batch, steps_of_client)
            if key is not None:
                groups.setdefault((key, client_step.update), []).append(name)
        for (key, _), names in groups.items():
            plain = PlainNetwork.of_client(steps[names[0]].client) is not None
            smallest = SMALLEST_STACK if plain else SMALLEST_OF_ANY
            if len(names) >= smallest and self._works(key.structure, names, steps):
                yield names

    def _works(
        self, structure: Hashable, names: Sequence[str], steps: Mapping[str, ClientStep]
    ) -> bool:
        """Return whether clients of one structure can be stepped as one. The first time, two of them are
        tried, and a failure is logged.
        """
        if structure not in self._tried and structure not in self._refused:
            pair = [steps[name].client for name in names[:2]]
            with self.scope():
                reason = why_not(pair, steps[names[0]].batch, self.compiled)
            if reason:
                message = "%s and %d clients like it are stepped one by one: %s"
                _log.warning(message, names[0], len(names) - 1, reason)
                self._refused.add(structure)
            else:
                self._tried.add(structure)
        return structure in self._tried

    @property
    def shared(self) -> SharedStacks:
        """The clients that take part, and the stacks that they share, for a checkpoint."""
        self._let_leave()
        return {
            "clients": list(self._names),
            "stacks": self._groups,
            "leavers": sorted(self._leavers),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`. The batches of a stack's clients in one round are evaluated
        together.
        """
        self._let_leave()
        stack_of: dict[int, Stack] = {}
        position: dict[int, int] = {}
        for _, stack in self._stacks.values():
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
                single.append(self._evaluation_of(stack, round_jobs))
        self.inner.evaluate(single)

    def _evaluation_of(self, stack: Stack, jobs: Sequence[Evaluation]) -> Evaluation:
        """Return an evaluation that executes those of all clients of a stack."""

        def run() -> tuple[Tensor, Tensor]:
            try:
                with self.scope():
                    outcomes = stack.evaluate([job.batch for job in jobs])
            except Exception as error:
                for job in jobs:
                    job.fail(error)
                raise
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.settle(outcome)
            return outcomes[0]

        return Evaluation(jobs[0].client, jobs[0].batch, run)

    def report(self) -> None:
        """See :class:`Engine`."""
        for _, stack in self._stacks.values():
            stack.report()

    def close(self) -> None:
        """See :class:`Engine`."""
        self._dissolve()
        self.inner.close()

    def _dissolve(self) -> None:
        # Stacks are released one by one, so that the next one's clients can use this one's memory.
        while self._stacks:
            _, (_, stack) = self._stacks.popitem()
            stack.release()
        self._names = ()
        self._groups = []


def _log_finding(finding: Finding) -> None:
    _log.warning("%s", finding)


def _why_alone(client: FederatedClient) -> str:
    """Return why a client has no key."""
    if has_hooks(client):
        return _HOOKED
    if has_methods(client):
        return _METHOD
    return _NO_STACK


def _sliced(tensors: Mapping[str, Tensor], members: slice) -> dict[str, Tensor]:
    """Return some clients' part of stacked tensors."""
    return {name: tensor[members] for name, tensor in tensors.items()}


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
    except (OSError, AttributeError):  # The C library is another one.
        return
    # The numbers are those of malloc.h.
    trim_threshold = -1
    mmap_threshold = -3
    arena_max = -8
    tune(mmap_threshold, 2**30)
    tune(trim_threshold, 2**31 - 1)
    tune(arena_max, 1)  # Arenas of threads are given back whatever the thresholds are.


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
        >>> cpu = torch.device("cpu")
        >>> engine = make_engine("threads", clients=4, threads=8, device=cpu, scope=nullcontext)
        >>> engine.workers, engine.intra_op
        (4, 2)
    """
    if name == "plain":
        return PlainEngine(threads)
    keep_freed_memory()
    workers = max(1, min(clients, threads))
    intra_op = max(1, threads // workers)
    inner: Engine = PlainEngine(threads)
    stacks = 1
    if device.type == "cpu" and name == "threads":
        return ThreadedEngine(workers, intra_op)
    if device.type == "cpu" and workers > 1:
        inner = ThreadedEngine(workers, intra_op, LEAST_FOR_THREADS)
        stacks = workers
    if name == "auto" and clients >= SMALLEST_STACK:
        return StackedEngine(inner, scope, compiled, stacks)
    return inner
