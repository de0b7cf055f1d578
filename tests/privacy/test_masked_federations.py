"""Federations under masks end as those without, to the fixed point's tolerance; under noise but for
the noise."""

import math
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import (
    ASKING,
    METHODS,
    SHAPES,
    SLOW,
    Killed,
    StopAfter,
    different,
    trained,
    weights,
)
from scipy.stats import chi2, chisquare
from sites import Sites, over_sites
from torch import Tensor

import fedlit
from fedlit import FedAvgM, MixedEffects, Newton, PartialLikelihood
from fedlit.errors import ConfigError, RunError
from fedlit.institutions.journal import Journal
from fedlit.privacy.client_level import epsilon
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.run.run import Run
from fedlit.train.callbacks import Checkpoints
from fedlit.train.manifest import read_checkpoint

MASKED = Privacy(masked=Masked(norm=100.0))
SITES = ("ash", "birch", "cedar", "dune")  # four: of a sum over three nobody may be missing


def plain(method: str = "global layers", **more: Any) -> dict[str, Any]:
    own = {**METHODS, **ASKING}[method]
    # not Adam, which makes steps of full length from gradients that are rounding alone (before a
    # normalisation)
    loop = {"optimizer": SLOW, **own.get("loop", {}), "engine": "plain"}
    return {**own, "loop": loop, "epochs": 2, "clients": SITES, **more}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Without privacy, in one process."""
    return trained(tmp_path_factory.mktemp("whole"), **plain())


def furthest(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    assert first.keys() == second.keys()
    return max(
        float((first[name].double() - second[name].double()).abs().max())
        for name in first
        if first[name].numel()
    )


def sent(sites: Sites, site: str) -> list[dict[str, Any]]:
    """What a site has said of sums."""
    return [
        message["answers"]
        for message in sites.heard(site)
        if "state" in (message.get("answers") or {})
    ]


def test_weights_are_those_without_masks_to_the_tolerance(whole: Run, tmp_path: Path) -> None:
    sites = over_sites(tmp_path / "a", privacy=MASKED, **plain())
    assert 0 < furthest(weights(whole), sites.weights()) < 2e-6
    assert (
        all(took == list(SITES) for took in sites.journal.took.values())
        and len(sites.journal.took) >= 2
    )
    assert all(run.exchange.rounds == whole.exchange.rounds for run in sites.runs.values())
    rule = partial(FedAvgM, 0.6, weights="rows")
    options = plain(
        exchange={"federated": ["core"], "rule": rule, "rate": 0.5, "every": {"steps": 3}}
    )
    sites = over_sites(tmp_path / "b", privacy=MASKED, **options)
    assert 0 < furthest(weights(trained(tmp_path / "whole", **options)), sites.weights()) < 2e-6


def test_a_tensor_of_some_sites_is_summed_over_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that are shared by names: one column, then, is a column that birch has not."""
    options = plain("by name, momentum at the server")
    options["exchange"] = {**options["exchange"], "rule": fedlit.Mean}
    with pytest.raises(
        ConfigError, match="expected at least 3 sites that have it and take part, found"
    ):
        over_sites(tmp_path / "a", privacy=MASKED, **options)
    monkeypatch.setitem(SHAPES, "birch", (4, 3, 70))
    monkeypatch.setitem(SHAPES, "cedar", (5, 3, 120))
    whole = trained(tmp_path / "whole", **options)
    sites = over_sites(tmp_path / "b", privacy=MASKED, **options)
    names = whole.exchange.sharing.names
    assert len(names["ash"]) == len(names["birch"]) + 1
    assert furthest(weights(whole), sites.weights()) < 2e-6
    for site in SITES:
        assert set(sites.journal.read(1, site)["received"]) == set(names[site])


