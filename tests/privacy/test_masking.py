import hashlib
import hmac
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.rule import by_owners
from fedlit.privacy.keys import (
    Pairs,
    accepted,
    advert,
    derived,
    fingerprint_of,
    mask_key,
    registered_key,
)
from fedlit.privacy.ledger import prepare
from fedlit.privacy.masking import (
    GROUP,
    Layout,
    Masker,
    decoded,
    encoded,
    largest,
    stream,
    sum_of,
    tolerance,
)
from fedlit.sharing import form_of

SITES = ("ash", "birch", "cedar", "dune")
KEYS = {site: X25519PrivateKey.generate() for site in SITES}
PUBLICS = {site: key.public_key().public_bytes_raw() for site, key in KEYS.items()}


def maskers(bits: int = 32, federation: str = "made") -> dict[str, Masker]:
    return {site: Masker(Pairs(site, KEYS[site], PUBLICS, federation), bits) for site in SITES}


def states(count: int = 50, seed: int = 8) -> dict[str, dict[str, Tensor]]:
    random = torch.Generator().manual_seed(seed)
    drawn = {
        site: {"w": torch.randn(count, 3, generator=random), "b": torch.randn(1, generator=random)}
        for site in SITES
    }
    drawn["dune"].pop("b")
    return drawn


def layout_of(own: Mapping[str, Mapping[str, Tensor]], *, by_rows: bool = False) -> Layout:
    groups = {sites: sorted(names) for sites, names in by_owners(own).items()}
    forms = {
        name: form_of(own[sites[0]][name]) for sites, names in groups.items() for name in names
    }
    return Layout(groups, forms, by_rows)


def test_the_masked_mean_is_the_mean_to_the_stated_tolerance() -> None:
    own = states()
    own["dune"]["b"] = torch.randn(1)
    rows = dict(zip(SITES, (3, 500, 70_000, 8), strict=True))
    for by_rows in (False, True):
        layout = layout_of(own, by_rows=by_rows)
        site = maskers()
        sent = {name: site[name].mask(0, layout, own[name], rows[name]) for name in SITES}
        total = sum_of(layout, sent)
        weight = {name: rows[name] if by_rows else 1 for name in SITES}
        assert total.weights == dict.fromkeys("wb", sum(weight.values()))
        for name in "wb":
            exact = sum(own[one][name].double() * weight[one] for one in SITES) / sum(
                weight.values()
            )
            most = max(float(own[one][name].abs().max()) * weight[one] for one in SITES)
            error = (total.sums[name] / total.weights[name] - exact).abs().max()
            assert float(error) <= tolerance(32, 4, sum(weight.values()), most)
            assert torch.equal(
                total.mean(layout.forms)[name], (total.sums[name] / total.weights[name]).float()
            )


def test_the_stream_is_aes_and_the_keys_are_hkdf() -> None:
    secret = bytes(range(32))
    info = b"round 3"
    extracted = hmac.digest(bytes(32), secret, hashlib.sha256)  # RFC 5869, once by hand
    assert derived(secret, info) == hmac.digest(extracted, info + b"\x01", hashlib.sha256)
    block = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()
    counted = b"".join(block.update((5 << 64 | place).to_bytes(16, "big")) for place in range(3))
    assert stream(secret, 5, 6).astype("<u8").tobytes() == counted


def test_two_sites_agree_on_the_key_of_rfc_7748() -> None:
    private = {
        "ash": "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        "birch": "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    }
    secret = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    keys = {
        site: X25519PrivateKey.from_private_bytes(bytes.fromhex(own))
        for site, own in private.items()
    }
    publics = {site: key.public_key().public_bytes_raw() for site, key in keys.items()}
    ends = [["ash", publics["ash"].hex()], ["birch", publics["birch"].hex()]]
    info = json.dumps(["fedlit", 2, "made", "mask", 3, None, ends]).encode()
    for site, peer in (("ash", "birch"), ("birch", "ash")):
        assert Pairs(site, keys[site], publics, "made").key(peer, "mask", 3, None) == derived(
            secret, info
        )


