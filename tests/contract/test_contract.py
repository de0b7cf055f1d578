"""The contracts that every method keeps (numbered as in the design that the README links to).

Each method keeps them on one engine in ``make test``, on each in ``make test-all``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import ALL, ENGINES, HONEST, covering, one_in, options_of
from federations import (
    ASKING,
    CLUSTERED,
    EARLY,
    FEDERATED,
    Explodes,
    Faulty,
    StopAfter,
    different,
    make_run,
    trained,
    weights,
)
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from fedlit import FederatedClient, Mean, Round
from fedlit.attacks import Attack
from fedlit.errors import FedlitError, RunError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.questions import bytes_of
from fedlit.exchange.rule import DOWN, Update
from fedlit.run.run import Run
from fedlit.sharing import State, named_tensors
from fedlit.slices import live_of
from fedlit.testing import Watch
from fedlit.train.loop import FederatedLoop


class Watching(Watch):
    """Looks at more than a user's test does: what each client sends, and whether all are given the
    same."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.equal = True
        self.mean = True
        self.names: dict[str, set[str]] = {}
        self.published: dict[str, set[str]] = {}
        self.bytes: dict[str, set[int]] = {}

    def on_exchange(self, updates: Mapping[str, Update], received: Mapping[str, State]) -> None:
        for client, update in updates.items():
            self.names.setdefault(client, set()).update(update.state)
            self.published.setdefault(client, set()).update(update.published)
            self.bytes.setdefault(client, set()).add(
                bytes_of(update.state) + bytes_of(update.published)
            )
        given: dict[str, Tensor] = {}
        for state in received.values():
            for key, value in state.items():
                self.equal &= key.startswith(DOWN) or torch.equal(
                    given.setdefault(key, value), value
                )
        rule = self._run.exchange.rule
        for key, value in given.items() if type(rule) is Mean and rule.weights == "uniform" else ():
            sent = [update.state[key] for update in updates.values() if key in update.state]
            self.mean &= torch.allclose(value, torch.stack(sent).mean(0), rtol=1.3e-6, atol=1e-5)


class Late(Callback):
    """Looks for tensors that change between an epoch's last step, with its exchange, and validation
    or checkpoint."""

    def __init__(self) -> None:
        self.behind: dict[str, Tensor] = {}
        self.changed: list[str] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: FederatedLoop, *_: Any) -> None:  # type: ignore[override]
        self.behind = {key: value.clone() for key, value in pl_module.state_dict().items()}

    def on_validation_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        # averages and best epochs are scored
        if self.behind and not pl_module.federation.personal.wanted:
            self.changed += different(self.behind, pl_module.state_dict())

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        if not pl_module.federation.personal.wanted:  # each client ends with its best epoch
            self.changed += different(self.behind, checkpoint["state_dict"])


ROOTS = {"encoder", "core", "head", "common", "prior", "effects"}
"""The first parts of names that any method may send; what is private by a method's nature has
others."""
ALONE = ("local", "centralized")
"""Methods that exchange nothing."""


@dataclass
class Record:
    """A trained run, and what was seen before and while it was trained."""

    method: str
    engine: str
    options: dict[str, Any]
    run: Run
    watch: Watching
    late: Late
    planned: dict[str, int]
    """Bytes that the plan says a client sends in each exchange."""
    unequal: list[str]
    """Parameters that start otherwise at one client than at another."""


def unequal_starts(run: Run) -> list[str]:
    """Parameters that differ between clients though their name and shape are equal."""
    starts: dict[tuple[str, torch.Size], Tensor] = {}
    unequal = []
    for client in run.loop.federation.values():
        for key, parameter in client.named_parameters():
            first = starts.setdefault((key, parameter.shape), parameter.detach().clone())
            if not torch.equal(first, parameter):
                unequal.append(key)
    return unequal


CASES = [
    pytest.param(case.values, id="-".join(case.values), marks=case.marks)
    for case in covering(list(ALL), ENGINES)
]


