"""A coordinator that asks again under other names: noise that averages away, and a second sum to subtract."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

import fedlit
from fedlit.errors import FedlitError
from fedlit.exchange.rule import Update
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.site import Shield
from fedlit.sharing import Sharing

__all__ = ["memory"]

Rows = list[tuple[str, int, int, str]]
SITES = ("ash", "birch", "cedar", "dune")
SHARING = Sharing(dict.fromkeys(SITES, ("w",)), dict.fromkeys(SITES, ("w",)), {"w": ("float32", (500,))})
START = {"w": torch.zeros(500)}


def memory(folder: Path, tries: int) -> Rows:
    """Ask each site for round 0 again, under names that the coordinator draws."""
    return [_noise(folder / "noise", tries), _twice(folder / "twice")]


def _shield(folder: Path, site: str, privacy: Privacy, name: str, sites: tuple[str, ...]) -> Shield:
    """Of a version of fedlit that knows the federation's name alone, its folder lies under that name."""
    known = inspect.signature(Shield).parameters
    own: dict[str, Any] = {"cohort": lambda number: sites} if "cohort" in known else {}
    if privacy.masked and own:
        from cryptography.hazmat.primitives.asymmetric import ec

        own["registered"] = ec.generate_private_key(ec.SECP384R1())
    place = folder / site / "privacy" / ("" if own else name)
    return Shield(site, privacy, fedlit.Mean(), place, name, **own)


def _update(site: str) -> Update:
    random = torch.Generator().manual_seed(SITES.index(site))
    return Update({"w": torch.randn(500, generator=random)}, rows=9)


def _noise(folder: Path, tries: int) -> tuple[str, int, int, str]:
    """At most two noisy answers were agreed to; each new name asks for one more."""
    privacy, given = Privacy(client_level=ClientLevel(clip=1.0, noise=2.0, answers=2)), 0
    for number in range(tries):
        shield = _shield(folder, "ash", privacy, f"{number:032x}", SITES)
        shield.meet({"ash": shield.offer()}, SHARING, START)
        try:
            shield.send(0, _update("ash"))
            given += 1
        except FedlitError:
            pass
    return "noisy answers beyond what was agreed", tries, tries if given <= 2 else 0, f"{given} given, 2 agreed"


def _twice(folder: Path) -> tuple[str, int, int, str]:
    """The sum over four sites, and then, under the same name, over three of them."""
    privacy, name, sums = Privacy(masked=Masked()), "0" * 32, []
    for sites in (SITES, SITES[:3]):
        shields = {site: _shield(folder, site, privacy, name, SITES) for site in sites}
        offers = {site: shield.offer() for site, shield in shields.items()}
        try:
            sums.append(_sum(shields, offers, privacy))
        except FedlitError as error:
            return "a second sum over fewer sites", 1, int(len(sums) == 1), str(error)[:100]
    away = float((sums[0] * 4 - sums[1] * 3 - _update("dune").state["w"]).abs().max())
    return "a second sum over fewer sites", 1, 0, f"the update of one site is known to {away:.1e}"


def _sum(shields: dict[str, Shield], offers: dict[str, Any], privacy: Privacy) -> torch.Tensor:
    from fedlit.privacy.coordinator import SUM, Gathering

    for site, shield in shields.items():
        shield.meet(offers, SHARING, START)
        shield.send(0, _update(site))
    flags = {site: (True, shield.flags(0, fit=True)) for site, shield in shields.items()}

    def put(asked: Any) -> Any:
        return {site: shields[site].answer(0, question) for site, question in asked.items()}

    gathering = Gathering(privacy.masked, fedlit.Mean(), SHARING, 0, flags, put)
    return gathering.gather()[SUM].state["w"].double()
