"""Sites of a masked federation as a coordinator reaches them, without training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric import ec

from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.wire import pack, unpack
from fedlit.privacy.coordinator import Gathering
from fedlit.privacy.settings import Masked, Privacy
from fedlit.privacy.site import Shield
from fedlit.sharing import Sharing

ID = "0123456789abcdef" * 2


SITES = ("ash", "birch", "cedar", "dune")


REGISTERED = {site: ec.generate_private_key(ec.SECP384R1()) for site in SITES}


NAMES = {site: ("w", "b") for site in SITES} | {"dune": ("w",)}


SHARING = Sharing(NAMES, NAMES, {"w": ("float32", (3,)), "b": ("float32", ())})


STARTS = {"w": torch.zeros(3), "b": torch.zeros(())}


MASKED = Privacy(masked=Masked())


def states(seed: int = 8, sharing: Sharing = SHARING) -> dict[str, Update]:
    random = torch.Generator().manual_seed(seed)
    return {
        site: Update({name: torch.randn(sharing.forms[name][1], generator=random) for name in names}, rows=9 + k)
        for k, (site, names) in enumerate(sharing.names.items())
    }


def shields(folder: Path, rule: Rule, privacy: Privacy = MASKED, sharing: Sharing = SHARING) -> dict[str, Shield]:
    own = {
        site: Shield(site, privacy, rule, folder / site, ID, lambda number: sharing.names, REGISTERED[site])
        for site in sharing.names
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
        self.answers: dict[str, Any] = {}

    def __call__(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for site, question in questions.items():
            question = unpack(pack({**question, "flags": self.lie(site, question["flags"])}))
            told[site] = unpack(pack(self.shields[site].answer(self.number, question, self.answers.get(site))))
        return told

    def gathering(self, rule: Rule, sharing: Sharing, put: Any = None) -> Gathering:
        assert MASKED.masked is not None
        return Gathering(MASKED.masked, rule, sharing, self.number, self.flags, put or self)


def sent(own: Mapping[str, Shield], updates: Mapping[str, Update], number: int = 0) -> Mapping[str, Shield]:
    for site, shield in own.items():
        assert not shield.unfit(number, updates[site])
        assert shield.send(number, updates[site]).state == {}
    return own


def wide_sharing() -> Sharing:
    names = {site: ("w",) for site in SITES}
    return Sharing(names, names, {"w": ("float32", (3,))})
