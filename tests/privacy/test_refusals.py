"""What privacy cannot be had with, and messages of another form: refused by name, and nothing is sent."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from privacy.gathering import MASKED, MEAN, NAMES, SHARING, SITES, Sites, sent, shields, states
from privacy.test_masking import KEYS, PUBLICS

from fedlit import CFL, IFCA, GrowForest, Mean, Newton
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.questions import Own
from fedlit.exchange.rule import Rule
from fedlit.exchange.wire import question_to
from fedlit.privacy.client_level import noised
from fedlit.privacy.keys import fingerprint, registered_key
from fedlit.privacy.layout import layout_of
from fedlit.privacy.masking import Pairs
from fedlit.privacy.refusals import refuse
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.sharing import Sharing

LEVEL = Privacy(client_level=ClientLevel(1, 1))
ONE = {"w": torch.ones(2)}


def shares(forms: Any = None, parameters: Any = NAMES) -> Sharing:
    return Sharing(NAMES, parameters, forms or SHARING.forms)


def ask(privacy: Privacy, rule: Rule, sharing: Sharing = SHARING, taking_part: int = 4, **more: Any) -> None:
    refuse(privacy, rule, sharing, taking_part=taking_part, **more)


RSA = rsa.generate_private_key(65537, 2048).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
)
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (partial(ClientLevel, clip=0, noise=1), "clip"),
    (partial(ClientLevel, clip=1, noise=0), "noise"),
    (partial(ClientLevel, clip=1, noise=1, delta=1), "delta"),
    (partial(ClientLevel, clip=1, noise=1, answers=0), "answers"),
    (partial(Masked, bits=60), "bits"),
    (partial(Masked, least=2), "least"),
    (partial(Masked, norm=0), "norm"),
    # rules that need more than a sum, and settings by which more would leave than is covered
    *((partial(ask, MASKED, rule), type(rule).__name__) for rule in (IFCA(2), CFL(), GrowForest(), Newton("others"))),
    (partial(ask, MASKED, MEAN, taking_part=2), "exchange.part"),
    (partial(ask, MASKED, Mean("rows")), "the same tensors"),
    (partial(ask, MASKED, MEAN, published={"p": 1}), "p would travel"),
    (partial(ask, LEVEL, Newton()), "Newton"),
    (partial(ask, LEVEL, MEAN, shares({"w": ("int64", (3,)), "b": ("float32", ())})), "w"),
    (partial(ask, LEVEL, MEAN, shares(parameters={site: ("w",) for site in SITES})), "buffers .*b"),
    (partial(layout_of, SHARING, ("ash", "birch", "dune"), MEAN), "b: .*found ash, birch"),
    (partial(layout_of, SHARING, ("ash", "ash"), MEAN), "found ash"),
    # answers that have no promise
    *((partial(noised, state, before, ClientLevel(clip=0.5, noise=2.0)), key) for state, before, key in (
        ({"n": torch.ones(2).long()}, {"n": torch.ones(2).long()}, "n: "), (ONE, {}, "w: .*nothing"),
        (ONE, {"w": torch.ones(3)}, "w: "), ({"w": torch.tensor([1.0, math.nan])}, ONE, "finite"))),
    # keys
    (partial(Pairs, "ash", X25519PrivateKey.generate(), PUBLICS, "made"), "its own key"),
    (partial(Pairs("ash", KEYS["ash"], {**PUBLICS, "birch": bytes(32)}, "made").key, "birch"), "site 'birch'"),
    (partial(fingerprint, "nothing"), "public key"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "key"), REFUSED)
def test_what_privacy_cannot_be_had_with(make: Callable[[], Any], key: str) -> None:
    with pytest.raises(FedlitError, match=key):
        make()


@pytest.mark.parametrize("content", [RSA, b"nothing"])
def test_other_keys_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "site.key").write_bytes(content)
    with pytest.raises(ConfigError, match="key"):
        registered_key(tmp_path / "site.key")


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"state": [1]},
        {"state": {"w": 1}},
        {"state": {"w": torch.zeros(3)}},
        {"state": {"w": torch.zeros(3).long(), "sum/0": torch.zeros(2).long()}},
        {"state": {"w": torch.zeros(4).long(), "sum/0": torch.zeros(1).long()}},
    ],
)
def test_a_message_of_another_form_is_refused_with_its_site(message: dict[str, Any], tmp_path: Path) -> None:
    sites = sent(tmp_path)
    with pytest.raises(RunError, match="site 'birch'"):
        sites.gathering(put=lambda asked: sites(asked) | {"birch": message}).gather()


@pytest.mark.parametrize("asked", [{}, {"n": 0}, {"n": "0", "question": {}}, {"n": -1, "question": {}}, {"flags": 3}])
def test_a_question_of_another_form_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    shield = shields(tmp_path)["ash"]
    shield.send(0, states()["ash"])
    with pytest.raises(RunError, match="round 1"):
        shield.answer(0, asked)


def test_fewer_than_three_get_no_sum(tmp_path: Path) -> None:
    sites = sent(tmp_path, unfit=("ash", "dune"))
    gathering = sites.gathering()
    with pytest.raises(ConfigError, match="found birch, cedar"):
        gathering.gather()
    with pytest.raises(ConfigError, match="at least 3 sites"):
        sites({"birch": {"flags": gathering._flags_for("birch")}})


def test_answers_that_are_to_be_summed_are_told_to_nobody_singly(tmp_path: Path) -> None:
    own = shields(tmp_path, rule := Newton(of="all"))
    shield, flags = own["ash"], Sites(own).gathering(rule)._flags_for("ash")
    with pytest.raises(RunError, match="curvature"):
        shield.refuse_single(Own("curvature", {}))
    shield.refuse_single(Own("another", {}))
    with pytest.raises(RunError, match="Newton"):
        shield.answer(0, {"flags": flags, "n": 0, "question": question_to(Own("another", {}))}, lambda own: {})
