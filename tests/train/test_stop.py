"""What ends a training, by oracles: Lightning's EarlyStopping, the best epochs, runs that nobody
killed."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federations import METHODS, StopAfter, different, make_run, trained, weights
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping

import fedlit
from fedlit.errors import ConfigError, RunError
from fedlit.run.run import Run
from fedlit.tasks import Classification
from fedlit.train.callbacks import Checkpoints
from fedlit.train.personal import FineTune, Personal, Then
from fedlit.train.stop import Ending, Epoch, Stop

EACH = Checkpoints(best=0, seconds=0)
SCORES = {"ash": Classification.scores}
SOON = Stop(patience=2)
HIGH = {"optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.05)}
"""A learning rate with which the loss rises soon."""
CORE = {"federated": ["core"]}


def stopped(stop: Stop, values: list[float]) -> int:
    """The epoch after which a series of values stops; 0 if none does."""
    ending = Ending(Personal(), stop)
    federation: Any = SimpleNamespace(scores_of=SCORES)
    for number, value in enumerate(values, 1):
        if ending.end_epoch(federation, Epoch(number, True, {stop.monitor: torch.tensor(value)})):
            return number
    return 0


@pytest.mark.parametrize("monitor", ["val/loss", "val/auroc", "val/worst/auroc", "ash/val/loss"])
@pytest.mark.parametrize(("patience", "delta"), [(1, 0.0), (3, 0.0), (2, 0.125)])
def test_a_stop_is_where_lightnings_is(monitor: str, patience: int, delta: float) -> None:
    drawn = random.Random(f"{monitor} {patience}")
    mode = "min" if monitor.endswith("loss") else "max"
    ends = set()
    for _ in range(50):
        values = [drawn.randrange(8) / 8 for _ in range(12)]  # with ties, and without rounding
        theirs = EarlyStopping(monitor, delta, patience, mode=mode)
        judged = [theirs._evaluate_stopping_criteria(torch.tensor(value))[0] for value in values]
        expected = judged.index(True) + 1 if True in judged else 0
        assert stopped(Stop(monitor, patience, delta), values) == expected, values
        ends.add(expected)
    assert len(ends) > 2


def test_an_improvement_before_the_least_epoch_goes_on() -> None:
    values = [0.5, 0.6, 0.7, 0.4, 0.6, 0.7]
    assert stopped(Stop(patience=1), values) == 2
    assert stopped(Stop(patience=1, min_epochs=4), values) == 5
    assert stopped(Stop(patience=1, min_epochs=3), values) == 3


def test_a_value_that_is_not_finite_is_no_better() -> None:
    assert stopped(Stop(patience=2), [float("nan"), 0.5, float("nan"), float("inf")]) == 4
    assert stopped(Stop(patience=2), [float("nan")] * 3) == 2


class Losses(Callback):
    """Remembers each epoch's losses of validation rows."""

    def __init__(self) -> None:
        self.losses: list[dict[str, float]] = []

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.state.fn == "fit":
            self.losses.append(
                {name: own["loss"] for name, own in pl_module.results["validation"].scores.items()}
            )


@pytest.mark.parametrize("more", [{"keep": "loss"}, {"average": 0.8}])
def test_an_early_stop_puts_the_best_epochs_back(more: dict[str, Any], tmp_path: Path) -> None:
    seen = Losses()
    run = make_run(
        tmp_path, exchange=CORE, loop={**HIGH, **more, "stop": SOON}, epochs=60, callbacks=[seen]
    )
    scores = run.fit(quiet=True).scores
    assert 3 < len(seen.losses) < 60
    means = [sum(own.values()) / len(own) for own in seen.losses]
    assert min(range(len(means)), key=means.__getitem__) == len(means) - 3
    assert {name: own["loss"] for name, own in scores.items()} == {
        name: min(losses[name] for losses in seen.losses) for name in scores
    }
    assert any(own["loss"] < seen.losses[-1][name] for name, own in scores.items())


def tuned(folder: Path, epochs: int = 60, **more: Any) -> Run:
    then = Then(FineTune(epochs=6, patience=2, lr=0.01))
    return make_run(
        folder, exchange=CORE, loop={**HIGH, "stop": SOON, "then": then}, epochs=epochs, **more
    )


