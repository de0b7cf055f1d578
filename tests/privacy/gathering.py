"""Sites of a masked federation as a coordinator reaches them, without training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric import ec

import fedlit
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.wire import pack, unpack
from fedlit.privacy.coordinator import Gathering
from fedlit.privacy.settings import Masked, Privacy
from fedlit.privacy.site import Shield
from fedlit.sharing import Sharing

ID = "0123456789abcdef" * 2
SITES = ("ash", "birch", "cedar", "dune")
REGISTERED = {site: ec.generate_private_key(ec.SECP384R1()) for site in SITES}
FORMS: dict[str, tuple[str, tuple[int, ...]]] = {"w": ("float32", (3,)), "b": ("float32", ())}
NAMES = {site: ("w", "b") for site in SITES} | {"dune": ("w",)}
SHARING = Sharing(NAMES, NAMES, FORMS)
WIDE = Sharing(dict.fromkeys(SITES, ("w",)), dict.fromkeys(SITES, ("w",)), {"w": FORMS["w"]})
"""Without what only some have."""
STARTS = {"w": torch.zeros(3), "b": torch.zeros(())}
MASKED = Privacy(masked=Masked())
MEAN = fedlit.Mean()


def states(seed: int = 8) -> dict[str, Update]:
    random = torch.Generator().manual_seed(seed)
    return {site: Update({"w": torch.randn(3, generator=random)}, rows=9 + k) for k, site in enumerate(SITES)}


def shields(folder: Path, rule: Rule = MEAN, privacy: Privacy = MASKED, sharing: Sharing = WIDE) -> dict[str, Shield]:
    own = {
        site: Shield(site, privacy, rule, folder / site, ID, lambda number: sharing.names, REGISTERED[site])
        for site in SITES
    }
    offers = {site: unpack(pack(shield.offer())) for site, shield in own.items()}
    for site, shield in own.items():
        shield.meet(offers, sharing, {name: STARTS[name] for name in sharing.names[site]})
    return own


class Sites:
    """Sites as a coordinator reaches them. ``lie`` changes what it tells a site of the others' flags."""

    def __init__(self, own: Mapping[str, Shield], number: int = 0, unfit: tuple[str, ...] = ()) -> None:
        self.shields, self.number = own, number
        self.flags = {
            site: (site not in unfit, shield.flags(number, fit=site not in unfit)) for site, shield in own.items()
        }
        self.lie = lambda site, flags: flags

    def __call__(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for site, question in questions.items():
            question = unpack(pack({**question, "flags": self.lie(site, question["flags"])}))
            told[site] = unpack(pack(self.shields[site].answer(self.number, question)))
        return told

    def gathering(self, rule: Rule = MEAN, sharing: Sharing = WIDE, put: Any = None) -> Gathering:
        assert MASKED.masked is not None
        return Gathering(MASKED.masked, rule, sharing, self.number, self.flags, put or self)


def sent(folder: Path, seed: int = 8, unfit: tuple[str, ...] = ()) -> Sites:
    """Behind what all of them have sent, but for those that are not fit."""
    own = shields(folder)
    for site, update in states(seed).items():
        if site not in unfit:
            assert not own[site].unfit(0, update) and own[site].send(0, update).state == {}
    return Sites(own, unfit=unfit)
