"""Federations under masks end as those without, to the fixed point's tolerance; under noise but for the noise."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import ASKING, METHODS, SHAPES, SLOW, Explodes, make_run, weights
from masked_sites import SITES, over_shields
from scipy.stats import chisquare
from sites import joint
from torch import Tensor

import fedlit
from fedlit.errors import ConfigError
from fedlit.exchange.rules import FedAvgM, MixedEffects, Newton
from fedlit.privacy.client_level import epsilon
from fedlit.privacy.settings import ClientLevel, Masked, Privacy

MASKED = Privacy(masked=Masked(norm=100.0))


def plain(method: str = "global layers", **more: Any) -> dict[str, Any]:
    own = {**METHODS, **ASKING}[method]
    # not Adam, which makes steps of full length from gradients that are rounding alone (before a normalisation)
    loop = {"optimizer": SLOW, **own.get("loop", {}), "engine": "plain"}
    return {**own, "loop": loop, "epochs": 3, "clients": SITES, **more}


def furthest(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    assert first.keys() == second.keys()
    return max(
        float((first[name].double() - second[name].double()).abs().max()) for name in first if first[name].numel()
    )


@pytest.mark.parametrize(
    "exchange",
    [
        {"federated": ["core"]},
        {"federated": ["core"], "rule": partial(fedlit.Mean, "rows"), "rate": 0.5},
        {"federated": ["core"], "rule": partial(FedAvgM, 0.6), "every": {"steps": 3}},
    ],
    ids=["mean", "by rows at half the rate", "momentum at the server, in an epoch"],
)
def test_weights_are_those_without_masks_to_the_tolerance(exchange: dict[str, Any], tmp_path: Path) -> None:
    options = plain(exchange=exchange)
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    runs, hub, _ = over_shields(tmp_path, MASKED, **options)
    assert 0 < furthest(weights(whole), joint(runs)) < 2e-6
    assert all(took == SITES for took in hub.took.values()) and len(hub.took) >= 3
    assert all(run.exchange.rounds == whole.exchange.rounds for run in runs.values())


def test_a_tensor_of_some_sites_is_summed_over_these_and_received_by_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that are shared by names: one column, then, is a column that birch has not."""
    options = plain("by name, momentum at the server")
    options["exchange"] = {**options["exchange"], "rule": fedlit.Mean}
    with pytest.raises(ConfigError, match="expected at least 3 sites that have it and take part, found"):
        over_shields(tmp_path / "a", MASKED, **options)
    monkeypatch.setitem(SHAPES, "birch", (4, 3, 70))
    monkeypatch.setitem(SHAPES, "cedar", (5, 3, 120))
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    runs, hub, _ = over_shields(tmp_path / "b", MASKED, **options)
    names = whole.exchange.sharing.names
    assert len(names["ash"]) == len(names["birch"]) + 1
    assert furthest(weights(whole), joint(runs)) < 2e-6
    for site, received in hub.received.items():
        assert set(received) == set(names[site])


def test_what_a_site_sends_is_uniform_and_nothing_else_and_new_each_round(tmp_path: Path) -> None:
    runs, hub, shields = over_shields(tmp_path, MASKED, **plain(exchange={"federated": ["core"], "every": "step"}))
    names = set(runs["ash"].exchange.sharing.names["ash"])
    of_ash = [message["state"] for _, site, message in hub.heard if site == "ash" and "state" in message]
    assert len(of_ash) == 12 and all(set(state) == names | {"sum/0"} for state in of_ash)
    words = torch.cat([value.reshape(-1) for state in of_ash for value in state.values()]).numpy().view(np.uint8)
    for place in range(8):
        assert chisquare(np.bincount(words.reshape(-1, 8)[:, place], minlength=256)).pvalue > 1e-6
    for first in range(12):
        for second in range(first):
            assert not any((of_ash[first][name] == of_ash[second][name]).any() for name in names)
    assert all(not shield.notes for shield in shields.values())


def test_a_site_that_is_not_finite_leaves_itself_out(tmp_path: Path) -> None:
    options = plain(exchange={"federated": ["core"]}, client=Explodes)
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    runs, hub, _ = over_shields(tmp_path, MASKED, **options)
    assert whole.exchange.not_finite == {"birch": 1} == runs["ash"].exchange.not_finite
    assert ("ash", "cedar", "dune") in hub.took.values()
    assert furthest(weights(whole), joint(runs)) < 2e-6


@pytest.mark.parametrize(
    ("method", "rule", "tolerance"),
    [("pooled logistic", partial(Newton, of="all", ridge=3.0), 1e-6), ("mixed model", MixedEffects, 1e-4)],
)
def test_coefficients_from_masked_sums_of_answers(
    method: str, rule: Any, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in SITES:
        monkeypatch.setitem(SHAPES, site, SHAPES["ash"])
    options = plain(method, epochs=1)
    options["exchange"] = {**options["exchange"], "rule": rule}
    options["align"] = "both"
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    runs, hub, _ = over_shields(tmp_path, MASKED, **options)
    assert furthest(weights(whole), joint(runs)) < tolerance
    answers = [message["state"] for _, _, message in hub.heard if "forms" in message]
    assert len(answers) > 8 and all(value.dtype == torch.int64 for state in answers for value in state.values())
    found = torch.cat([value.reshape(-1) for state in answers for value in state.values()]).numpy().view(np.uint8)
    assert chisquare(np.bincount(found.reshape(-1, 8)[:, 7], minlength=256)).pvalue > 1e-6


def test_noise_is_what_client_level_privacy_adds_and_is_counted(tmp_path: Path) -> None:
    small = Privacy(client_level=ClientLevel(clip=1e4, noise=1e-9))
    options = plain()
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    runs, _, shields = over_shields(tmp_path / "small", small, **options)
    assert 0 < furthest(weights(whole), joint(runs)) < 1e-2
    runs, hub, shields = over_shields(tmp_path / "large", Privacy(client_level=ClientLevel(0.1, 2.0)), **options)
    assert furthest(weights(whole), joint(runs)) > 0.1
    assert {shield.epsilon for shield in shields.values()} == {epsilon([2.0] * 3, 1e-5)}
    first = {site: message["state"] for number, site, message in hub.heard if number == 0}
    noise = torch.cat([(first["ash"][name] - first["birch"][name]).reshape(-1) for name in first["ash"]])
    assert float(noise.std()) == pytest.approx(0.2 * 2**0.5, rel=0.2)  # all started alike; updates are 0.1 long


def test_both_together(tmp_path: Path) -> None:
    both = Privacy(masked=Masked(), client_level=ClientLevel(clip=1e4, noise=1e-9))
    options = plain()
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    runs, _, shields = over_shields(tmp_path, both, signed=False, **options)
    assert 0 < furthest(weights(whole), joint(runs)) < 1e-2
    assert shields["ash"].epsilon == epsilon([1e-9] * 3, 1e-5)
    assert "a coordinator that lies could put its own in their place" in shields["ash"].notes[0]
