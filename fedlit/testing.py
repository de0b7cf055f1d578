"""Tests of a method by the contracts that all shipped methods keep. It needs no test framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.errors import expect
from fedlit.exchange.outcome import Outcome
from fedlit.exchange.rule import Update
from fedlit.exchange.server import Server
from fedlit.exchange.transport import Answer, Transport
from fedlit.run.config import listed
from fedlit.run.run import Run
from fedlit.sharing import State, named_tensors

_SHOWN = 5
"""How many names of tensors a message shows."""


def check_method(make: Callable[[], Run], epochs: int = 3) -> None:
    """Check that a method keeps the contracts of fedlit, whatever its client, rule and
    configuration are.

    It trains three runs of a few epochs in a temporary folder: one as it is, one with the clients
    in reverse order, and one that is killed after its first epoch and again in the middle of the
    second, and resumed each time.

    1. The same seed gives the same bits, whatever the order of the clients is.
    2. A run that was killed and resumed ends with the same bits. What a client remembers must be in
      its parameters,
       its buffers or its ``state``, and what a rule remembers in its ``state_dict``.
    3. No private tensor is sent, and none is published as a copy. Answers to a rule's questions are
      not checked.
    4. Right after an exchange (with ``exchange.rate: 1``), each client has exactly what the rule
      gave it, unless its
       class says that it ``adapts`` what it receives.

    Args:
        make: makes a new run of the method, the same each time.
        epochs: how many epochs each run has, at least 2; there must be an exchange within them.

    Raises:
        AssertionError: the method breaks contracts; the message has a line for each, with clients
            and tensors.
        ConfigError: the run has fewer than two epochs of two batches, or nothing was exchanged.

    Example:
        >>> from fedlit.run.load import load
        >>> check_method(lambda: load("quickstart.yaml", "--method=fedprox_global_layers"), epochs=2)
    """
    expect(epochs >= 2, "check_method: epochs", "at least 2", epochs)
    with TemporaryDirectory() as folder:
        whole = _short(make(), Path(folder, "whole"), epochs)
        watch = Watch(whole)
        whole.fit(quiet=True)
        expect(
            watch.exchanges > 0,
            "check_method",
            "a run that exchanges",
            "no exchange",
            "train more epochs",
        )
        batches = int(whole.trainer.num_training_batches) if whole.trainer is not None else 0
        expect(
            batches >= 2,
            "check_method",
            "epochs of at least 2 batches",
            batches,
            "set data.batches: 4",
        )

        again = _short(make(), Path(folder, "again"), epochs)
        again.data.source = _Reversed(again.data.source)
        again.fit(quiet=True)

        for step, checkpoint in ((batches, None), (batches + batches // 2, "last")):
            killed = _short(make(), Path(folder, "killed"), epochs)
            _add(killed, StopAfter(step, Path("checkpoints", "last.ckpt")))
            try:
                killed.fit(checkpoint, quiet=True)
            except KeyboardInterrupt:
                continue
        resumed = _short(make(), Path(folder, "killed"), epochs)
        resumed.fit("last", quiet=True)

    unlike = different(weights(whole), weights(again))
    lost = different(weights(whole), weights(resumed))
    findings = {
        "expected the same bits with the clients in another order; draw random numbers with torch": unlike,
        "expected the same bits when killed and resumed; keep what is remembered in buffers or in "
        "`state`": lost,
        "expected that nothing private is sent": sorted(watch.leaked),
        "expected what the rule gave right after an exchange; set `adapts = True` in the class": sorted(
            watch.changed
        ),
    }
    broken = [f"{contract}: {_first(names)}" for contract, names in findings.items() if names]
    if broken:
        raise AssertionError("the method breaks contracts:\n" + "\n".join(broken))


def _short(run: Run, folder: Path, epochs: int) -> Run:
    """Return the run, with another folder and number of epochs."""
    run.root = folder
    run.trainer_options["max_epochs"] = epochs
    return run


def _add(run: Run, callback: Callback) -> None:
    run.trainer_options["callbacks"] = [*listed(run.trainer_options.get("callbacks")), callback]


def _first(names: list[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


class _Reversed(Source):
    """The tables of a source in reverse order."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def tables(self, seed: int) -> list[ClientTable]:
        return self.source.tables(seed)[::-1]