def test_an_early_stop_begins_the_fine_tuning(tmp_path: Path) -> None:
    seen = Losses()
    run = tuned(tmp_path, callbacks=[seen])
    scores = run.fit(quiet=True).scores
    federated = run.exchange.rounds
    assert run.loop.federation.tuning and federated + 2 <= len(seen.losses) <= federated + 6 < 60
    # the same federation that is as long by plan is tuned as well, bit for bit
    planned = tuned(tmp_path / "planned", epochs=federated)
    assert (
        planned.fit(quiet=True).scores == scores and different(weights(run), weights(planned)) == []
    )


@pytest.mark.parametrize("after", [1, 5])
def test_a_kill_around_an_early_stop_changes_no_bit(after: int, tmp_path: Path) -> None:
    whole = tuned(tmp_path / "whole")
    whole.fit(quiet=True)
    step = 4 * (whole.exchange.rounds - 3) + 4 * after
    with pytest.raises(KeyboardInterrupt):
        tuned(
            tmp_path / "part", callbacks=[StopAfter(step, Path("last.ckpt"))], checkpoints=EACH
        ).fit(quiet=True)
    again = tuned(tmp_path / "part")
    again.fit("last", quiet=True)
    assert (
        different(weights(whole), weights(again)) == []
        and whole.exchange.rounds == again.exchange.rounds
    )


def test_a_finished_run_takes_no_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"exchange": CORE, "loop": {**HIGH, "stop": SOON}, "epochs": 60}
    run = trained(tmp_path, **options)
    for _ in range(2):
        again = make_run(tmp_path, **options)
        again.fit("last")
        assert "Nothing is left to train" in capsys.readouterr().out
        assert run.trainer is not None and again.trainer is not None
        assert (
            again.trainer.global_step == run.trainer.global_step
            and different(weights(run), weights(again)) == []
        )


def test_min_epochs_gives_the_same_bits_when_killed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"exchange": CORE, "checkpoints": EACH, "epochs": 60}
    options["loop"] = {**HIGH, "stop": Stop(patience=1, min_epochs=8)}
    whole = trained(tmp_path / "whole", **options)
    assert whole.loop.federation.ending.epochs >= 8
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "part", callbacks=[StopAfter(24, Path("last.ckpt"))], **options)
    again = trained(tmp_path / "part", "last", **options)
    assert different(weights(whole), weights(again)) == []


@pytest.mark.parametrize("more", [{}, {"keep": "loss"}])
def test_time_ends_a_run_as_its_last_epoch_would(more: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "exchange": CORE,
        "loop": {"engine": "plain", "kernels": "torch", **more},
    }
    options |= {"checkpoints": EACH, "max_time": {"seconds": 1}}
    with pytest.raises(KeyboardInterrupt):
        trained(
            tmp_path / "part", callbacks=[StopAfter(8, Path("last.ckpt"))], epochs=9999, **options
        )
    run = trained(tmp_path / "part", "last", epochs=9999, **options)
    epochs = run.loop.federation.ending.epochs
    assert run.trainer is not None and 2 < epochs < 9999 and run.trainer.global_step == 4 * epochs
    again = trained(tmp_path / "part", "last", epochs=9999, **options)
    assert again.trainer is not None and again.trainer.global_step in (run.trainer.global_step, 0)
    del options["max_time"]
    planned = trained(tmp_path / "planned", epochs=epochs, **options)
    assert (
        different(weights(run), weights(planned))
        == different(weights(again), weights(planned))
        == []
    )