@pytest.fixture(scope="module", params=CASES)
def record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A method on an engine, trained once for all contracts."""
    method, engine = request.param
    options = options_of(method, engine)
    late = Late()
    run = make_run(tmp_path_factory.mktemp("whole"), callbacks=[late], **options)
    watch = Watching(run)
    planned = {name: plan["bytes_per_exchange"] for name, plan in run.describe().clients.items()}
    unequal = unequal_starts(run)
    run.fit(quiet=True)
    return Record(method, engine, options, run, watch, late, planned, unequal)


@pytest.fixture(scope="module")
def resumed(record: Record, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same run with all that must not matter: the global generator was used, clients come in
    another order, on fewer threads, an honest federation has no guard; and it was killed behind
    the end of an epoch, and again in the middle of the next."""
    torch.rand(17)
    # one client that is all clients uses threads within its operations
    threads = 2 if record.options.get("pool") else 1
    options = options_of(record.method, record.engine, threads)
    options["clients"] = options["clients"][::-1]
    if record.method in HONEST:
        options["exchange"] = {**options["exchange"], "guard": False}
    folder = tmp_path_factory.mktemp("again")
    for step, checkpoint in ((4, None), (6, "last")):
        stop = StopAfter(step, Path("checkpoints", "last.ckpt"))
        with pytest.raises(KeyboardInterrupt):
            trained(folder, checkpoint, callbacks=[stop], **options)
    return trained(folder, "last", **options)


def test_1_3_13_order_threads_kills_and_guards_change_no_bit(record: Record, resumed: Run) -> None:
    assert different(weights(record.run), weights(resumed)) == []


def test_3_a_resumed_run_has_the_rounds_and_scores(record: Record, resumed: Run) -> None:
    assert record.run.exchange.rounds == resumed.exchange.rounds
    expected = record.run.loop.results["validation"].scores
    scores = resumed.loop.results["validation"].scores
    assert scores.keys() == expected.keys()
    # a stack scores clients to float32 tolerance of each alone, and the first validation behind a
    # start is alone
    tolerance = 1e-5 if record.engine == "stacked" else 0
    for name, values in scores.items():
        assert values == pytest.approx(expected[name], rel=tolerance, abs=0, nan_ok=True)


def test_3_a_resumed_run_goes_on_in_its_folder(resumed: Run) -> None:
    assert [path.name for path in (Path(resumed.root) / "fedlit").iterdir()] == ["version_0"]


def test_4_all_are_given_the_same_and_have_it(record: Record) -> None:
    assert record.watch.changed == set()
    # rules with clusters give each its own, and what answers become is a rule's own affair
    assert record.watch.equal or record.method in {**CLUSTERED, **ASKING}


def test_5_a_tensor_is_averaged_over_those_who_have_it(record: Record) -> None:
    assert record.watch.mean or record.method not in HONEST


def test_6_no_private_tensor_leaves_a_client(record: Record) -> None:
    # by storage: a private tensor under a federated name would be seen too
    assert record.watch.leaked == set()
    for keys in record.watch.names.values():
        assert {key.partition(".")[0] for key in keys} <= ROOTS


def test_7_buffers_stay_private_and_integers_always(record: Record) -> None:
    sharing = record.run.exchange.sharing
    for name, keys in record.watch.names.items():
        buffers = keys - {*sharing.parameters[name]}
        assert not buffers or record.options["exchange"]["buffers"] == "average"
        assert not [key for key in keys if "num_batches_tracked" in key]


def test_9_parameters_of_one_name_and_shape_start_equal(record: Record) -> None:
    assert record.unequal == []


def test_10_an_exchange_precedes_validation_and_checkpoint(record: Record) -> None:
    assert record.late.changed == []


def test_13_the_guard_finds_nothing_at_honest_clients(record: Record) -> None:
    assert record.run.exchange.incident_counts == {} or record.method not in HONEST


