"""Seeds trained together: each run ends as if it had been trained alone, up to rounding."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import one_in
from federations import METHODS, Dry, Spy, alike, client_around, close, different, make_run, weights

import fedlit
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.run.many import fit_seeds, fit_together, test_together
from fedlit.run.run import Run

STABLE = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
PLAIN = partial(torch.optim.SGD, lr=0.05)  # SCAFFOLD takes no other


def run_of(folder: Path, method: str, seed: int = 8, **options: Any) -> Run:
    settings = METHODS[method]
    optimizer = PLAIN if method.startswith("scaffold") else STABLE
    loop = {"client": client_around(settings, Dry), "optimizer": optimizer, "threads": 2, **options.pop("loop", {})}
    return make_run(folder, seed=seed, **{**settings, "loop": loop}, **options)


# of methods that differ in nothing that matters here one is enough
ALIKE = {"global layers", "global layers, every step", "global layers, batches of 8", "ifedavg", "apfl", "chfl"}


@pytest.mark.parametrize("method", one_in(16, [name for name in METHODS if name not in ALIKE]))
def test_each_run_agrees_with_the_one_trained_alone(method: str, tmp_path: Path) -> None:
    seeds = [3, 4, 5, 6]  # as many as make a stack
    together = fit_seeds(run_of(tmp_path, method), seeds)
    assert [run.seed for run in together] == seeds
    tested = test_together(together)
    for run, scores in list(zip(together, tested, strict=True))[::3]:
        alone = run_of(tmp_path / str(run.seed), method, seed=run.seed)
        validated = alone.fit(quiet=True)
        own = method == "two optimizers"  # which brings an Adam of its own, that amplifies rounding
        assert own or close(alone, run)
        assert run.loop.results["validation"].step == validated.step == scores.step
        assert run.exchange.rounds == alone.exchange.rounds
        for name, one in alone.test(quiet=True).scores.items():
            assert one["loss"] == pytest.approx(scores.scores[name]["loss"], rel=2e-2 if own else 1e-3)
        assert [set(row) for row in run.loop.history][:6] == [set(row) for row in alone.loop.history][:6]


def test_clients_of_seeds_and_methods_are_stacked_and_exchange_within_each_run(tmp_path: Path) -> None:
    spy = Spy()
    stacks: list[list[str]] = []

    class Look(fedlit.Exchange):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *arguments: Any) -> None:
            spy.on_train_batch_end(trainer, pl_module)
            stacks[:] = spy.stacks
            super().on_train_batch_end(trainer, pl_module, *arguments)

    runs = [run_of(tmp_path, "local", seed=seed, exchange=Look(["core"])) for seed in (1, 2)]
    runs += [run_of(tmp_path, "global layers", seed=seed) for seed in (1, 2)]
    fit_together(runs)
    assert sorted(stacks) == [["ash"] * 4, ["birch"] * 4, ["cedar"] * 4]
    cores = [[client.core[0].weight for client in run.loop.federation.values()] for run in runs]  # type: ignore[index]
    assert all(torch.equal(own[0], value) for own in cores for value in own)
    assert not torch.equal(cores[0][0], cores[1][0])


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_the_same_bits_again_and_of_the_plain_engine_those_of_a_single_run(engine: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"loop": {"engine": engine, "threads": 1}}
    first, second = (fit_seeds(run_of(tmp_path, "global layers", **options), range(4)) for _ in range(2))
    assert all(different(weights(one), weights(other)) == [] for one, other in zip(first, second, strict=True))
    if engine == "plain":
        alone = run_of(tmp_path, "global layers", seed=3, **options)
        alone.fit(quiet=True)
        assert different(weights(alone), weights(first[3])) == []


def test_what_would_go_wrong_in_silence_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path, "local")
    with pytest.raises(ConfigError, match="trained by fit_together"):
        test_together([run])
    for more, message in (
        ([run], "each once"),
        ([run_of(tmp_path, "local", epochs=7)], "expected runs that agree, found trainer options"),
        ([run_of(tmp_path, "local", loop={"kernels": "torch"})], "kernels 'auto' and 'torch'"),
        ([run_of(tmp_path, "local", callbacks=[Spy()])], "callbacks: expected none"),
    ):
        with pytest.raises(ConfigError, match=message):
            fit_together([run, *more])
    with pytest.raises(ConfigError, match="at least one run"):
        fit_together([])
    fit_together([run])
    with pytest.raises(ConfigError, match="untrained"):
        fit_together([run])


class FailsLater(FederatedClient):
    """Fails in a round in which others are idle."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step == 9:
            raise ValueError("enough")
        return super().training_step(batch, batch_idx)


def test_a_failure_gives_idle_clients_their_memory_back(tmp_path: Path) -> None:
    lent: list[int] = []

    class Look(fedlit.Exchange):
        def on_train_batch_end(self, *arguments: Any) -> None:
            super().on_train_batch_end(*arguments)
            lent.append(len(self._lending._lent))

    options: dict[str, Any] = {"client": FailsLater, "loop": {"engine": "plain", "threads": 1}}
    runs = [alike(tmp_path, seed=seed, **options, exchange=Look(["core"], participation=0.4)) for seed in (1, 2)]
    with pytest.raises(RunError, match="step 10: ValueError: enough"):
        fit_together(runs)
    assert len(lent) == 2 * 9 and max(lent) >= 2  # they shared what they received
    for run in runs:
        clients = run.loop.federation.values()
        places = [own.data_ptr() for client in clients for own in client.core.parameters()]
        assert len(set(places)) == len(places) == 7 * 3 and not run.exchange._lending._lent