class Ends(Callback):
    """Ends the run after an epoch."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.current_epoch == 1


def test_a_callbacks_stop_ends_the_run_and_names_the_untuned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tuned(tmp_path, callbacks=[Ends()])
    ended = run.fit(quiet=True).ended
    assert "nothing was fine-tuned" in caplog.text and "a callback after epoch 2" in ended
    assert (
        run.loop.federation.personal.done
        and run.trainer is not None
        and run.trainer.global_step == 8
    )
    # without best epochs, too, nothing follows
    plain = trained(tmp_path / "plain", exchange=CORE, epochs=5, callbacks=[Ends()])
    again = trained(tmp_path / "plain", "last", exchange=CORE, epochs=5, callbacks=[Ends()])
    assert again.trainer is not None and again.trainer.global_step == 8
    assert different(weights(plain), weights(again)) == []


def test_early_stopping_of_a_python_trainer_ends_the_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"exchange": CORE, "epochs": 60}
    here = trained(tmp_path / "here", loop={**HIGH, "stop": SOON}, **options)
    theirs = trained(
        tmp_path / "theirs", loop=HIGH, callbacks=[EarlyStopping("val/loss", patience=2)], **options
    )
    again = trained(
        tmp_path / "theirs",
        "last",
        loop=HIGH,
        callbacks=[EarlyStopping("val/loss", patience=2)],
        **options,
    )
    assert (
        different(weights(here), weights(theirs)) == different(weights(here), weights(again)) == []
    )


@pytest.mark.parametrize("more", [{"keep": "loss"}, {"average": 0.5}, {"then": "fine_tune"}])
def test_early_stopping_beside_best_epochs_is_refused(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trainer.callbacks: .* EarlyStopping .*model.stop"):
        trained(tmp_path, exchange=CORE, loop=more, callbacks=[EarlyStopping("val/loss")])


def test_early_stopping_in_a_file_is_the_stop(tmp_path: Path) -> None:
    callbacks = (
        "[{class_path: EarlyStopping, init_args: {monitor: val/auroc, mode: max, patience: 4}}]"
    )
    run = fedlit.load(
        "quickstart", f"--trainer.callbacks={callbacks}", f"--trainer.default_root_dir={tmp_path}"
    )
    assert run.loop.federation.ending.stop == Stop("val/auroc", 4)
    assert not run.trainer_options.get("callbacks") and run.settings is not None
    assert run.settings["model.stop.patience"] == 4


def test_what_is_federated_must_be_exchanged(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"exchange.every: .* every 4 epochs"):
        make_run(tmp_path, exchange={"every": {"epochs": 4}, **CORE}, epochs=3).describe()
    plan = make_run(tmp_path, exchange={"every": {"epochs": 2}, **CORE}, epochs=3).describe()
    assert plan.exchange["length"] == {
        "exchanges": 1, "at_most": False, "completes": False, "steps_after": 4, "fine_tuning": False,
    }  # fmt: skip


WHOLE: dict[str, Any] = {"exchange": {"federated": ["*"], "buffers": "average"}, "align": "both"}
EVERY = [({"epochs": 5}, 2), ({"steps": 3}, 10), ("epoch", 7)]


@pytest.mark.parametrize("rule", [fedlit.Mean, fedlit.FedAvgM])
@pytest.mark.parametrize(("every", "rounds"), EVERY)
def test_one_network_for_all_ends_with_an_exchange(
    every: Any, rounds: int, rule: Any, tmp_path: Path
) -> None:
    exchange = {**WHOLE["exchange"], "every": every, "rule": rule()}
    run = make_run(tmp_path, exchange=exchange, align="both", epochs=7)
    assert run.describe().exchange["length"]["exchanges"] == rounds
    run.fit(quiet=True)
    assert run.exchange.rounds == rounds
    first, *others = (client.federated for client in run.loop.federation.values())
    assert all(torch.equal(value, other[name]) for other in others for name, value in first.items())


def test_an_early_stop_waits_for_the_exchange_of_one_network(tmp_path: Path) -> None:
    stop = Stop(patience=1, min_delta=99)  # behind the second epoch
    every = {"epochs": 3}
    whole = trained(tmp_path / "whole", exchange={**WHOLE["exchange"], "every": every}, align="both", epochs=9,
                    loop={"stop": stop})  # fmt: skip
    assert (whole.loop.federation.ending.epochs, whole.exchange.rounds) == (3, 1)
    max_steps = trained(tmp_path / "steps", exchange={**WHOLE["exchange"], "every": every}, align="both", epochs=9,
                        max_steps=14)  # fmt: skip
    assert max_steps.exchange.rounds == 2


@pytest.mark.parametrize(
    "method", ["apfl", "ditto", "chfl", "ifedavg", "fedrep", "by name, momentum at the server"]
)
def test_what_keeps_something_private_keeps_its_schedule(method: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, **METHODS[method])
    run.describe()
    assert not run.exchange.completes


def test_a_run_that_ends_before_its_first_exchange_fails(tmp_path: Path) -> None:
    loop = {"stop": Stop(patience=1, min_delta=99)}
    with pytest.raises(RunError, match="exchange"):
        trained(tmp_path, exchange={**CORE, "every": {"epochs": 3}}, loop=loop, epochs=9)