def test_what_a_site_sends_is_uniform_and_new_each_round(tmp_path: Path) -> None:
    sites = over_sites(
        tmp_path, privacy=MASKED, **plain(exchange={"federated": ["core"], "every": "step"})
    )
    names = set(sites.runs["ash"].exchange.sharing.names["ash"])
    of_ash = [answer["state"] for answer in sent(sites, "ash")]
    assert len(of_ash) == 8 and all(set(state) == names | {"sum/0"} for state in of_ash)
    assert all(
        not update["state"]
        for own in sites.heard("ash")
        for update in own.get("updates", {}).values()
    )
    words = (
        torch.cat([value.reshape(-1) for state in of_ash for value in state.values()])
        .numpy()
        .view(np.uint8)
    )
    for place in range(8):
        assert chisquare(np.bincount(words.reshape(-1, 8)[:, place], minlength=256)).pvalue > 1e-6
    for first in range(8):
        for second in range(first):
            assert not any((of_ash[first][name] == of_ash[second][name]).any() for name in names)
    assert all(not shield.notes for shield in sites.shields.values())


@pytest.mark.parametrize(
    ("method", "rule", "tolerance"),
    [
        ("pooled logistic", partial(Newton, of="all", ridge=3.0), 1e-6),
        ("mixed model", MixedEffects, 1e-4),
        ("stratified cox", PartialLikelihood, 2e-6),
    ],
)
def test_coefficients_from_masked_sums(
    method: str, rule: Any, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in SITES:
        monkeypatch.setitem(SHAPES, site, SHAPES["ash"])
    options = plain(method, epochs=1, align="both")
    options["exchange"] = {**options["exchange"], "rule": rule}
    whole = trained(tmp_path / "whole", **options)
    sites = over_sites(tmp_path, privacy=MASKED, **options)
    assert furthest(weights(whole), sites.weights()) < tolerance
    states = [own["state"] for site in SITES for own in sent(sites, site) if "forms" in own]
    assert len(states) > 8 and all(
        value.dtype == torch.int64 for state in states for value in state.values()
    )
    found = (
        torch.cat([value.reshape(-1) for state in states for value in state.values()])
        .numpy()
        .view(np.uint8)
    )
    assert chisquare(np.bincount(found.reshape(-1, 8)[:, 7], minlength=256)).pvalue > 1e-6


def test_noise_is_what_client_level_privacy_adds_and_is_counted(whole: Run, tmp_path: Path) -> None:
    small = Privacy(client_level=ClientLevel(clip=1e4, noise=1e-9))
    assert (
        0
        < furthest(
            weights(whole), over_sites(tmp_path / "small", privacy=small, **plain()).weights()
        )
        < 1e-2
    )
    sites = over_sites(
        tmp_path / "large", privacy=Privacy(client_level=ClientLevel(0.1, 2.0)), **plain()
    )
    assert furthest(weights(whole), sites.weights()) > 0.1
    assert {shield.epsilon for shield in sites.shields.values()} == {epsilon([2.0] * 2, 1e-5)}
    first = {
        own["site"]: own["updates"]
        for site in SITES
        for own in sites.heard(site)
        if own["key"] == "round:0"
    }
    ash, birch = (first[site][site]["state"] for site in ("ash", "birch"))
    noise = torch.cat([(ash[name] - birch[name]).reshape(-1) for name in ash])
    # all started alike; updates are 0.1 long, so that the noise's variance decides
    ratio = float(noise.square().sum()) / (0.2**2 * 2)
    low, high = chi2(noise.numel()).interval(1 - 1e-6)
    assert low < ratio < 1.2 * high


def test_both_together(whole: Run, tmp_path: Path) -> None:
    both = Privacy(masked=Masked(), client_level=ClientLevel(clip=1e4, noise=1e-9))
    sites = over_sites(tmp_path, privacy=both, signed=False, **plain())
    assert 0 < furthest(weights(whole), sites.weights()) < 1e-2
    assert sites.shields["ash"].epsilon == epsilon([1e-9] * 2, 1e-5)
    assert (
        "a coordinator that lies could put its own in their place" in sites.shields["ash"].notes[0]
    )


class Bursts(fedlit.FederatedClient):
    """dune's update is too long, or not finite, in some epochs."""

    epochs: ClassVar = {1: 1e6}

    def on_send(self, steps: int) -> None:
        epoch = self.trainer.current_epoch
        if self.spec.name == "dune" and epoch in self.epochs:
            with torch.no_grad():
                next(iter(self.federated.values())).add_(self.epochs[epoch])


class Unfit(Bursts):
    """In all epochs but the first."""

    epochs: ClassVar = dict.fromkeys(range(1, 9), 1e6)


class Diverges(Bursts):
    """Once, by a number that is beyond all bounds."""

    epochs: ClassVar = {1: math.nan}


class Twice(fedlit.Mean):
    """In one process: in the second round clients receive what they received in the first."""

    def __call__(self, round: Any) -> dict[str, dict[str, Tensor]]:
        if round.number != 1:
            found = {name: dict(own) for name, own in super().__call__(round).items()}
            self.last = {
                name: {key: value.clone() for key, value in own.items()}
                for name, own in found.items()
            }
        return {name: dict(own) for name, own in self.last.items()}


VOID: dict[str, Any] = {
    "epochs": 3,
    "client": Bursts,
    "exchange": {"federated": ["core"], "guard": False},
}


def test_a_round_with_an_unfit_site_has_no_sum(tmp_path: Path) -> None:
    """All sites go back to what they received before, and keep their optimizers' states; the next
    round counts."""
    momentum = {
        "loop": {"optimizer": partial(torch.optim.SGD, lr=0.01, momentum=0.9), "engine": "plain"}
    }
    options = plain(**{**VOID, **momentum})
    once = {**options, "exchange": {**options["exchange"], "rule": Twice}}
    whole = trained(tmp_path / "whole", **once)
    sites = over_sites(tmp_path / "sites", privacy=MASKED, **options)
    assert furthest(weights(whole), sites.weights()) < 2e-6
    assert sites.journal.void == {1: ["dune"]}
    for site in SITES:
        masked = [
            message["key"]
            for message in sites.heard(site)
            if "state" in (message.get("answers") or {})
        ]
        assert masked == ["round:0/0", "round:2/0"]
        assert (
            sites.runs[site].exchange.incident_counts["dune"]["unfit"] == 1
            and sites.runs[site].exchange.rounds == 3
        )


@pytest.mark.parametrize("step", [6, 9])
def test_sites_killed_around_a_void_round_end_with_the_same_bits(step: int, tmp_path: Path) -> None:
    """Killed in the void round, and in the next one; sites and coordinator go on from their
    files."""
    options = plain(**VOID)
    whole = over_sites(tmp_path / "whole", privacy=MASKED, **options)
    stop: dict[str, Any] = {
        "callbacks": lambda folder: [StopAfter(step, folder / "middle.ckpt", Killed)]
    }
    over_sites(tmp_path / "killed", killed=True, privacy=MASKED, **stop, **options)
    resumed = over_sites(tmp_path / "killed", "middle.ckpt", privacy=MASKED, **options)
    assert different(whole.weights(), resumed.weights()) == []
    assert resumed.journal.void == {1: ["dune"]}


def test_a_site_that_diverged_once_takes_part_again(tmp_path: Path) -> None:
    sites = over_sites(tmp_path, privacy=MASKED, **plain(**{**VOID, "client": Diverges}))
    assert sites.journal.void == {1: ["dune"]}
    assert all(bool(torch.isfinite(value).all()) for value in sites.weights().values())
    core = [run.loop.federation[name].federated for name, run in sites.runs.items()]
    assert all(torch.equal(core[0][key], own[key]) for own in core for key in core[0])


def test_three_rounds_without_a_sum_stop_a_federation(tmp_path: Path) -> None:
    """All checkpoints are whole: once the site is mended, all go on from them."""
    options = plain(
        **{**VOID, "client": Unfit, "epochs": 6, "checkpoints": Checkpoints(best=0, seconds=0)}
    )
    with pytest.raises(RunError, match="dune"):
        over_sites(tmp_path, privacy=MASKED, **options)
    assert sorted(Journal(tmp_path / "state", sorted(SITES), 0).void) == [1, 2, 3]
    (last,) = {
        path.relative_to(tmp_path / site)
        for site in SITES
        for path in (tmp_path / site).glob("**/last.ckpt")
    }
    assert {read_checkpoint(tmp_path / site / last, resumable=True)["epoch"] for site in SITES} == {
        2
    }
    mended = over_sites(
        tmp_path, str(last), privacy=MASKED, **{**options, "client": fedlit.FederatedClient}
    )
    assert sorted(mended.journal.void) == [1, 2, 3]
    assert {run.exchange.rounds for run in mended.runs.values()} == {6}
