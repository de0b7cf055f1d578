"""Contract 12, and the others over it: sites that exchange bytes end with the bits of one federation.

Whatever the contracts say of one federation then holds for its sites: they are compared with it tensor by tensor,
score by score and byte by byte.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from contracts import ALL, one_in
from federations import Explodes, Killed, StopAfter, different, make_run, weights
from sites import Sites, history, over_sites

import fedlit
from fedlit.errors import RunError

SITES = [name for name in ALL if name not in ("centralized", "local")]
"""All but what needs all rows in one place, and what exchanges nothing."""


def plain(method: str, **more: Any) -> dict[str, Any]:
    own = ALL[method]
    return {**own, "loop": {**own.get("loop", {}), "engine": "plain"}, "epochs": 2, **more}


def same(whole: fedlit.Run, sites: Sites) -> None:
    """Tensors, scores, what was logged, rounds, bytes, who was left out."""
    assert different(weights(whole), sites.weights()) == []
    scores = whole.loop.results["validation"].scores
    for name, run in sites.runs.items():
        assert repr(run.loop.results["validation"].scores) == repr({name: scores[name]})
        federated = slice(run.exchange.rounds)  # behind the federation a site waits for nobody
        assert history(run, name)[federated] == history(whole, name)[federated]
        assert run.exchange.rounds == whole.exchange.rounds and run.exchange.bytes == whole.exchange.bytes
        assert run.exchange.found.get(name) == whole.exchange.found.get(name)
        assert run.loop.kernels == whole.loop.kernels


@pytest.mark.parametrize("method", one_in(5, SITES))
def test_12_the_transport_changes_no_bit(method: str, tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", **plain(method))
    whole.fit(quiet=True)
    same(whole, over_sites(tmp_path, **plain(method)))


COHORTS: dict[str, dict[str, Any]] = {
    "half a round at half the rate, by rows": {"participation": 0.5, "rate": 0.5, "rule": fedlit.Mean("rows")},
    "half a round": {"participation": 0.5, "every": {"steps": 3}},
    "reset every step": {"optimizer_state": "reset", "every": "step"},
}


@pytest.mark.parametrize("exchange", one_in(3, COHORTS))
def test_12_cohorts_are_drawn_alike(exchange: str, tmp_path: Path) -> None:
    options = plain("local", exchange={"federated": ["core"], **COHORTS[exchange]})
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    same(whole, over_sites(tmp_path, **options))


@pytest.mark.parametrize(
    "case",
    one_in(5, product(["ifca", "cfl", "two optimizers", "forest", "global layers, rate 0.5, every 3 steps"], [3, 6])),
)
def test_3_killed_sites_and_a_killed_coordinator_go_on_with_the_same_bits(
    case: tuple[str, int], tmp_path: Path
) -> None:
    method, step = case
    whole = make_run(tmp_path / "whole", **plain(method))
    whole.fit(quiet=True)
    stop = {"callbacks": lambda folder: [StopAfter(step, folder / "middle.ckpt", Killed)]}
    over_sites(tmp_path, killed=True, **stop, **plain(method))
    resumed = over_sites(tmp_path, "middle.ckpt", **plain(method))
    assert different(weights(whole), resumed.weights()) == []
    assert {run.exchange.rounds for run in resumed.runs.values()} == {whole.exchange.rounds}


def test_8_a_site_that_is_not_finite_is_left_out_and_comes_back(tmp_path: Path) -> None:
    options = plain("local", client=Explodes, exchange={"federated": ["core"]}, epochs=3)
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    assert whole.exchange.not_finite == {"birch": 1}
    same(whole, over_sites(tmp_path, **options))


def test_8_all_sites_end_with_the_same_message_when_too_few_remain(tmp_path: Path) -> None:
    options = plain("local", client=Explodes, exchange={"federated": ["core"], "minimum": 3})
    message = r"expected an update that counts from at least 3 clients, found it at 2 \(not finite: birch\)"
    with pytest.raises(RunError, match=message):
        over_sites(tmp_path, **options)
