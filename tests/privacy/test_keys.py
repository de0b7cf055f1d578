import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedlit.errors import RunError
from fedlit.privacy.keys import accepted, advert, fingerprint, mask_key, registered_key

SITES = ("ash", "birch", "cedar")
MASKS = {site: X25519PrivateKey.generate() for site in SITES}
REGISTERED = {site: ec.generate_private_key(ec.SECP384R1()) for site in SITES}
ADVERTS = {site: advert(site, "made", MASKS[site], REGISTERED[site]) for site in SITES}
PEERS = {site: fingerprint(ADVERTS[site]["key"]) for site in SITES}


def test_keys_that_are_signed_are_accepted() -> None:
    expected = {site: own.public_key().public_bytes_raw() for site, own in MASKS.items()}
    assert accepted("made", ADVERTS, PEERS) == accepted("made", ADVERTS, {}) == expected


def test_a_coordinator_that_puts_its_own_keys_in_is_refused() -> None:
    mine, signs = X25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())
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
    made = mask_key(tmp_path / "mask.key")
    assert mask_key(tmp_path / "mask.key").private_bytes_raw() == made.private_bytes_raw()
    assert (tmp_path / "mask.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "mask.key").write_bytes(b"short")
    with pytest.raises(RunError, match="expected the 32 bytes of a key for masks, found 5"):
        mask_key(tmp_path / "mask.key")


def test_registered_keys_are_read_and_their_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    own = REGISTERED["ash"]
    content = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    (tmp_path / "site.key").write_bytes(content)
    assert registered_key(tmp_path / "site.key").private_numbers() == own.private_numbers()
    (tmp_path / "site.pub").write_text(ADVERTS["ash"]["key"] + "\n")
    try:
        said = subprocess.run(["ssh-keygen", "-lf", tmp_path / "site.pub"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("ssh-keygen is not installed")
    assert fingerprint(ADVERTS["ash"]["key"]) in said.stdout