def test_15_clients_send_what_the_plan_lists_to_the_byte(record: Record) -> None:
    watch = record.watch
    exchange = record.run.exchange
    assert watch.exchanges == exchange.rounds
    assert (watch.exchanges > 0) == (record.method not in ALONE)
    assert watch.names.keys() == {*record.run.loop.federation} or record.method in ALONE
    for name, keys in watch.names.items():
        assert keys == set(exchange.sharing.names[name])
        assert watch.published[name] == set(exchange.published[name])
        assert watch.bytes[name] == {record.planned[name]}


PACES: list[dict[str, Any]] = [
    {},
    {"batches": None, "batch_size": 8},
    {"batches": 4, "steps": {"ash": 9, "*": 3}},
]
# without an exchange a method is its client; a stack agrees with its clients on their own to
# float32 tolerance only
CLIENTS = [
    "local", "two optimizers", "fedprox", "ifedavg", "apfl", "chfl", "ditto", "fedrep", "fedbabu", "scaffold",
    "feddyn", "pfedme", "per-fedavg, first-order", "moon", "averages, then fine-tuned",
]  # fmt: skip


class Before(Callback):
    """Remembers all tensors as they are after some epochs, before the first exchange."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.weights: dict[str, Tensor] = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        if trainer.current_epoch + 1 == self.epochs:
            assert pl_module.federation.exchange.rounds == 0
            self.weights = {name: value.clone() for name, value in pl_module.state_dict().items()}


@pytest.mark.parametrize(("method", "pace"), covering(CLIENTS, range(len(PACES))))
def test_2_without_exchange_another_client_changes_no_weight(
    method: str, pace: int, tmp_path: Path
) -> None:
    options = {
        key: value
        for key, value in options_of(method, "plain").items()
        if key in ("client", "loop")
    }
    exchange = {
        "every": {"epochs": 3},
        "federated": ["common", "!common.*.head"] if method == "chfl" else ["core"],
    }
    options["exchange"] = {**exchange, "rule": ALL[method].get("exchange", {}).get("rule", Mean)}
    data = {**({"common": ["x0", "x1"]} if method == "chfl" else {}), **PACES[pace]}
    few = {**data, "steps": 3} if "steps" in data else data
    alone = Before(2)
    among = Before(2)
    trained(tmp_path / "a", clients=("birch", "cedar"), data=few, callbacks=[alone], **options)
    # ash has the most steps, and the others wait for it
    trained(
        tmp_path / "b", clients=("ash", "birch", "cedar"), data=data, callbacks=[among], **options
    )
    assert {name.split(".")[1] for name in different(alone.weights, among.weights)} == {"ash"}


def test_6_a_tampered_exchange_cannot_send_a_private_name(tmp_path: Path) -> None:
    class Leaky(Exchange):
        def on_fit_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
            super().on_fit_start(trainer, pl_module)
            ash = pl_module.federation["ash"]
            names = (*ash._federated, "head.weight")
            ash._federated = live_of(ash, named_tensors(ash), names)

    run = make_run(tmp_path, exchange=Leaky(["core"]))
    with pytest.raises(
        RunError, match=r"client 'ash': expected only federated tensors .* found \['head.weight'\]"
    ):
        run.fit(quiet=True)


def test_8_a_client_that_is_not_finite_is_out_and_comes_back(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    class Counting(Mean):
        def __call__(self, round: Round) -> Any:
            seen.append(set(round.updates))
            return super().__call__(round)

    run = trained(
        tmp_path, client=Explodes, exchange={"federated": ["core"], "rule": Counting()}, epochs=4
    )
    assert seen == [
        {"ash", "birch", "cedar"},
        {"ash", "cedar"},
        {"ash", "birch", "cedar"},
        {"ash", "birch", "cedar"},
    ]
    assert run.exchange.not_finite == {"birch": 1}
    assert all(
        torch.isfinite(value).all() for value in weights(run).values() if value.is_floating_point()
    )
    # its optimizer started anew behind the second of four exchanges: 4 batches each remain
    steps = {
        int(state["step"]) for state in run.loop.federation["birch"]._optimizers[0].state.values()
    }
    assert steps == {8}


@pytest.mark.parametrize("method", one_in(5, ALL))
def test_3_early_stops_of_killed_runs_are_the_same(method: str, tmp_path: Path) -> None:
    options = options_of(method, "plain")
    options |= {"loop": {**options["loop"], "stop": EARLY}, "epochs": 9}
    whole = trained(tmp_path / "whole", **options)
    assert whole.trainer is not None and whole.loop.federation.ending.best_epoch == 1
    assert whole.loop.federation.ending.epochs == 2 + 2 * whole.loop.federation.tuning - (
        "fedbabu" in method
    )
    for step, resumed in ((4, None), (6, "last")):
        stop = StopAfter(step, Path("checkpoints", "last.ckpt"))
        with pytest.raises(KeyboardInterrupt):
            make_run(tmp_path / "again", callbacks=[stop], **options).fit(resumed, quiet=True)
    for _ in range(2):  # the second time nothing is left
        again = trained(tmp_path / "again", "last", **options)
        assert different(weights(whole), weights(again)) == []
        assert again.trainer is not None and again.trainer.global_step in (
            whole.trainer.global_step,
            0,
        )
        assert again.exchange.rounds in (whole.exchange.rounds, 0)


@pytest.mark.parametrize("method", one_in(4, [*FEDERATED, *CLUSTERED]))
def test_8_every_method_goes_on_without_what_is_not_finite(method: str, tmp_path: Path) -> None:
    options = options_of(method, "plain")
    options["exchange"] = {**options["exchange"], "attacks": [Attack("nan", client="birch")]}
    run = trained(tmp_path, **options, epochs=2)
    assert run.exchange.not_finite == {"birch": run.exchange.rounds}
    assert all(
        torch.isfinite(value).all() for value in weights(run).values() if value.is_floating_point()
    )


@pytest.mark.parametrize(
    ("client", "found"),
    [
        (Explodes, "not finite: birch"),
        (type("Far", (Faulty,), {"fault": "1e8"}), "far from the others: cedar"),
    ],
)
def test_8_the_run_fails_when_too_few_clients_remain(
    client: Any, found: str, tmp_path: Path
) -> None:
    with pytest.raises(
        RunError, match=rf"counts from at least 3 clients, found it at 2 \({found}\)"
    ):
        trained(tmp_path, client=client, exchange={"federated": ["core"], "minimum": 3})


@pytest.mark.parametrize(
    "hook", ["training_step", "on_send", "on_receive", "publish", "configure_optimizers"]
)
def test_14_what_fails_at_a_client_names_it(hook: str, tmp_path: Path) -> None:
    def fails(self: FederatedClient, *args: Any) -> Any:
        if self.spec.name == "birch" and (hook != "publish" or self.steps_taken):
            raise ValueError("out of paper")
        return getattr(FederatedClient, hook)(self, *args)

    run = make_run(
        tmp_path,
        client=type("Fails", (FederatedClient,), {hook: fails}),
        exchange={"federated": ["core"]},
    )
    with pytest.raises(FedlitError, match=r"(?s)client 'birch'.*out of paper") as found:
        run.fit(quiet=True)
    assert "ash" not in str(found.value) and "cedar" not in str(found.value)


@pytest.mark.parametrize("method", ALL)
def test_14_a_network_that_fails_names_its_client(method: str, tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("out of paper")

    run = make_run(tmp_path, **options_of(method, "plain"))
    run.describe()
    name, client = list(run.loop.federation.items())[-1]
    for module in client.modules():
        module.register_forward_pre_hook(fails)
    with pytest.raises(FedlitError, match=rf"(?s)client '{name}'.*out of paper"):
        run.fit(quiet=True)
