"""Contract 12, and the others over it: sites that exchange bytes end with the bits of one
federation.

Whatever the contracts say of one federation then holds for its sites: they are compared with it
tensor by tensor, score by score and byte by byte.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from contracts import ALL, APART, one_in, options_of
from federations import Explodes, Killed, StopAfter, different, trained, weights
from sites import Sites, history, over_sites

import fedlit
from fedlit.errors import RunError

SITES = [
    name
    for name, own in ALL.items()
    if name not in ("centralized", "local") and "stop" not in own.get("loop", {})
]
"""All but what needs all rows or all scores in one place, and what exchanges nothing."""


def plain(method: str, **more: Any) -> dict[str, Any]:
    return {"epochs": 2, **options_of(method, "plain"), **more}


def same(whole: fedlit.Run, sites: Sites) -> None:
    """Tensors, scores, what was logged, rounds, bytes, who was left out."""
    assert different(weights(whole), sites.weights()) == []
    scores = whole.loop.results["validation"].scores
    for name, run in sites.runs.items():
        assert repr(run.loop.results["validation"].scores) == repr({name: scores[name]})
        federated = slice(run.exchange.rounds)  # behind the federation a site waits for nobody
        assert history(run, name)[federated] == history(whole, name)[federated]
        assert (
            run.exchange.rounds == whole.exchange.rounds
            and run.exchange.bytes == whole.exchange.bytes
        )
        assert run.exchange.incident_counts.get(name) == whole.exchange.incident_counts.get(name)
        assert run.loop.kernels == whole.loop.kernels


@pytest.mark.parametrize("method", [*one_in(5, SITES), *one_in(3, APART)])
def test_12_the_transport_changes_no_bit(method: str, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", **plain(method))
    assert method != "one is not finite" or whole.exchange.not_finite == {"birch": 1}
    same(whole, over_sites(tmp_path, **plain(method)))


@pytest.mark.parametrize(
    "case",
    one_in(
        5,
        product(
            ["ifca", "cfl", "two optimizers", "forest", "global layers, rate 0.5, every 3 steps"],
            [3, 6],
        ),
    ),
)
def test_3_killed_sites_and_coordinators_resume_bit_for_bit(
    case: tuple[str, int], tmp_path: Path
) -> None:
    method, step = case
    whole = trained(tmp_path / "whole", **plain(method))
    stop: dict[str, Any] = {
        "callbacks": lambda folder: [StopAfter(step, folder / "middle.ckpt", Killed)]
    }
    over_sites(tmp_path, killed=True, **stop, **plain(method))
    resumed = over_sites(tmp_path, "middle.ckpt", **plain(method))
    assert different(weights(whole), resumed.weights()) == []
    assert {run.exchange.rounds for run in resumed.runs.values()} == {whole.exchange.rounds}


def test_8_all_sites_end_with_one_message_if_too_few_remain(tmp_path: Path) -> None:
    options = plain("local", client=Explodes, exchange={"federated": ["core"], "minimum": 3})
    message = r"expected an update that counts from at least 3 clients, found it at 2 \(not finite: birch\)"
    with pytest.raises(RunError, match=message):
        over_sites(tmp_path, **options)