def test_a_flag_is_believed_only_from_the_site_that_it_is_about() -> None:
    pairs = {site: Pairs(site, KEYS[site], PUBLICS, "made") for site in SITES}
    said = {site: pairs[site].flags(3, site != "cedar") for site in SITES}
    flags = {site: [site != "cedar", said[site].get("ash", "")] for site in SITES}
    assert pairs["ash"].fit(3, flags, SITES) == ["ash", "birch", "dune"]
    lies = {
        "an unfit site is called fit": flags | {"cedar": [True, flags["cedar"][1]]},
        "a fit site is called unfit": flags | {"birch": [False, flags["birch"][1]]},
        "a proof for another site": flags | {"birch": [True, said["birch"]["dune"]]},
        "of another round": flags | {"birch": [True, pairs["birch"].flags(2, True)["ash"]]},
        "a site is left out": {site: own for site, own in flags.items() if site != "dune"},
        "a stranger": flags | {"eve": [True, ""]},
        "no flags": None,
        "no proof": flags | {"birch": [True]},
        "no truth": flags | {"birch": [1, flags["birch"][1]]},
    }
    for lie in lies.values():
        with pytest.raises(RunError, match="round 4: expected"):
            pairs["ash"].fit(3, lie, SITES)


def test_no_mask_is_used_twice() -> None:
    own = {"w": torch.full((1000,), 0.25)}
    layout = layout_of(dict.fromkeys(SITES, own))
    uses = (
        (0, None, "made"),
        (0, 0, "made"),
        (0, 1, "made"),
        (1, None, "made"),
        (0, None, "other"),
    )
    sent = [
        maskers(federation=name)["ash"].mask(number, layout, own, question=put)["w"]
        for number, put, name in uses
    ]
    assert all(not (one == other).any() for place, one in enumerate(sent) for other in sent[:place])


@pytest.mark.parametrize("wrong", ["noise", "zeros", "another round", "a bit", "another list"])
def test_a_message_that_was_replaced_is_found(wrong: str) -> None:
    own = states()
    site = maskers()
    layout = layout_of(own)
    sent = {name: site[name].mask(1, layout, own[name]) for name in SITES}
    other = layout_of({name: {**own[name], "w": own[name]["w"][:4]} for name in SITES})
    replaced = {
        "noise": lambda: {
            name: torch.randint_like(value, 2**62) for name, value in sent["ash"].items()
        },
        "zeros": lambda: {name: torch.zeros_like(value) for name, value in sent["ash"].items()},
        "another round": lambda: site["ash"].mask(2, layout, own["ash"]),
        "a bit": lambda: {**sent["ash"], f"{GROUP}0": sent["ash"][f"{GROUP}0"] + 1},
        "another list": lambda: site["ash"].mask(
            1, other, {**own["ash"], "w": own["ash"]["w"][:4]}
        ),
    }[wrong]()
    expected = "tensors that were agreed" if wrong == "another list" else "masks that cancel"
    with pytest.raises(RunError, match=expected):
        sum_of(layout, {**sent, "ash": replaced})


