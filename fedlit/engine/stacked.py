"""Executes clients of the same structure as one, and the others by another engine."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypedDict

from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.findings import Finding
from fedlit.data.loader import Batch
from fedlit.engine.base import ClientStep, Engine, Evaluation, Scope, Step
from fedlit.engine.leaving import DIFFERS, LEFT, REPLACED, why_alone
from fedlit.engine.scored_together import scored_together
from fedlit.engine.stack import Stack
from fedlit.engine.stack_keys import StackKey, stack_key, steps_taken
from fedlit.engine.stack_sizes import parts_of_stack, smallest_stack
from fedlit.engine.together import together
from fedlit.engine.trial import why_not
from fedlit.engine.views import join
from fedlit.errors import RunError

_log = logging.getLogger(__name__)


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
        self._find(REPLACED, names)

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
                    clients.setdefault(why_alone(steps[name].client), []).append(name)
                elif key != usual and name not in stacked:
                    clients.setdefault(DIFFERS, []).append(name)
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
        device = next(iter(parameters.values())).device
        parts = parts_of_stack(size, len(clients), self.threads, device)
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
        taken = steps_taken([steps[name].client for name in names_left])
        for name, steps_of_client in zip(names_left, taken, strict=True):
            client_step = steps[name]
            key = stack_key(client_step.client, client_step.batch, steps_of_client)
            if key is not None:
                groups.setdefault((key, client_step.update), []).append(name)
        for (key, _), names in groups.items():
            smallest = smallest_stack(steps[names[0]].client)
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
        stacks = [stack for _, stack in self._stacks.values()]
        self.inner.evaluate(scored_together(stacks, jobs, self.scope))

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


def _sliced(tensors: Mapping[str, Tensor], members: slice) -> dict[str, Tensor]:
    """Return some clients' part of stacked tensors."""
    return {name: tensor[members] for name, tensor in tensors.items()}


def _agree(names: Sequence[str], steps: Mapping[str, ClientStep]) -> bool:
    """Return whether the optimizers of all clients step now, or those of none. A client's last
    batch of an epoch may come before the others'.
    """
    return len({steps[name].update for name in names}) == 1


def _log_finding(finding: Finding) -> None:
    _log.warning("%s", finding)