class Watch(Transport):
    """Watches what clients of a run send, and what they are right after each exchange.

    Args:
        run: the run, before it is trained; its clients are all in this process.

    Attributes:
        exchanges: the number of exchanges so far.
        leaked: the private tensors that were sent, each as ``clients.north.head.weight``.
        changed: the federated tensors that were not, right after an exchange, what the rule had
            given.
    """

    def __init__(self, run: Run) -> None:
        self.exchanges = 0
        self.leaked: set[str] = set()
        self.changed: set[str] = set()
        self._run = run
        self._received: Mapping[str, State] = {}
        run.exchange.transport = self
        _add(run, _AfterStep(self))

    def exchange(
        self,
        server: Server,
        number: int,
        updates: Mapping[str, Update],
        answer: Answer,
        *,
        measure: bool,
    ) -> Outcome:
        """Run one round, and remember what it gave."""
        outcome = super().exchange(server, number, updates, answer, measure=measure)
        if number >= 0:  # not the round before training
            self.exchanges += 1
            for name, update in updates.items():
                self.leaked |= set(_private_in(update, self._run.loop.federation[name]))
            self._received = outcome.received
            self.on_exchange(updates, outcome.received)
        return outcome

    def on_exchange(self, updates: Mapping[str, Update], received: Mapping[str, State]) -> None:
        """Called in each exchange, with what clients sent and what they will receive, for a test
        that looks at more.

        Args:
            updates: the updates of the clients that take part, by name.
            received: what the rule returned, by client and tensor.
        """

    def after_step(self) -> None:
        """Compare clients with what the last exchange gave them, if the step that has just ended
        had one.
        """
        clients = self._run.loop.federation
        if self._run.exchange.rate != 1:
            self._received = {}
        for name, state in self._received.items():
            if not clients[name].adapts:
                tensors = clients[name].federated
                self.changed |= {
                    f"clients.{name}.{key}"
                    for key, value in state.items()
                    if key in tensors and not torch.equal(tensors[key], value)
                }
        self._received = {}


class _AfterStep(Callback):
    """Tells a watch that a step has ended, with the exchange that belongs to it."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def on_train_batch_end(self, *_: object) -> None:
        self.watch.after_step()


def _private_in(update: Update, client: FederatedClient) -> Iterator[str]:
    """Return the private tensors of a client whose memory it sends, or of which it publishes a
    copy.
    """
    federated = {client._federated.tensor_of(name) for name in client._federated}
    sent = {tensor.data_ptr() for tensor in (*update.state.values(), *update.published.values())}
    for name, tensor in named_tensors(client).items():
        if name in federated or not tensor.numel():
            continue
        # zeros and single numbers are alike by chance
        copied = tensor.numel() > 1 and bool(tensor.any())
        copies = [
            value for value in update.published.values() if copied and torch.equal(value, tensor)
        ]
        if copies or tensor.data_ptr() in sent:
            yield f"clients.{client.spec.name}.{name}"


class StopAfter(Callback):
    """Stops a run after an aligned step, as a kill would, and saves a checkpoint there. After the
    last step of an epoch, it stops before the next epoch instead: what the end of an epoch writes
    is there.

    Args:
        step: the aligned step, from 1.
        path: the file of the checkpoint; a relative path is below the run's folder.
        by: what is raised.
    """

    def __init__(self, step: int, path: Path, by: type[BaseException] = KeyboardInterrupt) -> None:
        self.step = step
        self.path = path
        self.by = by

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Stop, unless this step is the last one of its epoch."""
        if trainer.global_step == self.step and not trainer.is_last_batch:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / self.path)
            raise self.by

    def on_train_epoch_start(self, trainer: Trainer, *_: object) -> None:
        """Stop if the step was the last one of the epoch before."""
        if trainer.global_step == self.step:
            raise self.by


def weights(run: Run) -> dict[str, Tensor]:
    """Return copies of all tensors of all clients, by client and name, with those that clients keep
    in ``state``.
    """
    tensors = dict(run.loop.state_dict())
    for name, client in run.loop.federation.items():
        tensors |= _tensors_in(client.state, f"clients.{name}")
    return {name: value.clone() for name, value in tensors.items()}


def _tensors_in(tree: object, name: str) -> dict[str, Tensor]:
    """Return the tensors of nested mappings, with their path as name."""
    if isinstance(tree, Tensor):
        return {name: tree}
    tensors: dict[str, Tensor] = {}
    if not isinstance(tree, Mapping):
        return tensors
    for key, value in tree.items():
        tensors |= _tensors_in(value, f"{name}.{key}")
    return tensors


def different(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> list[str]:
    """Return the names, sorted, of the tensors whose bits differ or that only one of two mappings
    has.

    Example:
        >>> different({"a": torch.zeros(1), "b": torch.ones(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)})
        ['b']
    """
    shared = first.keys() & second.keys()
    names = first.keys() ^ second.keys()
    return sorted(names | {name for name in shared if not torch.equal(first[name], second[name])})
