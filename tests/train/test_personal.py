"""Averages, best epochs and fine-tuning: values by hand, kills in each phase, nothing sent behind
the federation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import METHODS, StopAfter, different, make_run, trained, weights
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from fedlit.errors import ConfigError
from fedlit.train.callbacks import Checkpoints
from fedlit.train.personal import FineTune, Then

TUNED = METHODS["averages, then fine-tuned"]
CORE = {"federated": ["core"]}


class Epochs(Callback):
    """Remembers each epoch's tensors behind its exchange, and its scores."""

    def __init__(self) -> None:
        self.live: list[dict[str, torch.Tensor]] = []
        self.scores: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.is_last_batch:
            self.live.append(
                {name: value.clone() for name, value in pl_module.state_dict().items()}
            )

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.state.fn == "fit":
            self.scores.append(
                {name: own["loss"] for name, own in pl_module.results["validation"].scores.items()}
            )


def test_each_client_ends_with_its_own_best_epoch(tmp_path: Path) -> None:
    watch = Epochs()
    run = make_run(tmp_path, exchange=CORE, loop={"keep": "loss"}, epochs=6, callbacks=[watch])
    last = run.fit(quiet=True)
    best = {
        name: min(range(6), key=lambda epoch: watch.scores[epoch][name]) for name in last.scores
    }
    assert len(set(best.values())) > 1  # or the test would not tell clients apart
    for name, epoch in best.items():
        mine = {
            key: value for key, value in weights(run).items() if key.startswith(f"clients.{name}.")
        }
        assert not different(mine, {key: watch.live[epoch][key] for key in mine})
        assert last.scores[name]["loss"] == watch.scores[epoch][name]
    # the checkpoint has them, by either name
    for path in ("last", "best"):
        assert run.validate(path, quiet=True).scores == last.scores


def test_an_average_over_epochs_is_the_recursion(tmp_path: Path) -> None:
    watch = Epochs()
    run = make_run(
        tmp_path, exchange=CORE, loop={"average": 0.8, "keep": "loss"}, epochs=4, callbacks=[watch]
    )
    run.loop.federation.personal.check = lambda clients: None  # type: ignore[method-assign]
    kept = list[torch.Tensor]()
    personal = run.loop.federation.personal
    judge = personal.judge

    def seen(federation: Any, *args: Any) -> None:
        kept.append(federation["ash"].state_dict()["core.0.weight"].clone())
        judge(federation, *args)

    personal.judge = seen  # type: ignore[assignment, method-assign]
    run.fit(quiet=True)
    expected = watch.live[0]["clients.ash.core.0.weight"]
    for epoch, live in enumerate(watch.live):
        share = min(0.8, epoch / (epoch + 1))
        expected = share * expected + (1 - share) * live["clients.ash.core.0.weight"]
        assert torch.allclose(kept[epoch], expected, atol=1e-6)


LONGER = {
    **TUNED,
    "loop": {**TUNED["loop"], "then": Then(FineTune(epochs=2, patience=9, lr=0.005, average=0.3))},
}


@pytest.mark.parametrize("step", [12, 13])  # 3 epochs of 4 steps, then 2 of fine-tuning
def test_a_kill_in_any_phase_changes_no_bit(step: int, tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", **LONGER)
    expected = whole.fit(quiet=True)
    stop = StopAfter(step, Path("checkpoints", "last.ckpt"))
    each = Checkpoints(best=0, seconds=0)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trained(tmp_path / "part", callbacks=[stop], checkpoints=each, **LONGER)
    resumed = make_run(tmp_path / "part", **LONGER)
    scores = resumed.fit("last", quiet=True).scores
    assert different(weights(whole), weights(resumed)) == [] and scores == expected.scores
    assert (
        whole.exchange.rounds == resumed.exchange.rounds == 3
        and whole.exchange.bytes == resumed.exchange.bytes
    )


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_a_checkpoint_before_the_last_validation_is_refused(tmp_path: Path) -> None:
    """Lightning's own callback writes one there, and does not repeat the validation."""
    own = ModelCheckpoint(tmp_path / "own", filename="{step}", every_n_train_steps=4, save_top_k=-1)
    make_run(tmp_path / "whole", callbacks=[own], **LONGER).fit(quiet=True)
    with pytest.raises(ConfigError, match="--ckpt_path"):
        make_run(tmp_path / "part", **LONGER).fit(tmp_path / "own" / "step=8.ckpt", quiet=True)


def test_who_waits_too_long_stops_and_nothing_is_left_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune = Then(FineTune(epochs=50, patience=2, lr=0.5))
    run = make_run(tmp_path, exchange=CORE, loop={"then": tune}, epochs=2)
    expected = run.fit(quiet=True)
    assert run.trainer is not None and 2 * 4 < run.trainer.global_step < 52 * 4
    again = make_run(tmp_path, exchange=CORE, loop={"then": tune}, epochs=2)
    assert again.fit("last").scores == expected.scores
    assert "Nothing is left to train" in capsys.readouterr().out
    assert different(weights(run), weights(again)) == []


def test_a_training_that_ends_early_is_not_fine_tuned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = trained(
        tmp_path, exchange=CORE, loop={"then": Then(FineTune(epochs=2))}, epochs=3, max_steps=4
    )
    assert "nothing was fine-tuned" in caplog.text
    assert run.loop.federation.personal.done and not run.loop.federation.tuning
