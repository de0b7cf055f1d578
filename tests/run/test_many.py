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


@pytest.mark.parametrize("method", one_in(3, [name for name in METHODS if name not in ALIKE]))
def test_each_run_agrees_with_the_one_trained_alone(method: str, tmp_path: Path) -> None:
    seeds = [3, 4, 5, 6]  # as many as make a stack
    together = fit_seeds(run_of(tmp_path, method), seeds)
    assert [run.seed for run in together] == seeds
    tested = test_together(together)
    for run, scores in zip(together, tested, strict=True):
        alone = run_of(tmp_path / str(run.seed), method, seed=run.seed)
        validated = alone.fit(quiet=True)
        if method != "two optimizers":  # which brings an Adam of its own, that amplifies rounding
            assert close(alone, run)
        assert run.loop.results["validation"].step == validated.step == scores.step
        assert run.exchange.rounds == alone.exchange.rounds
        test = alone.test(quiet=True)
        for name, own in test.scores.items():
            assert own["loss"] == pytest.approx(
                scores.scores[name]["loss"], rel=2e-2 if method == "two optimizers" else 1e-3
            )
        assert [set(row) for row in run.loop.history][:6] == [set(row) for row in alone.loop.history][:6]


def test_clients_are_stacked_over_seeds_and_exchange_within_each(tmp_path: Path) -> None:
    spy = Spy()
    stacks: list[list[str]] = []

    class Look(fedlit.Exchange):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *arguments: Any) -> None:
            spy.on_train_batch_end(trainer, pl_module)
            stacks[:] = spy.stacks
            super().on_train_batch_end(trainer, pl_module, *arguments)

    run = run_of(tmp_path, "local", exchange=Look(["core"]))
    runs = fit_seeds(run, range(5))
    assert sorted(stacks) == [["ash"] * 5, ["birch"] * 5, ["cedar"] * 5]
    cores = [[client.core[0].weight for client in run.loop.federation.values()] for run in runs]  # type: ignore[index]
    for own in cores:
        assert all(torch.equal(own[0], value) for value in own)
    assert not torch.equal(cores[0][0], cores[1][0])


def test_the_same_bits_again(tmp_path: Path) -> None:
    first, second = (fit_seeds(run_of(tmp_path, "global layers"), range(4)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert different(weights(one), weights(other)) == []


def test_several_methods_in_one_stack(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, method, seed=seed) for method in ("local", "global layers") for seed in (1, 2)]
    fit_together(runs)
    for run, method in zip(runs, ["local"] * 2 + ["global layers"] * 2, strict=True):
        alone = run_of(tmp_path / f"{method}{run.seed}", method, seed=run.seed)
        alone.fit(quiet=True)
        assert close(alone, run)


def test_runs_that_differ_are_refused(tmp_path: Path) -> None:
    first, second = run_of(tmp_path, "local"), run_of(tmp_path, "local", epochs=7)
    with pytest.raises(ConfigError, match=r"expected runs that agree, found trainer options .* one after another"):
        fit_together([first, second])
    with pytest.raises(ConfigError, match="at least one run"):
        fit_together([])


def test_the_plain_engine_gives_the_bits_of_single_runs(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"loop": {"engine": "plain", "threads": 1}}
    for run in fit_seeds(run_of(tmp_path, "global layers", **plain), [3, 4]):
        alone = run_of(tmp_path / str(run.seed), "global layers", seed=run.seed, **plain)
        alone.fit(quiet=True)
        assert different(weights(alone), weights(run)) == []


def test_what_would_go_wrong_in_silence_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path, "local")
    with pytest.raises(ConfigError, match="found one of them twice"):
        fit_together([run, run])
    with pytest.raises(ConfigError, match="expected a run that is trained, found one not trained; use fit_together"):
        test_together([run])
    fit_together([run])
    with pytest.raises(ConfigError, match="found one trained already"):
        fit_together([run])
    with pytest.raises(ConfigError, match="callbacks: expected none"):
        fit_together([run_of(tmp_path, "local", callbacks=[Spy()])])
    with pytest.raises(ConfigError, match="kernels 'auto' and 'torch'"):
        fit_together([run_of(tmp_path, "local"), run_of(tmp_path, "local", loop={"kernels": "torch"})])


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

    def places(run: Run) -> list[int]:
        return [own.data_ptr() for client in run.loop.federation.values() for own in client.core.parameters()]

    options: dict[str, Any] = {"client": FailsLater, "loop": {"engine": "plain", "threads": 1}}
    runs = [alike(tmp_path, seed=seed, **options, exchange=Look(["core"], participation=0.4)) for seed in (1, 2)]
    with pytest.raises(RunError, match="step 10: ValueError: enough"):
        fit_together(runs)
    assert len(lent) == 2 * 9 and max(lent) >= 2  # they shared what they received
    for run in runs:
        found = places(run)
        assert len(set(found)) == len(found) == 7 * 3
        assert not run.exchange._lending._lent