def test_what_cannot_be_summed_is_refused_before_it_leaves() -> None:
    own = states()
    site = maskers()
    layout = layout_of(own)
    for value in (torch.tensor([odd]) for odd in (torch.nan, torch.inf, largest(32, 3) * 1.01)):
        with pytest.raises(RunError, match="'ash': b: expected numbers that can be summed, found "):
            site["ash"].mask(0, layout, {**own["ash"], "b": value})
    with pytest.raises(
        RunError,
        match=r"'ash': b: expected float32 of shape \(1,\), as agreed, found torch.float64",
    ):
        site["ash"].mask(0, layout, {**own["ash"], "b": torch.zeros(1).double()})


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(-1e5, 1e5, width=32), min_size=4, max_size=4), min_size=3, max_size=6
    ),
    st.integers(8, 40),
)
def test_fixed_point_is_within_half_a_unit_and_free_of_order(
    rows: list[list[float]], bits: int
) -> None:
    parts = [encoded(torch.tensor(own), bits, len(rows)) for own in rows]
    total: Any = np.sum(parts, 0, dtype=np.uint64)
    other = np.sum(parts[::-1], 0, dtype=np.uint64)
    exact = np.array(rows, np.float64).sum(0)
    assert np.array_equal(total, other)
    error = np.abs(decoded(total, bits, torch.float32).numpy() - exact)
    assert (
        error <= len(rows) * tolerance(bits, len(rows), magnitude=np.abs(rows).max()) + 1e-12
    ).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=5))
def test_whole_numbers_are_summed_exactly(values: list[int]) -> None:
    words = sum((encoded(torch.tensor([own]), 32, 4) for own in values[:4]), np.zeros(1, np.uint64))
    assert decoded(words, 32, torch.int64).item() == sum(values[:4])


REGISTERED = {site: ec.generate_private_key(ec.SECP384R1()) for site in SITES}
ADVERTS = {site: advert(site, "made", KEYS[site], REGISTERED[site]) for site in SITES}
PEERS = {site: fingerprint_of(ADVERTS[site]["key"]) for site in SITES}


def test_keys_that_are_signed_are_accepted() -> None:
    expected = {site: own.public_key().public_bytes_raw() for site, own in KEYS.items()}
    assert accepted("made", ADVERTS, PEERS) == accepted("made", ADVERTS, {}) == expected


def test_a_coordinator_that_puts_its_own_keys_in_is_refused() -> None:
    mine = X25519PrivateKey.generate()
    signs = ec.generate_private_key(ec.SECP384R1())
    public = mine.public_key().public_bytes_raw().hex()
    forgeries = [
        {**ADVERTS["ash"], "public": public},
        advert("ash", "made", mine, signs),
        {"public": public},
        {**ADVERTS["ash"], "signature": ADVERTS["birch"]["signature"]},
        {**ADVERTS["ash"], "public": "00"},
    ]
    for forged in forgeries:
        with pytest.raises(RunError, match="site 'ash': expected"):
            accepted("made", {**ADVERTS, "ash": forged}, PEERS)
    with pytest.raises(RunError, match="one twice"):
        accepted("made", {site: advert(site, "made", mine, signs) for site in SITES}, {})
    with pytest.raises(RunError, match="site 'ash': expected"):
        accepted("another federation", ADVERTS, PEERS)
    with pytest.raises(RunError, match="site 'cedar': expected"):
        accepted("made", ADVERTS, {site: PEERS[site] for site in SITES[:2]})


def test_the_key_for_masks_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    prepare(tmp_path / "site")
    path = tmp_path / "site" / "mask.key"
    made = mask_key(path)
    prepare(tmp_path / "site")
    assert mask_key(path).private_bytes_raw() == made.private_bytes_raw()
    assert (path).stat().st_mode & 0o777 == 0o600
    (path).write_bytes(b"short")
    with pytest.raises(RunError, match="expected the 32 bytes of a key for masks, found 5"):
        mask_key(path)


def test_fingerprints_of_registered_keys_are_ssh_keygens(
    tmp_path: Path,
) -> None:
    own = REGISTERED["ash"]
    content = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    (tmp_path / "site.key").write_bytes(content)
    assert registered_key(tmp_path / "site.key").private_numbers() == own.private_numbers()
    (tmp_path / "site.pub").write_text(ADVERTS["ash"]["key"] + "\n")
    try:
        said = subprocess.run(
            ["ssh-keygen", "-lf", tmp_path / "site.pub"], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("ssh-keygen is not installed")
    assert fingerprint_of(ADVERTS["ash"]["key"]) in said.stdout
